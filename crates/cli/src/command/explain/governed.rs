//! What a cluster manager does to a namespace, why, and why no other one.

use std::collections::BTreeMap;

use coppice_api::cluster_manager::Mode;
use coppice_api::condition::{self, IDENTIFIED, WITHIN_LIMITS};
use coppice_api::health::FailingObject;
use coppice_api::managed_namespace::{
    ExpiryChange, Extension, FiredPolicy, GoverningManager, RecordHold, Successor,
};
use coppice_api::manager::{Firing, Notice};
use coppice_api::notify::MessageDelivery;
use coppice_api::observed::WouldHaveActed;
use coppice_api::steps::Action;
use coppice_api::{ManagedNamespaceStatus, Reason, ScaledWorkload};
use coppice_lifecycle::TtlEnd;
use coppice_lifecycle::cluster::ClusterAction;
use coppice_lifecycle::cluster::selection::{Criterion, SelectingManager, Selection, selects};
use coppice_lifecycle::cluster::{
    ClusterCondition, TtlSource, ValidClusterManager, ValidClusterPolicy, extension_end, hold_end, ttl_of,
};
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::{self, Share};
use coppice_lifecycle::message;
use coppice_quantity::Duration;
use jiff::Timestamp;
use serde::Serialize;

use super::BlockingCondition;
use super::text::when_pods_succeed;
use crate::command::hold::ahead;
use crate::command::plan::{GovernedItem, PlannedItem};
use crate::facts::ClusterManager;
use crate::lifecycle::LifecycleSnapshot;
use crate::print;
use crate::refused_pods::RefusedPods;

/// A namespace under the cluster managers, explained.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NamespaceExplanation {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<String>,
    /// Whether it has a record.
    pub(super) recorded: bool,
    /// What becomes of it; absent if no cluster manager governs it and it has no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<GovernedItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase_since: Option<Timestamp>,
    /// Who owns it, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// The manager that governs it, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) governing: Option<Governing>,
    /// Every cluster manager, and whether it governs the namespace.
    pub(super) contest: Vec<Contestant>,
    /// Why it is not known who governs it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) contest_unknown: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<RecordHold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extend_until: Option<Extension>,
    /// Until when it is extended, as far as that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extended_until: Option<Timestamp>,
    /// When the hold ends, as far as it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold_ends: Option<Timestamp>,
    /// How the date on which it expires has changed, the latest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) expiry_changes: Vec<ExpiryChange>,
    /// What its users ask for beyond the limits of its manager, and how that counts; absent if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_exceeded: Option<String>,
    /// The namespace that has taken its place, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) superseded_by: Option<Successor>,
    /// Why it is compared with no other, where its manager compares namespaces; absent if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) no_identity: Option<String>,
    /// What keeps policies from acting, whether they are due or not.
    pub(super) stops: Vec<BlockingCondition>,
    /// What is failing, as the operator reports it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failing: Vec<FailingObject>,
    /// What to do about each reason of these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) advice: BTreeMap<String, String>,
    /// Why the pods are refused that some of these lack, by the latest Event of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused_pods: Vec<RefusedPods>,
    /// How many more are failing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failing_more: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) notice: Option<Notice>,
    /// What its owner was, or is to be notified of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notices: Vec<MessageDelivery>,
    pub(super) budget: Budget,
    pub(super) firings: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_firing: Option<Firing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<String>,
    /// The workloads that are scaled down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scaled_down: Vec<ScaledWorkload>,
    /// What policies that observe would have done by now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) would_have_acted: Vec<WouldHaveActed>,
}

/// The cluster manager that governs a namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Governing {
    pub(super) name: String,
    /// Since when its present spec governs the namespace.
    pub(super) since: Timestamp,
    /// What follows is absent if its spec may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl: Option<Duration>,
    /// What that comes from, where the manager names an annotation for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl_source: Option<String>,
    pub(super) policies: Vec<ExplainedPolicy>,
}

/// A policy of a cluster manager, in words.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExplainedPolicy {
    pub(super) name: String,
    pub(super) enforces: bool,
    pub(super) when: String,
    pub(super) then: String,
    /// When it fired, if its condition has been true ever since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fired: Option<Timestamp>,
}

/// A cluster manager, and why it governs a namespace or does not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Contestant {
    pub(super) manager: String,
    pub(super) result: ContestResult,
    pub(super) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum ContestResult {
    /// It governs the namespace.
    Governs,
    /// Another one comes before it.
    Loses,
    /// It does not select the namespace.
    NotSelected,
    /// It is being deleted, or cannot be understood.
    LeftOut,
}

