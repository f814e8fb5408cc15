//! Gives every workload its replicas back that any object has scaled down: before Coppice is removed.

use coppice_actions::wake::{self, WakeResult, WakeWorkloadError};
use coppice_api::ScaledWorkload;
use coppice_kinds::{ManagedNamespaces, Managers};
use coppice_lifecycle::PlatformSettings;
use coppice_runtime::client::Clients;
use coppice_runtime::leader::{Gate, NotLeader, Permit};
use coppice_runtime::read::{self, ListError};
use coppice_runtime::write::{self, WriteError};
use futures::StreamExt as _;

use crate::status_writer::{StepError, SteppedKind};

/// An object changes concurrently at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;
/// This many workloads of one object are woken at once.
const CONCURRENCY: usize = 8;

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

/// Restores the replicas of every workload that any object has scaled down, and removes it from that object's status.
/// The caller holds the lease, so that no replica acts meanwhile; what it did not finish, a further pass does.
///
/// # Errors
/// If a kind could not be listed, or the lease is not held any more.
pub async fn wake_all(
    clients: &Clients,
    gate: &Gate,
    settings: &PlatformSettings,
) -> Result<WakePass, WakeError> {
    let mut pass = WakePass::default();
    wake_kind::<Managers>(clients, gate, settings, &mut pass).await?;
    wake_kind::<ManagedNamespaces>(clients, gate, settings, &mut pass).await?;
    Ok(pass)
}

async fn wake_kind<K: SteppedKind>(
    clients: &Clients,
    gate: &Gate,
    settings: &PlatformSettings,
    pass: &mut WakePass,
) -> Result<(), WakeError> {
    let mut objects = match read::list::<K>(&clients.reads, "").await {
        Ok(objects) => objects,
        // Without the kind, no object records anything.
        Err(ListError::Api(kube::Error::Api(status))) if status.code == 404 => return Ok(()),
        Err(source) => return Err(WakeError::List { kind: K::KIND, source }),
    };
    objects.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    for object in objects {
        if let Some(error) = &object.status_error {
            let what = format!("{} {}/{}", K::KIND, object.namespace, object.name);
            pass.needs_user.push(format!("{what}: {error}; what it has scaled down is not known"));
        } else if !K::steps(&object.status).scaled_down.is_empty() {
            let permit = gate.permit()?;
            wake_object::<K>(clients, &permit, settings, object, pass).await?;
        }
    }
    Ok(())
}

/// Why a pass could not be made.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// The objects of a kind could not be listed.
    #[error("{kind}s could not be listed: {source}")]
    List {
        /// The kind.
        kind: &'static str,
        /// Why.
        source: ListError,
    },
    /// The lease is not held any more.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
}

async fn wake_object<K: SteppedKind>(
    clients: &Clients,
    permit: &Permit,
    settings: &PlatformSettings,
    object: K::Object,
    pass: &mut WakePass,
) -> Result<(), NotLeader> {
    let (namespace, name) = (object.namespace.clone(), object.name.clone());
    let entries = K::steps(&object.status).scaled_down.listed().unwrap_or_default().to_vec();
    let place = &*namespace;
    let waking = entries.iter().map(|entry| async move {
        permit.check()?;
        Ok::<_, NotLeader>((entry, wake::wake_one(clients, permit, settings, place, entry).await))
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
            Ok(WakeResult::Done) => woken.push(line(&wake::before(entry).to_string())),
            Ok(WakeResult::Skipped(why)) => not_scaled_down.push(line(&why)),
            Ok(WakeResult::NeedsUser(why)) => {
                pass.needs_user
                    .push(line(&format!("{why}; scale it to {} if that is right", wake::before(entry))));
                continue;
            }
            Err(WakeWorkloadError::Kind(refusal)) => {
                let why =
                    format!("{}; scale it to {} if that is right", refusal.message, wake::before(entry));
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
    match remove_from_status::<K>(clients, permit, object, &ended).await {
        Ok(()) => {
            pass.woken.append(&mut woken);
            pass.not_scaled_down.append(&mut not_scaled_down);
        }
        // What is woken already is found so by the next pass.
        Err(error) => pass.failed.push(format!("status of {} {namespace}/{name}: {error}", K::KIND)),
    }
    lost.map_or(Ok(()), Err)
}

/// Takes what is not scaled down any more from an object's status.
async fn remove_from_status<K: SteppedKind>(
    clients: &Clients,
    permit: &Permit,
    mut object: K::Object,
    ended: &[&ScaledWorkload],
) -> Result<(), StepError> {
    for _ in 0..MAX_ATTEMPTS {
        let mut status = (*object.status).clone();
        let scaled_down = &mut K::steps_mut(&mut status).scaled_down;
        let before = scaled_down.len();
        scaled_down.retain(|entry| !ended.contains(&entry));
        if scaled_down.len() == before {
            return Ok(());
        }
        match write::status::<K>(clients, permit, &object, &status).await {
            Ok(_) | Err(WriteError::Gone) => return Ok(()),
            Err(error @ WriteError::Refused(_)) => return Err(error.into()),
            // Its owner writes spec meanwhile, or the answer was lost.
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                let newer = read::get::<K>(&clients.reads, &object.namespace, &object.name).await;
                match newer? {
                    Some(newer) if newer.uid == object.uid => object = newer,
                    _ => return Ok(()),
                }
            }
        }
    }
    Err(StepError::Races)
}
