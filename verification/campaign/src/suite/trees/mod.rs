//! Trees of namespaces: their program beside the operator, and the quotas that must hold at every revision.

mod apart;
mod cascades;
mod end;
mod generated;
mod membership;
mod oracle;
mod pods;
#[expect(clippy::unwrap_used, reason = "a number that does not fit is a mistake of the model")]
mod reference;
mod requests;
mod reviewed;
mod scenarios;
mod webhook;

use std::sync::Arc;

use coppice_api::names::SYSTEM_NAMESPACE;
use coppice_operator::TreeReviewer;
use coppice_serve::admission::{Admission, AdmissionMetrics};
use coppice_sim::{Operator, Program, ReplicaContext, Webhook, WebhookConfiguration};
use coppice_trees::replica::{NAME, Replica, Setup};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

pub use self::oracle::rule;
pub use self::reference::{AgainstSums, against_sums};
pub use self::webhook::CONFIGURATION;
use super::lifecycle::end::effects;
use super::replica::{CONCURRENCY, ReplicaEnvironment};
use super::{GeneratedScenarios, Suite};

/// The suite.
pub const SUITE: Suite = Suite {
    name: "trees",
    about: "trees of namespaces, whose quotas hold",
    programs: || vec![Arc::new(Operator::default()), Arc::new(Trees)],
    scenarios: scenarios::all,
    small: scenarios::small,
    apart: apart::all,
    generated: &[
        GeneratedScenarios { name: generated::NAME, of_seed: generated::generated, one_in: Some(3) },
        GeneratedScenarios { name: generated::CASCADES, of_seed: generated::cascades, one_in: None },
    ],
    rules: oracle::check,
    own_budget: oracle::own_budget,
    end_state: end::end_state,
    end_lines: end::end_lines,
    effects,
    one_place_in: 61,
    fixed_seeds: 2000,
    fresh_seeds: 300,
    digests: "src/suite/trees/digests.txt",
};

/// The program of trees.
struct Trees;

/// Its account.
const ACCOUNT: &str = "system:serviceaccount:coppice-system:coppice-trees";

impl Program for Trees {
    fn account(&self) -> &'static str {
        ACCOUNT
    }

    fn lease(&self) -> (&str, &str) {
        (SYSTEM_NAMESPACE, NAME)
    }

    fn webhook(&self) -> Option<WebhookConfiguration> {
        Some(webhook::CONFIGURATION)
    }

    fn run(&self, context: ReplicaContext) -> BoxFuture<'static, anyhow::Result<()>> {
        run(context).boxed()
    }
}

async fn run(context: ReplicaContext) -> anyhow::Result<()> {
    let webhook_port = context.webhook_port.clone();
    let mut environment = ReplicaEnvironment::new(context);
    let (election, gate) = environment.election(SYSTEM_NAMESPACE, NAME)?;
    let ReplicaEnvironment { clients, server_clock, metrics, readiness, identity, rng, intervals } =
        environment;
    let admission_metrics = AdmissionMetrics::new(&metrics);
    let setup = Setup {
        own_namespace: SYSTEM_NAMESPACE.to_owned(),
        clients,
        server_clock,
        metrics,
        readiness,
        gate,
        identity,
        concurrency: CONCURRENCY,
        rng,
        intervals,
    };
    let replica = Replica::new(setup);
    let admission = Admission::new(TreeReviewer(replica.reviews()), admission_metrics);
    let served: Arc<dyn Webhook> = Arc::new(webhook::Served(admission));
    webhook_port.serve(&served);
    replica.run(election, Handle::current(), std::future::pending()).await
}
