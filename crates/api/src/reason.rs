//! Every reason that Coppice gives, for acting and for not acting. The same words reach status, conditions, Events,
//! metrics, logs and `coppice explain`.
//!
//! What a reason means, where users see it and what they can do is here and nowhere else: `docs/reasons.md` is generated
//! from it.

mod place;

pub use place::ReasonPlace;

/// What to do: `nothing`, or a text.
macro_rules! advice {
    (nothing) => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}

/// The reasons from one table, so that none can be without its texts: a group; for each reason its meaning, where it is
/// seen, and what users can do.
macro_rules! reasons {
    ($($group:literal {
        $($(#[doc = $meaning:literal])+ $reason:ident: [$($place:ident),+], $advice:tt;)+
    })+) => {
        /// Why something was decided, done, or not done.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($($(#[doc = $meaning])+ $reason,)+)+
        }

        impl Reason {
            /// Every reason, by what it is about.
            pub const GROUPS: &'static [(&'static str, &'static [Self])] =
                &[$(($group, &[$(Self::$reason),+])),+];

            /// The reason as it is written everywhere, in the `CamelCase` of the Kubernetes API conventions.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Self::$reason => stringify!($reason),)+)+
                }
            }

            /// What it means: sentences, in Markdown.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $($(Self::$reason => concat!($($meaning),+).trim_ascii(),)+)+
                }
            }

            /// Where users see it.
            pub const fn places(self) -> &'static [ReasonPlace] {
                match self {
                    $($(Self::$reason => &[$(ReasonPlace::$place),+],)+)+
                }
            }

            /// What users can do, if anything: sentences, in Markdown.
            pub const fn advice(self) -> Option<&'static str> {
                match self {
                    $($(Self::$reason => advice!($advice),)+)+
                }
            }
        }
    };
}

