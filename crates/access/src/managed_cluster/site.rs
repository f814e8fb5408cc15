//! Where the object of a `ManagedCluster` is made: a `Cluster` in this cluster, a `Shoot` in the garden of its `ClusterProvider`.

use std::time::Duration;

use coppice_api::Reason;
use coppice_clusters::Turn;
use coppice_clusters::managed::{
    Failure, LiveFact, Managed, Shape, made_elsewhere, managed_urgency, project, shoot,
};
use coppice_clusters_api::names::LABEL_MANAGED_CLUSTER;
use coppice_clusters_api::{ClusterState, FailureClass};
use coppice_runtime::client::Clients;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::{self, Refusal, Revision, WriteError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::observe::ObserveError;
use super::{ClusterKey, ManagedClusterController};
use crate::kinds::{CapiClusters, ConfigMaps, Shoots};
use crate::target;
use crate::targets::{Place, ReadError};

/// The API group of a `Cluster`, in whatever versions.
const CAPI_GROUP: &str = "/apis/cluster.x-k8s.io";

/// The API server and the namespace in which the object is.
pub(super) struct Site {
    pub(super) clients: Clients,
    pub(super) namespace: String,
    /// The uid of the Project of Gardener that has this namespace; none of Cluster API.
    pub(super) project: Option<String>,
    pub(super) shape: Shape,
    /// A place among those that work on the garden, as long as this is there.
    #[allow(dead_code, reason = "it is held, and given back with this")]
    place: Option<Place>,
}

/// What is known of a site.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Found {
    /// It is there.
    Site(Site),
    /// Nothing can be made or looked at there: why.
    Refused(Failure),
    /// As many work on the garden as may.
    Busy,
    /// The budget of its provider is used up until then, or the garden has too many requests.
    WaitsForTurn { since: Timestamp, until: Timestamp, is_throttled: bool },
}

/// Finds the site of a `ManagedCluster`, as the user of its provider's kubeconfig.
pub(super) async fn find(
    controller: &ManagedClusterController,
    observed: &Managed,
) -> Result<Found, ObserveError> {
    let Some(template) = &observed.spec.provider.gardener else {
        let (clients, namespace) = (controller.clients.clone(), observed.namespace.clone());
        return Ok(Found::Site(Site {
            clients,
            namespace,
            project: None,
            shape: Shape::Topology,
            place: None,
        }));
    };
    let (providers, targets) = (&controller.providers, &controller.targets);
    let provider = providers.store.get("", &template.cluster_provider);
    let spec = provider.as_ref().and_then(|provider| provider.spec.as_ref().ok()).map(|spec| &**spec);
    let of = (template.cluster_provider.as_str(), spec);
    let project = match project(of, &observed.namespace, observed.deleting) {
        Ok(project) => project.to_owned(),
        Err(failure) => return Ok(Found::Refused(failure)),
    };
    // There is one: it has a project.
    let Some(source) = spec.map(|spec| providers.source(spec)) else { return Ok(Found::Busy) };
    let garden = match targets.of(&controller.clients, &source, observed.deleting).await {
        Ok(garden) => garden,
        Err(ReadError::Unusable(failure)) => return Ok(Found::Refused(of_garden(failure))),
        Err(error @ ReadError::Unknown { .. }) => return Err(ObserveError::Kubeconfig(error)),
    };
    let Some(place) = targets.place(&garden) else { return Ok(Found::Busy) };
    let (key, now) = (ClusterKey::new(&observed.namespace, &observed.name), controller.now());
    let per_minute = spec.map_or(1, |spec| spec.calls_per_minute);
    let turn = providers.budgets.take(of.0, &key, managed_urgency(observed), per_minute, now);
    if let Turn::NotBefore(until) | Turn::Throttled { asks_again: until, .. } = turn {
        let since = providers.budgets.waits_since(of.0, &key).unwrap_or(now);
        let is_throttled = matches!(turn, Turn::Throttled { .. });
        return Ok(Found::WaitsForTurn { since, until, is_throttled });
    }
    let found = garden.project(&project).await;
    let is_silent = found.as_ref().is_err_and(|failure| failure.reason == Reason::TargetUnreachable);
    targets.answered(&garden, !is_silent);
    if let Some(wait) = found.as_ref().err().and_then(|failure| garden.asks_to_wait(failure)) {
        throttle(controller, observed, wait);
    }
    Ok(match found {
        Ok(target::Project { namespace, uid }) => Found::Site(Site {
            clients: garden.clients,
            namespace,
            project: Some(uid),
            shape: Shape::Shoot,
            place: Some(place),
        }),
        Err(failure) => Found::Refused(of_garden(failure)),
    })
}

