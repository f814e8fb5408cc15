//! Carries out one step.

use coppice_api::Reason;
use coppice_clusters::managed::{self, Failure, LiveFact, Managed, ManagedStep};
use coppice_clusters_api::ManagedClusterStatus;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, Revision, WriteError};
use jiff::Timestamp;

use super::observe::ObserveError;
use super::{ManagedClusterController, observe, report};
use crate::kinds::{CapiClusters, ManagedClusterObject, ManagedClusters};

/// Why the API server did not do a step. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// What it rests on could not be read.
    #[error(transparent)]
    Observe(ObserveError),
    /// It was refused, or the answer was lost.
    #[error(transparent)]
    Write(WriteError),
}

/// What came of a step.
pub(super) enum Applied {
    /// It is done; the `ManagedCluster` is as it was.
    Again,
    /// It is done; this is the `ManagedCluster` now.
    Changed(Box<ManagedClusterObject>),
    /// There is nothing to do until then.
    CheckAt(Option<Timestamp>),
    /// The `ManagedCluster` has changed: read and decide again.
    Behind,
    /// The API server did not do it.
    Failed(ApplyError),
}

impl From<WriteError> for Applied {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict | WriteError::Gone => Self::Behind,
            error => Self::Failed(ApplyError::Write(error)),
        }
    }
}

/// What a step is carried out on.
struct Work<'a> {
    controller: &'a ManagedClusterController,
    permit: &'a Permit,
    managed: &'a ManagedClusterObject,
    observed: &'a Managed,
}

/// Carries out a step. `live` is what is known of the object that is made.
pub(super) async fn apply(
    controller: &ManagedClusterController,
    permit: &Permit,
    managed: &ManagedClusterObject,
    observed: &Managed,
    live: &mut LiveFact,
    step: ManagedStep,
) -> Applied {
    let (clients, work) = (&controller.clients, Work { controller, permit, managed, observed });
    let place = (observed.namespace.as_str(), observed.name.as_str());
    match step {
        ManagedStep::Wait(at) => Applied::CheckAt(at),
        ManagedStep::SaveStatus(status) => work.save(&status).await,
        ManagedStep::Look => match observe::look(controller, observed).await {
            Ok(found) => {
                *live = found;
                Applied::Again
            }
            Err(error) => Applied::Failed(ApplyError::Observe(error)),
        },
        ManagedStep::AddFinalizer => {
            let added = write::add_finalizer::<ManagedClusters>(clients, permit, managed).await;
            added.map_or_else(Applied::from, |managed| Applied::Changed(Box::new(managed)))
        }
        ManagedStep::RemoveFinalizer => {
            match write::remove_finalizer::<ManagedClusters>(clients, permit, managed).await {
                Ok(_) => {
                    report::ended(managed);
                    Applied::CheckAt(None)
                }
                Err(error) => error.into(),
            }
        }
        ManagedStep::Create(object) => {
            let created = write::create_object::<CapiClusters>(clients, permit, place.0, &object).await;
            work.wrote(live, created.map(LiveFact::Made), "create").await
        }
        ManagedStep::Patch(fields) => {
            let Some(revision) = revision_of(live) else { return Applied::Behind };
            let changed = write::merge::<CapiClusters>(clients, permit, place, revision, fields).await;
            work.wrote(live, changed.map(LiveFact::Made), "change").await
        }
        ManagedStep::Delete => {
            let Some(revision) = revision_of(live) else { return Applied::Behind };
            let deleted = write::delete_object::<CapiClusters>(clients, permit, place, revision).await;
            work.wrote(live, deleted.map(|()| LiveFact::Unread), "delete").await
        }
    }
}

/// As it was read.
fn revision_of(live: &LiveFact) -> Option<Revision<'_>> {
    let LiveFact::Made(live) = live else { return None };
    let text = |field: &str| live["metadata"][field].as_str();
    Some(Revision { uid: text("uid")?, resource_version: Some(text("resourceVersion")?) })
}

impl Work<'_> {
    async fn save(&self, status: &ManagedClusterStatus) -> Applied {
        let Self { controller, permit, managed, observed } = self;
        match write::status::<ManagedClusters>(&controller.clients, permit, managed, status).await {
            Ok(written) => {
                report::saved(controller, &written, &observed.status);
                controller.clusters.update_if_newer(&written.namespace, written.clone());
                Applied::Changed(Box::new(written))
            }
            Err(error) => error.into(),
        }
    }

    /// What came of a write of the object that is made: it as it is then, or that it has to be read again.
    async fn wrote(&self, live: &mut LiveFact, written: Result<LiveFact, WriteError>, what: &str) -> Applied {
        match written {
            Ok(now) => *live = now,
            Err(WriteError::Conflict | WriteError::Gone) => *live = LiveFact::Unread,
            Err(WriteError::Refused(why)) => {
                let Managed { namespace, name, .. } = self.observed;
                let message = format!("the Cluster {namespace}/{name} was not {what}d: {why}");
                let failure = Failure::waiting(Reason::ClusterRefused, message);
                let status = managed::failed(self.observed, &failure, self.controller.now());
                return self.save(&status).await;
            }
            Err(error) => return Applied::Failed(ApplyError::Write(error)),
        }
        Applied::Again
    }
}
