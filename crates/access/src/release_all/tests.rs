use std::sync::Arc;

use coppice_runtime::controller::Controller as _;
use coppice_runtime::lease::identity;
use coppice_runtime::queue::ReconcileResult;
use coppice_scripted::{Answer, NOW, Sent, Server, WriteAnswer, scripted};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::report::{Fate, fate, fate_of_cluster, line_of, planned};
use super::*;
use crate::cluster_access::{AccessKey, ClusterAccessController, Ending, Endings};
use crate::kinds::{Access, ManagedClusterObject};
use crate::metrics::AccessMetrics;
use crate::shared::Shared;

const OTHERS: &str = "others.example.org/stay";

/// A `ClusterAccess` with our finalizer and another one.
fn access(name: &str, is_deleted: bool, status: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "team", "finalizers": ["coppice.dev/cleanup", OTHERS]},
        "spec": {
            "cluster": {"kubeconfigSecret": {"name": "target"}}, "output": {"secret": "out"},
            "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}}
        },
        "status": status
    });
    if is_deleted {
        object["metadata"]["deletionTimestamp"] = json!("2025-12-31T00:00:00Z");
    }
    object
}

/// The status of one for which a credential was issued.
fn issued() -> Value {
    json!({
        "target": {"uid": "c", "endpoint": "e"}, "credential": "u-1", "sequence": 1,
        "notBefore": "2026-01-01T00:00:00Z", "notAfter": "2026-01-02T00:00:00Z"
    })
}

fn decoded(mut object: Value) -> Access {
    (object["metadata"]["uid"], object["metadata"]["resourceVersion"]) = (json!("u"), json!("7"));
    read::decoded::<ClusterAccesses>(object.to_string().as_bytes(), &()).unwrap()
}

fn managed(is_deleted: bool, status: &Value) -> ManagedClusterObject {
    let mut object = json!({
        "metadata": {"name": "shop", "namespace": "team", "uid": "u", "resourceVersion": "7"},
        "spec": {"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"}, "status": status
    });
    if is_deleted {
        object["metadata"]["deletionTimestamp"] = json!("2025-12-31T00:00:00Z");
    }
    read::decoded::<ManagedClusters>(object.to_string().as_bytes(), &()).unwrap()
}

fn at(hours: i64) -> Timestamp {
    NOW + jiff::SignedDuration::from_hours(hours)
}

fn setup(server: &Server, credentials: CredentialHandling) -> Setup {
    let (clients, server_clock) = server.clients();
    Setup {
        clients,
        server_clock,
        metrics: Metrics::new("test"),
        lease: LeaseSettings::new("coppice-access-system", "coppice-access", name(None)),
        namespace: "coppice-access-system".to_owned(),
        concurrency: NonZeroUsize::MIN,
        rng: SeededRng::new(1),
        unencrypted: Unencrypted::Nowhere,
        credentials,
        wait: Duration::from_mins(1),
        hold: Duration::from_mins(15),
        dry_run: false,
    }
}

fn finalizers_of(server: &Server, name: &str) -> Value {
    server.object::<ClusterAccesses>("team", name)["metadata"]["finalizers"].clone()
}

/// What was sent but the Lease and Events.
fn sent(server: &Server) -> Vec<Sent> {
    let mut sent = server.writes();
    sent.retain(|sent| !sent.path.contains("/leases") && !sent.path.contains("/events"));
    sent
}

