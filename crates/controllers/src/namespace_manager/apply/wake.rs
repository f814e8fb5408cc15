//! Waking workloads: each gets the replicas that status remembers, if it is still the same object and still scaled down.

use coppice_api::manager::{Intent, ScaledWorkload, WorkloadSelector};
use coppice_lifecycle::Law;
use coppice_lifecycle::record::Outcome;
use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::{Gate, NotLeader, Permit};
use coppice_runtime::mutants::{Mutant, active};
use coppice_runtime::read;
use coppice_runtime::scale::{self, Size};
use coppice_runtime::write::{self, WriteError};
use futures::StreamExt as _;

use super::Carried;
use crate::shared::{Key, Shared};

/// A workload, or a manager, changes under our hands at most this often before the attempt counts as failed.
const ROUNDS: usize = 5;
/// So many workloads of one manager are woken at once, where everything is woken.
const AT_ONCE: usize = 8;

/// How waking one workload ended.
enum Woke {
    /// It has its size back.
    Done,
    /// There is nothing to give back.
    Alone(String),
    /// It is scaled down, and only somebody else can change that.
    Stuck(String),
    /// The installation does not scale its kind at present.
    Refused(String),
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
    let (law, _) = shared.law();
    let (mut workloads, mut left) = (0, Vec::new());
    for entry in &manager.status.scaled_down {
        if permit.check().is_err() {
            return Ok(Carried::Wait(None));
        }
        match wake_one(&shared.clients, permit, &law, &key.namespace, entry).await {
            Ok(Woke::Done) => workloads += 1,
            Ok(Woke::Alone(why)) => left.push(format!("{} {} ({why})", entry.kind, entry.name)),
            Ok(Woke::Stuck(why)) => {
                left.push(format!("{} {} ({why}; it had {})", entry.kind, entry.name, size(entry)));
            }
            // It stays remembered until the kind can be scaled again.
            Ok(Woke::Refused(error)) | Err(error) => {
                let error = format!("{} {}: {error}", entry.kind, entry.name);
                return Ok(Carried::Ended(Outcome::failed(error), manager));
            }
        }
    }
    Ok(Carried::Ended(Outcome::Woken { workloads, left }, manager))
}

/// Gives one workload its size back; otherwise says why it was left alone.
async fn wake_one(
    clients: &Clients,
    permit: &Permit,
    law: &Law,
    namespace: &str,
    entry: &ScaledWorkload,
) -> Result<Woke, String> {
    let selector = WorkloadSelector {
        api_version: Some(entry.api_version.clone()),
        kind: entry.kind.clone(),
        selector: None,
    };
    let kind = match law.resource(&selector) {
        Ok(kind) => kind,
        Err(refusal) => return Ok(Woke::Refused(refusal.message)),
    };
    let before = size(entry);
    for _ in 0..ROUNDS {
        let found = scale::get(clients, namespace, &kind, &entry.name).await;
        let Some(workload) = found.map_err(|e| chain(&e))? else {
            return Ok(Woke::Alone("it is gone".to_owned()));
        };
        if workload.uid != entry.uid && !active(Mutant::WokenByName) {
            let why = "it was replaced by another of the same name".to_owned();
            // A backup that was taken while it slept looks like this: then only a person knows what is right.
            return Ok(if workload.size.is_asleep() { Woke::Stuck(why) } else { Woke::Alone(why) });
        }
        if workload.size == before {
            // Done already, by an attempt that was interrupted.
            return Ok(Woke::Done);
        }
        if !workload.size.is_asleep() {
            return Ok(Woke::Alone(format!("somebody else has set it to {}", workload.size)));
        }
        match scale::set(clients, permit, namespace, &workload, before).await {
            Ok(()) => return Ok(Woke::Done),
            Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => {}
            Err(WriteError::Refused(error)) => return Err(error),
        }
    }
    Err(format!("it changed {ROUNDS} times while it was being woken"))
}

fn size(entry: &ScaledWorkload) -> Size {
    entry.replicas.map_or(Size::Suspended(false), Size::Replicas)
}

