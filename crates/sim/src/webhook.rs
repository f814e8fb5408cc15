//! Admission webhooks: what the API server asks programs before it stores what people write. It takes time, and goes wrong where the plan
//! says so. As they are installed here, nothing depends on an answer: without one in time the request goes on (`failurePolicy: Ignore`).

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use coppice_runtime::clock::SeededRng;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::fault::{Fault, rng};
use crate::replica::ReplicaSettings;
use crate::run::RunPlan;
use crate::server::{Body, Operation, PendingWrite, Request, Response, ServerReply};
use crate::simulation::{Simulation, describe, latency};
use crate::trace::Actor;

/// So often a write is reviewed whose object changes meanwhile: as often as the API server tries a patch.
const MAX_REVIEWS: usize = 5;

/// The admission webhook of a replica.
pub trait Webhook: Send + Sync {
    /// The answer to an `AdmissionReview`, as both go over the wire.
    fn answer<'a>(&'a self, review: &'a [u8]) -> BoxFuture<'a, http::Response<Full<Bytes>>>;
}

/// What the API server asks a webhook about. Of that it leaves out what the program itself writes.
#[derive(Clone, Copy, Debug)]
pub struct WebhookConfiguration {
    /// The name of the webhook.
    pub name: &'static str,
    /// What it is asked about.
    pub rules: &'static [WebhookRule],
    /// For how long the API server waits.
    pub timeout: Duration,
}

/// Writes of one kind.
#[derive(Clone, Copy, Debug)]
pub struct WebhookRule {
    /// The API group.
    pub group: &'static str,
    /// The plural of the kind.
    pub resource: &'static str,
    /// What is done to it.
    pub operations: &'static [Operation],
}

impl WebhookConfiguration {
    /// Whether a request may be one that is asked about, by its path.
    fn may_ask(&self, request: &Request) -> bool {
        request.method != http::Method::GET
            && self.rules.iter().any(|rule| {
                let rest = request.path.strip_prefix("/apis/").and_then(|path| path.strip_prefix(rule.group));
                rest.is_some_and(|rest| rest.split('/').any(|segment| segment == rule.resource))
            })
    }

    fn asks(&self, write: &PendingWrite) -> bool {
        self.rules.iter().any(|rule| {
            write.group == rule.group
                && write.resource == rule.resource
                && write.subresource.is_empty()
                && rule.operations.contains(&write.operation)
        })
    }
}

/// Where a replica serves its webhook, in one of its lives.
#[derive(Clone)]
pub struct WebhookPort {
    simulation: Simulation,
    replica: usize,
    incarnation: u32,
}

impl WebhookPort {
    pub(crate) fn new(simulation: Simulation, replica: usize, incarnation: u32) -> Self {
        Self { simulation, replica, incarnation }
    }

    /// Serves a webhook until it is dropped.
    pub fn serve(&self, webhook: &Arc<dyn Webhook>) {
        self.simulation.with(|state| {
            let present = state.incarnations.get_mut(self.replica);
            if let Some(present) = present.filter(|present| present.number == self.incarnation) {
                present.webhook = Some(Arc::downgrade(webhook));
            }
        });
    }
}

/// What a webhook was asked.
#[derive(Clone, Debug)]
pub struct AskedWebhook {
    /// From when until when the API server waited.
    pub during: (Duration, Duration),
    /// The write.
    pub write: PendingWrite,
    /// What came of it.
    pub answer: WebhookAnswer,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAnswer {
    /// This replica admits it.
    Allowed(usize),
    /// This replica denies it.
    Denied(usize, String),
    /// There is none.
    None(NoAnswer),
}

/// Why a webhook has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// No replica serves it.
    #[error("nobody listens")]
    NotServed,
    /// It took too long.
    #[error("no answer in time")]
    Late,
    /// It was answered with an error.
    #[error("an error")]
    Failed,
    /// What was answered is no review.
    #[error("not understood")]
    NotUnderstood,
}

/// Asks the webhooks of the programs of a run.
pub(crate) struct CallOuts<'a> {
    simulation: &'a Simulation,
    replicas: &'a [ReplicaSettings],
    installed: Vec<WebhookConfiguration>,
}

/// A replica and what it answered, with which status code.
type Answered = (usize, u16, Bytes);

impl<'a> CallOuts<'a> {
    pub(crate) fn new(simulation: &'a Simulation, plan: &'a RunPlan) -> Self {
        let mut installed = Vec::<WebhookConfiguration>::new();
        for configuration in plan.replicas.iter().filter_map(|replica| replica.program.webhook()) {
            if plan.scenario.webhooks && installed.iter().all(|known| known.name != configuration.name) {
                installed.push(configuration);
            }
        }
        Self { simulation, replicas: &plan.replicas, installed }
    }

    /// What is answered to a request that a webhook denies; none if it goes on.
    pub(crate) async fn denial(&self, user: &'static str, request: &Request) -> Option<ServerReply> {
        for configuration in self.installed.iter().filter(|configuration| configuration.may_ask(request)) {
            // What is stored is what was reviewed: what has changed meanwhile is reviewed again.
            let mut reviewed = None;
            for _ in 0..MAX_REVIEWS {
                let now = self.simulation.clock().now();
                let write = self.simulation.with(|state| state.server.pending_write(now, user, request));
                let Some(write) = write.filter(|write| configuration.asks(write)) else { break };
                let revision = write.old["metadata"]["resourceVersion"].clone();
                if reviewed.replace(revision.clone()) == Some(revision) {
                    break;
                }
                if let WebhookAnswer::Denied(_, message) = self.ask(configuration, write).await {
                    self.simulation.note(Actor::User(user), describe(request, 403));
                    return Some(denial(configuration.name, &message));
                }
                self.simulation.wait_while_away().await;
            }
        }
        None
    }

