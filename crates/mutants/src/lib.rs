//! Deliberate bugs, to show that the campaigns of `coppice-campaign` find them. Each disables one guard.
//!
//! They exist with the feature `mutants` alone, which nothing but the tests of `coppice-campaign` switches on; without it [`active`] is
//! the constant `false`, and nothing of them is left in a program. What is built for a release does not compile with it.

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!(
    "the feature `mutants` puts bugs into the program: it is for tests, in profiles with debug assertions"
);

/// A bug that an operator of this kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// `podsSucceed` is true before its `initialDelay` is over.
    InitialDelayIgnored,
    /// `podsSucceed` need not hold for the time of its `settle`.
    SettleIgnored,
    /// `settle`, and the clocks of the health, also count the time in which nothing was observed.
    GapIgnored,
    /// All pods count, whatever `podsSucceed` selects.
    PodSelectorIgnored,
    /// However few pods have succeeded, they are enough.
    MinPodsIgnored,
    /// A Job that is not complete, or has failed, is no obstacle.
    JobsIgnored,
    /// A pod that is cut off by its deletion is no obstacle.
    TerminatingPodsIgnored,
    /// A pod that has failed is no obstacle.
    FailedPodsIgnored,
    /// A list that cannot be read counts as empty.
    UnreadableIsEmpty,
    /// A ttl ends at its own time, whatever `extendUntil` says.
    ExtensionIgnored,
    /// `hold` is ignored.
    HoldIgnored,
    /// `suspend` is ignored.
    SuspendIgnored,
    /// A cluster manager acts, whatever its mode and that of its policies.
    ObserveIgnored,
    /// A cluster manager acts on namespaces that it has not governed for `settle`.
    GovernedSettleIgnored,
    /// A cluster manager acts on more namespaces than the hourly budget that its spec makes due, without approval.
    ApprovalIgnored,
    /// A cluster manager deletes a namespace however often it is made again.
    RecreationIgnored,
    /// A policy of a cluster manager that has scaled down does so again as soon as its users have woken the workloads.
    FiredAgain,
    /// The record of a namespace that no cluster manager selects any more says that one governs it.
    GovernedForEver,
    /// A deletion that is decided is carried out though no cluster manager selects the namespace any more.
    UnselectedDeleted,
    /// The record of a namespace keeps the date of its end that it said first.
    ExpiryKept,
    /// The record of a namespace that has recovered keeps the phase from before.
    PhaseKept,
    /// Of two objects that would delete one namespace none stands back for the other.
    OtherDeletionIgnored,
    /// What fails is `Failed` at once, whatever `settlingPeriod` and `gracePeriod` say.
    HealthClocksIgnored,
    /// Namespaces are deleted for their health while nothing fails in them any more.
    RecoveryIgnored,
    /// A namespace takes the place of an older one before it is ready.
    SuccessorNotReady,
    /// A pod that runs counts as ready where nobody says whether it is.
    UnknownIsReady,
    /// A namespace that is superseded itself supersedes others.
    SupersededSupersedes,
    /// A namespace that is superseded is deleted without looking at its successor again.
    SuccessorByCaches,
    /// Namespaces are deleted for which notice has run, whether or not anybody has been notified.
    DeletedUnnotified,
    /// A namespace is deleted while webhooks of its managers are under way.
    WebhooksLost,
    /// Nobody is notified that a namespace is gone, whatever its record says.
    NotificationLost,
    /// A message that no deletion waits for counts as delivered, whatever came of the attempt.
    UnsentIsDelivered,
    /// A message that no deletion waits for is dropped from the record of its namespace when an attempt has failed.
    FailedNoticeDropped,
    /// The record of a deletion does not list what is not sent any more, since the namespace is gone.
    SupersededUnlisted,
    /// Messages about a namespace go to the fallback, whoever owns it.
    FallbackFirst,
    /// However many messages somebody gets, each is sent by itself.
    NothingJoined,
    /// What messages were joined is dropped: where they have to be sent again, each is one by itself.
    JoinedDropped,
    /// Owners are notified outside their working hours, too.
    HoursIgnored,
    /// Every evaluation gives a message to an owner a key of its own.
    NoticeKeyChanges,
    /// A child is given quota before what was taken for it is in force.
    QuotaGivenAtOnce,
    /// Quota is taken from a namespace that uses it.
    UsedQuotaTaken,
    /// What a change of a quota took, and does not give, does not return.
    QuotaNotReturned,
    /// The quota of a namespace returns while that is being deleted.
    QuotaReturnedAtOnce,
    /// What comes with a namespace that moves up is in the own quota of the one above as well, until it has arrived.
    ArrivingUncounted,
    /// A namespace is deleted since the one above is.
    ParentEndIgnored,
    /// A transfer moves on before what it took is in force.
    TransferAtOnce,
    /// A transfer moves the same amount again, although one of its name has moved it.
    AppliedIgnored,
    /// A Subnamespace has its namespace deleted, whatever is below it.
    ChildrenIgnored,
    /// What is below a Subnamespace is deleted with it when the consent to that is over, too.
    ConsentIgnored,
    /// A Subnamespace takes up a namespace that it did not create.
    NamespaceTakenUp,
    /// What a transfer moves to a namespace or through it stays on its way while that waits to be deleted.
    EndingKeepsQuota,
    /// What was refused for its quota stays refused, whatever becomes free.
    RefusedForEver,
    /// What is asked for once a Subnamespace has quota changes nothing.
    NewRequestIgnored,
    /// What was granted once is granted, also where something else was given since.
    EarlierRequestStands,
    /// A Subnamespace that is being deleted stays when its namespace is gone.
    FinalizerKept,
    /// A transfer moves twice as much as it names.
    TransferDoubled,
    /// A transfer that has arrived goes on.
    TransferUnended,
    /// Copies of role bindings bind another role than their source.
    OtherRoleBound,
    /// What the admission webhook lets through, in a dry run as well, is kept for it.
    ReviewReserves,
    /// The admission webhook denies by what its caches contain, without a fresh read.
    DeniedByCaches,
    /// What the admission webhook may have let through is given, whether or not there is as much.
    AdmittedUnchecked,
    /// Namespaces are deleted without notice.
    NoticeSkipped,
    /// A `NamespaceExpiry` of the sample has its namespace deleted without notice.
    ExpiryNoticeIgnored,
    /// A manager works beyond the limits of the cluster manager that governs its namespace.
    TenantLimitsIgnored,
    /// Where a cluster manager limits holds, none counts at all.
    HoldLimitedAtOnce,
    /// A shorter `notice` brings the date of one that was given forward.
    NoticeMovedEarlier,
    /// No namespace is protected.
    ProtectionIgnored,
    /// What has fired fires again while its condition holds.
    DormancyIgnored,
    /// `rearm` counts whatever firing it names.
    RearmNeverExpires,
    /// The credential of a ClusterAccess is revoked before another one takes its place.
    RevokedFirst,
    /// What the credentials of a ClusterAccess are bound to stays in its target when that is deleted.
    BoundSecretsLeft,
    /// Rights that a ClusterAccess does not ask for any more stay in its target.
    RightsKept,
    /// Where a credential is issued again for an intent, the one before stays valid.
    BoundSecretReused,
    /// What asks a target for a certificate stays there once that is issued.
    SigningRequestLeft,
    /// A certificate that was replaced, and has not expired, is not in status.
    CertificateUnlisted,
    /// `paused` is ignored.
    PauseIgnored,
    /// An open breaker is ignored.
    BreakerIgnored,
    /// What a list that collapsed has shown is dropped at once.
    BreakerDropped,
    /// `perMinute` is ignored.
    PerMinuteIgnored,
    /// `perHour` is ignored.
    PerHourIgnored,
    /// `maxShare` and `atLeast` are ignored.
    ShareIgnored,
    /// What users delete one by one in a tree takes as much an hour as they like.
    TreeBudgetIgnored,
    /// What users delete one by one takes from what all trees have in common.
    TreesShareBudget,
    /// A reservation leaves no entry in the ledger.
    ReservationNotRecorded,
    /// Clocks may differ by any time.
    ClockSkewIgnored,
    /// Namespaces are deleted without uid and resourceVersion.
    NoPreconditions,
    /// Namespaces are deleted without a record of it.
    DeletionNotRecorded,
    /// The record of a deletion is withdrawn while the decision stands.
    RecordWithdrawnAtOnce,
    /// The record of a deletion says that the namespace is gone as soon as it is being deleted.
    DeletedUnread,
    /// Namespaces are deleted without resourceVersion.
    NoRevision,
    /// Workloads are scaled without uid and resourceVersion.
    NoScalePreconditions,
    /// Every workload is scaled down, whatever `selectors` select.
    WorkloadSelectorIgnored,
    /// Wrong original replicas are recorded.
    WrongReplicasRecorded,
    /// A workload of the same name is woken in the place of the one that was scaled down.
    WokenByName,
    /// Namespaces are deleted by what the caches contain, without a fresh read.
    DeleteByCaches,
    /// Namespaces are deleted for their health by what the caches contain of their workloads, without a fresh read.
    WorkloadsByCaches,
    /// For how long something has been failing is believed though events may have been missed.
    GapsUnseen,
    /// Workloads are scaled down by what the caches contain, without a fresh read.
    ScaleByCaches,
    /// A namespace is deleted before the webhooks that are due at the same time are sent.
    DeletedBeforeWebhooks,
    /// What something else scales up again is scaled down again, however often.
    RevertedForEver,
    /// A scale-down continues on its first decision, whatever changes meanwhile.
    ScaleDecidedOnce,
    /// A replica that does not hold the lease works, too.
    LeaseIgnored,
    /// Intents are about a name: statuses are patched and namespaces deleted whatever their uid is.
    KeyedByName,
    /// A ttl that an annotation made shorter counts at once.
    ShortenedTtlAtOnce,
    /// An annotation of a namespace that was not read counts as absent.
    UnreadIsAbsent,
    /// Work starts before the watches have synced, and an empty cache counts as an empty cluster.
    ActBeforeSync,
    /// The outcome of a step is recorded before the step is carried out.
    OutcomeBeforeEffect,
    /// Every reconcile of a manager writes its status.
    StatusEveryLoop,
    /// Every manager is reconciled each second, by polling the API server.
    Polling,
}

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
    static REMEMBERED: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Makes this bug the one that the current thread has, or none. Bugs remember nothing yet.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
    REMEMBERED.take();
}

