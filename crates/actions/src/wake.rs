//! Wakes workloads: each gets its original replicas back, if it is still the same object and still scaled down.

use coppice_api::ScaledWorkload;
use coppice_api::manager::WorkloadSelector;
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::record::StepOutcome;
use coppice_lifecycle::settings::SpecRefusal;
use coppice_mutants::{Mutant, active};
use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::WriteError;

use crate::scale::{self, WorkloadScale};

/// A workload changes concurrently at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;

/// How waking one workload ended.
pub enum WakeResult {
    /// Its original replicas are restored.
    Done,
    /// There is nothing to restore.
    Skipped(String),
    /// It is scaled down, and only somebody else can change that.
    NeedsUser(String),
}

/// Why one workload could not be woken.
#[derive(Debug, thiserror::Error)]
pub enum WakeWorkloadError {
    /// The installation does not scale its kind at present.
    #[error("{}", .0.message)]
    Kind(SpecRefusal),
    /// It could not be read.
    #[error("{}", chain(.0))]
    Read(#[from] kube::Error),
    /// The API server refused the change.
    #[error("{0}")]
    Refused(WriteError),
    /// Others change it, faster than this.
    #[error("it changed {MAX_ATTEMPTS} times while it was being woken")]
    Races,
}

/// Wakes each of the workloads that an object has recorded; none if another replica may lead by now, and go on.
pub async fn wake(
    clients: &Clients,
    permit: &Permit,
    settings: &PlatformSettings,
    namespace: &str,
    entries: &[ScaledWorkload],
) -> Option<StepOutcome> {
    let (mut workloads, mut skipped) = (0, Vec::new());
    for entry in entries {
        permit.check().ok()?;
        let about = format!("{} {}", entry.kind, entry.name);
        match wake_one(clients, permit, settings, namespace, entry).await {
            Ok(WakeResult::Done) => workloads += 1,
            Ok(WakeResult::Skipped(why)) => skipped.push(format!("{about} ({why})")),
            Ok(WakeResult::NeedsUser(why)) => {
                skipped.push(format!("{about} ({why}; it had {})", before(entry)));
            }
            // It stays recorded until the kind can be scaled again.
            Err(error) => return Some(StepOutcome::failed(format!("{about}: {error}"))),
        }
    }
    Some(StepOutcome::Woken { workloads, skipped })
}

/// Restores the size of one workload; otherwise returns why it was left alone.
///
/// # Errors
/// If it could not be woken.
pub async fn wake_one(
    clients: &Clients,
    permit: &Permit,
    settings: &PlatformSettings,
    namespace: &str,
    entry: &ScaledWorkload,
) -> Result<WakeResult, WakeWorkloadError> {
    let selector = WorkloadSelector {
        api_version: Some(entry.api_version.clone()),
        kind: entry.kind.clone(),
        selector: None,
    };
    let kind = settings.resource(&selector).map_err(WakeWorkloadError::Kind)?;
    let before = before(entry);
    for _ in 0..MAX_ATTEMPTS {
        let Some(workload) = scale::get(clients, namespace, &kind, &entry.name).await? else {
            return Ok(WakeResult::Skipped("it is gone".to_owned()));
        };
        if workload.uid != entry.uid && !active(Mutant::WokenByName) {
            let why = "it was replaced by another of the same name".to_owned();
            // A backup that was taken while it was scaled down looks like this: then only a person knows what is right.
            return Ok(if workload.scale.is_scaled_down() {
                WakeResult::NeedsUser(why)
            } else {
                WakeResult::Skipped(why)
            });
        }
        if workload.scale == before {
            // Done already, by an attempt that was interrupted.
            return Ok(WakeResult::Done);
        }
        if !workload.scale.is_scaled_down() {
            return Ok(WakeResult::Skipped(format!("somebody else has set it to {}", workload.scale)));
        }
        match scale::wake(clients, permit, namespace, &workload, before).await {
            Ok(()) => return Ok(WakeResult::Done),
            Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => {}
            Err(error @ WriteError::Refused(_)) => return Err(WakeWorkloadError::Refused(error)),
        }
    }
    Err(WakeWorkloadError::Races)
}

/// The size that a workload had.
pub fn before(entry: &ScaledWorkload) -> WorkloadScale {
    entry.replicas.map_or(WorkloadScale::Suspended(false), WorkloadScale::Replicas)
}
