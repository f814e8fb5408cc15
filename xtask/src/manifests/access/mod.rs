//! Credentials for other clusters: a program with an account, a Lease and a namespace of its own, since it may do what no other may:
//! read and write Secrets.

mod policies;
mod rules;
mod workload;

use coppice_clusters_api::names::{PROGRAM, SYSTEM_NAMESPACE};

use super::component::Component;
use super::{Install, crds};

/// The component of one installation.
pub(crate) fn component(install: &Install) -> Component {
    let own = install.within(SYSTEM_NAMESPACE);
    Component {
        name: "access",
        program: PROGRAM,
        binary: PROGRAM,
        account: PROGRAM,
        namespace: Some(SYSTEM_NAMESPACE),
        crds: crds::of_component(install, &coppice_clusters_api::crds()),
        optional: true,
        cluster_rules: rules::cluster(),
        local_rules: rules::local(),
        user_roles: rules::user_roles(&own),
        policies: policies::policies(&own),
        workload: workload::workload(&own),
        on_demand: vec![(workload::RELEASE_ALL_FILE, workload::release_all(&own))],
    }
}
