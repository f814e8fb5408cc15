//! How a namespace is, and since when. Phases never act: policies do.

use coppice_api::cluster_manager::PolicyPhase;
use coppice_api::health::HealthSeen;
use coppice_api::managed_namespace::PodsVerdict;
use coppice_api::manager::Verdict;
use coppice_api::{HealthState, ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::{ClusterCondition, ValidClusterManager, ValidClusterPolicy};
use crate::condition::later;
use crate::facts::NamespaceFacts;
use crate::valid_spec::TtlEnd;

/// A phase that comes before those of the health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseBefore {
    /// The phase.
    pub phase: NamespacePhase,
    /// When it applies, for people.
    pub begins: &'static str,
    /// When it does no more; none if that never happens.
    pub ends: Option<&'static str>,
}

const fn before(phase: NamespacePhase, begins: &'static str, ends: Option<&'static str>) -> PhaseBefore {
    PhaseBefore { phase, begins, ends }
}

/// Every phase that comes before those of the health, and of several that apply the first: the table that [`phase`] follows, and that
/// the diagram in `docs/kinds/managednamespace.md` is generated from, beside [`EDGES`](crate::health::EDGES).
pub const PHASES_BEFORE: [PhaseBefore; 4] = [
    before(NamespacePhase::Terminating, "it is being deleted", None),
    before(NamespacePhase::Stale, "its time to live is over", Some("it has more time")),
    before(
        NamespacePhase::Superseded,
        "a later namespace has taken its place",
        Some("no other stands in its place"),
    ),
    before(NamespacePhase::Unknown, "something that is needed is not known", Some("it is known again")),
];

/// How a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseFinding {
    /// The phase.
    pub phase: NamespacePhase,
    /// Since when, where that is known; otherwise since it was seen first.
    pub since: Option<Timestamp>,
    /// When its time to live ends, or ended; none if it has none.
    pub expires_at: Option<Timestamp>,
    /// How it is by its health; none if that is not looked at.
    pub health: Option<HealthFinding>,
    /// Whether a later one has taken its place.
    pub superseded: Option<Superseded>,
    created: Timestamp,
    /// For how long nothing is done to what is superseded, so that a mistake can be put right.
    settle: Duration,
    /// Before this instant no ttl is over.
    extended: Option<Timestamp>,
    /// When the time to live would end with which its manager's spec began to govern it.
    first_end: Option<Timestamp>,
    /// Whether its health counts beside its phase: it is not being deleted, and not `Stale`, unless it may be so by its annotation,
    /// which keeps nothing from being done for its health.
    health_counts: bool,
    /// The recorded verdicts on policies that wait for pods.
    verdicts: Vec<PodsVerdict>,
}

/// How a namespace is by its health, and since when it has been so, or worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthFinding {
    state: HealthState,
    seen: HealthSeen,
    /// When what fails began to.
    first_failure_at: Option<Timestamp>,
    /// Since when it is at least `Unstable`, `Failing` and `Failed`.
    since: [Option<Timestamp>; 3],
}

impl HealthFinding {
    /// What is recorded, if the health is looked at.
    fn recorded(status: &ManagedNamespaceStatus) -> Option<Self> {
        let record = status.health.as_ref()?;
        let since = [record.unstable_since, record.failing_since, record.failed_since];
        let not_ok = record.not_ok_since.into_iter().chain(record.unstable_since);
        let first_failure_at = status.failing.iter().map(|one| one.since).chain(not_ok).min();
        Some(Self { state: record.state, seen: record.seen, first_failure_at, since })
    }
}

/// That a later namespace has taken the place of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superseded {
    /// Since when that is known.
    pub since: Timestamp,
    /// When both were there for the first time.
    pub both_exist_since: Timestamp,
    /// Whether that is known now; otherwise it was when its record was written.
    pub confirmed: bool,
}

