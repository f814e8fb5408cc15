//! A workload that is scaled down.

use coppice_api::ScaledWorkload;

/// The Deployment `web` of three replicas, scaled down.
pub(crate) fn web() -> ScaledWorkload {
    ScaledWorkload {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: "web-1".to_owned(),
        replicas: Some(3),
        firing: None,
        reverted: 0,
    }
}
