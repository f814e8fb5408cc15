//! Counts for the status of each cluster manager.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use coppice_api::cluster_manager::{DueCounts, GovernedBy, NamespaceCounts, PolicyDue};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::approval::newly_due;
use super::limits::{extension_end, held, hold_end, remembered};
use super::observed::{NotedOutcomes, note, remembered as remembered_of};
use super::phase::{RunningTtl, Superseded, phase};
use super::plan::has_fired;
use super::recreated::Recreated;
use super::selection::{ClusterManagerFacts, SelectingManager, contest};
use super::supersede::{KnownSuccessor, successors};
use super::{
    EffectiveTtl, RecordFacts, Unidentified, ValidClusterManager, ValidClusterPolicy, identity_of, owner_of,
    ttl_of,
};
use crate::condition::later;
use crate::facts::{AnnotationNotRead, NamespaceFacts};
use crate::governor::hourly_limit;
use crate::settings::PlatformSettings;

const HOUR: Duration = Duration::from_secs(3600);
/// A shorter time says little about a rate.
const MIN_WINDOW: Duration = Duration::from_secs(600);
/// So many names are shown.
const SAMPLE: usize = 10;
/// So many other managers are shown.
const MAX_OTHERS: usize = 16;

/// What there is for each cluster manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// When it was counted.
    pub at: Timestamp,
    /// By the name of the manager.
    pub managers: BTreeMap<String, Counts>,
    /// The namespaces to which a policy of a cluster manager may do something, and that are not managed anyway.
    pub enforced: u64,
    /// How many namespaces become due in an hour by all cluster managers that enforce, at the present rate.
    pub per_hour: u32,
    /// For each namespace that a later one supersedes the name of that one, whatever records say; none if they were not compared.
    pub successors: Option<BTreeMap<String, KnownSuccessor>>,
    /// Which names were deleted too often of late; none if that is not known, and records say it.
    pub recreated: Option<Recreated>,
    /// When time alone changes a count.
    pub next_check: Option<Timestamp>,
}

impl Census {
    /// What there is for a manager, if this namespace was counted among those that its spec makes due: what has become so a
    /// moment ago, because a hold or its protection ended, does not come alone.
    pub fn counts(&self, manager: &str, namespace: &NamespaceFacts) -> Option<&Counts> {
        let counts = self.managers.get(manager)?;
        let among = |due: &BTreeSet<String>| due.contains(&namespace.uid);
        counts.newly_due.as_ref().is_none_or(among).then_some(counts)
    }
}

/// What there is for one cluster manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The digest of the spec that was counted for.
    pub digest: String,
    /// Namespaces.
    pub namespaces: NamespaceCounts,
    /// What is due.
    pub enforce: DueCounts,
    /// The uids of the namespaces that the spec makes due; none if only their number is known.
    pub newly_due: Option<BTreeSet<String>>,
    /// What records of this spec say that policies that observe would have done.
    pub noted: NotedOutcomes,
}

/// A namespace with its record.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// The namespace.
    pub namespace: &'a NamespaceFacts,
    /// Its record, if there is one.
    pub record: Option<RecordFacts<'a>>,
    /// Whether it is among the managed namespaces anyway.
    pub managed: bool,
}

/// Counts. The order of the managers does not matter; that of the namespaces decides which of them are shown. None if a
/// manager cannot be understood, or names an annotation that was not read: then it is not known who governs what. So many namespaces have managers of their own.
pub fn census<'a>(
    namespaces: impl IntoIterator<Item = Counted<'a>>,
    managers: &[ClusterManagerFacts<'_>],
    settings: &PlatformSettings,
    own_managers: u64,
    now: Timestamp,
) -> Option<Census> {
    count(namespaces, managers, (settings, own_managers), None, now)
}