/// When a condition is true, or was for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The instant, if nothing but time passes.
    pub at: Timestamp,
    /// Nothing is done by it before this one.
    pub not_before: Timestamp,
    /// When that began which makes it due: the same of a ttl, and of a failure when it began to fail.
    pub cause_since: Timestamp,
    /// Why nothing may be done by it at present, though it stands.
    pub unconfirmed: Option<Unconfirmed>,
    /// What makes it true.
    pub cause: DueCause,
}

/// What makes a condition true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueCause {
    /// The end of a ttl.
    Ttl,
    /// A namespace that has taken its place.
    Superseded,
    /// What fails.
    Health,
    /// The success of its pods.
    Pods,
}

impl DueCause {
    /// Why something is done by it.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Ttl => Reason::TtlElapsed,
            Self::Superseded => Reason::Superseded,
            Self::Health => Reason::Unhealthy,
            Self::Pods => Reason::PodsSucceeded,
        }
    }
}

/// A time to live that counts for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningTtl {
    /// From its creation on.
    pub after: Duration,
    /// That with which the present spec of its manager began to govern: later changes are none of the spec.
    pub first: Duration,
}

/// Why nothing may be done by what makes a condition true at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconfirmed {
    /// Nothing fails, but it has not recovered for long enough.
    Recovering,
    /// It is not known whether something fails.
    Unknown,
    /// It is not known whether the namespace that has taken its place still exists.
    SuccessorUnknown,
}

/// The phase of a namespace that a cluster manager governs, by its [time to live](super::ttl_of) and by what is recorded of
/// its health under that manager, and whether a later namespace has taken its place. It does not expire before `extended`.
pub fn phase(
    manager: &ValidClusterManager,
    (namespace, ttl): (&NamespaceFacts, Option<RunningTtl>),
    extended: Option<Timestamp>,
    (status, superseded): (Option<&ManagedNamespaceStatus>, Option<Superseded>),
    now: Timestamp,
) -> PhaseFinding {
    let extended = extended.filter(|_| !active(Mutant::ExtensionIgnored));
    let created = namespace.created;
    let expires_at = ttl.map(|ttl| ttl_end(created, ttl.after, extended));
    let first_end = ttl.map(|ttl| ttl_end(created, ttl.first, extended));
    let own_ttl = manager.ttl.as_ref().is_some_and(|ttl| ttl.from_annotation.is_some());
    let health = status.filter(|_| manager.health.is_some()).and_then(HealthFinding::recorded);
    let applies = |one: &PhaseBefore| match one.phase {
        NamespacePhase::Terminating => namespace.terminating,
        NamespacePhase::Stale => expires_at.is_some_and(|at| at <= now),
        NamespacePhase::Superseded => superseded.is_some(),
        NamespacePhase::Unknown => health.is_some_and(|health| health.seen == HealthSeen::Unknown),
        NamespacePhase::Failed | NamespacePhase::Failing | NamespacePhase::Unstable | NamespacePhase::Ok => {
            false
        }
    };
    let (phase, since) = match PHASES_BEFORE.iter().find(|one| applies(one)).map(|one| one.phase) {
        Some(NamespacePhase::Stale) => (NamespacePhase::Stale, expires_at),
        Some(NamespacePhase::Superseded) => (NamespacePhase::Superseded, superseded.map(|one| one.since)),
        Some(other) => (other, None),
        None => health.map_or((NamespacePhase::Ok, None), HealthFinding::phase),
    };
    let health_counts = match phase {
        NamespacePhase::Terminating => false,
        NamespacePhase::Stale => own_ttl,
        _ => true,
    };
    let verdicts = status.map(|status| status.policies.clone()).unwrap_or_default();
    PhaseFinding {
        phase,
        since,
        expires_at,
        health,
        superseded,
        created,
        settle: manager.settle,
        extended,
        first_end,
        health_counts,
        verdicts,
    }
}

