//! Creates `CoppiceConfig/coppice` on the very first start and the webhook key, and says in status what is in force.
//!
//! Watches `CoppiceConfig`; runs on the leader alone. `observe → plan → apply → report`.
//!
//! *Relies on*: the Secret of the webhook key being readable and writable by the operator alone. *Guarantees*: spec is
//! never written, but for creating an object that does not exist; an existing key is never replaced.
//!
//! Errors: retried with backoff by the caller; a key that cannot be understood is shown in the `Ready` condition and stays.

mod apply;
mod observe;
mod plan;
mod report;

use std::sync::Arc;

use coppice_notify::key::SigningKey;

use crate::shared::Shared;

/// Brings settings and key into being and their status up to date. Returns the key that signs webhooks.
pub async fn reconcile(shared: &Arc<Shared>) -> Result<Option<SigningKey>, String> {
    let Ok(permit) = shared.gate.permit() else { return Ok(None) };
    let mut observation = observe::observe(shared).await?;
    // Each step creates or updates one object; a lost race shows in the next look.
    for _ in 0..5 {
        let Some(step) = plan::plan(&observation, &shared.setup, shared.managed(), shared.now()) else {
            break;
        };
        apply::apply(shared, &permit, &observation, step).await?;
        observation = observe::observe(shared).await?;
    }
    report::report(shared, &observation);
    Ok(observation.key.and_then(Result::ok))
}