/// The budget of the last hour.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Budget {
    pub(super) hourly_limit: u32,
    pub(super) last_hour: u32,
}

/// Explains a namespace; none if there is no cluster manager and no record. Where cluster managers may not be read, what
/// managers do is explained alone, if there are some.
pub(super) fn explain(
    snapshot: &LifecycleSnapshot,
    namespace: &str,
    at: Timestamp,
) -> Option<NamespaceExplanation> {
    let record = snapshot.governed.records.get(namespace);
    let plan = snapshot.governed_plan(namespace, at);
    let nothing = match &snapshot.governed.managers {
        Ok(managers) => managers.is_empty(),
        Err(_) => !snapshot.managers.is_empty(),
    };
    if record.is_none() && nothing {
        return None;
    }
    let facts = snapshot.namespaces.get(namespace);
    let spec = record.and_then(|record| record.spec.as_ref().ok());
    let (contest, contest_unknown) = contest(snapshot, namespace);
    let status = plan.as_ref().map(|plan| &plan.status);
    let ends = |hold: &RecordHold| {
        status.map_or(hold.until, |status| hold_end(status.limits.as_ref(), status.held.as_ref(), hold))
    };
    let hold = spec.and_then(|spec| spec.hold.as_ref()).filter(|hold| at < ends(hold));
    let settings = &snapshot.settings.config.governor;
    let budget = governor::current_budget(settings, &snapshot.budget, snapshot.managed, at);
    let mut explanation = NamespaceExplanation {
        name: namespace.to_owned(),
        created: facts.map(|facts| facts.created),
        uid: facts.map(|facts| facts.uid.clone()),
        recorded: record.is_some(),
        phase_since: status.and_then(|status| status.phase_since),
        owner: status.and_then(|status| status.owner.clone()),
        governing: status
            .and_then(|s| s.manager.as_ref().map(|manager| governing(snapshot, manager, (facts, &s.fired)))),
        contest,
        contest_unknown,
        hold: hold.cloned(),
        hold_ends: hold.map(ends),
        extended_until: spec
            .and_then(|spec| spec.extend_until.as_ref())
            .map(|extension| extension_end(status.and_then(|status| status.limits.as_ref()), extension)),
        expiry_changes: status.map(|status| status.expiry_changes.clone()).unwrap_or_default(),
        limit_exceeded: status.and_then(|status| message_if_false(status, WITHIN_LIMITS)),
        superseded_by: status.and_then(|status| status.superseded_by.clone()),
        no_identity: status.and_then(|status| message_if_false(status, IDENTIFIED)),
        extend_until: spec.and_then(|spec| spec.extend_until.clone()),
        stops: Vec::new(),
        failing: status.map(|status| status.failing.clone()).unwrap_or_default(),
        refused_pods: Vec::new(),
        failing_more: status.and_then(|status| status.failing_more),
        advice: status.map(|status| advice(snapshot, status)).unwrap_or_default(),
        notice: status.and_then(|status| status.steps.notice.clone()),
        // What the record has: a plan for another instant has messages that nobody sends.
        notices: record.map(|record| record.status.notices.clone()).unwrap_or_default(),
        budget: Budget { hourly_limit: budget.hourly_limit, last_hour: budget.last_hour },
        firings: status.map_or(0, |status| status.steps.firings),
        last_firing: status.and_then(|status| status.steps.last_firing.clone()),
        last_error: status.and_then(|s| s.steps.intent.as_ref()).and_then(|intent| intent.last_error.clone()),
        scaled_down: status
            .and_then(|status| status.steps.scaled_down.listed())
            .map(<[_]>::to_vec)
            .unwrap_or_default(),
        would_have_acted: status.map(|status| status.would_have_acted.clone()).unwrap_or_default(),
        plan: plan.as_ref().map(|plan| PlannedItem::governed(namespace, plan, at)),
    };
    if explanation.governing.is_some() {
        explanation.stops = stops(snapshot, namespace, &explanation, at);
    }
    Some(explanation)
}

/// The message of a condition that is false.
fn message_if_false(status: &ManagedNamespaceStatus, condition: &str) -> Option<String> {
    let known = condition::find(&status.conditions, condition)?;
    (known.status == "False").then(|| known.message.clone())
}