/// When a ttl ends. Creation times are cut to whole seconds: a namespace may be almost a second younger than it looks.
pub(super) fn ttl_end(created: Timestamp, ttl: Duration, extended: Option<Timestamp>) -> Timestamp {
    let own = later(later(created, ttl), Duration::from_secs(1));
    extended.map_or(own, |extended| own.max(extended))
}

impl HealthFinding {
    fn phase(self) -> (NamespacePhase, Option<Timestamp>) {
        let [unstable, failing, failed] = self.since;
        match self.state {
            _ if self.seen == HealthSeen::Unknown => (NamespacePhase::Unknown, None),
            HealthState::Ok => (NamespacePhase::Ok, None),
            HealthState::Unstable => (NamespacePhase::Unstable, unstable),
            HealthState::Failing => (NamespacePhase::Failing, failing),
            HealthState::Failed => (NamespacePhase::Failed, failed),
        }
    }

    /// Since when it has been in one of these phases without a break; none if it is in none of them.
    fn since_in(&self, phases: &[PolicyPhase]) -> Option<Timestamp> {
        let [unstable, failing, failed] = self.since;
        let before = [
            (HealthState::Failed, PolicyPhase::Failed, failed),
            (HealthState::Failing, PolicyPhase::Failing, failing),
            (HealthState::Unstable, PolicyPhase::Unstable, unstable),
        ];
        // Backwards, as it came here.
        let past = before.into_iter().skip_while(|(state, ..)| *state != self.state);
        past.take_while(|(_, phase, _)| phases.contains(phase)).last().and_then(|(_, _, since)| since)
    }

    fn unconfirmed(&self) -> Option<Unconfirmed> {
        match self.seen {
            HealthSeen::Failing => None,
            HealthSeen::Passing if active(Mutant::RecoveryIgnored) => None,
            HealthSeen::Passing => Some(Unconfirmed::Recovering),
            HealthSeen::Unknown => Some(Unconfirmed::Unknown),
        }
    }
}

impl PhaseFinding {
    /// How it is by its health, whatever its ttl says, and whether or not it is superseded.
    pub(super) fn by_health(&self) -> NamespacePhase {
        let other = matches!(self.phase, NamespacePhase::Stale | NamespacePhase::Superseded);
        let health = self.health.filter(|_| self.health_counts && other);
        health.map_or(self.phase, |health| health.phase().0)
    }

    /// When what fails began to, whether or not any condition is true by it yet; none if nothing fails.
    fn fails_since(&self) -> Option<Timestamp> {
        self.health
            .filter(|health| health.seen == HealthSeen::Failing)
            .and_then(|health| health.first_failure_at)
    }

