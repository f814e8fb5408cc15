//! Judges what becomes of namespaces with managers: whether a policy asked for each destructive step, and how a run ends.

pub(in crate::suite) mod end;
pub(super) mod evidence;
pub(super) mod firings;
pub(super) mod justified;
pub mod rule;

use coppice_sim::run::RunRecord;

use crate::oracle::{DestructiveStep, Findings, History};

/// Notes what broke the rules about managers.
pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    justified::check(record, history, steps, found);
    firings::check(record, history, found);
}
