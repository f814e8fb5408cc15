//! Scaling workloads down, a batch at a time; [`wake`](super::wake) undoes it.
//!
//! Before a workload is touched, its replicas stand in status; every change carries the revision that the replicas were
//! read from. So whatever is remembered is exactly what was there, also when this is interrupted and resumed.
//!
//! All of it takes one unit of the budget, and every change rests on a decision that is at most [`OLDEST`] old: then
//! manager, namespace, facts and settings are read again. What pauses, holds, suspends or protects stops the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow::{self, Break, Continue};

use coppice_api::Reason;
use coppice_api::manager::{Intent, ScaleDown, ScaledWorkload, WorkloadSelector};
use coppice_lifecycle::Law;
use coppice_lifecycle::record::Outcome;
use coppice_runtime::error::chain;
use coppice_runtime::governor::Booking;
use coppice_runtime::kinds::Manager;
use coppice_runtime::leader::Permit;
use coppice_runtime::mutants::{Mutant, active};
use coppice_runtime::read;
use coppice_runtime::scale::{self, Scalable};
use coppice_runtime::write::WriteError;

use super::super::observe::Observation;
use super::delete::{self, BOOKED, OLDEST};
use super::{Carried, save};
use crate::shared::{Key, Shared};

/// Workloads change under our hands at most this often before the attempt counts as failed.
const ROUNDS: usize = 5;
/// So many workloads are remembered by one write of status.
const BATCH: usize = 200;
/// What status can remember: with the rest of it, an object of etcd holds 1.5 MiB.
const MOST_WORKLOADS: usize = 4096;
const MOST_BYTES: usize = 1 << 20;

/// One attempt at a scale-down.
struct Run<'a> {
    shared: &'a Shared,
    permit: &'a Permit,
    key: &'a Key,
    intent: &'a Intent,
    /// What was decided on last, with the manager as it is now.
    observation: Observation,
    booking: Booking,
    /// What is remembered and was not touched yet.
    untouched: BTreeSet<ScaledWorkload>,
}

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
    // Where nothing is to be scaled down, or it cannot be remembered, no budget is spent on it.
    let awake = match to_scale_down(shared, key, &observation, what).await {
        Ok(awake) => awake,
        Err(outcome) => return Ok(Carried::Ended(outcome, Manager::clone(&observation.manager))),
    };
    let (observation, booking) = match delete::booked(shared, permit, key, intent, observation).await? {
        Ok(booked) => booked,
        Err(carried) => return Ok(carried),
    };
    let untouched = BTreeSet::new();
    Run { shared, permit, key, intent, observation, booking, untouched }.all(what, awake).await
}

impl Run<'_> {
    async fn all(mut self, what: &ScaleDown, mut awake: Vec<Scalable>) -> Result<Carried, String> {
        for _ in 0..ROUNDS {
            for batch in awake.chunks(BATCH) {
                if let Break(carried) = self.batch(batch).await? {
                    return Ok(carried);
                }
            }
            awake = match to_scale_down(self.shared, self.key, &self.observation, what).await {
                Ok(awake) => awake,
                Err(outcome) => return Ok(self.ended(outcome)),
            };
        }
        let error = format!("something else scales the selected workloads up again ({ROUNDS} rounds)");
        Ok(self.ended(Outcome::failed(error)))
    }

    async fn batch(&mut self, batch: &[Scalable]) -> Result<ControlFlow<Carried>, String> {
        if let Break(carried) = self.reverify().await? {
            return Ok(Break(carried));
        }
        match self.remember(batch).await {
            Ok(()) => {}
            Err(WriteError::Gone) => return Ok(Break(Carried::Gone)),
            Err(WriteError::Refused(error)) => return Err(error),
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => {
                return reread(self.shared, self.key).await.map(Break);
            }
        }
        for workload in batch {
            if let Break(carried) = self.reverify().await? {
                return Ok(Break(carried));
            }
            if self.permit.check().is_err() {
                return Ok(Break(Carried::Wait(None)));
            }
            self.untouched.remove(&entry(workload));
            let size = workload.size.asleep();
            match scale::set(&self.shared.clients, self.permit, &self.key.namespace, workload, size).await {
                // Gone or changed: the next round sees what there is.
                Ok(()) | Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => {}
                Err(WriteError::Refused(error)) => {
                    let error = format!("{} {}: {error}", workload.kind.kind, workload.name);
                    return Ok(Break(self.ended(Outcome::failed(error))));
                }
            }
        }
        Ok(Continue(()))
    }

    /// Decides again, by what there is now, unless the last decision is young enough.
    async fn reverify(&mut self) -> Result<ControlFlow<Carried>, String> {
        for _ in 0..ROUNDS {
            if self.observation.age() <= OLDEST && self.booking.age() <= BOOKED {
                return Ok(Continue(()));
            }
            if let Break(carried) = self.look_again().await? {
                return Ok(Break(carried));
            }
        }
        let error = "the API server takes too long to answer what it rests on".to_owned();
        Ok(Break(self.ended(Outcome::failed(error))))
    }

    async fn look_again(&mut self) -> Result<ControlFlow<Carried>, String> {
        if let Err(error) = self.booking.renew(&self.shared.clients, self.permit).await {
            return Ok(Break(self.ended(Outcome::failed(error.to_string()))));
        }
        match delete::reverify(self.shared, self.key, self.intent, &self.booking).await? {
            Ok(again) => {
                self.observation = again;
                Ok(Continue(()))
            }
            Err(Carried::Replanned(manager, mut plan)) => {
                // The same write that says why the rest stays as it is also forgets what was not touched.
                plan.status.scaled_down.retain(|entry| !self.untouched.contains(entry));
                Ok(Break(Carried::Replanned(manager, plan)))
            }
            Err(carried) => Ok(Break(carried)),
        }
    }

    /// Writes the replicas of workloads into status, before they are changed.
    async fn remember(&mut self, batch: &[Scalable]) -> Result<(), WriteError> {
        let manager = &self.observation.manager;
        let scaled_down = remembered(manager, batch);
        // What an earlier attempt has written down it may have touched: its answer may have been lost.
        let is_new = |entry: &ScaledWorkload| !manager.status.scaled_down.contains(entry);
        self.untouched.extend(batch.iter().map(entry).filter(is_new));
        if scaled_down != manager.status.scaled_down {
            let mut status = (*manager.status).clone();
            status.scaled_down = scaled_down;
            let written = save(self.shared, self.permit, manager, &status).await?;
            self.observation.manager = written.into();
        }
        Ok(())
    }

    fn ended(&self, outcome: Outcome) -> Carried {
        Carried::Ended(outcome, Manager::clone(&self.observation.manager))
    }
}

