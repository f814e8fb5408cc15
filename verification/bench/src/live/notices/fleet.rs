//! The namespaces of which owners are notified, and a few others: who is due when.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_tests::scale::objects::{EtcdEntry, namespace_name};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Scale;
use crate::live::Testbed;

/// How old namespaces become, by their creation time: both programs have the same settings.
pub(super) const TTL: Duration = Duration::from_hours(2);
/// Where namespaces say whom to tell, as the SKA manager writes it.
pub(super) const ADDRESS: &str = "cicd.skao.int/notificationAddress";
/// One of those of which nobody is notified is due in so many seconds.
const OTHERS_APART: u64 = 3;

/// What is due, from the first moment at which something is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet {
    /// The announced ones.
    pub(super) namespaces: usize,
    /// Their owners.
    owners: usize,
    /// Those of which nobody is notified, of another cluster manager.
    pub(super) others: usize,
    /// All are due within this time.
    lasts: Duration,
    /// When the first is due.
    first: Timestamp,
}

impl Fleet {
    pub(super) fn new(scale: &Scale, first: Timestamp) -> Self {
        let lasts = Duration::from_secs(60 * scale.minutes);
        let others = usize::try_from(lasts.as_secs() / OTHERS_APART).unwrap_or(0).min(scale.namespaces);
        let owners = scale.owners.unwrap_or(scale.namespaces / 5).max(1);
        Self { namespaces: scale.namespaces, owners, others, lasts, first }
    }

    /// When the n-th of so many is due: evenly, in whole seconds.
    fn of(&self, n: usize, all: usize) -> Timestamp {
        let seconds = self.lasts.as_secs() * n as u64 / all.max(1) as u64;
        self.first + SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    }

    /// When the n-th announced one is due.
    pub(super) fn due(&self, n: usize) -> Timestamp {
        self.of(n, self.namespaces)
    }

    /// When the n-th of the others is due.
    pub(super) fn other_due(&self, n: usize) -> Timestamp {
        self.of(n, self.others)
    }

    /// When the last is due.
    pub(super) fn end(&self) -> Timestamp {
        self.of(1, 1)
    }

    /// Writes all of them into etcd, each with a Deployment and a ReplicaSet that are well.
    pub(super) async fn seed(&self, testbed: &Testbed) -> anyhow::Result<()> {
        testbed.seed((0..self.namespaces).map(|n| self.announced(testbed, n))).await?;
        testbed.seed((0..self.namespaces).map(|n| testbed.objects.deployment(n, 0))).await?;
        testbed.seed((0..self.namespaces).map(|n| testbed.objects.replica_set(n, 0))).await?;
        testbed.seed((0..self.others).map(|n| self.other(testbed, n))).await
    }

    fn announced(&self, testbed: &Testbed, n: usize) -> EtcdEntry {
        let (key, mut object) = testbed.objects.namespace(n);
        object["metadata"]["creationTimestamp"] = created(self.due(n));
        let address = STANDARD.encode(format!("owner::U{:07}", n % self.owners));
        object["metadata"]["annotations"] = json!({ ADDRESS: address });
        (key, object)
    }

    fn other(&self, testbed: &Testbed, n: usize) -> EtcdEntry {
        let (_, mut object) = testbed.objects.namespace(n);
        let name = other_name(n);
        object["metadata"]["name"] = json!(name);
        object["metadata"]["uid"] = json!(format!("0000ffff-5ca1-4e00-8000-{n:012x}"));
        object["metadata"]["labels"] = json!({"kubernetes.io/metadata.name": name});
        object["metadata"]["creationTimestamp"] = created(self.other_due(n));
        (format!("/registry/namespaces/{name}"), object)
    }
}

/// When something was created that is due then. Creation times are cut to whole seconds, so that a ttl counts one more.
fn created(due: Timestamp) -> Value {
    let ttl = SignedDuration::from_secs(i64::try_from(TTL.as_secs()).unwrap_or(0) + 1);
    json!((due - ttl).to_string())
}

/// The name of the n-th of those of which nobody is notified.
pub(super) fn other_name(n: usize) -> String {
    format!("other-{n:05}")
}

/// The name of the n-th announced one.
pub(super) fn announced_name(n: usize) -> String {
    namespace_name(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_due_evenly_within_the_time() {
        let scale = Scale { namespaces: 10, minutes: 1, owners: None };
        let fleet = Fleet::new(&scale, Timestamp::UNIX_EPOCH);
        let at: Vec<i64> = [0, 1, 9].map(|n| fleet.due(n).as_second()).to_vec();
        assert_eq!(at, [0, 6, 54]);
        assert_eq!((fleet.end().as_second(), fleet.others, fleet.owners), (60, 10, 2));
        assert_eq!(created(fleet.due(0)), "1969-12-31T21:59:59Z");
    }
}