reasons! {
    "The verdict on a policy" {
        /// The ttl has elapsed.
        TtlElapsed: [Verdict, Cause], nothing;
        /// The ttl has not elapsed.
        TtlRunning: [Verdict, NextStep],
            "To make it fire later, set `spec.extendUntil` or a hold.";
        /// The namespace is `Unstable`, `Failing` or `Failed`, and its cluster manager has a policy for that.
        Unhealthy: [Cause], "Read `status.failing` of its ManagedNamespace.";
        /// A later namespace for the same merge request, branch or commit has taken its place, and its cluster manager has a policy
        /// for that.
        Superseded: [Cause], "Read `status.supersededBy` of its ManagedNamespace; set `spec.hold` of that to keep the namespace.";
        /// Every pod that counts has succeeded.
        PodsSucceeded: [Verdict, Cause], nothing;
        /// The namespace is younger than `initialDelay`.
        InitialDelay: [Verdict, NextStep], nothing;
        /// Fewer pods than `minPods` have succeeded.
        TooFewPods: [Verdict, NextStep], nothing;
        /// A pod is pending or running.
        PodsNotFinished: [Verdict, NextStep], nothing;
        /// A pod has failed and no completed Job outweighs it.
        PodFailed: [Verdict, NextStep], "Remove the pod, or narrow the selector.";
        /// A Job has failed.
        JobFailed: [Verdict, NextStep], "Remove the Job, or narrow the selector.";
        /// A Job has not completed.
        JobNotComplete: [Verdict, NextStep], nothing;
        /// A pod that had not succeeded is being deleted. What follows it is not known yet.
        PodTerminating: [Verdict, NextStep, Ready], nothing;
        /// The condition holds, but not yet for `settle`. Of a `ManagedNamespace`: its cluster manager, as it is now, has not
        /// governed it for `settle` yet.
        Settling: [Verdict, NextStep], nothing;
        /// The state of a pod is not known: its node does not answer.
        PodStateUnknown: [Verdict, NextStep, Ready], "Look at the node, or remove the pod.";
        /// A pod's Job has not been seen.
        JobNotSeen: [Verdict, NextStep, Ready], nothing;
        /// A source of facts has not been listed since the operator started.
        NotSynced: [Verdict, NextStep, Accepted, Ready, Blocked], "See the operator's `/readyz?verbose`.";
        /// A cluster manager names an annotation with which the namespaces have not been listed since. What it selects, or
        /// when that expires, is not known until they are, which takes seconds; nothing is done by it before.
        AnnotationsNotRead: [NextStep, Ready],
            "If it stays so for a minute, see the operator's `/readyz?verbose`: it cannot list namespaces.";
        /// No update of a source of facts has been received for 90 s.
        Stale: [Verdict, NextStep, Accepted, Ready, Blocked], "Look at the API server and the network.";
        /// The API server refuses the operator a source of facts.
        Forbidden: [Verdict, NextStep, Accepted, Ready, Blocked], "Apply the ClusterRole of `deploy/install.yaml`.";
        /// A pod or Job of the namespace, or the namespace itself, cannot be decoded. Conditions that look at its kind
        /// wait; a ttl does not look at pods or Jobs. Of a Subnamespace: the status of one below it cannot be decoded.
        Undecodable: [Verdict, NextStep, Accepted, Ready, Blocked, Unreadable],
            "Do what the message says; if it says nothing, change or delete the object that it names.";
        /// The labels of a pod, of a Job's pod template or of the namespace have more than 8 KiB. The effect
        /// is that of `Undecodable`.
        TooLarge: [Verdict, NextStep, Accepted, Ready, Blocked, Unreadable],
            "Remove labels from the object that the message names, or delete it.";
    }
    "What a manager waits for" {
        /// The spec is valid and permitted by the platform settings.
        Accepted: [Accepted], nothing;
        /// The spec is in force and nothing that it asks for is failing.
        Reconciled: [Ready, Settings, Propagated], nothing;
        /// No policy has fired since the policies were changed or the manager was re-armed.
        NotFired: [Fired], nothing;
        /// Policies are being watched.
        Watching: [NextStep], nothing;
        /// The cluster manager or its policy observes: it shows what it would do, and does nothing.
        Observing: [NextStep], "To let it act, set `mode` to `Enforce`.";
        /// The ttl is that of the namespace's annotation, which `spec.ttl.fromAnnotation` of the cluster manager names.
        TtlByAnnotation: [Ttl, Expiry], nothing;
        /// The ttl is `spec.ttl.after` of the cluster manager: the namespace does not have the annotation that
        /// `spec.ttl.fromAnnotation` names, or that names none.
        TtlByManager: [Ttl, Expiry], nothing;
        /// The namespace's annotation that `spec.ttl.fromAnnotation` of the cluster manager names is no duration: the ttl is
        /// `spec.ttl.after`.
        TtlNotUnderstood: [Ttl, Expiry], "Write the annotation as the message says, or remove it.";
        /// `spec.extendUntil` of the `ManagedNamespace` is later than the ttl's own date.
        Extended: [Expiry], nothing;
        /// The cluster manager that governs the namespace has no ttl.
        NoTtl: [Expiry], nothing;
        /// Nothing that the namespace's annotation, `spec.hold` or `spec.extendUntil` asks for goes beyond `spec.limits` of its
        /// cluster manager.
        WithinLimits: [Limits], nothing;
        /// The namespace's annotation, `spec.hold` or `spec.extendUntil` asks for more than `spec.limits` of its cluster
        /// manager permits. It counts up to that limit.
        LimitExceeded: [Event, Limits], "Ask for less, or ask the platform.";
        /// The labels and annotations say what the namespace was made for.
        Identified: [Identity], nothing;
        /// The labels and annotations do not say what the namespace was made for: it supersedes no other, and none supersedes it.
        NoIdentity: [Identity], "Have the CI that makes the namespace write what the message says.";
        /// No cluster manager selects the namespace.
        NotGoverned: [NextStep, Expiry], nothing;
        /// The `ManagedNamespaces` of some governed namespaces do not show yet that this manager governs them, as it is now.
        /// Nothing is done to those namespaces.
        RecordsPending: [Ready],
            "If it stays so, do what the message says: a quota or an admission policy may refuse ManagedNamespaces.";
        /// This spec of the cluster manager makes more namespaces due than the hourly budget, and nobody has approved that.
        /// Nothing is done to those namespaces; what becomes due as time passes does not wait for it.
        ApprovalNeeded: [NextStep, Event, Blocked, Approved],
            "Look at `status.enforce` of the ClusterNamespaceManager. If that is what you want, set `spec.approval` as the message of its condition `Approved` says.";
        /// `spec.approval` covers what this spec makes due.
        ApprovalGiven: [Approved], nothing;
        /// This spec does not make more namespaces due than the hourly budget.
        ApprovalNotNeeded: [Approved], nothing;
        /// Somebody deletes the `ManagedNamespace`, and a finalizer keeps it. Nothing is done to the namespace before it is gone; then
        /// there is a new one.
        RecordTerminating: [NextStep, Ready, Blocked],
            "Remove the finalizer, or ask its owner to remove it.";
        /// A namespace of this name was deleted three times within 24 hours, and something makes it again each time. It is left
        /// alone until `status.next.due`.
        RecreatedTooOften: [NextStep, Blocked],
            "Remove the namespace from what applies it, such as Argo CD or Flux, or exclude it from the cluster manager.";
        /// How many namespaces this spec of the cluster manager makes due is not counted yet, and so not whether that needs
        /// approval.
        NotCounted: [NextStep, Approved], "If it stays so for a minute, look at the operator's log.";
        /// The hourly budget is not less than what becomes due in an hour.
        BudgetSufficient: [Budget], nothing;
        /// Every governed namespace says who owns it.
        OwnersKnown: [Owners], nothing;
        /// Some governed namespaces do not say who owns them.
        OwnersMissing: [Owners],
            "Have the CI that makes them write one of the annotations and labels of `spec.owner`.";
        /// Of every governed namespace it is known what it was made for.
        IdentitiesKnown: [Identities], nothing;
        /// Of some governed namespaces it is not: they supersede no other, and none supersedes them.
        IdentitiesMissing: [Identities],
            "Read the condition `Identified` of their ManagedNamespaces, and have the CI that makes them write what that says.";
        /// `CoppiceConfig` has every channel that the cluster manager names.
        ChannelsKnown: [Channels], nothing;
        /// It does not have some of them. They deliver nothing. Announced deletions wait if no other channel is configured.
        ChannelsMissing: [Channels],
            "Add what the message names to `spec.channels` of CoppiceConfig, or correct `spec.notify.channels`.";
        /// More namespaces become due in an hour than the budget allows destructive steps: deletions fall behind.
        BudgetBelowArrivals: [Event, Budget], "Raise what the message names in CoppiceConfig.";
        /// A policy has fired. The manager is dormant until its policies change or it is re-armed.
        Dormant: [NextStep], "To fire again, set `spec.rearm` to `status.firings`, or change the policies.";
        /// Another version of Coppice has fired a policy or decided a step, and this version does not understand its
        /// digest: whether policies have changed since is not known, so nothing fires.
        UnsupportedDigest: [NextStep, Ready], "Run that version, or do what the message says instead.";
        /// Nothing fails at present in a namespace that has been failing, but it has not recovered for long enough yet. Nothing
        /// is done for its health unless something fails again.
        Recovering: [NextStep], nothing;
        /// `spec.suspend` is true, of the manager or of the cluster manager that governs the namespace.
        Suspended: [NextStep, Access], "To go on, set `spec.suspend` to false.";
        /// `spec.hold` has not ended.
        Held: [NextStep], "To go on earlier, remove `spec.hold`.";
        /// Which limits apply to the managers in this namespace is not known: the cluster managers have not been listed, or one
        /// of them cannot be understood. Nothing is done until they are.
        LimitsUnknown: [NextStep, Accepted, Ready, Blocked],
            "If the message names a ClusterNamespaceManager, correct or delete that; otherwise see the operator's `/readyz?verbose`.";
        /// A step has been decided and is being carried out.
        InProgress: [NextStep, Cause], nothing;
        /// A step failed and will be tried again.
        Retrying: [NextStep, Ready], "Read `status.intent.lastError`.";
        /// The namespace's cluster manager, or a manager in it, deletes it, and not later: one notice and one deletion are enough.
        /// If that deletion is abandoned, this one continues.
        DeletedByAnother: [NextStep], nothing;
        /// A webhook of a manager in the namespace is under way, which the deletion waits for: ten minutes at most after its time.
        WebhookPending: [NextStep], nothing;
        /// Notice has been given and runs.
        NoticeRunning: [NextStep], "To prevent the deletion, extend, hold or suspend.";
        /// Nobody has been notified of the deletion yet, which waits for that.
        NoticeUndelivered: [NextStep, Blocked],
            "Read what the message says of each channel; correct it, or let the namespace name an owner who can be reached.";
        /// The namespace is being deleted.
        NamespaceTerminating: [NextStep, Ready, Event], "If it takes long, `coppice doctor` says why.";
    }
    "What is impossible here" {
        /// The namespace is protected and a policy would delete or scale it down; or it belongs to Kubernetes or Coppice, and would be
        /// the root of a tree.
        NamespaceProtected: [NextStep, Accepted, Ready, Event, Blocked], "Remove the policy, or ask the platform; create the NamespaceTree for another namespace.";
        /// The action is not among `spec.tenants.actions` of CoppiceConfig, or `spec.limits.tenantActions` of the cluster manager
        /// that governs the namespace.
        ActionNotAllowed: [NextStep, Accepted, Ready, Event, Blocked], "Ask the platform.";
        /// `spec.tenants.webhookHosts` of CoppiceConfig, or `spec.limits.webhookHosts` of the cluster manager that governs the
        /// namespace, does not permit the webhook's host.
        HostNotAllowed: [NextStep, Accepted, Ready, Event, Blocked], "Ask the platform; the message names the entry that would permit it.";
        /// `spec.tenants.namespaceSelector` of CoppiceConfig does not select this namespace.
        NamespaceNotSelected: [NextStep, Accepted, Ready, Event, Blocked], "Ask the platform.";
        /// The spec cannot be understood: it was written past the API server's checks, or for another version. Or the URL of
        /// a webhook leads nowhere: it has credentials, a fragment or the port 0.
        InvalidSpec: [NextStep, Accepted, Ready, Event, Blocked, AccessBlocked, Access], "Correct what the message names.";
        /// The installation does not scale this kind.
        KindNotAllowed: [NextStep, Accepted, Ready, Event, Blocked], "Ask the platform (`scaleKinds` of the chart).";
        /// The namespace has twenty older managers; no more are followed.
        TooManyManagers: [NextStep, Accepted, Ready, Event, Blocked], "Delete one, or write the policies into one of them.";
        /// A scale-down selects more than status can remember: 4,096 workloads, 1 MiB. Nothing is scaled down, and the
        /// manager shows `Retrying`.
        TooManyWorkloads: [Event, Blocked], "Select fewer.";
        /// The status was written by another version and cannot be understood. Nothing is done and status is left as it
        /// is.
        UnsupportedStatus: [Event, Blocked], "Run the version that wrote it.";
        /// Working on the manager ended in a bug of Coppice. It is tried again.
        ReconcilePanicked: [Event], "Report it with the operator's log.";
    }
    "Trees of namespaces" {
        /// The namespace that the Subnamespace is in belongs to no tree.
        NotInTree: [Ready, Event, Blocked], "Ask the platform for a NamespaceTree, or create the Subnamespace in a namespace of a tree.";
        /// The NamespaceTree names a namespace that does not exist, or is another one than when the tree was set up.
        RootMissing: [Ready, Blocked], "Create the namespace that `spec.root` names. If the tree was set up with one that was deleted since, delete the NamespaceTree, and create another one if the namespace is created again.";
        /// The root of the tree is being deleted, or is gone, while other namespaces are below it. They stay with the quota that they
        /// have: there is no namespace above to which they could move.
        RootDeleted: [Ready, Event, Blocked], "Delete the namespaces that the message names, or keep them without a tree: it has the commands.";
        /// The namespace that the NamespaceTree names belongs to another tree already.
        RootTaken: [Ready, Event, Blocked], "Delete this NamespaceTree, and create one for another namespace.";
        /// The tree does not permit namespaces of this name.
        NameNotAllowed: [Ready, Event, Blocked], "Create a Subnamespace with a name as `spec.names` of the NamespaceTree has it.";
        /// The tree does not permit a label or annotation that the Subnamespace asks for.
        MetadataNotAllowed: [Ready, Event, Blocked], "Take what the message names from `spec.metadata` of the Subnamespace, or have the platform add it to `spec.metadata.allowed` of the NamespaceTree.";
        /// There is a namespace of this name that the Subnamespace did not create. Existing namespaces are never taken into a tree by
        /// their name.
        NameTaken: [Ready, Event, Blocked], "Create a Subnamespace with another name, or have a cluster administrator adopt the namespace (`coppice tree adopt`).";
        /// The namespace would be further below the root than `spec.maxDepth` of the NamespaceTree permits.
        TooDeep: [Ready, Event, Blocked], "Create the Subnamespace in a namespace further up, or ask the platform.";
        /// The tree has as many namespaces as `spec.maxNamespaces` of the NamespaceTree permits.
        TooManyNamespaces: [Ready, Event, Blocked], "Delete a Subnamespace that nobody needs, or ask the platform.";
        /// The NamespaceTree was deleted with `deletionPolicy: Detach`: its namespaces are being taken out of it, from the bottom up, and
        /// stay.
        Detaching: [Ready], "Wait. The message says what comes first.";
        /// There is a ResourceQuota named `coppice` in the namespace that belongs to no tree: Coppice did not write it, or left it there when
        /// a tree was taken apart.
        QuotaTaken: [Ready, Event, Blocked], "Delete that ResourceQuota, or first create another one like it if it is to hold besides.";
        /// The quota that is asked for cannot be given. The message has the numbers, and says what to ask for instead.
        QuotaRefused: [Ready, Event, Blocked], "Do what the message says.";
        /// The quota is being changed, which takes until what becomes smaller is in force.
        QuotaChanging: [Ready], nothing;
        /// The namespace has the quota that was asked for.
        QuotaGranted: [Event], nothing;
        /// More is used in the namespace than its quota: it was before the namespace had one, or the API server's own quota admission let a
        /// few objects too many pass, as with every ResourceQuota. Nothing is deleted for it, and nothing was allotted twice. The numbers
        /// are those of when it began.
        Overdraft: [Event, Quota], "Use less, or ask for more quota. Until then nothing more of the resource is admitted in the namespace, and it gives none away.";
        /// No more is used in the namespace than its quota, after there was.
        OverdraftEnded: [Event, Quota], nothing;
        /// The QuotaTransfer needs `spec.approvedBy`.
        PendingApproval: [Ready, Event, Blocked], "Have it approved with `coppice transfer approve`, as the message says.";
        /// The quota is on its way to the namespace that `spec.to` of the QuotaTransfer names, or back.
        QuotaMoving: [Ready], nothing;
        /// The namespace that `spec.to` of the QuotaTransfer names has the quota.
        QuotaMoved: [Ready, Event], nothing;
        /// A QuotaTransfer of the same name, which is gone, has moved the same amount to the same namespace: nothing is transferred again.
        AlreadyApplied: [Ready, Event], "Nothing; or create one with another name, if as much is to be transferred once more.";
        /// Nothing was taken for the QuotaTransfer. The message says why, and what to ask for instead.
        TransferRefused: [Ready, Event, Blocked], "Do what the message says, and create another QuotaTransfer.";
        /// The quota could not arrive, and returned.
        TransferReversed: [Ready, Event, Blocked], "Do what the message says, and create another QuotaTransfer.";
        /// The namespace is being created.
        CreatingNamespace: [Ready], nothing;
        /// The namespace was created.
        NamespaceCreated: [Event], nothing;
        /// Other namespaces of the tree are below the namespace, so it is not deleted.
        HasChildren: [NextStep, Accepted, Ready, Event, Blocked], "Delete the Subnamespaces in the namespace first, or all of them with it: coppice tree delete.";
        /// The namespace is deleted with all below it, as `spec.cascadeUntil` consents to: those first, from the bottom up.
        CascadingDeletion: [Ready, Event], "Wait. The message says which is next, and what it waits for.";
        /// A namespace above is being deleted with all below it, as `spec.cascadeUntil` of its Subnamespace consents to. This one is there
        /// for now, and its turn comes.
        DeletedWithAncestor: [Event, Deletion], "To keep the namespace, protect it, or have the consent taken back: the message has both commands.";
        /// The namespace above is being deleted, and nobody has asked for the deletion of this one: it moves to the nearest one above that
        /// stays, with its quota and all below it.
        MovedToAncestor: [Ready, Event], "Nothing; unless the message says what to delete.";
        /// The namespace has an object of the same name as one that would be copied into it, and Coppice did not write it. It is left as
        /// it is; everything else is copied.
        CopyNameTaken: [Event, Blocked, Propagated], "Delete the object, or rename it or its source.";
        /// The API server refuses a copy; or its source is too large to be copied, or has an annotation `coppice.dev/propagate-to` that is
        /// no label selector. Everything else is copied. A RoleBinding to a ClusterRole other than `admin`, `edit` and `view` needs the
        /// verb `bind` on that ClusterRole.
        CopyRefused: [Event, Blocked, Propagated], "Do what the message says.";
        /// The namespace is deleted because its Subnamespace was.
        SubnamespaceDeleted: [Cause], nothing;
    }
    "Access to other clusters" {
        /// The Secret holds a credential that is valid.
        CredentialValid: [Access], nothing;
        /// No credential was issued yet.
        NotIssued: [Access], nothing;
        /// The ManagedCluster that `spec.cluster.managedCluster` names does not exist yet, or was never ready. The first credential is issued
        /// once it is.
        ClusterNotReady: [AccessBlocked, Access], "Wait, or look at the condition `Ready` of the ManagedCluster.";
        /// The credential in the Secret has expired, and no other could be issued.
        CredentialExpired: [AccessBlocked, Access], "Read `status.lastError`.";
        /// A credential was issued, tried out, and written into the Secret.
        CredentialIssued: [Event], nothing;
        /// Another credential was issued, tried out, and written into the Secret; the one before is revoked next.
        CredentialRotated: [Event], nothing;
        /// The ClusterAccess is being deleted: its credential is revoked, then its rights are removed, then the Secret is deleted.
        Revoking: [Access], nothing;
        /// A ClusterAccess was deleted, and for `spec.forgetAfter`, or until `coppice-access` was uninstalled, its credential could not be revoked
        /// in the cluster that issued it; or its spec or status cannot be understood, so that nobody knows which cluster that is. Its credential
        /// is valid until it expires, and its rights stay in that cluster.
        RevocationSkipped: [Event],
            "Delete what has the label that the message names in the target, once it can be reached.";
        /// A ClusterAccess with the issuer `GardenerAdmin` or `GardenerViewer` is gone. Nobody can revoke its certificates: the message says until
        /// when the last one is valid.
        CertificatesRemain: [Event],
            "If they may be in the wrong hands, rotate the certificate authorities of the Shoot, as Gardener's documentation shows.";
        /// `coppice-access` is being uninstalled. For the ClusterAccess nothing is replaced or revoked any more: its credential is valid until the date
        /// in the message. For the ManagedCluster nothing is changed or deleted any more: its cluster stays as it is.
        Uninstalled: [Event],
            "Give what uses the credential another one before that date. If `coppice-access` is installed again, it goes on.";
        /// The Secret that `spec.output` names was not made for the ClusterAccess. It is left as it is.
        SecretNotOurs: [Event, AccessBlocked, Access], "Delete that Secret, or write the name of another one into a new ClusterAccess.";
        /// The Secret that `spec.output` names is ours, and is immutable or has another type than Opaque: nothing can be written into it.
        SecretUnusable: [Event, AccessBlocked, Access], "Delete that Secret: it is made again.";
        /// The Secret was deleted or edited again and again. It is written again after a pause of 1 to 30 minutes, since each time takes
        /// another credential.
        RestoredTooOften: [Event, AccessBlocked, Access],
            "Find out who changes the Secret that `spec.output` names: `metadata.managedFields` has their field manager.";
        /// 16 credentials that may be valid wait to be revoked. None of them is forgotten, and no other is issued until one is revoked or has
        /// expired.
        TooManySuperseded: [Event, AccessBlocked, Access],
            "Do what the message says, so that credentials can be revoked: mostly the user of the kubeconfig may not delete Secrets in the \
             namespace `coppice-access` of the target.";
        /// The Secret or the key that `spec.cluster` of a ClusterAccess or `spec.credential` of a ClusterProvider names does not exist.
        KubeconfigMissing: [Event, AccessBlocked, Access], "Create the Secret.";
        /// The kubeconfig of `spec.cluster` or of a ClusterProvider cannot be used: it is invalid, or it would run a program, read a file, or send a credential
        /// unprotected.
        KubeconfigRefused: [Event, AccessBlocked, Access], "Do what the message says.";
        /// The kubeconfig of `spec.cluster` leads to another cluster than the one that credentials were issued in. Nothing is issued,
        /// changed or revoked there, and nothing counts as revoked. The Secret holds what it held before. Or the ClusterProvider of a ManagedCluster
        /// leads to another project or garden than the one that its Shoot was made in: nothing is changed or deleted.
        TargetChanged: [Event, AccessBlocked, Access],
            "Write a kubeconfig of the cluster before into that Secret again. For the other cluster, create another ClusterAccess. If the one \
             before is gone for good, delete the ClusterAccess: the Event `RevocationSkipped` comes after `spec.forgetAfter`. Of a ManagedCluster, \
             write the project before into the ClusterProvider.";
        /// The `Cluster` of Cluster API or the ManagedCluster that `spec.cluster` names is being deleted, or is gone. No credential is issued
        /// for it any more; the Secret holds the one that it held before, which is valid until it expires.
        ClusterDeleted: [Event, AccessBlocked, Access], "Delete the ClusterAccess.";
        /// The ClusterProvider that `spec.cluster.provider` or `spec.cluster.gardener.provider` names does not exist, or cannot be understood;
        /// or that of the ManagedCluster which `spec.cluster.managedCluster` names.
        ProviderMissing: [Event, AccessBlocked, Access], "Write the name of another one into a new ClusterAccess; or the platform creates it.";
        /// The ClusterProvider does not allow what the ClusterAccess asks for. Nothing is issued, and no rights are written into the target;
        /// what was issued before is valid until it expires.
        NotAllowed: [Event, AccessBlocked, Access], "Write what the message says; or the platform allows more in `spec.allow` of the ClusterProvider.";
        /// The kubeconfig of a ClusterProvider is there and can be used.
        KubeconfigUsable: [Event, Access], nothing;
        /// The target's API server does not answer, or the garden by which a Shoot is reached.
        TargetUnreachable: [Event, AccessBlocked, Access], "Look at the target and the way there.";
        /// The target's API server, or the garden by which a Shoot is reached, has too many requests (429). Nothing is asked of it before the time that
        /// the message says; what waits for the same ClusterProvider goes on then, the most urgent first.
        TargetThrottled: [Event, AccessBlocked, Access],
            "Wait. If it comes again and again, look which requests the target has so many of, or lower `spec.callsPerMinute` of the ClusterProvider.";
        /// The target's API server refuses a request, or the garden by which a Shoot is reached.
        TargetRefused: [Event, AccessBlocked, Access], "Do what the message says: mostly the user of the kubeconfig lacks a right.";
        /// The credential was issued and does not permit what was asked for, permits more, or is valid for far too long or short: it is not
        /// written into the Secret. Or the one in the Secret was tried out again and is not valid any more.
        VerificationFailed: [Event, AccessBlocked, Access], "Compare `spec.rights` with what the target grants to the identity in status, or do what the message says.";
        /// The Secret could not be written.
        WriteFailed: [Event, AccessBlocked, Access], "Do what the message says.";
    }
    "Managed clusters" {
        /// Everything that is to be made is decided, and is about to be made.
        ClusterPlanned: [Access], nothing;
        /// The calls a minute of the ClusterProvider are used up: the garden is asked at the time that the message has, or later if others are
        /// more urgent.
        ProviderCallsSpent: [AccessBlocked, Access], "Wait, or raise `spec.callsPerMinute` of the ClusterProvider.";
        /// The cluster is being made.
        ClusterCreating: [Access], nothing;
        /// The cluster is being changed.
        ClusterUpdating: [Access], nothing;
        /// The cluster is as the spec of its ManagedCluster says.
        ClusterReady: [Event, Access], nothing;
        /// The ManagedCluster is being deleted, and its cluster first.
        ClusterDeleting: [Access], nothing;
        /// There is a `Cluster` or `Shoot` of that name which was not made for the ManagedCluster, or has lost its label. It is left as it is.
        ClusterNotOurs: [Event, AccessBlocked, Access], "Write a ManagedCluster of another name, or hand that object over by its label.";
        /// The `Cluster` or `Shoot` that was made is gone, or is being deleted by somebody else. No other one is made in its place, which would
        /// be empty.
        ClusterGone: [Event, AccessBlocked, Access], "Delete the ManagedCluster, and write another one for an empty cluster.";
        /// The API server does not know the kind that is to be made.
        ClusterKindMissing: [Event, AccessBlocked, Access], "Do what the message says: mostly Cluster API is to be installed.";
        /// The API server refused to create, change or delete the `Cluster` or `Shoot`, or did not answer whether it did.
        ClusterRefused: [Event, AccessBlocked, Access], "Do what the message says, which is the API server's.";
        /// The deletion of a cluster has failed for as long as `spec.deletion.forceAfter` says, and is forced. What was made in the account of the
        /// cloud may be left there.
        DeletionForced: [Event], "Look in the account of the cloud for what is left, and delete it.";
        /// The provider could not make, change or delete the cluster.
        ClusterFailed: [Event, AccessBlocked, Access], "Do what the message says, which is the provider's.";
        /// What is under way has lasted for longer than an hour. It is still looked at.
        ClusterOverdue: [Event, AccessBlocked, Access], "Look at the conditions of the `Cluster` or `Shoot`.";
    }
    "The platform's settings" {
        /// The spec, an entry of `webhookHosts` or `protected.names`, or the webhook key cannot be understood.
        InvalidEntries: [Settings, Log], "Correct what the message names.";
    }
    "What stops a step" {
        /// `CoppiceConfig/coppice` does not exist. Nothing is done, webhooks included; waking goes on.
        SettingsMissing: [NextStep, Ready, Blocked, Log], "An administrator creates it again.";
        /// `spec.governor.paused` of CoppiceConfig is true: no destructive step is taken.
        Paused: [NextStep, Ready, Event, Blocked, Governor], "An administrator sets it to false.";
        /// A list of the API server lacked much of what was known, and no event explains it: no destructive step is
        /// taken until an administrator has looked at it.
        BreakerOpen: [NextStep, Ready, Event, Blocked, Governor],
            "Find out why the list collapsed, then run `coppice acknowledge` with the id in the message.";
        /// An administrator has acknowledged a breaker: destructive steps are taken again.
        BreakerClosed: [Event], nothing;
        /// The budget is spent for now; `status.next.due` says until when. Of a Subnamespace the message says which limit it is.
        BudgetSpent: [NextStep, Ready, Event, Blocked, Governor], "Wait, or raise the budget.";
        /// What users may delete one by one in this tree of namespaces is spent for now; the message says which tree, and of which
        /// limit. Other trees, and what managers do, neither wait for it nor have spent it.
        TreeBudgetSpent: [Ready, Event, Blocked], "Wait, or raise the budget.";
        /// The ledger of the budget could not be read or written. The manager shows `Retrying` with the error.
        GovernorUnavailable: [Blocked], "Read `status.intent.lastError`.";
        /// The operator's clock and the API server's differ by more than 5 s, or did within the last minute in any
        /// answer; or the answers carry no `Date`. A policy that may have become true meanwhile is `Unknown`. None
        /// fires, webhooks included.
        ClockSkew: [Verdict, NextStep, Ready, Blocked], "Correct the clocks, also those of single API servers.";
    }
    "Why a decided step was given up" {
        /// The facts changed between decision and action.
        NoLongerTrue: [NextStep], nothing;
        /// The policies changed between decision and action.
        PoliciesChanged: [NextStep], nothing;
        /// The step was about another namespace of this name.
        Replaced: [NextStep], nothing;
    }
    "What was done" {
        /// The API server accepted the deletion, or the namespace was found terminating.
        NamespaceDeleted: [Fired, Result, Event, Firings], nothing;
        /// Workloads were scaled down.
        ScaledDown: [Fired, Result, Event, Firings], "To undo it, set `spec.wake` to `status.firings`.";
        /// Something scaled a workload up again after each of three scale-downs. Nothing is scaled down any more; the message names
        /// the field manager that did it.
        RevertedTooOften: [NextStep, Fired, Ready, Result, Event, Firings],
            "Leave the workload out with `selectors` of the policy, or let that field manager leave its replicas alone; waking begins \
             the count again.";
        /// Workloads were woken.
        Woken: [Event], nothing;
        /// The webhook's receiver answered 2xx.
        WebhookDelivered: [Fired, Result, Event, Firings], nothing;
        /// Ten attempts at the webhook have failed, or one in a way that a retry cannot resolve.
        WebhookGivenUp: [Fired, Ready, Result, Event, Firings],
            "Fix the receiver, then set `spec.rearm` to `status.firings`.";
        /// Notice of a deletion was given.
        DeletionAnnounced: [Event], "To prevent the deletion, extend, hold or suspend.";
        /// A message to the owner of a namespace was given up: the channel refused it for good, or every attempt of 24 hours failed.
        NoticeFailed: [Event], "Read the message, and correct the owner's address or the channel.";
        /// Notice of a deletion was withdrawn.
        NoticeWithdrawn: [Event], nothing;
        /// A decided step was given up; the message says why.
        Abandoned: [Event], nothing;
        /// An attempt at a step failed. It is tried again after 1 s, 2 s, 4 s … at most 5 min.
        ActionFailed: [Event], "Read the message; the last error is also in `status.intent.lastError`.";
        /// A decision to act was recorded.
        PolicyFired: [Event], nothing;
    }
}

