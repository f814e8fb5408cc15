//! Credentials for another cluster: a second real control plane is the target, and the program is killed at each of its writes; at each
//! request of a rotation: `access_rotation.rs`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use coppice_plane::proxy::{Active, FaultRule, Match, Proxy, ProxyFault};
use coppice_plane::{ADMIN, ALICE, AuditEvent, Options, Pods};
use coppice_tests::demo::credentials;
use coppice_tests::demo::screen::Screen;
use coppice_tests::program::Program;
use coppice_tests::requests::{self, Requests};
use coppice_tests::test_cluster::{binary, repository};
use coppice_tests::{TestCluster, condition, on_own_plane};
use serde_json::{Value, json};

use super::access_bind;
use super::access_control::access_policies;
use super::access_rotation::{away, killed_at_each_request, one_credential};

type Test = anyhow::Result<()>;

pub(crate) const ACCOUNT: &str = "system:serviceaccount:coppice-access-system:coppice-access";
/// What certificates of the target are asked for with.
pub(crate) const SIGNING_REQUESTS: &str = "certificatesigningrequests";
/// Who may write ClusterAccesses, and read no Secret.
pub(crate) const AUTHOR: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author, namespace: team}
rules: [{apiGroups: [coppice.dev], resources: [clusteraccesses], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
";

const TOKEN_OF_OTHERS: &str = "
apiVersion: v1
kind: Secret
metadata:
  name: token
  namespace: team
  labels: {coppice.dev/access: any}
  annotations: {kubernetes.io/service-account.name: default}
type: kubernetes.io/service-account-token
";

/// The cluster with the program, and its target.
pub(crate) struct Clusters {
    pub(crate) here: TestCluster,
    pub(crate) there: TestCluster,
    pub(crate) account: PathBuf,
}

impl Clusters {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with(None).await
    }

    /// With another audit policy where the program runs.
    pub(crate) async fn start_with(audit_policy: Option<String>) -> anyhow::Result<Self> {
        let here = TestCluster::start_with_access(audit_policy).await?;
        Self::of(here, TestCluster::bare_at_once(target()).await?).await
    }

    /// The same of two planes, of which the first has access installed.
    pub(crate) async fn of(here: TestCluster, there: TestCluster) -> anyhow::Result<Self> {
        let account = here.service_account("coppice-access-system", "coppice-access").await?;
        here.namespace("team").await?;
        there.namespace("shop").await?;
        Ok(Self { here, there, account })
    }

    /// Puts a kubeconfig into the Secret `target`, whose changes are noticed at once.
    pub(crate) async fn bootstrap(&self, kubeconfig: &str) -> Test {
        let labels = json!({"coppice.dev/access": "kubeconfig"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "target", "namespace": "team", "labels": labels},
            "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)}});
        self.here.admin().await?.apply(&secret).await.map(drop)
    }

    /// Starts the program as users do, by this kubeconfig of its account.
    async fn program(&self, kubeconfig: &Path) -> anyhow::Result<Program> {
        self.program_with(kubeconfig, &[]).await
    }

    async fn program_with(&self, kubeconfig: &Path, more: &[&str]) -> anyhow::Result<Program> {
        let log = self.here.plane.dir().join("log/access.log");
        Program::start(&binary("coppice-access")?, kubeconfig, log, |command| {
            command.args(["--listen-probes", "127.0.0.1:0", "--listen", "127.0.0.1:0"]).args(more);
        })
        .await
    }

    /// Starts it after another was killed, whose lease is taken away so that no test waits for it to expire. It may go through a proxy
    /// to its target.
    pub(crate) async fn next_life(&self, kubeconfig: &Path) -> anyhow::Result<Program> {
        self.next_life_with(kubeconfig, &[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn next_life_with(&self, kubeconfig: &Path, more: &[&str]) -> anyhow::Result<Program> {
        self.here.remove_lease("coppice-access-system", "coppice-access").await?;
        self.program_with(kubeconfig, &[["--unencrypted-loopback"].as_slice(), more].concat()).await
    }

    pub(crate) async fn create(&self, name: &str, secret: &str) -> Test {
        self.here.admin().await?.create(&access(name, secret)).await.map(drop)
    }

    pub(crate) async fn change(&self, name: &str, spec: &Value) -> Test {
        self.here.admin().await?.patch("clacc", "team", name, &json!({"spec": spec})).await.map(drop)
    }

    /// Waits until an access is as described, with nothing left to do for its spec; the object.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        let last = Mutex::new(Value::Null);
        let reached = async || {
            let object = self.here.get("clacc", "team", name).await.ok()??;
            if is(&object) {
                return Some(object);
            }
            *last.lock().unwrap_or_else(PoisonError::into_inner) = object;
            None
        };
        let found = self.here.until(&format!("{name}: {what}"), reached).await;
        found.with_context(|| {
            format!("it is {:#}", last.lock().unwrap_or_else(PoisonError::into_inner)["status"])
        })
    }

    /// The kubeconfig that the Secret holds now.
    pub(crate) async fn issued(&self, secret: &str) -> anyhow::Result<String> {
        let object =
            self.here.get("secret", "team", secret).await?.with_context(|| format!("no Secret {secret}"))?;
        let value = object["data"]["kubeconfig"].as_str().context("no kubeconfig")?;
        Ok(String::from_utf8(BASE64_STANDARD.decode(value)?)?)
    }

    /// Whoever has that.
    pub(crate) async fn holder(&self, secret: &str) -> anyhow::Result<Requests> {
        static FILES: AtomicUsize = AtomicUsize::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = self.here.plane.dir().join(format!("issued-{secret}-{number}.yaml"));
        std::fs::write(&path, self.issued(secret).await?)?;
        requests::Clients::default().by(path).await
    }

    /// Waits until an access is gone.
    pub(crate) async fn gone(&self, name: &str) -> Test {
        let gone = async || self.here.get("clacc", "team", name).await.ok()?.is_none().then_some(());
        self.here.until(&format!("{name} is gone"), gone).await
    }

    /// What the target has for any access.
    pub(crate) async fn in_target(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let all = self.there.list(kind, "").await?;
        Ok(all.into_iter().filter(|o| o["metadata"]["labels"]["coppice.dev/access"].is_string()).collect())
    }

    /// Waits until a credential is not valid any more: the API server remembers for ten seconds that it was.
    pub(crate) async fn dead(&self, holder: &Requests) -> Test {
        let refused = async || {
            let answer = holder.list("configmap", "shop").await;
            answer.is_err_and(|error| error.to_string().contains("Unauthorized")).then_some(())
        };
        self.there.until("the old credential is not valid", refused).await
    }

    pub(crate) async fn nothing_is_left(&self) -> Test {
        for kind in ["secret", "serviceaccount", "role", "rolebinding", "clusterrole", "clusterrolebinding"] {
            let left = self.in_target(kind).await?;
            ensure!(left.is_empty(), "{kind}: {left:#?}");
        }
        Ok(())
    }
}

/// A plane in which no pod has to run.
pub(crate) fn bare() -> Options {
    Options { pods: Pods::Pending, ..Options::default() }
}

/// Such a plane as target: it issues for an hour at most, whatever it is asked for.
fn target() -> Options {
    Options {
        apiserver_args: vec!["--service-account-max-token-expiration=1h".to_owned()],
        controller_manager_args: vec!["--cluster-signing-duration=1h".to_owned()],
        ..bare()
    }
}

/// May read the `ConfigMap`s of `shop`. It is asked for twice as long as a target of these tests grants.
pub(crate) fn access(name: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess", "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "cluster": {"kubeconfigSecret": {"name": "target"}},
            "rights": {"role": {"namespace": "shop", "rules": rules(&["configmaps"])}},
            "ttl": "2h",
            "output": {"secret": secret}
        }
    })
}

pub(crate) fn rules(resources: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": resources, "verbs": ["get", "list"]}])
}

/// Ready, with nothing left to do for its spec.
pub(crate) fn is_settled(access: &Value) -> bool {
    let status = &access["status"];
    status["phase"] == "Ready"
        && status["observedGeneration"] == access["metadata"]["generation"]
        && status["rotated"] == access["spec"]["rotate"]
        && status["superseded"].is_null()
        && status["intent"].is_null()
}

pub(crate) fn refused<T>(result: anyhow::Result<T>, says: &str) -> Test {
    let error = result.err().context("it was not refused")?.to_string();
    ensure!(error.contains(says), "{error}");
    Ok(())
}

#[test]
fn a_credential_is_issued_with_its_rights_alone_rotated_restored_and_revoked() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let example = std::fs::read_to_string(repository().join("examples/access/target.yaml"))?;
        clusters.there.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &example).await?;
        let bootstrap = clusters.there.service_account("coppice-access", "coppice-bootstrap").await?;
        clusters.bootstrap(&std::fs::read_to_string(&bootstrap)?).await?;
        who_may_ask(&clusters).await?;
        access_policies::hold(&clusters.here).await?;
        let program = clusters.program(&clusters.account).await?;
        let with_log = |error: anyhow::Error| error.context(program.last_lines());
        issued(&clusters).await.map_err(with_log)?;
        rotated(&clusters).await.map_err(with_log)?;
        restored(&clusters).await.map_err(with_log)?;
        left_alone(&clusters).await.map_err(with_log)?;
        handed_over(&clusters).await.map_err(with_log)?;
        ends(&clusters).await.map_err(with_log)?;
        is_what_the_demo_shows(&clusters).await.map_err(with_log)
    })
}