fn governing(
    snapshot: &LifecycleSnapshot,
    recorded: &GoverningManager,
    (namespace, fired): (Option<&NamespaceFacts>, &[FiredPolicy]),
) -> Governing {
    let managers = snapshot.governed.managers.as_ref().map_or(&[][..], Vec::as_slice);
    let manager = managers.iter().find(|manager| manager.name() == recorded.name);
    let spec = manager.and_then(|manager| manager.spec.as_ref().ok());
    let ttl = spec.and_then(|spec| spec.ttl.as_ref());
    let own = ttl.zip(namespace).and_then(|(ttl, namespace)| ttl_of(ttl, namespace).ok());
    let key = ttl.and_then(|ttl| ttl.from_annotation.as_ref());
    let source = key.zip(own.as_ref().and_then(|own| own.source.as_ref()));
    let ttl_source = source.map(|(key, source)| match source {
        TtlSource::Annotation => format!("by its annotation {key}"),
        TtlSource::Manager => format!("it has no annotation {key}"),
        TtlSource::NotUnderstood(why) => format!("its annotation {key} is not understood: {why}"),
    });
    Governing {
        name: recorded.name.clone(),
        since: recorded.since,
        mode: spec.map(|spec| spec.mode),
        settled_at: spec.map(|spec| ahead(recorded.since, spec.settle)),
        ttl: own.map(|own| own.after).or_else(|| ttl.map(|ttl| ttl.after)),
        ttl_source,
        policies: spec
            .into_iter()
            .flat_map(ValidClusterManager::policies)
            .map(|one| policy(one, fired))
            .collect(),
    }
}

/// What to do about what is failing, by reason: in the words of the cluster manager that governs the namespace, if it has some.
fn advice(snapshot: &LifecycleSnapshot, status: &ManagedNamespaceStatus) -> BTreeMap<String, String> {
    let managers = snapshot.governed.managers.as_deref().unwrap_or_default();
    let governing = status.manager.as_ref().map(|manager| manager.name.as_str());
    let manager = managers.iter().find(|manager| governing == Some(manager.name()));
    let health = manager.and_then(|manager| manager.spec.as_ref().ok()?.health.as_ref());
    message::advice(health, &status.failing)
}

fn policy(policy: &ValidClusterPolicy, fired: &[FiredPolicy]) -> ExplainedPolicy {
    let when = match &policy.condition {
        ClusterCondition::Phase { phases, lasting } => {
            let phases: Vec<&str> = phases.iter().map(|phase| phase.as_str()).collect();
            let lasting = if lasting.is_zero() { String::new() } else { format!(" for {lasting}") };
            format!("when the phase is {}{lasting}", phases.join(" or "))
        }
        ClusterCondition::Ttl(TtlEnd::After(after)) => format!("{after} after the namespace was created"),
        ClusterCondition::Ttl(TtlEnd::Until(until)) => format!("at {}", print::instant(*until)),
        ClusterCondition::PodsSucceed(pods) => when_pods_succeed(pods),
    };
    let then = match &policy.action {
        ClusterAction::Delete { notice } if notice.is_zero() => "delete the namespace".to_owned(),
        ClusterAction::Delete { notice } => format!("delete the namespace after a notice of {notice}"),
        ClusterAction::ScaleDown(_) => "scale workloads down".to_owned(),
        ClusterAction::Webhook(webhook) => format!("call {}", webhook.url),
    };
    let fired = fired.iter().find(|one| one.policy == policy.name && one.digest == policy.digest);
    ExplainedPolicy {
        name: policy.name.clone(),
        enforces: policy.enforces,
        when,
        then,
        fired: fired.map(|one| one.at),
    }
}

/// Every cluster manager with its result, the one that governs first; or why nothing is known.
fn contest(snapshot: &LifecycleSnapshot, namespace: &str) -> (Vec<Contestant>, Option<String>) {
    let managers = match &snapshot.governed.managers {
        Ok(managers) => managers,
        Err(why) => return (Vec::new(), Some(why.to_string())),
    };
    let decided = match snapshot.contest(namespace) {
        None => return (Vec::new(), Some("the namespace could not be read".to_owned())),
        Some(Err(unknown)) => return (Vec::new(), Some(unknown.to_string())),
        Some(Ok(decided)) => decided,
    };
    let mut contestants = Vec::with_capacity(managers.len());
    if let Some(winner) = &decided.winner {
        let alone = if decided.losers.is_empty() { "no other one selects it" } else { "it comes first" };
        contestants.push(contestant(winner.name, ContestResult::Governs, alone.to_owned()));
        for (loser, criterion) in &decided.losers {
            let message = lost(winner, loser, *criterion);
            contestants.push(contestant(loser.name, ContestResult::Loses, message));
        }
    }
    for manager in managers {
        if !contestants.iter().any(|known| known.manager == manager.name()) {
            contestants.push(not_selected(snapshot, manager, namespace));
        }
    }
    (contestants, None)
}

