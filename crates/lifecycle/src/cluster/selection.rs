//! Which cluster manager governs a namespace.

use std::cmp::Reverse;
use std::fmt;

use coppice_api::managed_namespace::GoverningManager;

use super::ValidClusterManager;
use crate::facts::NamespaceFacts;
use crate::glob;

/// A cluster manager, as observed.
#[derive(Clone, Copy, Debug)]
pub struct ClusterManagerFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted itself: its policies no longer apply.
    pub terminating: bool,
    /// Its spec, or why it cannot be understood.
    pub spec: Result<&'a ValidClusterManager, &'a str>,
}

/// A part of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorPart {
    /// `names`
    Names,
    /// `exclude`
    Exclude,
    /// `labels`
    Labels,
}

/// Why a selector does not select a namespace: the first part that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch<'a> {
    /// The part.
    pub part: SelectorPart,
    /// The pattern that excludes it.
    pattern: &'a str,
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            SelectorPart::Names => f.write_str("none of spec.selector.names matches its name"),
            SelectorPart::Exclude => {
                write!(f, "{:?} of spec.selector.exclude matches its name", self.pattern)
            }
            SelectorPart::Labels => f.write_str("spec.selector.labels does not match its labels"),
        }
    }
}

/// Whether a cluster manager selects a namespace; otherwise which part of its selector does not hold.
///
/// # Errors
/// The part that does not hold.
pub fn selects<'a>(manager: &'a ValidClusterManager, namespace: &NamespaceFacts) -> Result<(), Mismatch<'a>> {
    let matches = |pattern: &&String| glob::matches(pattern, &namespace.name);
    if manager.names.as_ref().is_some_and(|names| !names.iter().any(|name| matches(&name))) {
        return Err(Mismatch { part: SelectorPart::Names, pattern: "" });
    }
    if let Some(pattern) = manager.exclude.iter().find(matches) {
        return Err(Mismatch { part: SelectorPart::Exclude, pattern });
    }
    if manager.labels.as_ref().is_some_and(|labels| !labels.matches(&namespace.labels)) {
        return Err(Mismatch { part: SelectorPart::Labels, pattern: "" });
    }
    Ok(())
}

/// A cluster manager that selects a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The generation of its spec.
    pub generation: i64,
    /// Its spec.
    pub spec: &'a ValidClusterManager,
}

impl Candidate<'_> {
    /// Whether a record is about this very manager with this very spec.
    pub fn is(&self, recorded: &GoverningManager) -> bool {
        (&*recorded.uid, &*recorded.digest) == (self.uid, self.spec.digest())
    }
}

/// What decided between two cluster managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// One enforces, the other observes.
    Mode,
    /// `spec.priority`
    Priority,
    /// One selects by labels, the other by names alone; or by labels and names, the other by labels alone.
    Selector,
    /// Nothing else: the name that comes first.
    Name,
}

/// The cluster managers that select a namespace.
#[derive(Clone, Debug)]
pub struct Contest<'a> {
    /// The one that governs it; none if none selects it.
    pub winner: Option<Candidate<'a>>,
    /// The others, and what decided against each of them.
    pub losers: Vec<(Candidate<'a>, Criterion)>,
}

/// A cluster manager that cannot be understood: what it selects, and so who governs, is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "which cluster manager governs the namespace is not known: ClusterNamespaceManager {name} cannot be understood: {why}"
)]
pub struct UnknownSelection<'a> {
    /// Its name.
    pub name: &'a str,
    /// Why it cannot be understood.
    pub why: &'a str,
}

/// Decides between the cluster managers that select a namespace. The order of the managers does not matter.
///
/// # Errors
/// If one of them cannot be understood.
pub fn contest<'a>(
    managers: impl IntoIterator<Item = ClusterManagerFacts<'a>>,
    namespace: &NamespaceFacts,
) -> Result<Contest<'a>, UnknownSelection<'a>> {
    let mut winner: Option<Candidate<'a>> = None;
    let mut losers = Vec::new();
    for manager in managers {
        if manager.terminating {
            continue;
        }
        let ClusterManagerFacts { name, uid, generation, spec, .. } = manager;
        let spec = spec.map_err(|why| UnknownSelection { name, why })?;
        if selects(spec, namespace).is_err() {
            continue;
        }
        let one = Candidate { name, uid, generation, spec };
        match winner {
            Some(best) if rank(&best) > rank(&one) => losers.push(one),
            before => {
                losers.extend(before);
                winner = Some(one);
            }
        }
    }
    let losers = winner.map(|winner| {
        let decided = |loser: Candidate<'a>| (loser, criterion(&winner, &loser));
        losers.into_iter().map(decided).collect()
    });
    Ok(Contest { winner, losers: losers.unwrap_or_default() })
}

/// The greatest governs.
fn rank<'a>(manager: &Candidate<'a>) -> (bool, i32, bool, bool, Reverse<&'a str>) {
    let Candidate { name, spec, .. } = manager;
    (spec.enforces(), spec.priority, spec.labels.is_some(), spec.names.is_some(), Reverse(name))
}

fn criterion(winner: &Candidate<'_>, loser: &Candidate<'_>) -> Criterion {
    let (a, b) = (rank(winner), rank(loser));
    if a.0 != b.0 {
        Criterion::Mode
    } else if a.1 != b.1 {
        Criterion::Priority
    } else if (a.2, a.3) != (b.2, b.3) {
        Criterion::Selector
    } else {
        Criterion::Name
    }
}
