//! A namespace with the cluster manager that governs it, and its policies in the order in which they act.

use coppice_api::ManagedNamespaceSpec;
use coppice_api::managed_namespace::{FiredPolicy, Successor};
use jiff::Timestamp;

use super::has_fired;
use crate::cluster::ValidClusterPolicy;
use crate::cluster::phase::{Due, DueCause, PhaseFinding};
use crate::cluster::selection::SelectingManager;
use crate::condition::later;
use crate::facts::NamespaceFacts;
use crate::plan::earlier;

/// A namespace with the cluster manager that governs it, the one that has won the [contest](crate::cluster::selection::contest): what all its
/// policies have in common.
pub(super) struct Governed<'a> {
    pub(super) manager: SelectingManager<'a>,
    pub(super) namespace: &'a NamespaceFacts,
    pub(super) spec: &'a ManagedNamespaceSpec,
    /// When its hold ends, as far as it counts, if it has one.
    pub(super) hold_end: Option<Timestamp>,
    /// Since when this very spec of the manager governs it.
    pub(super) since: Timestamp,
    /// Nothing is done before this instant.
    pub(super) settled_at: Timestamp,
    pub(super) finding: PhaseFinding,
    /// What is failing, in short.
    pub(super) failing: String,
    /// Which namespace has taken its place, if one has.
    pub(super) successor: Option<Successor>,
    pub(super) now: Timestamp,
}

/// One policy of the manager with what [`Governed::judge`] has found: when its condition is true. Whether it may act is asked next,
/// first of [`Ruling`](super::decide::Ruling).
#[derive(Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) policy: &'a ValidClusterPolicy,
    /// None if time alone does not make it true.
    pub(super) due: Option<Due>,
    /// When it acts at the earliest: its condition is true, and notice has run in full since the manager has settled.
    pub(super) acts_at: Option<Timestamp>,
}

impl Judged<'_> {
    /// What acts first comes first.
    pub(super) const fn rank(&self) -> (bool, bool, Option<Timestamp>) {
        (!self.policy.enforces, self.acts_at.is_none(), self.acts_at)
    }
}

impl<'a> Governed<'a> {
    /// Of what makes a policy true, one counts: a ttl that is over, which nothing that goes back and forth changes; then what may
    /// be done now; then what is due first.
    pub(super) fn judge(&self, policy: &'a ValidClusterPolicy) -> Judged<'a> {
        let notice = policy.action.notice();
        let over = |due: &Due| due.cause == DueCause::Ttl && due.at <= self.now;
        let open = |due: &Due| due.unconfirmed.is_none() && earlier(due.not_before, notice) <= self.now;
        let due = self.finding.due(policy).min_by_key(|due| (!over(due), !open(due), due.at));
        let acts_at = due.map(|due| due.not_before.max(later(self.settled_at, notice)));
        Judged { policy, due, acts_at }
    }

    /// The policies that delete the namespace, or the others: what acts first comes first, and what observes last.
    pub(super) fn ranked(&self, deletes: bool, fired: &[FiredPolicy]) -> Vec<Judged<'a>> {
        let policies = self.manager.spec.policies().iter();
        let policies =
            policies.filter(|policy| policy.action.deletes() == deletes && !has_fired(policy, fired));
        let mut judged: Vec<_> = policies.map(|policy| self.judge(policy)).collect();
        judged.sort_by_key(Judged::rank);
        judged
    }
}
