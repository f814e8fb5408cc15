//! Requests to one target: its service accounts, roles, bindings and tokens; its certificates are in `certificate.rs`, what a garden
//! is asked for a Shoot in `garden.rs`, how it is asked for lists in `list.rs`, and what this installation has made in it in `left.rs`.

mod certificate;
mod garden;
mod granted;
mod left;
mod list;

use std::collections::BTreeMap;
use std::time::Duration;

use coppice_api::Reason;
use coppice_api::names::FIELD_MANAGER;
use coppice_clusters::kubeconfig::Kubeconfig;
use coppice_clusters::probe::{self, Probe};
use coppice_clusters::rights::{Owner, TargetKind, TargetObject, is_wanted};
use coppice_clusters_api::names::{TARGET_NAMESPACE, account, bound_secret};
use coppice_clusters_api::{Rights, Rule, TargetIdentity};
use coppice_mutants::{Mutant, active};
use coppice_runtime::client::Clients;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use http::{Method, Request};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

pub use self::certificate::MakeKey;
pub(crate) use self::certificate::{RequestedCertificate, user_of};
pub(crate) use self::garden::{Project, Shoot};
pub(crate) use self::left::Made;
use self::list::Within;
use crate::explain::why;

/// The namespace that each cluster has from its first moment to its last.
const OLDEST_NAMESPACE: &str = "kube-system";
/// A target that has too many requests is asked for nothing for at least so long, also if it does not say for how long (`Retry-After`).
const LEAST_WAIT: Duration = Duration::from_secs(5);
/// Neither a token nor a certificate is longer.
const MAX_CREDENTIAL: usize = 64 << 10;
/// After so many refusals nothing more is revoked in one go. Status names fewer credentials, and these go first.
const MAX_REFUSED: usize = 20;
/// No role of a cluster has more rules: the others are not looked at.
const MAX_RULES: usize = 1_000;

/// Why something was not done in a target, for status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// The HTTP code of the answer that says so; none without such an answer.
    pub(crate) code: Option<u16>,
}

impl Failure {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), code: None }
    }

    /// The same, by an answer with this code.
    pub(crate) fn with_code(self, code: u16) -> Self {
        Self { code: Some(code), ..self }
    }

    fn of(what: &str, error: &kube::Error) -> Self {
        Self::by("the target", what, error)
    }

    /// That a server did not do something.
    pub(crate) fn by(server: &str, what: &str, error: &kube::Error) -> Self {
        let code = if let kube::Error::Api(status) = error { Some(status.code) } else { None };
        let (reason, does) = match code {
            Some(429) => (Reason::TargetThrottled, "did not"),
            Some(code) if (400..500).contains(&code) && code != 408 => (Reason::TargetRefused, "refuses to"),
            _ => (Reason::TargetUnreachable, "did not"),
        };
        Self { reason, message: format!("{server} {does} {what}: {}", why(error)), code }
    }
}

/// A target, as the user of the kubeconfig that `spec.cluster` names.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) kubeconfig: Kubeconfig,
    pub(crate) clients: Clients,
}

