//! What will happen to a manager: the operator's own plan, unfolded without doing anything.

use coppice_api::condition::{self, READY};
use coppice_api::manager::NamespaceManagerStatus;
use coppice_lifecycle::plan::{Delivery, MAX_MANAGERS, ManagerFacts, Observed};
use coppice_lifecycle::{Plan, plan};
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;

use super::{LifecycleSnapshot, MAX_PASSES};
use crate::facts::Manager;

/// What will happen.
#[derive(Debug)]
pub(crate) struct ResolvedPlan {
    /// The plan after all that it only records has been recorded.
    pub(crate) plan: Plan,
}

/// Advances the plan of a manager until it acts or no longer changes.
pub(crate) fn resolved_plan(
    cluster_snapshot: &LifecycleSnapshot,
    manager: &Manager,
    now: Timestamp,
) -> ResolvedPlan {
    let mut plan = pass(cluster_snapshot, manager, &manager.status, now);
    let mut before = manager.status.clone();
    for _ in 1..MAX_PASSES {
        if plan.step.is_some() || plan.status == before {
            break;
        }
        before = plan.status;
        plan = pass(cluster_snapshot, manager, &before, now);
    }
    ResolvedPlan { plan }
}

fn pass(
    cluster_snapshot: &LifecycleSnapshot,
    manager: &Manager,
    status: &NamespaceManagerStatus,
    now: Timestamp,
) -> Plan {
    let spec = match (&manager.spec, &manager.status_error) {
        (Err(error), _) | (_, Some(error)) => Err(error),
        (Ok(spec), None) => Ok(spec),
    };
    let name = (manager.namespace().to_owned(), manager.name().to_owned());
    let excess_managers = cluster_snapshot.excess_managers.contains(&name);
    let observed = Observed {
        manager: ManagerFacts {
            namespace: manager.namespace(),
            name: manager.name(),
            uid: manager.meta.uid.as_deref().unwrap_or_default(),
            generation: manager.meta.generation.unwrap_or_default(),
            terminating: manager.meta.deletion_timestamp.is_some(),
            spec,
            status,
        },
        snapshot: cluster_snapshot.of_namespace(manager.namespace()),
        before: if excess_managers { MAX_MANAGERS } else { 0 },
        settings: &cluster_snapshot.settings,
        limits: cluster_snapshot.limits(manager.namespace()),
        budget: &cluster_snapshot.budget,
        managed: cluster_snapshot.managed,
        // The caches that count are the operator's; what is wrong with them, its status says.
        stale: None,
        other: cluster_snapshot.deletion_by_record(manager.namespace(), now),
        webhook: cluster_snapshot.webhook_under_way(manager.namespace(), Some(manager.name())),
        delivery: Delivery::None,
    };
    // The same of its clock.
    plan(&observed, ServerTime::certain(now))
}

impl ResolvedPlan {
    /// Whether it relies on something that could not be known.
    pub(crate) fn is_unknown(&self) -> bool {
        condition::find(&self.plan.status.conditions, READY).is_some_and(|ready| ready.status == "Unknown")
    }
}
