//! Another cluster: a second API server, which programs reach with kubeconfigs, and which issues tokens and signs certificates
//! (`certificates.rs`).
//!
//! What is on its way there takes time and goes wrong as what is on its way to the first one. Who asks is known by a token: that of
//! the administrator, or one that was issued here for a service account. Such a token is valid until it expires, and only while its account and
//! the Secret that it is bound to are there. Or by a certificate that was signed here, which is valid until it expires.

mod certificates;

use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::clock::Clock;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use self::certificates::Signer;
pub use self::certificates::{IssuedCertificate, Obstacle, SignerSettings, key};
use crate::scenario::objects::done;
use crate::server::{Body, Change, Request, Response, Server, ServerReply};
use crate::simulation::{Done, code_of};
use crate::trace::Actor;

/// The token of the administrator.
pub const ADMIN_TOKEN: &str = "admin";
/// Their name.
const ADMIN: &str = "target-admin";
/// No token is issued for less, in seconds.
const SHORTEST: u64 = 600;
const RBAC: &str = "rbac.authorization.k8s.io";

/// The target of a scenario.
#[derive(Clone, Debug)]
pub struct TargetSettings {
    /// The objects at the beginning.
    pub setup: Vec<Request>,
    /// Tokens and certificates are valid for so long at most, whatever is asked for.
    pub longest: Duration,
    /// So much longer than to the first API server requests take to it.
    pub latency: Duration,
    /// How it signs certificates.
    pub signer: SignerSettings,
}

/// The second API server.
#[derive(Debug)]
pub struct TargetServer {
    server: Server,
    longest: Duration,
    latency: Duration,
    tokens: Vec<IssuedToken>,
    signer: Signer,
    done: Vec<Done>,
}

/// A token that was issued for a service account, bound to a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token.
    pub token: String,
    /// The namespace of account and Secret.
    pub namespace: String,
    /// The name and the uid of the service account.
    pub account: (String, String),
    /// Those of the Secret.
    pub secret: (String, String),
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
    /// Who asked for it, and when that was sent: a request that arrives twice is one.
    pub request: (Actor, Duration),
}

/// By what somebody is known to the second API server.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// A token.
    Token(Arc<str>),
    /// A certificate, in PEM, in base64, with the public part of the key that they have.
    Certificate { certificate: Arc<str>, public_key: Arc<[u8]> },
}

/// Who has a credential.
struct Holder {
    /// Their name.
    user: String,
    /// As which subject bindings name them.
    subject: Value,
}

/// A request on its arrival.
pub(crate) struct Arrival<'a> {
    pub(crate) credential: &'a Credential,
    pub(crate) request: &'a Request,
    pub(crate) who: Actor,
    pub(crate) sent: Duration,
}

impl TargetServer {
    pub(crate) fn new(began: Timestamp, settings: &TargetSettings) -> anyhow::Result<Self> {
        let mut server = Server::new(began);
        for request in &settings.setup {
            let answer = server.handle(began, ADMIN, request);
            anyhow::ensure!(done(&answer), "the target: {} {}: {answer:?}", request.method, request.path);
        }
        let TargetSettings { longest, latency, signer, .. } = *settings;
        let signer = Signer::new(began, signer);
        Ok(Self { server, longest, latency, tokens: Vec::new(), signer, done: Vec::new() })
    }

    /// Every change of an object, in order.
    pub fn changes(&self) -> &[Change] {
        self.server.changes_since(0)
    }

    /// Every token, in the order of their issue.
    pub fn tokens(&self) -> &[IssuedToken] {
        &self.tokens
    }

    /// Every certificate, in the order of their issue.
    pub fn certificates(&self) -> &[IssuedCertificate] {
        self.signer.issued()
    }

    /// Every write that was carried out.
    pub fn done(&self) -> &[Done] {
        &self.done
    }

    /// So much longer requests take to it.
    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    /// Answers a request at an instant.
    pub(crate) fn handle(&mut self, clock: &Clock, arrival: &Arrival<'_>) -> ServerReply {
        let Arrival { request, who, sent, .. } = *arrival;
        // What is due since the last request. Nobody watches it.
        self.signer.work(&mut self.server, clock.now(), self.longest);
        let before = self.server.revision();
        let answer = match self.answer(clock.now(), arrival) {
            ServerReply::Watch(_) => refusal(405, "MethodNotAllowed", "nobody watches the target"),
            done @ ServerReply::Done(_) => done,
        };
        if request.method != Method::GET {
            let revisions = (before, self.server.revision());
            let (at, code, request) = (clock.monotonic(), code_of(&answer), request.clone());
            self.signer.note(&self.server, clock.now(), arrival, code);
            self.done.push(Done { sent, at, who, request, code, revisions });
        }
        answer
    }

    fn answer(&mut self, now: Timestamp, arrival: &Arrival<'_>) -> ServerReply {
        let Arrival { credential, request, .. } = *arrival;
        if matches!(credential, Credential::Token(token) if **token == *ADMIN_TOKEN) {
            return match token_of(&request.path).filter(|_| request.method == Method::POST) {
                Some(account) => self.issue(now, account, arrival),
                None => self.server.handle(now, ADMIN, request),
            };
        }
        let Some(holder) = self.holder(now, credential) else {
            return refusal(401, "Unauthorized", "Unauthorized");
        };
        match request.path.rsplit('/').next() {
            Some("selfsubjectreviews") => self.server.handle(now, &holder.user, request),
            Some("selfsubjectaccessreviews") => {
                let mut review = body_of(request);
                let allowed = self.permits(&holder.subject, &review["spec"]["resourceAttributes"]);
                review["status"] = json!({ "allowed": allowed });
                answered(201, review)
            }
            _ => refusal(403, "Forbidden", "its credentials are only tried out here"),
        }
    }