/// A token, and how long it is valid, in seconds.
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) seconds: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Found {
    metadata: FoundMeta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundMeta {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FoundRole {
    /// Null of one that aggregates others, as long as there are none.
    rules: Option<Vec<BTreeMap<String, Vec<String>>>>,
}

impl Target {
    /// For how long it is asked for nothing after this failure, if that is that it has too many requests: as long as it says, two minutes at most.
    pub(crate) fn asks_to_wait(&self, failure: &Failure) -> Option<Duration> {
        let is_throttled = failure.reason == Reason::TargetThrottled;
        is_throttled.then(|| wait_of(&self.clients))
    }

    /// Which cluster answers.
    pub(crate) async fn identity(&self) -> Result<TargetIdentity, Failure> {
        let found = self.get::<Found>(&format!("/api/v1/namespaces/{OLDEST_NAMESPACE}")).await;
        let what = format!("show its namespace {OLDEST_NAMESPACE}, by whose uid it is known");
        let uid = found.map_err(|error| Failure::of(&what, &error))?.metadata.uid;
        let is_uid =
            (1..=64).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_uid {
            let message = format!("the namespace {OLDEST_NAMESPACE} of the target has no uid");
            return Err(Failure::new(Reason::TargetRefused, message));
        }
        Ok(TargetIdentity { uid, endpoint: self.kubeconfig.cluster.endpoint() })
    }

    /// Whether it has the service account of this access.
    pub(crate) async fn has_account(&self, owner: Owner<'_>) -> Result<bool, Failure> {
        Ok(!self.list_ours(TargetKind::ServiceAccount, owner, None).await?.is_empty())
    }

    /// Has the target have the rights, and nothing else for this access within these namespaces.
    pub(crate) async fn apply_rights(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        rights: &Rights,
        within: Within<'_>,
    ) -> Result<(), Failure> {
        let wanted = owner.rights(rights);
        self.remove(permit, owner, &wanted, within).await?;
        for object in &wanted {
            let applied = self.apply(permit, object).await;
            let no_namespace = matches!(&applied, Err(kube::Error::Api(status)) if status.code == 404);
            let applied = if no_namespace && object.namespace == TARGET_NAMESPACE {
                self.create_namespace(permit).await?;
                self.apply(permit, object).await
            } else {
                applied
            };
            applied.map_err(|error| {
                Failure::of(&format!("apply {} {}", described(object.kind), place(object)), &error)
            })?;
        }
        Ok(())
    }

    /// Removes everything that gives this access rights within these namespaces.
    pub(crate) async fn remove_rights(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        rights: &Rights,
        within: Within<'_>,
    ) -> Result<(), Failure> {
        self.remove(permit, owner, &[], within).await?;
        // By their names, whatever labels they have by now: without these no credential of it has a right.
        for TargetObject { kind, namespace, name, .. } in owner.essentials(rights, within) {
            self.delete(permit, kind, (&namespace, &name), None).await?;
        }
        Ok(())
    }

    /// Deletes everything that a credential of this access is issued from, and the Secrets that these credentials are bound to also where they
    /// lost their label: their tokens would stay valid. These go first, and one that the target refuses to delete keeps no other from that.
    pub(crate) async fn revoke_all(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        credentials: &[&str],
    ) -> Result<(), Failure> {
        let Some(kind) = owner.issued_from() else { return Ok(()) };
        let (found, mut refusal) = self.list_some(kind, owner, None).await?;
        let of =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let mut others: Vec<(String, String)> =
            found.iter().map(|object| (of(object, "name"), of(object, "uid"))).collect();
        let is_bound = kind == TargetKind::Secret;
        let (mut first, namespace) = (Vec::new(), if is_bound { TARGET_NAMESPACE } else { "" });
        for credential in credentials.iter().filter(|_| is_bound) {
            let name = bound_secret(credential);
            // As it is found: should this request arrive very late, after another attempt, it deletes no other one.
            let uid = match others.iter().position(|(of, _)| *of == name) {
                Some(at) => Some(others.remove(at).1),
                None => self.uid_of_secret(&name).await?,
            };
            first.extend(uid.map(|uid| (name, uid)));
        }
        let mut refused = 0;
        for (name, uid) in first.iter().chain(&others) {
            match self.delete(permit, kind, (namespace, name), Some(uid)).await {
                Err(failure) if failure.reason == Reason::TargetRefused => {
                    (refused, refusal) = (refused + 1, Some(failure));
                    if refused == MAX_REFUSED {
                        break;
                    }
                }
                deleted => deleted?,
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Deletes the Secret that a token is bound to, by its name, which no other has: one that lost its label would not be found, and
    /// its token would stay valid.
    pub(crate) async fn revoke(&self, permit: &Permit, credential: &str) -> Result<(), Failure> {
        self.delete(permit, TargetKind::Secret, (TARGET_NAMESPACE, &bound_secret(credential)), None).await
    }

    /// Makes the Secret that a token will be bound to; its uid. That of an attempt before is deleted as it is found: should this request arrive
    /// very late, after another attempt, it deletes no other one.
    pub(crate) async fn bind(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        credential: &str,
    ) -> Result<String, Failure> {
        let object = owner.bound_secret(credential);
        let path = TargetKind::Secret.collection(TARGET_NAMESPACE);
        if active(Mutant::BoundSecretReused)
            && let Ok(found) = self.get::<Found>(&format!("{path}/{}", object.name)).await
        {
            return Ok(found.metadata.uid);
        }
        // By its name: for a label the API server looks through the Secrets of all others.
        if let Some(uid) = self.uid_of_secret(&object.name).await? {
            self.delete(permit, TargetKind::Secret, (TARGET_NAMESPACE, &object.name), Some(&uid)).await?;
        }
        let create = || self.write::<Found>(permit, Method::POST, &path, &object.body);
        let mut created = create().await;
        if matches!(&created, Err(kube::Error::Api(status)) if status.code == 409) {
            // It was made meanwhile, by an attempt whose request arrived late.
            self.revoke(permit, credential).await?;
            created = create().await;
        }
        let created =
            created.map_err(|error| Failure::of("create the Secret that a token is bound to", &error))?;
        Ok(created.metadata.uid)
    }

    /// Has a token issued that is bound to the Secret of this uid.
    pub(crate) async fn request_token(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        (credential, bound_uid): (&str, &str),
        seconds: u64,
    ) -> Result<Token, Failure> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Issued {
            spec: IssuedSpec,
            status: IssuedStatus,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct IssuedSpec {
            expiration_seconds: i64,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct IssuedStatus {
            token: String,
        }
        let path = format!(
            "{}/{}/token",
            TargetKind::ServiceAccount.collection(TARGET_NAMESPACE),
            account(owner.uid)
        );
        let name = bound_secret(credential);
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": bound_uid}
            }
        });
        let issued = self.write::<Issued>(permit, Method::POST, &path, &body).await;
        let Issued { spec, status } = issued.map_err(|error| Failure::of("issue a token", &error))?;
        if status.token.is_empty() || status.token.len() > MAX_CREDENTIAL || spec.expiration_seconds <= 0 {
            let message = "the target answered a TokenRequest without a token that is valid for some time";
            return Err(Failure::new(Reason::TargetRefused, message));
        }
        Ok(Token { text: status.token, seconds: spec.expiration_seconds })
    }

    /// The rules that the rights stand for; those of a role of the target as it is now.
    pub(crate) async fn rules(&self, rights: &Rights) -> Result<Vec<Rule>, Failure> {
        if let Some(role) = &rights.role {
            return Ok(role.rules.clone());
        }
        if let Some(role) = &rights.cluster_role {
            return Ok(role.rules.clone());
        }
        let namespace = probe::namespace_of(rights);
        let (kind, namespace, name) = match &rights.bind {
            Some(bind) => match (&bind.role, &bind.cluster_role) {
                (Some(role), _) => (TargetKind::Role, namespace, role),
                (None, Some(role)) => (TargetKind::ClusterRole, "", role),
                (None, None) => return Ok(Vec::new()),
            },
            None => return Ok(Vec::new()),
        };
        let rules = self.rules_of(kind, namespace, name).await;
        rules.map_err(|error| Failure::of(&format!("show the {} {name}", described(kind)), &error))
    }

    /// The rules of a role.
    async fn rules_of(
        &self,
        kind: TargetKind,
        namespace: &str,
        name: &str,
    ) -> Result<Vec<Rule>, kube::Error> {
        let role = self.get::<FoundRole>(&format!("{}/{name}", kind.collection(namespace))).await?;
        let words =
            |rule: &BTreeMap<String, Vec<String>>, field: &str| rule.get(field).cloned().unwrap_or_default();
        let role = role.rules.unwrap_or_default();
        let rules = role.iter().take(MAX_RULES).map(|rule| Rule {
            api_groups: words(rule, "apiGroups"),
            resources: words(rule, "resources"),
            verbs: words(rule, "verbs"),
            resource_names: words(rule, "resourceNames"),
        });
        let mut rules: Vec<Rule> = rules.collect();
        if role.len() > MAX_RULES {
            // The others may permit anything.
            let any = || vec!["*".to_owned()];
            rules.push(Rule {
                api_groups: any(),
                resources: any(),
                verbs: any(),
                resource_names: Vec::new(),
            });
        }
        Ok(rules)
    }

    async fn create_namespace(&self, permit: &Permit) -> Result<(), Failure> {
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": TARGET_NAMESPACE, "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER}}
        });
        match self.write::<Found>(permit, Method::POST, "/api/v1/namespaces", &body).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(Failure::of(&format!("create the namespace {TARGET_NAMESPACE}"), &error)),
        }
    }

    /// Removes what gives rights and is not wanted any more.
    async fn remove(
        &self,
        permit: &Permit,
        owner: Owner<'_>,
        wanted: &[TargetObject],
        within: Within<'_>,
    ) -> Result<(), Failure> {
        for kind in TargetKind::OF_RIGHTS.into_iter().filter(|kind| owner.may_have(*kind)) {
            self.remove_kind(permit, kind, owner, within, |found| !is_wanted(kind, found, wanted)).await?;
        }
        Ok(())
    }

    /// Removes those of a kind that are this access's and are to go.
    async fn remove_kind(
        &self,
        permit: &Permit,
        kind: TargetKind,
        owner: Owner<'_>,
        within: Within<'_>,
        is_to_go: impl Fn(&Value) -> bool,
    ) -> Result<(), Failure> {
        for object in self.list_ours(kind, owner, within).await?.iter().filter(|object| is_to_go(object)) {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            self.delete(permit, kind, (of("namespace"), of("name")), Some(of("uid"))).await?;
        }
        Ok(())
    }

    async fn delete(
        &self,
        permit: &Permit,
        kind: TargetKind,
        (namespace, name): (&str, &str),
        uid: Option<&str>,
    ) -> Result<(), Failure> {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(uid) = uid {
            body["preconditions"] = json!({"uid": uid});
        }
        let path = format!("{}/{name}", kind.collection(namespace));
        match self.write::<IgnoredAny>(permit, Method::DELETE, &path, &body).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Failure::of(&format!("delete the {} {name}", described(kind)), &error)),
        }
    }

    /// By force: what somebody has edited of an object with our name would otherwise stay, and no credential would be issued any more.
    async fn apply(&self, permit: &Permit, object: &TargetObject) -> Result<(), kube::Error> {
        let path = format!(
            "{}/{}?fieldManager={FIELD_MANAGER}&force=true",
            object.kind.collection(&object.namespace),
            object.name
        );
        let request = Request::builder()
            .method(Method::PATCH)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        read::answer::<IgnoredAny>(permit.client(&self.clients), request).await.map(drop)
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, kube::Error> {
        read::answer(&self.clients.reads, read::request(path)?).await
    }

    async fn write<T: serde::de::DeserializeOwned>(
        &self,
        permit: &Permit,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<T, kube::Error> {
        read::answer(permit.client(&self.clients), json_request(method, path, body)?).await
    }
}

/// For how long a server that has too many requests is asked for nothing.
pub(crate) fn wait_of(clients: &Clients) -> Duration {
    clients.backpressure.remaining().max(LEAST_WAIT)
}

/// When a wait is over. In whole seconds, so that people can read it: two seconds late at most.
pub(crate) fn wait_ends(now: Timestamp, wait: Duration) -> Timestamp {
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).saturating_add(2);
    Timestamp::from_second(now.as_second().saturating_add(seconds)).unwrap_or(Timestamp::MAX)
}

