//! What `coppice import` writes, on a real API server: moving as `docs/from-ska.md` says, and that all of it is accepted.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_plane::ADMIN;
use coppice_tests::test_cluster::repository;
use coppice_tests::{Operator, TestCluster, on_own_plane, on_shared_plane, requests};
use jiff::SignedDuration;
use serde_json::Value;

use super::cli::coppice;
use super::cluster_managers::{CLOCK, record};
use super::cluster_messages::{posted, slack_channel};
use super::cluster_notices::namespace;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// The namespaces of the test, and which of the imported managers governs each.
const GOVERNED: [(&str, &str); 3] =
    [("ci-shop-42", "ci-merge-requests"), ("dev-shop", "ci-branches"), ("long-shop", "ska")];

/// What `coppice import` writes of fixtures of the command line's own tests, with this exit code.
async fn import(
    test_cluster: &TestCluster,
    args: &[&str],
    fixture: &str,
    expected: i32,
) -> anyhow::Result<String> {
    let path = repository().join("crates/cli/tests/fixtures").join(fixture);
    let path = path.to_str().context("the path of the sources is no text")?;
    let args = [&["import"][..], args, &[path]].concat();
    let (code, written, error) = coppice(test_cluster, ADMIN, &args).await?;
    ensure!(code == expected, "{args:?} ended with {code}: {error}");
    Ok(written)
}

/// Applies what an import has written as the page says.
async fn apply(test_cluster: &TestCluster, managers: &str) -> Test {
    let said = test_cluster.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], managers).await?;
    ensure!(said.lines().count() == GOVERNED.len(), "{said}");
    Ok(())
}

/// The status of each record, once it is about this generation of its manager.
async fn statuses(test_cluster: &TestCluster, generation: i64) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for (name, manager) in GOVERNED {
        let what = format!("that generation {generation} of {manager} governs it, and that it is well");
        let found = record(test_cluster, name, &what, |status| {
            let by = &status["manager"];
            status["phase"] == "Ok" && by["name"] == manager && by["generation"] == generation
        });
        all.push(found.await?["status"].clone());
    }
    Ok(all)
}

/// The managers once they enforce, with periods for which no test can wait made short.
fn enforcing(managers: &str) -> anyhow::Result<String> {
    let mut text = managers.to_owned();
    for (written, instead) in [
        ("mode: Observe", "mode: Enforce"),
        ("settle: 5m", "settle: 4s"),
        ("after: 1h30m", "after: 1s"),
        ("notice: 5m", "notice: 3s"),
    ] {
        ensure!(text.contains(written), "{written} is not in {text}");
        text = text.replace(written, instead);
    }
    Ok(text)
}