    /// Who has a credential; none if it is not taken at that instant.
    fn holder(&self, now: Timestamp, credential: &Credential) -> Option<Holder> {
        match credential {
            Credential::Token(token) => {
                let mut issued = self.tokens.iter();
                let issued = issued.find(|issued| issued.token == **token && self.is_valid(issued, now))?;
                let IssuedToken { namespace, account: (name, _), .. } = issued;
                let user = format!("system:serviceaccount:{namespace}:{name}");
                let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
                Some(Holder { user, subject })
            }
            Credential::Certificate { certificate, public_key } => {
                let user = self.signer.user(now, certificate, public_key)?.to_owned();
                let subject = json!({ "kind": "User", "name": user });
                Some(Holder { user, subject })
            }
        }
    }

    /// Whether a token is taken at an instant.
    fn is_valid(&self, issued: &IssuedToken, now: Timestamp) -> bool {
        let is = |plural: &str, (name, uid): &(String, String)| {
            let found = self.server.object("", plural, &issued.namespace, name);
            found.is_some_and(|found| found["metadata"]["uid"] == uid.as_str())
        };
        now < issued.expires && is("serviceaccounts", &issued.account) && is("secrets", &issued.secret)
    }

    /// Issues a token for a service account.
    fn issue(
        &mut self,
        now: Timestamp,
        (namespace, name): (&str, &str),
        arrival: &Arrival<'_>,
    ) -> ServerReply {
        let mut review = body_of(arrival.request);
        let uid_of = |plural: &str, name: &str| {
            let found = self.server.object("", plural, namespace, name)?;
            found["metadata"]["uid"].as_str().map(str::to_owned)
        };
        let bound = &review["spec"]["boundObjectRef"];
        let secret = bound["name"].as_str().unwrap_or_default().to_owned();
        let (Some(account_uid), Some(secret_uid)) =
            (uid_of("serviceaccounts", name), uid_of("secrets", &secret))
        else {
            return refusal(404, "NotFound", "the service account or the Secret is not found");
        };
        if bound["uid"] != secret_uid.as_str() {
            return refusal(
                409,
                "Conflict",
                "the UID in the bound object reference does not match the UID in record",
            );
        }
        let asked = review["spec"]["expirationSeconds"].as_u64().unwrap_or(3600);
        if asked < SHORTEST {
            return refusal(422, "Invalid", "may not specify a duration less than 10 minutes");
        }
        let seconds = asked.min(self.longest.as_secs());
        let time = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        let expires = now.saturating_add(time).unwrap_or(Timestamp::MAX);
        let token = format!("token-{}", self.tokens.len() + 1);
        review["spec"]["expirationSeconds"] = json!(seconds);
        review["status"] = json!({ "token": token, "expirationTimestamp": expires });
        self.tokens.push(IssuedToken {
            token,
            namespace: namespace.to_owned(),
            account: (name.to_owned(), account_uid),
            secret: (secret, secret_uid),
            issued: now,
            expires,
            request: (arrival.who, arrival.sent),
        });
        answered(201, review)
    }

    /// Whether the bindings of a subject permit a request.
    fn permits(&self, holder: &Value, request: &Value) -> bool {
        let namespace = request["namespace"].as_str().unwrap_or_default();
        let bound = |plural: &str, namespace: &str| {
            let bindings = self.server.objects(RBAC, plural, namespace);
            let of_holder = bindings.filter(|binding| {
                let mut subjects = binding["subjects"].as_array().into_iter().flatten();
                subjects.any(|subject| {
                    ["kind", "name", "namespace"].iter().all(|field| subject[field] == holder[field])
                })
            });
            let mut roles = of_holder.filter_map(|binding| {
                let name = binding["roleRef"]["name"].as_str()?;
                match binding["roleRef"]["kind"].as_str()? {
                    "Role" => self.server.object(RBAC, "roles", namespace, name),
                    _ => self.server.object(RBAC, "clusterroles", "", name),
                }
            });
            roles.any(|role| rules_permit(&role["rules"], request))
        };
        bound("clusterrolebindings", "") || !namespace.is_empty() && bound("rolebindings", namespace)
    }
}

/// Whether rules permit what the attributes of a request say.
fn rules_permit(rules: &Value, request: &Value) -> bool {
    let text = |field: &str| request[field].as_str().unwrap_or_default();
    let resource = match (text("resource"), text("subresource")) {
        (resource, "") => resource.to_owned(),
        (resource, subresource) => format!("{resource}/{subresource}"),
    };
    rules.as_array().into_iter().flatten().any(|rule| {
        let has = |field: &str, word: &str| {
            let mut words = rule[field].as_array().into_iter().flatten();
            words.any(|one| one == word || one == "*")
        };
        let of_any_name = rule["resourceNames"].as_array().is_none_or(Vec::is_empty);
        has("verbs", text("verb"))
            && has("apiGroups", text("group"))
            && has("resources", &resource)
            && (of_any_name || has("resourceNames", text("name")))
    })
}

/// Namespace and name of the service account of which a token is asked for.
fn token_of(path: &str) -> Option<(&str, &str)> {
    let (namespace, rest) = path.strip_prefix("/api/v1/namespaces/")?.split_once("/serviceaccounts/")?;
    Some((namespace, rest.strip_suffix("/token")?))
}

/// The body of a request, which is an object.
fn body_of(request: &Request) -> Value {
    serde_json::from_slice(&request.body).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

fn answered(code: u16, body: Value) -> ServerReply {
    ServerReply::Done(Response { code, body: Body::Value(body), warnings: Vec::new() })
}

fn refusal(code: u16, reason: &str, message: &str) -> ServerReply {
    answered(
        code,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        }),
    )
}
