//! The sample of `docs/adding-a-controller.md`, beside the operator: its program has an account and a Lease of its own, and
//! takes its deletions from the same budget.

mod oracle;
mod scenarios;

use std::sync::Arc;

use coppice_api::names::SYSTEM_NAMESPACE;
use coppice_sample::replica::{self, NAME, Setup};
use coppice_sim::{Operator, Program, ReplicaContext};
use futures::FutureExt as _;
use futures::future::BoxFuture;

pub use self::oracle::EXPIRED;
use super::Suite;
use super::lifecycle::end;
use super::replica::ReplicaEnvironment;

/// The suite.
pub const SUITE: Suite = Suite {
    name: "sample",
    about: "the sample controller, and the operator",
    programs: || vec![Arc::new(Operator::default()), Arc::new(Sample)],
    scenarios: scenarios::all,
    small: scenarios::small,
    apart: Vec::new,
    generated: &[],
    rules: oracle::check,
    own_budget: |_, _| None,
    end_state: oracle::end_state,
    end_lines: oracle::end_lines,
    effects: end::effects,
    one_place_in: 61,
    fixed_seeds: 100,
    fresh_seeds: 20,
    digests: "src/suite/sample/digests.txt",
};

/// The sample's program.
struct Sample;

/// Its account.
const ACCOUNT: &str = "system:serviceaccount:coppice-system:coppice-sample";

impl Program for Sample {
    fn account(&self) -> &'static str {
        ACCOUNT
    }

    fn lease(&self) -> (&str, &str) {
        (SYSTEM_NAMESPACE, NAME)
    }

    fn run(&self, context: ReplicaContext) -> BoxFuture<'static, anyhow::Result<()>> {
        let environment = ReplicaEnvironment::new(context);
        let ReplicaEnvironment { clients, server_clock, metrics, readiness, identity, rng, intervals } =
            environment;
        let setup = Setup { clients, server_clock, metrics, readiness, identity, rng, intervals };
        replica::run(setup, std::future::pending()).boxed()
    }
}
