//! The first of the two parts about cluster managers: a newer environment takes the place of an older one, whose owner gets a mail and a message in
//! Slack before it goes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use coppice_api::notify::MessageAbout;
use coppice_api::{
    CoppiceConfig, DeletedNamespace, ManagedNamespace, ManagedNamespaceStatus, NamespacePhase,
};
use coppice_plane::{Error, OUTCOME_LABEL};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::screen::Screen;
use super::table::Table;
use super::{TIMEOUT, coppice, pause};
use crate::mail_server::{Mail, MailServer, MailServerOptions};
use crate::memory::{apply_all, client};
use crate::slack::{Posted, Slack};
use crate::{Operator, memory};

/// The namespace of the first pipeline, and that of the second one.
const OLDER: &str = "review-1";
const NEWER: &str = "review-2";
/// What the names of these two begin with.
const PREFIX: &str = "review-";
/// Who made both.
const MAIL_ADDRESS: &str = "mia@example.org";
const SLACK_MEMBER: &str = "U024BE7LH";
/// The bot's token.
const TOKEN: &str = "xoxb-of-the-demo";
/// How long before the deletion its owner knows: people want to read the messages meanwhile.
pub(super) const NOTICE: &str = "20s";
/// The names of the channels, and of the files that they read.
const MAIL_CHANNEL: &str = "review-mail";
const SLACK_CHANNEL: &str = "review-slack";
const AUTHORITY_FILE: &str = "review-mail-ca";
const TOKEN_FILE: &str = "review-slack-token";

const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: review}, spec: {mode: Enforce, \
                       selector: {names: ['review-*']}, settle: 1s, health: {}, identity: {project: review.example.org/project, branch: \
                       review.example.org/branch, pipeline: review.example.org/pipeline, links: {pipeline: \
                       review.example.org/pipeline-url}}, supersede: {by: [Branch]}, owner: {annotations: [{key: \
                       review.example.org/mail, format: Email}, {key: review.example.org/slack, format: Slack}]}, notify: {channels: \
                       CHANNELS}, policies: [{name: delete the superseded, when: {phase: {in: [Superseded]}}, then: {delete: {notice: \
                       NOTICE}}}]}}";

/// A namespace as the pipeline of this number makes it, with a pod that runs.
fn environment(pipeline: u32) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {PREFIX}{pipeline}, labels: {{review.example.org/project: shop, \
         review.example.org/branch: search, review.example.org/pipeline: '{pipeline}'}}, annotations: {{review.example.org/mail: \
         {MAIL_ADDRESS}, review.example.org/slack: {SLACK_MEMBER}, review.example.org/pipeline-url: \
         'https://ci.example.org/shop/pipelines/{pipeline}'}}}}}}\n---\n{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: \
         {PREFIX}{pipeline}, labels: {{{OUTCOME_LABEL}: run}}}}, spec: {{containers: [{{name: main, image: example.com/none}}]}}}}"
    )
}

/// What stands in for a mail server and for Slack.
pub struct StandIns {
    /// None where it cannot be built: it is written in Go.
    mail: Option<MailServer>,
    slack: Slack,
}

impl StandIns {
    /// Starts them. The mail server is built first, if need be.
    pub async fn start() -> anyhow::Result<Self> {
        let mail = match MailServer::start(MailServerOptions::default()).await {
            Ok(server) => Some(server),
            Err(error) if matches!(error.downcast_ref(), Some(Error::Go { .. })) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { mail, slack: Slack::start(TOKEN, 0).await? })
    }

    /// Says where messages go.
    fn introduce(&self, screen: &Screen) {
        let Self { mail, slack } = self;
        match mail {
            Some(server) => screen.say(&format!(
                "  The owner gets a mail and a message in Slack. The mail server (tools/mail at {}, with STARTTLS and a\n  \
                 certificate of an authority of its own) and what answers as Slack does ({}) run here:\n  nothing leaves this \
                 machine.\n",
                server.address, slack.api_url
            )),
            None => screen.say(&format!(
                "  The owner gets a message in Slack. What answers as Slack does ({}) runs here: nothing\n  leaves this \
                 machine. The owner gets no mail: the mail server for it (tools/mail) is built with Go, which is not here.\n",
                slack.api_url
            )),
        }
    }

