//! The status of each cluster manager. Pure.

mod lint;

use std::sync::Arc;

use coppice_api::cluster_manager::{DueCounts, NamespaceCounts};
use coppice_api::condition::{
    self, ACCEPTED, APPROVED, BUDGET_SUFFICIENT, CHANNELS_KNOWN, ConditionState, IDENTITIES_KNOWN,
    OWNERS_KNOWN, READY,
};
use coppice_api::notify::Notify;
use coppice_api::{ClusterNamespaceManagerStatus, Reason};
use coppice_kinds::ClusterManager;
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_lifecycle::cluster::approval::ApprovalState;
use coppice_lifecycle::cluster::census::Census;
use coppice_lifecycle::cluster::observed;
use coppice_lifecycle::facts::AnnotationKeys;
use coppice_quantity::count;
use jiff::Timestamp;

use super::observe::Observation;

/// A status to write.
pub(super) struct StatusWrite {
    pub(super) manager: Arc<ClusterManager>,
    pub(super) status: Box<ClusterNamespaceManagerStatus>,
}

/// What to write now, and when time alone changes it.
pub(super) struct StatusPlan {
    pub(super) writes: Vec<StatusWrite>,
    pub(super) next_check: Option<Timestamp>,
}

/// Every status that says something new.
pub(super) fn plan(observation: &Observation) -> StatusPlan {
    let writes = observation.managers.iter().filter_map(|manager| {
        // One that cannot be understood is left to the version that wrote it.
        if manager.status_error.is_some() || manager.terminating {
            return None;
        }
        if waits(observation) && !names_unread(manager, observation) {
            // It was counted with managers that were known: that stays until all of them are again.
            return None;
        }
        let status = status(manager, observation);
        (status != *manager.status)
            .then(|| StatusWrite { manager: Arc::clone(manager), status: Box::new(status) })
    });
    let next_check = observation.census.as_ref().and_then(|census| census.next_check);
    let plan = StatusPlan { writes: writes.collect(), next_check };
    let said = || plan.writes.iter().map(|write| &write.status).collect::<Vec<_>>();
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{:?}", said());
    plan
}

/// Whether nothing is counted only because annotations have not been read.
fn waits(observation: &Observation) -> bool {
    let broken = |manager: &Arc<ClusterManager>| !manager.terminating && manager.spec.is_err();
    observation.census.is_none() && !observation.managers.iter().any(broken)
}

/// Whether a manager names an annotation with which the namespaces have not been listed.
fn names_unread(manager: &ClusterManager, observation: &Observation) -> bool {
    let read = &observation.annotations;
    manager.spec.as_ref().is_ok_and(|spec| !read.contains(&AnnotationKeys::named(spec.annotation_keys())))
}