/// The garden has too many requests, whatever it was asked for: for so long nothing is asked of it, by nobody who uses its provider.
pub(super) fn throttle(controller: &ManagedClusterController, observed: &Managed, wait: Duration) {
    let Some(template) = &observed.spec.provider.gardener else { return };
    let (providers, name) = (&controller.providers, template.cluster_provider.as_str());
    let provider = providers.store.get("", name);
    if let Some(spec) = provider.as_ref().and_then(|provider| provider.spec.as_ref().ok()) {
        controller.targets.throttle(&providers.source(spec), wait);
    }
    providers.budgets.throttle(name, target::wait_ends(controller.now(), wait));
}

/// What a garden, or its kubeconfig, does not do.
fn of_garden(target::Failure { reason, message, .. }: target::Failure) -> Failure {
    let class = if [Reason::TargetUnreachable, Reason::TargetThrottled].contains(&reason) {
        FailureClass::Transient
    } else {
        FailureClass::WaitingForInput
    };
    Failure { reason, class, message }
}

impl Site {
    /// For how long its garden is asked for nothing after this look, if that is that it has too many requests.
    pub(super) fn asks_to_wait(&self, live: &LiveFact) -> Option<Duration> {
        let is_throttled =
            matches!(live, LiveFact::Refused(failure) if failure.reason == Reason::TargetThrottled);
        is_throttled.then(|| target::wait_of(&self.clients))
    }

    /// The same after a write that was refused.
    pub(super) fn asks_to_wait_after_write(&self, refusal: &Refusal) -> Option<Duration> {
        let is_throttled = self.shape == Shape::Shoot && refusal.is_throttled();
        let asked = refusal.retry_after.unwrap_or_default();
        is_throttled.then(|| target::wait_of(&self.clients).max(asked))
    }

