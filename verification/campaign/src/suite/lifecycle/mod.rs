//! The operator and the managers of namespaces: policies, their conditions and actions, and what stands against them.

mod oracle;
mod scenarios;

use std::sync::Arc;

use coppice_sim::Operator;

pub(super) use self::oracle::end;
pub(super) use self::oracle::evidence::{EvidenceScope, holds as evidence_holds, matches};
pub(super) use self::oracle::firings::scalings;
pub(super) use self::oracle::justified::by_managers;
pub use self::oracle::rule;
pub(super) use self::scenarios::unavailable;
pub use self::scenarios::wrong_input;
use super::Suite;

/// The suite.
pub const SUITE: Suite = Suite {
    name: "lifecycle",
    about: "the operator, and the managers of namespaces",
    programs: || vec![Arc::new(Operator::default())],
    scenarios: scenarios::all,
    small: scenarios::small,
    apart: scenarios::apart,
    generated: &[],
    rules: oracle::check,
    own_budget: |_, _| None,
    end_state: oracle::end::end_state,
    end_lines: oracle::end::lines,
    effects: oracle::end::effects,
    one_place_in: 47,
    fixed_seeds: 2000,
    fresh_seeds: 300,
    digests: "src/suite/lifecycle/digests.txt",
};
