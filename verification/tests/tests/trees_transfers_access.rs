//! What the API server refuses about QuotaTransfers, and to whom, while no program of ours runs.

use anyhow::ensure;
use coppice_plane::{ADMIN, ALICE, BOB, VIEWER};
use coppice_tests::TestCluster;
use serde_json::{Value, json};

use crate::access_control::raw_requests::{MERGE, PLAIN, Wire};
use crate::trees_access::{Trees, bind, child, of, on_trees};

type Test = anyhow::Result<()>;

fn transfer(name: &str, spec: &Value) -> Value {
    let mut all = json!({"to": "moved-to", "through": "moved-top", "amount": {"pods": "1"}, "reason": "r", "requester": ALICE});
    for (key, value) in spec.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "QuotaTransfer", "metadata": {"name": name}, "spec": all})
}

/// Waits until a user may create QuotaTransfers somewhere.
async fn may_transfer(test_cluster: &TestCluster, namespace: &str, user: &str) -> Test {
    bind(test_cluster, namespace, user, "admin").await?;
    let may = ["auth", "can-i", "create", "quotatransfers.coppice.dev", "-n", namespace];
    test_cluster
        .until("the right to transfer", async || test_cluster.kubectl(user, &may).await.ok())
        .await
        .map(drop)
}

#[test]
fn people_ask_and_approve_in_their_own_name_and_with_rights_where_quota_goes() -> Test {
    on_trees(async |on| {
        for namespace in ["moved-from", "moved-to", "moved-top"] {
            child(on, namespace).await?;
        }
        // Alice has rights at the source, Bob at both ends, and the viewer, as an admin above, at the source and in the middle.
        for (user, namespaces) in [
            (ALICE, &["moved-from"][..]),
            (BOB, &["moved-from", "moved-to"]),
            (VIEWER, &["moved-from", "moved-top"]),
        ] {
            for namespace in namespaces {
                may_transfer(&on.test_cluster, namespace, user).await?;
            }
        }
        let [alice, bob, above] = [ALICE, BOB, VIEWER].map(|user| Wire::new(&on.test_cluster, user));
        let (alice, bob, above) = (alice?, bob?, above?);
        let all = of("moved-from", "quotatransfers");
        let create = async |wire: &Wire, name: &str, spec: Value| {
            wire.send("POST", &all, PLAIN, transfer(name, &spec)).await
        };

        ensure!(create(&alice, "a", json!({})).await?.accepted());
        for spec in [json!({"requester": BOB}), json!({"requester": "system:admin"})] {
            let answer = create(&alice, "forged", spec.clone()).await?;
            ensure!(
                answer.refused(
                    "whoever transfers quota does so in their own name. Write spec.requester: alice."
                ),
                "{answer:?}"
            );
        }
        let answer = create(&alice, "b", json!({"approvedBy": ALICE})).await?;
        ensure!(
            answer.refused(
                "alice may not approve this QuotaTransfer: that takes the right to create QuotaTransfers in moved-from and \
                 moved-to, or in moved-top."
            ),
            "{answer:?}"
        );
        let answer = create(&alice, "b", json!({"approvedBy": BOB})).await?;
        ensure!(answer.refused("spec.approvedBy is bob, and you are alice"), "{answer:?}");
        ensure!(create(&bob, "b", json!({"requester": BOB, "approvedBy": BOB})).await?.accepted());
        ensure!(create(&above, "c", json!({"requester": VIEWER, "approvedBy": VIEWER})).await?.accepted());

        let path = format!("{all}/a");
        let approve = |user: &str| json!({"spec": {"approvedBy": user}});
        for answer in alice.every_write(&path, &approve(ALICE)).await? {
            ensure!(answer.refused("alice may not approve this QuotaTransfer"), "{answer:?}");
        }
        for answer in alice.every_write(&path, &approve(BOB)).await? {
            ensure!(answer.refused("spec.approvedBy is bob, and you are alice"), "{answer:?}");
        }
        ensure!(above.send("PATCH", &path, MERGE, approve(VIEWER)).await?.accepted());
        // Once, and nothing else of it ever.
        for (change, refused) in [
            (approve(BOB), "approved already"),
            (json!({"spec": {"approvedBy": null}}), "an approval cannot be taken back"),
            (json!({"spec": {"amount": {"pods": "2"}}}), "a QuotaTransfer cannot be changed"),
            (json!({"spec": {"to": "moved-top"}}), "a QuotaTransfer cannot be changed"),
            (json!({"spec": {"through": "moved-from"}}), "a QuotaTransfer cannot be changed"),
            (json!({"spec": {"reason": "another"}}), "a QuotaTransfer cannot be changed"),
            (json!({"spec": {"requester": BOB}}), "a QuotaTransfer cannot be changed"),
        ] {
            let answer = bob.send("PATCH", &path, MERGE, change.clone()).await?;
            ensure!(answer.refused(refused), "{change}: {answer:?}");
        }
        by_groups(on).await
    })
}

