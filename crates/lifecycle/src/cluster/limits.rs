//! How far the users of a namespace may go, by its annotations, its record and the managers in it.

use coppice_api::limits::Limits;
use coppice_api::managed_namespace::{Extension, Held, RecordHold, RecordLimits};
use coppice_api::steps::Action;
use coppice_destination::{AllowList, HostEntryError};
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::ValidClusterManager;
use super::phase::ttl_end;
use crate::condition::{later, whole_second_after};

/// After so long without a hold, and the longest notice besides, the next one is the first again.
const UNHELD: Duration = Duration::from_secs(24 * 3600);

/// Where the hosts are written, for refusals.
const HOSTS: &str = "spec.limits.webhookHosts of that ClusterNamespaceManager";

/// The limits of a cluster manager, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidLimits {
    /// When a namespace expires at the latest, from its creation on.
    pub max_ttl: Option<Duration>,
    /// For how long a hold counts, from the first one on.
    pub max_hold: Option<Duration>,
    /// Those of the managers in its namespaces; none if there are none.
    pub tenants: Option<TenantLimits>,
}

/// The limits of the managers in a namespace, besides those of the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// For how long a deletion is announced at least.
    pub min_notice: Duration,
    /// Which actions they may use; none: all that the settings permit.
    pub actions: Option<Vec<Action>>,
    /// Where webhooks may go; none: wherever the settings permit.
    pub hosts: Option<AllowList>,
}

impl TryFrom<Limits> for ValidLimits {
    type Error = InvalidLimits;

    fn try_from(limits: Limits) -> Result<Self, InvalidLimits> {
        let Limits { max_ttl, max_hold, min_notice, tenant_actions, webhook_hosts } = limits;
        if max_ttl.is_some_and(Duration::is_zero) {
            return Err(InvalidLimits::ZeroTtl);
        }
        let hosts = webhook_hosts.map(|entries| match AllowList::parse(&entries) {
            (hosts, errors) if errors.is_empty() => Ok(hosts.of_setting(HOSTS)),
            (_, mut errors) => Err(InvalidLimits::Hosts(errors.swap_remove(0))),
        });
        let tenants = TenantLimits {
            min_notice: min_notice.unwrap_or(Duration::ZERO),
            actions: tenant_actions.map(|actions| actions.into_iter().map(Action::from).collect()),
            hosts: hosts.transpose()?,
        };
        let tenants = (tenants != TenantLimits::default()).then_some(tenants);
        Ok(Self { max_ttl, max_hold, tenants })
    }
}

/// What is wrong with limits, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLimits {
    /// Every namespace would expire at once.
    #[error("maxTTL must be at least 1s")]
    ZeroTtl,
    /// An entry of the hosts cannot be understood.
    #[error(transparent)]
    Hosts(#[from] HostEntryError),
}

impl ValidLimits {
    /// Those of a record of a namespace that was created then; none if nothing of it is limited.
    pub(super) fn of_record(&self, created: Timestamp) -> Option<RecordLimits> {
        let latest_end = self.max_ttl.map(|max| ttl_end(created, max, None));
        let limits = RecordLimits { latest_end, max_hold: self.max_hold };
        (limits != RecordLimits { latest_end: None, max_hold: None }).then_some(limits)
    }
}

/// For how long a namespace has been held, given what is recorded of that already. None if it has not been.
pub fn held(known: Option<&Held>, hold: Option<&RecordHold>, now: Timestamp) -> Option<Held> {
    let now_or_soon = whole_second_after(now);
    match hold.filter(|hold| now < hold.until) {
        Some(hold) => Some(Held { since: known.map_or(now_or_soon, |held| held.since), until: hold.until }),
        // It was removed, or has ended.
        None => known.map(|held| Held { until: held.until.min(now_or_soon), ..*held }),
    }
}

/// When a hold ends, as far as it counts for a namespace that has been held for so long.
pub fn hold_end(limits: Option<&RecordLimits>, known: Option<&Held>, hold: &RecordHold) -> Timestamp {
    let max = limits.and_then(|limits| limits.max_hold);
    if max.is_some_and(Duration::is_zero) || max.is_some() && active(Mutant::HoldLimitedAtOnce) {
        return Timestamp::MIN;
    }
    max.zip(known).map_or(hold.until, |(max, known)| hold.until.min(later(known.since, max)))
}

/// For how long a hold that begins now counts, where that is limited: what earlier holds have not used.
pub fn hold_left(
    limits: Option<&RecordLimits>,
    known: Option<&Held>,
    manager: &ValidClusterManager,
    now: Timestamp,
) -> Option<Duration> {
    let max = limits?.max_hold?;
    let ends = remembered(known, manager, now).map_or_else(|| later(now, max), |held| later(held.since, max));
    let left = u64::try_from(ends.duration_since(now).as_secs()).unwrap_or(0);
    Some(Duration::from_secs(left).min(max))
}

/// When an extension ends, as far as it counts.
pub fn extension_end(limits: Option<&RecordLimits>, extension: &Extension) -> Timestamp {
    let latest = limits.and_then(|limits| limits.latest_end);
    latest.map_or(extension.at, |latest| extension.at.min(latest))
}

/// What is recorded of holds, if it is not dropped: between two of them there were not 24 hours, and the longest notice of the
/// manager besides, which every hold begins again.
pub(super) fn remembered<'a>(
    held: Option<&'a Held>,
    manager: &ValidClusterManager,
    now: Timestamp,
) -> Option<&'a Held> {
    held.filter(|held| now < dropped_at(held, manager))
}

/// When what is recorded of holds is dropped.
pub(super) fn dropped_at(held: &Held, manager: &ValidClusterManager) -> Timestamp {
    let longest = manager.policies().iter().map(|policy| policy.action.notice()).max();
    later(later(held.until, UNHELD), longest.unwrap_or(Duration::ZERO))
}
