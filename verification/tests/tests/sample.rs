//! The sample of `docs/adding-a-controller.md` on a real API server: its program runs beside the operator, as an account of its own
//! with exactly the rights that are generated for it.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::program::Program;
use coppice_tests::test_cluster::{binary, repository};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

type Test = anyhow::Result<()>;

const ACCOUNT: &str = "system:serviceaccount:coppice-system:coppice-sample";

/// Installs the kind and the rights, and starts the program.
async fn start(test_cluster: &TestCluster) -> anyhow::Result<Program> {
    let access = std::fs::read_to_string(repository().join("verification/sample/access.yaml"))?;
    test_cluster.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &access).await?;
    let crd = serde_json::to_value(coppice_sample::crd())?;
    let admin = test_cluster.admin().await?;
    admin.create(&crd).await?;
    test_cluster
        .until("the kind is served", async || {
            let crd = admin.get("crd", "", "namespaceexpiries.sample.coppice.dev").await.ok()??;
            (condition(&crd, "Established")["status"] == "True").then_some(())
        })
        .await?;
    let kubeconfig = test_cluster.service_account("coppice-system", "coppice-sample").await?;
    let log = test_cluster.plane.dir().join("log/sample.log");
    Program::start(&binary("coppice-sample")?, &kubeconfig, log, |command| {
        command.args(["--listen-probes", "127.0.0.1:0"]);
    })
    .await
}

async fn expire(test_cluster: &TestCluster, name: &str, after: &str, notice: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "sample.coppice.dev/v1alpha1", "kind": "NamespaceExpiry",
        "metadata": {"name": name}, "spec": {"after": after, "notice": notice},
    });
    test_cluster.admin().await?.create(&object).await.map(drop)
}

/// Waits until the status of an expiry has a reason; the object as it is then.
async fn reason(
    test_cluster: &TestCluster,
    program: &Program,
    name: &str,
    reason: &str,
) -> anyhow::Result<Value> {
    let reached = async || {
        let expiry = test_cluster.get("namespaceexpiry", "", name).await.ok()??;
        (expiry["status"]["reason"] == reason).then_some(expiry)
    };
    let reached = test_cluster.until(&format!("{name} reaches {reason}"), reached).await;
    reached.with_context(|| program.last_lines())
}

fn instant(value: &Value) -> anyhow::Result<Timestamp> {
    Ok(value.as_str().context("no instant")?.parse()?)
}

#[test]
fn a_controller_in_a_program_of_its_own_deletes_with_notice_budget_and_record() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        let operator = Operator::start(&test_cluster).await?;
        let program = start(&test_cluster).await?;
        let uid = test_cluster.namespace("preview").await?;
        test_cluster.namespace("shielded").await?;
        test_cluster.kubectl(ADMIN, &["label", "namespace", "shielded", "coppice.dev/protected="]).await?;
        // The guards of the API server bind its account, too.
        let as_the_sample = ["--as", ACCOUNT, "delete", "--raw", "/api/v1/namespaces/preview"];
        let by_name = test_cluster.kubectl(ADMIN, &as_the_sample).await.err().context("deleted by name")?;
        ensure!(by_name.to_string().contains("with the uid and the resourceVersion"), "{by_name:#}");
        // Its time is over by then, its notice is not.
        expire(&test_cluster, "shielded", "1s", "8s").await?;
        expire(&test_cluster, "preview", "1s", "8s").await?;
        let announced = reason(&test_cluster, &program, "preview", "NoticeRunning").await?;
        let not_before = instant(&announced["status"]["notice"]["notBefore"])?;
        let given_at = instant(&announced["status"]["notice"]["givenAt"])?;
        ensure!(not_before >= given_at + SignedDuration::from_secs(8), "{announced:#}");
        test_cluster.deleted("preview", &uid).await.with_context(|| program.last_lines())?;
        let deletes = test_cluster.plane.audit()?;
        let deletes = deletes.iter().filter(|e| {
            e.verb == "delete" && e.resource == "namespaces" && e.user == ACCOUNT && e.code != Some(409)
        });
        let deletes: Vec<_> = deletes.collect();
        let [delete] = deletes.as_slice() else { anyhow::bail!("{deletes:?}") };
        ensure!(
            delete.name == "preview" && delete.received >= not_before,
            "{delete:?}, and not {not_before}"
        );
        ensure!(delete.precondition("uid") == Some(&uid) && delete.precondition("resourceVersion").is_some());
        // The operator completes the record, which names the kind that decided.
        let fired = reason(&test_cluster, &program, "preview", "Dormant").await?;
        let decision = fired["status"]["lastFiring"]["id"].as_str().context("no firing")?;
        let complete = async || {
            let record = test_cluster.get("delns", "", decision).await.ok()??;
            (record["status"]["phase"] == "Deleted").then_some(record)
        };
        let record = test_cluster.until("its record says that it is gone", complete).await;
        let record = record.with_context(|| operator.last_lines())?;
        ensure!(
            record["spec"]["managerKind"] == "NamespaceExpiry" && record["spec"]["manager"] == "preview",
            "{record:#}"
        );
        // Its step is in the one ledger.
        let config = test_cluster.get("coppiceconfig", "", "coppice").await?.unwrap_or_default();
        ensure!(config["status"]["governor"]["reservations"][0]["steps"] == 1, "{config:#}");
        let refused = reason(&test_cluster, &program, "shielded", "NamespaceProtected").await?;
        let message = refused["status"]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("it has the label coppice.dev/protected"), "{message}");
        Ok(())
    })
}
