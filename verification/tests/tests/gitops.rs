//! What `docs/guides/gitops.md` asks people to write, read from the page itself: its health checks evaluated by a real Lua and a
//! real CEL on objects as the operator writes them, its objects taken by a real API server.

mod page;

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::test_cluster::binary;
use coppice_tests::{TestCluster, condition, on_shared_plane};
use serde_json::{Value, json};

use super::cluster_managers::record;
use page::{Page, argo_cd, flux};

type Test = anyhow::Result<()>;

/// Observes what it governs, with as little as makes something due.
const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: gitops}, spec: {selector: \
                       {names: ['gitops-*']}, settle: 1s, ttl: {after: 1h}, policies: [{name: end, when: {phase: {in: [Stale]}}, \
                       then: {delete: {notice: 1m}}}]}}";

/// Waits until Argo CD and Flux judge a cluster manager so.
pub(crate) async fn judged(
    test_cluster: &TestCluster,
    name: &str,
    expected: (&str, &str),
) -> anyhow::Result<Value> {
    let page = Page::read()?;
    let is = async || {
        let manager = test_cluster.get("cnsman", "", name).await.ok()??;
        let judgment = (argo_cd(&page, &manager).ok()?.0, flux(&page, &manager).ok()?);
        (judgment == (expected.0.to_owned(), expected.1)).then_some(manager)
    };
    let found = test_cluster.until(&format!("{name} is {expected:?} for Argo CD and Flux"), is).await;
    let now = test_cluster.get("cnsman", "", name).await;
    found.with_context(|| format!("it is {now:#?}"))
}

/// A cluster manager of generation 2 with these conditions: type, status and reason.
fn with_conditions(observed: u32, conditions: &[(&str, &str, &str)]) -> Value {
    let conditions = conditions.iter().map(|(type_, status, reason)| {
        json!({"type": type_, "status": status, "reason": reason, "message": format!("{type_}: {reason}")})
    });
    let conditions: Vec<_> = conditions.collect();
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterNamespaceManager", "metadata": {"name": "ci", "generation": 2},
        "status": {"observedGeneration": observed, "conditions": conditions}})
}

#[test]
fn both_tools_wait_for_what_the_operator_has_not_seen_and_show_what_people_have_to_do() -> Test {
    let page = Page::read()?;
    let ready = ("Ready", "True", "Reconciled");
    let approved = ("Approved", "True", "ApprovalNotNeeded");
    let cases: [(&str, Value, (&str, &str, &str)); 9] = [
        ("all is well", with_conditions(2, &[approved, ready]), ("Healthy", "Ready: Reconciled", "Current")),
        (
            "another spec was observed",
            with_conditions(1, &[approved, ready]),
            ("Progressing", "the operator has not looked at this spec yet", "InProgress"),
        ),
        (
            "records are missing",
            with_conditions(2, &[approved, ("Ready", "False", "RecordsPending")]),
            ("Progressing", "Ready: RecordsPending", "InProgress"),
        ),
        (
            "annotations are not read",
            with_conditions(2, &[approved, ("Ready", "Unknown", "AnnotationsNotRead")]),
            ("Progressing", "Ready: AnnotationsNotRead", "InProgress"),
        ),
        (
            "somebody has to approve it",
            with_conditions(2, &[("Approved", "False", "ApprovalNeeded"), ready]),
            ("Suspended", "Approved: ApprovalNeeded", "InProgress"),
        ),
        (
            "it is not known yet whether somebody has to",
            with_conditions(2, &[("Approved", "Unknown", "NotCounted"), ready]),
            ("Progressing", "Approved: NotCounted", "InProgress"),
        ),
        (
            "nothing is said of it",
            with_conditions(2, &[ready]),
            ("Progressing", "its namespaces are not counted yet", "InProgress"),
        ),
        (
            "it cannot be understood",
            with_conditions(2, &[("Accepted", "False", "InvalidSpec"), ("Ready", "False", "InvalidSpec")]),
            ("Degraded", "Ready: InvalidSpec", "Failed"),
        ),
        (
            "another cannot be understood",
            with_conditions(
                2,
                &[("Accepted", "True", "Accepted"), approved, ("Ready", "False", "InvalidSpec")],
            ),
            ("Degraded", "Ready: InvalidSpec", "InProgress"),
        ),
    ];
    for (what, object, (health, message, status)) in cases {
        let shown = argo_cd(&page, &object)?;
        ensure!(shown == (health.to_owned(), message.to_owned()), "Argo CD, {what}: {shown:?}");
        let shown = flux(&page, &object)?;
        ensure!(shown == status, "Flux, {what}: {shown}");
    }
    // An expression about what is not there is an error, for which Flux waits.
    let mut new = with_conditions(2, &[]);
    new.as_object_mut().context("an object")?.remove("status");
    ensure!(argo_cd(&page, &new)?.0 == "Progressing", "Argo CD, without status");
    ensure!(flux(&page, &new)? == "Unknown", "Flux, without status");
    Ok(())
}

