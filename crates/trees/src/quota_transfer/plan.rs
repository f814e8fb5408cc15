//! What becomes of a `QuotaTransfer`: the one next write, or why there is none. Pure.

mod lint;

use coppice_api::condition::{self, ConditionState, READY};
use coppice_api::{QuotaTransferStatus, Reason, TransferPhase};
use coppice_hierarchy::{
    AppliedTransfer, Ledger, Record, Resources, Stop, Transfer, TransferDecision, ValidTransfer,
    applied_before,
};
use coppice_kinds::QuotaTransferObject;
use coppice_lifecycle::plan::PlannedEvent;
use coppice_mutants::{Mutant, active};
use jiff::Timestamp;

use super::id;
use super::observe::Observation;
use super::route::{NoRoute, Route};
use crate::allotment::understood;
use crate::context::Why;

/// What to do: make `status` durable if it is another, otherwise take the step, and look again at `next_check` at the latest.
pub(super) struct TransferPlan {
    pub(super) status: QuotaTransferStatus,
    pub(super) step: Step,
    /// When time alone can change the plan.
    pub(super) next_check: Option<Timestamp>,
    /// To publish once the status is durable.
    pub(super) events: Vec<PlannedEvent>,
    /// Whether it rests on the amount being in none of the quotas: then all of them have to be as they were read at one time.
    pub(super) found_nowhere: bool,
}

/// One write besides status.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    AddFinalizer,
    RemoveFinalizer,
    /// The ledger of the namespace at this place of the way.
    Quota(usize, Ledger),
}

/// What is reported of the state.
struct State {
    phase: TransferPhase,
    reason: Reason,
    message: String,
}

impl State {
    fn pending((reason, message): Why) -> Self {
        Self { phase: TransferPhase::Pending, reason, message }
    }
}

/// The place that the amount has reached, as was recorded.
pub(super) fn progress(object: &QuotaTransferObject) -> Option<usize> {
    let at = object.status.at.as_ref()?;
    object.status.path.iter().position(|stop| stop.namespace == *at)
}

/// The place where the way turns; none if it is not known.
pub(super) fn top(object: &QuotaTransferObject) -> Option<usize> {
    object.status.path.iter().position(|stop| stop.uid.is_empty())
}

/// Whether it has not begun, and may not before somebody else agrees.
pub(super) fn awaits_approval(object: &QuotaTransferObject) -> bool {
    let asks = object.decoded().is_ok_and(|spec| !is_agreed(spec, &object.namespace));
    asks && object.status.path.is_empty() && object.status.ended_at.is_none()
}

fn is_agreed(spec: &ValidTransfer, source: &str) -> bool {
    spec.is_approved || spec.through == spec.to || spec.through == *source
}

/// Decides. Depends on nothing but its argument.
pub(super) fn plan(observation: &Observation) -> TransferPlan {
    let plan = next(observation);
    debug_assert_eq!(lint::lint(observation, &plan), Vec::new(), "{:?} of {:?}", plan.step, plan.status);
    plan
}

fn next(observation: &Observation) -> TransferPlan {
    let object = &observation.object;
    let mut plan = TransferPlan {
        status: (*object.status).clone(),
        step: Step::Nothing,
        next_check: None,
        events: Vec::new(),
        found_nowhere: false,
    };
    if object.status.ended_at.is_some() {
        plan.stays_ended(object);
        return plan;
    }
    if object.terminating && !object.has_finalizer {
        return plan;
    }
    let state = match &observation.stale {
        Some((reason, message)) => {
            let phase = object.status.phase.unwrap_or(TransferPhase::Pending);
            State { phase, reason: *reason, message: message.clone() }
        }
        None => plan.decide(observation),
    };
    plan.describe(observation, state);
    plan
}

impl TransferPlan {
    /// Whether there is nothing to do and nothing to write.
    pub(super) fn is_steady(&self, stored: &QuotaTransferStatus) -> bool {
        self.step == Step::Nothing && self.status == *stored
    }

    /// It has ended, whatever is approved after that: what status says is about that spec, too.
    fn stays_ended(&mut self, object: &QuotaTransferObject) {
        let is_older = |seen: i64| seen < object.generation;
        if object.has_finalizer {
            self.step = Step::RemoveFinalizer;
        } else if !object.terminating && self.status.observed_generation.is_some_and(is_older) {
            self.status.observed_generation = Some(object.generation);
            for condition in &mut self.status.conditions {
                condition.observed_generation = Some(object.generation);
            }
        }
    }

