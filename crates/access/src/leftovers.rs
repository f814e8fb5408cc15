//! Deletes the Secrets that were written for a `ClusterAccess` which is gone, as after somebody has removed its finalizer.
//!
//! Watches `ClusterAccess`, and the metadata of Secrets with our label; acts on the leader alone, at its start and with each periodic
//! resync. What is left in targets is that of `target_leftovers.rs`.
//!
//! *Relies on*: the policy of the installation that keeps this account from Secrets that are not its own. *Guarantees*: a Secret is deleted
//! only as it was read, with the id of a credential of that `ClusterAccess` and that of this installation, and while neither the cache nor the
//! API server has that. One that was copied from another cluster, or that an earlier version wrote, stays, is counted, and is
//! reported once.
//!
//! Errors: tried again with backoff by the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coppice_clusters::{Obstacle, OutputFact, OutputSecret};
use coppice_clusters_api::names::KUBECONFIG;
use coppice_runtime::client::Clients;
use coppice_runtime::controller::Controller;
use coppice_runtime::error::chain;
use coppice_runtime::leader::{Gate, Permit};
use coppice_runtime::queue::{Queue, ReconcileResult};
use coppice_runtime::read::{self, ListError};
use coppice_runtime::store::{Freshness, Store};
use coppice_runtime::watches::{Subscription, Watches};
use coppice_runtime::write::{self, Revision, WriteError};

use crate::installation::Installation;
use crate::kinds::{Access, ClusterAccesses, OutputMeta, OutputSecrets};
use crate::metrics::AccessMetrics;
use crate::output::{Secret, fact, read_secret};
use crate::shared::Shared;

/// The controller of Secrets whose `ClusterAccess` is gone.
pub struct LeftoverController {
    clients: Clients,
    gate: Gate,
    metrics: AccessMetrics,
    accesses: Store<ClusterAccesses>,
    outputs: Store<OutputSecrets>,
    installation: Installation,
    /// Those that another installation wrote, at which revision.
    foreign: Mutex<BTreeMap<OutputKey, Box<str>>>,
}

/// Why a Secret was not deleted, or it is not known whether it is left.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    /// The API server did not say which accesses there are.
    #[error(transparent)]
    List(#[from] ListError),
    /// The API server refused to read the Secret or which installation this is, or did not answer.
    #[error("{}", chain(.0))]
    Get(#[from] kube::Error),
    /// It did not delete it.
    #[error(transparent)]
    Delete(WriteError),
}

/// Namespace and name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutputKey {
    namespace: Arc<str>,
    name: Arc<str>,
}

impl fmt::Display for OutputKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl LeftoverController {
    /// The controller, on the API server of this cluster and on what it shares with the others.
    pub fn new(clients: Clients, gate: Gate, metrics: AccessMetrics, shared: &Shared) -> Self {
        let Shared { accesses, outputs, installation, .. } = shared.clone();
        Self { clients, gate, metrics, accesses, outputs, installation, foreign: Mutex::default() }
    }

    /// Deletes a Secret if its access is gone.
    async fn sweep(&self, permit: &Permit, key: &OutputKey) -> Result<(), SweepError> {
        let OutputKey { namespace, name } = key;
        let Some(output) = self.outputs.get(namespace, name).filter(|output| is_of_access(output)) else {
            return Ok(());
        };
        if self.foreign().get(key) == Some(&output.resource_version) {
            return Ok(());
        }
        let is_owner = |access: &Access| *access.uid == *output.access;
        // A list may lack what is there: both have to say so.
        if self.accesses.list(namespace).iter().any(|access| is_owner(access)) {
            return Ok(());
        }
        let listed = read::list::<ClusterAccesses>(&self.clients.reads, namespace).await?;
        if listed.iter().any(is_owner) {
            return Ok(());
        }
        let secret = read_secret(&self.clients, namespace, name).await?;
        let written_by = secret.as_ref().and_then(Secret::installation).map(str::to_owned);
        let (OutputFact::Ours(found), _) = fact(secret, &output.access, "") else { return Ok(()) };
        if !was_written_for(&found, &output.access) {
            return Ok(());
        }
        let installation = self.installation.id(&self.clients).await?;
        if installation.is_empty() || written_by.as_deref() != Some(&*installation) {
            self.foreign().insert(key.clone(), output.resource_version.clone());
            tracing::warn!(
                secret = %key, access = &*output.access,
                "it holds a credential of a ClusterAccess that this cluster does not have, and was not written in this cluster by this version: it \
                 stays; delete it if nobody needs it"
            );
            return Ok(());
        }
        let OutputSecret { revision, .. } = found;
        let on = Revision { uid: &revision.uid, resource_version: Some(&revision.resource_version) };
        match write::delete_object::<OutputSecrets>(&self.clients, permit, (&**namespace, &**name), on).await
        {
            Ok(()) => {
                tracing::warn!(secret = %key, access = &*output.access, "its ClusterAccess is gone without its end: it is deleted");
                Ok(())
            }
            // It has changed, and is looked at again with the next resync.
            Err(WriteError::Conflict | WriteError::Gone) => Ok(()),
            Err(error) => Err(SweepError::Delete(error)),
        }
    }

