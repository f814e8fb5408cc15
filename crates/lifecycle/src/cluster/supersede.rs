//! Which namespaces have been superseded, and by which.
//!
//! The newest ready namespace of those that have something in common is never deleted for being superseded: only a later one
//! supersedes another, and only if it is not superseded itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_api::steps::Action;
use coppice_api::{ManagedNamespaceStatus, NamespacePhase};
use coppice_mutants::{Mutant, active};
use jiff::Timestamp;

use super::identity::{GroupKey, Identity, ValidSupersede, identity_if_any};
use super::selection::{SelectingManager, Selection, selects};
use super::{HealthFacts, RecordFacts};
use crate::facts::{AnnotationNotRead, NamespaceFacts};
use crate::health::{self, KnownFailures};

/// What is known of the namespace that may have taken the place of another one.
#[derive(Clone, Debug)]
pub enum SuccessorFacts<'a> {
    /// All namespaces have been compared, and there is none.
    None,
    /// All namespaces have been compared, and this one was found.
    Found {
        /// It.
        namespace: &'a NamespaceFacts,
        /// Its record.
        record: RecordFacts<'a>,
        /// Its workloads, where they were read again; otherwise its record says how they are.
        workloads: Option<Box<HealthFacts<'a>>>,
    },
    /// What the record says, as if nothing had changed since: for whoever sees one namespace alone.
    AsRecorded,
    /// Not known: they have not been compared.
    Unknown,
}

/// The successor of a namespace, as found when all were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSuccessor {
    /// Its name.
    pub name: Arc<str>,
    /// When it was created.
    pub created: Timestamp,
}

/// A namespace among those that one cluster manager governs, and its record.
pub(super) type Member<'a> = (&'a NamespaceFacts, Option<RecordFacts<'a>>);

/// Whether a namespace may supersede others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Eligibility {
    /// It may not.
    No,
    /// That is not known at present: it supersedes what it superseded before, and nothing else.
    Unknown,
    /// It may.
    Yes,
}

/// Whether a namespace may supersede others, as far as its record says.
fn recorded_eligibility(
    supersede: &ValidSupersede,
    manager: &SelectingManager<'_>,
    (namespace, record): Member<'_>,
    now: Timestamp,
) -> Eligibility {
    // What another manager or another spec has recorded says nothing; nor does a record that is not kept up to date any more.
    let of_manager = |status: &&ManagedNamespaceStatus| {
        status.namespace_uid.as_ref() == Some(&namespace.uid)
            && status.manager.as_ref().is_some_and(|known| manager.is(known))
    };
    let record = record.filter(|record| !record.terminating && record.spec.is_ok());
    let Some(status) = record.map(|record| record.status).filter(of_manager) else { return Eligibility::No };
    let expired = status.expires_at.is_some_and(|at| at <= now);
    // It goes itself.
    let goes = status.steps.notice.is_some()
        || status.steps.intent.as_ref().is_some_and(|intent| intent.action == Action::Delete);
    if namespace.terminating || expired || goes && !active(Mutant::SupersededSupersedes) {
        return Eligibility::No;
    }
    let wait = supersede.wait_until_ready;
    let stands = match status.phase {
        _ if active(Mutant::SuccessorNotReady) => true,
        Some(NamespacePhase::Unknown) => return Eligibility::Unknown,
        Some(NamespacePhase::Ok) => !wait || status.ready_at.is_some(),
        Some(NamespacePhase::Unstable | NamespacePhase::Failing) => !wait,
        Some(NamespacePhase::Superseded) => active(Mutant::SupersededSupersedes),
        Some(NamespacePhase::Terminating | NamespacePhase::Stale | NamespacePhase::Failed) | None => false,
    };
    if stands { Eligibility::Yes } else { Eligibility::No }
}

