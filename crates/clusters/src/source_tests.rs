use coppice_api::condition::{self, READY};
use coppice_clusters_api::{AccessPhase, Issuer, ManagedClusterName, Rights};

use super::*;
use crate::observed::{OutputFact, Progress};
use crate::plan::plan;
use crate::plan::tests::{at, new, saved, settled};
use crate::provider::Permission;

fn named() -> ClusterSource {
    let managed_cluster = Some(ManagedClusterName { name: "shop".to_owned() });
    ClusterSource { managed_cluster, ..ClusterSource::default() }
}

fn by_cluster_api() -> ManagedClusterSpec {
    serde_json::from_value(
        serde_json::json!({"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"}),
    )
    .unwrap()
}

fn by_gardener() -> ManagedClusterSpec {
    let gardener = serde_json::json!({
        "clusterProvider": "dev", "cloudProfile": "aws", "credentialsBinding": "b", "infrastructure": "aws"
    });
    serde_json::from_value(serde_json::json!({"provider": {"gardener": gardener}, "version": "1.33.4"}))
        .unwrap()
}

fn created() -> ManagedClusterStatus {
    ManagedClusterStatus { created: Some(at(0)), ..ManagedClusterStatus::default() }
}

/// One that names a `ManagedCluster`, as the controller sees it.
fn see(before: &AccessObservation, found: Option<FoundCluster<'_>>) -> AccessObservation {
    let (cluster, managed) = resolve(&named(), &before.status, found);
    let mut observed = AccessObservation { managed, ..before.clone() };
    observed.spec.cluster = cluster;
    observed
}

#[test]
fn a_managed_cluster_stands_for_what_it_made() {
    let (none, status) = (ClusterAccessStatus::default(), created());
    for (spec, provider) in [(by_cluster_api(), None), (by_gardener(), Some("dev"))] {
        let found = FoundCluster { uid: "m", spec: Some(&spec), status: &status, deleting: false };
        let (cluster, fact) = resolve(&named(), &none, Some(found));
        let known = NamedCluster { uid: "m".to_owned(), provider: provider.map(str::to_owned) };
        assert_eq!(fact, ManagedFact::Ready(known.clone()));
        let of_cluster_api = cluster.cluster_api.as_ref().map(|of| of.name.as_str());
        let of_gardener = cluster.gardener.as_ref().map(|of| (of.provider.as_str(), of.shoot.as_str()));
        assert_eq!(of_cluster_api, provider.is_none().then_some("shop"));
        assert_eq!(of_gardener, provider.map(|provider| (provider, "shop")));
        assert_eq!(
            (cluster.provider_name(), cluster.provider_field()),
            (provider, "spec.cluster.managedCluster")
        );
        // It is that one, whatever becomes of it.
        let bound = ClusterAccessStatus { managed_cluster: Some(known), ..none.clone() };
        let deleting = FoundCluster { deleting: true, ..found };
        let another = FoundCluster { uid: "n", ..found };
        for (found, expected) in [
            (Some(found), ManagedFact::Stays),
            (Some(deleting), ManagedFact::Deleting),
            (Some(another), ManagedFact::Gone),
            (None, ManagedFact::Gone),
        ] {
            assert_eq!(resolve(&named(), &bound, found), (cluster.clone(), expected));
        }
    }
    let other =
        ClusterSource { cluster_api: Some(CapiCluster { name: "a".to_owned() }), ..ClusterSource::default() };
    assert_eq!(resolve(&other, &none, None), (other.clone(), ManagedFact::NotNamed));
}

