//! Credentials for another cluster: the program of access, a second API server that issues them, and what must hold of each credential
//! at every instant.

mod certificates;
mod end;
mod oracle;
mod scenarios;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coppice_access::replica::{self, Setup};
use coppice_access::{Connect, GONE_FOR, MakeKey, Unencrypted, User};
use coppice_clusters_api::names::{PROGRAM, SYSTEM_NAMESPACE};
use coppice_runtime::clock::SeededRng;
use coppice_runtime::metrics::Metrics;
use coppice_sim::target::key;
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
    apart: certificates::all,
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
/// So many random numbers after the first ones of a life, keys are made from them: nothing else takes so many.
const KEYS_FROM: u64 = 1 << 32;
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
    let (connect, make_key) = (connect(context.target_port()), make_key(context.rng.clone()));
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
        gone_for: GONE_FOR,
        connect: Some(connect),
        make_key: Some(make_key),
    };
    replica::run(setup, election, Handle::current(), std::future::pending()).await
}

/// Reaches the target in the simulation, by the token or the certificate of a kubeconfig.
fn connect(port: TargetPort) -> Connect {
    Arc::new(move |kubeconfig, server_clock| {
        if kubeconfig.cluster.server != SERVER {
            return None;
        }
        let metrics = Metrics::new("sim");
        match &kubeconfig.user {
            User::Token(token) => Some(port.clients(token, server_clock, &metrics)),
            User::Certificate { certificate, key } => {
                port.clients_by_certificate((certificate, key), server_clock, &metrics)
            }
        }
    })
}

/// Makes the keys of a life: others than those of every other life, and the same in every run.
fn make_key(rng: SeededRng) -> MakeKey {
    let made = AtomicU64::new(KEYS_FROM);
    Arc::new(move || key(rng.nth(made.fetch_add(1, Ordering::Relaxed))))
}
