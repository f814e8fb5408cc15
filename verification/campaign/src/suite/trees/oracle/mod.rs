//! Judges trees by what the API server saw. Uses neither the crate that decides about quotas nor its types.

mod budget;
mod consent;
mod denied;
mod limits;
mod namespaces;
mod once;
mod requests;
mod rights;
pub mod rule;
mod settled;

use coppice_sim::run::RunRecord;

pub(super) use self::budget::own_budget;
use crate::oracle::{DestructiveStep, Findings, History};

/// Notes what broke the rules of trees.
pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    budget::check(history, steps, found);
    consent::check(record, history, found);
    denied::check(record, history, found);
    let trees = limits::check(record, found);
    namespaces::check(record, history, steps, found);
    once::check(record, history, found);
    requests::check(record, history, &trees, found);
    rights::check(record, history, found);
    settled::check(record, history, found);
}