    /// Looks at the object.
    pub(super) async fn look(&self, observed: &Managed) -> Result<LiveFact, kube::Error> {
        // Elsewhere there is none of its name, or another one: it is not gone.
        if let Some(failure) = made_elsewhere(&observed.status, &self.namespace, self.project.as_deref()) {
            return Ok(LiveFact::Refused(failure));
        }
        let name = &observed.name;
        let path = match self.shape {
            Shape::Topology => read::path::<CapiClusters>(&self.namespace),
            Shape::Shoot => read::path::<Shoots>(&self.namespace),
        };
        match self.clients.reads.request::<Value>(read::request(&format!("{path}/{name}"))?).await {
            Ok(found) if is_of(&found, observed) => Ok(LiveFact::Made(self.compared(found, observed).await)),
            Ok(_) => Ok(LiveFact::Foreign),
            // Of a kind that is not served the API server names no object.
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let is_served = status.details.as_ref().is_some_and(|details| details.name == *name);
                if is_served { Ok(LiveFact::Absent) } else { self.unserved().await }
            }
            // Of a garden somebody has to be able to do something about it: it is said in status.
            Err(error) if self.shape == Shape::Shoot => {
                let failure = target::Failure::by("the garden", &format!("show the Shoot {name}"), &error);
                Ok(LiveFact::Refused(of_garden(failure)))
            }
            Err(error) => Err(error),
        }
    }

    /// A Shoot as it is with what is beside it. That is read of one that is ready: others have it written. What cannot be read is not known to
    /// be another one.
    async fn compared(&self, mut found: Value, observed: &Managed) -> Value {
        let is_ready = observed.status.state == Some(ClusterState::Ready)
            && observed.status.observed_generation == Some(observed.generation)
            && !observed.deleting;
        if self.shape != Shape::Shoot || !is_ready || shoot::authentication(&observed.spec).is_none() {
            return found;
        }
        let name = shoot::authentication_name(&observed.name);
        if let Ok(beside) = read::get::<ConfigMaps>(&self.clients.reads, &self.namespace, &name).await {
            shoot::compare_authentication(&mut found, &observed.spec, beside.as_ref());
        }
        found
    }

    /// Its kind is not served there in this version. Without any version there is no object of it; with another one nobody knows.
    async fn unserved(&self) -> Result<LiveFact, kube::Error> {
        if self.shape == Shape::Shoot {
            // What was made in a garden is there, even while its API is not.
            return Ok(LiveFact::Refused(Failure::transient(
                Reason::ClusterKindMissing,
                "the API server of the garden does not know the kind Shoot of core.gardener.cloud/v1beta1",
            )));
        }
        let message = "the API server does not know the kind Cluster of cluster.x-k8s.io/v1beta2: install Cluster API 1.11 or later";
        let group = self.clients.reads.request::<Value>(read::request(CAPI_GROUP)?).await;
        let is_gone = matches!(group, Err(kube::Error::Api(status)) if status.code == 404);
        Ok(if is_gone {
            LiveFact::Unserved(message.to_owned())
        } else {
            LiveFact::Refused(Failure::waiting(Reason::ClusterKindMissing, message))
        })
    }

    /// Creates the object; as it is then.
    pub(super) async fn create(
        &self,
        permit: &Permit,
        observed: &Managed,
        object: &Value,
    ) -> Result<Value, WriteError> {
        let (clients, namespace) = (&self.clients, self.namespace.as_str());
        let created = match self.shape {
            Shape::Topology => write::create_object::<CapiClusters>(clients, permit, namespace, object).await,
            Shape::Shoot => {
                self.keep_authentication(permit, observed).await?;
                write::create_object::<Shoots>(clients, permit, namespace, object).await
            }
        };
        created.map_err(|error| self.nowhere(error))
    }

    /// What cannot be created anywhere is not tried again at once.
    fn nowhere(&self, error: WriteError) -> WriteError {
        match error {
            WriteError::Gone => {
                WriteError::refused(format!("there is no namespace {}, or no such kind", self.namespace))
            }
            error => error,
        }
    }

    /// Changes the object, if it is as it was read; as it is then.
    pub(super) async fn change(
        &self,
        permit: &Permit,
        observed: &Managed,
        revision: Revision<'_>,
        fields: Value,
    ) -> Result<Value, WriteError> {
        let (clients, place) = (&self.clients, (self.namespace.as_str(), observed.name.as_str()));
        match self.shape {
            Shape::Topology => write::merge::<CapiClusters>(clients, permit, place, revision, fields).await,
            Shape::Shoot => {
                if !observed.deleting {
                    self.keep_authentication(permit, observed).await?;
                }
                write::merge::<Shoots>(clients, permit, place, revision, fields).await
            }
        }
    }

    /// Deletes the object, if it is as it was read.
    pub(super) async fn delete(
        &self,
        permit: &Permit,
        observed: &Managed,
        revision: Revision<'_>,
    ) -> Result<(), WriteError> {
        let (clients, place) = (&self.clients, (self.namespace.as_str(), observed.name.as_str()));
        match self.shape {
            Shape::Topology => write::delete_object::<CapiClusters>(clients, permit, place, revision).await,
            Shape::Shoot => write::delete_object::<Shoots>(clients, permit, place, revision).await,
        }
    }

    /// Writes the configuration by which the API server of a Shoot knows users: before the Shoot that names it. One that was made for another
    /// ManagedCluster, or by somebody else, stays as it is: who writes it decides who administers a Shoot.
    async fn keep_authentication(&self, permit: &Permit, observed: &Managed) -> Result<(), WriteError> {
        let Some(configuration) = shoot::authentication(&observed.spec) else { return Ok(()) };
        let (clients, name) = (&self.clients, shoot::authentication_name(&observed.name));
        let key = shoot::AUTHENTICATION_KEY;
        let data = json!({key: configuration.to_string()});
        let Some(found) = read::get::<ConfigMaps>(&clients.reads, &self.namespace, &name).await? else {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": self.namespace, "labels": {LABEL_MANAGED_CLUSTER: observed.uid}},
                "data": data,
            });
            let created = write::create_object::<ConfigMaps>(clients, permit, &self.namespace, &object).await;
            return created.map(drop).map_err(|error| self.nowhere(error));
        };
        if !is_of(&found, observed) {
            return Err(WriteError::refused(format!(
                "the ConfigMap {name} was not made for this ManagedCluster: delete that, or hand it over by the label {LABEL_MANAGED_CLUSTER}={}",
                observed.uid
            )));
        }
        if found["data"][key] == data[key] {
            return Ok(());
        }
        let Some(revision) = revision_of(&found) else { return Err(WriteError::Conflict) };
        let place = (self.namespace.as_str(), name.as_str());
        write::merge::<ConfigMaps>(clients, permit, place, revision, json!({"data": data})).await.map(drop)
    }

    /// Deletes that configuration, once its Shoot is gone. A Shoot that has lost its label is left, and needs it.
    pub(super) async fn remove_authentication(
        &self,
        permit: &Permit,
        observed: &Managed,
    ) -> Result<(), WriteError> {
        if self.shape != Shape::Shoot || observed.live != LiveFact::Absent {
            return Ok(());
        }
        let name = shoot::authentication_name(&observed.name);
        let found = match read::get::<ConfigMaps>(&self.clients.reads, &self.namespace, &name).await {
            // Who may not read it has written none.
            Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
            found => found?,
        };
        let ours = found.filter(|found| is_of(found, observed));
        let Some(revision) = ours.as_ref().and_then(revision_of) else { return Ok(()) };
        let place = (self.namespace.as_str(), name.as_str());
        match write::delete_object::<ConfigMaps>(&self.clients, permit, place, revision).await {
            Err(WriteError::Gone) => Ok(()),
            deleted => deleted,
        }
    }
}

/// Whether an object was made for this `ManagedCluster`, or handed over to it.
fn is_of(object: &Value, observed: &Managed) -> bool {
    object["metadata"]["labels"][LABEL_MANAGED_CLUSTER] == *observed.uid
}

/// An object as it was read.
pub(super) fn revision_of(object: &Value) -> Option<Revision<'_>> {
    let text = |field: &str| object["metadata"][field].as_str();
    Some(Revision { uid: text("uid")?, resource_version: Some(text("resourceVersion")?) })
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
