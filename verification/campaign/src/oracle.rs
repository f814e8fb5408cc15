//! Judges a run by what the API server and the receiver saw, never by what the operator says of itself, and by a clock that no fault
//! touches.
//!
//! Two kinds of judgement: what must not happen in any run ([`violations`]), and how a run ends and what it had for effects
//! ([`EndState`]): as its scenario says, and as when nothing goes wrong.

mod budget;
mod destructive;
mod effects;
mod end;
mod evidence;
mod history;
mod invariant;
mod justified;
mod liveness;

pub(crate) use self::destructive::scaled;
pub use self::end::EndState;
pub(crate) use self::end::end_state;
pub use self::invariant::Invariant;
use coppice_sim::run::RunRecord;

/// What must not happen and did, each in one sentence that begins with the name of the rule.
pub(crate) fn violations(record: &RunRecord<'_>, without: Option<Invariant>) -> Vec<String> {
    let history = history::History::of(record);
    let mut found = invariant::Findings::new(without);
    for refused in record.refused {
        found.add(Invariant::Script, refused);
    }
    destructive::check(record, &history, &mut found);
    effects::check(record, &history, &mut found);
    liveness::check(record, &mut found);
    found.all()
}