/// What one pass over every manager came to: lines for people.
#[derive(Debug, Default)]
pub struct WakePass {
    /// Workloads that have their replicas back, and are not remembered any more.
    pub woken: Vec<String>,
    /// Workloads that have nothing to get back, and are not remembered any more.
    pub alone: Vec<String>,
    /// What cannot be woken, whoever tries: it stays remembered.
    pub stuck: Vec<String>,
    /// What another attempt may wake: it stays remembered.
    pub failed: Vec<String>,
}

/// Gives every workload that any manager has scaled down its replicas back, and takes it from the manager's status. Whoever calls
/// this holds the lease, so that no replica acts meanwhile; what it did not finish, a further pass does.
pub async fn wake_all(clients: &Clients, gate: &Gate, law: &Law) -> Result<WakePass, WakeError> {
    let mut pass = WakePass::default();
    let mut managers = match read::list::<Manager>(&clients.reads, "").await {
        Ok(Ok(managers)) => managers,
        Ok(Err(unreadable)) => return Err(WakeError::List(unreadable.to_string())),
        // Without the kind there is nothing that remembers anything.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(pass),
        Err(error) => return Err(WakeError::List(chain(&error))),
    };
    managers.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    for manager in managers {
        if let Some(error) = &manager.status_error {
            let what = format!("NamespaceManager {}/{}", manager.namespace, manager.name);
            pass.stuck.push(format!("{what}: {error}; what it has scaled down is not known"));
        } else if !manager.status.scaled_down.is_empty() {
            let permit = gate.permit()?;
            wake_manager(clients, &permit, law, manager, &mut pass).await?;
        }
    }
    Ok(pass)
}

/// Why a pass could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The managers could not be listed.
    #[error("NamespaceManagers could not be listed: {0}")]
    List(String),
    /// The lease is not held any more.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

async fn wake_manager(
    clients: &Clients,
    permit: &Permit,
    law: &Law,
    manager: Manager,
    pass: &mut WakePass,
) -> Result<(), NotLeader> {
    let namespace = manager.namespace.clone();
    let entries = manager.status.scaled_down.clone();
    let place = &*namespace;
    let waking = entries.iter().map(|entry| async move {
        permit.check()?;
        Ok::<_, NotLeader>((entry, wake_one(clients, permit, law, place, entry).await))
    });
    let results: Vec<_> = futures::stream::iter(waking).buffered(AT_ONCE).collect().await;
    let (mut ended, mut woken, mut alone) = (Vec::new(), Vec::new(), Vec::new());
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
            Ok(Woke::Done) => woken.push(line(&size(entry).to_string())),
            Ok(Woke::Alone(why)) => alone.push(line(&why)),
            Ok(Woke::Stuck(why) | Woke::Refused(why)) => {
                pass.stuck.push(line(&format!("{why}; scale it to {} if that is right", size(entry))));
                continue;
            }
            Err(error) => {
                pass.failed.push(line(&error));
                continue;
            }
        }
        ended.push(entry);
    }
    let name = manager.name.clone();
    match forget(clients, permit, manager, &ended).await {
        Ok(()) => {
            pass.woken.append(&mut woken);
            pass.alone.append(&mut alone);
        }
        // What is woken already is found so by the next pass.
        Err(error) => pass.failed.push(format!("status of NamespaceManager {namespace}/{name}: {error}")),
    }
    lost.map_or(Ok(()), Err)
}

/// Takes what is not scaled down any more from a manager's status.
async fn forget(
    clients: &Clients,
    permit: &Permit,
    mut manager: Manager,
    ended: &[&ScaledWorkload],
) -> Result<(), String> {
    for _ in 0..ROUNDS {
        let mut status = (*manager.status).clone();
        status.scaled_down.retain(|entry| !ended.contains(&entry));
        if status == *manager.status {
            return Ok(());
        }
        match write::status(clients, permit, &manager, "NamespaceManager", &status).await {
            Ok(_) | Err(WriteError::Gone) => return Ok(()),
            Err(WriteError::Refused(error)) => return Err(error),
            // Its owner writes spec meanwhile, or the answer was lost.
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                let newer = read::get::<Manager>(&clients.reads, &manager.namespace, &manager.name).await;
                match newer.map_err(|e| chain(&e))? {
                    Some(newer) if newer.uid == manager.uid => manager = newer,
                    _ => return Ok(()),
                }
            }
        }
    }
    Err("it changes all the time".to_owned())
}
