//! Which cluster manager governs a namespace.

use std::cmp::Reverse;
use std::fmt;

use coppice_api::cluster_manager::AnnotationRequirement;
use coppice_api::managed_namespace::GoverningManager;
use coppice_api::{DecodeError, Reason};
use coppice_mutants::{Mutant, active};

use super::{SelectorParts, ValidClusterManager, ValidSelector};
use crate::facts::{AnnotationNotRead, NamespaceFacts};
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
    pub spec: Result<&'a ValidClusterManager, &'a DecodeError>,
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
    /// `annotations`
    Annotations,
    /// `anyOf`
    AnyOf,
}

/// Whether a selector selects a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// It does.
    Selected,
    /// It does not: why.
    Not(Mismatch<'a>),
    /// That depends on an annotation that was not read.
    Unknown(AnnotationNotRead<'a>),
}

/// Why a selector does not select a namespace: the first part that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch<'a> {
    /// The part.
    pub part: SelectorPart,
    detail: Detail<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail<'a> {
    None,
    /// The pattern that excludes it.
    Pattern(&'a str),
    /// The annotation that it does not have, or not with this value.
    Annotation(&'a AnnotationRequirement, bool),
    /// What does not hold of each alternative, in their order.
    Alternatives(Vec<Mismatch<'a>>),
}

/// So many alternatives are explained.
const EXPLAINED: usize = 4;

impl Mismatch<'_> {
    /// Writes what does not hold of the selector at this path.
    fn write(&self, f: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
        match (&self.detail, self.part) {
            (Detail::Pattern(pattern), _) => write!(f, "{pattern:?} of {path}.exclude matches its name"),
            (Detail::Annotation(AnnotationRequirement { key, value: Some(value) }, true), _) => {
                write!(
                    f,
                    "{path}.annotations asks for {key}: {value:?}, and its annotation has another value"
                )
            }
            (Detail::Annotation(AnnotationRequirement { key, .. }, _), _) => {
                write!(f, "{path}.annotations asks for {key}, which is no annotation of it")
            }
            (Detail::Alternatives(all), _) => {
                write!(f, "none of {path}.anyOf holds: ")?;
                for (n, one) in all.iter().take(EXPLAINED).enumerate() {
                    f.write_str(if n > 0 { "; " } else { "" })?;
                    one.write(f, &format!("anyOf[{n}]"))?;
                }
                match all.len().saturating_sub(EXPLAINED) {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
            (Detail::None, SelectorPart::Names) => write!(f, "none of {path}.names matches its name"),
            (Detail::None, _) => write!(f, "{path}.labels does not match its labels"),
        }
    }
}

impl fmt::Display for Mismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "spec.selector")
    }
}

/// Whether a cluster manager selects a namespace; otherwise which part of its selector does not hold. A part that is known not
/// to hold is enough, whatever else is not known.
pub fn selects<'a>(manager: &'a ValidClusterManager, namespace: &NamespaceFacts) -> Selection<'a> {
    let ValidSelector { parts, any_of } = &manager.selector;
    let own = holds(parts, namespace);
    if any_of.is_empty() || matches!(own, Selection::Not(_)) {
        return own;
    }
    let (mut unknown, mut failed) = (None, Vec::with_capacity(any_of.len()));
    for alternative in any_of {
        match holds(alternative, namespace) {
            Selection::Selected => return own,
            Selection::Not(mismatch) => failed.push(mismatch),
            Selection::Unknown(key) => unknown = unknown.or(Some(key)),
        }
    }
    match unknown {
        Some(key) => Selection::Unknown(key),
        None => Selection::Not(Mismatch { part: SelectorPart::AnyOf, detail: Detail::Alternatives(failed) }),
    }
}

fn holds<'a>(parts: &'a SelectorParts, namespace: &NamespaceFacts) -> Selection<'a> {
    let SelectorParts { names, exclude, labels, annotations } = parts;
    let not = |part, detail| Selection::Not(Mismatch { part, detail });
    let matches = |pattern: &&String| glob::matches(pattern, &namespace.name);
    if names.as_ref().is_some_and(|names| !names.iter().any(|name| matches(&name))) {
        return not(SelectorPart::Names, Detail::None);
    }
    if let Some(pattern) = exclude.iter().find(matches) {
        return not(SelectorPart::Exclude, Detail::Pattern(pattern));
    }
    if labels.as_ref().is_some_and(|labels| !labels.matches(&namespace.labels)) {
        return not(SelectorPart::Labels, Detail::None);
    }
    let mut unknown = None;
    for wanted in annotations {
        match annotation(namespace, &wanted.key) {
            Err(key) => unknown = unknown.or(Some(key)),
            Ok(value) => {
                let has = value.is_some();
                // Of a value that is longer than any that can be asked for the beginning was read: it equals none.
                if !has || wanted.value.as_deref().is_some_and(|wanted| value != Some(wanted)) {
                    return not(SelectorPart::Annotations, Detail::Annotation(wanted, has));
                }
            }
        }
    }
    unknown.map_or(Selection::Selected, Selection::Unknown)
}

