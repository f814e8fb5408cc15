//! Scaling workloads down and waking them again.
//!
//! Before a workload is touched, its replicas stand in status; every change carries the revision that the replicas were
//! read from. So whatever is remembered is exactly what was there, also when this is interrupted and taken up again.

use coppice_api::manager::{Intent, ScaleDown, ScaledWorkload, WorkloadSelector};
use coppice_lifecycle::record::Outcome;
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::scale::{self, Scalable, Size};
use coppice_runtime::write::WriteError;

use super::{Carried, delete, save};
use crate::shared::{Key, Shared};

/// Workloads change under our hands at most this often before the attempt counts as failed.
const ROUNDS: usize = 5;

pub(super) async fn down(
    shared: &Shared,
    permit: &Permit,
    key: &Key,
    intent: &Intent,
    what: &ScaleDown,
) -> Result<Carried, String> {
    let observation = match delete::confirm(shared, key, intent).await? {
        Ok(observation) => observation,
        Err(carried) => return Ok(carried),
    };
    let manager = Manager::clone(&observation.manager);
    // Where nothing is awake there is nothing to book: no budget is spent on it.
    match select(shared, key, &observation.law, what).await {
        Ok(awake) if awake.is_empty() => {
            let workloads = manager.status.scaled_down.len();
            return Ok(Carried::Ended(Outcome::ScaledDown { workloads }, manager));
        }
        Ok(_) => {}
        Err(error) => return Ok(Carried::Ended(Outcome::failed(error), manager)),
    }
    let (observation, _booking) = match delete::booked(shared, permit, key, intent, observation).await? {
        Ok(booked) => booked,
        Err(carried) => return Ok(carried),
    };
    let mut manager = Manager::clone(&observation.manager);
    for _ in 0..ROUNDS {
        let awake = match select(shared, key, &observation.law, what).await {
            Ok(awake) => awake,
            Err(error) => return Ok(Carried::Ended(Outcome::failed(error), manager)),
        };
        if awake.is_empty() {
            let workloads = manager.status.scaled_down.len();
            return Ok(Carried::Ended(Outcome::ScaledDown { workloads }, manager));
        }
        manager = match remember(shared, permit, manager, &awake).await {
            Ok(manager) => manager,
            Err(WriteError::Gone) => return Ok(Carried::Gone),
            Err(WriteError::Refused(error)) => return Err(error),
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => return reread(shared, key).await,
        };
        for workload in &awake {
            if permit.check().is_err() {
                return Ok(Carried::Wait(None));
            }
            match scale::set(&shared.clients, permit, &key.namespace, workload, workload.size.asleep()).await
            {
                // Gone or changed: the next round sees what there is.
                Ok(()) | Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => {}
                Err(WriteError::Refused(error)) => {
                    let error = format!("{} {}: {error}", workload.kind.kind, workload.name);
                    return Ok(Carried::Ended(Outcome::failed(error), manager));
                }
            }
        }
    }
    let error = format!("something else scales the selected workloads up again ({ROUNDS} rounds)");
    Ok(Carried::Ended(Outcome::failed(error), manager))
}

/// The selected workloads that are not asleep, in the order of kind and name.
async fn select(
    shared: &Shared,
    key: &Key,
    law: &coppice_lifecycle::Law,
    what: &ScaleDown,
) -> Result<Vec<Scalable>, String> {
    let all = ["Deployment", "StatefulSet"].map(|kind| WorkloadSelector {
        api_version: None,
        kind: kind.to_owned(),
        selector: None,
    });
    let selectors = what.selectors.as_deref().unwrap_or(&all);
    let mut awake: Vec<Scalable> = Vec::new();
    for selector in selectors {
        let kind = law.resource(selector).map_err(|refusal| refusal.message)?;
        let found = scale::list(&shared.clients, &key.namespace, &kind, selector.selector.as_ref())
            .await
            .map_err(|e| format!("{} could not be listed: {}", kind.plural, chain(&e)))?;
        for workload in found.into_iter().filter(|w| !w.size.is_asleep()) {
            if !awake.iter().any(|known| known.uid == workload.uid) {
                awake.push(workload);
            }
        }
    }
    awake.sort_by(|a, b| (&a.kind.kind, &a.name).cmp(&(&b.kind.kind, &b.name)));
    Ok(awake)
}

/// Writes the sizes of workloads into status, before they are changed.
async fn remember(
    shared: &Shared,
    permit: &Permit,
    manager: Manager,
    awake: &[Scalable],
) -> Result<Manager, WriteError> {
    let mut status = (*manager.status).clone();
    for workload in awake {
        let entry = ScaledWorkload {
            api_version: workload.kind.api_version.clone(),
            kind: workload.kind.kind.clone(),
            name: workload.name.clone(),
            uid: workload.uid.clone(),
            replicas: workload.size.replicas(),
        };
        let same = |e: &ScaledWorkload| {
            (&e.api_version, &e.kind, &e.name) == (&entry.api_version, &entry.kind, &entry.name)
        };
        status.scaled_down.retain(|e| !same(e));
        status.scaled_down.push(entry);
    }
    status.scaled_down.sort();
    if status == *manager.status {
        return Ok(manager);
    }
    save(shared, permit, &manager, &status).await
}

async fn reread(shared: &Shared, key: &Key) -> Result<Carried, String> {
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