    /// Gives the operator the channels that lead to them, and the files that these name.
    async fn connect(&self, client: &Client, operator: &Operator) -> anyhow::Result<()> {
        operator.credential(TOKEN_FILE, TOKEN)?;
        let mut channels = vec![
            json!({"name": SLACK_CHANNEL, "slack": {"tokenFile": TOKEN_FILE, "apiUrl": self.slack.api_url}}),
        ];
        if let Some(server) = &self.mail {
            operator.credential(AUTHORITY_FILE, server.ca_pem())?;
            channels.push(json!({"name": MAIL_CHANNEL, "email": {
                "host": "127.0.0.1", "port": server.port(), "from": "Coppice <coppice@example.org>", "caFile": AUTHORITY_FILE
            }}));
        }
        let config = json!({
            "apiVersion": "coppice.dev/v1alpha1", "kind": "CoppiceConfig", "metadata": {"name": "coppice"},
            "spec": {"channels": channels}
        });
        let configs: Api<CoppiceConfig> = Api::all(client.clone());
        // Its own manager of fields: what else is in the settings stays.
        configs.patch("coppice", &PatchParams::apply("coppice-demo-channels"), &Patch::Apply(config)).await?;
        Ok(())
    }

    /// The names of the channels that there are.
    fn channels(&self) -> Vec<&'static str> {
        self.mail.iter().map(|_| MAIL_CHANNEL).chain([SLACK_CHANNEL]).collect()
    }

    /// The mail and the message about the older namespace, if they have come.
    fn received(&self) -> Option<(Option<Mail>, Posted)> {
        let posted = self.slack.posted().into_iter().find(|posted| posted.text.contains(OLDER))?;
        let Some(server) = &self.mail else { return Some((None, posted)) };
        let mail = server.accepted().into_iter().find(|mail| mail.header("Subject").contains(OLDER))?;
        Some((Some(mail), posted))
    }
}

/// Plays it on a cluster with this operator, with so much notice; whether every outcome was seen.
pub async fn run(
    kubeconfig: &Path,
    operator: &Operator,
    stand_ins: &StandIns,
    notice: &str,
    screen: &Screen,
) -> anyhow::Result<bool> {
    screen.say("CI builds a branch again, and the new environment takes the place of the old one.");
    screen.say(&format!(
        "  ClusterNamespaceManager review deletes what is Superseded. It notifies the owner first, and then waits for {notice}."
    ));
    stand_ins.introduce(screen);
    let client = client(kubeconfig).await?;
    stand_ins.connect(&client, operator).await?;
    let manager = MANAGER
        .replace("CHANNELS", &format!("[{}]", stand_ins.channels().join(", ")))
        .replace("NOTICE", notice);
    apply_all(&client, &manager).await?;
    let table = Table::new(screen, PREFIX);
    let mut demonstration =
        Demonstration { client, kubeconfig: kubeconfig.to_owned(), stand_ins, screen: screen.clone(), table };
    match demonstration.show_all().await? {
        None => Ok(true),
        Some(missed) => {
            screen.say(&format!("\nNOT SEEN  {missed}"));
            Ok(false)
        }
    }
}

struct Demonstration<'a> {
    client: Client,
    kubeconfig: PathBuf,
    stand_ins: &'a StandIns,
    screen: Screen,
    table: Table,
}