/// What a credential turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VerificationResult {
    /// It is that of the access, and permits what was asked about and no more.
    Right,
    /// It is not valid.
    NotValid,
    /// It permits too little or too much, or is somebody else's.
    Wrong(String),
}

/// Tries a credential out, as the one who has it, who is to be this user: what the target is asked, and what it is to answer.
pub(crate) async fn try_out(
    clients: &Clients,
    identity: &str,
    questions: &[(Probe, bool)],
) -> Result<VerificationResult, Failure> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let who = match ask(clients, path, &review).await {
        Err(kube::Error::Api(status)) if status.code == 401 => return Ok(VerificationResult::NotValid),
        answer => answer.map_err(|error| Failure::of("say whose the credential is", &error))?,
    };
    if who.user_info.username != identity {
        return Ok(VerificationResult::Wrong(
            "the target takes the credential for that of somebody else".to_owned(),
        ));
    }
    for (probe, expected) in questions {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = ask(clients, path, &probe.review()).await;
        let answer = answer.map_err(|error| Failure::of("say what the credential permits", &error))?;
        if answer.allowed != Some(*expected) {
            let says = if *expected { "does not permit" } else { "permits" };
            return Ok(VerificationResult::Wrong(format!("the credential {says}: {probe}")));
        }
    }
    Ok(VerificationResult::Right)
}

