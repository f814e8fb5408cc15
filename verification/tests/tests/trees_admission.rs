//! The admission webhook of trees, asked by a real API server: it says early what would be refused, and nothing relies on it.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::test_cluster::repository;
use coppice_tests::{Operator, condition, on_own_plane};
use serde_json::{Value, json};

use crate::access_control::raw_requests::{MERGE, PLAIN};
use crate::trees::{Setup, subnamespace};
use crate::trees_access::{bind, on_trees};
use crate::trees_transfers::approved;

type Test = anyhow::Result<()>;

const ARGS: [&str; 5] = ["trees", "--listen-admission", "127.0.0.1:0", "--admission-name", "127.0.0.1"];
/// How the API server begins what the webhook says.
const SAYS: &str = "admission webhook \"trees.coppice.dev\" denied the request: ";

impl Setup {
    /// Starts the program, and has the API server ask its webhook.
    async fn asked(&self) -> anyhow::Result<Operator> {
        let program = Operator::spawn_by(&self.test_cluster, &self.account, &ARGS).await?;
        let served = async || program.admission();
        let address = self.test_cluster.until("the webhook is served", served).await?;
        self.asks(&address).await?;
        Ok(program)
    }

    /// The same after another was killed, whose lease is taken away.
    pub(crate) async fn asked_again(&self) -> anyhow::Result<Operator> {
        self.test_cluster.remove_lease("coppice-system", "coppice-trees").await?;
        self.asked().await
    }

    /// Has the API server ask at this address as `deploy/trees.yaml` has it ask a Service.
    async fn asks(&self, address: &str) -> Test {
        let path = repository().join("deploy/trees.yaml");
        let manifest = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let is_it = |document: &&str| document.contains("\nkind: ValidatingWebhookConfiguration");
        let document = manifest.split("\n---").find(is_it).context("the trees have no webhook")?;
        let mut configuration: Value = serde_yaml::from_str(document)?;
        let client = &mut configuration["webhooks"][0]["clientConfig"];
        let path = client["service"]["path"].as_str().context("it has no path")?;
        *client = json!({"url": format!("https://{address}{path}")});
        self.test_cluster.apply(&serde_yaml::to_string(&configuration)?).await.map(drop)
    }

    /// What the API server says to a dry run that it refuses.
    async fn dry_run(&self, user: &str, object: &Value) -> Option<String> {
        let create = ["create", "--dry-run=server", "-f", "-"];
        let refused = self.test_cluster.kubectl_stdin(user, &create, &object.to_string()).await.err()?;
        Some(format!("{refused:#}"))
    }

    /// Waits until the webhook denies this.
    pub(crate) async fn denies(&self, object: &Value) -> Test {
        let denied = async || self.dry_run(ADMIN, object).await.filter(|text| text.contains(SAYS));
        self.test_cluster.until("the webhook denies", denied).await.map(drop)
    }

    async fn trusted(&self) -> anyhow::Result<String> {
        let known = self.test_cluster.get("vwc", "", "coppice-trees").await?.context("no configuration")?;
        let bundle = known["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        Ok(String::from_utf8(STANDARD.decode(bundle)?)?)
    }
}

/// That this was denied by the webhook, and with these words.
fn says(denied: Test, words: &[&str]) -> Test {
    let denied = format!("{:#}", denied.err().context("it was admitted")?);
    let all = denied.contains(SAYS) && words.iter().all(|word| denied.contains(word));
    ensure!(all, "{denied}");
    Ok(())
}

#[test]
fn what_would_be_refused_is_denied_at_once_and_nothing_relies_on_that() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut program = cluster.asked().await?;
        let scenario = async {
            cluster.tree("shop", &json!({"cpu": "10", "pods": "10"})).await?;
            bind(&cluster.test_cluster, "shop", ALICE, "admin").await?;
            cluster.request(ALICE, "shop", "shop-a", &json!({"cpu": "4", "pods": "4"})).await?;
            cluster.request(ALICE, "shop", "shop-b", &json!({"cpu": "2", "pods": "2"})).await?;
            for name in ["shop-a", "shop-b"] {
                cluster.ready("shop", name).await?;
            }
            cluster.denies(&subnamespace("shop", "shop-c", &json!({"cpu": "40"}))).await?;
            says_why(&cluster).await?;
            leaves_alone(&cluster).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        ensure!(program.metric("coppice_admission_requests_total{outcome=\"denied\"}").await? > Some(4.0));
        ensure!(program.metric("coppice_admission_requests_total{outcome=\"allowed\"}").await? > Some(0.0));
        ensure!(program.metric("coppice_admission_requests_total{outcome=\"error\"}").await? == Some(0.0));
        // Nobody answers: it is admitted, and the next life says in status what the webhook would have said.
        program.kill().await?;
        cluster.request(ALICE, "shop", "shop-d", &json!({"cpu": "40"})).await?;
        let next = cluster.asked_again().await?;
        let (reason, message) = cluster.refused("shop", "shop-d").await?;
        ensure!(reason == "QuotaRefused" && message.contains("cpu"), "{message}");
        changes_of_what_is_refused(&cluster).await.with_context(|| next.last_lines())?;
        cluster.quotas.never_beyond("10")
    })
}

