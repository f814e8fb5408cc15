//! Judges what becomes of namespaces under cluster managers.

mod agrees;
mod approved;
mod delivered;
pub(super) mod end;
mod governed;
mod health;
mod notices;
mod one_deletion;
pub mod rule;
mod superseded;
mod webhooks;

pub(in crate::suite) use governed::governing;

use coppice_sim::run::RunRecord;

use crate::oracle::{DestructiveStep, Findings, History};

/// Notes what broke the rules about cluster managers.
pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    steps: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    governed::check(record, history, steps, found);
    one_deletion::check(record, history, steps, found);
    agrees::check(record, history, found);
}
