//! The native quotas of namespaces of trees: `ResourceQuota` named [`TREE_QUOTA_NAME`], with a ledger beside its limits.

use coppice_api::names::{ANNOTATION_LEDGER, LABEL_TREE, TREE_QUOTA_NAME};
use coppice_hierarchy::{Ledger, Quota, ResourceName, Resources, TwoNames};
use coppice_runtime::decode::{ObjectRef, Unreadable};
use coppice_runtime::kind::{Kind, Meta, is_later};
use serde::Deserialize;

/// Every native quota of a namespace of a tree.
#[derive(Debug)]
pub struct TreeQuotas;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeQuota {
    /// The namespace.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
    /// The uid.
    pub uid: Box<str>,
    /// The revision that was read.
    pub resource_version: Box<str>,
    /// The tree that it belongs to. None of a quota that somebody else wrote.
    pub tree: Option<Box<str>>,
    /// The names in `spec.hard` for which we write shorter ones, such as `requests.cpu`: whoever writes an amount removes them.
    pub aliases: Box<[Box<str>]>,
    /// What it says; or why that cannot be understood.
    pub quota: Result<Quota, InvalidQuota>,
}

/// Why a quota cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuota {
    /// The amounts of a field are none.
    #[error("{field}: {why}")]
    Amounts {
        /// The field.
        field: &'static str,
        /// What is wrong with them.
        why: String,
    },
    /// Its annotation is no ledger.
    #[error("the annotation {ANNOTATION_LEDGER}: {why}")]
    Ledger {
        /// What is wrong with it.
        why: String,
    },
}

/// One of them on the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TreeQuotaWire {
    metadata: QuotaMeta,
    spec: AmountsWire,
    status: AmountsWire,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct QuotaMeta {
    #[serde(flatten)]
    meta: Meta,
    labels: QuotaLabels,
    annotations: QuotaAnnotations,
}

/// The labels that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct QuotaLabels {
    #[serde(rename = "coppice.dev/tree")]
    tree: Option<Box<str>>,
}

/// The annotations that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct QuotaAnnotations {
    #[serde(rename = "coppice.dev/ledger")]
    ledger: Option<Box<str>>,
}

/// Amounts as they are on the wire: understood later, so that one odd quota cannot stop the watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AmountsWire {
    hard: serde_json::Value,
    used: serde_json::Value,
}

impl TreeQuotaWire {
    fn quota(&self) -> Result<Quota, InvalidQuota> {
        let ledger = self.metadata.annotations.ledger.as_deref();
        let ledger: Ledger = serde_json::from_str(ledger.unwrap_or("null"))
            .map_err(|error| InvalidQuota::Ledger { why: error.to_string() })?;
        Ok(Quota {
            // What is there under two names is not as it is recorded, whatever the amounts are, and is written again under one.
            hard: amounts("spec.hard", &self.spec.hard, TwoNames::Neither)?,
            // Both limits hold.
            enforced: amounts("status.hard", &self.status.hard, TwoNames::Smaller)?,
            used: amounts("status.used", &self.status.used, TwoNames::Larger)?,
            ledger,
        })
    }

    fn aliases(&self) -> Box<[Box<str>]> {
        let names = self.spec.hard.as_object().into_iter().flat_map(serde_json::Map::keys);
        let is_alias =
            |name: &&String| name.parse::<ResourceName>().is_ok_and(|known| known.as_str() != name.as_str());
        names.filter(is_alias).map(|name| name.as_str().into()).collect()
    }
}

fn amounts(
    field: &'static str,
    written: &serde_json::Value,
    two_names: TwoNames,
) -> Result<Resources, InvalidQuota> {
    if written.is_null() {
        return Ok(Resources::default());
    }
    let invalid = |why: String| InvalidQuota::Amounts { field, why };
    let written = serde_json::from_value(written.clone()).map_err(|error| invalid(error.to_string()))?;
    Resources::of_quota(&written, two_names).map_err(|error| invalid(error.to_string()))
}

impl Kind for TreeQuotas {
    type Object = TreeQuota;
    type Wire = TreeQuotaWire;
    type Context = ();
    const RESOURCE: &'static str = "resourcequotas";
    const GROUP_PATH: &'static str = "/api/v1";
    const LABEL_SELECTOR: &'static str = LABEL_TREE;
    /// Where a quota is missing, nothing is deleted.
    const CAN_COLLAPSE: bool = false;

    fn object_ref(wire: &TreeQuotaWire) -> ObjectRef {
        wire.metadata.meta.object_ref()
    }

    fn keep(wire: &TreeQuotaWire, (): &()) -> bool {
        &*wire.metadata.meta.name == TREE_QUOTA_NAME
    }

    fn project(wire: TreeQuotaWire, (): &()) -> Result<TreeQuota, Unreadable> {
        let (quota, aliases) = (wire.quota(), wire.aliases());
        let QuotaMeta { meta, labels, .. } = wire.metadata;
        Ok(TreeQuota {
            namespace: meta.namespace,
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            tree: labels.tree,
            aliases,
            quota,
        })
    }

    fn name(object: &TreeQuota) -> &str {
        &object.name
    }

    fn is_newer(object: &TreeQuota, other: &TreeQuota) -> bool {
        object.uid == other.uid && is_later(&object.resource_version, &other.resource_version)
    }
}
