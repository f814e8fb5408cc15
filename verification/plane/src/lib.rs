//! A real Kubernetes control plane on loopback, for tests and the demo.
//!
//! [`Plane::start`] runs etcd, the API server, the controller manager, the scheduler and KWOK with one fake node, on free
//! ports and with throw-away certificates. A pod does what its label [`OUTCOME_LABEL`] says; for tests without running pods
//! there is [`Pods::Pending`]. The product under test is the user [`OPERATOR`], with no rights but those that the test
//! applies from what the product ships.
//!
//! The binaries are built once from the Go modules under `tools/`; see [`Binaries`].

mod api;
mod audit;
mod config;
mod definitions;
mod error;
mod flags;
mod garden;
mod pki;
mod plane;
mod process;
pub mod proxy;
mod stages;
mod template;
mod tools;
mod workdir;

pub use audit::AuditEvent;
pub use config::{ADMIN, ALICE, BOB, NODE, OPERATOR, User, VIEWER};
pub use error::{Error, Result};
pub use garden::{ClientAuthority, Garden};
pub use plane::{HISTORY_ARGS, Options, Plane, Pods};
pub use stages::{DELAY_ANNOTATION, DELETE_DELAY_ANNOTATION, OUTCOME_LABEL, OUTCOMES};
pub use template::Template;
pub use tools::{
    BIN_VARIABLE, Binaries, CACHE_VARIABLE, TOOLS_VARIABLE, cluster_api, gardener, helm, mail_server,
    promtool,
};