/// The author has to be permitted to read the kubeconfig; and the account of the program changes no Secret but its own.
async fn who_may_ask(clusters: &Clusters) -> Test {
    let here = &clusters.here;
    here.kubectl_stdin(ADMIN, &["apply", "-f", "-"], AUTHOR).await?;
    let alice = here.requests(ALICE).await?;
    let probe = access("probe", "probe");
    let denied = async || {
        let created = alice.create(&probe).await;
        if created.is_ok() {
            here.admin().await.ok()?.delete("clacc", "team", "probe", &json!({})).await.ok()?;
        }
        created.err().map(|error| error.to_string()).filter(|error| error.contains("to get the Secret"))
    };
    here.until("an author who may not read the kubeconfig is refused", denied).await?;
    let as_the_program = ["--as", ACCOUNT, "-n", "team"];
    let kubectl = async |args: &[&str]| here.kubectl(ADMIN, &[args, &as_the_program].concat()).await;
    // Nor that of the target, whose label says that its changes are noticed at once.
    let own_alone = "no Secret but those with the label";
    let forbidden = async || {
        let deleted = kubectl(&["delete", "secret", "target", "--dry-run=server"]).await;
        deleted.err().filter(|error| error.to_string().contains(own_alone)).map(drop)
    };
    here.until("the account deletes no Secret of others", forbidden).await?;
    refused(kubectl(&["create", "secret", "generic", "mine"]).await, own_alone)?;
    // The API server would put a token of that account into it.
    let minting = here.kubectl_stdin(ADMIN, &["create", "-f", "-", "--as", ACCOUNT], TOKEN_OF_OTHERS).await;
    refused(minting, "no Secret of another type than Opaque")?;
    let namespace = ["delete", "namespace", "team", "--dry-run=server", "--as", ACCOUNT];
    refused(here.kubectl(ADMIN, &namespace).await, "forbidden")?;
    let admin = here.admin().await?;
    let both = json!({"spec": {"cluster": {"kubeconfigSecret": {"name": "a"}}, "output": {"secret": "b"},
        "rights": {"role": {"namespace": "a", "rules": rules(&["pods"])}, "clusterRole": {"rules": rules(&["pods"])}}}});
    let mut bad = access("bad", "bad");
    bad["spec"] = both["spec"].clone();
    refused(admin.create(&bad).await, "write exactly one of: role")?;
    let mut bad = access("bad", "target");
    refused(admin.create(&bad).await, "write the name of another Secret")?;
    bad["spec"]["output"]["secret"] = json!("bad");
    bad["spec"]["ttl"] = json!("5m");
    refused(admin.create(&bad).await, "write 10m to 30d")
}