/// The value of an annotation, unless it was not read.
pub(super) fn annotation<'k, 'n>(
    namespace: &'n NamespaceFacts,
    key: &'k str,
) -> Result<Option<&'n str>, AnnotationNotRead<'k>> {
    match namespace.annotations.get(key) {
        Err(_) if active(Mutant::UnreadIsAbsent) => Ok(None),
        read => read,
    }
}

/// A cluster manager that selects a namespace.
#[derive(Clone, Copy, Debug)]
pub struct SelectingManager<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The generation of its spec.
    pub generation: i64,
    /// Its spec.
    pub spec: &'a ValidClusterManager,
}

impl SelectingManager<'_> {
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
    /// One selects by labels, the other by annotations or names alone; or by one of these more than the other.
    Selector,
    /// Nothing else: the name that comes first.
    Name,
}

/// The cluster managers that select a namespace.
#[derive(Clone, Debug)]
pub struct Contest<'a> {
    /// The one that governs it; none if none selects it.
    pub winner: Option<SelectingManager<'a>>,
    /// The others, and what decided against each of them.
    pub losers: Vec<(SelectingManager<'a>, Criterion)>,
    /// False if a manager that comes after the winner may select the namespace or not.
    pub complete: bool,
}

/// A cluster manager of which it is not known whether it selects a namespace, and so who governs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("which cluster manager governs the namespace is not known: ClusterNamespaceManager {name} {why}")]
pub struct UnknownSelection<'a> {
    /// Its name.
    pub name: &'a str,
    /// Why that is not known.
    pub why: WhyUnknown<'a>,
}

/// Why it is not known what a cluster manager selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyUnknown<'a> {
    /// Its spec cannot be understood.
    #[error("cannot be understood: {0}")]
    NotUnderstood(&'a DecodeError),
    /// Its selector names an annotation that was not read.
    #[error("selects by an annotation, and {0}")]
    NotRead(AnnotationNotRead<'a>),
}

impl UnknownSelection<'_> {
    /// The reason, for status.
    pub const fn reason(&self) -> Reason {
        match self.why {
            WhyUnknown::NotUnderstood(_) => Reason::InvalidSpec,
            WhyUnknown::NotRead(_) => Reason::AnnotationsNotRead,
        }
    }
}

/// Decides between the cluster managers that select a namespace. The order of the managers does not matter.
///
/// # Errors
/// If one of them cannot be understood; or if the one that would come first may select the namespace or not.
pub fn contest<'a>(
    managers: impl IntoIterator<Item = ClusterManagerFacts<'a>>,
    namespace: &NamespaceFacts,
) -> Result<Contest<'a>, UnknownSelection<'a>> {
    let mut unread: Vec<(SelectingManager<'a>, AnnotationNotRead<'a>)> = Vec::new();
    let mut candidates: Vec<SelectingManager<'a>> = Vec::new();
    for manager in managers {
        if manager.terminating {
            continue;
        }
        let ClusterManagerFacts { name, uid, generation, spec, .. } = manager;
        let not_understood = |why| UnknownSelection { name, why: WhyUnknown::NotUnderstood(why) };
        let spec = spec.map_err(not_understood)?;
        let one = SelectingManager { name, uid, generation, spec };
        match selects(spec, namespace) {
            Selection::Selected => candidates.push(one),
            Selection::Not(_) => {}
            Selection::Unknown(key) => unread.push((one, key)),
        }
    }
    let first = candidates.iter().enumerate().max_by(|(_, a), (_, b)| rank(a).cmp(&rank(b)));
    let first = first.map(|(at, _)| at);
    let winner = first.map(|at| candidates.remove(at));
    let unread = unread.into_iter().max_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)));
    let complete = unread.is_none();
    // One that comes after the winner governs nothing of it, whatever it selects.
    if let Some((one, key)) = unread
        && winner.is_none_or(|winner| rank(&winner) < rank(&one))
    {
        return Err(UnknownSelection { name: one.name, why: WhyUnknown::NotRead(key) });
    }
    let losers = winner.map(|winner| {
        let decided = |loser: SelectingManager<'a>| (loser, criterion(&winner, &loser));
        candidates.into_iter().map(decided).collect()
    });
    Ok(Contest { winner, losers: losers.unwrap_or_default(), complete })
}

/// The greatest governs.
fn rank<'a>(manager: &SelectingManager<'a>) -> (bool, i32, (bool, bool, bool), Reverse<&'a str>) {
    let SelectingManager { name, spec, .. } = manager;
    (spec.enforces(), spec.priority, spec.selector.specificity(), Reverse(name))
}

fn criterion(winner: &SelectingManager<'_>, loser: &SelectingManager<'_>) -> Criterion {
    let (a, b) = (rank(winner), rank(loser));
    if a.0 != b.0 {
        Criterion::Mode
    } else if a.1 != b.1 {
        Criterion::Priority
    } else if a.2 != b.2 {
        Criterion::Selector
    } else {
        Criterion::Name
    }
}
