//! What was written of Subnamespaces and is not in the cache yet. Who decided on that cache would read everything again to find that there is
//! nothing to do.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coppice_kinds::SubnamespaceObject;
use coppice_runtime::kind::is_later;
use tokio::time::Instant;

/// So long the watch has to show what was written. Then everything is read again: an event may have been lost.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The last write of the status of each Subnamespace that its watch has not shown yet.
#[derive(Default)]
pub(crate) struct UnseenWrites(Mutex<BTreeMap<SubnamespaceName, Written>>);

/// The namespace of a Subnamespace, and its name.
type SubnamespaceName = (Box<str>, Box<str>);

struct Written {
    uid: Box<str>,
    resource_version: Box<str>,
    at: Instant,
}

impl UnseenWrites {
    /// An object was written, and is like this since.
    pub(super) fn add(&self, object: &SubnamespaceObject) {
        let (uid, resource_version) = (object.uid.clone(), object.resource_version.clone());
        self.all().insert(name_of(object), Written { uid, resource_version, at: Instant::now() });
    }

    /// Until when the watch has time to show what was written of an object of which the cache has this; none where it has that.
    pub(super) fn until(&self, cached: &SubnamespaceObject) -> Option<Instant> {
        let (mut all, name) = (self.all(), name_of(cached));
        let written = all.get(&name)?;
        let until = written.at + CATCH_UP;
        let newer = is_later(&written.resource_version, &cached.resource_version);
        if written.uid == cached.uid && newer && Instant::now() < until {
            return Some(until);
        }
        all.remove(&name);
        None
    }

    /// There is no such object any more: nothing of it is waited for.
    pub(super) fn remove_write(&self, parent: &str, name: &str) {
        let removed: SubnamespaceName = (parent.into(), name.into());
        self.all().remove(&removed);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<SubnamespaceName, Written>> {
        // Every change is one assignment: a panic leaves valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name_of(object: &SubnamespaceObject) -> SubnamespaceName {
    (object.namespace.clone(), object.name.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plan::tests::object;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cache_is_waited_for_that_is_behind_but_for_no_longer_than_a_second() {
        let of = |revision: &str| object("4", &json!({"resourceVersion": revision}), &json!({}));
        let unseen = UnseenWrites::default();
        assert_eq!(unseen.until(&of("9")), None, "nothing was written");
        let until = Instant::now() + CATCH_UP;
        unseen.add(&of("10"));
        assert_eq!(unseen.until(&of("9")), Some(until));
        assert_eq!(unseen.until(&of("10")), None, "it is there");
        assert_eq!(unseen.until(&of("9")), None, "it was there");
        unseen.add(&of("10"));
        let other = object("4", &json!({"resourceVersion": "9", "uid": "u-2"}), &json!({}));
        assert_eq!(unseen.until(&other), None, "another object of that name");
        unseen.add(&of("10"));
        tokio::time::advance(CATCH_UP).await;
        assert_eq!(unseen.until(&of("9")), None, "the event may have been lost");
        unseen.add(&of("10"));
        unseen.remove_write("shop", "shop-web");
        assert_eq!(unseen.until(&of("9")), None, "it was gone");
    }
}