async fn issued(clusters: &Clusters) -> Test {
    clusters.create("ci", "ci-kubeconfig").await?;
    let ci = clusters.until("ci", "Ready", is_settled).await?;
    let uid = ci["metadata"]["uid"].as_str().context("no uid")?;
    let identity = format!("system:serviceaccount:coppice-access:coppice-{uid}");
    ensure!(ci["status"]["identity"] == identity, "{ci:#}");
    for type_ in ["Ready", "Reachable", "Verified", "Written"] {
        ensure!(condition(&ci, type_)["status"] == "True", "{type_}: {ci:#}");
    }
    granted(clusters, &ci).await?;
    let owner = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess", "name": "ci", "uid": uid, "controller": true});
    let secret = clusters.here.get("secret", "team", "ci-kubeconfig").await?.context("no Secret")?;
    ensure!(secret["metadata"]["ownerReferences"] == json!([owner]), "{secret:#}");
    let holder = clusters.holder("ci-kubeconfig").await?;
    holder.list("configmap", "shop").await?;
    refused(holder.list("secret", "shop").await, "Forbidden")?;
    refused(holder.list("configmap", "default").await, &identity)?;
    ensure!(clusters.in_target("secret").await?.len() == 1);
    // Other rights take effect without another credential.
    let rights = json!({"role": {"namespace": "shop", "rules": rules(&["configmaps", "pods"])}});
    clusters.change("ci", &json!({"rights": rights})).await?;
    let changed = clusters.until("ci", "settled", is_settled).await?;
    ensure!(changed["status"]["credential"] == ci["status"]["credential"], "{changed:#}");
    let permitted = async || holder.list("pod", "shop").await.ok().map(drop);
    clusters.there.until("the new right is in force", permitted).await?;
    let holder = access_bind::bound(clusters).await?;
    // Now in the whole cluster: what was in the namespace is gone.
    let rights = json!({"bind": null, "clusterRole": {"rules": rules(&["configmaps"])}});
    clusters.change("ci", &json!({"rights": rights})).await?;
    clusters.until("ci", "settled", is_settled).await?;
    ensure!(
        clusters.in_target("role").await?.is_empty() && clusters.in_target("rolebinding").await?.is_empty()
    );
    let permitted = async || holder.list("configmap", "default").await.ok().map(drop);
    clusters.there.until("the right is in force in the whole cluster", permitted).await
}

