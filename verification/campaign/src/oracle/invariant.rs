//! What is asked of a run, rule by rule. Each can be switched off, to show that what it finds nothing else finds.

use std::fmt;

/// A rule. What breaks it is one sentence that begins with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A destructive step has a manager whose policies ask for it.
    Requested,
    /// The ttl, and `extendUntil`, are over.
    Ttl,
    /// Enough pods that count have succeeded, and none stands against it.
    Pods,
    /// Every Job that counts is complete.
    Jobs,
    /// `initialDelay` is over.
    InitialDelay,
    /// The pods have held for as long as `settle` says, without a break.
    Settle,
    /// Notice was given, and has run.
    Notice,
    /// The date of a notice never moves earlier.
    NoticeDate,
    /// Nothing is done to what is held.
    Held,
    /// Nothing is done to what is suspended.
    Suspended,
    /// Only workloads that the policy selects are scaled down.
    Selected,
    /// Nothing is done to a protected namespace.
    Protected,
    /// Nothing is done while everything is paused.
    Paused,
    /// No more steps a minute than the settings say.
    PerMinute,
    /// No more steps an hour than the settings say.
    PerHour,
    /// No more steps an hour than the share of the managed namespaces.
    Share,
    /// Nothing is done by a replica whose clock is wrong.
    Clocks,
    /// Destructive requests name the uid and the revision that was decided about.
    Preconditions,
    /// There is an intent in status before each effect.
    IntentFirst,
    /// There is a record of the decision before a namespace is deleted, and it says what became of it.
    Recorded,
    /// Sizes are remembered before they change, and given back exactly.
    OriginalReplicas,
    /// Each firing has one effect, and policies fire once.
    Once,
    /// Who writes holds the lease.
    Lease,
    /// No finalizer or owner is touched.
    NoForeignChanges,
    /// Nothing is written or asked in vain when all is done.
    Quiet,
    /// Nothing panics.
    Panic,
    /// Everything that a scenario's people do succeeds.
    Script,
}

impl Invariant {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "FAIL TO KEEP",
            Self::Ttl => "TTL",
            Self::Pods => "PODS",
            Self::Jobs => "JOBS",
            Self::InitialDelay => "INITIAL DELAY",
            Self::Settle => "SETTLE",
            Self::Notice => "NOTICE",
            Self::NoticeDate => "NOTICE DATE",
            Self::Held => "HELD",
            Self::Suspended => "SUSPENDED",
            Self::Selected => "SELECTED",
            Self::Protected => "PROTECTED",
            Self::Paused => "PAUSED",
            Self::PerMinute => "PER MINUTE",
            Self::PerHour => "PER HOUR",
            Self::Share => "SHARE",
            Self::Clocks => "CLOCKS",
            Self::Preconditions => "ONE DECISION, ONE UID",
            Self::IntentFirst => "CRASH-ONLY",
            Self::Recorded => "RECORDED",
            Self::OriginalReplicas => "REMEMBERED",
            Self::Once => "ONCE",
            Self::Lease => "LEASE",
            Self::NoForeignChanges => "LEAVES CLEANLY",
            Self::Quiet => "QUIET",
            Self::Panic => "PANIC",
            Self::Script => "SCRIPT",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was found, of all rules but one.
pub(crate) struct Findings {
    without: Option<Invariant>,
    found: Vec<String>,
}

impl Findings {
    pub(super) const fn new(without: Option<Invariant>) -> Self {
        Self { without, found: Vec::new() }
    }

    /// Notes what broke a rule, unless it is switched off.
    pub(super) fn add(&mut self, invariant: Invariant, what: &str) {
        if self.without != Some(invariant) {
            self.found.push(format!("{invariant}: {what}"));
        }
    }

    /// Asks whether a rule is kept: always, if it is switched off.
    pub(super) fn require(
        &self,
        invariant: Invariant,
        kept: bool,
        or: impl FnOnce() -> String,
    ) -> Result<(), Broken> {
        if kept || self.without == Some(invariant) { Ok(()) } else { Err((invariant, or())) }
    }

    pub(super) fn all(self) -> Vec<String> {
        self.found
    }
}

/// A rule, and what broke it.
pub(super) type Broken = (Invariant, String);