    async fn ask(&self, configuration: &WebhookConfiguration, write: PendingWrite) -> WebhookAnswer {
        let asked = self.simulation.elapsed();
        let (n, fault) = self.simulation.with(|state| state.faults.of_review(asked));
        let what = {
            let PendingWrite { operation, resource, namespace, name, dry_run, .. } = &write;
            let dry_run = if *dry_run { " (dry run)" } else { "" };
            format!("{} {resource} {namespace}/{name}{dry_run}", operation.as_str())
        };
        if let Some(fault) = fault {
            self.simulation.note(Actor::Faults, format!("{fault:?}: {what}"));
        }
        if let Some(Fault::Off(by)) = fault {
            self.simulation.with(|state| {
                state.webhooks_off_until = state.webhooks_off_until.max(asked + by);
            });
        }
        let uid = format!("review-{n}");
        let body = write.to_admission_review(&uid).to_string().into_bytes();
        let answered = timeout(configuration.timeout, self.exchange(configuration, n, fault, &body)).await;
        let answer = match answered.unwrap_or(Err(NoAnswer::Late)) {
            Ok((replica, 200, body)) => understood(replica, &uid, &body),
            Ok(_) => WebhookAnswer::None(NoAnswer::Failed),
            Err(why) => WebhookAnswer::None(why),
        };
        // As in all lines, without messages.
        let outcome = match &answer {
            WebhookAnswer::Allowed(replica) => format!("allowed by replica-{replica}"),
            WebhookAnswer::Denied(replica, _) => format!("denied by replica-{replica}"),
            WebhookAnswer::None(why) => why.to_string(),
        };
        self.simulation.note(Actor::Admission, format!("{what} → {outcome}"));
        let during = (asked, self.simulation.elapsed());
        let answered = AskedWebhook { during, write, answer: answer.clone() };
        self.simulation.with(|state| state.asked.push(answered));
        answer
    }

    /// The way to a replica and back.
    async fn exchange(
        &self,
        configuration: &WebhookConfiguration,
        n: u64,
        fault: Option<Fault>,
        body: &[u8],
    ) -> Result<Answered, NoAnswer> {
        let mut rng = rng(self.simulation.seed(), 16, n);
        if self.simulation.elapsed() < self.simulation.with(|state| state.webhooks_off_until) {
            return Err(NoAnswer::NotServed);
        }
        sleep(latency(&mut rng)).await;
        match fault {
            Some(Fault::Lost) => pending().await,
            Some(Fault::Refused(_)) => return Err(NoAnswer::Failed),
            Some(Fault::Twice) => drop(self.reviewed(configuration, &mut rng, body).await),
            _ => {}
        }
        let answered = self.reviewed(configuration, &mut rng, body).await?;
        if let Some(Fault::Late(by)) = fault {
            sleep(by).await;
        }
        sleep(latency(&mut rng)).await;
        Ok(answered)
    }

    /// The answer of a replica that the seed chooses among those that serve the webhook.
    async fn reviewed(
        &self,
        configuration: &WebhookConfiguration,
        rng: &mut SeededRng,
        body: &[u8],
    ) -> Result<Answered, NoAnswer> {
        let serving: Vec<_> = self.simulation.with(|state| {
            let lives = state.incarnations.iter().zip(self.replicas).enumerate();
            let serving = lives.filter_map(|(replica, (life, settings))| {
                let webhook = settings.program.webhook().is_some_and(|one| one.name == configuration.name);
                let served = life.webhook.as_ref().and_then(Weak::upgrade);
                Some((replica, life.number, served.filter(|_| webhook && life.alive)?))
            });
            serving.collect()
        });
        let Some(last) = serving.len().checked_sub(1) else { return Err(NoAnswer::NotServed) };
        let chosen = usize::try_from(rng.next_u64() % serving.len() as u64).unwrap_or(last);
        let (replica, life, webhook) = &serving[chosen];
        self.reached(*replica, *life).await;
        let answer = webhook.answer(body).await;
        self.reached(*replica, *life).await;
        let (head, body) = answer.into_parts();
        let body =
            body.collect().await.map_or_else(|never| match never {}, http_body_util::Collected::to_bytes);
        Ok((*replica, head.status.as_u16(), body))
    }

    /// Ends only while that life of a replica goes on and something gets there.
    async fn reached(&self, replica: usize, life: u32) {
        if !self.simulation.incarnations(replica, life) || !self.simulation.cut_off(replica).is_zero() {
            pending::<()>().await;
        }
    }
}

/// What an answer says, as the API server understands it.
fn understood(replica: usize, uid: &str, body: &[u8]) -> WebhookAnswer {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    let response = &review["response"];
    if response["uid"] != uid || review["kind"] != "AdmissionReview" {
        return WebhookAnswer::None(NoAnswer::NotUnderstood);
    }
    match response["allowed"].as_bool() {
        Some(true) => WebhookAnswer::Allowed(replica),
        Some(false) => {
            let message = response["status"]["message"].as_str().unwrap_or_default();
            WebhookAnswer::Denied(replica, message.to_owned())
        }
        None => WebhookAnswer::None(NoAnswer::NotUnderstood),
    }
}

/// The refusal of a webhook, in the words of the API server.
fn denial(webhook: &str, message: &str) -> ServerReply {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("admission webhook {webhook:?} denied the request: {message}"),
        "reason": "Forbidden", "code": 403,
    });
    ServerReply::Done(Response { code: 403, body: Body::Value(status), warnings: Vec::new() })
}