/// What was granted counts, not what was asked for: an hour, after 54 to 60 percent of which the credential is replaced. The token itself is
/// valid for no less.
async fn granted(clusters: &Clusters, access: &Value) -> Test {
    let at = |field: &str| access["status"][field].as_str().unwrap_or_default().parse::<jiff::Timestamp>();
    let (from, until) = (at("notBefore")?, at("notAfter")?);
    let granted = until.duration_since(from).as_secs();
    ensure!(granted == 3600 && access["spec"]["ttl"] == "2h", "{granted}: {access:#}");
    let replaced = at("nextRotation")?.duration_since(from).as_secs();
    ensure!((1944..=2160).contains(&replaced), "{replaced}: {access:#}");
    let kubeconfig = requests::documents(&clusters.issued("ci-kubeconfig").await?)?;
    let token = kubeconfig.iter().find_map(|one| one["users"][0]["user"]["token"].as_str());
    let claims = token.and_then(|token| token.split('.').nth(1)).context("no token")?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    let expires = claims["exp"].as_i64().context("it does not expire")?;
    let later = expires - until.as_second();
    ensure!((0..=60).contains(&later), "it expires {later} s later than status says: {claims:#}");
    Ok(())
}

async fn rotated(clusters: &Clusters) -> Test {
    let old = clusters.holder("ci-kubeconfig").await?;
    let before = clusters.until("ci", "settled", is_settled).await?;
    let role = format!("coppice-{}", before["metadata"]["uid"].as_str().context("no uid")?);
    let edited = json!({"rules": rules(&["configmaps", "secrets"])});
    clusters.there.admin().await?.patch("clusterrole", "", &role, &edited).await?;
    let conflicts_before = conflicts(clusters)?;
    clusters.change("ci", &json!({"rotate": "now"})).await?;
    let after = clusters.until("ci", "rotated", |o| is_settled(o) && o["status"]["rotated"] == "now").await?;
    ensure!(conflicts(clusters)? == conflicts_before, "a rotation has no conflict");
    ensure!(after["status"]["credential"] != before["status"]["credential"], "{after:#}");
    // What somebody has edited in the target has the rights of the spec again.
    let role = clusters.there.get("clusterrole", "", &role).await?.context("no ClusterRole")?;
    ensure!(role["rules"] == rules(&["configmaps"]), "{role:#}");
    clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await?;
    clusters.dead(&old).await?;
    let bound = clusters.in_target("secret").await?;
    ensure!(bound.len() == 1, "{bound:#?}");
    let events = clusters.here.list("event", "team").await?;
    for reason in ["CredentialIssued", "CredentialRotated"] {
        ensure!(events.iter().any(|event| event["reason"] == reason), "{reason}: {events:#?}");
    }
    Ok(())
}

