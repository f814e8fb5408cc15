//! Which `ClusterAccess`es their providers allowed when somebody last looked, in the memory of a replica: as long as neither has changed,
//! what was given is not looked at again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster_access::AccessKey;
use crate::kinds::{Access, Provider};

/// After so long it is looked again where labels of the namespace decide, which nobody watches.
const BY_LABELS: Duration = Duration::from_mins(5);

/// What was looked at: the uid and the generation of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen([(Box<str>, i64); 2]);

impl Seen {
    pub(crate) fn new(access: &Access, provider: &Provider) -> Self {
        Self([(access.uid.clone(), access.generation), (provider.uid.clone(), provider.generation)])
    }
}

/// Those that were allowed.
#[derive(Debug, Default)]
pub(crate) struct AllowedBefore(Mutex<BTreeMap<AccessKey, (Seen, Option<Instant>)>>);

impl AllowedBefore {
    /// It is allowed; where labels of its namespace say so, for some time.
    pub(crate) fn insert(&self, key: AccessKey, seen: Seen, by_labels: bool) {
        let until = by_labels.then(|| Instant::now() + BY_LABELS);
        self.all().insert(key, (seen, until));
    }

    /// Whether it was, and nothing has changed since.
    pub(crate) fn contains(&self, key: &AccessKey, seen: &Seen) -> bool {
        let all = self.all();
        let known = all.get(key).filter(|(known, _)| known == seen);
        known.is_some_and(|(_, until)| until.is_none_or(|until| Instant::now() < until))
    }

    /// Removes all others.
    pub(crate) fn retain(&self, is_kept: impl Fn(&AccessKey) -> bool) {
        self.all().retain(|key, _| is_kept(key));
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<AccessKey, (Seen, Option<Instant>)>> {
        // A panic leaves valid data: each change is one insertion.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
