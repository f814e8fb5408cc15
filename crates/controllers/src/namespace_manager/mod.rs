//! Follows every `NamespaceManager`: decides what shall happen to its namespace, and makes it happen once.
//!
//! Watches `NamespaceManagers`, Namespaces, Pods, Jobs and `CoppiceConfig`; a change wakes the managers of its namespace.
//! `observe → plan → apply → report`, repeated while a step leads to the next.
//!
//! *Relies on*: status of `NamespaceManagers` being written by the operator alone (RBAC); the API server honouring uid
//! and resourceVersion preconditions. *Guarantees*: every effect has a durable intent before it; every firing has one
//! effect, or several attempts under one id for a webhook; nothing destructive without fresh facts, budget, and an
//! unprotected namespace.
//!
//! Errors: a lost race is decided afresh at once; a failed step is written into status with its next attempt; anything
//! else is retried with backoff by the queue.

mod apply;
mod observe;
mod plan;
mod report;

pub use apply::wake::{WakeError, WakePass, wake_all};
pub use report::{Listener, count_phases};

use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::mutants::{self, Mutant};
use coppice_runtime::queue::Next;
use tokio::time::Instant;

use crate::shared::{Key, Shared};
use apply::Applied;

/// A chain of steps longer than this is broken up, so that no manager keeps others waiting.
const ROUNDS: usize = 12;

/// Caches that were behind have so long to catch up, and longer each time.
const CATCH_UP: Duration = Duration::from_secs(1);
/// So long after the API server could not be reached, watches that are behind are taken to be catching up.
const RECOVERY: Duration = Duration::from_mins(1);

/// Brings one manager as far as it goes, and says when to look again.
pub async fn reconcile(shared: Arc<Shared>, key: Key) -> Next {
    if !shared.gate.is_leader() {
        // Followers keep their caches warm and leave the rest to the leader, who looks at everything when it begins.
        return Next::Done;
    }
    let Some(mut observation) = observe::cached(&shared, &key) else { return Next::Done };
    if let Some(error) = &observation.manager.status_error {
        // It says what has been done: without it nothing can be decided, and it must not be written over.
        report::status_not_understood(&shared, &observation, error);
        return Next::Done;
    }
    if mutants::active(Mutant::Polling) {
        drop(apply::mutated::namespace(&shared, &key).await);
    }
    if observation.behind() && shared.clients.patience.unanswered_within(RECOVERY) {
        // Nothing can be decided, and to say so in every status, and to take it back a moment later, helps nobody.
        return Next::At(Instant::now() + RECOVERY / 4);
    }
    for _ in 0..ROUNDS {
        let restless = mutants::active(Mutant::Polling) || mutants::active(Mutant::StatusEveryLoop);
        if let Some(rest) = plan::rest(&observation).filter(|_| !restless) {
            return rest.look_at.map_or(Next::Done, |at| Next::At(shared.instant(at)));
        }
        let plan = plan::plan(&observation);
        let (applied, told) = apply::apply(&shared, &observation, plan).await;
        report::report(&shared, &observation, &told);
        match applied {
            Applied::Again(manager) => observation = observe::with(&shared, &key, manager),
            Applied::Look(_) if mutants::active(Mutant::Polling) => {
                return Next::At(Instant::now() + Duration::from_secs(1));
            }
            Applied::Look(None) => return Next::Done,
            Applied::Look(Some(at)) => return Next::At(shared.instant(at)),
            Applied::Behind => return Next::Retry { category: "behind", at_least: CATCH_UP },
            Applied::Failed(error) => {
                tracing::warn!(manager = %key, %error, "reconcile failed");
                return Next::Retry { category: "api", at_least: shared.clients.patience.remaining() };
            }
        }
    }
    Next::At(Instant::now())
}