#[test]
fn to_notify_begins_nothing_again_and_to_enforce_deletes_after_settle_and_notice() -> Test {
    // The managers select what other tests have, too.
    on_own_plane(async {
        let test_cluster = &TestCluster::start_without_pods().await?;
        let _operator = Operator::start(test_cluster).await?;
        let address = STANDARD.encode("Ada Lovelace::U024BE7LH");
        let owned = format!(
            "labels: {{cicd.skao.int/mrId: '7', cicd.skao.int/projectId: '1', cicd.skao.int/job: deploy, \
             cicd.skao.int/pipelineId: '42', cicd.skao.int/jobId: '420'}}, \
             annotations: {{cicd.skao.int/notificationAddress: '{address}'}}"
        );
        let kept = "labels: {cicd.skao.int/project: long}, annotations: {example.org/keep: 'yes'}";
        let uid = namespace(test_cluster, "ci-shop-42", &owned).await?;
        let nobodys = namespace(test_cluster, "dev-shop", "labels: {cicd.skao.int/branch: main}").await?;
        let long = namespace(test_cluster, "long-shop", kept).await?;

        let ska = async |more: &[&str]| {
            let args = [&["ska", "--namespace", "ci-manager"][..], more].concat();
            import(test_cluster, &args, "ska/values.yaml", 0).await
        };
        apply(test_cluster, &ska(&["--without-notify"]).await?).await?;
        let before = statuses(test_cluster, 1).await?;
        let managers = ska(&[]).await?;
        // The channel is added as the head of the file says.
        let channel = "- {name: slack, slack: {tokenFile: slack-token}}";
        ensure!(managers.contains(channel), "{managers}");
        let slack = slack_channel(test_cluster, "slack").await?;
        apply(test_cluster, &managers).await?;
        let after = statuses(test_cluster, 2).await?;
        for (before, after) in before.iter().zip(&after) {
            for field in ["uid", "digest", "since"] {
                let (was, is) = (&before["manager"][field], &after["manager"][field]);
                ensure!(was.is_string() && was == is, "{field}: {before:#} {after:#}");
            }
            ensure!(before["phaseSince"] == after["phaseSince"], "{before:#} {after:#}");
            ensure!(before["pastPhases"] == after["pastPhases"], "{before:#} {after:#}");
        }
        ensure!(after[0]["owner"] == "Ada Lovelace", "{:#}", after[0]);
        ensure!(test_cluster.namespace_deletes()?.is_empty(), "they observe");
        ensure!(slack.posted().is_empty(), "nothing has happened: {:?}", slack.posted());

        // Two are due, which the hourly budget permits without approval.
        apply(test_cluster, &enforcing(&managers)?).await?;
        let announced = posted(&slack, "Namespace ci-shop-42 will be deleted").await?;
        ensure!(announced.to == "U024BE7LH", "{announced:?}");
        ensure!(announced.text.contains("*Owner:* Ada Lovelace"), "{announced:?}");
        test_cluster.deleted("ci-shop-42", &uid).await?;
        let delete = effective_delete(test_cluster, "ci-shop-42").await?;
        let audit = test_cluster.plane.audit()?;
        let switched = audit.iter().rfind(|e| {
            let spec = e.resource == "clusternamespacemanagers" && e.subresource.is_empty();
            e.verb == "patch" && spec && e.name == "ci-merge-requests"
        });
        let switched = switched.context("the switch is not in the audit log")?.received;
        let waited = delete.received.duration_since(switched);
        ensure!(waited >= SignedDuration::from_secs(7) - CLOCK, "deleted {waited} after the switch");
        let remains = test_cluster.list("delns", "").await?;
        let remains = remains.iter().find(|one| one["spec"]["uid"] == uid.as_str()).context("no record")?;
        let said = ["manager", "policy", "reason"].map(|field| remains["spec"][field].clone());
        ensure!(said == ["ci-merge-requests", "delete the stale", "TtlElapsed"], "{remains:#}");

        // Whoever has no address gets half an hour more, and a week is not over.
        let waits = |status: &Value| status["next"]["reason"] == "NoticeUndelivered";
        record(test_cluster, "dev-shop", "that nobody could be notified", waits).await?;
        for (name, uid) in [("dev-shop", nobodys), ("long-shop", long)] {
            ensure!(!test_cluster.is_deleted(name, &uid).await, "{name} is deleted");
        }
        Ok(())
    })
}

#[test]
fn what_imports_write_is_accepted_by_the_api_server() -> Test {
    on_shared_plane(async |test_cluster, _| {
        // Another test has a namespace with the name of an example.
        let consol = import(test_cluster, &["consol"], "consol", 3).await?.replace("example-", "imported-");
        for name in ["imported-01", "imported-03", "imported-04", "team-a"] {
            test_cluster.namespace(name).await?;
        }
        let ska = import(test_cluster, &["ska"], "ska/every-field.yaml", 3).await?;
        // Nothing is kept: the managers select namespaces of other tests, and may have the names of theirs.
        let try_out = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
        for written in [consol, ska] {
            let said = test_cluster.kubectl_stdin(ADMIN, &try_out, &written).await?;
            let accepted = said.matches("serverside-applied (server dry run)").count();
            let objects = requests::documents(&written)?.len();
            ensure!(objects > 3 && accepted == objects, "{accepted} of {objects}: {said}");
        }
        Ok(())
    })
}
