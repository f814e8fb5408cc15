//! Carrying out a decision to scale down, whatever kind of object it was made for, a batch of workloads at a time.
//!
//! Before a workload is touched, its replicas are recorded in the object's status; every change carries the revision that
//! the replicas were read from. So the recorded replicas are exactly the original ones, also when this is interrupted and
//! resumed.
//!
//! What something else scales up again is scaled down three times, and then left alone.
//!
//! All of it takes one unit of the budget, and every change relies on a decision that is at most [`MAX_FACT_AGE`] old:
//! then everything is read and decided again. What pauses, holds, suspends or protects stops the rest.

use std::collections::{BTreeMap, BTreeSet};

use coppice_api::manager::{ScaleDown, WorkloadSelector};
use coppice_api::{Reason, ScaledDown, ScaledWorkload, Steps};
use coppice_lifecycle::record::StepOutcome;
use coppice_lifecycle::settings::{PlatformSettings, SpecRefusal};
use coppice_mutants::{Mutant, active};
use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::WriteError;

use crate::decision::{
    self, Decision, FreshFacts as _, MAX_FACT_AGE, MAX_RESERVATION_AGE, StepContext, Stopped,
};
use crate::reverted;
use crate::scale::{self, ReservedScaleDown, Workload};

/// Workloads change concurrently at most this often before the attempt counts as failed.
const MAX_ATTEMPTS: usize = 5;
/// One write of status records this many workloads.
const BATCH: usize = 200;
/// What status can record: with the rest of it, an object of etcd holds 1.5 MiB.
const MAX_WORKLOADS: usize = 4096;
const MAX_STATUS_BYTES: usize = 1 << 20;

/// A decision to scale down, made for an object whose status records the replicas.
pub trait ScaleDecision: Decision {
    /// What its status records.
    fn steps(observation: &Self::Observation) -> &Steps;

    /// Writes this list into its status; from then on the observation has the object as it was written.
    ///
    /// # Errors
    /// If it is not known to be written: nothing of it is touched then.
    fn save_scaled_down(
        &self,
        permit: &Permit,
        observation: &mut Self::Observation,
        all: Vec<ScaledWorkload>,
    ) -> impl Future<Output = Result<(), Self::Interruption>> + Send;
}

/// How an attempt at a scale-down ended.
#[derive(Debug)]
pub struct ScaleDownEnd<O> {
    /// Its outcome.
    pub outcome: StepOutcome,
    /// What was decided on last, with the object as it was written last.
    pub observation: O,
    /// The uids of workloads that it recorded and did not scale down: the write that records the outcome removes them.
    pub unchanged: BTreeSet<String>,
}

/// Why an attempt at a scale-down did not come to an end of its own.
pub enum Unfinished<'a, D: ScaleDecision> {
    /// Nothing was recorded or touched.
    Stopped(Stopped<D::Observation, D::Interruption>),
    /// It was decided otherwise, could not be decided again, or could not be recorded, after some of it may have been done.
    Interrupted(D::Interruption, Box<ScaleDownRun<'a, D>>),
    /// Another replica may lead by now, and go on.
    NotLeading,
}

/// One attempt at a scale-down.
pub struct ScaleDownRun<'a, D: ScaleDecision> {
    context: StepContext<'a>,
    decision: &'a D,
    what: &'a ScaleDown,
    namespace: String,
    /// What was decided on last, with the object as it is now.
    observation: D::Observation,
    step: ReservedScaleDown,
    /// The uids of what is recorded and was not touched yet.
    unchanged: BTreeSet<String>,
    /// The uids of what is scaled down.
    done: BTreeSet<String>,
    /// By uid, the revisions of workloads whose change was sent and not confirmed.
    unconfirmed: BTreeMap<String, String>,
}

/// Why the rest of a run is left as it is.
enum End<I> {
    Outcome(StepOutcome),
    Interrupted(I),
    NotLeading,
}

