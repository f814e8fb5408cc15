//! Scaling workloads down, a batch at a time; [`wake`](super::wake) undoes it.
//!
//! Before a workload is touched, its replicas are recorded in status; every change carries the revision that the
//! replicas were read from. So the recorded replicas are exactly the original ones, also when this is interrupted and
//! resumed.
//!
//! All of it takes one unit of the budget, and every change relies on a decision that is at most [`MAX_FACT_AGE`] old:
//! then manager, namespace, facts and settings are read again. What pauses, holds, suspends or protects stops the rest.

use std::collections::{BTreeMap, BTreeSet};

use coppice_actions::decision::{self, Decision as _, MAX_FACT_AGE, MAX_RESERVATION_AGE};
use coppice_actions::scale::{self, ReservedScaleDown, Workload};
use coppice_api::manager::{Intent, ScaleDown, WorkloadSelector};
use coppice_api::{Reason, ScaledWorkload};
use coppice_kinds::{Manager, Managers};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::record::StepOutcome;
use coppice_lifecycle::settings::Refusal;
use coppice_mutants::{Mutant, active};
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::read;
use coppice_runtime::write::WriteError;

use super::super::observe::Observation;
use super::delete::{self, ManagerDecision};
use super::result::{Interruption, StepResult};
use super::save;
use crate::context::{ControllerContext, ManagerKey};

/// Workloads change concurrently at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;
/// One write of status records this many workloads.
const BATCH: usize = 200;
/// What status can record: with the rest of it, an object of etcd holds 1.5 MiB.
const MAX_WORKLOADS: usize = 4096;
const MAX_STATUS_BYTES: usize = 1 << 20;

/// One attempt at a scale-down.
struct ScaleDownRun<'a> {
    shared: &'a ControllerContext,
    permit: &'a Permit,
    key: &'a ManagerKey,
    decision: ManagerDecision<'a>,
    /// What was decided on last, with the manager as it is now.
    observation: Observation,
    step: ReservedScaleDown,
    what: &'a ScaleDown,
    /// The uids of what is recorded and was not touched yet.
    unchanged: BTreeSet<String>,
    /// By uid, the revisions of workloads whose change was sent and not confirmed.
    unconfirmed: BTreeMap<String, String>,
}

pub(super) async fn scale_down(
    shared: &ControllerContext,
    permit: &Permit,
    key: &ManagerKey,
    intent: &Intent,
    what: &ScaleDown,
) -> Result<StepResult, Interruption> {
    let decision = ManagerDecision { shared, key, intent };
    let observation = decision.reverify(None).await?;
    // Where nothing is to be scaled down, or it cannot be recorded, no budget is spent on it.
    let candidates = match to_scale_down(shared, key, &observation, what).await {
        Ok(candidates) => candidates,
        Err(outcome) => return Ok(StepResult::Completed(outcome, Manager::clone(&observation.manager))),
    };
    let (observation, reservation) = decision::reserve(shared.step(permit), &decision, observation)
        .await
        .map_err(|stopped| delete::interruption(shared, stopped))?;
    let step = ReservedScaleDown::new(reservation, &key.namespace);
    let (unchanged, unconfirmed) = (BTreeSet::new(), BTreeMap::new());
    ScaleDownRun { shared, permit, key, decision, observation, step, what, unchanged, unconfirmed }
        .all(candidates)
        .await
}

