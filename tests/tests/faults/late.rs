//! Writes that reach the API server late: when the world has changed, or another operator leads.

use anyhow::ensure;
use coppice_plane::ADMIN;
use coppice_plane::proxy::{Active, Fault, Match, Rule};
use coppice_tests::faulty::{Replica, SHORT_LEASE, Work, World, deletions, soon, status_writes};
use coppice_tests::{Stage, alone};

use super::{HOLD, Test, patch};

fn hold(replica: &Replica, matches: Match) -> Active {
    replica.proxy.add(Rule::new(matches, Fault::HoldRequest).once())
}

async fn label(stage: &Stage, namespace: &str) -> anyhow::Result<String> {
    stage.kubectl(ADMIN, &["label", "namespace", namespace, "edited=meanwhile"]).await
}

#[test]
fn a_deletion_that_was_on_its_way_when_the_namespace_was_edited_is_decided_again() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let replica = Replica::start(&world.stage).await?;
        let names = ["edited", "edited-and-held"];
        world.prepare(&names.map(|name| (name.to_owned(), Work::Delete))).await?;
        let holds = names.map(|name| (name, hold(&replica, deletions(name))));
        world.begin(names).await?;
        for (name, hold) in &holds {
            soon(&format!("the DELETE of {name}"), hold.held(1)).await?;
        }
        patch(&world.stage, "edited-and-held", HOLD).await?;
        for (name, hold) in &holds {
            label(&world.stage, name).await?;
            hold.release();
            let code = replica.answered(&format!("the late DELETE of {name}"), &deletions(name)).await?;
            ensure!(code == 409, "the DELETE of the revision before the edit was answered with {code}");
        }
        // What asks for the deletion still asks for it; what is held back is not deleted until it is held no more.
        world.done(["edited"]).await?;
        world.stage.phase("edited-and-held", "m", "Held").await?;
        world.quiet().await?;
        ensure!(!world.stage.is_deleted("edited-and-held", world.uid("edited-and-held")).await);
        world.verify()?;
        patch(&world.stage, "edited-and-held", r#"{"spec":{"hold":null}}"#).await?;
        world.done(names).await?;
        world.quiet().await?;
        world.verify_told_once(&replica.operator).await
    })
}

/// Stops the leader with this write on its way, and waits until the other leads.
async fn stop(stage: &Stage, leader: &Replica, hold: &Active, other: &Replica) -> anyhow::Result<()> {
    soon("the leader's write is held", hold.held(1)).await?;
    leader.operator.signal("STOP").await?;
    other.leads(stage).await
}

/// Lets the write of the old leader reach the API server, and the old leader go on: the write is refused, and the
/// process ends by itself.
async fn too_late(leader: &mut Replica, hold: &Active, write: &Match) -> anyhow::Result<()> {
    hold.release();
    let delayed = write.clone().when(|entry| entry.faults.contains(&"hold-request"));
    let code = leader.answered("the late write", &delayed).await?;
    ensure!(code == 409, "the late write was answered with {code}");
    leader.operator.signal("CONT").await?;
    let status = leader.operator.ended().await?;
    ensure!(!status.success(), "it has lost the lease: {status}: {}", leader.operator.last_lines());
    Ok(())
}

async fn follower(stage: &Stage) -> anyhow::Result<Replica> {
    let replica = Replica::spawn(stage, &SHORT_LEASE).await?;
    replica.operator.ready(stage).await?;
    Ok(replica)
}

#[test]
fn the_late_write_of_a_paused_leader_has_no_effect_and_the_old_leader_ends() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let works = [("gone", Work::Delete), ("told", Work::Tell), ("slept", Work::Wake)];
        world.prepare(&works.map(|(name, work)| (name.to_owned(), work))).await?;
        let mut first = follower(&world.stage).await?;
        first.leads(&world.stage).await?;

        // A deletion: meanwhile the namespace is gone, and there is another of its name.
        let second = follower(&world.stage).await?;
        let rule = hold(&first, deletions("gone"));
        world.begin(["gone"]).await?;
        stop(&world.stage, &first, &rule, &second).await?;
        world.done(["gone"]).await?;
        let wait = ["wait", "--for=delete", "namespace/gone", "--timeout=60s"];
        world.stage.kubectl(ADMIN, &wait).await?;
        let anew = world.stage.namespace("gone").await?;
        too_late(&mut first, &rule, &deletions("gone")).await?;
        ensure!(!world.stage.is_deleted("gone", &anew).await, "another namespace of this name was deleted");

        // The write of an intent: meanwhile the other has told.
        let mut second = second;
        let third = follower(&world.stage).await?;
        let write = status_writes("told");
        let rule = hold(&second, write.clone());
        world.begin(["told"]).await?;
        stop(&world.stage, &second, &rule, &third).await?;
        world.done(["told"]).await?;
        too_late(&mut second, &rule, &write).await?;
        ensure!(world.receiver.received().len() == 1, "{:?}", world.receiver.received());

        // Scaling down: meanwhile the other has done it, and its user has woken what slept.
        let mut third = third;
        let fourth = follower(&world.stage).await?;
        let write = Match::verb("patch").resource("deployments").subresource("scale").namespace("slept");
        let rule = hold(&third, write.clone());
        world.begin(["slept"]).await?;
        stop(&world.stage, &third, &rule, &fourth).await?;
        world.done(["slept"]).await?;
        world.wake(["slept"]).await?;
        world.done(["slept"]).await?;
        too_late(&mut third, &rule, &write).await?;

        world.done(works.map(|(name, _)| name)).await?;
        world.quiet().await?;
        world.verify()
    })
}
