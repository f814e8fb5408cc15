//! A namespace of a tree is deleted with all below it: by which consent, in which order, and what stays. What the program does by it, and
//! what the command line says will be done.

use std::collections::BTreeSet;

use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::governor::Share;
use coppice_lifecycle::settings::SpecRefusal;
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

/// For so long at most before it ends consent counts: nobody deletes by what was written once and for all.
const CONSENT: SignedDuration = SignedDuration::from_hours(24);
/// So many of the namespaces that are protected are named.
const MAX_NAMED: usize = 5;

/// A Subnamespace below one that is being deleted.
#[derive(Clone, Copy, Debug)]
pub struct Descendant<'a> {
    /// The namespace that it is in,
    pub parent: &'a str,
    /// and its name, which is that of its own.
    pub name: &'a str,
    /// Whether it has created a namespace, be it there or not.
    pub created: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The namespace that it created, if that is there.
    pub namespace: Option<&'a NamespaceFacts>,
}

/// What comes next of a cascade: those below, by their places in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CascadeStep {
    /// The Subnamespace of this one is deleted.
    Delete(usize),
    /// This one is being deleted, and its namespace goes before any other.
    Wait(usize),
    /// The lowest are on their way.
    Going,
    /// What is left below is protected: for this reason, among others.
    Protected(SpecRefusal),
}

/// Nothing below is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConsent {
    /// Why, where there was consent or will be.
    why: String,
    /// When there is.
    pub from: Option<Timestamp>,
}

/// Until when all below a namespace may be deleted with it, by `spec.cascadeUntil` of its Subnamespace.
///
/// # Errors
/// Nothing says so, or not now.
pub fn consent(until: Option<Timestamp>, now: Timestamp) -> Result<Timestamp, NoConsent> {
    let Some(until) = until else { return Err(NoConsent { why: String::new(), from: None }) };
    if until <= now && !active(Mutant::ConsentIgnored) {
        let why = format!("the consent of spec.cascadeUntil ended at {until}; ");
        return Err(NoConsent { why, from: None });
    }
    match until.checked_sub(CONSENT) {
        Ok(from) if from > now => Err(NoConsent {
            why: format!("spec.cascadeUntil counts for its last 24 hours alone, from {from}; "),
            from: Some(from),
        }),
        _ => Ok(until),
    }
}

impl NoConsent {
    /// Why a namespace stays that so many Subnamespaces are in. `parent`: the namespace that its own is in.
    pub fn has_children(&self, parent: &str, name: &str, children: usize) -> String {
        let children =
            if children == 1 { "a Subnamespace".to_owned() } else { format!("{children} Subnamespaces") };
        format!(
            "namespace {name} has {children} below it, and stays: {why}delete these first (kubectl get subnamespaces -n {name}), or all \
             below it with it (coppice tree delete {parent}/{name} --cascade)",
            why = self.why
        )
    }
}

/// Those below a namespace, however far, each after all below it. `children`: the Subnamespaces in a namespace. `own`: the namespace that
/// one has created, if that is there.
pub fn bottom_up<T>(
    namespace: &str,
    children: impl Fn(&str) -> Vec<T>,
    own: impl Fn(&T) -> Option<String>,
) -> Vec<T> {
    let (mut found, mut at) = (children(namespace), 0);
    // Names of namespaces are unique: in a cluster that is in order nobody comes twice.
    let mut expanded = BTreeSet::from([namespace.to_owned()]);
    while let Some(one) = found.get(at) {
        if let Some(name) = own(one)
            && expanded.insert(name.clone())
        {
            found.extend(children(&name));
        }
        at += 1;
    }
    found.reverse();
    found
}

/// What comes next, past those that are protected: these stay, and so does all above them. `below`: [from the bottom up](bottom_up).
pub fn next_below(below: &[Descendant<'_>], settings: &PlatformSettings) -> CascadeStep {
    let lowest = lowest(below);
    let waits_for = |at: &&usize| {
        let goes =
            |namespace: &NamespaceFacts| !namespace.terminating && settings.protection(namespace).is_none();
        below[**at].terminating && below[**at].namespace.is_some_and(goes)
    };
    if let Some(at) = lowest.iter().find(waits_for) {
        return CascadeStep::Wait(*at);
    }
    let may_go = |at: &&usize| {
        let protection = below[**at].namespace.and_then(|namespace| settings.protection(namespace));
        !below[**at].terminating && protection.is_none()
    };
    if let Some(at) = lowest.iter().find(may_go) {
        return CascadeStep::Delete(*at);
    }
    let refusals: Vec<SpecRefusal> = lowest.iter().filter_map(|at| below[*at].protection(settings)).collect();
    match refusals.first() {
        Some(refusal) if refusals.len() == lowest.len() => CascadeStep::Protected(refusal.clone()),
        _ => CascadeStep::Going,
    }
}

/// Which of those below go, one after another: all but what is protected, and what is above that.
pub fn order(below: &[Descendant<'_>], settings: &PlatformSettings) -> Vec<usize> {
    let mut above_protected: BTreeSet<&str> = BTreeSet::new();
    let mut going = Vec::new();
    for (at, one) in below.iter().enumerate() {
        let keeps_one = one.created && above_protected.contains(one.name);
        if keeps_one || one.protection(settings).is_some() {
            above_protected.insert(one.parent);
        } else {
            going.push(at);
        }
    }
    going
}

/// What is said while those below a namespace go, and which of them stay. `what`: where that stands.
pub fn describe(
    name: &str,
    below: &[Descendant<'_>],
    settings: &PlatformSettings,
    until: Timestamp,
    what: &str,
) -> String {
    let protected = below.iter().filter(|one| one.protection(settings).is_some());
    let protected: Vec<&str> = protected.map(|one| one.name).collect();
    if protected.is_empty() {
        return format!(
            "namespace {name} is deleted after the {} below it, from the bottom up, which spec.cascadeUntil allows until {until}: {what}",
            below.len()
        );
    }
    let first = protected.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = match protected.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "those below namespace {name} are deleted from the bottom up, which spec.cascadeUntil allows until {until}: {what}; what is protected \
         stays, and all above it: {first}{more}"
    )
}

/// Whose budget the deletion of a namespace takes from: what users delete one by one is counted for their tree alone. Not so where all
/// below it goes with it, or where it goes with one above it. `namespaces`: how many the tree has; `all_trees`: how many all trees have.
pub fn share(in_cascade: bool, tree: &str, namespaces: u32, all_trees: u64) -> Share<'_> {
    if in_cascade || tree.is_empty() {
        return Share::Trees(all_trees);
    }
    Share::Tree { name: tree, namespaces: u64::from(namespaces), all_trees }
}

impl Descendant<'_> {
    /// Why it stays, if its namespace is protected.
    pub fn protection(&self, settings: &PlatformSettings) -> Option<SpecRefusal> {
        self.namespace.filter(|own| !own.terminating).and_then(|own| settings.protection(own))
    }
}

/// Those that none of the others is below.
fn lowest(below: &[Descendant<'_>]) -> Vec<usize> {
    let with_children: BTreeSet<&str> = below.iter().map(|one| one.parent).collect();
    // A Subnamespace that created no namespace is above none, whatever its name is.
    let is_above = |one: &Descendant<'_>| one.created && with_children.contains(one.name);
    (0..below.len()).filter(|at| !is_above(&below[*at])).collect()
}