    /// How many are there as another installation wrote them, and whose access is not here.
    fn count_foreign(&self) -> usize {
        let is_there = |key: &OutputKey, revision: &str| {
            let output = self.outputs.get(&key.namespace, &key.name);
            output.is_some_and(|output| {
                let accesses = self.accesses.list(&key.namespace);
                *output.resource_version == *revision
                    && accesses.iter().all(|access| *access.uid != *output.access)
            })
        };
        self.foreign().iter().filter(|(key, revision)| is_there(key, revision)).count()
    }

    fn foreign(&self) -> MutexGuard<'_, BTreeMap<OutputKey, Box<str>>> {
        // A panic leaves valid data: at worst one is reported again.
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether its label says that it was written for an access, and not that it is the kubeconfig of a target.
fn is_of_access(output: &OutputMeta) -> bool {
    *output.access != *KUBECONFIG
}

/// Others may put our label on theirs: ours have the id of a credential, and our type.
fn was_written_for(found: &OutputSecret, access: &str) -> bool {
    let number = found.credential.as_ref().and_then(|credential| credential.strip_prefix(access));
    number.is_some_and(|number| number.starts_with('-')) && found.obstacle != Some(Obstacle::OtherType)
}

impl Controller for LeftoverController {
    type Key = OutputKey;
    const NAME: &'static str = "leftovers";

    /// Woken by nothing: what is left is found with the next resync.
    fn subscribe(self: &Arc<Self>, watches: &Watches, _: &Queue<OutputKey>) -> Vec<Subscription> {
        vec![watches.subscribe(&self.accesses, |_, _| {}), watches.subscribe(&self.outputs, |_, _| {})]
    }

    fn synced(&self) -> bool {
        let synced = |freshness| !matches!(freshness, Freshness::NotSynced(_));
        synced(self.accesses.freshness()) && synced(self.outputs.freshness())
    }

    /// Those alone whose access the cache does not have.
    fn all(&self) -> Vec<OutputKey> {
        self.foreign().retain(|key, _| self.outputs.get(&key.namespace, &key.name).is_some());
        let mut living: BTreeSet<Box<str>> = BTreeSet::new();
        self.accesses.for_each(|access| {
            living.insert(access.uid.clone());
        });
        let is_left = |(namespace, name): &(Box<str>, Box<str>)| {
            let output = self.outputs.get(namespace, name);
            output.is_some_and(|output| is_of_access(&output) && !living.contains(&output.access))
        };
        let left = self.outputs.keys().into_iter().filter(is_left);
        left.map(|(namespace, name)| OutputKey { namespace: namespace.into(), name: name.into() }).collect()
    }

    fn resync(&self) {
        let leads = self.gate.permit().is_ok();
        self.metrics.set_foreign_secrets(if leads { self.count_foreign() } else { 0 });
    }

    async fn reconcile(self: Arc<Self>, key: OutputKey) -> ReconcileResult {
        let Ok(permit) = self.gate.permit() else { return ReconcileResult::Done };
        match self.sweep(&permit, &key).await {
            Ok(()) => ReconcileResult::Done,
            Err(error) => {
                tracing::warn!(secret = %key, %error, "what may be left is not deleted; it is tried again");
                ReconcileResult::Retry { category: "api", at_least: self.clients.backpressure.remaining() }
            }
        }
    }
}

#[cfg(test)]
#[path = "leftovers_tests.rs"]
mod tests;
