//! Every kind that users write, one file each: spec, status, CEL rules with the sentence a user reads, printer
//! columns; and the names (labels, annotations, reasons) that more than one crate must agree on.
//!
//! Pure: no client, no clock. The CRDs in `deploy/` are generated from here by `cargo xtask generate`.

pub mod amounts;
pub mod channel;
pub mod cluster_manager;
pub mod condition;
pub mod config;
pub mod decode_error;
pub mod deleted_namespace;
pub mod health;
pub mod identity;
pub mod limits;
pub mod lint;
pub mod losses;
pub mod managed_namespace;
pub mod manager;
pub mod metadata;
pub mod names;
pub mod namespace_tree;
pub mod notify;
pub mod observed;
pub mod owner;
pub mod quota_transfer;
pub mod reason;
pub mod scaled_down;
pub mod schema;
pub mod selector;
pub mod steps;
pub mod subnamespace;
pub mod text;

pub use amounts::Amounts;
pub use cluster_manager::{
    ClusterNamespaceManager, ClusterNamespaceManagerSpec, ClusterNamespaceManagerStatus,
};
pub use config::{CoppiceConfig, CoppiceConfigSpec, CoppiceConfigStatus};
pub use decode_error::DecodeError;
pub use deleted_namespace::{DeletedNamespace, DeletedNamespaceSpec, DeletedNamespaceStatus, DeletionPhase};
pub use health::{FailingObject, HealthReason, HealthRecord, HealthSpec, HealthState};
pub use limits::Limits;
pub use losses::Losses;
pub use managed_namespace::{ManagedNamespace, ManagedNamespaceSpec, ManagedNamespaceStatus, NamespacePhase};
pub use manager::{NamespaceManager, NamespaceManagerSpec, NamespaceManagerStatus};
pub use metadata::{MetadataKeys, MetadataSet, NamespaceMetadata, TreeMetadata};
pub use namespace_tree::{DeletionPolicy, NamespaceTree, NamespaceTreeSpec, NamespaceTreeStatus};
pub use quota_transfer::{
    QuotaTransfer, QuotaTransferSpec, QuotaTransferStatus, TransferPhase, TransferStop,
};
pub use reason::Reason;
pub use scaled_down::{ScaledDown, ScaledWorkload};
pub use selector::{Labels, Selector};
pub use steps::{RareSteps, Steps};
pub use subnamespace::{Subnamespace, SubnamespacePhase, SubnamespaceSpec, SubnamespaceStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;

/// The definitions of all our kinds, in the order in which they are installed.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let (mut config, mut record) = (crd::<CoppiceConfig>(), crd::<ManagedNamespace>());
    let there_is_one = "there is one CoppiceConfig, named coppice: edit that one";
    require_name(&mut config, names::CONFIG_NAME, there_is_one);
    let there_is_one = "there is one ManagedNamespace in a namespace, named coppice: edit that one";
    require_name(&mut record, names::MANAGED_NAMESPACE_NAME, there_is_one);
    let mut subnamespace = crd::<Subnamespace>();
    require(
        &mut subnamespace,
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",
        "a Subnamespace creates the namespace of its name: write at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit",
    );
    vec![
        crd::<ClusterNamespaceManager>(),
        config,
        crd::<DeletedNamespace>(),
        record,
        crd::<NamespaceManager>(),
        crd::<NamespaceTree>(),
        crd::<QuotaTransfer>(),
        subnamespace,
    ]
}

/// The definition of one kind, by the conventions of all of ours.
pub fn crd<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            apply_api_conventions(root);
        }
    }
    crd
}

/// Makes of a schema by Rust's types one by Kubernetes' conventions. Optional fields may be left out, not be null: the
/// API server then treats a null as left out, so that what is stored has one form and rules need not tell the two
/// apart. Formats of unsigned integers are not known to it; their ranges are in `minimum` and `maximum`.
fn apply_api_conventions(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    // What refuses unknown fields when it is decoded; the API server prunes them.
    schema.additional_properties = schema
        .additional_properties
        .take()
        .filter(|more| !matches!(more, JSONSchemaPropsOrBool::Bool(false)));
    schema.format = schema.format.take().filter(|format| !format.starts_with("uint"));
    schema.properties.iter_mut().flatten().for_each(|(_, child)| apply_api_conventions(child));
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => apply_api_conventions(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(apply_api_conventions),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(child)) = &mut schema.additional_properties {
        apply_api_conventions(child);
    }
}

/// An object of another name would be silently ignored: it is refused instead.
fn require_name(crd: &mut CustomResourceDefinition, name: &str, message: &str) {
    require(crd, &format!("self.metadata.name == '{name}'"), message);
}

/// Refuses every object about which this is not true.
fn require(crd: &mut CustomResourceDefinition, rule: &str, message: &str) {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            root.x_kubernetes_validations = Some(vec![ValidationRule {
                rule: rule.to_owned(),
                message: Some(message.to_owned()),
                ..ValidationRule::default()
            }]);
        }
    }
}