/// How many writes of the program were refused since what it had read was not there any more.
fn conflicts(clusters: &Clusters) -> anyhow::Result<usize> {
    let is_conflict = |event: &&Arc<AuditEvent>| {
        event.user == ACCOUNT
            && event.code == Some(409)
            && ["clusteraccesses", "secrets"].contains(&event.resource.as_str())
    };
    Ok(clusters.here.plane.audit()?.iter().filter(is_conflict).count())
}

/// What somebody deletes or edits is made again, and what they have of it is not valid any more.
async fn restored(clusters: &Clusters) -> Test {
    let lost = clusters.holder("ci-kubeconfig").await?;
    let admin = clusters.here.admin().await?;
    admin.delete("secret", "team", "ci-kubeconfig", &json!({})).await?;
    let works = async || {
        let holder = clusters.holder("ci-kubeconfig").await.ok()?;
        holder.list("configmap", "shop").await.ok().map(drop)
    };
    clusters.here.until("the Secret is there again", works).await?;
    clusters.dead(&lost).await?;
    let edited = json!({"data": {"kubeconfig": BASE64_STANDARD.encode("edited")}});
    admin.patch("secret", "team", "ci-kubeconfig", &edited).await?;
    clusters.here.until("the Secret holds a kubeconfig again", works).await?;
    clusters.until("ci", "settled", is_settled).await.map(drop)
}