impl Demonstration<'_> {
    /// What was not seen, if there is something.
    async fn show_all(&mut self) -> anyhow::Result<Option<String>> {
        self.create(1, OLDER).await?;
        let ready = self.until(async |demonstration| Ok(demonstration.status(OLDER).await?.ready_at)).await?;
        if ready.is_none() {
            return Ok(Some(format!("{OLDER}: it is ready")));
        }
        self.create(2, NEWER).await?;
        let superseded = async |demonstration: &Self| {
            let status = demonstration.status(OLDER).await?;
            let by = status.superseded_by.filter(|by| by.namespace == NEWER);
            Ok(by.filter(|_| status.phase == Some(NamespacePhase::Superseded)))
        };
        if self.until(superseded).await?.is_none() {
            return Ok(Some(format!("{OLDER}: Superseded by {NEWER}")));
        }
        self.table.row(
            OLDER,
            "as expected",
            &format!("Superseded: {NEWER} is ready and has taken its place"),
        );
        let Some((mail, posted)) =
            self.until(async |demonstration| Ok(demonstration.stand_ins.received())).await?
        else {
            return Ok(Some(format!("{OLDER}: its owner is notified")));
        };
        self.show(mail.as_ref(), &posted)?;
        self.goes().await
    }

    async fn create(&self, pipeline: u32, namespace: &str) -> anyhow::Result<()> {
        let yaml = environment(pipeline);
        // Pods are taken only when their namespace has its service account.
        let deadline = Instant::now() + TIMEOUT;
        while let Err(error) = memory::apply_all(&self.client, &yaml).await {
            if Instant::now() > deadline {
                return Err(error);
            }
            pause().await;
        }
        let why = format!("by pipeline {pipeline} of the branch search, for {MAIL_ADDRESS}; its pod runs");
        self.table.row(namespace, "created", &why);
        Ok(())
    }

    /// Prints the messages as they were received.
    fn show(&self, mail: Option<&Mail>, posted: &Posted) -> anyhow::Result<()> {
        if let Some(mail) = mail {
            self.table.row(OLDER, "as expected", "its owner has a mail");
            let fields = ["From", "To", "Subject"].map(|name| format!("{name}: {}\n", mail.header(name)));
            let way = if mail.tls { "under TLS" } else { "without TLS" };
            let whose =
                format!("The mail, as the mail server received it {way} (of its two parts the plain text):");
            self.screen.quote(&whose, &format!("{}\n{}", fields.concat(), mail.plain_text()?));
            self.screen.say("");
        }
        self.table.row(OLDER, "as expected", "its owner has a message in Slack");
        let whose = "The message in Slack, as its API received it (chat.postMessage):";
        self.screen.quote(whose, &format!("To: {}\n\n{}", posted.to, posted.text));
        Ok(())
    }

    /// The end of the older namespace; what was not seen of it.
    async fn goes(&mut self) -> anyhow::Result<Option<String>> {
        let announced = async |demonstration: &Self| {
            let status = demonstration.status(OLDER).await?;
            let all = status.notices.iter().filter(|one| one.about == MessageAbout::DeletionAnnounced);
            let delivered = all.filter(|one| one.delivered_at.is_some()).count();
            let notice =
                status.steps.notice.filter(|_| delivered == demonstration.stand_ins.channels().len());
            Ok(notice.map(|notice| notice.not_before))
        };
        let Some(not_before) = self.until(announced).await? else {
            return Ok(Some(format!("{OLDER}: its deletion has a date")));
        };
        self.explain().await?;
        if self
            .until(async |demonstration| Ok(demonstration.namespace(OLDER).await?.is_none().then_some(())))
            .await?
            .is_none()
        {
            return Ok(Some(format!("{OLDER}: it goes")));
        }
        let decided_at =
            self.decided_at().await?.with_context(|| format!("no DeletedNamespace of {OLDER}"))?;
        if decided_at < not_before {
            return Ok(Some(format!(
                "{OLDER}: stays until {not_before}, as its owner was notified; it was deleted at {decided_at}"
            )));
        }
        self.table.row(OLDER, "as expected", "deleted: it was superseded, and its owner's notice has run");
        let newer = self.namespace(NEWER).await?;
        let stays = newer.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none());
        if !stays || self.status(NEWER).await?.phase != Some(NamespacePhase::Ok) {
            return Ok(Some(format!("{NEWER}: Ok, and still there")));
        }
        self.table.row(NEWER, "as expected", "still there: nothing later has taken its place");
        self.explain().await?;
        Ok(None)
    }

    /// Prints what the command line says about the older namespace.
    async fn explain(&self) -> anyhow::Result<()> {
        coppice(&self.kubeconfig, &["explain", OLDER], &self.screen).await
    }

    /// Looks at everything, and prints what is new, until something is there; none if it is not in time. Each outcome has that time
    /// for itself: where the machine is so busy that one of them takes minutes, the next one does not fail for it.
    async fn until<T>(
        &mut self,
        found: impl AsyncFn(&Self) -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            self.table.update(&self.client).await?;
            if let Some(found) = found(self).await? {
                // What was found may be newer than what the table has.
                self.table.update(&self.client).await?;
                return Ok(Some(found));
            }
            pause().await;
        }
        Ok(None)
    }

    async fn namespace(&self, name: &str) -> anyhow::Result<Option<Namespace>> {
        Ok(Api::<Namespace>::all(self.client.clone()).get_opt(name).await?)
    }

    async fn status(&self, namespace: &str) -> anyhow::Result<ManagedNamespaceStatus> {
        let records: Api<ManagedNamespace> = Api::namespaced(self.client.clone(), namespace);
        Ok(records.get_opt("coppice").await?.and_then(|record| record.status).unwrap_or_default())
    }

    /// When the deletion of the older namespace was decided.
    async fn decided_at(&self) -> anyhow::Result<Option<Timestamp>> {
        let records: Api<DeletedNamespace> = Api::all(self.client.clone());
        let all = records.list(&ListParams::default()).await?;
        let of = all.into_iter().find(|record| record.spec.namespace == OLDER);
        Ok(of.map(|record| record.spec.decided_at))
    }
}