#[test]
fn each_is_known_by_its_identity_and_no_replica_is_taken_for_one() {
    let mut rng = SeededRng::new(1);
    for pod in [None, Some("coppice-release-all-x7k2p"), Some("coppice-access-6f9d-abcde")] {
        assert!(is_peer(&identity(&name(pod), &mut rng)));
    }
    for pod in ["coppice-access", "coppice-release-all-x7k2p", "release-all"] {
        assert!(!is_peer(&identity(pod, &mut rng)), "{pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_takes_the_lease_ends_what_is_being_deleted_and_keeps_the_rest() {
    let server = Server::new();
    server.put::<ClusterAccesses>(access("kept", false, &issued()));
    server.put::<ClusterAccesses>(access("deleted", true, &json!({})));
    let mut cluster = json!({
        "metadata": {"name": "shop", "namespace": "team", "finalizers": ["coppice.dev/cleanup"]},
        "spec": {"provider": {"clusterAPI": {"class": "small"}}, "version": "1.33.4"},
        "status": {"cluster": {"kind": "Cluster", "namespace": "team", "name": "shop", "uid": "s"}}
    });
    cluster["metadata"]["deletionTimestamp"] = json!("2025-12-31T00:00:00Z");
    server.put::<ManagedClusters>(cluster);
    run(setup(&server, CredentialHandling::Keep)).await.unwrap();
    for name in ["kept", "deleted"] {
        assert_eq!(finalizers_of(&server, name), json!([OTHERS]), "{name}");
    }
    let cluster = server.object::<ManagedClusters>("team", "shop");
    assert_eq!(cluster["metadata"]["finalizers"], json!([]));
    let writes = server.writes();
    // Neither an object nor a cluster is deleted, and of what is kept nothing but the finalizer is changed.
    assert!(writes.iter().all(|sent| sent.method != Method::DELETE), "{writes:?}");
    let of_kept: Vec<&Sent> =
        writes.iter().filter(|sent| sent.path.contains("/clusteraccesses/kept")).collect();
    assert_eq!(of_kept.len(), 1, "{of_kept:?}");
    assert_eq!(of_kept[0].body["metadata"]["finalizers"], json!([OTHERS]));
    let leases = writes.iter().rfind(|sent| sent.path.contains("/leases"));
    let lease = &leases.unwrap().body["spec"];
    assert_eq!(lease["leaseDurationSeconds"], 900);
    assert!(lease["holderIdentity"].as_str().unwrap().starts_with("release-all/"), "{lease}");
    // Once more, with nothing left to do.
    let again = Server::new();
    again.put::<ClusterAccesses>(server.object::<ClusterAccesses>("team", "kept"));
    run(setup(&again, CredentialHandling::Keep)).await.unwrap();
    assert_eq!(sent(&again).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    for credentials in [CredentialHandling::Keep, CredentialHandling::Revoke] {
        let server = Server::new();
        server.put::<ClusterAccesses>(access("kept", false, &issued()));
        server.put::<ClusterAccesses>(access("deleted", true, &issued()));
        run(Setup { dry_run: true, ..setup(&server, credentials) }).await.unwrap();
        assert_eq!(server.writes().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn our_finalizer_alone_is_taken_off_once_however_writes_end() {
    let server = Server::new();
    for name in ["a", "b", "c", "d"] {
        server.put::<ClusterAccesses>(access(name, name == "c", &issued()));
    }
    let mut without = access("without", false, &issued());
    without["metadata"]["finalizers"] = json!([OTHERS]);
    server.put::<ClusterAccesses>(without);
    let (clients, _) = server.clients();
    server.answer_writes([WriteAnswer::Conflict, WriteAnswer::Lost, WriteAnswer::Refused(500)]);
    let (gate, end, mut off) = (Gate::always(Duration::ZERO), Instant::now() + WRITES_WAIT, Vec::new());
    let left = finalizers::take_off::<ClusterAccesses>(&clients, &gate, end, |access| {
        off.push(access.name.to_string());
    });
    assert_eq!(left.await.unwrap(), [""; 0]);
    off.sort();
    assert_eq!(off, ["a", "b", "c", "d"]);
    for name in ["a", "b", "c", "d", "without"] {
        assert_eq!(finalizers_of(&server, name), json!([OTHERS]), "{name}");
    }
    assert!(server.writes().iter().all(|sent| sent.method == Method::PATCH));
}

#[tokio::test(start_paused = true)]
async fn what_keeps_its_finalizer_is_named_and_is_an_error() {
    let server = Server::new();
    server.put::<ClusterAccesses>(access("a", false, &issued()));
    let (clients, _) = server.clients();
    server.answer_writes(std::iter::repeat_n(WriteAnswer::Refused(403), 1_000));
    let (gate, end) = (Gate::always(Duration::ZERO), Instant::now() + WRITES_WAIT);
    let left = finalizers::take_off::<ClusterAccesses>(&clients, &gate, end, |access| {
        panic!("{} has it still", access.name);
    });
    let left = left.await.unwrap();
    assert!(left.len() == 1 && left[0].starts_with("ClusterAccess team/a: "), "{left:?}");
    assert!(Tally::default().conclude(&[]).is_ok());
    let error = Tally::default().conclude(&left).unwrap_err().to_string();
    assert!(error.starts_with("1 object has a finalizer still"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_revoked_has_our_finalizer_before_it_is_deleted() {
    let server = Server::new();
    server.put::<ClusterAccesses>(access("with", false, &issued()));
    server.put::<ClusterAccesses>(access("deleted", true, &issued()));
    // An earlier run has kept it.
    let mut kept = access("kept", false, &issued());
    kept["metadata"]["finalizers"] = json!([OTHERS]);
    server.put::<ClusterAccesses>(kept);
    let (clients, _) = server.clients();
    let gate = Gate::always(Duration::ZERO);
    deletions::delete_all(&clients, &gate).await.unwrap();
    let writes = server.writes();
    let of = |name: &str| -> Vec<&Sent> {
        let path = format!("/clusteraccesses/{name}");
        writes.iter().filter(|sent| sent.path.ends_with(&path)).collect()
    };
    let methods = |name: &str| of(name).iter().map(|sent| sent.method.clone()).collect::<Vec<Method>>();
    assert_eq!(methods("kept"), [Method::PATCH, Method::DELETE]);
    assert_eq!(of("kept")[0].body["metadata"]["finalizers"], json!([OTHERS, "coppice.dev/cleanup"]));
    assert_eq!((methods("with"), methods("deleted")), (vec![Method::DELETE], vec![]));
    assert_eq!(of("with")[0].body["preconditions"]["uid"], "uid-of-with");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_delete_it_says_what_to_do_and_takes_nothing_off() {
    let server = Server::new();
    server.put::<ClusterAccesses>(access("a", false, &issued()));
    let (clients, _) = server.clients();
    server.answer_writes([WriteAnswer::Refused(403)]);
    let error = deletions::delete_all(&clients, &Gate::always(Duration::ZERO)).await.unwrap_err().to_string();
    assert!(error.starts_with("ClusterAccess team/a could not be deleted"), "{error}");
    assert!(error.contains("kubectl delete clacc -A --all --wait=false"), "{error}");
    assert_eq!(finalizers_of(&server, "a"), json!(["coppice.dev/cleanup", OTHERS]));
}

#[tokio::test(start_paused = true)]
async fn while_it_ends_what_is_being_deleted_nothing_is_issued_or_restored() {
    let (clients, requests) = scripted(|_, _, _| Answer::Refused(500));
    let server_clock = ServerClock::new(coppice_runtime::clock::Clock::following_tokio(NOW));
    let (clock, metrics) = (server_clock.clock().clone(), Metrics::new("test"));
    let events = Events::new(&clients, clock.clone(), metrics.clone(), "test", SeededRng::new(1));
    let shared = Shared::new(clock, Unencrypted::Nowhere, "own", NonZeroUsize::MIN, None);
    // Its credential was to be replaced long ago.
    shared.accesses.upsert("team", decoded(access("ci", false, &issued())));
    let (gate, metrics) = (Gate::always(Duration::ZERO), AccessMetrics::new(&metrics));
    let controller = ClusterAccessController::new(clients, server_clock, gate, events, metrics, &shared);
    let controller = Arc::new(controller.ending(Endings::default()));
    let result = controller.reconcile(AccessKey::new("team", "ci")).await;
    assert_eq!(result, ReconcileResult::Done);
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[test]
fn what_stays_valid_is_said_with_its_date() {
    let kept = decoded(access("ci", false, &issued()));
    let valid = "its credential (Secret out) is valid until 2026-01-02T00:00:00Z";
    let not_replaced = "it is neither replaced nor revoked any more";
    assert_eq!(fate(&kept, at(1)), Fate::Kept(format!("{valid}; {not_replaced}")));
    let expired = "its credential (Secret out) has expired";
    assert_eq!(fate(&kept, at(24)), Fate::Kept(format!("{expired}; {not_replaced}")));
    // Of one that was replaced it is not forgotten.
    let mut status = issued();
    status["superseded"] = json!(["u-0"]);
    status["pendingRevocations"] =
        json!([{"credential": "u-0", "since": NOW, "notAfter": "2026-01-03T00:00:00Z"}]);
    let Fate::Kept(what) = fate(&decoded(access("ci", false, &status)), at(1)) else { panic!("kept") };
    assert!(what.contains("valid until 2026-01-03T00:00:00Z"), "{what}");
    assert_eq!(fate(&decoded(access("ci", false, &json!({}))), at(1)), Fate::Empty);
    assert_eq!(fate(&decoded(access("ci", true, &json!({}))), at(1)), Fate::Empty);
    let mut status = issued();
    status["lastError"] = json!({
        "reason": "TargetUnreachable", "message": "the target did not answer", "generation": 1, "attempts": 3, "at": NOW
    });
    let left = "what has the label coppice.dev/access=u in the cluster whose kube-system has the uid c stays";
    let expected = Fate::NotRevoked(format!("the target did not answer; {valid}; {left}"));
    assert_eq!(fate(&decoded(access("ci", true, &status)), at(1)), expected);
    // Of what cannot be understood nobody knows it.
    let mut odd = access("ci", true, &json!({"sequence": "?"}));
    odd["spec"]["cluster"] = json!(7);
    let Fate::NotRevoked(why) = fate(&decoded(odd), at(1)) else { panic!("not revoked") };
    assert!(why.contains("until when its credential is valid is not known"), "{why}");
}

#[test]
fn what_has_ended_is_said_as_it_did() {
    let ending = |skipped: Option<&str>, valid_until: Option<Timestamp>| Ending {
        namespace: "team".into(),
        name: "ci".into(),
        uid: "u".into(),
        skipped: skipped.map(str::to_owned),
        valid_until,
    };
    assert_eq!(line_of(&ending(None, None)), "revoked: ClusterAccess team/ci");
    let certificates = line_of(&ending(None, Some(at(1))));
    assert!(
        certificates.starts_with("NOT REVOKED: ") && certificates.ends_with("until 2026-01-01T01:00:00Z")
    );
    let skipped = line_of(&ending(Some("away"), Some(at(2))));
    assert!(skipped.starts_with("NOT REVOKED: ClusterAccess team/ci: away; "), "{skipped}");
    let mut tally = Tally::default();
    tally.ended(&ending(None, None));
    tally.ended(&ending(Some("away"), None));
    tally.ended(&ending(None, Some(at(1))));
    assert!(format!("{tally:?}").contains("revoked: 1, not_revoked: 2"), "{tally:?}");
}

#[test]
fn no_cluster_is_deleted_and_each_that_was_made_is_named() {
    let made = json!({"cluster": {"kind": "Shoot", "namespace": "garden-dev", "name": "shop", "uid": "s"}});
    let what = fate_of_cluster(&managed(false, &made)).unwrap();
    assert!(what.starts_with("the Shoot garden-dev/shop stays as it is"), "{what}");
    let what = fate_of_cluster(&managed(true, &made)).unwrap();
    assert!(what.starts_with("the Shoot garden-dev/shop is not deleted by Coppice"), "{what}");
    assert!(fate_of_cluster(&managed(false, &json!({"hash": "h"}))).is_some());
    assert_eq!(fate_of_cluster(&managed(false, &json!({}))), None);
}

#[test]
fn a_dry_run_says_what_would_become_of_each() {
    let (kept, deleted) = (decoded(access("ci", false, &issued())), decoded(access("ci", true, &issued())));
    let begins = |access: &Access, credentials: CredentialHandling, with: &str| {
        planned(access, credentials, at(1)).is_some_and(|line| line.starts_with(with))
    };
    assert!(begins(&kept, CredentialHandling::Keep, "would be kept: ClusterAccess team/ci: its credential"));
    assert!(begins(&kept, CredentialHandling::Revoke, "would be deleted and revoked: "));
    for credentials in [CredentialHandling::Keep, CredentialHandling::Revoke] {
        assert!(begins(&deleted, credentials, "would be revoked, since it is being deleted: "));
    }
    let mut without = access("ci", false, &issued());
    without["metadata"]["finalizers"] = json!([]);
    let without = decoded(without);
    assert_eq!(planned(&without, CredentialHandling::Keep, at(1)), None);
    assert!(begins(&without, CredentialHandling::Revoke, "would be deleted and revoked: "));
}
