//! The real operator on a real control plane, behind a network that loses, repeats, holds, delays, refuses and lies.
//!
//! Whatever the fault: nothing is deleted that must not be, each policy fires once, sizes are remembered exactly, a
//! webhook has one id; and when the faults are over, what was wished for is reached, and then nothing is written any
//! more but the lease. The API server's audit log is the witness.

mod governed;
mod kills;
mod late_writes;
mod refused;
mod stale_caches;
mod writes;

use coppice_tests::TestCluster;

type Test = anyhow::Result<()>;

/// Holds a manager back.
const HOLD: &str = r#"{"spec":{"hold":{"until":"2099-01-01T00:00:00Z"}}}"#;

/// Patches the manager of a namespace.
async fn patch(test_cluster: &TestCluster, namespace: &str, patch: &str) -> anyhow::Result<()> {
    test_cluster.patch("nsman", namespace, "m", patch).await.map(drop)
}

/// The whole second that comes in so many.
#[allow(clippy::disallowed_methods, reason = "something is to happen during the test")]
fn in_seconds(seconds: i64) -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    format!("{at:.0}")
}