/// What is to be scaled down; otherwise what came of it already.
async fn to_scale_down(
    shared: &Shared,
    key: &Key,
    observation: &Observation,
    what: &ScaleDown,
) -> Result<Vec<Scalable>, Outcome> {
    let manager = &observation.manager;
    let awake = select(shared, key, &observation.law, what).await.map_err(Outcome::failed)?;
    if awake.is_empty() {
        return Err(Outcome::ScaledDown { workloads: manager.status.scaled_down.len() });
    }
    let all = remembered(manager, &awake);
    let bytes = serde_json::to_vec(&all).map_or(usize::MAX, |json| json.len());
    if all.len() > MOST_WORKLOADS || bytes > MOST_BYTES {
        shared.metrics.blocked(Reason::TooManyWorkloads.as_str());
        let message = format!(
            "{} workloads are selected or scaled down already, {bytes} bytes in status, which remembers at most \
             {MOST_WORKLOADS} and {MOST_BYTES} bytes: select fewer, or use a manager in each of several namespaces",
            all.len()
        );
        return Err(Outcome::Refused { reason: Reason::TooManyWorkloads, message });
    }
    Ok(awake)
}

/// The selected workloads that are not scaled down, in the order of kind and name.
async fn select(shared: &Shared, key: &Key, law: &Law, what: &ScaleDown) -> Result<Vec<Scalable>, String> {
    let all = ["Deployment", "StatefulSet"].map(|kind| WorkloadSelector {
        api_version: None,
        kind: kind.to_owned(),
        selector: None,
    });
    let selectors = what.selectors.as_deref().unwrap_or(&all);
    let mut awake: BTreeMap<(String, String, String), Scalable> = BTreeMap::new();
    for selector in selectors {
        let kind = law.resource(selector).map_err(|refusal| refusal.message)?;
        let found = scale::list(&shared.clients, &key.namespace, &kind, selector.selector.as_ref())
            .await
            .map_err(|e| format!("{} could not be listed: {}", kind.plural, chain(&e)))?;
        for workload in found.into_iter().filter(|w| !w.size.is_asleep()) {
            let name = (workload.kind.kind.clone(), workload.name.clone(), workload.uid.clone());
            awake.entry(name).or_insert(workload);
        }
    }
    Ok(awake.into_values().collect())
}

fn entry(workload: &Scalable) -> ScaledWorkload {
    ScaledWorkload {
        api_version: workload.kind.api_version.clone(),
        kind: workload.kind.kind.clone(),
        name: workload.name.clone(),
        uid: workload.uid.clone(),
        replicas: workload.size.replicas().map(|n| n + i32::from(active(Mutant::WrongSizeRemembered))),
    }
}

/// What status remembers, with these workloads as they are now; sorted.
fn remembered(manager: &Manager, workloads: &[Scalable]) -> Vec<ScaledWorkload> {
    fn name(entry: &ScaledWorkload) -> (String, String, String) {
        (entry.api_version.clone(), entry.kind.clone(), entry.name.clone())
    }
    let known = manager.status.scaled_down.iter().cloned();
    let all: BTreeMap<_, _> =
        known.chain(workloads.iter().map(entry)).map(|entry| (name(&entry), entry)).collect();
    let mut all: Vec<_> = all.into_values().collect();
    all.sort();
    all
}

async fn reread(shared: &Shared, key: &Key) -> Result<Carried, String> {
    let newer = read::get::<Manager>(&shared.clients.reads, &key.namespace, &key.name).await;
    Ok(newer.map_err(|e| chain(&e))?.map_or(Carried::Gone, Carried::Changed))
}