async fn says_why(cluster: &Setup) -> Test {
    let ask = async |name: &str, hard: Value| cluster.request(ALICE, "shop", name, &hard).await;
    // With the numbers, and a way out.
    let words =
        ["QuotaRefused: cpu: needs 40 more, and shop can give 4", "coppice give-back shop-a --amount cpu=4"];
    says(ask("shop-c", json!({"cpu": "40", "pods": "1"})).await, &words)?;
    says(ask("other", json!({"cpu": "1", "pods": "1"})).await, &["shop-*"])?;
    let dry = cluster.dry_run(ALICE, &subnamespace("shop", "shop-c", &json!({"cpu": "40"}))).await;
    ensure!(dry.as_ref().is_some_and(|text| text.contains(SAYS)), "{dry:?}");
    has_no_effect(cluster).await?;
    // What grows beyond what there is stays as it was.
    says(
        cluster.change("shop", "shop-a", &json!({"cpu": "9", "pods": "4"})).await,
        &["QuotaRefused: cpu: needs 5 more, and shop can give 4"],
    )?;
    ensure!(cluster.limits("shop-a").await? == json!({"cpu": "4", "pods": "4"}));
    let shop_a = cluster.test_cluster.get("sns", "shop", "shop-a").await?.context("shop-a")?;
    ensure!(
        shop_a["spec"]["quota"]["hard"]["cpu"] == "4" && shop_a["status"]["phase"] == "Ready",
        "{shop_a:#}"
    );
    let too_much = approved(ADMIN, "much", ("shop-a", "shop-b", "shop"), "40");
    says(cluster.transfers(ADMIN, &too_much).await, &["TransferRefused", "pods"])?;
    let nowhere = approved(ADMIN, "nowhere", ("shop-a", "default", "shop"), "1");
    says(cluster.transfers(ADMIN, &nowhere).await, &["namespace default belongs to no tree"])
}

/// All that is free can be tried again and again, and is free afterwards.
async fn has_no_effect(cluster: &Setup) -> Test {
    let all = subnamespace("shop", "shop-c", &json!({"cpu": "4", "pods": "4"}));
    let more = json!({"spec": {"quota": {"hard": {"cpu": "8", "pods": "8"}}}}).to_string();
    for _ in 0..2 {
        let refused = cluster.dry_run(ALICE, &all).await;
        ensure!(refused.is_none(), "{refused:?}");
        let patch = ["patch", "sns", "-n", "shop", "shop-a", "--dry-run=server", "--type=merge", "-p", &more];
        cluster.test_cluster.kubectl(ALICE, &patch).await?;
    }
    ensure!(cluster.test_cluster.get("sns", "shop", "shop-c").await?.is_none(), "it is stored");
    ensure!(cluster.test_cluster.get("namespace", "", "shop-c").await?.is_none(), "it is created");
    ensure!(cluster.limits("shop").await? == json!({"cpu": "4", "pods": "4"}));
    ensure!(cluster.limits("shop-a").await? == json!({"cpu": "4", "pods": "4"}));
    Ok(())
}

/// What is refused may be changed in everything else.
async fn changes_of_what_is_refused(cluster: &Setup) -> Test {
    cluster.denies(&subnamespace("shop", "shop-c", &json!({"cpu": "40"}))).await?;
    let until = json!({"spec": {"cascadeUntil": "2027-01-01T00:00:00Z"}});
    cluster.test_cluster.admin().await?.patch("sns", "shop", "shop-d", &until).await?;
    says(
        cluster.change("shop", "shop-d", &json!({"cpu": "50"})).await,
        &["QuotaRefused: cpu: needs 50 more"],
    )?;
    // That it is smaller is what helps.
    cluster.change("shop", "shop-d", &json!({"cpu": "1", "pods": "1"})).await?;
    cluster.ready("shop", "shop-d").await.map(drop)
}

