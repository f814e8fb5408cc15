//! Carries out one step.

use coppice_api::Reason;
use coppice_clusters::managed::plan::{CONFIRM, FORCE};
use coppice_clusters::managed::{self, Failure, LiveFact, Managed, ManagedStep, Shape};
use coppice_clusters_api::ManagedClusterStatus;
use coppice_clusters_api::names::{ANNOTATION_APPLIED, ANNOTATION_CONFIRM_DELETION, ANNOTATION_HASH};
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, Refusal, WriteError};
use jiff::Timestamp;
use serde_json::Value;

use super::observe::{Looked, Memory, ObserveError};
use super::site::{Site, revision_of, throttle};
use super::{ManagedClusterController, observe, report};
use crate::kinds::{ManagedClusterObject, ManagedClusters};

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
    /// As many work on the garden as may.
    Busy,
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

/// Carries out a step.
pub(super) async fn apply(
    controller: &ManagedClusterController,
    permit: &Permit,
    managed: &ManagedClusterObject,
    observed: &Managed,
    memory: &mut Memory,
    step: ManagedStep,
) -> Applied {
    let (clients, work) = (&controller.clients, Work { controller, permit, managed, observed });
    match step {
        ManagedStep::Wait(at) => Applied::CheckAt(at),
        ManagedStep::SaveStatus(status) => work.save(&status).await,
        ManagedStep::Look => match observe::look(controller, observed, memory).await {
            Ok(Looked::Done) => Applied::Again,
            Ok(Looked::Busy) => Applied::Busy,
            Err(error) => Applied::Failed(ApplyError::Observe(error)),
        },
        ManagedStep::AddFinalizer => {
            let added = write::add_finalizer::<ManagedClusters>(clients, permit, managed).await;
            added.map_or_else(Applied::from, |managed| Applied::Changed(Box::new(managed)))
        }
        ManagedStep::RemoveFinalizer => work.end(memory.site.as_ref()).await,
        ManagedStep::Create(object) => {
            let Some(site) = &memory.site else { return Applied::Behind };
            let created = site.create(permit, observed, &object).await;
            work.wrote((site, &mut memory.live), created.map(LiveFact::Made), "create").await
        }
        ManagedStep::Patch(fields) => {
            let (Some(site), LiveFact::Made(live)) = (&memory.site, &memory.live) else {
                return Applied::Behind;
            };
            let Some(revision) = revision_of(live) else { return Applied::Behind };
            let ours = record_of(&fields);
            let changed = site.change(permit, observed, revision, fields).await;
            match changed {
                // It would be written again and again.
                Ok(changed) if ours.iter().any(|(name, value)| annotation(&changed, name) != value) => {
                    work.lost(&ours).await
                }
                changed => work.wrote((site, &mut memory.live), changed.map(LiveFact::Made), "change").await,
            }
        }
        ManagedStep::Delete => {
            let (Some(site), LiveFact::Made(live)) = (&memory.site, &memory.live) else {
                return Applied::Behind;
            };
            let Some(revision) = revision_of(live) else { return Applied::Behind };
            let deleted = site.delete(permit, observed, revision).await;
            work.wrote((site, &mut memory.live), deleted.map(|()| LiveFact::Unread), "delete").await
        }
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a Value {
    &object["metadata"]["annotations"][name]
}

/// What a change records of itself on the object, or confirms by it. What Gardener is asked to do it takes off itself.
fn record_of(fields: &Value) -> Vec<(&'static str, Value)> {
    let ours = [ANNOTATION_HASH, ANNOTATION_APPLIED, ANNOTATION_CONFIRM_DELETION, CONFIRM, FORCE];
    let ours = ours.map(|name| (name, annotation(fields, name).clone()));
    ours.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

impl Work<'_> {
    /// The object is as it was asked for, but for what is recorded on it.
    async fn lost(&self, record: &[(&'static str, Value)]) -> Applied {
        let Managed { object_namespace, name, spec, .. } = self.observed;
        let names: Vec<&str> = record.iter().map(|(name, _)| *name).collect();
        let failure = Failure::waiting(
            Reason::ClusterRefused,
            format!(
                "the {} {object_namespace}/{name} was changed, and does not have all that was written of {}: find out which webhook of its API server \
                 removes that",
                Shape::of(spec).kind(),
                names.join(", ")
            ),
        );
        self.save(&managed::failed(self.observed, &failure, self.controller.now())).await
    }

    async fn save(&self, status: &ManagedClusterStatus) -> Applied {
        let Self { controller, permit, managed, observed } = self;
        match write::status::<ManagedClusters>(&controller.clients, permit, managed, status).await {
            Ok(written) => {
                report::saved(controller, &written, &observed.status);
                // What ClusterAccesses that name it wait for comes into the cache by the watch alone, which wakes them then.
                let (now, before) = (&written.status, &observed.status);
                if (now.state, now.created) == (before.state, before.created) {
                    controller.clusters.update_if_newer(&written.namespace, written.clone());
                }
                Applied::Changed(Box::new(written))
            }
            Err(error) => error.into(),
        }
    }

    /// Its object is gone: so is what was beside it, and then it.
    async fn end(&self, site: Option<&Site>) -> Applied {
        let Self { controller, permit, managed, observed } = self;
        if let Some(site) = site
            && let Err(error) = site.remove_authentication(permit, observed).await
        {
            return match error {
                WriteError::Refused(why) => {
                    let message = format!(
                        "the configuration beside the Shoot {} was not deleted: {why}",
                        observed.name
                    );
                    let failure = self.refused(site, &why, message);
                    self.save(&managed::failed(observed, &failure, controller.now())).await
                }
                error => error.into(),
            };
        }
        match write::remove_finalizer::<ManagedClusters>(&controller.clients, permit, managed).await {
            Ok(_) => {
                report::ended(controller, managed, observed);
                Applied::CheckAt(None)
            }
            Err(error) => error.into(),
        }
    }

    /// That a write was refused. Where its garden has too many requests nothing is asked of that for a while.
    fn refused(&self, site: &Site, refusal: &Refusal, message: String) -> Failure {
        let Some(wait) = site.asks_to_wait_after_write(refusal) else {
            return Failure::waiting(Reason::ClusterRefused, message);
        };
        throttle(self.controller, self.observed, wait);
        Failure::transient(Reason::TargetThrottled, message)
    }

    /// What came of a write of the object that is made: it as it is then, or that it has to be read again.
    async fn wrote(
        &self,
        (site, live): (&Site, &mut LiveFact),
        written: Result<LiveFact, WriteError>,
        what: &str,
    ) -> Applied {
        let Managed { object_namespace, name, spec, .. } = self.observed;
        let object = format!("{} {object_namespace}/{name}", Shape::of(spec).kind());
        let failure = match written {
            Ok(now) => {
                *live = now;
                return Applied::Again;
            }
            Err(WriteError::Conflict | WriteError::Gone) => {
                *live = LiveFact::Unread;
                return Applied::Again;
            }
            Err(WriteError::Refused(why)) => {
                self.refused(site, &why, format!("the {object} was not {what}d: {why}"))
            }
            // The next attempt begins with a look.
            Err(WriteError::Ambiguous(why)) => {
                let message = format!("it is not known whether the {object} was {what}d: {why}");
                Failure::transient(Reason::ClusterRefused, message)
            }
        };
        let status = managed::failed(self.observed, &failure, self.controller.now());
        self.save(&status).await
    }
}
