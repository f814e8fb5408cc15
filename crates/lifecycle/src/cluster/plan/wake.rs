//! Giving workloads their replicas back, because a user of the namespace asks for it.

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_api::managed_namespace::NextStep;
use coppice_api::steps::{Action, Intent};

use super::{Builder, NamespacePlan, NamespaceStep};
use crate::facts::NamespaceFacts;
use crate::governor::Denied;
use crate::record;
use crate::steps::{self, Decided};

/// In the evidence of a scale-down: how many workloads were scaled down when it was decided.
pub(super) const SCALED_DOWN_BEFORE: &str = "scaledDownBefore";

impl Builder<'_> {
    /// Whether workloads get their replicas back now. Also where nobody governs the namespace any more, and where it is held:
    /// nothing is taken away by it. One that waits for its next attempt keeps nothing else waiting.
    pub(super) fn wakes(&self) -> bool {
        if self.record.spec.is_err() {
            return false;
        }
        let asked = self.asked_to_wake();
        let waits = |intent: &Intent| steps::wait_for_retry(intent, self.now).is_some();
        match &self.status.steps.intent {
            None => asked,
            Some(intent) if intent.action == Action::Wake => !waits(intent) || !asked,
            // Nobody waits for a scale-down that fails.
            Some(intent) => asked && intent.action == Action::ScaleDown && waits(intent),
        }
    }

    /// Whether a scale-down has changed workloads: more are recorded than when it was decided.
    pub(super) fn has_begun(&self, intent: &Intent) -> bool {
        let before = intent.evidence.get(SCALED_DOWN_BEFORE).and_then(|count| count.parse::<usize>().ok());
        let recorded = self.status.steps.scaled_down.len();
        intent.action == Action::ScaleDown && before.is_some_and(|before| before < recorded)
    }

    fn asked_to_wake(&self) -> bool {
        let steps = &self.status.steps;
        let from = self.status.wakes_from.unwrap_or(steps.firings);
        let asked = self
            .record
            .spec
            .is_ok_and(|spec| spec.wake.is_some_and(|wake| (from..=steps.firings).contains(&wake)));
        asked && !steps.scaled_down.is_empty()
    }

    pub(super) fn wake(mut self, namespace: &NamespaceFacts) -> NamespacePlan {
        let message = record::giving_back(self.status.steps.scaled_down.len());
        let next = NextStep {
            action: Some(Action::Wake.to_string()),
            reason: Reason::InProgress.to_string(),
            message,
            ..NextStep::default()
        };
        if let Some(intent) = self.status.steps.intent.clone() {
            if intent.action == Action::ScaleDown {
                return self.wake_instead(&intent);
            }
            if intent.uid != namespace.uid {
                let why = format!("it was about another namespace of this name (uid {})", intent.uid);
                return self.abandon(&intent, Reason::Replaced, &why);
            }
            if !self.asked_to_wake() {
                let why = "spec.wake no longer names the last firing";
                return self.abandon(&intent, Reason::NoLongerTrue, why);
            }
            let mut plan = self.say(next);
            if plan.step == NamespaceStep::Nothing {
                plan.step = NamespaceStep::Wake(Box::new(intent));
            }
            return plan;
        }
        let digest = self.status.manager.as_ref().map(|manager| manager.digest.clone()).unwrap_or_default();
        let decided = Decided {
            object_uid: self.record.uid,
            action: Action::Wake,
            policy: "",
            digest: &digest,
            namespace,
            reason: Reason::InProgress,
            evidence: &BTreeMap::new(),
        };
        self.status.steps.intent = Some(steps::intent(&self.status.steps, decided, self.now));
        self.next_check = Some(self.now);
        self.say(next)
    }

    /// A scale-down that fails is given up for those who want their workloads back: it counts as done.
    fn wake_instead(mut self, intent: &Intent) -> NamespacePlan {
        self.next_check = Some(self.now);
        record::remember(&mut self.status.fired, intent, self.now);
        let why = "its workloads are to be woken";
        let message = steps::abandon(&mut self.status.steps, intent, why, &mut self.events);
        self.waiting(Reason::NoLongerTrue, message)
    }

    /// A wake-up that failed waits for its next attempt.
    pub(super) fn wake_waits(mut self, intent: &Intent) -> NamespacePlan {
        let denied = steps::wait_for_retry(intent, self.now);
        let Denied { reason, message, retry_at } =
            denied.unwrap_or_else(|| Denied::until_changed((Reason::InProgress, String::new())));
        self.check_no_later_than(retry_at);
        let action = Some(Action::Wake.to_string());
        self.say(NextStep { action, policy: None, due: retry_at, reason: reason.to_string(), message })
    }
}
