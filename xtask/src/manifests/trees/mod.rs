//! Trees of namespaces: the operator's program with the argument `trees`, as a Deployment with an account and a Lease of its own.

mod admission;
mod copies;
mod policies;
mod rules;
mod transfers;
mod workload;

use coppice_api::names::TREES_ACCOUNT;

use super::component::Component;
use super::{Install, lifecycle};

/// The component of one installation.
pub(crate) fn component(install: &Install) -> Component {
    Component {
        name: "trees",
        program: TREES_ACCOUNT,
        binary: lifecycle::PROGRAM,
        account: TREES_ACCOUNT,
        namespace: None,
        crds: Vec::new(),
        optional: true,
        cluster_rules: rules::cluster(),
        local_rules: rules::local(),
        user_roles: rules::user_roles(install),
        policies: policies::policies(install),
        workload: workload::workload(install),
        on_demand: Vec::new(),
    }
}