#[test]
fn nothing_is_begun_before_it_was_ready_and_status_says_what_it_waits_for() {
    let (spec, creating) = (
        by_cluster_api(),
        ManagedClusterStatus { state: Some(ClusterState::Creating), ..ManagedClusterStatus::default() },
    );
    let found = FoundCluster { uid: "m", spec: Some(&spec), status: &creating, deleting: false };
    let nobody = ManagedClusterStatus::default();
    let lost = serde_json::json!({"created": at(0), "lastError": {
        "reason": "ClusterGone", "message": "", "class": "WaitingForInput", "generation": 1, "attempts": 1, "at": at(0)
    }});
    let lost: ManagedClusterStatus = serde_json::from_value(lost).unwrap();
    let mut access = AccessObservation { has_finalizer: false, target: None, ..new() };
    for (found, says) in [
        (None, "does not exist in this namespace"),
        (Some(FoundCluster { status: &nobody, ..found }), "whether ManagedClusters are switched on"),
        (Some(FoundCluster { status: &lost, ..found }), "does not have the cluster any more"),
        (Some(found), "its state is Creating"),
        (Some(FoundCluster { deleting: true, ..found }), "is being deleted"),
        (Some(FoundCluster { spec: None, ..found }), "cannot be understood"),
    ] {
        let observed = see(&access, found);
        let status = saved(plan(&observed, at(1)));
        let ready = condition::find(&status.conditions, READY).unwrap();
        assert_eq!((status.phase, ready.reason.as_str()), (Some(AccessPhase::Pending), "ClusterNotReady"));
        let waits = "No credential is issued yet: ManagedCluster shop ";
        assert!(ready.message.starts_with(waits) && ready.message.contains(says), "{}", ready.message);
        access.status = status;
        assert_eq!(plan(&see(&access, found), at(2)), AccessStep::Wait(None));
    }
    // Once it was, status names it before anything is issued.
    let ready = created();
    let found = Some(FoundCluster { status: &ready, ..found });
    assert_eq!(plan(&see(&access, found), at(3)), AccessStep::AddFinalizer);
    access.has_finalizer = true;
    access.status = saved(plan(&see(&access, found), at(3)));
    let known = NamedCluster { uid: "m".to_owned(), provider: None };
    assert_eq!((&access.status.managed_cluster, access.status.sequence), (&Some(known), 0));
    access.output = OutputFact::Absent;
    assert_eq!(plan(&see(&access, found), at(3)), AccessStep::ReadCluster);
    access.cluster = ClusterFact::Stays;
    assert_eq!(saved(plan(&see(&access, found), at(3))).sequence, 1);
}

#[test]
fn nothing_is_issued_for_one_that_goes_and_what_was_issued_is_revoked_where_it_was() {
    for provider in [None, Some("dev".to_owned())] {
        let mut access = AccessObservation { permission: Permission::Allowed, ..settled() };
        access.status.managed_cluster = Some(NamedCluster { uid: "m".to_owned(), provider });
        let due = access.status.next_rotation.unwrap();
        assert_eq!(plan(&see(&access, None), due), AccessStep::ReadCluster, "a cache may lack it");
        access.cluster = ClusterFact::Gone;
        let observed = see(&access, None);
        let status = saved(plan(&observed, due));
        assert_eq!((status.phase, &status.intent), (Some(AccessPhase::Refused), &None));
        let error = status.last_error.unwrap();
        assert_eq!(error.reason, "ClusterDeleted");
        assert!(error.message.contains("ManagedCluster shop is gone"), "{}", error.message);
        access.deleting = true;
        let mut observed = see(&access, None);
        observed.status = saved(plan(&observed, due));
        assert_eq!(plan(&observed, due), AccessStep::RevokeAll);
        observed.progress = Progress::AllRevoked;
        assert_eq!(plan(&observed, due), AccessStep::RemoveRights);
    }
}

#[test]
fn issuers_of_gardener_issue_for_what_gardener_makes_alone() {
    let status = created();
    let mut access = AccessObservation { has_finalizer: false, ..new() };
    (access.spec.issuer, access.spec.rights) = (Issuer::GardenerAdmin, Rights::default());
    for (spec, is_refused) in [(by_cluster_api(), true), (by_gardener(), false)] {
        let found = FoundCluster { uid: "m", spec: Some(&spec), status: &status, deleting: false };
        let step = plan(&see(&access, Some(found)), at(0));
        if is_refused {
            let status = saved(step);
            assert_eq!(status.phase, Some(AccessPhase::Refused));
            assert!(status.last_error.as_ref().unwrap().message.contains("is made by Cluster API"));
            access.status = status;
            assert!(matches!(plan(&see(&access, Some(found)), at(1)), AccessStep::Wait(Some(_))));
            // It is deleted, and another one of its name is waited for.
            let status = saved(plan(&see(&access, None), at(1)));
            assert_eq!((status.phase, status.last_error), (Some(AccessPhase::Pending), None));
            let ready = condition::find(&status.conditions, READY).unwrap();
            assert_eq!(ready.reason, "ClusterNotReady");
        } else {
            access.status = saved(step);
            assert_eq!(access.status.last_error, None, "it is said of the one before");
            assert_eq!(plan(&see(&access, Some(found)), at(0)), AccessStep::AddFinalizer);
        }
    }
}
