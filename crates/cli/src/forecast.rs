//! What will happen to a manager: the operator's own plan, unfolded without doing anything.

use coppice_api::manager::NamespaceManagerStatus;
use coppice_lifecycle::facts::World;
use coppice_lifecycle::plan::{Delivery, MAX_MANAGERS, ManagerFacts, Observed};
use coppice_lifecycle::time::ServerTime;
use coppice_lifecycle::{Plan, Wishes, plan};
use jiff::Timestamp;

use crate::facts::Manager;
use crate::snapshot::Snapshot;

/// A plan needs a few passes to unfold (a notice or an intent is written first); no plan needs more than this.
const PASSES: usize = 10;

/// What will happen.
#[derive(Debug)]
pub(crate) struct Forecast {
    /// The plan once everything that is only written down has been written down.
    pub(crate) plan: Plan,
}

/// Unfolds the plan of a manager until it stands still or acts.
pub(crate) fn forecast(snapshot: &Snapshot, manager: &Manager, now: Timestamp) -> Forecast {
    let mut plan = pass(snapshot, manager, &manager.status, now);
    let mut before = manager.status.clone();
    for _ in 1..PASSES {
        if plan.effect.is_some() || plan.status == before {
            break;
        }
        before = plan.status;
        plan = pass(snapshot, manager, &before, now);
    }
    Forecast { plan }
}

fn pass(snapshot: &Snapshot, manager: &Manager, status: &NamespaceManagerStatus, now: Timestamp) -> Plan {
    let wishes = manager.spec.clone().map(Wishes::from);
    let spec = match (&wishes, &manager.status_error) {
        (Err(error), _) | (_, Some(error)) => Err(error.as_str()),
        (Ok(wishes), None) => Ok(wishes),
    };
    let name = (manager.namespace().to_owned(), manager.name().to_owned());
    let too_many = snapshot.too_many.contains(&name);
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
        world: world(snapshot, manager.namespace()),
        before: if too_many { MAX_MANAGERS } else { 0 },
        law: &snapshot.law,
        ledger: &snapshot.ledger,
        managed: snapshot.managed,
        // The caches that count are the operator's; what is wrong with them, its status says.
        stale: None,
        delivery: Delivery::None,
    };
    // The same of its clock.
    plan(&observed, ServerTime::agreed(now))
}

/// A namespace and what is in it; none if it could not be read.
pub(crate) fn world<'a>(snapshot: &'a Snapshot, namespace: &str) -> Option<World<'a>> {
    let facts = snapshot.namespaces.get(namespace)?;
    Some(World::new(facts, snapshot.pods.fact(namespace), snapshot.jobs.fact(namespace)))
}

impl Forecast {
    /// Whether it rests on something that could not be known.
    pub(crate) fn is_unknown(&self) -> bool {
        self.plan.status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "Unknown")
    }
}