impl ScaleDownRun<'_> {
    async fn all(mut self, mut candidates: Vec<Workload>) -> Result<StepResult, Interruption> {
        for _ in 0..MAX_ATTEMPTS {
            for batch in candidates.chunks(BATCH) {
                self.batch(batch).await?;
            }
            candidates = match to_scale_down(self.shared, self.key, &self.observation, self.what).await {
                Ok(candidates) => candidates,
                Err(outcome) => return Ok(self.completed(outcome).await),
            };
        }
        let error = format!("something else scales the selected workloads up again ({MAX_ATTEMPTS} rounds)");
        Ok(self.completed(StepOutcome::failed(error)).await)
    }

    async fn batch(&mut self, batch: &[Workload]) -> Result<(), Interruption> {
        self.reverify_reserved().await?;
        match self.record_replicas(batch).await {
            Ok(()) => {}
            Err(WriteError::Gone) => return Err(StepResult::Gone.into()),
            Err(error @ WriteError::Refused(_)) => return Err(error.into()),
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                return Err(reread(self.shared, self.key).await?.into());
            }
        }
        for workload in batch {
            self.reverify_reserved().await?;
            if self.permit.check().is_err() {
                return Err(StepResult::Wait(None).into());
            }
            match self.step.scale_down(&self.shared.clients, self.permit, workload).await {
                Ok(()) => {
                    self.unchanged.remove(&workload.uid);
                    self.unconfirmed.remove(&workload.uid);
                }
                Err(WriteError::Gone) => {
                    self.unchanged.insert(workload.uid.clone());
                }
                // Changed, perhaps by this very request if something on the way repeated it: the next round sees what
                // there is.
                Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                    self.unchanged.remove(&workload.uid);
                    self.unconfirmed.insert(workload.uid.clone(), workload.resource_version.clone());
                }
                Err(WriteError::Refused(error)) => {
                    let error = format!("{} {}: {error}", workload.kind.kind, workload.name);
                    return Err(self.completed(StepOutcome::failed(error)).await.into());
                }
            }
        }
        Ok(())
    }

    /// Decides again, by what there is now, unless the last decision is young enough.
    async fn reverify_reserved(&mut self) -> Result<(), Interruption> {
        for _ in 0..MAX_ATTEMPTS {
            let young = self.observation.age() <= MAX_FACT_AGE
                && self.step.reservation().age() <= MAX_RESERVATION_AGE;
            if young || active(Mutant::ScaleDecidedOnce) {
                return Ok(());
            }
            self.renew_decision().await?;
        }
        let error = "the API server takes too long to answer what it rests on".to_owned();
        Err(self.completed(StepOutcome::failed(error)).await.into())
    }

    async fn renew_decision(&mut self) -> Result<(), Interruption> {
        if let Err(error) = self.step.renew(&self.shared.clients, self.permit).await {
            return Err(self.completed(StepOutcome::failed(error.to_string())).await.into());
        }
        match self.decision.reverify(Some(self.step.reservation())).await {
            Ok(again) => {
                self.observation = again;
                Ok(())
            }
            Err(Interruption::Ended(StepResult::Replanned(manager, mut plan))) => {
                // The same write that says why the rest stays as it is also forgets what was not touched.
                let unchanged = self.unchanged().await;
                plan.status.steps.scaled_down.retain(|entry| !unchanged.contains(&entry.uid));
                Err(StepResult::Replanned(manager, plan).into())
            }
            // By this attempt's manager: the one of a read that failed comes from a cache, which only counts workloads.
            Err(Interruption::Ended(StepResult::Completed(outcome, _))) => {
                Err(self.completed(outcome).await.into())
            }
            Err(interruption) => Err(interruption),
        }
    }

    /// Writes the replicas of workloads into status, before they are changed.
    async fn record_replicas(&mut self, batch: &[Workload]) -> Result<(), WriteError> {
        let manager = &self.observation.manager;
        let scaled_down = recorded_with(manager, batch);
        // What an earlier attempt has written down it may have touched: its answer may have been lost.
        let known = manager.status.steps.scaled_down.listed().unwrap_or_default();
        let new = batch.iter().filter(|workload| !known.contains(&entry(workload)));
        self.unchanged.extend(new.map(|workload| workload.uid.clone()));
        if scaled_down != known {
            let mut status = (*manager.status).clone();
            status.steps.scaled_down = scaled_down.into();
            let written = save(self.shared, self.permit, manager, &status).await?;
            self.observation.manager = written.into();
        }
        Ok(())
    }

    /// The end of this attempt. The write that records it also removes what is recorded and was not touched.
    async fn completed(&self, outcome: StepOutcome) -> StepResult {
        let unchanged = self.unchanged().await;
        StepResult::ScaleDownEnded(outcome, Manager::clone(&self.observation.manager), unchanged)
    }

    /// The uids of the workloads that this attempt recorded and did not scale down.
    ///
    /// A change that was not confirmed did not happen, and cannot happen any more, if the workload has another revision
    /// than the change carries and is not scaled down. If they cannot be listed, all of them stay recorded; and everything
    /// does if another replica may lead by now and work on what is recorded.
    async fn unchanged(&self) -> BTreeSet<String> {
        let mut unchanged = self.unchanged.clone();
        if !self.unconfirmed.is_empty() {
            let running = select(self.shared, self.key, &self.observation.settings, self.what).await;
            let changed = |workload: &Workload| {
                self.unconfirmed.get(&workload.uid).is_some_and(|sent| *sent != workload.resource_version)
            };
            unchanged
                .extend(running.unwrap_or_default().into_iter().filter(changed).map(|workload| workload.uid));
        }
        if self.permit.check().is_err() { BTreeSet::new() } else { unchanged }
    }
}

