//! Credentials for another cluster: the program of access, a second API server that issues them, and what must hold of each credential
//! at every instant.

mod end;
mod oracle;
mod scenarios;

use std::sync::Arc;

use coppice_access::replica::{self, Setup};
use coppice_access::{Connect, Unencrypted, User};
use coppice_clusters_api::names::{PROGRAM, SYSTEM_NAMESPACE};
use coppice_runtime::metrics::Metrics;
use coppice_sim::{Program, ReplicaContext, TargetPort};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

pub use self::oracle::rule;
use super::Suite;
use super::replica::{CONCURRENCY, ReplicaEnvironment};

/// The suite.
pub const SUITE: Suite = Suite {
    name: "access",
    about: "credentials for another cluster: each is valid, has no more than its rights, and ends",
    programs: || vec![Arc::new(Access)],
    scenarios: scenarios::all,
    small: scenarios::small,
    apart: Vec::new,
    generated: &[],
    rules: oracle::check,
    own_budget: |_, _| None,
    end_state: end::end_state,
    end_lines: end::end_lines,
    effects: end::effects,
    one_place_in: 61,
    fixed_seeds: 200,
    fresh_seeds: 50,
    digests: "src/suite/access/digests.txt",
};

/// The program of access.
struct Access;

/// Its account.
const ACCOUNT: &str = "system:serviceaccount:coppice-access-system:coppice-access";
/// Where the target is.
const SERVER: &str = "https://target.example:6443";

impl Program for Access {
    fn account(&self) -> &'static str {
        ACCOUNT
    }

    fn lease(&self) -> (&str, &str) {
        (SYSTEM_NAMESPACE, PROGRAM)
    }

    fn run(&self, context: ReplicaContext) -> BoxFuture<'static, anyhow::Result<()>> {
        run(context).boxed()
    }
}

async fn run(context: ReplicaContext) -> anyhow::Result<()> {
    let connect = connect(context.target_port());
    let mut environment = ReplicaEnvironment::new(context);
    let (election, gate) = environment.election(SYSTEM_NAMESPACE, PROGRAM)?;
    let ReplicaEnvironment { clients, server_clock, metrics, readiness, identity, rng, intervals } =
        environment;
    let setup = Setup {
        clients,
        server_clock,
        metrics,
        readiness,
        gate,
        identity,
        namespace: SYSTEM_NAMESPACE.to_owned(),
        concurrency: CONCURRENCY,
        rng,
        intervals,
        unencrypted: Unencrypted::Nowhere,
        managed_clusters: false,
        connect: Some(connect),
    };
    replica::run(setup, election, Handle::current(), std::future::pending()).await
}

/// Reaches the target in the simulation, by the token of a kubeconfig.
fn connect(port: TargetPort) -> Connect {
    Arc::new(move |kubeconfig, server_clock| match &kubeconfig.user {
        User::Token(token) if kubeconfig.cluster.server == SERVER => {
            Some(port.clients(token, server_clock, &Metrics::new("sim")))
        }
        _ => None,
    })
}
