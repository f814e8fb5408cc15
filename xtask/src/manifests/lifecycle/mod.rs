//! The component that every installation has: the operator, which acts on namespaces.

mod policies;
mod rules;
mod workload;

use coppice_api::names::SERVICE_ACCOUNT;

use super::Install;
use super::component::Component;

/// The name of the program, of its roles, and of its Deployment with Service and `PodDisruptionBudget`.
pub(super) const PROGRAM: &str = "coppice-operator";

/// The component of one installation.
pub(crate) fn component(install: &Install) -> Component {
    Component {
        name: "lifecycle",
        program: PROGRAM,
        binary: PROGRAM,
        account: SERVICE_ACCOUNT,
        namespace: None,
        crds: Vec::new(),
        optional: false,
        cluster_rules: rules::cluster(),
        local_rules: rules::local(),
        user_roles: rules::user_roles(install),
        policies: policies::policies(install),
        workload: workload::workload(install),
        on_demand: vec![(workload::WAKE_ALL_FILE, workload::wake_all(install))],
    }
}
