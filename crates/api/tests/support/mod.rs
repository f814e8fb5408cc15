//! The schemas of our kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

/// Of each version of each kind, with the kind's name.
pub(crate) fn schemas() -> Vec<(String, JSONSchemaProps)> {
    let crds = coppice_api::crds().into_iter().chain(coppice_clusters_api::crds());
    crds.flat_map(|crd| {
        let kind = crd.spec.names.kind;
        let versions = crd.spec.versions.into_iter();
        versions.filter_map(move |version| Some((kind.clone(), version.schema?.open_api_v3_schema?)))
    })
    .collect()
}
