//! The CRDs, from the types in `coppice-api`.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Install;

/// One object for each kind, in the order in which they are installed.
pub(crate) fn objects(install: &Install) -> anyhow::Result<Vec<Value>> {
    coppice_api::crds().iter().map(|crd| object(install, crd)).collect()
}

/// Kinds that a component alone has.
pub(crate) fn of_component(install: &Install, crds: &[impl serde::Serialize]) -> Vec<Value> {
    // Each is JSON and has a name.
    crds.iter().filter_map(|crd| object(install, crd).ok()).collect()
}

fn object(install: &Install, crd: &impl serde::Serialize) -> anyhow::Result<Value> {
    let mut object = serde_json::to_value(crd)?;
    let name = object.pointer("/metadata/name").and_then(Value::as_str).context("a CRD without a name")?;
    let metadata = install.cluster(name);
    object["metadata"] = metadata;
    Ok(object)
}

/// For the chart: Helm neither upgrades what is in a folder `crds`, nor should it delete these with the release, since
/// that would delete every object of the kind.
pub(crate) fn keep(crd: &mut Value) {
    crd["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
}
