//! A Subnamespace or its namespace is being deleted: the one goes with the other, and the quota returns. Pure.

use std::collections::BTreeMap;

use coppice_api::condition::{self, READY};
use coppice_api::names::LABEL_CHILDREN;
use coppice_api::steps::Action;
use coppice_api::{Reason, SubnamespacePhase};
use coppice_hierarchy::Resources;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Denied;
use coppice_lifecycle::record::{self, StepOutcome};
use coppice_lifecycle::steps::{self, Decided};
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

use super::super::observe::Observation;
use super::moving::parent_ends;
use super::{POLICY, State, Step, SubnamespacePlan, being_deleted, is_created_by};
use crate::allotment::allotment;
use crate::metadata::NamespaceChanges;

const A_MINUTE: SignedDuration = SignedDuration::from_mins(1);

impl SubnamespacePlan {
    /// The Subnamespace is being deleted. Whatever that waits for, what is under way of its quota goes on: transfers may have begun it.
    pub(super) fn end(&mut self, observation: &Observation) -> State {
        let state = self.end_once_allowed(observation);
        let stays = observation.own_namespace().is_some_and(|namespace| !namespace.terminating);
        // Without the finalizer nobody would end what begins now.
        if stays
            && observation.object.has_finalizer
            && self.step == Step::Nothing
            && !parent_ends(observation)
            && !active(Mutant::EndingKeepsQuota)
        {
            let (has, next_check) = (allotment(&observation.object).unwrap_or_default(), self.next_check);
            let _ = self.quota_step(observation, &has, observation.time.now());
            self.next_check = self.next_check.into_iter().chain(next_check).min();
        }
        state
    }

    fn end_once_allowed(&mut self, observation: &Observation) -> State {
        let object = &observation.object;
        if !object.has_finalizer {
            return being_deleted();
        }
        if self.status.namespace_uid.is_none()
            && let Some(namespace) = observation.namespace.as_deref()
            && is_created_by(namespace, object)
        {
            self.status.namespace_uid = Some(namespace.uid.clone());
            return being_deleted();
        }
        if self.status.namespace_uid.is_none() && observation.may_come() {
            return State::deleting(
                Reason::MovedToAncestor,
                "what the namespace was given is being moved here, and returns after that",
            );
        }
        match observation.own_namespace() {
            // First of all: nobody has asked for the deletion of what goes with the namespace above.
            Some(namespace) if parent_ends(observation) => self.move_up(observation, namespace),
            Some(namespace) if namespace.terminating => self.going(observation),
            Some(namespace) if !observation.children.is_empty() && !active(Mutant::ChildrenIgnored) => {
                self.below_first(observation, namespace)
            }
            Some(namespace)
                if namespace.labels.get(LABEL_CHILDREN).is_some() && !active(Mutant::ChildrenIgnored) =>
            {
                // There are none any more, and with the label nobody deletes it.
                let gone = BTreeMap::from([(LABEL_CHILDREN.to_owned(), None)]);
                self.step = Step::Label(NamespaceChanges::labels(gone));
                being_deleted()
            }
            Some(namespace) => self.delete(observation, namespace),
            None => {
                if let Some(state) = self.return_quota(observation) {
                    return state;
                }
                if !active(Mutant::FinalizerKept) {
                    self.step = Step::RemoveFinalizer;
                }
                being_deleted()
            }
        }
    }

    /// The namespace is being deleted. What is under way of its quota is decided, so that what others have of it can leave.
    pub(super) fn going(&mut self, observation: &Observation) -> State {
        if !parent_ends(observation) && observation.parent_quota.is_some() {
            let _ = self.quota_step(observation, &Resources::default(), observation.time.now());
        }
        being_deleted()
    }

    /// Somebody else has deleted the namespace: its quota returns, and the Subnamespace goes, too.
    pub(super) fn gone(&mut self, observation: &Observation) -> State {
        if let Some(state) = self.return_quota(observation) {
            return state;
        }
        self.step = Step::DeleteObject;
        being_deleted()
    }

    /// Returns what the namespace had, now that it is gone; nothing if all of it is back.
    fn return_quota(&mut self, observation: &Observation) -> Option<State> {
        // By this decision or by somebody else.
        if let Some(intent) = self.status.steps.intent.clone() {
            let now = observation.time.now();
            self.events.extend(record::apply(
                &mut self.status.steps,
                &intent,
                &StepOutcome::AlreadyGone,
                now,
            ));
        }
        if observation.parent.as_ref().is_none_or(|parent| parent.terminating) {
            // All that the namespace above was given returns with it.
            return None;
        }
        let state = self.quota_step(observation, &Resources::default(), observation.time.now())?;
        Some(State { phase: SubnamespacePhase::Deleting, ..state })
    }

    /// Deletes the namespace, as its Subnamespace was: decides it, writes it down, and decides it again before every attempt.
    fn delete(&mut self, observation: &Observation, namespace: &NamespaceFacts) -> State {
        let (object, circumstances) = (&observation.object, observation.circumstances());
        if let Some(refusal) = observation.settings.protection(namespace) {
            if let Some(intent) = self.status.steps.intent.clone() {
                steps::abandon(&mut self.status.steps, &intent, &refusal.message, &mut self.events);
            }
            return State::deleting(refusal.reason, refusal.message);
        }
        let now = observation.time.now();
        let denied = circumstances.block(Action::Delete);
        let Some(intent) = self.status.steps.intent.clone().filter(|intent| intent.uid == namespace.uid)
        else {
            if let Some(denied) = denied {
                return self.waits(denied, now);
            }
            let evidence = BTreeMap::from([("subnamespace".to_owned(), object.uid.to_string())]);
            let decided = Decided {
                object_uid: &object.uid,
                action: Action::Delete,
                policy: POLICY,
                digest: "v1",
                namespace,
                reason: Reason::SubnamespaceDeleted,
                evidence: &evidence,
            };
            self.status.steps.intent = Some(steps::intent(&self.status.steps, decided, now));
            return being_deleted();
        };
        if let Some(denied) = denied.or_else(|| steps::wait_for_retry(&intent, now)) {
            return self.waits(denied, now);
        }
        self.step = Step::DeleteNamespace(intent);
        being_deleted()
    }

    /// It waits for what stops the step; for a budget that is spent, with the minute from which it is tried again.
    pub(super) fn waits(&mut self, denied: Denied, now: Timestamp) -> State {
        self.next_check = denied.retry_at;
        let message = self.with_minute(&denied, now).unwrap_or(denied.message);
        State::deleting(denied.reason, message)
    }

    /// What is said of a budget that is spent for more than a minute, and until it is not: what waits for shorter would have another minute
    /// again and again.
    fn with_minute(&self, denied: &Denied, now: Timestamp) -> Option<String> {
        let spent = matches!(denied.reason, Reason::BudgetSpent | Reason::TreeBudgetSpent);
        let at = denied.retry_at.filter(|_| spent)?;
        let message = format!("{}; tried again at {:.0}", denied.message, denied.minute()?);
        let said =
            condition::find(&self.status.conditions, READY).is_some_and(|ready| ready.message == message);
        (said || at.duration_since(now) > A_MINUTE).then_some(message)
    }
}