#[test]
fn the_page_names_what_there_is_and_its_order_is_the_order() -> Test {
    let page = Page::read()?;
    page.order_is_kept()?;
    page.commands_name_its_objects()?;
    page.kinds_and_fields_exist()
}

/// What the operator writes to objects of Git is their status, and its conditions are those of the page.
fn is_as_the_page_says(page: &Page, object: &Value) -> Test {
    let fields = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let ours: Vec<_> = fields.filter(|entry| entry["manager"] == "coppice").collect();
    let all_status = ours.iter().all(|entry| entry["subresource"] == "status");
    ensure!(!ours.is_empty() && all_status, "the operator writes more than status: {ours:#?}");
    let kind = object["kind"].as_str().unwrap_or_default();
    page.has_conditions(kind, object)?;
    let status = &object["status"]["observedGeneration"];
    ensure!(*status == object["metadata"]["generation"], "{object:#}");
    Ok(())
}

#[test]
fn what_the_operator_writes_is_healthy_for_both_tools_and_no_difference() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let page = Page::read()?;
        test_cluster.namespace("gitops-a").await?;
        test_cluster.apply(MANAGER).await?;
        let cluster_manager = judged(test_cluster, "gitops", ("Healthy", "Current")).await?;
        is_as_the_page_says(&page, &cluster_manager)?;

        let later = "{policies: [{name: end, when: {ttl: {after: 1h}}, then: {delete: {}}}]}";
        test_cluster.manager("gitops-a", "later", later).await?;
        let refused = "{policies: [{name: hook, when: {ttl: {after: 1h}}, then: {webhook: {url: 'http://169.254.169.254/latest'}}}]}";
        test_cluster.manager("gitops-a", "refused", refused).await?;
        for (name, phase, health) in [("later", "Active", "Healthy"), ("refused", "Refused", "Degraded")] {
            let manager = test_cluster.phase("gitops-a", name, phase).await?;
            let (shown, message) = argo_cd(&page, &manager)?;
            ensure!(
                shown == health && message == condition(&manager, "Ready")["message"],
                "{shown}: {manager:#}"
            );
            is_as_the_page_says(&page, &manager)?;
        }
        let settings = test_cluster.settings().await?;
        ensure!(argo_cd(&page, &settings)?.0 == "Healthy", "{settings:#}");
        is_as_the_page_says(&page, &settings)?;

        let governed = |status: &Value| status["manager"]["name"] == "gitops";
        let record = record(test_cluster, "gitops-a", "who governs it", governed).await?;
        page.has_conditions("ManagedNamespace", &record)?;
        let metadata = &record["metadata"];
        // By neither does Argo CD take it for a part of an Application.
        ensure!(metadata["labels"].is_null() && metadata["annotations"].is_null(), "{record:#}");
        a_pipeline_previews_with_the_rights_of_the_page(test_cluster, &page).await
    })
}

/// The API server takes the objects of the page, and its role is enough for `coppice preview`, and for nothing without it.
async fn a_pipeline_previews_with_the_rights_of_the_page(test_cluster: &TestCluster, page: &Page) -> Test {
    // The settings of this plane are those of other tests, too.
    let dry = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"];
    for object in [page.object("CoppiceConfig")?, page.approved(MANAGER)?] {
        let said = test_cluster.kubectl_stdin(ADMIN, &dry, &object.to_string()).await?;
        ensure!(said.contains("serverside-applied (server dry run)"), "{said}");
    }
    let role = page.object("ClusterRole")?;
    let kubeconfig = test_cluster.service_account("gitops-a", "default").await?;
    let mut files = tempfile::NamedTempFile::with_suffix(".yaml")?;
    std::io::Write::write_all(&mut files, MANAGER.as_bytes())?;
    let preview = async || -> anyhow::Result<(Option<i32>, String)> {
        let mut command = tokio::process::Command::new(binary("coppice")?);
        command.args(["preview", "-f"]).arg(files.path()).env("KUBECONFIG", &kubeconfig);
        let output = command.output().await?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    };
    let (code, said) = preview().await?;
    ensure!(code != Some(0) && said.contains("forbidden"), "without rights it previews: {code:?} {said}");
    let name = role["metadata"]["name"].as_str().context("the role has no name")?;
    test_cluster.apply(&role.to_string()).await?;
    let binding =
        ["create", "clusterrolebinding", name, "--clusterrole", name, "--serviceaccount=gitops-a:default"];
    test_cluster.kubectl(ADMIN, &binding).await?;
    let may = async || (preview().await.ok()?.0 == Some(0)).then_some(());
    let found = test_cluster.until("a pipeline previews by the role of the page", may).await;
    let now = preview().await;
    found.with_context(|| format!("it says {now:?}"))
}