impl Reason {
    /// The reason that is written so; none of this version if there is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::GROUPS.iter().flat_map(|(_, reasons)| *reasons);
        all.find(|reason| reason.as_str() == text).copied()
    }

    /// Those that users see at this place.
    pub fn seen_at(place: ReasonPlace) -> impl Iterator<Item = Self> {
        let all = Self::GROUPS.iter().flat_map(|(_, reasons)| *reasons).copied();
        all.filter(move |reason| reason.places().contains(&place))
    }

    /// The reason that is said now, if it was not said before and users see it at this place.
    pub fn begins_at(place: ReasonPlace, before: Option<&str>, now: Option<&str>) -> Option<Self> {
        let begins = Self::parse(now.filter(|now| before != Some(*now))?)?;
        begins.places().contains(&place).then_some(begins)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_sentences_on_one_line() {
        for reason in Reason::GROUPS.iter().flat_map(|(_, reasons)| *reasons) {
            for text in [Some(reason.meaning()), reason.advice()].into_iter().flatten() {
                assert!(
                    text.ends_with('.') && text.trim() == text && !text.contains('\n'),
                    "{reason}: {text:?}"
                );
                assert!(!text.contains("  "), "{reason}: {text:?}");
            }
        }
        let two_lines = "The labels of a pod, of a Job's pod template or of the namespace have more than 8 KiB. The effect is that \
                         of `Undecodable`.";
        assert_eq!(Reason::TooLarge.meaning(), two_lines);
    }

    #[test]
    fn a_reason_begins_where_it_was_not_said_before_and_is_seen() {
        let begins = |before, now| Reason::begins_at(ReasonPlace::Blocked, before, now);
        for before in [None, Some("Reconciled"), Some("Paused"), Some("OfAnotherVersion")] {
            assert_eq!(begins(before, Some("QuotaRefused")), Some(Reason::QuotaRefused), "{before:?}");
        }
        for (before, now) in [
            (Some("QuotaRefused"), Some("QuotaRefused")),
            (Some("QuotaRefused"), Some("Reconciled")),
            (Some("QuotaRefused"), None),
            (None, Some("OfAnotherVersion")),
        ] {
            assert_eq!(begins(before, now), None, "{before:?}, {now:?}");
        }
        assert!(Reason::seen_at(ReasonPlace::Blocked).any(|reason| reason == Reason::QuotaRefused));
        assert!(Reason::seen_at(ReasonPlace::Firings).all(|reason| reason != Reason::QuotaRefused));
    }

    #[test]
    fn every_place_is_used_and_none_is_named_twice() {
        let all: Vec<Reason> = Reason::GROUPS.iter().flat_map(|(_, reasons)| *reasons).copied().collect();
        for place in ReasonPlace::ALL {
            assert!(all.iter().any(|reason| reason.places().contains(&place)), "{place:?}");
        }
        for reason in all {
            assert!(
                reason.places().is_sorted_by(|a, b| a < b),
                "{reason}: in the order of the page, each once"
            );
        }
    }
}