/// What a target answers to a review.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reviewed {
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReviewStatus {
    allowed: Option<bool>,
    user_info: UserInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
}

/// A review changes nothing: the client for reads sends it.
async fn ask(clients: &Clients, path: &str, review: &Value) -> Result<ReviewStatus, kube::Error> {
    let answer: Reviewed = read::answer(&clients.reads, json_request(Method::POST, path, review)?).await?;
    Ok(answer.status)
}

fn json_request(method: Method, path: &str, body: &Value) -> Result<Request<Vec<u8>>, kube::Error> {
    let request =
        Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, "application/json");
    request.body(body.to_string().into_bytes()).map_err(kube::Error::HttpError)
}

/// A value of a query, whatever a target has written there.
fn encoded(value: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(byte).collect()
}

const fn described(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Secret => "Secret",
        TargetKind::SigningRequest => "CertificateSigningRequest",
        TargetKind::ServiceAccount => "ServiceAccount",
        TargetKind::Role => "Role",
        TargetKind::ClusterRole => "ClusterRole",
        TargetKind::RoleBinding => "RoleBinding",
        TargetKind::ClusterRoleBinding => "ClusterRoleBinding",
    }
}

fn place(object: &TargetObject) -> String {
    if object.namespace.is_empty() {
        object.name.clone()
    } else {
        format!("{} in {}", object.name, object.namespace)
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
