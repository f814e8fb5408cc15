//! Where users see reasons.

/// Where users see a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonPlace {
    /// The verdict on a policy.
    Verdict,
    /// What comes next.
    NextStep,
    /// Whether a manager's spec is accepted.
    Accepted,
    /// Whether a manager has fired.
    Fired,
    /// Whether a manager's spec is in force.
    Ready,
    /// Why a step was decided.
    Cause,
    /// What came of a step.
    Result,
    /// Events.
    Event,
    /// The metric of what is held back, and of what is refused.
    Blocked,
    /// The same of access to other clusters.
    AccessBlocked,
    /// The metric of what was done.
    Firings,
    /// The metric of objects that cannot be read.
    Unreadable,
    /// What stops destructive steps, in the status of the settings.
    Governor,
    /// The condition of the settings.
    Settings,
    /// Whether a cluster manager has the approval that it needs.
    Approved,
    /// Whether the budget is sufficient for a cluster manager.
    Budget,
    /// Whether every governed namespace has an owner.
    Owners,
    /// Whether it is known of every governed namespace what it was made for.
    Identities,
    /// Whether the settings have every channel that a cluster manager names.
    Channels,
    /// Whether the annotation by which a namespace has a ttl is understood.
    Ttl,
    /// Why the date on which a namespace expires has changed.
    Expiry,
    /// Whether what users ask for is within the limits of their cluster manager.
    Limits,
    /// Whether it is known what a namespace was made for.
    Identity,
    /// Whether a namespace of a tree has what is copied from those above.
    Propagated,
    /// Whether what is used in a namespace of a tree is within its quota.
    Quota,
    /// That a namespace of a tree will be deleted with one above it.
    Deletion,
    /// Whether the credential of a cluster access is valid, how a managed cluster is, and what fails.
    Access,
    /// The operator's log.
    Log,
}

impl ReasonPlace {
    /// Every place, in the order of the page.
    pub const ALL: [Self; 28] = [
        Self::Verdict,
        Self::NextStep,
        Self::Accepted,
        Self::Fired,
        Self::Ready,
        Self::Cause,
        Self::Result,
        Self::Event,
        Self::Blocked,
        Self::AccessBlocked,
        Self::Firings,
        Self::Unreadable,
        Self::Governor,
        Self::Settings,
        Self::Approved,
        Self::Budget,
        Self::Owners,
        Self::Identities,
        Self::Channels,
        Self::Ttl,
        Self::Expiry,
        Self::Limits,
        Self::Identity,
        Self::Propagated,
        Self::Quota,
        Self::Deletion,
        Self::Access,
        Self::Log,
    ];

    /// A word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::NextStep => "next",
            Self::Accepted => "Accepted",
            Self::Fired => "Fired",
            Self::Ready => "Ready",
            Self::Cause => "cause",
            Self::Result => "result",
            Self::Event => "Event",
            Self::Blocked => "blocked",
            Self::AccessBlocked => "access blocked",
            Self::Firings => "firings",
            Self::Unreadable => "unreadable",
            Self::Governor => "governor",
            Self::Settings => "settings",
            Self::Approved => "Approved",
            Self::Budget => "BudgetSufficient",
            Self::Owners => "OwnersKnown",
            Self::Identities => "IdentitiesKnown",
            Self::Channels => "ChannelsKnown",
            Self::Ttl => "TtlUnderstood",
            Self::Expiry => "expiry",
            Self::Limits => "WithinLimits",
            Self::Identity => "Identified",
            Self::Propagated => "Propagated",
            Self::Quota => "WithinQuota",
            Self::Deletion => "DeletionPending",
            Self::Access => "access",
            Self::Log => "log",
        }
    }

    /// Where exactly to look, in Markdown.
    pub const fn location(self) -> &'static str {
        match self {
            Self::Verdict => "`status.policies[].reason` of a NamespaceManager",
            Self::NextStep => "`status.next.reason` of a NamespaceManager or ManagedNamespace",
            Self::Accepted => {
                "the reason of the condition `Accepted` of a NamespaceManager or ClusterNamespaceManager"
            }
            Self::Fired => "the reason of the condition `Fired` of a NamespaceManager",
            Self::Ready => {
                "the reason of the condition `Ready` of a NamespaceManager, ClusterNamespaceManager, ManagedNamespace, NamespaceTree, \
                 Subnamespace or QuotaTransfer"
            }
            Self::Cause => {
                "`status.intent.reason` and `status.lastFiring.reason` of a NamespaceManager or ManagedNamespace"
            }
            Self::Result => "`status.lastFiring.result` of a NamespaceManager or ManagedNamespace",
            Self::Event => {
                "Events about the NamespaceManager, the ManagedNamespace, the ClusterNamespaceManager, the NamespaceTree, the Subnamespace, the \
                 QuotaTransfer, the ClusterAccess, the ManagedCluster, the Namespace or CoppiceConfig; also in the operator's log"
            }
            Self::Blocked => "the metric `coppice_blocked_total`, label `reason`",
            Self::AccessBlocked => "the metric `coppice_access_blocked_total`, label `reason`",
            Self::Firings => "the metric `coppice_firings_total`, label `result`",
            Self::Unreadable => "the metric `coppice_watch_objects_unreadable`, label `reason`",
            Self::Governor => "`status.governor.blocked.reason` of CoppiceConfig",
            Self::Settings => "the reason of the condition `Ready` of CoppiceConfig",
            Self::Approved => "the reason of the condition `Approved` of a ClusterNamespaceManager",
            Self::Budget => "the reason of the condition `BudgetSufficient` of a ClusterNamespaceManager",
            Self::Owners => "the reason of the condition `OwnersKnown` of a ClusterNamespaceManager",
            Self::Identities => "the reason of the condition `IdentitiesKnown` of a ClusterNamespaceManager",
            Self::Channels => "the reason of the condition `ChannelsKnown` of a ClusterNamespaceManager",
            Self::Ttl => "the reason of the condition `TtlUnderstood` of a ManagedNamespace",
            Self::Expiry => "`status.expiryChanges[].reason` of a ManagedNamespace",
            Self::Limits => "the reason of the condition `WithinLimits` of a ManagedNamespace",
            Self::Identity => "the reason of the condition `Identified` of a ManagedNamespace",
            Self::Propagated => "the reason of the condition `Propagated` of a Subnamespace",
            Self::Quota => "the reason of the condition `WithinQuota` of a NamespaceTree or Subnamespace",
            Self::Deletion => "the reason of the condition `DeletionPending` of a Subnamespace",
            Self::Access => {
                "the reason of the conditions `Ready`, `Reachable`, `Verified` and `Written` of a ClusterAccess, and its \
                 `status.lastError.reason`; the reason of the condition `Ready` of a ClusterProvider; the reasons of the conditions of a \
                 ManagedCluster, and its `status.lastError.reason`"
            }
            Self::Log => "the operator's log, at `warn` or `error`",
        }
    }
}
