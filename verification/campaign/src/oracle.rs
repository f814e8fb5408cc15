//! Judges a run by what the API server and the receiver saw, never by what the programs say of themselves, and by a clock that no fault
//! touches.
//!
//! Two kinds of judgement: what must not happen in any run ([`rule`]), and how a run ends and what it had for effects
//! ([`EndState`]): as its scenario says, and as when nothing goes wrong. What is here holds for the runs of every suite; a
//! [suite](crate::suite) adds its own rules.

mod budget;
mod effects;
mod end;
mod history;
mod liveness;
pub(crate) mod notice;
mod records;
pub mod rule;
mod steps;

use coppice_sim::run::RunRecord;

pub(crate) use self::budget::{HOUR, MINUTE};
pub(crate) use self::effects::joins;
pub(crate) use self::end::unlike;
pub use self::end::{EndState, STEPS};
pub use self::history::History;
pub(crate) use self::history::{instant, since};
pub use self::rule::{Broken, Findings, Rule};
pub use self::steps::{DestructiveAction, DestructiveStep};
pub(crate) use self::steps::{HONOURED, READ, scaled};
use crate::suite::Suite;

/// What must not happen and did, each in one sentence that begins with the name of the rule.
pub(crate) fn judge(suite: &Suite, record: &RunRecord<'_>, without: Option<Rule>) -> Findings {
    let history = History::of(record);
    let mut found = Findings::new(without);
    for refused in record.refused {
        found.add(rule::SCRIPT, refused);
    }
    let steps = steps::all(record, &history, &mut found);
    steps::check(record, &history, &steps, &mut found);
    records::check(record, &history, &steps, &mut found);
    notice::check(&history, &mut found);
    budget::check(suite, record, &history, &steps, &mut found);
    effects::check(record, &history, &mut found);
    liveness::check(record, &mut found);
    (suite.rules)(record, &history, &steps, &mut found);
    found
}
