//! Writes that reach the API server late: when the cluster has changed, or another operator leads.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_plane::proxy::{Active, FaultRule, Match, ProxyFault, TraceEntry};
use coppice_tests::fault_injection::{
    FaultTestbed, Replica, SHORT_LEASE, Work, deletions, status_writes, with_timeout,
};
use coppice_tests::{TestCluster, on_own_plane};

use super::{HOLD, Test, patch};

/// Holds every request that matches: one that the operator gives up, as it is not answered, is followed by another.
fn hold(replica: &Replica, matches: Match) -> Active {
    replica.proxy.add(FaultRule::new(matches, ProxyFault::HoldRequest))
}

/// Lets the first of the held requests reach the API server, which refuses it. Then nothing is held any more.
async fn refused_late(replica: &Replica, hold: Active, write: &Match) -> Test {
    let is_kept = |entry: &TraceEntry| write.selects(entry) && entry.faults.contains(&"hold-request");
    let first = with_timeout("the first held write", replica.proxy.trace().wait_for(is_kept)).await?;
    hold.release_one();
    let late = write.clone().when(move |entry| entry.seq == first.seq);
    let code = replica.wait_for_response("the late write", &late).await?;
    ensure!(code == 409, "the late write was answered with {code}");
    drop(hold);
    Ok(())
}

#[test]
fn a_deletion_that_was_on_its_way_when_the_namespace_was_edited_is_decided_again() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let replica = Replica::start(&testbed.test_cluster).await?;
        let names = ["edited", "edited-and-held"];
        testbed.prepare(&names.map(|name| (name.to_owned(), Work::Delete))).await?;
        let holds = names.map(|name| (name, hold(&replica, deletions(name))));
        testbed.begin(names).await?;
        for (name, hold) in &holds {
            with_timeout(&format!("the DELETE of {name}"), hold.held(1)).await?;
        }
        // All of it before anything is released: what is decided on the edited namespace could be on its way soon.
        patch(&testbed.test_cluster, "edited-and-held", HOLD).await?;
        for name in names {
            let edit = r#"{"metadata":{"labels":{"edited":"meanwhile"}}}"#;
            testbed.test_cluster.patch("namespace", "", name, edit).await?;
        }
        for (name, hold) in holds {
            refused_late(&replica, hold, &deletions(name)).await.context(name)?;
        }
        // What asks for the deletion still asks for it; what is held back is not deleted until it is held no more.
        testbed.done(["edited"]).await?;
        testbed.test_cluster.phase("edited-and-held", "m", "Held").await?;
        testbed.quiet().await?;
        ensure!(!testbed.test_cluster.is_deleted("edited-and-held", testbed.uid("edited-and-held")).await);
        testbed.verify()?;
        patch(&testbed.test_cluster, "edited-and-held", r#"{"spec":{"hold":null}}"#).await?;
        testbed.done(names).await?;
        testbed.quiet().await?;
        testbed.verify_reported_once(&replica.operator).await
    })
}

/// Stops the leader with this write on its way, and waits until the other leads.
async fn stop(
    test_cluster: &TestCluster,
    leader: &Replica,
    hold: &Active,
    other: &Replica,
) -> anyhow::Result<()> {
    with_timeout("the leader's write is held", hold.held(1)).await?;
    leader.operator.signal("STOP").await?;
    other.leads(test_cluster).await
}

/// Lets the write of the old leader reach the API server, and the old leader go on: the write is refused, and the
/// process ends by itself.
async fn too_late(leader: &mut Replica, hold: Active, write: &Match) -> anyhow::Result<()> {
    refused_late(leader, hold, write).await?;
    leader.operator.signal("CONT").await?;
    let status = leader.operator.ended().await?;
    ensure!(!status.success(), "it has lost the lease: {status}: {}", leader.operator.last_lines());
    Ok(())
}

async fn follower(test_cluster: &TestCluster) -> anyhow::Result<Replica> {
    let replica = Replica::spawn(test_cluster, &SHORT_LEASE).await?;
    replica.operator.ready(test_cluster).await?;
    Ok(replica)
}

#[test]
fn the_late_write_of_a_paused_leader_has_no_effect_and_the_old_leader_ends() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let works = [("gone", Work::Delete), ("notified", Work::Notify), ("slept", Work::Wake)];
        testbed.prepare(&works.map(|(name, work)| (name.to_owned(), work))).await?;
        let mut first = follower(&testbed.test_cluster).await?;
        first.leads(&testbed.test_cluster).await?;

        // A deletion: meanwhile the namespace is gone, and there is another of its name.
        let second = follower(&testbed.test_cluster).await?;
        let rule = hold(&first, deletions("gone"));
        testbed.begin(["gone"]).await?;
        stop(&testbed.test_cluster, &first, &rule, &second).await?;
        testbed.done(["gone"]).await?;
        let wait = ["wait", "--for=delete", "namespace/gone", "--timeout=300s"];
        testbed.test_cluster.kubectl(ADMIN, &wait).await?;
        let replacement = testbed.test_cluster.namespace("gone").await?;
        too_late(&mut first, rule, &deletions("gone")).await?;
        ensure!(
            !testbed.test_cluster.is_deleted("gone", &replacement).await,
            "another namespace of this name was deleted"
        );

        // The write of an intent: meanwhile the other has sent the webhook.
        let mut second = second;
        let third = follower(&testbed.test_cluster).await?;
        let write = status_writes("notified");
        let rule = hold(&second, write.clone());
        testbed.begin(["notified"]).await?;
        stop(&testbed.test_cluster, &second, &rule, &third).await?;
        testbed.done(["notified"]).await?;
        let before = testbed.receiver.received().len();
        too_late(&mut second, rule, &write).await?;
        // It can have come more than once, as an answer can be lost; but the old leader has sent nothing.
        let after = testbed.receiver.received();
        ensure!(before >= 1 && after.len() == before, "{before}, and then {after:?}");

        // Scaling down: meanwhile the other has done it, and its user has woken what slept.
        let mut third = third;
        let fourth = follower(&testbed.test_cluster).await?;
        let write = Match::verb("patch").resource("deployments").subresource("scale").namespace("slept");
        let rule = hold(&third, write.clone());
        testbed.begin(["slept"]).await?;
        stop(&testbed.test_cluster, &third, &rule, &fourth).await?;
        testbed.done(["slept"]).await?;
        testbed.wake(["slept"]).await?;
        testbed.done(["slept"]).await?;
        too_late(&mut third, rule, &write).await?;

        testbed.done(works.map(|(name, _)| name)).await?;
        testbed.quiet().await?;
        testbed.verify()
    })
}
