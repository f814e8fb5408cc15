//! Creates `CoppiceConfig/coppice` on the very first start and the webhook key, and reports in status what is in force.
//! Writes the breaker that was detected into the ledger, and removes the one that was acknowledged.
//!
//! Watches `CoppiceConfig`; acts on the leader alone. `observe → plan → apply → report`.
//!
//! *Relies on*: the Secret of the webhook key being readable and writable by the operator alone. *Guarantees*: spec is
//! never written, but for creating an object that does not exist; an existing key is never replaced.
//!
//! Errors: retried with backoff by the caller; a key that cannot be understood is shown in the `Ready` condition and stays.

mod apply;
mod observe;
mod plan;
mod report;

use std::fmt;
use std::sync::Arc;

use coppice_api::names::CONFIG_NAME;
use coppice_notify::key::{KeyError, SigningKey};
use coppice_runtime::controller::Controller;
use coppice_runtime::error::chain;
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::watches::{Subscription, Watches};
use coppice_runtime::write::WriteError;

use self::observe::KeyProblem;
use crate::context::ControllerContext;

/// The one `CoppiceConfig` that counts, the only key of its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SettingsKey;

impl fmt::Display for SettingsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CONFIG_NAME)
    }
}

/// The controller of `CoppiceConfig`.
pub struct PlatformConfig {
    shared: Arc<ControllerContext>,
    with_key: Box<dyn Fn(SigningKey) + Send + Sync>,
}

impl PlatformConfig {
    /// The controller, on what all controllers share. `with_key` is called with the key that signs webhooks, again and
    /// again.
    pub fn new(
        shared: Arc<ControllerContext>,
        with_key: impl Fn(SigningKey) + Send + Sync + 'static,
    ) -> Self {
        Self { shared, with_key: Box::new(with_key) }
    }
}

impl Controller for PlatformConfig {
    type Key = SettingsKey;
    const NAME: &'static str = "coppiceconfig";

    /// Enqueued by settings that their status is not about: they were edited, or are gone. Enqueued by a breaker that is detected.
    fn subscribe(self: &Arc<Self>, watches: &Watches, queue: &Queue<SettingsKey>) -> Vec<Subscription> {
        let detected = queue.clone();
        self.shared.known_breaker.on_collapse(move || detected.add(SettingsKey));
        let (shared, queue) = (Arc::clone(&self.shared), queue.clone());
        let enqueue = move |_: &str, _: &str| {
            let config = shared.configs.get("", CONFIG_NAME);
            match &config {
                Some(config) => shared.observe_breaker(config),
                None => shared.show_breaker(),
            }
            if config.is_none_or(|c| c.status.observed_generation != Some(c.generation)) {
                queue.add(SettingsKey);
            }
        };
        vec![watches.subscribe(&self.shared.configs, enqueue)]
    }

    /// It reads what it needs: the settings come first, whatever else cannot be listed.
    fn synced(&self) -> bool {
        true
    }

    fn all(&self) -> Vec<SettingsKey> {
        vec![SettingsKey]
    }

    async fn reconcile(self: Arc<Self>, _: SettingsKey) -> ReconcileResult {
        match reconcile(&self.shared).await {
            Ok(key) => {
                if let Some(key) = key {
                    (self.with_key)(key);
                }
                ReconcileResult::Done
            }
            Err(error) => {
                tracing::warn!(%error, "settings");
                ReconcileResult::Retry {
                    category: "settings",
                    at_least: self.shared.clients.backpressure.remaining(),
                }
            }
        }
    }
}

/// Why the settings or their key could not be brought up to date.
#[derive(Debug, thiserror::Error)]
enum PlatformSettingsError {
    /// The settings cannot be read.
    #[error("CoppiceConfig/{CONFIG_NAME} cannot be read: {}", chain(.0))]
    Read(kube::Error),
    /// Whether there is a key is not known.
    #[error("{0}; webhooks wait unless this replica has read it before")]
    Key(KeyProblem),
    /// A write was refused.
    #[error("CoppiceConfig/{CONFIG_NAME} and its key: {0}")]
    Write(WriteError),
    /// No key could be made.
    #[error(transparent)]
    NewKey(#[from] KeyError),
}

/// Creates the settings and the key, and updates the status. Returns the key that signs webhooks.
async fn reconcile(shared: &Arc<ControllerContext>) -> Result<Option<SigningKey>, PlatformSettingsError> {
    let Ok(permit) = shared.gate.permit() else { return Ok(None) };
    let mut observation = observe::observe(shared).await?;
    // Each step creates or updates one object; the next observation shows a lost race.
    for _ in 0..5 {
        let Some(step) = plan::plan(&observation, &shared.setup, shared.managed(), shared.now()) else {
            break;
        };
        apply::apply(shared, &permit, &observation, step).await?;
        let before = observation;
        observation = observe::observe(shared).await?;
        report::breaker_changed(shared, &before, &observation);
    }
    report::report(shared, &observation);
    match observation.key {
        Some(Err(problem @ KeyProblem::Unreadable { .. })) => Err(PlatformSettingsError::Key(problem)),
        key => Ok(key.and_then(Result::ok)),
    }
}
