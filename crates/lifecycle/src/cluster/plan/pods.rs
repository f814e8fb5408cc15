//! Policies that wait for the pods of a namespace to succeed.

use coppice_api::Reason;
use coppice_api::managed_namespace::{PodsVerdict, PolicyStatus};
use coppice_api::manager::Verdict;
use jiff::Timestamp;

use super::decide::Ruling;
use super::health::look_again_at;
use super::{Builder, Governed, Judged};
use crate::cluster::{ClusterCondition, ValidClusterManager};
use crate::condition::{Evaluation, evaluate_pods_succeed, whole_second_after};
use crate::facts::{NamespaceFacts, NamespaceSnapshot};

impl Builder<'_> {
    /// Evaluates the policies that wait for pods, and writes the verdicts down.
    pub(super) fn look_at_pods(&mut self, manager: &ValidClusterManager, namespace: &NamespaceFacts) {
        let before = std::mem::take(&mut self.status.policies);
        if !manager.needs_pods() {
            return;
        }
        let (pods, jobs) = (self.observed.pods.clone(), self.observed.jobs.clone());
        let snapshot = NamespaceSnapshot::new(namespace, pods, jobs);
        for policy in manager.policies() {
            let ClusterCondition::PodsSucceed(condition) = &policy.condition else { continue };
            let before = before.iter().find(|known| known.verdict.name == policy.name);
            let verdict = before.map(|known| &known.verdict);
            let evaluation = evaluate_pods_succeed(condition, &snapshot, verdict, self.now);
            let unknown = evaluation.verdict == Verdict::Unknown;
            // Nothing else says so where a namespace has no pods.
            let again = unknown.then(|| look_again_at(evaluation.reason, self.now));
            self.check_no_later_than(evaluation.next_check.into_iter().chain(again).min());
            self.status.policies.push(recorded(&policy.name, &evaluation, before, self.now));
            if evaluation.verdict == Verdict::True {
                self.evidence.insert(policy.name.clone(), evaluation.evidence);
            }
        }
        self.status.policies.sort_unstable_by(|a, b| a.verdict.name.cmp(&b.verdict.name));
    }

    /// What of the pods is not known, if so.
    pub(super) fn pods_unknown(&self) -> Option<&PolicyStatus> {
        let mut verdicts = self.status.policies.iter().map(|known| &known.verdict);
        verdicts.find(|verdict| verdict.result == Verdict::Unknown)
    }
}

impl Governed<'_> {
    /// What a policy waits for, if it waits for pods: as their verdict says.
    pub(super) fn says_of_pods(&self, judged: &Judged<'_>) -> Option<(Reason, String)> {
        let verdict = &self.finding.verdict_on(judged.policy)?.verdict;
        let reason = Reason::parse(&verdict.reason).unwrap_or(Reason::Watching);
        Some((reason, verdict.message.clone()))
    }

    /// Nothing is done for the pods while it is not known how they are; what was announced stands.
    pub(super) fn pods_unconfirmed(&self, judged: &Judged<'_>) -> Option<Ruling> {
        let (reason, message) = self.says_of_pods(judged)?;
        let message = format!("whether the pods have succeeded is unknown: {message}; no action is taken");
        Some(Ruling::Unconfirmed(reason, message))
    }
}

/// A verdict as it is written down.
fn recorded(
    name: &str,
    evaluation: &Evaluation,
    before: Option<&PodsVerdict>,
    now: Timestamp,
) -> PodsVerdict {
    let Evaluation { verdict, reason, message, due, since, .. } = evaluation;
    let unchanged = before.map(|known| &known.verdict).filter(|known| known.result == *verdict);
    let since = since.or(unchanged.map(|known| known.since)).unwrap_or_else(|| whole_second_after(now));
    let succeeded = before.and_then(|known| known.succeeded_since);
    let succeeded_since = match verdict {
        Verdict::True => succeeded.or(Some(since)),
        Verdict::False if *reason == Reason::Settling => succeeded.or(Some(since)),
        Verdict::False => None,
        // They may have succeeded before this spec governed the namespace: what is seen later says nothing new.
        Verdict::Unknown if before.is_none() => Some(whole_second_after(now)),
        Verdict::Unknown => succeeded,
    };
    let verdict = PolicyStatus {
        name: name.to_owned(),
        result: *verdict,
        reason: reason.to_string(),
        message: message.clone(),
        since,
        due: *due,
    };
    PodsVerdict { verdict, succeeded_since }
}