async fn left_alone(clusters: &Clusters) -> Test {
    let admin = clusters.here.admin().await?;
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign", "namespace": "team"},
        "data": {"kubeconfig": BASE64_STANDARD.encode("mine")}});
    let before = admin.create(&foreign).await?;
    clusters.create("other", "foreign").await?;
    let refused = clusters.until("other", "Refused", |o| o["status"]["phase"] == "Refused").await?;
    ensure!(condition(&refused, "Ready")["reason"] == "SecretNotOurs", "{refused:#}");
    ensure!(clusters.in_target("serviceaccount").await?.len() == 1, "that of ci alone");
    // Neither is a kubeconfig used that would run a program, nor one that sends the credential to whatever listens on loopback.
    let exec = "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: 'https://127.0.0.1'}}],
        users: [{name: u, user: {exec: {command: touch, args: [/tmp/run]}}}], contexts: [{name: c, context: {cluster: k, user: u}}]}";
    let plain =
        exec.replace("https:", "http:").replace("exec: {command: touch, args: [/tmp/run]}", "token: t");
    for (name, kubeconfig, says) in [("exec", exec, "is not run"), ("plain", &plain, "write an https:// URL")]
    {
        let mut refused = access(name, &format!("{name}-kubeconfig"));
        refused["spec"]["cluster"]["kubeconfigSecret"]["name"] = json!(name);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "team"},
            "data": {"kubeconfig": BASE64_STANDARD.encode(kubeconfig)}});
        admin.create(&secret).await?;
        admin.create(&refused).await?;
        let refused = clusters.until(name, "Refused", |o| o["status"]["phase"] == "Refused").await?;
        let ready = condition(&refused, "Ready");
        ensure!(
            ready["reason"] == "KubeconfigRefused" && ready["message"].to_string().contains(says),
            "{ready:#}"
        );
    }
    // Nothing was issued: neither needs its target to go.
    admin.delete("clacc", "team", "other", &json!({})).await?;
    clusters.gone("other").await?;
    let after = clusters.here.get("secret", "team", "foreign").await?.context("foreign")?;
    ensure!(after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "{after:#}");
    Ok(())
}

/// A Secret of others that an administrator labels with the uid of a `ClusterAccess` is written in place.
async fn handed_over(clusters: &Clusters) -> Test {
    let admin = clusters.here.admin().await?;
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": "team"},
        "data": {"kubeconfig": BASE64_STANDARD.encode("theirs")}});
    let before = admin.create(&theirs).await?;
    let mut heir = access("heir", "theirs");
    heir["spec"]["suspend"] = json!(true);
    let heir = admin.create(&heir).await?;
    let label = json!({"metadata": {"labels": {"coppice.dev/access": heir["metadata"]["uid"]}}});
    admin.patch("secret", "team", "theirs", &label).await?;
    clusters.change("heir", &json!({"suspend": false})).await?;
    clusters.until("heir", "settled", is_settled).await?;
    clusters.holder("theirs").await?.list("configmap", "shop").await?;
    let after = clusters.here.get("secret", "team", "theirs").await?.context("theirs")?;
    ensure!(after["metadata"]["uid"] == before["metadata"]["uid"], "it was never missing: {after:#}");
    admin.delete("clacc", "team", "heir", &json!({})).await?;
    clusters.gone("heir").await
}

async fn ends(clusters: &Clusters) -> Test {
    let holder = clusters.holder("ci-kubeconfig").await?;
    let admin = clusters.here.admin().await?;
    let stripped = admin.patch("clacc", "team", "ci", &json!({"metadata": {"finalizers": null}})).await;
    refused(stripped, "until its credential is revoked")?;
    admin.delete("clacc", "team", "ci", &json!({})).await?;
    clusters.gone("ci").await?;
    clusters.dead(&holder).await?;
    clusters.nothing_is_left().await?;
    ensure!(clusters.here.get("secret", "team", "ci-kubeconfig").await?.is_none());
    ensure!(clusters.here.get("secret", "team", "target").await?.is_some());
    Ok(())
}

/// What the demo shows of access, between these two.
async fn is_what_the_demo_shows(clusters: &Clusters) -> Test {
    let screen = Screen::default();
    credentials::show(&clusters.here, &clusters.there, &screen).await?;
    let said = screen.text();
    ensure!(said.matches("  as expected  ").count() == 6, "{said}");
    let words = "cannot list resource \"secrets\" in API group \"\" in the namespace \"web\"";
    ensure!(said.contains(words), "the API server's own words are shown: {said}");
    clusters.nothing_is_left().await
}