fn contestant(manager: &str, result: ContestResult, message: String) -> Contestant {
    Contestant { manager: manager.to_owned(), result, message }
}

fn lost(winner: &SelectingManager<'_>, loser: &SelectingManager<'_>, criterion: Criterion) -> String {
    let name = winner.name;
    match criterion {
        Criterion::Mode => format!("{name} enforces, and this one observes"),
        Criterion::Priority => format!(
            "{name} has the higher priority ({} against {})",
            winner.spec.priority, loser.spec.priority
        ),
        Criterion::Selector => format!("the selector of {name} is more specific"),
        Criterion::Name => format!("they are equal in all else, and the name of {name} comes first"),
    }
}

fn not_selected(snapshot: &LifecycleSnapshot, manager: &ClusterManager, namespace: &str) -> Contestant {
    let name = manager.name();
    let left_out = |why: &str| contestant(name, ContestResult::LeftOut, why.to_owned());
    match (manager.meta.deletion_timestamp.is_some(), &manager.spec, snapshot.namespaces.get(namespace)) {
        (true, ..) => left_out("it is being deleted"),
        (_, Err(why), _) => left_out(&why.to_string()),
        (_, Ok(_), None) => left_out("the namespace could not be read"),
        (_, Ok(spec), Some(facts)) => match selects(spec, facts) {
            Selection::Not(mismatch) => contestant(name, ContestResult::NotSelected, mismatch.to_string()),
            Selection::Selected => left_out("it selects the namespace"),
            Selection::Unknown(not_read) => left_out(&not_read.to_string()),
        },
    }
}

/// Everything that keeps the policies from acting, all of it at once.
fn stops(
    snapshot: &LifecycleSnapshot,
    namespace: &str,
    explanation: &NamespaceExplanation,
    at: Timestamp,
) -> Vec<BlockingCondition> {
    let mut stops = Vec::new();
    let mut add = |reason: Reason, message: String| {
        stops.push(BlockingCondition { reason: reason.to_string(), message });
    };
    let facts = snapshot.namespaces.get(namespace);
    let winner = snapshot.contest(namespace).and_then(Result::ok).and_then(|contest| contest.winner);
    let mut policies = winner.iter().flat_map(|winner| winner.spec.policies());
    let deletes = policies.any(|policy| policy.action.kind() == Action::Delete);
    let action = if deletes { Action::Delete } else { Action::ScaleDown };
    if let Some(refusal) = facts.and_then(|facts| snapshot.settings.forbids(action, facts)) {
        add(refusal.reason, refusal.message);
    }
    if let Some(winner) = winner.filter(|winner| winner.spec.suspend) {
        let why = "is true: nothing is done until it is false";
        add(Reason::Suspended, format!("spec.suspend of ClusterNamespaceManager {} {why}", winner.name));
    }
    if let (Some(hold), Some(ends)) = (&explanation.hold, explanation.hold_ends) {
        let by = hold.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
        let why = hold.reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        add(Reason::Held, format!("a hold{by} lasts until {}{why}", print::instant_from(ends, at)));
    }
    if winner.is_some_and(|winner| !winner.spec.policies().iter().any(|policy| policy.enforces)) {
        add(Reason::Observing, "no policy enforces: nothing is done".to_owned());
    }
    let settled_at = explanation.governing.as_ref().and_then(|governing| governing.settled_at);
    if let Some(settled_at) = settled_at.filter(|settled_at| at < *settled_at) {
        let when = print::instant_from(settled_at, at);
        add(Reason::Settling, format!("its manager, as it is now, has to govern it until {when} (settle)"));
    }
    let settings = &snapshot.settings.config.governor;
    if let Err(denied) = governor::allow(settings, &snapshot.budget, Share::Managers(snapshot.managed), at) {
        let again = |at_: Timestamp| format!("; again at {}", print::instant_from(at_, at));
        let until = denied.retry_at.map_or_else(String::new, again);
        add(denied.reason, format!("{}{until}", denied.message));
    }
    stops
}
