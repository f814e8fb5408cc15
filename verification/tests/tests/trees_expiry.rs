//! Namespaces of trees that managers delete: with their quota, which returns, and from the bottom up.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::{Operator, on_own_plane};
use serde_json::json;

use crate::cluster_managers::record;
use crate::trees::Setup;

type Test = anyhow::Result<()>;

/// Governs every namespace below the root of a tree, and deletes it when its time is over.
const EXPIRE: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: expire}, spec: {mode: Observe,
    selector: {labels: {matchExpressions: [{key: shop.tree.coppice.dev/depth, operator: NotIn, values: ['0']},
    {key: shop.tree.coppice.dev/depth, operator: Exists}]}}, settle: 1s, ttl: {after: 2s},
    policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {notice: 1s}}}]}}";

#[test]
fn what_expires_in_a_tree_goes_from_the_bottom_up_and_returns_its_quota() -> Test {
    on_own_plane(async {
        let cluster = Setup::start().await?;
        let program = cluster.program().await?;
        let scenario = async {
            cluster.tree("shop", &json!({"pods": "10"})).await?;
            cluster.request(ADMIN, "shop", "shop-web", &json!({"pods": "6"})).await?;
            cluster.ready("shop", "shop-web").await?;
            cluster.request(ADMIN, "shop-web", "shop-web-test", &json!({"pods": "2"})).await?;
            cluster.ready("shop-web", "shop-web-test").await?;
            // Somebody keeps the lower one, and so nobody deletes the one above it.
            let test_cluster = &cluster.test_cluster;
            let hold = ["hold", "shop-web-test", "--for", "1h", "--reason", "load test"];
            test_cluster.apply(EXPIRE).await?;
            record(test_cluster, "shop-web-test", "that it is governed", |status| {
                status["phase"].is_string()
            })
            .await?;
            let (code, said, error) = crate::cli::coppice(test_cluster, ADMIN, &hold).await?;
            ensure!(code == 0, "{said}{error}");
            let enforce = json!({"spec": {"mode": "Enforce"}});
            test_cluster.admin().await?.patch("cnsman", "", "expire", &enforce).await?;
            record(test_cluster, "shop-web-test", "that it is held", |status| {
                status["next"]["reason"] == "Held"
            })
            .await?;
            let above = |status: &serde_json::Value| status["next"]["reason"] == "HasChildren";
            record(test_cluster, "shop-web", "that others are below it", above).await?;
            ensure!(cluster.limits("shop").await? == json!({"pods": "4"}));

            let (code, said, error) =
                crate::cli::coppice(test_cluster, ADMIN, &["release", "shop-web-test"]).await?;
            ensure!(code == 0, "{said}{error}");
            cluster.gone("shop-web", "shop-web-test").await?;
            cluster.gone("shop", "shop-web").await?;
            let returned =
                async || (cluster.limits("shop").await.ok()? == json!({"pods": "10"})).then_some(());
            test_cluster.until("the quota is back in shop", returned).await?;
            // Each by the manager, once, the lower one first; and the root is not below itself.
            let mut records = test_cluster.list("delns", "").await?;
            records.sort_by_key(|record| record["spec"]["decidedAt"].to_string());
            let by = |record: &serde_json::Value| {
                ["namespace", "managerKind"]
                    .map(|field| record["spec"][field].as_str().unwrap_or_default().to_owned())
            };
            let expected = ["shop-web-test", "shop-web"]
                .map(|name| [name, "ClusterNamespaceManager"].map(str::to_owned));
            let found: Vec<_> = records.iter().map(by).collect();
            ensure!(found == expected, "{found:?}");
            ensure!(test_cluster.get("namespace", "", "shop").await?.context("shop")?["metadata"]["deletionTimestamp"].is_null());
            // There is room again.
            test_cluster.admin().await?.delete("cnsman", "", "expire", &json!({})).await?;
            cluster.request(ADMIN, "shop", "shop-api", &json!({"pods": "10"})).await?;
            cluster.ready("shop", "shop-api").await?;
            counted(&cluster, &program).await
        };
        scenario.await.with_context(|| program.last_lines())?;
        cluster.quotas.never_beyond("10")
    })
}

/// The program counts what there is once a minute.
async fn counted(cluster: &Setup, program: &Operator) -> Test {
    let expected = [
        r#"coppice_tree_quota{tree="shop",resource="pods",state="allotted"} 10.0"#,
        r#"coppice_tree_quota{tree="shop",resource="pods",state="free"} 0.0"#,
        r#"coppice_tree_quota{tree="shop",resource="pods",state="overdraft"} 0.0"#,
        r#"coppice_tree_namespaces{tree="shop",phase="Ready"} 1"#,
        r#"coppice_quota_transfers{phase="Moving"} 0"#,
        r#"coppice_leader{lease="coppice-trees"} 1"#,
    ];
    let all = async || {
        let text = program.http("/metrics").await.ok()?;
        expected.iter().all(|line| text.lines().any(|l| l == *line)).then_some(())
    };
    cluster.test_cluster.until("the metrics have all of the tree", all).await
}