/// Whether this namespace takes the place of the older one. Its workloads, if they were read again, have to say what its record does.
///
/// # Errors
/// If that depends on an annotation that was not read.
pub(super) fn supersedes<'a>(
    supersede: &'a ValidSupersede,
    manager: &SelectingManager<'_>,
    older: &'a NamespaceFacts,
    (namespace, record): (&'a NamespaceFacts, RecordFacts<'_>),
    (workloads, now): (Option<&HealthFacts<'_>>, Timestamp),
) -> Result<Eligibility, AnnotationNotRead<'a>> {
    let identities = (identity_if_any(supersede, namespace)?, identity_if_any(supersede, older)?);
    let (Some(later), Some(older)) = identities else { return Ok(Eligibility::No) };
    if !later.follows(&older) || selects(manager.spec, namespace) != Selection::Selected {
        return Ok(Eligibility::No);
    }
    let by_record = recorded_eligibility(supersede, manager, (namespace, Some(record)), now);
    let waits = supersede.wait_until_ready && !active(Mutant::SuccessorNotReady);
    let Some(workloads) = workloads.filter(|_| waits) else { return Ok(by_record) };
    let by_workloads = match workloads {
        HealthFacts::Known { workloads, .. } => {
            let ignore = manager.spec.health.as_ref().map(|health| &*health.ignore).unwrap_or_default();
            let fails = !health::failing(workloads, ignore, KnownFailures::default(), now).failing.is_empty();
            if !fails && health::is_ready(workloads) { Eligibility::Yes } else { Eligibility::No }
        }
        HealthFacts::NotWatched | HealthFacts::AsRecorded | HealthFacts::Unknown { .. } => {
            Eligibility::Unknown
        }
    };
    Ok(by_record.min(by_workloads))
}

/// A namespace that is compared with others.
struct Compared<'a> {
    namespace: &'a NamespaceFacts,
    /// The uid of the successor that its record names.
    recorded: Option<&'a str>,
    identity: Identity<'a>,
    eligibility: Eligibility,
}

/// For each namespace that is superseded its successor, of the namespaces that this manager governs. The successor that a record
/// names stays as long as it is one.
///
/// # Errors
/// If that depends on an annotation that was not read.
pub(super) fn successors<'a>(
    supersede: &'a ValidSupersede,
    manager: &SelectingManager<'_>,
    members: &[Member<'a>],
    now: Timestamp,
) -> Result<BTreeMap<String, KnownSuccessor>, AnnotationNotRead<'a>> {
    let mut all = Vec::with_capacity(members.len());
    for (namespace, record) in members {
        let Some(identity) = identity_if_any(supersede, namespace)? else { continue };
        let eligibility = recorded_eligibility(supersede, manager, (namespace, *record), now);
        let recorded = record.and_then(|record| record.status.superseded_by.as_ref()).map(|by| &*by.uid);
        all.push(Compared { namespace, recorded, identity, eligibility });
    }
    take_lowest_of_run(&mut all);
    // The latest first: whether one is superseded depends on later ones alone.
    all.sort_by_key(|one| Reverse(one.identity.order));
    let mut candidates_by_group: BTreeMap<GroupKey<'a>, Vec<&Compared<'a>>> = BTreeMap::new();
    let mut successors = BTreeMap::new();
    for one in &all {
        let candidates = || {
            let of_group =
                one.identity.groups().filter_map(|group| candidates_by_group.get(&group)).flatten();
            of_group.filter(|later| later.identity.follows(&one.identity))
        };
        let same = candidates().find(|later| one.recorded == Some(&*later.namespace.uid));
        let latest = || {
            let known = candidates().filter(|later| later.eligibility == Eligibility::Yes);
            known.max_by_key(|later| (later.identity.order, &later.namespace.uid))
        };
        if let Some(later) = same.or_else(latest) {
            let NamespaceFacts { name, created, .. } = later.namespace;
            let later = KnownSuccessor { name: Arc::from(&**name), created: *created };
            successors.insert(one.namespace.name.clone(), later);
            if !active(Mutant::SupersededSupersedes) {
                continue;
            }
        }
        if one.eligibility != Eligibility::No {
            for group in one.identity.groups() {
                candidates_by_group.entry(group).or_default().push(one);
            }
        }
    }
    Ok(successors)
}

/// Of the namespaces of one run that are in one group, none supersedes others before all of them may: each has the lowest
/// eligibility of them.
fn take_lowest_of_run(all: &mut [Compared<'_>]) {
    let mut lowest = BTreeMap::new();
    for one in &*all {
        let Some(run) = one.identity.run() else { continue };
        for group in one.identity.groups() {
            let known = lowest.entry((run, group)).or_insert(one.eligibility);
            *known = one.eligibility.min(*known);
        }
    }
    for one in all {
        let Some(run) = one.identity.run() else { continue };
        let of_groups = one.identity.groups().filter_map(|group| lowest.get(&(run, group)));
        one.eligibility = of_groups.min().copied().unwrap_or(one.eligibility);
    }
}
