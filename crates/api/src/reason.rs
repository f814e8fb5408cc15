//! Every reason that Coppice gives, for acting and for not acting. The same words reach status, conditions, Events,
//! metrics, logs and `coppice explain`.

/// Why something was decided, done, or not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    // A policy's verdict
    /// The ttl has elapsed.
    TtlElapsed,
    /// The ttl has not elapsed yet.
    TtlRunning,
    /// Every pod that counts has succeeded.
    PodsSucceeded,
    /// The namespace is younger than `initialDelay`.
    InitialDelay,
    /// Fewer pods than `minPods` have been seen to succeed.
    TooFewPods,
    /// A pod is pending or running.
    PodsNotFinished,
    /// A pod has failed and no completed Job outweighs it.
    PodFailed,
    /// A Job has failed.
    JobFailed,
    /// A Job has not completed.
    JobNotComplete,
    /// A pod that has not succeeded is being deleted; what follows it is not known yet.
    PodTerminating,
    /// The condition holds, but not yet for `settle`.
    Settling,
    /// The kubelet has not reported a pod's state.
    PodStateUnknown,
    /// A pod's Job has not been seen.
    JobNotSeen,
    /// A source of facts has not answered completely since the start.
    NotSynced,
    /// A source of facts has been silent for too long.
    Stale,
    /// The API server refuses us a source of facts.
    Forbidden,
    /// An object of a source of facts cannot be decoded: what is in its namespace is not known until it changes or is gone.
    Undecodable,
    /// An object of a source of facts is larger than what is kept of one.
    TooLarge,
    // What a manager waits for
    /// Policies are being watched.
    Watching,
    /// A policy has fired; the manager is dormant until its policies change or it is re-armed.
    Dormant,
    /// Another version of Coppice has fired a policy or decided a step, and wrote a digest that this one does not
    /// understand: nothing fires until the manager is re-armed.
    DigestNotUnderstood,
    /// `spec.suspend` is true.
    Suspended,
    /// `spec.hold` has not ended.
    Held,
    /// A step has been decided and is being carried out.
    InProgress,
    /// A step failed and will be tried again.
    Retrying,
    /// Notice has been given and runs.
    NoticeRunning,
    /// The namespace is being deleted.
    NamespaceTerminating,
    // Impossible
    /// The namespace is protected.
    NamespaceProtected,
    /// The platform does not allow tenants this action.
    ActionNotAllowed,
    /// The platform does not allow webhooks to this host.
    HostNotAllowed,
    /// The platform does not allow managers in this namespace.
    NamespaceNotSelected,
    /// The manager's spec cannot be understood.
    InvalidSpec,
    /// The platform's scale-down kinds do not include this one.
    KindNotAllowed,
    /// The namespace has twenty older managers.
    TooManyManagers,
    /// More workloads are to be scaled down than status can remember.
    TooManyWorkloads,
    /// The manager's status was written by another version and cannot be understood.
    StatusNotUnderstood,
    /// Working on the manager ended in a bug of Coppice; it is tried again.
    ReconcilePanicked,
    // Of CoppiceConfig
    /// Every entry of the settings is in force.
    Understood,
    /// Entries of the settings cannot be understood.
    InvalidEntries,
    // What stops a step
    /// `CoppiceConfig/coppice` does not exist.
    SettingsMissing,
    /// The kill switch is on.
    Paused,
    /// The governor's budget is spent for now.
    BudgetSpent,
    /// The governor's state could not be read or written.
    GovernorUnavailable,
    /// This machine's clock and the API server's differ too much.
    ClockSkew,
    /// The facts changed between decision and action.
    NoLongerTrue,
    /// The manager's policies changed between decision and action.
    PoliciesChanged,
    /// The object was replaced by another of the same name.
    Replaced,
    // What was done
    /// The namespace's deletion was accepted by the API server.
    NamespaceDeleted,
    /// Workloads were scaled down.
    ScaledDown,
    /// Workloads were woken.
    Woken,
    /// The webhook's receiver answered with success.
    WebhookDelivered,
    /// The webhook's attempts are used up.
    WebhookGivenUp,
    /// Notice of a deletion was given.
    DeletionAnnounced,
    /// Notice of a deletion was withdrawn.
    NoticeWithdrawn,
    /// A decided step was given up.
    Abandoned,
    /// An attempt at a step failed.
    ActionFailed,
    /// A decision to act was recorded.
    PolicyFired,
}

impl Reason {
    /// The reason as it is written everywhere, in the `CamelCase` of the Kubernetes API conventions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TtlElapsed => "TtlElapsed",
            Self::TtlRunning => "TtlRunning",
            Self::PodsSucceeded => "PodsSucceeded",
            Self::InitialDelay => "InitialDelay",
            Self::TooFewPods => "TooFewPods",
            Self::PodsNotFinished => "PodsNotFinished",
            Self::PodFailed => "PodFailed",
            Self::JobFailed => "JobFailed",
            Self::JobNotComplete => "JobNotComplete",
            Self::PodTerminating => "PodTerminating",
            Self::Settling => "Settling",
            Self::PodStateUnknown => "PodStateUnknown",
            Self::JobNotSeen => "JobNotSeen",
            Self::NotSynced => "NotSynced",
            Self::Stale => "Stale",
            Self::Forbidden => "Forbidden",
            Self::Undecodable => "Undecodable",
            Self::TooLarge => "TooLarge",
            Self::Watching => "Watching",
            Self::Dormant => "Dormant",
            Self::DigestNotUnderstood => "DigestNotUnderstood",
            Self::Suspended => "Suspended",
            Self::Held => "Held",
            Self::InProgress => "InProgress",
            Self::Retrying => "Retrying",
            Self::NoticeRunning => "NoticeRunning",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::NamespaceProtected => "NamespaceProtected",
            Self::ActionNotAllowed => "ActionNotAllowed",
            Self::HostNotAllowed => "HostNotAllowed",
            Self::NamespaceNotSelected => "NamespaceNotSelected",
            Self::InvalidSpec => "InvalidSpec",
            Self::KindNotAllowed => "KindNotAllowed",
            Self::TooManyManagers => "TooManyManagers",
            Self::TooManyWorkloads => "TooManyWorkloads",
            Self::StatusNotUnderstood => "StatusNotUnderstood",
            Self::ReconcilePanicked => "ReconcilePanicked",
            Self::Understood => "Understood",
            Self::InvalidEntries => "InvalidEntries",
            Self::SettingsMissing => "SettingsMissing",
            Self::Paused => "Paused",
            Self::BudgetSpent => "BudgetSpent",
            Self::GovernorUnavailable => "GovernorUnavailable",
            Self::ClockSkew => "ClockSkew",
            Self::NoLongerTrue => "NoLongerTrue",
            Self::PoliciesChanged => "PoliciesChanged",
            Self::Replaced => "Replaced",
            Self::NamespaceDeleted => "NamespaceDeleted",
            Self::ScaledDown => "ScaledDown",
            Self::Woken => "Woken",
            Self::WebhookDelivered => "WebhookDelivered",
            Self::WebhookGivenUp => "WebhookGivenUp",
            Self::DeletionAnnounced => "DeletionAnnounced",
            Self::NoticeWithdrawn => "NoticeWithdrawn",
            Self::Abandoned => "Abandoned",
            Self::ActionFailed => "ActionFailed",
            Self::PolicyFired => "PolicyFired",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