/// What is right, what is not known, and what is nobody's quota.
async fn leaves_alone(cluster: &Setup) -> Test {
    cluster.change("shop", "shop-a", &json!({"cpu": "5", "pods": "5"})).await?;
    cluster.ready("shop", "shop-a").await?;
    let label = ["label", "sns", "-n", "shop", "shop-a", "a=b"];
    cluster.test_cluster.kubectl(ALICE, &label).await?;
    let transfer = approved(ADMIN, "some", ("shop-a", "shop-b", "shop"), "1");
    cluster.transfers(ADMIN, &transfer).await?;
    cluster.phase("shop-a", "some", "Completed").await?;
    // Its tree may come a moment later.
    cluster.test_cluster.namespace("later").await?;
    cluster.request(ADMIN, "later", "later-a", &json!({"pods": "1"})).await?;
    // So a namespace is adopted: first the Subnamespace, which is refused, and then the administrator's act.
    cluster.test_cluster.namespace("shop-old").await?;
    cluster.request(ALICE, "shop", "shop-old", &json!({"cpu": "1", "pods": "1"})).await?;
    let taken = |object: &Value| condition(object, "Ready")["reason"] == "NameTaken";
    cluster.until(("sns", "shop", "shop-old"), "taken", taken).await.map(drop)
}

#[test]
fn what_the_api_server_trusts_is_made_shared_and_put_right() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let mut first = cluster.asked().await?;
        let scenario = async {
            cluster.tree("shop", &json!({"pods": "10"})).await?;
            let too_much = subnamespace("shop", "shop-a", &json!({"pods": "40"}));
            cluster.denies(&too_much).await?;
            let trusted = cluster.trusted().await?;
            ensure!(trusted.matches("BEGIN CERTIFICATE").count() == 1, "{trusted}");

            // A replica that follows answers as well, by a certificate of the same authority.
            let second = Operator::spawn_by(&cluster.test_cluster, &cluster.account, &ARGS).await?;
            second.ready(&cluster.test_cluster).await?;
            cluster.asks(&second.admission().context("no webhook")?).await?;
            let asked = async || {
                cluster.denies(&too_much).await.ok()?;
                let denied =
                    second.metric("coppice_admission_requests_total{outcome=\"denied\"}").await.ok()??;
                (denied > 0.0).then_some(())
            };
            cluster.test_cluster.until("the second replica is asked", asked).await?;
            ensure!(!second.leads_now().await, "it leads");
            ensure!(cluster.trusted().await? == trusted);

            // What somebody takes away is put back, and one who has lost its key has another made.
            let none =
                json!({"webhooks": [{"name": "trees.coppice.dev", "clientConfig": {"caBundle": null}}]});
            let patch = ["patch", "vwc", "coppice-trees", "-p", &none.to_string()];
            cluster
                .test_cluster
                .kubectl(
                    ADMIN,
                    &patch.map(|word| if word == "vwc" { "validatingwebhookconfiguration" } else { word }),
                )
                .await?;
            let back = async || cluster.trusted().await.ok().filter(|now| *now == trusted);
            cluster.test_cluster.until("it is trusted again", back).await?;
            let secret = ["delete", "secret", "-n", "coppice-system", "coppice-trees-admission"];
            cluster.test_cluster.kubectl(ADMIN, &secret).await?;
            let another =
                async || cluster.trusted().await.ok().filter(|now| *now != trusted && !now.is_empty());
            cluster.test_cluster.until("another one is trusted", another).await?;
            cluster.test_cluster.until("it is asked again", asked).await
        };
        scenario.await.with_context(|| first.last_lines())?;
        first.kill().await
    })
}

#[test]
fn a_stolen_token_has_of_secrets_and_webhooks_its_own_alone() -> Test {
    on_trees(async |on| {
        let secrets = "/api/v1/namespaces/coppice-system/secrets";
        let secret = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name}});
        // Whatever rights somebody has given it.
        for (name, kind) in [("other", "Opaque"), ("coppice-trees-admission", "example.org/other")] {
            let answer = on.stolen.send("POST", secrets, PLAIN, secret(name, kind)).await?;
            ensure!(answer.refused("creates no Secret but coppice-trees-admission"), "{answer:?}");
        }
        let own =
            on.account.send("POST", secrets, PLAIN, secret("coppice-trees-admission", "Opaque")).await?;
        ensure!(own.accepted(), "{own:?}");
        let read =
            on.account.send("GET", &format!("{secrets}/coppice-trees-admission"), PLAIN, Value::Null).await?;
        ensure!(read.accepted(), "{read:?}");
        let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        let patch = json!({"webhooks": []});
        for refused in [
            on.account.send("GET", secrets, PLAIN, Value::Null).await?,
            on.account.send("GET", &format!("{secrets}/coppice-webhook-key"), PLAIN, Value::Null).await?,
            on.account
                .send("DELETE", &format!("{secrets}/coppice-trees-admission"), PLAIN, json!({}))
                .await?,
            on.account.send("GET", webhooks, PLAIN, Value::Null).await?,
            on.account.send("PATCH", &format!("{webhooks}/others"), MERGE, patch).await?,
            on.account.send("DELETE", &format!("{webhooks}/coppice-trees"), PLAIN, json!({})).await?,
        ] {
            ensure!(refused.code == 403 && refused.refused("is forbidden: User"), "{refused:?}");
        }
        Ok(())
    })
}
