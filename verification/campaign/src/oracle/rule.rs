//! Rules, and what was found to break them. Each can be switched off, to show that what it finds nothing else finds.
//!
//! The constants are the rules of every suite; each suite has its own besides.

use std::collections::BTreeMap;
use std::fmt;

/// A rule, by its name. What breaks it is one sentence that begins with that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub &'static str);

/// A destructive step was asked for, by whoever may, and sent by a replica.
pub const REQUESTED: Rule = Rule("FAIL TO KEEP");
/// Nothing is done to a protected namespace.
pub const PROTECTED: Rule = Rule("PROTECTED");
/// Nothing is done while everything is paused.
pub const PAUSED: Rule = Rule("PAUSED");
/// Nothing is done by who was shown a list that collapsed, until somebody has acknowledged it.
pub const BREAKER: Rule = Rule("BREAKER");
/// No more steps a minute than the settings say.
pub const PER_MINUTE: Rule = Rule("PER MINUTE");
/// No more steps an hour than the settings say.
pub const PER_HOUR: Rule = Rule("PER HOUR");
/// No more steps an hour than the share of the managed namespaces.
pub const SHARE: Rule = Rule("SHARE");
/// Nothing is done by a replica whose clock is wrong.
pub const CLOCKS: Rule = Rule("CLOCKS");
/// Destructive requests name the uid and the revision that was decided about.
pub const PRECONDITIONS: Rule = Rule("ONE DECISION, ONE UID");
/// There is an intent in status before each effect.
pub const INTENT_FIRST: Rule = Rule("CRASH-ONLY");
/// There is a record of the decision before a namespace is deleted, and it says what became of it.
pub const RECORDED: Rule = Rule("RECORDED");
/// Notice was given, and has run.
pub const NOTICE: Rule = Rule("NOTICE");
/// The date of a notice never moves earlier.
pub const NOTICE_DATE: Rule = Rule("NOTICE DATE");
/// Each firing has one effect, and what has fired does not fire again by itself.
pub const ONCE: Rule = Rule("ONCE");
/// Who writes holds the lease.
pub const LEASE: Rule = Rule("LEASE");
/// No finalizer or owner is touched, but the one finalizer by which our own kinds are cleaned up after.
pub const NO_FOREIGN_CHANGES: Rule = Rule("LEAVES CLEANLY");
/// Nothing is written or asked in vain when all is done.
pub const QUIET: Rule = Rule("QUIET");
/// Nothing panics.
pub const PANIC: Rule = Rule("PANIC");
/// Everything that a scenario's people do succeeds.
pub const SCRIPT: Rule = Rule("SCRIPT");

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What was found, of all rules but one.
pub struct Findings {
    without: Option<Rule>,
    found: Vec<String>,
    judged: BTreeMap<&'static str, u64>,
}

impl Findings {
    pub(super) const fn new(without: Option<Rule>) -> Self {
        Self { without, found: Vec::new(), judged: BTreeMap::new() }
    }

    /// Counts that there was something that a rule is about, whether or not it is switched off.
    pub fn judges(&mut self, rule: Rule) {
        *self.judged.entry(rule.0).or_default() += 1;
    }

    /// Notes what broke a rule, unless it is switched off.
    pub fn add(&mut self, rule: Rule, what: &str) {
        if self.without != Some(rule) {
            self.found.push(format!("{rule}: {what}"));
        }
    }

    /// Asks whether a rule is kept: always, if it is switched off.
    pub fn require(&self, rule: Rule, kept: bool, or: impl FnOnce() -> String) -> Result<(), Broken> {
        if kept || self.without == Some(rule) { Ok(()) } else { Err((rule, or())) }
    }

    /// How much was found so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// What was found, and how often the rules that count it had something to judge.
    pub(crate) fn into_parts(self) -> (Vec<String>, BTreeMap<&'static str, u64>) {
        (self.found, self.judged)
    }
}

/// A rule, and what broke it.
pub type Broken = (Rule, String);
