//! The operator and cluster managers: who governs a namespace, and what its policies do to it.

mod oracle;
mod scenarios;

use std::sync::Arc;

use coppice_sim::Operator;

pub(super) use self::oracle::governing;
pub use self::oracle::rule;
use super::Suite;

/// The suite.
pub const SUITE: Suite = Suite {
    name: "cluster",
    about: "the operator, and the cluster managers",
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
    one_place_in: 61,
    fixed_seeds: 2000,
    fresh_seeds: 300,
    digests: "src/suite/cluster/digests.txt",
};
