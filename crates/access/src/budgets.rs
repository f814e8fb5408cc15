//! How many credentials a minute are asked for by each `ClusterProvider`, in the memory of the leader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coppice_clusters::{Budget, Turn, Urgency};
use jiff::Timestamp;

use crate::cluster_access::AccessKey;

/// The budget of each provider, by its name. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budgets(Arc<Mutex<BTreeMap<String, Budget<AccessKey>>>>);

impl Budgets {
    /// Asks for a credential, of so many a minute.
    pub(crate) fn take(
        &self,
        provider: &str,
        key: &AccessKey,
        urgency: Urgency,
        per_minute: u32,
        now: Timestamp,
    ) -> Turn {
        let per_minute = usize::try_from(per_minute).unwrap_or(usize::MAX);
        self.all().entry(provider.to_owned()).or_default().take(
            (key.namespace(), key),
            urgency,
            per_minute,
            now,
        )
    }

    /// What was granted to it last was not asked for.
    pub(crate) fn give_back(&self, provider: &str, key: &AccessKey) {
        if let Some(budget) = self.all().get_mut(provider) {
            budget.give_back(key);
        }
    }

    /// When one that waits is to ask again; none if it does not wait, or that time has come.
    pub(crate) fn asks_again(&self, provider: &str, key: &AccessKey, now: Timestamp) -> Option<Timestamp> {
        self.all().get(provider)?.asks_again(key, now)
    }

    /// It waits for none of them any more.
    pub(crate) fn stop_waiting(&self, key: &AccessKey) {
        self.all().values_mut().for_each(|budget| budget.stop_waiting(key));
    }

    /// How many wait for one provider.
    pub(crate) fn waiting(&self, provider: &str, now: Timestamp) -> i64 {
        let waiting = self.all().get(provider).map_or(0, |budget| budget.waiting(now));
        i64::try_from(waiting).unwrap_or(i64::MAX)
    }

    /// Forgets the budgets of all others.
    pub(crate) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.all().retain(|provider, _| is_kept(provider));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Budget<AccessKey>>> {
        // A panic leaves valid data: at worst somebody waits who was granted.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
