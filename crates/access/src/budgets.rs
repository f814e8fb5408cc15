//! How many calls a minute are made by each `ClusterProvider`, for credentials and for Shoots, in the memory of the leader; and who goes first
//! in a target that has too many requests, to which no provider leads.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coppice_clusters::{Budget, Turn, Urgency};
use jiff::Timestamp;

use crate::cluster_access::AccessKey;
use crate::managed_cluster::ClusterKey;

/// Who makes calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// A `ClusterAccess`, of a credential or a change of its rights.
    Access(AccessKey),
    /// A `ManagedCluster`, of a look at its Shoot with what is written then.
    Cluster(ClusterKey),
}

impl Caller {
    fn namespace(&self) -> &str {
        match self {
            Self::Access(key) => key.namespace(),
            Self::Cluster(key) => key.namespace(),
        }
    }
}

impl From<&AccessKey> for Caller {
    fn from(key: &AccessKey) -> Self {
        Self::Access(key.clone())
    }
}

impl From<&ClusterKey> for Caller {
    fn from(key: &ClusterKey) -> Self {
        Self::Cluster(key.clone())
    }
}

/// The budget of each provider, by its name; or of each target, by where its kubeconfig is. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Budgets<P = String>(Arc<Mutex<BTreeMap<P, Budget<Caller>>>>);

impl<P> Default for Budgets<P> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<P: Ord> Budgets<P> {
    /// Asks for a call, of so many a minute.
    pub(crate) fn take<Q>(
        &self,
        of: &Q,
        caller: impl Into<Caller>,
        urgency: Urgency,
        per_minute: u32,
        now: Timestamp,
    ) -> Turn
    where
        Q: ToOwned<Owned = P> + ?Sized,
    {
        let (caller, per_minute) = (caller.into(), usize::try_from(per_minute).unwrap_or(usize::MAX));
        self.all().entry(of.to_owned()).or_default().take(
            (caller.namespace(), &caller),
            urgency,
            per_minute,
            now,
        )
    }

    /// Grants nothing until then: what the provider leads to, or the target, has too many requests.
    pub(crate) fn throttle<Q>(&self, of: &Q, until: Timestamp)
    where
        Q: ToOwned<Owned = P> + ?Sized,
    {
        self.all().entry(of.to_owned()).or_default().throttle(until);
    }

    /// Until when nothing is asked of that; none if something may be.
    pub(crate) fn throttled_until<Q>(&self, of: &Q, now: Timestamp) -> Option<Timestamp>
    where
        P: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.all().get(of)?.throttled_until(now)
    }

    /// Whether that has too many requests, or had them a moment ago: the most urgent go first.
    pub(crate) fn was_throttled<Q>(&self, of: &Q, now: Timestamp) -> bool
    where
        P: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.all().get(of).is_some_and(|budget| budget.was_throttled(now))
    }

    /// What was granted to it last was not asked for.
    pub(crate) fn give_back<Q>(&self, of: &Q, caller: impl Into<Caller>)
    where
        P: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        if let Some(budget) = self.all().get_mut(of) {
            budget.give_back(&caller.into());
        }
    }

    /// Until when one that waits has nothing else to do; none if it does not wait, or its time has come. What is to be revoked waits for
    /// what has too many requests alone, and not for those that are more urgent.
    pub(crate) fn waits_until<Q>(
        &self,
        of: &Q,
        caller: impl Into<Caller>,
        revokes: bool,
        now: Timestamp,
    ) -> Option<Timestamp>
    where
        P: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let all = self.all();
        let budget = all.get(of)?;
        let asks_again = budget.asks_again(&caller.into(), now)?;
        if revokes { budget.throttled_until(now) } else { Some(asks_again) }
    }

    /// Since when one waits; none if it does not.
    pub(crate) fn waits_since<Q>(&self, of: &Q, caller: impl Into<Caller>) -> Option<Timestamp>
    where
        P: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.all().get(of)?.waits_since(&caller.into())
    }

    /// It waits for none of them any more.
    pub(crate) fn stop_waiting(&self, caller: impl Into<Caller>) {
        let caller = caller.into();
        self.all().values_mut().for_each(|budget| budget.stop_waiting(&caller));
    }

    /// How many wait for one of them.
    pub(crate) fn waiting<Q>(&self, of: &Q, now: Timestamp) -> i64
    where
        P: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let waiting = self.all().get(of).map_or(0, |budget| budget.waiting(now));
        i64::try_from(waiting).unwrap_or(i64::MAX)
    }

    /// Removes the budgets of all others.
    pub(crate) fn retain(&self, is_kept: impl Fn(&P) -> bool) {
        self.all().retain(|of, _| is_kept(of));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<P, Budget<Caller>>> {
        // A panic leaves valid data: at worst somebody waits who was granted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn clusters_and_accesses_have_one_budget_and_what_is_urgent_goes_first() {
        let (budgets, access) = (Budgets::<String>::default(), AccessKey::new("team", "shop"));
        // Of the same name, and another caller.
        let cluster = ClusterKey::new("team", "shop");
        assert_eq!(budgets.take("p", &cluster, Urgency::Routine, 1, at(0)), Turn::Granted);
        assert_eq!(budgets.take("p", &access, Urgency::Expiring, 1, at(1)), Turn::NotBefore(at(60)));
        assert!(matches!(budgets.take("p", &cluster, Urgency::Routine, 1, at(2)), Turn::NotBefore(_)));
        assert_eq!(budgets.waiting("p", at(3)), 2);
        // The credential that expires goes before a look at a cluster.
        assert!(matches!(budgets.take("p", &cluster, Urgency::Routine, 1, at(60)), Turn::NotBefore(_)));
        assert_eq!(budgets.take("p", &access, Urgency::Expiring, 1, at(60)), Turn::Granted);
    }
}