/// Keeps something for the bug of the current thread.
#[cfg(feature = "mutants")]
pub fn remember(what: String) {
    REMEMBERED.with_borrow_mut(|all| all.push(what));
}

/// Nothing remembers anything.
#[cfg(not(feature = "mutants"))]
pub fn remember(_: String) {}

/// What was kept for the bug of the current thread.
#[cfg(feature = "mutants")]
pub fn remembered() -> Vec<String> {
    REMEMBERED.with_borrow(Clone::clone)
}

/// What was kept for a bug: nothing, in a program.
#[cfg(not(feature = "mutants"))]
pub const fn remembered() -> Vec<String> {
    Vec::new()
}

/// There are no bugs to choose from: does nothing.
#[cfg(not(feature = "mutants"))]
pub const fn activate(_: Option<Mutant>) {}

/// Whether the current thread has this bug.
#[cfg(feature = "mutants")]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether the current thread has a bug at all.
#[cfg(feature = "mutants")]
pub fn any_active() -> bool {
    ACTIVE.get().is_some()
}

/// Whether the current thread has a bug at all: never, in a program.
#[cfg(not(feature = "mutants"))]
pub const fn any_active() -> bool {
    false
}

/// Whether the current thread has this bug: never, in a program.
#[cfg(not(feature = "mutants"))]
pub const fn active(_: Mutant) -> bool {
    false
}