/// Scales down what is selected in the namespace that a decision is about.
///
/// # Errors
/// Why it did not come to an end of its own.
pub async fn scale_down<'a, D: ScaleDecision>(
    context: StepContext<'a>,
    decision: &'a D,
    what: &'a ScaleDown,
) -> Result<ScaleDownEnd<D::Observation>, Unfinished<'a, D>> {
    let verified = decision.reverify(None).await;
    let observation = verified.map_err(|why| Unfinished::Stopped(Stopped::Interrupted(why)))?;
    let Some(namespace) = observation.namespace().map(|namespace| namespace.name.clone()) else {
        return Err(Unfinished::Stopped(Stopped::NoNamespace));
    };
    // Where nothing is to be scaled down, or it cannot be recorded, no budget is spent on it.
    let done = BTreeSet::new();
    let found = to_scale_down::<D>(context.clients, &namespace, &observation, what, &done).await;
    let candidates = match found {
        Ok(candidates) => candidates,
        Err(outcome) => return Ok(ScaleDownEnd { outcome, observation, unchanged: BTreeSet::new() }),
    };
    let (observation, reservation) =
        decision::reserve(context, decision, observation).await.map_err(Unfinished::Stopped)?;
    let step = ReservedScaleDown::new(reservation, &namespace);
    let (unchanged, unconfirmed) = (BTreeSet::new(), BTreeMap::new());
    let mut run =
        ScaleDownRun { context, decision, what, namespace, observation, step, unchanged, done, unconfirmed };
    match run.all(candidates).await {
        End::Outcome(outcome) => Ok(run.ended(outcome).await),
        End::Interrupted(why) => Err(Unfinished::Interrupted(why, Box::new(run))),
        End::NotLeading => Err(Unfinished::NotLeading),
    }
}

impl<D: ScaleDecision> ScaleDownRun<'_, D> {
    async fn all(&mut self, mut candidates: Vec<ScaleDownCandidate>) -> End<D::Interruption> {
        for _ in 0..MAX_ATTEMPTS {
            for batch in candidates.chunks(BATCH) {
                if let Err(end) = self.batch(batch).await {
                    return end;
                }
            }
            let Self { context, namespace, observation, what, done, .. } = &*self;
            candidates = match to_scale_down::<D>(context.clients, namespace, observation, what, done).await {
                Ok(candidates) => candidates,
                Err(outcome) => return End::Outcome(outcome),
            };
        }
        let error = format!("something else scales the selected workloads up again ({MAX_ATTEMPTS} rounds)");
        End::Outcome(StepOutcome::failed(error))
    }

    async fn batch(&mut self, batch: &[ScaleDownCandidate]) -> Result<(), End<D::Interruption>> {
        self.reverify_reserved().await?;
        self.record_replicas(batch).await.map_err(End::Interrupted)?;
        let StepContext { clients, permit, .. } = self.context;
        for ScaleDownCandidate { workload, .. } in batch {
            self.reverify_reserved().await?;
            if permit.check().is_err() {
                return Err(End::NotLeading);
            }
            match self.step.scale_down(clients, permit, workload).await {
                Ok(()) => {
                    self.unchanged.remove(&workload.uid);
                    self.unconfirmed.remove(&workload.uid);
                    self.done.insert(workload.uid.clone());
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
                    return Err(End::Outcome(StepOutcome::failed(error)));
                }
            }
        }
        Ok(())
    }

    /// Decides again, by what there is now, unless the last decision is young enough.
    async fn reverify_reserved(&mut self) -> Result<(), End<D::Interruption>> {
        for _ in 0..MAX_ATTEMPTS {
            let young = self.observation.age() <= MAX_FACT_AGE
                && self.step.reservation().age() <= MAX_RESERVATION_AGE;
            if young || active(Mutant::ScaleDecidedOnce) {
                return Ok(());
            }
            let StepContext { clients, permit, .. } = self.context;
            if let Err(error) = self.step.renew(clients, permit).await {
                return Err(End::Outcome(StepOutcome::failed(error.to_string())));
            }
            let again = self.decision.reverify(Some(self.step.reservation())).await;
            self.observation = again.map_err(End::Interrupted)?;
        }
        let error = "the API server takes too long to answer what it rests on".to_owned();
        Err(End::Outcome(StepOutcome::failed(error)))
    }

    /// Writes the replicas of workloads into status, before they are changed.
    async fn record_replicas(&mut self, batch: &[ScaleDownCandidate]) -> Result<(), D::Interruption> {
        let recorded = &D::steps(&self.observation).scaled_down;
        let all = recorded_with(recorded, batch);
        // What an earlier attempt has written down it may have touched: its answer may have been lost.
        let known = recorded.listed().unwrap_or_default();
        let new = batch.iter().filter(|candidate| !known.contains(&candidate.entry));
        self.unchanged.extend(new.map(|candidate| candidate.workload.uid.clone()));
        for ScaleDownCandidate { workload, .. } in batch {
            // Something has scaled it up again.
            self.done.remove(&workload.uid);
        }
        if all == known {
            return Ok(());
        }
        self.decision.save_scaled_down(self.context.permit, &mut self.observation, all).await
    }

    /// The end of this attempt.
    pub async fn ended(self, outcome: StepOutcome) -> ScaleDownEnd<D::Observation> {
        let unchanged = self.unchanged().await;
        ScaleDownEnd { outcome, observation: self.observation, unchanged }
    }

    /// The uids of the workloads that this attempt recorded and did not scale down.
    ///
    /// A change that was not confirmed did not happen, and cannot happen any more, if the workload has another revision
    /// than the change carries and is not scaled down. If they cannot be listed, all of them stay recorded; and everything
    /// does if another replica may lead by now and work on what is recorded.
    pub async fn unchanged(&self) -> BTreeSet<String> {
        let StepContext { clients, permit, .. } = self.context;
        let mut unchanged = self.unchanged.clone();
        if !self.unconfirmed.is_empty() {
            let running = select(clients, &self.namespace, self.observation.settings(), self.what).await;
            let changed = |workload: &Workload| {
                self.unconfirmed.get(&workload.uid).is_some_and(|sent| *sent != workload.resource_version)
            };
            unchanged
                .extend(running.unwrap_or_default().into_iter().filter(changed).map(|workload| workload.uid));
        }
        if permit.check().is_err() { BTreeSet::new() } else { unchanged }
    }
}