fn status(manager: &ClusterManager, observation: &Observation) -> ClusterNamespaceManagerStatus {
    let mut status = (*manager.status).clone();
    let seen = status.observed_generation.replace(manager.generation);
    let counts = observation.census.as_ref().and_then(|census| census.managers.get(&*manager.name));
    // Old counts beside a new spec would be read as its own.
    let digest = manager.spec.as_ref().ok().map(|spec| spec.digest());
    let before = status.policy_digest.clone();
    if !waits(observation) || before.as_deref() != digest {
        let counts = counts.cloned().unwrap_or_default();
        // With another spec that decides otherwise, it begins again.
        let before = status.observed.take().filter(|_| before.as_deref() == digest);
        status.observed = match &manager.spec {
            Ok(spec) if observation.census.is_some() => {
                observed::counts(before.as_ref(), spec, &counts.noted, observation.now)
            }
            // Not counted now: it goes on from there.
            Ok(_) | Err(_) => before,
        };
        (status.namespaces, status.enforce) = (counts.namespaces, counts.enforce);
    }
    let mut said = Vec::new();
    match &manager.spec {
        Ok(spec) => {
            status.policy_digest = Some(spec.digest().to_owned());
            said.push((ACCEPTED, state("True", Reason::Accepted, "spec can be understood".to_owned())));
            said.push((READY, ready(&manager.name, &status.namespaces, observation)));
            if let Some(notify) = &spec.notify {
                said.push((CHANNELS_KNOWN, channels(notify, observation)));
            }
            if let Some(census) = &observation.census {
                said.push((APPROVED, approved(spec, &manager.name, census, observation)));
                said.push((BUDGET_SUFFICIENT, budget(spec, &status.enforce, census, observation)));
                let counts = &status.namespaces;
                let all_say = |without: Option<u32>, what: &str, reasons| {
                    said_by_all(without.unwrap_or(0), counts.governed, what, reasons)
                };
                if spec.owner.is_some() {
                    let reasons = (Reason::OwnersKnown, Reason::OwnersMissing);
                    said.push((OWNERS_KNOWN, all_say(counts.without_owner, "who owns them", reasons)));
                }
                if spec.supersede.is_some() {
                    let reasons = (Reason::IdentitiesKnown, Reason::IdentitiesMissing);
                    let state = all_say(counts.without_identity, "what they were made for", reasons);
                    said.push((IDENTITIES_KNOWN, state));
                }
            }
        }
        Err(why) => {
            let message = format!("{why}; nothing is done by any cluster manager until it can be understood");
            let refused = state("False", Reason::InvalidSpec, message);
            said.extend([(ACCEPTED, refused.clone()), (READY, refused)]);
        }
    }
    // What was counted for this spec stays until it is counted again.
    let stays = waits(observation) && before.as_deref() == digest && seen == Some(manager.generation);
    let is_said = |type_: &str| said.iter().any(|(said, _)| *said == type_);
    status.conditions.retain(|condition| stays || is_said(&condition.type_));
    for (type_, state) in said {
        condition::set(&mut status.conditions, type_, state, manager.generation, observation.now);
    }
    status
}

