//! Wakes workloads: each gets its original replicas back, if it is still the same object and still scaled down.

use coppice_actions::scale::{self, WorkloadScale};
use coppice_api::ScaledWorkload;
use coppice_api::manager::{Intent, WorkloadSelector};
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::record::StepOutcome;
use coppice_lifecycle::settings::Refusal;
use coppice_mutants::{Mutant, active};
use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use coppice_runtime::leader::{Gate, NotLeader, Permit};
use coppice_runtime::read::{self, ListError};
use coppice_runtime::write::{self, WriteError};
use futures::StreamExt as _;

use super::result::{Interruption, StepResult};
use crate::context::{ControllerContext, ManagerKey};
use crate::status_writer::StepError;

/// A workload, or a manager, changes concurrently at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;
/// This many workloads of one manager are woken at once, where everything is woken.
const CONCURRENCY: usize = 8;

/// How waking one workload ended.
enum WakeResult {
    /// Its original replicas are restored.
    Done,
    /// There is nothing to restore.
    Skipped(String),
    /// It is scaled down, and only somebody else can change that.
    NeedsUser(String),
}

/// Why one workload could not be woken.
#[derive(Debug, thiserror::Error)]
enum WakeWorkloadError {
    /// The installation does not scale its kind at present.
    #[error("{}", .0.message)]
    Kind(Refusal),
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

pub(super) async fn wake(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
) -> Result<StepResult, Interruption> {
    let fresh = read::get::<Managers>(&shared.clients.reads, &key.namespace, &key.name).await;
    let Some(manager) = fresh? else { return Ok(StepResult::Gone) };
    if manager.status.steps.intent.as_ref() != Some(intent) {
        return Ok(StepResult::Changed(manager));
    }
    let (settings, _) = shared.settings();
    let (mut workloads, mut skipped) = (0, Vec::new());
    let Some(entries) = manager.status.steps.scaled_down.listed() else {
        return Err(StepError::OnlyCounted.into());
    };
    for entry in entries {
        if permit.check().is_err() {
            return Ok(StepResult::Wait(None));
        }
        match wake_one(&shared.clients, permit, &settings, &key.namespace, entry).await {
            Ok(WakeResult::Done) => workloads += 1,
            Ok(WakeResult::Skipped(why)) => skipped.push(format!("{} {} ({why})", entry.kind, entry.name)),
            Ok(WakeResult::NeedsUser(why)) => {
                skipped.push(format!("{} {} ({why}; it had {})", entry.kind, entry.name, scale(entry)));
            }
            // It stays recorded until the kind can be scaled again.
            Err(error) => {
                let error = format!("{} {}: {error}", entry.kind, entry.name);
                return Ok(StepResult::Completed(StepOutcome::failed(error), manager));
            }
        }
    }
    Ok(StepResult::Completed(StepOutcome::Woken { workloads, skipped }, manager))
}

/// Restores the size of one workload; otherwise returns why it was left alone.
async fn wake_one(
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
    let before = scale(entry);
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

fn scale(entry: &ScaledWorkload) -> WorkloadScale {
    entry.replicas.map_or(WorkloadScale::Suspended(false), WorkloadScale::Replicas)
}

/// The result of one pass over every manager: lines for people.
#[derive(Debug, Default)]
pub struct WakePass {
    /// Workloads that have their replicas back, and are no longer recorded.
    pub woken: Vec<String>,
    /// Workloads that have nothing to get back, and are no longer recorded.
    pub not_scaled_down: Vec<String>,
    /// What nobody can wake: it stays recorded.
    pub needs_user: Vec<String>,
    /// What another attempt may wake: it stays recorded.
    pub failed: Vec<String>,
}

/// Restores the replicas of every workload that any manager has scaled down, and removes it from the manager's status.
/// The caller holds the lease, so that no replica acts meanwhile; what it did not finish, a further pass does.
pub async fn wake_all(
    clients: &Clients,
    gate: &Gate,
    settings: &PlatformSettings,
) -> Result<WakePass, WakeError> {
    let mut pass = WakePass::default();
    let mut managers = match read::list::<Managers>(&clients.reads, "").await {
        Ok(managers) => managers,
        // Without the kind, no object records anything.
        Err(ListError::Api(kube::Error::Api(status))) if status.code == 404 => return Ok(pass),
        Err(error) => return Err(error.into()),
    };
    managers.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    for manager in managers {
        if let Some(error) = &manager.status_error {
            let what = format!("NamespaceManager {}/{}", manager.namespace, manager.name);
            pass.needs_user.push(format!("{what}: {error}; what it has scaled down is not known"));
        } else if !manager.status.steps.scaled_down.is_empty() {
            let permit = gate.permit()?;
            wake_manager(clients, &permit, settings, manager, &mut pass).await?;
        }
    }
    Ok(pass)
}

/// Why a pass could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The managers could not be listed.
    #[error("NamespaceManagers could not be listed: {0}")]
    List(#[from] ListError),
    /// The lease is not held any more.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

async fn wake_manager(
    clients: &Clients,
    permit: &Permit,
    settings: &PlatformSettings,
    manager: Manager,
    pass: &mut WakePass,
) -> Result<(), NotLeader> {
    let namespace = manager.namespace.clone();
    let entries = manager.status.steps.scaled_down.listed().unwrap_or_default().to_vec();
    let place = &*namespace;
    let waking = entries.iter().map(|entry| async move {
        permit.check()?;
        Ok::<_, NotLeader>((entry, wake_one(clients, permit, settings, place, entry).await))
    });
    let results: Vec<_> = futures::stream::iter(waking).buffered(CONCURRENCY).collect().await;
    let (mut ended, mut woken, mut not_scaled_down) = (Vec::new(), Vec::new(), Vec::new());
    let mut lost = None;
    for result in results {
        let (entry, result) = match result {
            Ok(done) => done,
            Err(error) => {
                lost = Some(error);
                continue;
            }
        };
        let line = |what: &str| format!("{} {namespace}/{}: {what}", entry.kind, entry.name);
        match result {
            Ok(WakeResult::Done) => woken.push(line(&scale(entry).to_string())),
            Ok(WakeResult::Skipped(why)) => not_scaled_down.push(line(&why)),
            Ok(WakeResult::NeedsUser(why)) => {
                pass.needs_user.push(line(&format!("{why}; scale it to {} if that is right", scale(entry))));
                continue;
            }
            Err(WakeWorkloadError::Kind(refusal)) => {
                let why = format!("{}; scale it to {} if that is right", refusal.message, scale(entry));
                pass.needs_user.push(line(&why));
                continue;
            }
            Err(error) => {
                pass.failed.push(line(&error.to_string()));
                continue;
            }
        }
        ended.push(entry);
    }
    let name = manager.name.clone();
    match remove_from_status(clients, permit, manager, &ended).await {
        Ok(()) => {
            pass.woken.append(&mut woken);
            pass.not_scaled_down.append(&mut not_scaled_down);
        }
        // What is woken already is found so by the next pass.
        Err(error) => pass.failed.push(format!("status of NamespaceManager {namespace}/{name}: {error}")),
    }
    lost.map_or(Ok(()), Err)
}

/// Takes what is not scaled down any more from a manager's status.
async fn remove_from_status(
    clients: &Clients,
    permit: &Permit,
    mut manager: Manager,
    ended: &[&ScaledWorkload],
) -> Result<(), StepError> {
    for _ in 0..MAX_ATTEMPTS {
        let mut status = (*manager.status).clone();
        status.steps.scaled_down.retain(|entry| !ended.contains(&entry));
        if status == *manager.status {
            return Ok(());
        }
        match write::status::<Managers>(clients, permit, &manager, &status).await {
            Ok(_) | Err(WriteError::Gone) => return Ok(()),
            Err(error @ WriteError::Refused(_)) => return Err(error.into()),
            // Its owner writes spec meanwhile, or the answer was lost.
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                let newer = read::get::<Managers>(&clients.reads, &manager.namespace, &manager.name).await;
                match newer? {
                    Some(newer) if newer.uid == manager.uid => manager = newer,
                    _ => return Ok(()),
                }
            }
        }
    }
    Err(StepError::Races)
}