    fn decide(&mut self, observation: &Observation) -> State {
        let object = &observation.object;
        if !object.has_finalizer {
            self.step = Step::AddFinalizer;
            return self.moving("the transfer is looked at".to_owned());
        }
        if object.terminating && object.status.path.is_empty() {
            return self.refused(observation, "the QuotaTransfer was deleted before it had begun".to_owned());
        }
        let spec = match object.decoded() {
            Ok(spec) => spec,
            Err(why) => return State::pending((Reason::InvalidSpec, why.to_string())),
        };
        let amount = match &spec.amount {
            Ok(amount) => amount,
            Err(why) => return self.refused(observation, why.to_string()),
        };
        let doubled = active(Mutant::TransferDoubled).then(|| amount.plus(amount)).flatten();
        let amount = doubled.as_ref().unwrap_or(amount);
        self.status.amount = amount.to_string();
        if object.status.path.is_empty() {
            self.begin(observation, spec, amount)
        } else {
            self.go_on(observation, spec, amount)
        }
    }

    /// Nothing was taken yet.
    fn begin(&mut self, observation: &Observation, spec: &ValidTransfer, amount: &Resources) -> State {
        let object = &observation.object;
        let route = match &observation.route {
            Ok(route) => route.clone(),
            Err(NoRoute::Never(why)) => return self.refused(observation, why.clone()),
            Err(NoRoute::Unknown(why)) => return State::pending(why.clone()),
        };
        if !is_agreed(spec, &object.namespace) {
            // Applied again from a file, it has nothing that anybody would have to agree to.
            if let Some(at) = applied(observation, &route, amount) {
                self.status.tree = route.tree;
                return self.already_applied(observation, spec, at);
            }
            let (source, name, ValidTransfer { to, through, .. }) = (&object.namespace, &object.name, spec);
            let message = format!(
                "it has to be approved by somebody who may create QuotaTransfers in {source} and {to}, or in {through}: coppice transfer \
                 approve {source}/{name}"
            );
            return State { phase: TransferPhase::PendingApproval, reason: Reason::PendingApproval, message };
        }
        (self.status.tree, self.status.path) = (route.tree, route.path);
        self.status.begun_at = Some(seconds(observation.time.now()));
        self.moving(format!("the quota is being taken from namespace {}", object.namespace))
    }

    /// Something may have been taken.
    fn go_on(&mut self, observation: &Observation, spec: &ValidTransfer, amount: &Resources) -> State {
        let (object, path) = (&observation.object, &observation.object.status.path);
        let Some(top) = top(object) else {
            let message =
                "status.path cannot be understood: nothing is done until it is as it was".to_owned();
            return State::pending((Reason::InvalidSpec, message));
        };
        let mut near = observation.near.values().filter_map(|near| near.quota.as_deref());
        if let Some(why) = near.find_map(|quota| understood(quota).err()) {
            return State { phase: self.phase(), reason: why.0, message: why.1 };
        }
        let nothing = Record::default();
        let stop = |place: usize| {
            let near = observation.near.get(&place);
            Stop {
                id: &path[place].uid,
                name: &path[place].namespace,
                quota: near.and_then(|near| near.quota.as_deref()?.quota.as_ref().ok()),
                record: near.map_or(&nothing, |near| &near.record),
            }
        };
        let stops: Vec<Stop<'_>> = (0..path.len()).map(stop).collect();
        let transfer = Transfer {
            id: &id(object),
            name: &object.name,
            amount,
            stops: &stops,
            top,
            at: progress(object),
            reversing: object.status.failure.is_some(),
            cancelled: object.terminating,
        };
        self.decided(observation, spec, transfer.decide(observation.time.now()))
    }