/// The same for one namespace, where all of them have been compared before.
pub fn census_of_one(
    namespace: Counted<'_>,
    managers: &[ClusterManagerFacts<'_>],
    settings: &PlatformSettings,
    successors: &BTreeMap<String, KnownSuccessor>,
    now: Timestamp,
) -> Option<Census> {
    count([namespace], managers, (settings, 0), Some(successors), now)
}

fn count<'a>(
    namespaces: impl IntoIterator<Item = Counted<'a>>,
    managers: &[ClusterManagerFacts<'_>],
    (settings, own_managers): (&PlatformSettings, u64),
    compared: Option<&BTreeMap<String, KnownSuccessor>>,
    now: Timestamp,
) -> Option<Census> {
    let mut census = Census {
        at: now,
        managers: BTreeMap::new(),
        enforced: 0,
        per_hour: 0,
        successors: None,
        recreated: None,
        next_check: None,
    };
    for manager in managers {
        let digest = manager.spec.map_or_else(|_| String::new(), |spec| spec.digest().to_owned());
        let newly_due = Some(BTreeSet::new());
        census.managers.insert(manager.name.to_owned(), Counts { digest, newly_due, ..Counts::default() });
    }
    let mut governed = Vec::new();
    // One that is being deleted is nobody's any more.
    for counted in namespaces.into_iter().filter(|counted| !counted.namespace.terminating) {
        let noted = counted.record.into_iter().flat_map(|record| remembered_of(record.status));
        for (uid, digest, policy, one) in noted {
            let same = |manager: &&ClusterManagerFacts<'_>| {
                manager.uid == uid && manager.spec.is_ok_and(|spec| spec.digest() == digest)
            };
            let manager = managers.iter().find(same);
            let counts = manager.and_then(|manager| census.managers.get_mut(manager.name));
            let changes = counts.and_then(|counts| note(&mut counts.noted, policy, one, now));
            census.next_check = census.next_check.into_iter().chain(changes).min();
        }
        let contest =
            contest(managers.iter().copied(), counted.namespace).ok().filter(|known| known.complete)?;
        let Some(winner) = contest.winner else { continue };
        governed.push((counted, winner));
        for (loser, _) in &contest.losers {
            let counts = census.managers.entry(loser.name.to_owned()).or_default();
            counts.namespaces.selected += 1;
            count_other(&mut counts.namespaces.governed_by, winner.name);
        }
    }
    let successors = match compared {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(compare(&governed, managers, now).ok()?),
    };
    for (counted, winner) in governed {
        let takes = |policy: &ValidClusterPolicy| {
            let forbidden = || settings.forbids(policy.action.kind(), counted.namespace).is_some();
            policy.enforces && policy.action.is_destructive() && !forbidden()
        };
        let may_act = !winner.spec.suspend && winner.spec.policies().iter().any(takes);
        census.enforced += u64::from(may_act && !counted.managed);
        let ttl = winner.spec.ttl.as_ref().map(|ttl| ttl_of(ttl, counted.namespace)).transpose().ok()?;
        let counts = census.managers.entry(winner.name.to_owned()).or_default();
        let superseded = successors.get(&counted.namespace.name);
        let changes = count_governed(counts, (counted, ttl, superseded), &winner, settings, now);
        census.next_check = census.next_check.into_iter().chain(changes).min();
    }
    census.successors = compared.is_none().then(|| successors.into_owned());
    let hourly_budget = hourly_limit(&settings.config.governor, own_managers + census.enforced);
    for manager in managers.iter().filter(|manager| !manager.terminating) {
        let (Ok(spec), Some(counts)) = (manager.spec, census.managers.get_mut(manager.name)) else {
            continue;
        };
        // Until here: those of the window.
        let coming = u64::from(counts.enforce.per_hour) * HOUR.as_secs();
        let rate = coming.div_ceil(window(spec).as_secs()).try_into().unwrap_or(u32::MAX);
        counts.enforce.per_hour = two_digits(rate);
        counts.enforce.hourly_budget = hourly_budget;
        if spec.enforces() && !spec.suspend {
            census.per_hour = census.per_hour.saturating_add(counts.enforce.per_hour);
        }
    }
    Some(census)
}

