//! Judges a run by what the API server and the receiver saw, never by what the operator says of itself, and by a clock that no fault
//! touches.
//!
//! Two kinds of judgement: what must not happen in any run ([`violations`]), and how a run ends and what it had for effects
//! ([`EndState`]): as its story says, and as when nothing goes wrong.

mod budget;
mod destructive;
mod effects;
mod end;
mod evidence;
mod history;
mod justified;
mod liveness;
mod rule;

pub use self::end::EndState;
pub(crate) use self::end::end_state;
pub use self::rule::Rule;
use crate::run::Truth;

/// What must not happen and did, each in one sentence that begins with the name of the rule.
pub(crate) fn violations(truth: &Truth<'_>, without: Option<Rule>) -> Vec<String> {
    let history = history::History::of(truth);
    let mut found = rule::Findings::new(without);
    for refused in truth.refused {
        found.add(Rule::Script, refused);
    }
    destructive::judge(truth, &history, &mut found);
    effects::judge(truth, &history, &mut found);
    liveness::judge(truth, &mut found);
    found.all()
}
