//! Why the pods of workloads are refused, by Events. They explain what fails, where the status of a kind says nothing, and decide
//! nothing: Events may be lost, and Kubernetes forgets them after an hour.

use std::collections::BTreeSet;

use anyhow::Result;
use coppice_api::HealthReason;
use coppice_api::health::FailingObject;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;

use crate::connect::failed;

/// The reason of the Events of controllers whose pods the API server refuses.
const REASON: &str = "FailedCreate";
/// So many Events are looked at.
const MOST: u32 = 500;

/// The latest refusal of a workload's pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RefusedPods {
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Timestamp>,
    /// What the API server answered.
    pub(crate) message: String,
}

impl RefusedPods {
    /// What an Event says of that; none if it is about something else.
    pub(crate) fn of(event: Event) -> Option<Self> {
        let refused = event.type_.as_deref() == Some("Warning") && event.reason.as_deref() == Some(REASON);
        let about = event.involved_object;
        let series = event.series.and_then(|series| series.last_observed_time).map(|at| at.0);
        let at = series.or(event.last_timestamp.map(|at| at.0)).or(event.event_time.map(|at| at.0));
        let (kind, name, message) = (about.kind?, about.name?, event.message?);
        refused.then_some(Self { kind, name, at, message })
    }

    /// Whether it is about a workload: its own, or that of what a Deployment or CronJob creates pods by, whose name is that of
    /// its owner with a suffix.
    fn is_of(&self, kind: &str, name: &str) -> bool {
        let through = match kind {
            "Deployment" => "ReplicaSet",
            "CronJob" => "Job",
            _ => "",
        };
        let owner = self.name.rsplit_once('-').map(|(owner, _)| owner);
        (&*self.kind, &*self.name) == (kind, name) || self.kind == through && owner == Some(name)
    }
}

/// Whether Events can explain something of this.
pub(crate) fn explain_any(failing: &[FailingObject]) -> bool {
    failing.iter().any(|one| one.reason == HealthReason::PodsNotCreated.as_str())
}

/// For each workload that lacks pods the latest Event about it.
pub(crate) fn latest(events: &[RefusedPods], failing: &[FailingObject]) -> Vec<RefusedPods> {
    let lacking = failing.iter().filter(|one| one.reason == HealthReason::PodsNotCreated.as_str());
    let latest = lacking.filter_map(|one| {
        let about = events.iter().filter(|event| event.is_of(&one.kind, &one.name));
        let RefusedPods { at, message, .. } = about.max_by_key(|event| event.at)?.clone();
        Some(RefusedPods { kind: one.kind.clone(), name: one.name.clone(), at, message })
    });
    latest.collect()
}

/// Those that a quota refused, so many at most: for each workload the latest, and the latest first.
pub(crate) fn beyond_quota(mut events: Vec<RefusedPods>, most: usize) -> Vec<RefusedPods> {
    // "failed quota: ... must specify cpu": a pod without requests, where the quota limits them.
    let is_of_quota = |message: &str| message.contains("exceeded quota") || message.contains("failed quota");
    events.retain(|event| is_of_quota(&event.message));
    events.sort_by(|a, b| (b.at, &a.kind, &a.name).cmp(&(a.at, &b.kind, &b.name)));
    let mut seen = BTreeSet::new();
    events.retain(|event| seen.insert((event.kind.clone(), event.name.clone())));
    events.truncate(most);
    events
}

/// The Events of a namespace, by one request; or why they cannot be read.
pub(crate) async fn of_namespace(client: &Client, namespace: &str) -> Result<Vec<RefusedPods>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let params = ListParams::default().fields(&format!("reason={REASON},type=Warning")).limit(MOST);
    match events.list(&params).await {
        Ok(found) => Ok(found.items.into_iter().filter_map(RefusedPods::of).collect()),
        Err(error) => {
            let what = format!("the Events in namespace {namespace} cannot be read");
            Err(failed(&what, &error))
        }
    }
}
