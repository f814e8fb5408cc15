//! Giving workloads the replicas back that status remembers.

use coppice_api::manager::{Intent, ScaledWorkload, WorkloadSelector};
use coppice_lifecycle::record::Outcome;
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::scale::{self, Size};
use coppice_runtime::write::WriteError;

use super::Carried;
use crate::shared::{Key, Shared};

/// Workloads change under our hands at most this often before the attempt counts as failed.
const ROUNDS: usize = 5;

pub(super) async fn reread(shared: &Shared, key: &Key) -> Result<Carried, String> {
    let newer = read::get::<Manager>(&shared.clients.reads, &key.namespace, &key.name).await;
    Ok(newer.map_err(|e| chain(&e))?.map_or(Carried::Gone, Carried::Changed))
}

pub(super) async fn wake(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    intent: &Intent,
) -> Result<Carried, String> {
    let fresh = read::get::<Manager>(&shared.clients.reads, &key.namespace, &key.name).await;
    let Some(manager) = fresh.map_err(|e| chain(&e))? else { return Ok(Carried::Gone) };
    if manager.status.intent.as_ref() != Some(intent) {
        return Ok(Carried::Changed(manager));
    }
    let (mut workloads, mut left) = (0, Vec::new());
    for entry in &manager.status.scaled_down {
        if permit.check().is_err() {
            return Ok(Carried::Wait(None));
        }
        match wake_one(shared, permit, key, entry).await {
            Ok(None) => workloads += 1,
            Ok(Some(why)) => left.push(format!("{} {} ({why})", entry.kind, entry.name)),
            Err(error) => {
                let error = format!("{} {}: {error}", entry.kind, entry.name);
                return Ok(Carried::Ended(Outcome::failed(error), manager));
            }
        }
    }
    Ok(Carried::Ended(Outcome::Woken { workloads, left }, manager))
}

/// Gives one workload its size back; otherwise says why it was left alone.
async fn wake_one(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    entry: &ScaledWorkload,
) -> Result<Option<String>, String> {
    let selector = WorkloadSelector {
        api_version: Some(entry.api_version.clone()),
        kind: entry.kind.clone(),
        selector: None,
    };
    let kind = match shared.law().0.resource(&selector) {
        Ok(kind) => kind,
        Err(refusal) => return Ok(Some(refusal.message)),
    };
    let before = entry.replicas.map_or(Size::Suspended(false), Size::Replicas);
    for _ in 0..ROUNDS {
        let found = scale::get(&shared.clients, &key.namespace, &kind, &entry.name).await;
        let Some(workload) = found.map_err(|e| chain(&e))? else { return Ok(Some("it is gone".to_owned())) };
        if workload.uid != entry.uid {
            return Ok(Some("it was replaced by another of the same name".to_owned()));
        }
        if workload.size == before {
            // Done already, by an attempt that was interrupted.
            return Ok(None);
        }
        if !workload.size.is_asleep() {
            return Ok(Some(format!("somebody else has set it to {}", workload.size)));
        }
        match scale::set(&shared.clients, permit, &key.namespace, &workload, before).await {
            Ok(()) => return Ok(None),
            Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => {}
            Err(WriteError::Refused(error)) => return Err(error),
        }
    }
    Err(format!("it changed {ROUNDS} times while it was being woken"))
}
