//! A real control plane with Coppice installed on it, and words to write tests with.
//!
//! Every wait is for a state, with a deadline; nothing sleeps for a fixed time and hopes.

pub mod demo;
pub mod faulty;
pub mod memory;
pub mod operator;
pub mod proxy;
pub mod pulse;
pub mod receiver;
pub mod requests;
pub mod scale;
pub mod stage;

pub use memory::InMemory;
pub use operator::Operator;
pub use stage::Stage;

use std::sync::LazyLock;

use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

#[allow(clippy::expect_used, reason = "there is no test without a runtime")]
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // No HTTP client can be made without one, be it for plain HTTP. It may be there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
});
static SHARED: OnceCell<(Stage, Operator)> = OnceCell::const_new();

/// Runs a test with a plane of its own.
pub fn alone(test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    RUNTIME.block_on(test)
}

/// Runs a test on the plane, with the operator, that all tests of this binary share: each has namespaces of its own.
pub fn together(test: impl AsyncFnOnce(&Stage, &Operator) -> anyhow::Result<()>) -> anyhow::Result<()> {
    RUNTIME.block_on(async {
        let (stage, operator) = SHARED
            .get_or_try_init(async || {
                let stage = Stage::start_at_once().await?;
                // Tests destroy much in a short time; the budget has tests of its own.
                let config = r#"{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
                    spec: {governor: {perMinute: 100000, perHour: 100000, maxShare: 100%, atLeast: 100000},
                           protected: {names: ["guarded-*"]},
                           tenants: {webhookHosts: ["*.svc", "127.0.0.1"]}}}"#;
                stage.apply(config).await?;
                let operator = Operator::start(&stage).await?;
                anyhow::Ok((stage, operator))
            })
            .await?;
        test(stage, operator).await
    })
}
