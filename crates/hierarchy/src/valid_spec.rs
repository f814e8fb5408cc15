//! Specs validated once into what plans work on; `v1alpha1` ends here. What is wrong with amounts is kept with them: it does not keep
//! the rest of a spec from being in force.

use std::collections::BTreeSet;

use coppice_api::metadata::{NamespaceMetadata, TreeMetadata};
use coppice_api::namespace_tree::Propagation;
use coppice_api::subnamespace::QuotaRequest;
use coppice_api::{Amounts, DeletionPolicy, NamespaceTreeSpec, QuotaTransferSpec, SubnamespaceSpec};
use coppice_quantity::Quantity;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::resource_name::ResourceName;
use crate::resources::{Resources, ResourcesError};

/// The spec of a `NamespaceTree`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "NamespaceTreeSpec")]
pub struct ValidTree {
    /// The namespace at the top.
    pub root: String,
    /// What the namespaces of the tree have together; or why that is no quota.
    pub quota: Result<Resources, ResourcesError>,
    /// What every request has to name; nothing if that is not understood.
    pub required: BTreeSet<ResourceName>,
    /// How far below the root namespaces may be.
    pub max_depth: u32,
    /// How many namespaces the tree has at most, its root included.
    pub max_namespaces: u32,
    /// Patterns of the names that namespaces may have.
    pub names: Vec<String>,
    /// Namespaces right below the root that no transfer leads into or out of.
    pub partitions: Vec<String>,
    /// What becomes of the namespaces when the tree is deleted.
    pub deletion_policy: DeletionPolicy,
    /// Which labels and annotations namespaces inherit, and may ask for.
    pub metadata: TreeMetadata,
    /// Which objects are copied.
    pub propagate: Propagation,
}

impl From<NamespaceTreeSpec> for ValidTree {
    fn from(spec: NamespaceTreeSpec) -> Self {
        let NamespaceTreeSpec { root, quota, max_depth, max_namespaces, names, .. } = spec;
        let required = quota.required.iter().map(|name| (name.as_str(), Quantity::ZERO));
        let required = Resources::parse(required).unwrap_or_default();
        Self {
            root,
            quota: Resources::of(&quota.hard),
            required: required.iter().map(|(name, _)| name.clone()).collect(),
            max_depth,
            max_namespaces,
            names,
            partitions: spec.partitions,
            deletion_policy: spec.deletion_policy,
            metadata: spec.metadata,
            propagate: spec.propagate,
        }
    }
}

/// The spec of a `Subnamespace`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "SubnamespaceSpec", into = "SubnamespaceSpec")]
pub struct ValidSubnamespace {
    /// As it was written: it is copied where the namespace moves.
    written: Option<Amounts>,
    asked: Result<Resources, ResourcesError>,
    /// The labels and annotations that are asked for.
    pub metadata: NamespaceMetadata,
    /// Until when all below may be deleted with it.
    pub cascade_until: Option<Timestamp>,
}

impl ValidSubnamespace {
    /// The quota that is asked for, nothing if it is left out.
    ///
    /// # Errors
    /// Why it is no quota.
    pub const fn asked(&self) -> Result<&Resources, &ResourcesError> {
        self.asked.as_ref()
    }

    /// Whether both ask for the same quota in the same words.
    pub fn asks_as(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl From<SubnamespaceSpec> for ValidSubnamespace {
    fn from(spec: SubnamespaceSpec) -> Self {
        let SubnamespaceSpec { quota, metadata, cascade_until } = spec;
        let asked =
            quota.as_ref().map_or_else(|| Ok(Resources::default()), |quota| Resources::of(&quota.hard));
        let written = quota.map(|quota| quota.hard.into_iter().collect());
        Self { written, asked, metadata, cascade_until }
    }
}

/// As `v1alpha1` writes it.
impl From<ValidSubnamespace> for SubnamespaceSpec {
    fn from(spec: ValidSubnamespace) -> Self {
        let ValidSubnamespace { written, metadata, cascade_until, .. } = spec;
        let quota = written.map(|written| QuotaRequest { hard: written.into() });
        Self { quota, metadata, cascade_until }
    }
}

/// The spec of a `QuotaTransfer`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "QuotaTransferSpec")]
pub struct ValidTransfer {
    /// The namespace that gets the quota.
    pub to: String,
    /// The nearest namespace that both ends are, or are below of.
    pub through: String,
    /// What moves; or why nothing can.
    pub amount: Result<Resources, InvalidAmount>,
    /// Whether somebody has agreed.
    pub is_approved: bool,
}

/// Why nothing can move.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    /// It is no quota.
    #[error("spec.amount: {0}")]
    Resources(#[from] ResourcesError),
    /// It is nothing.
    #[error("spec.amount: write more than 0 of something")]
    Nothing,
}

impl From<QuotaTransferSpec> for ValidTransfer {
    fn from(spec: QuotaTransferSpec) -> Self {
        let amount = amount(&spec);
        Self { to: spec.to, through: spec.through, amount, is_approved: spec.approved_by.is_some() }
    }
}

/// What moves: of what is named with more than zero.
fn amount(spec: &QuotaTransferSpec) -> Result<Resources, InvalidAmount> {
    let amount = Resources::of(&spec.amount)?;
    let some = amount.iter().filter(|(_, amount)| !amount.is_zero());
    let some = Resources::parse(some.map(|(name, amount)| (name.as_str(), amount)));
    some.ok().filter(|some| !some.is_empty()).ok_or(InvalidAmount::Nothing)
}