/// The successors of all namespaces: those of one manager are compared with each other.
fn compare<'a>(
    governed: &'a [(Counted<'a>, SelectingManager<'a>)],
    managers: &[ClusterManagerFacts<'a>],
    now: Timestamp,
) -> Result<BTreeMap<String, KnownSuccessor>, AnnotationNotRead<'a>> {
    let mut all = BTreeMap::new();
    for manager in managers {
        let of_manager = || governed.iter().filter(|(_, winner)| winner.uid == manager.uid);
        let Some((_, winner)) = of_manager().next() else { continue };
        let Some(supersede) = &winner.spec.supersede else { continue };
        let member = |(counted, _): &(Counted<'a>, _)| (counted.namespace, counted.record);
        let members: Vec<_> = of_manager().map(member).collect();
        all.extend(successors(supersede, winner, &members, now)?);
    }
    Ok(all)
}

/// Rounds up to two digits: a rate is no more exact, and would be written with every namespace that comes or goes.
fn two_digits(rate: u32) -> u32 {
    let unit = std::iter::successors(Some(1u32), |unit| unit.checked_mul(10)).find(|unit| rate / unit < 100);
    unit.map_or(rate, |unit| rate.div_ceil(unit).saturating_mul(unit))
}

/// The rate at which namespaces become due is that of so much time to come: by a ttl, those that are due in its time are
/// there already.
fn window(manager: &ValidClusterManager) -> Duration {
    let ttl = manager.ttl.as_ref().map_or(HOUR.as_secs(), |ttl| ttl.after.as_secs());
    Duration::from_secs(ttl.clamp(MIN_WINDOW.as_secs(), HOUR.as_secs()))
}

