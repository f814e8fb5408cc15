//! Judges a run by what the API server and the receiver saw, never by what the operator says of itself.
//!
//! Two kinds of judgement: what must not happen in any run ([`violations`]), and how a run ends and what it had for effects, which must
//! be the same as when nothing goes wrong ([`EndState`]).

mod deletions;
mod effects;
mod end;
mod history;
mod liveness;

pub use self::end::EndState;
pub(crate) use self::end::end_state;
use crate::run::Truth;

/// What must not happen and did, each in one sentence that begins with the name of the rule.
pub(crate) fn violations(truth: &Truth<'_>) -> Vec<String> {
    let history = history::History::of(truth);
    let mut found = deletions::violations(truth, &history);
    found.extend(effects::violations(truth, &history));
    found.extend(liveness::violations(truth));
    found
}
