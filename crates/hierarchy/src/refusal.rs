//! Why a namespace does not get the quota that is asked for, with numbers and a way out.

use coppice_quantity::Quantity;

use crate::resource_name::ResourceName;

/// Why a request is refused. The message has the numbers, and says what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaRefusal {
    /// The tree does not limit the resource.
    #[error("{name}: the tree has no quota of it: remove it, or ask for one of these: {known}")]
    NotInTree {
        /// What was asked for.
        name: ResourceName,
        /// What the tree limits.
        known: String,
    },
    /// The parent has too little that it does not use itself.
    #[error(
        "{name}: needs {needed} more, and {parent} can give {unused}: {used} of its own {own} are used; ask for at most \
         {most}{}", from(.sibling.as_ref(), name, *needed, *unused)
    )]
    TooLittle {
        /// The resource.
        name: ResourceName,
        /// How much more than now was asked for.
        needed: Quantity,
        /// Who would give it.
        parent: String,
        /// Its own quota,
        own: Quantity,
        /// what of that is used,
        used: Quantity,
        /// and what is not.
        unused: Quantity,
        /// What would be given at once.
        most: Quantity,
        /// The sibling that has most to give, and how much.
        sibling: Option<(String, Quantity)>,
    },
    /// The namespace cannot do with less.
    #[error(
        "{name}: {namespace} uses {used} and gave {given} to its children: ask for at least {least}, or remove some of it first"
    )]
    InUse {
        /// The resource.
        name: ResourceName,
        /// Who has it.
        namespace: String,
        /// What is used,
        used: Quantity,
        /// what its children have,
        given: Quantity,
        /// and both together.
        least: Quantity,
    },
    /// The source of a transfer uses what it was to give.
    #[error(
        "{name}: {namespace} can give {unused}: {used} of its own {own} are used; transfer at most {unused} of the {amount}"
    )]
    CannotGive {
        /// The resource.
        name: ResourceName,
        /// Who would give it.
        namespace: String,
        /// How much was to be transferred.
        amount: Quantity,
        /// The own quota of the source,
        own: Quantity,
        /// what of that is used,
        used: Quantity,
        /// and what is not.
        unused: Quantity,
    },
    /// Somebody has deleted the transfer.
    #[error("the QuotaTransfer was deleted before the quota had arrived")]
    Cancelled,
    /// A namespace on the way of a transfer is gone.
    #[error("namespace {namespace} is gone")]
    Gone {
        /// Which.
        namespace: String,
    },
    /// More was used while the quota became smaller.
    #[error(
        "{name}: {namespace} still uses {used} of the {own} that it would keep; the quota is what it was, ask again when less is used"
    )]
    StillUsed {
        /// The resource.
        name: ResourceName,
        /// Who uses it.
        namespace: String,
        /// What is used,
        used: Quantity,
        /// and what of its own quota would have remained.
        own: Quantity,
    },
    /// The API server did not put the smaller quota into force.
    #[error(
        "the smaller quota of {namespace} was not in force within 30s; the quota is what it was: see whether \
         kube-controller-manager runs, and ask again"
    )]
    NotInForce {
        /// Whose quota.
        namespace: String,
    },
    /// The request has changed before it was carried out.
    #[error("another quota is asked for meanwhile")]
    Superseded,
    /// Somebody else has written the quota of the namespace.
    #[error(
        "the quota of {namespace} was not what it had been given; it is what it was, and the change is decided again"
    )]
    Disturbed {
        /// Whose quota.
        namespace: String,
    },
}

impl QuotaRefusal {
    /// The same for readers of the namespace that is refused, who need not know what there is beside it.
    #[must_use]
    pub fn without_sibling(&self) -> Self {
        let mut refusal = self.clone();
        if let Self::TooLittle { sibling, .. } = &mut refusal {
            *sibling = None;
        }
        refusal
    }
}

/// The way out: what the parent lacks, or a part of it, comes back from a sibling.
fn from(
    sibling: Option<&(String, Quantity)>,
    name: &ResourceName,
    needed: Quantity,
    unused: Quantity,
) -> String {
    let Some((sibling, has)) = sibling else { return String::new() };
    let lacks = needed.checked_sub(unused).unwrap_or(needed).min(*has);
    format!(
        ", or have {sibling}, which does not use {has}, give {lacks} back (coppice give-back {sibling} --amount {name}={lacks})"
    )
}