/// Counts a namespace for the manager that governs it. Returns when time alone changes that.
fn count_governed(
    counts: &mut Counts,
    (counted, ttl, successor): (Counted<'_>, Option<EffectiveTtl>, Option<&KnownSuccessor>),
    manager: &SelectingManager<'_>,
    settings: &PlatformSettings,
    now: Timestamp,
) -> Option<Timestamp> {
    counts.namespaces.selected += 1;
    counts.namespaces.governed += 1;
    count_unsaid(&mut counts.namespaces, counted.namespace, manager.spec);
    let recorded = counted.record.and_then(|record| record.status.manager.as_ref());
    counts.namespaces.recorded += u32::from(recorded.is_some_and(|known| manager.is(known)));
    count_due(counts, (counted, ttl, successor), manager, settings, now)
}

/// Counts whether it says who owns it, and what it was made for, where its manager reads that.
fn count_unsaid(counts: &mut NamespaceCounts, namespace: &NamespaceFacts, manager: &ValidClusterManager) {
    if let Some(source) = &manager.owner {
        *counts.without_owner.get_or_insert(0) += u32::from(owner_of(source, namespace) == Ok(None));
    }
    if let Some(supersede) = &manager.supersede {
        let unknown = matches!(identity_of(supersede, namespace), Err(Unidentified::None(_)));
        *counts.without_identity.get_or_insert(0) += u32::from(unknown);
    }
}

/// Counts whether it is due. Returns when time alone changes that.
fn count_due(
    counts: &mut Counts,
    (Counted { namespace, record, .. }, ttl, successor): (
        Counted<'_>,
        Option<EffectiveTtl>,
        Option<&KnownSuccessor>,
    ),
    manager: &SelectingManager<'_>,
    settings: &PlatformSettings,
    now: Timestamp,
) -> Option<Timestamp> {
    let recorded = record.and_then(|record| record.status.manager.as_ref());
    let spec = record.and_then(|record| record.spec.ok());
    let limits = manager.spec.limits.of_record(namespace.created);
    let hold = spec.and_then(|spec| spec.hold.as_ref());
    let so_far = remembered(record.and_then(|record| record.status.held.as_ref()), manager.spec, now);
    let so_far = held(so_far, hold, now);
    let hold_end = hold.map(|hold| hold_end(limits.as_ref(), so_far.as_ref(), hold)).filter(|end| now < *end);
    if settings.protection(namespace).is_some() {
        return None;
    }
    if hold_end.is_some() {
        return hold_end;
    }
    let extension = spec.and_then(|spec| spec.extend_until.as_ref());
    let extended = extension.map(|extension| extension_end(limits.as_ref(), extension));
    // What another manager, or another spec, has recorded of its health says nothing.
    let status =
        record.map(|record| record.status).filter(|_| recorded.is_some_and(|known| manager.is(known)));
    // Of one that observes: as if it enforced from now on, which begins everything again.
    let governs = recorded.filter(|recorded| manager.spec.enforces() && manager.is(recorded));
    let ttl = ttl.map(|ttl| {
        let known = status.and_then(|status| status.ttl.as_ref());
        let running = ttl.running(ttl.recorded(known, manager.spec.settle, now).as_ref());
        if governs.is_some() { running } else { RunningTtl { first: running.after, ..running } }
    });
    let recorded_since = status.and_then(|status| status.superseded_by.as_ref()).map(|by| by.since);
    let superseded = successor.map(|later| Superseded {
        since: recorded_since.unwrap_or(now),
        both_exist_since: later.created.max(namespace.created),
        confirmed: true,
    });
    let finding = phase(manager.spec, (namespace, ttl), extended, (status, superseded), now);
    let since = governs.map_or(now, |recorded| recorded.since);
    let fired = record.filter(|_| recorded.is_some_and(|known| known.uid == manager.uid));
    let fired = fired.map(|record| &*record.status.fired).unwrap_or_default();
    let forbidden = |policy: &ValidClusterPolicy| settings.forbids(policy.action.kind(), namespace).is_some();
    let waiting =
        manager.spec.policies().iter().filter(|policy| !has_fired(policy, fired) && !forbidden(policy));
    let (mut due, mut next, mut first) = (false, None, None);
    for policy in waiting.clone() {
        let of_policy = finding.due(policy).filter(|due| due.unconfirmed.is_none());
        let of_policy = of_policy.map(|due| due.at).min();
        if policy.would_enforce && policy.action.is_destructive() {
            first = first.into_iter().chain(of_policy).min();
        }
        match of_policy {
            Some(at) if at <= now => {
                due = true;
                count_policy(&mut counts.enforce.policies, &policy.name);
            }
            at => next = next.into_iter().chain(at).min(),
        }
    }
    let acting = waiting.filter(|policy| policy.would_enforce && policy.action.is_destructive());
    if finding.cause_since(acting).is_some_and(|at| newly_due(manager.spec, namespace, since, at)) {
        counts.enforce.newly_due += 1;
        counts.newly_due.get_or_insert_default().insert(namespace.uid.clone());
    }
    if first.is_some_and(|first| now < first && first <= later(now, window(manager.spec))) {
        counts.enforce.per_hour += 1;
    }
    if due {
        counts.enforce.due += 1;
        if counts.enforce.sample.len() < SAMPLE {
            counts.enforce.sample.push(namespace.name.clone());
        }
    }
    next
}

fn count_policy(policies: &mut Vec<PolicyDue>, name: &str) {
    match policies.iter_mut().find(|policy| policy.name == name) {
        Some(known) => known.due += 1,
        None => policies.push(PolicyDue { name: name.to_owned(), due: 1 }),
    }
    policies.sort_unstable_by(|a, b| a.name.cmp(&b.name));
}

fn count_other(others: &mut Vec<GovernedBy>, name: &str) {
    match others.iter().position(|other| other.name == name) {
        Some(known) => others[known].namespaces += 1,
        None if others.len() < MAX_OTHERS => {
            others.push(GovernedBy { name: name.to_owned(), namespaces: 1 });
            others.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        }
        None => {}
    }
}