#[test]
fn killed_at_every_write_there_is_one_valid_credential_and_none_at_the_end() -> Test {
    on_own_plane(async {
        let clusters = Clusters::start().await?;
        let there = Proxy::start(&clusters.there.plane, None).await?;
        // The administrator's: the namespace of the accounts is created as well.
        let bootstrap = there.kubeconfig(&clusters.there.plane.admin_kubeconfig())?;
        clusters.bootstrap(&std::fs::read_to_string(&bootstrap)?).await?;
        let here = Proxy::start(&clusters.here.plane, None).await?;
        let proxies = [&here, &there];
        clusters.create("ci", "ci-kubeconfig").await?;
        let settled = async || {
            let access = clusters.here.get("clacc", "team", "ci").await.ok()??;
            is_settled(&access).then_some(())
        };
        killed(&clusters, proxies, settled, false, |life| life + 1).await?;
        one_credential(&clusters, "ci").await?;
        killed_at_each_request(&clusters, proxies).await?;
        away(&clusters, &there).await?;
        let last = clusters.holder("ci-kubeconfig").await?;
        clusters.here.admin().await?.delete("clacc", "team", "ci", &json!({})).await?;
        let gone = async || clusters.here.get("clacc", "team", "ci").await.ok()?.is_none().then_some(());
        killed(&clusters, proxies, gone, false, |life| life + 1).await?;
        clusters.dead(&last).await?;
        ensure!(clusters.here.get("secret", "team", "ci-kubeconfig").await?.is_none());
        clusters.nothing_is_left().await
    })
}

/// Kills the program after so many writes of each life, on whichever side they are, until something is there; and sees that this took several
/// lives, which it counts. Each look for a certificate that is signed counts as a write. `always_valid`: after each of them the Secret holds a credential that works.
pub(crate) async fn killed(
    clusters: &Clusters,
    proxies: [&Proxy; 2],
    done: impl AsyncFn() -> Option<()>,
    always_valid: bool,
    passes: impl Fn(u64) -> u64,
) -> anyhow::Result<u64> {
    let account = proxies[0].kubeconfig(&clusters.account)?;
    for life in 0..40 {
        let held =
            proxies.map(|proxy| proxy.add(FaultRule::new(writes_and_looks(), ProxyFault::HoldRequest)));
        let mut program = clusters.next_life(&account).await?;
        let ended = tokio::select! {
            () = let_pass(&held, passes(life)) => Ok(false),
            done = clusters.here.until("one more write, or the end", &done) => done.map(|()| true),
        };
        program.kill().await?;
        held.iter().for_each(Active::discard);
        for proxy in proxies {
            proxy.clear();
        }
        if always_valid {
            let valid = clusters.holder("ci-kubeconfig").await?.list("configmap", "shop").await;
            valid.with_context(|| format!("life {life}: {}", program.last_lines()))?;
        }
        if ended.with_context(|| format!("life {life}: {}", program.last_lines()))? {
            ensure!(life > 2, "killed {life} times");
            return Ok(life + 1);
        }
    }
    anyhow::bail!("40 lives were not enough")
}

/// Lets held writes pass one by one, and ends when there is one more than so many.
pub(crate) async fn let_pass(held: &[Active; 2], count: u64) {
    let mut passed = [0, 0];
    for _ in 0..count {
        let at = tokio::select! {
            () = held[0].held(passed[0] + 1) => 0,
            () = held[1].held(passed[1] + 1) => 1,
        };
        held[at].release_one();
        passed[at] += 1;
    }
    tokio::select! {
        () = held[0].held(passed[0] + 1) => {}
        () = held[1].held(passed[1] + 1) => {}
    }
}

/// What changes something, other than the lease and Events.
pub(crate) fn writes() -> Match {
    Match::writes().when(|entry| {
        !["leases", "events"].contains(&entry.resource.as_str()) && !entry.resource.ends_with("reviews")
    })
}

/// The same, and what asks whether a certificate is signed.
fn writes_and_looks() -> Match {
    Match::any().when(|entry| {
        let is_read_back = entry.verb == "get" && entry.resource == SIGNING_REQUESTS;
        is_read_back || writes().selects(entry)
    })
}