    /// When that began which makes one of these policies true, or does if it goes on; none if nothing has. What fails when a
    /// spec begins to govern becomes due by it, though not at once.
    pub fn cause_since<'a>(
        &self,
        policies: impl Iterator<Item = &'a ValidClusterPolicy> + Clone,
    ) -> Option<Timestamp> {
        let fails = self.fails_since().filter(|_| policies.clone().any(|one| one.condition.is_of_health()));
        let due = policies.flat_map(|policy| self.due(policy));
        let due = due.filter(|due| due.unconfirmed.is_none());
        due.map(|due| due.cause_since).chain(fails).min()
    }

    /// Whether a condition that was true is known to be false. What is not known, or begins again with another spec, ends nothing.
    pub fn has_ended(&self, policy: &ValidClusterPolicy, now: Timestamp) -> bool {
        let over = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let condition = &policy.condition;
        match condition {
            ClusterCondition::Ttl(_) => !self.due(policy).any(|due| due.at <= now),
            ClusterCondition::PodsSucceed(_) => self.verdict_on(policy).is_some_and(|known| {
                known.verdict.result == Verdict::False && known.succeeded_since.is_none()
            }),
            ClusterCondition::Phase { phases, .. } => {
                let stale = phases.contains(&PolicyPhase::Stale) && over(self.expires_at);
                let well = |health: HealthFinding| {
                    (health.state, health.seen) == (HealthState::Ok, HealthSeen::Passing)
                };
                let fails = condition.is_of_health() && self.health.is_some_and(|health| !well(health));
                let superseded = phases.contains(&PolicyPhase::Superseded) && self.superseded.is_some();
                !stale && !fails && !superseded
            }
        }
    }

    /// What is recorded of a policy that waits for pods.
    pub fn verdict_on(&self, policy: &ValidClusterPolicy) -> Option<&PodsVerdict> {
        self.verdicts.iter().find(|known| known.verdict.name == policy.name)
    }

    /// Whether nothing fails, as far as that is known for certain.
    pub fn is_well(&self) -> bool {
        self.health.is_none_or(|health| (health.state, health.seen) == (HealthState::Ok, HealthSeen::Passing))
    }

    /// When a condition is true, or was for the first time, if nothing but time passes: by the ttl, by what has taken its place, and
    /// by the health. Nothing if time alone does not make it true.
    pub fn due(&self, policy: &ValidClusterPolicy) -> impl Iterator<Item = Due> + use<> {
        let (phases, lasting) = match &policy.condition {
            ClusterCondition::Phase { phases, lasting } => (phases, lasting),
            ClusterCondition::Ttl(end) => {
                let at = match *end {
                    TtlEnd::After(after) => ttl_end(self.created, after, self.extended),
                    TtlEnd::Until(until) => self.extended.map_or(until, |extended| until.max(extended)),
                };
                let due =
                    Due { at, not_before: at, cause_since: at, unconfirmed: None, cause: DueCause::Ttl };
                return [Some(due), None, None].into_iter().flatten();
            }
            ClusterCondition::PodsSucceed(pods) => {
                let due = self.verdict_on(policy).and_then(|known| pods_due(known, pods.settle));
                return [due, None, None].into_iter().flatten();
            }
        };
        let stale = self.expires_at.filter(|_| phases.contains(&PolicyPhase::Stale)).map(|expires_at| {
            let at = later(expires_at, *lasting);
            // What has become shorter under this spec is due by that, and what has become longer is not due.
            let cause_since = self.first_end.map_or(at, |first| at.max(later(first, *lasting)));
            Due { at, not_before: at, cause_since, unconfirmed: None, cause: DueCause::Ttl }
        });
        let superseded = self.superseded.filter(|_| phases.contains(&PolicyPhase::Superseded));
        let superseded = superseded.map(|Superseded { since, both_exist_since, confirmed }| {
            let unconfirmed = (!confirmed).then_some(Unconfirmed::SuccessorUnknown);
            let (at, not_before) = (later(since, *lasting), later(since, self.settle.max(*lasting)));
            let cause_since = both_exist_since;
            Due { at, not_before, cause_since, unconfirmed, cause: DueCause::Superseded }
        });
        let unhealthy = self.health.filter(|_| self.health_counts).and_then(|health| {
            let at = later(health.since_in(phases)?, *lasting);
            let cause_since = health.first_failure_at.map_or(at, |since| since.min(at));
            Some(Due {
                at,
                not_before: at,
                cause_since,
                unconfirmed: health.unconfirmed(),
                cause: DueCause::Health,
            })
        });
        [stale, superseded, unhealthy].into_iter().flatten()
    }
}

/// When the pods have succeeded for long enough, if they have succeeded.
fn pods_due(known: &PodsVerdict, settle: Duration) -> Option<Due> {
    let PodsVerdict { verdict, succeeded_since } = known;
    let cause_since = (*succeeded_since)?;
    let settling = verdict.reason == Reason::Settling.as_str();
    let (since, unconfirmed) = match verdict.result {
        Verdict::True => (verdict.since, None),
        Verdict::False if settling => (verdict.since, None),
        Verdict::False => return None,
        Verdict::Unknown => (cause_since, Some(Unconfirmed::Unknown)),
    };
    let at = later(since, settle);
    Some(Due { at, not_before: at, cause_since, unconfirmed, cause: DueCause::Pods })
}