/// The rights of a user are those of all of their groups, too.
async fn by_groups(on: &Trees) -> Test {
    const CAROL: &str = "carol";
    for (group, namespace) in [("givers", "moved-from"), ("takers", "moved-to")] {
        let of = format!("--group={group}");
        let create = ["create", "rolebinding", group, "-n", namespace, "--clusterrole=admin", &of];
        on.test_cluster.kubectl(ADMIN, &create).await?;
        let (user, group) = (format!("--as={CAROL}"), format!("--as-group={group}"));
        let may = ["auth", "can-i", "create", "quotatransfers.coppice.dev", "-n", namespace, &user, &group];
        on.test_cluster
            .until("the right of a group", async || on.test_cluster.kubectl(ADMIN, &may).await.ok())
            .await?;
    }
    let all = of("moved-from", "quotatransfers");
    let create = async |name: &str, groups: &[&str]| {
        let carol = Wire::impersonating(&on.test_cluster, CAROL, groups)?;
        let own = json!({"requester": CAROL, "approvedBy": CAROL});
        carol.send("POST", &all, PLAIN, transfer(name, &own)).await
    };
    ensure!(create("nobody", &[]).await?.code == 403);
    let answer = create("one-end", &["givers"]).await?;
    ensure!(answer.refused("carol may not approve this QuotaTransfer"), "{answer:?}");
    let answer = create("both-ends", &["givers", "takers"]).await?;
    ensure!(answer.accepted(), "{answer:?}");
    Ok(())
}

#[test]
fn a_transfer_stays_until_coppice_has_ended_it_and_coppice_begins_none() -> Test {
    on_trees(async |on| {
        child(on, "ending").await?;
        may_transfer(&on.test_cluster, "ending", ALICE).await?;
        let alice = Wire::new(&on.test_cluster, ALICE)?;
        let all = of("ending", "quotatransfers");
        let answer = on.stolen.send("POST", &all, PLAIN, transfer("forged", &json!({}))).await?;
        ensure!(answer.refused("creates and deletes no QuotaTransfer"), "{answer:?}");
        ensure!(alice.send("POST", &all, PLAIN, transfer("a", &json!({}))).await?.accepted());
        let path = format!("{all}/a");
        for change in [
            json!({"spec": {"approvedBy": "coppice"}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"finalizers": ["example.org/never"]}}),
        ] {
            for answer in on.stolen.every_write(&path, &change).await? {
                ensure!(
                    answer.refused("nothing of a Subnamespace, a QuotaTransfer or a NamespaceTree but"),
                    "{answer:?}"
                );
            }
        }
        ensure!(on.stolen.send("DELETE", &path, PLAIN, json!({})).await?.refused("deletes no QuotaTransfer"));
        let forged = on
            .admin
            .send("PATCH", &format!("{path}/status"), MERGE, json!({"status": {"phase": "Moving"}}))
            .await?;
        ensure!(forged.refused("Only Coppice writes status"), "{forged:?}");
        let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
        let ours = finalizers(json!(["coppice.dev/cleanup"]));
        ensure!(on.account.send("PATCH", &path, MERGE, ours).await?.accepted());
        let refused = alice.send("PATCH", &path, MERGE, finalizers(json!([]))).await?;
        ensure!(
            refused.refused("keeps the QuotaTransfer until its quota has arrived or returned"),
            "{refused:?}"
        );
        ensure!(alice.send("DELETE", &path, PLAIN, json!({})).await?.accepted());
        ensure!(alice.get(&path).await?["metadata"]["deletionTimestamp"].is_string());
        ensure!(on.restorer.send("PATCH", &path, MERGE, finalizers(json!([]))).await?.accepted());
        ensure!(alice.get(&path).await?["code"] == 404);
        // Who may read a namespace reads them; who edits it does not give its quota away.
        for (user, role) in [(BOB, "edit"), (VIEWER, "view")] {
            bind(&on.test_cluster, "ending", user, role).await?;
            let wire = Wire::new(&on.test_cluster, user)?;
            ensure!(wire.get(&all).await?["kind"] == "QuotaTransferList");
            ensure!(
                wire.send("POST", &all, PLAIN, transfer("b", &json!({"requester": user}))).await?.code == 403
            );
        }
        Ok(())
    })
}