/// What is to be scaled down; otherwise the outcome, which is known already.
async fn to_scale_down(
    shared: &ControllerContext,
    key: &ManagerKey,
    observation: &Observation,
    what: &ScaleDown,
) -> Result<Vec<Workload>, StepOutcome> {
    let manager = &observation.manager;
    let candidates = select(shared, key, &observation.settings, what)
        .await
        .map_err(|error| StepOutcome::failed(error.to_string()))?;
    if candidates.is_empty() {
        return Err(StepOutcome::ScaledDown { workloads: manager.status.steps.scaled_down.len() });
    }
    let all = recorded_with(manager, &candidates);
    let bytes = serde_json::to_vec(&all).map_or(usize::MAX, |json| json.len());
    if all.len() > MAX_WORKLOADS || bytes > MAX_STATUS_BYTES {
        shared.lifecycle_metrics.blocked(Reason::TooManyWorkloads.as_str());
        let message = format!(
            "{} workloads are selected or scaled down already, {bytes} bytes in status, which remembers at most \
             {MAX_WORKLOADS} and {MAX_STATUS_BYTES} bytes: select fewer, or use a manager in each of several namespaces",
            all.len()
        );
        return Err(StepOutcome::Refused { reason: Reason::TooManyWorkloads, message });
    }
    Ok(candidates)
}

/// Why it is not known what is selected.
#[derive(Debug, thiserror::Error)]
enum SelectError {
    /// The installation does not scale such a kind.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// A kind could not be listed.
    #[error("{plural} could not be listed: {}", chain(source))]
    List { plural: String, source: kube::Error },
}

/// The selected workloads that are not scaled down, in the order of kind and name.
async fn select(
    shared: &ControllerContext,
    key: &ManagerKey,
    settings: &PlatformSettings,
    what: &ScaleDown,
) -> Result<Vec<Workload>, SelectError> {
    let all = ["Deployment", "StatefulSet"].map(|kind| WorkloadSelector {
        api_version: None,
        kind: kind.to_owned(),
        selector: None,
    });
    let selectors = what.selectors.as_deref().unwrap_or(&all);
    let mut candidates: BTreeMap<(String, String, String), Workload> = BTreeMap::new();
    for selector in selectors {
        let kind = settings.resource(selector).map_err(SelectError::Refused)?;
        let found = scale::list(&shared.clients, &key.namespace, &kind, selector.selector.as_ref())
            .await
            .map_err(|source| SelectError::List { plural: kind.plural.clone(), source })?;
        for workload in found.into_iter().filter(|w| !w.scale.is_scaled_down()) {
            let name = (workload.kind.kind.clone(), workload.name.clone(), workload.uid.clone());
            candidates.entry(name).or_insert(workload);
        }
    }
    Ok(candidates.into_values().collect())
}

fn entry(workload: &Workload) -> ScaledWorkload {
    ScaledWorkload {
        api_version: workload.kind.api_version.clone(),
        kind: workload.kind.kind.clone(),
        name: workload.name.clone(),
        uid: workload.uid.clone(),
        replicas: workload.scale.replicas().map(|n| n + i32::from(active(Mutant::WrongReplicasRecorded))),
    }
}

/// What status records, with these workloads as they are now; sorted.
fn recorded_with(manager: &Manager, workloads: &[Workload]) -> Vec<ScaledWorkload> {
    fn name(entry: &ScaledWorkload) -> (String, String, String) {
        (entry.api_version.clone(), entry.kind.clone(), entry.name.clone())
    }
    let known = manager.status.steps.scaled_down.listed().unwrap_or_default().iter().cloned();
    let all: BTreeMap<_, _> =
        known.chain(workloads.iter().map(entry)).map(|entry| (name(&entry), entry)).collect();
    let mut all: Vec<_> = all.into_values().collect();
    all.sort();
    all
}

async fn reread(shared: &ControllerContext, key: &ManagerKey) -> Result<StepResult, Interruption> {
    let newer = read::get::<Managers>(&shared.clients.reads, &key.namespace, &key.name).await;
    Ok(newer?.map_or(StepResult::Gone, StepResult::Changed))
}