    fn decided(
        &mut self,
        observation: &Observation,
        spec: &ValidTransfer,
        decision: TransferDecision,
    ) -> State {
        let (object, path) = (&observation.object, &observation.object.status.path);
        let (source, to) = (&object.namespace, &spec.to);
        match decision {
            TransferDecision::Write(_, place, ledger) => self.step = Step::Quota(place, ledger),
            TransferDecision::At(place) => self.status.at = Some(path[place].namespace.clone()),
            TransferDecision::Wait(at) => self.next_check = at,
            TransferDecision::Reverse(why) => self.status.failure = Some(why.to_string()),
            TransferDecision::Refused(why) => return self.refused(observation, why.to_string()),
            TransferDecision::AlreadyApplied(at) => {
                return self.already_applied(observation, spec, at);
            }
            TransferDecision::Arrived if active(Mutant::TransferUnended) => {}
            TransferDecision::Arrived => {
                self.found_nowhere = true;
                let message = format!("namespace {to} has {} from namespace {source}", self.status.amount);
                return self.end(observation, TransferPhase::Completed, Reason::QuotaMoved, message);
            }
            TransferDecision::Returned => {
                self.found_nowhere = true;
                let why = object.status.failure.clone().unwrap_or_default();
                return self.reversed(observation, format!("{why}; namespace {source} has its quota again"));
            }
            TransferDecision::Dissolved => {
                self.found_nowhere = true;
                let at = object.status.at.as_deref().unwrap_or(source);
                let why = object.status.failure.as_ref().map_or_else(String::new, |why| format!("{why}; "));
                let message = format!(
                    "{why}the quota had come to namespace {at}, and stays there or, if that is gone, with the namespace above it"
                );
                return self.reversed(observation, message);
            }
        }
        let at = self.status.at.as_deref().unwrap_or(source);
        let message = match &self.status.failure {
            Some(why) => format!("{why}; the quota returns to namespace {source}, and is in namespace {at}"),
            None => format!("the quota moves to namespace {to}, and is in namespace {at}"),
        };
        self.moving(message)
    }

    fn already_applied(&mut self, observation: &Observation, spec: &ValidTransfer, at: Timestamp) -> State {
        let message = format!(
            "namespace {} got {} from namespace {} at {}, by a QuotaTransfer of this name that is gone: nothing is transferred again. To \
             transfer as much once more, give it another name",
            spec.to,
            self.status.amount,
            observation.object.namespace,
            seconds(at),
        );
        self.end(observation, TransferPhase::Completed, Reason::AlreadyApplied, message)
    }

    fn phase(&self) -> TransferPhase {
        match (&self.status.failure, self.status.path.is_empty()) {
            (Some(_), _) => TransferPhase::Reversing,
            (None, false) => TransferPhase::Moving,
            (None, true) => TransferPhase::Pending,
        }
    }

    fn moving(&self, message: String) -> State {
        State { phase: self.phase(), reason: Reason::QuotaMoving, message }
    }

    fn refused(&mut self, observation: &Observation, why: String) -> State {
        self.end(observation, TransferPhase::Refused, Reason::TransferRefused, why)
    }

    fn reversed(&mut self, observation: &Observation, why: String) -> State {
        self.end(observation, TransferPhase::Refused, Reason::TransferReversed, why)
    }

    fn end(
        &mut self,
        observation: &Observation,
        phase: TransferPhase,
        reason: Reason,
        message: String,
    ) -> State {
        self.status.at = None;
        self.status.ended_at = Some(seconds(observation.time.now()));
        let warning = phase != TransferPhase::Completed;
        self.events.push(PlannedEvent { warning, reason, message: message.clone() });
        State { phase, reason, message }
    }

    /// Says in status what there is, and why.
    fn describe(&mut self, observation: &Observation, State { phase, reason, message }: State) {
        let object = &observation.object;
        let ready = match phase {
            _ if observation.stale.is_some() => "Unknown",
            TransferPhase::Completed => "True",
            _ => "False",
        };
        let state = ConditionState { status: ready, reason: reason.to_string(), message };
        if phase == TransferPhase::PendingApproval && object.status.phase != Some(phase) {
            let message = state.message.clone();
            self.events.push(PlannedEvent { warning: false, reason, message });
        }
        condition::set(&mut self.status.conditions, READY, state, object.generation, observation.time.now());
        self.status.phase = Some(phase);
        if observation.stale.is_none() {
            // Otherwise the phase is that of the spec before.
            self.status.observed_generation = Some(object.generation);
        }
        // A step is taken on what status says now: what changes of it is said together with what comes next.
        if self.step != Step::Nothing {
            self.status = (*object.status).clone();
        }
    }
}

/// When the source gave the same under this name, before this object was there.
fn applied(observation: &Observation, route: &Route, amount: &Resources) -> Option<Timestamp> {
    let quota = observation.source.as_deref()?.quota.as_ref().ok()?;
    let target = route.path.last()?;
    let (to, id) = (target.namespace.clone(), target.uid.clone());
    let same = AppliedTransfer { to, id, amount: amount.clone(), at: observation.time.now() };
    applied_before(&quota.ledger, &observation.object.name, &same)
}

fn seconds(at: Timestamp) -> Timestamp {
    at.round(jiff::Unit::Second).unwrap_or(at)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