/// Whether the settings have every channel by which owners are to be notified.
fn channels(notify: &Notify, observation: &Observation) -> ConditionState {
    let known = &observation.settings.config.channels;
    let is_known = |name: &str| known.iter().any(|channel| channel.name == name);
    let missing: Vec<_> = notify.channels.iter().map(String::as_str).filter(|name| !is_known(name)).collect();
    if missing.is_empty() {
        let message = "CoppiceConfig/coppice has every channel that spec.notify names".to_owned();
        return state("True", Reason::ChannelsKnown, message);
    }
    let known: Vec<_> = known.iter().map(|channel| channel.name.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let message = format!(
        "CoppiceConfig/coppice has no channel {}; it has {known}. By a channel that there is not nobody is notified",
        missing.join(", ")
    );
    state("False", Reason::ChannelsMissing, message)
}

/// Whether what the spec makes due needs approval, also while it observes: then that is known before it enforces.
fn approved(
    spec: &ValidClusterManager,
    name: &str,
    census: &Census,
    observation: &Observation,
) -> ConditionState {
    let counts = census.managers.get(name);
    let (due, hourly) =
        counts.map_or((0, 0), |counts| (counts.enforce.newly_due, counts.enforce.hourly_budget));
    match ApprovalState::of(spec, counts, hourly, observation.now) {
        ApprovalState::NotNeeded => {
            let message = "it does not make more namespaces due than the hourly budget".to_owned();
            state("True", Reason::ApprovalNotNeeded, message)
        }
        ApprovalState::Given => {
            let message = "spec.approval covers every namespace that it makes due".to_owned();
            state("True", Reason::ApprovalGiven, message)
        }
        ApprovalState::NotCounted => {
            state("Unknown", Reason::NotCounted, "its namespaces are not counted yet".to_owned())
        }
        ApprovalState::Missing(why) => {
            let (were, whom) = if due == 1 { ("was", "it") } else { ("were", "them") };
            let then = match (spec.enforces(), due) {
                (true, _) => format!("nothing is done to {whom}"),
                (false, 1) => "with mode Enforce it would wait".to_owned(),
                (false, _) => "with mode Enforce they would wait".to_owned(),
            };
            let message = format!(
                "{} {were} due before this spec had governed {whom} for settle, more than the hourly budget of \
                 {hourly}, and {why}: {then}. To approve it, set spec.approval to {{digest: {:?}, namespaces: {due}, \
                 validUntil: TIME}}, with the time until which that is meant, such as tomorrow",
                count(due, "namespace"),
                spec.enforcing_digest()
            );
            state("False", Reason::ApprovalNeeded, message)
        }
    }
}

/// Whether the budget is as large as what becomes due as time passes, by this manager and those that enforce.
fn budget(
    spec: &ValidClusterManager,
    enforce: &DueCounts,
    census: &Census,
    observation: &Observation,
) -> ConditionState {
    let counted = spec.enforces() && !spec.suspend;
    let needed = census.per_hour + if counted { 0 } else { enforce.per_hour };
    if needed <= enforce.hourly_budget {
        let message = "the hourly budget is not less than what becomes due in an hour".to_owned();
        return state("True", Reason::BudgetSufficient, message);
    }
    let per_hour = observation.settings.config.governor.per_hour;
    // The budget is the smaller of perHour and of the greater of maxShare and atLeast.
    let mut raise = Vec::new();
    if per_hour < needed {
        raise.push(format!("perHour to {needed} or more"));
    }
    if enforce.hourly_budget < per_hour {
        raise.push(format!("maxShare, or atLeast to {needed} or more"));
    }
    let who =
        if counted { "the cluster managers that enforce" } else { "it, if it enforced, and those that do" };
    let become_due = if needed == 1 { "becomes due" } else { "become due" };
    let message = format!(
        "{} {become_due} in an hour by {who}, and the budget is {}: raise {} in spec.governor of CoppiceConfig/coppice",
        count(needed, "namespace"),
        count(enforce.hourly_budget, "destructive step"),
        raise.join(" and ")
    );
    state("False", Reason::BudgetBelowArrivals, message)
}

/// Whether every governed namespace says something, or so many do not.
fn said_by_all(without: u32, governed: u32, what: &str, (all, some): (Reason, Reason)) -> ConditionState {
    if without == 0 {
        return state("True", all, "every governed namespace says it".to_owned());
    }
    let percent = u64::from(without) * 100 / u64::from(governed.max(1));
    let of = count(governed, "governed namespace");
    let say = if without == 1 { "does not say" } else { "do not say" };
    let message = format!("{without} of {of} ({percent} %) {say} {what}");
    state("False", some, message)
}

fn ready(name: &str, counts: &NamespaceCounts, observation: &Observation) -> ConditionState {
    let broken = observation.managers.iter().find(|manager| !manager.terminating && manager.spec.is_err());
    if let Some(broken) = broken {
        let message = format!(
            "ClusterNamespaceManager {} cannot be understood, so that it is not known which namespaces are its own",
            broken.name
        );
        return state("False", Reason::InvalidSpec, message);
    }
    if waits(observation) {
        let message = "it names an annotation with which the namespaces have not been listed yet: until then it is not known \
                       which of them are its own, or when they expire, and nothing is done to them by it";
        return state("Unknown", Reason::AnnotationsNotRead, message.to_owned());
    }
    let missing = counts.governed.saturating_sub(counts.recorded);
    if missing == 0 {
        let message = "every namespace that it governs has a record that says so".to_owned();
        return state("True", Reason::Reconciled, message);
    }
    let refused = observation.refused.get(name);
    let refused = refused.map(|one| format!(". That of {} could not be written: {}", one.namespace, one.why));
    let message = format!(
        "of {missing} of the {} that it governs the record does not say so yet; nothing is done to {} before it does{}",
        count(counts.governed, "namespace"),
        if missing == 1 { "it" } else { "them" },
        refused.unwrap_or_default()
    );
    state("False", Reason::RecordsPending, message)
}

fn state(status: &'static str, reason: Reason, message: String) -> ConditionState {
    ConditionState { status, reason: reason.to_string(), message }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
