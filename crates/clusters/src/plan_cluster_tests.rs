use coppice_api::condition::{self, READY};
use coppice_clusters_api::{AccessPhase, CapiCluster, ClusterSource, TargetIdentity};

use super::tests::{at, saved, secret, settled};
use super::*;
use crate::observed::ClusterFact;

/// One that has a credential for a cluster of Cluster API.
fn of_cluster_api() -> AccessObservation {
    let mut observed = settled();
    let cluster_api = Some(CapiCluster { name: "shop".to_owned() });
    observed.spec.cluster = ClusterSource { cluster_api, ..ClusterSource::default() };
    observed
}

#[test]
fn a_cluster_is_looked_at_before_each_credential_and_at_no_other_time() {
    let mut observed = of_cluster_api();
    assert!(matches!(plan(&observed, at(1)), AccessStep::Wait(Some(_))));
    let due = observed.status.next_rotation.unwrap();
    assert_eq!(plan(&observed, due), AccessStep::ReadCluster);
    observed.cluster = ClusterFact::Stays;
    observed.status = saved(plan(&observed, due));
    assert_eq!(observed.status.intent.as_ref().unwrap().credential, "u-2");
    // A crash later.
    (observed.cluster, observed.output) = (ClusterFact::Unread, OutputFact::Ours(secret("u-1", "7")));
    assert_eq!(plan(&observed, due), AccessStep::ReadCluster);
    // What was written before the crash is taken up, whatever becomes of the cluster.
    (observed.cluster, observed.output) = (ClusterFact::Gone, OutputFact::Ours(secret("u-2", "8")));
    assert_eq!(plan(&observed, due), AccessStep::VerifyWritten { credential: "u-2".to_owned() });
    observed.deleting = true;
    observed.status = saved(plan(&observed, due));
    observed.cluster = ClusterFact::Unread;
    assert_eq!(plan(&observed, due), AccessStep::RevokeAll);
}

#[test]
fn another_cluster_of_that_name_is_not_the_same_one() {
    let mut observed = of_cluster_api();
    let due = observed.status.next_rotation.unwrap();
    observed.cluster = ClusterFact::Stays;
    observed.status = saved(plan(&observed, due));
    observed.output = OutputFact::Ours(secret("u-1", "7"));
    observed.target = Some(TargetIdentity { uid: "other".to_owned(), endpoint: "e".to_owned() });
    let error = saved(plan(&observed, due)).last_error.unwrap();
    assert_eq!(error.reason, "TargetChanged");
    // Its Secret is Cluster API's: nobody can write the kubeconfig before into it.
    assert!(error.message.contains("delete this ClusterAccess, since its Cluster was replaced"), "{error:?}");
}

#[test]
fn nothing_is_issued_for_a_cluster_that_goes_and_what_was_issued_stays() {
    for (cluster, says) in
        [(ClusterFact::Deleting, "shop is being deleted"), (ClusterFact::Gone, "shop is gone")]
    {
        let mut observed = of_cluster_api();
        let due = observed.status.next_rotation.unwrap();
        observed.cluster = cluster;
        let status = saved(plan(&observed, due));
        assert_eq!((status.phase, &status.intent), (Some(AccessPhase::Refused), &None));
        assert_eq!((status.credential.as_deref(), status.output.is_some()), (Some("u-1"), true));
        let ready = condition::find(&status.conditions, READY).unwrap();
        assert_eq!(ready.status, "True");
        assert!(ready.message.contains(says), "{}", ready.message);
        let error = status.last_error.clone().unwrap();
        assert_eq!(error.reason, "ClusterDeleted");
        (observed.status, observed.cluster) = (status, ClusterFact::Unread);
        let next = next_attempt(&error);
        assert_eq!(plan(&observed, due), AccessStep::Wait(Some(next)));
        assert_eq!(plan(&observed, next), AccessStep::ReadCluster);
    }
}

#[test]
fn the_secret_of_a_cluster_that_is_gone_stays_when_its_credential_expires_and_status_says_so_at_once() {
    let mut observed = of_cluster_api();
    let expiry = observed.status.not_after.unwrap();
    let before = expiry - SignedDuration::from_secs(30);
    observed.cluster = ClusterFact::Gone;
    observed.status = saved(plan(&observed, before));
    assert_eq!(condition::find(&observed.status.conditions, READY).unwrap().status, "True");
    observed.cluster = ClusterFact::Unread;
    // Not only when it is looked at again, a minute later.
    assert_eq!(plan(&observed, before), AccessStep::Wait(Some(expiry)));
    observed.status = saved(plan(&observed, expiry));
    let status = &observed.status;
    let ready = condition::find(&status.conditions, READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "ClusterDeleted"));
    assert!(ready.message.contains("delete this ClusterAccess"), "{}", ready.message);
    assert_eq!(status.phase, Some(AccessPhase::Refused));
    assert_eq!((status.credential.as_deref(), status.output.is_some()), (Some("u-1"), true));
    // From then on as before: it is looked whether there is a cluster, nothing is issued, and the Secret is not touched.
    let next = next_attempt(status.last_error.as_ref().unwrap());
    assert_eq!(plan(&observed, expiry), AccessStep::Wait(Some(next)));
    assert_eq!(plan(&observed, next), AccessStep::ReadCluster);
    observed.cluster = ClusterFact::Gone;
    let status = saved(plan(&observed, next));
    assert_eq!((status.intent, status.credential.as_deref()), (None, Some("u-1")));
    assert!(status.output.is_some());
}
