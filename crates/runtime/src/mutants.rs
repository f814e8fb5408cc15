//! Bugs made on purpose, so that it can be shown that the campaigns of `coppice-sim` find them.
//!
//! They exist with the feature `mutants` alone, which nothing but those tests switches on; without it [`active`] is the constant
//! `false`, and nothing of them is left in a program.

/// A bug that an operator of this kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Namespaces are deleted without uid and resourceVersion.
    NoPreconditions,
    /// Intents are about a name: statuses are patched and namespaces deleted whatever their uid is.
    KeyedByName,
    /// Work begins before the watches have synced, and an empty cache is taken for an empty world.
    ActBeforeSync,
    /// What came of a step is written down before the step is taken.
    OutcomeBeforeEffect,
    /// Who holds the lease deletes by what the caches say, without a fresh look.
    LeaseTrustedAlone,
    /// Every look at a manager writes its status.
    StatusEveryLoop,
    /// Every manager is looked at each second, by asking the API server.
    Polling,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoPreconditions,
        Self::KeyedByName,
        Self::ActBeforeSync,
        Self::OutcomeBeforeEffect,
        Self::LeaseTrustedAlone,
        Self::StatusEveryLoop,
        Self::Polling,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Makes this bug the one that the current thread has, or none.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

/// Whether the current thread has this bug.
#[cfg(feature = "mutants")]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Whether the current thread has this bug: never, in a program.
#[cfg(not(feature = "mutants"))]
pub const fn active(_: Mutant) -> bool {
    false
}