/// A workload that is to be scaled down, and what status is to record of it.
pub(crate) struct ScaleDownCandidate {
    pub(crate) workload: Workload,
    pub(crate) entry: ScaledWorkload,
}

/// What is to be scaled down; otherwise the outcome, which is known already. `done` are the uids of what is scaled down already.
async fn to_scale_down<D: ScaleDecision>(
    clients: &Clients,
    namespace: &str,
    observation: &D::Observation,
    what: &ScaleDown,
    done: &BTreeSet<String>,
) -> Result<Vec<ScaleDownCandidate>, StepOutcome> {
    let running = select(clients, namespace, observation.settings(), what)
        .await
        .map_err(|error| StepOutcome::failed(error.to_string()))?;
    let steps = D::steps(observation);
    if running.is_empty() {
        return Err(StepOutcome::ScaledDown { workloads: steps.scaled_down.len() });
    }
    let candidates: Vec<_> = running
        .into_iter()
        .map(|workload| ScaleDownCandidate { entry: reverted::entry(&workload, steps, done), workload })
        .collect();
    if let Some(reverted) = reverted::outcome(clients, namespace, &candidates).await {
        return Err(reverted);
    }
    let all = recorded_with(&steps.scaled_down, &candidates);
    let bytes = serde_json::to_vec(&all).map_or(usize::MAX, |json| json.len());
    if all.len() > MAX_WORKLOADS || bytes > MAX_STATUS_BYTES {
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
    Refused(SpecRefusal),
    /// A kind could not be listed.
    #[error("{plural} could not be listed: {}", chain(source))]
    List { plural: String, source: kube::Error },
}

/// The selected workloads that are not scaled down, in the order of kind and name.
async fn select(
    clients: &Clients,
    namespace: &str,
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
        let found = scale::list(clients, namespace, &kind, selector.selector.as_ref())
            .await
            .map_err(|source| SelectError::List { plural: kind.plural.clone(), source })?;
        for workload in found.into_iter().filter(|w| !w.scale.is_scaled_down()) {
            let name = (workload.kind.kind.clone(), workload.name.clone(), workload.uid.clone());
            candidates.entry(name).or_insert(workload);
        }
    }
    Ok(candidates.into_values().collect())
}

/// What status records, with these workloads as they are now; sorted.
fn recorded_with<'a>(
    recorded: &ScaledDown,
    candidates: impl IntoIterator<Item = &'a ScaleDownCandidate>,
) -> Vec<ScaledWorkload> {
    fn name(entry: &ScaledWorkload) -> (String, String, String) {
        (entry.api_version.clone(), entry.kind.clone(), entry.name.clone())
    }
    let known = recorded.listed().unwrap_or_default().iter().cloned();
    let new = candidates.into_iter().map(|candidate| candidate.entry.clone());
    let all: BTreeMap<_, _> = known.chain(new).map(|entry| (name(&entry), entry)).collect();
    let mut all: Vec<_> = all.into_values().collect();
    all.sort();
    all
}

#[cfg(test)]
#[path = "scale_down_tests.rs"]
mod tests;
