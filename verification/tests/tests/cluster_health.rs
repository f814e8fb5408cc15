//! What a `ClusterNamespaceManager` does for the health of namespaces, on a real API server with the controllers of
//! Kubernetes, and with a fake kubelet.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, DELAY_ANNOTATION, OUTCOME_LABEL};
use coppice_tests::{Operator, TestCluster, condition, on_own_plane, on_shared_plane};
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_managers::record;
use super::lifecycle::effective_delete;

type Test = anyhow::Result<()>;

/// What fails is deleted after 10 s, 5 s and a notice of 6 s.
const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: health}, spec: \
                       {mode: Enforce, selector: {names: ['health-*']}, settle: 1s, health: {settlingPeriod: 10s, gracePeriod: \
                       5s, recoveryPeriod: 3s}, policies: [{name: end, when: {phase: {in: [Failed]}}, then: {delete: \
                       {notice: 6s}}}]}}";

/// A Deployment `web` of two pods with these labels and annotations.
pub(super) fn deployment(namespace: &str, labels: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: {namespace}}}, spec: {{replicas: 2, \
         selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web, {labels}}}, annotations: \
         {{{annotations}}}}}, spec: {{containers: [{{name: main, image: example.com/none}}]}}}}}}}}"
    )
}

/// Waits until the status of a namespace's record is as described.
async fn status(
    test_cluster: &TestCluster,
    namespace: &str,
    what: &str,
    is: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    Ok(record(test_cluster, namespace, what, is).await?["status"].clone())
}

/// What fails, in short.
fn failing(status: &Value) -> Vec<String> {
    let lines = status["failing"].as_array().into_iter().flatten();
    let words =
        |line: &Value| ["kind", "name", "reason"].map(|field| line[field].as_str().unwrap_or("").to_owned());
    lines.map(|line| words(line).join(" ")).collect()
}

/// A quota refuses the pods of a StatefulSet in `health-silent`, whose status says nothing about it.
async fn refuse_silently(test_cluster: &TestCluster) -> Test {
    test_cluster.quota_of_pods("health-silent", 0).await?;
    let set = deployment("health-silent", "tier: web", "").replace("kind: Deployment", "kind: StatefulSet");
    test_cluster.apply(&set).await.map(drop)
}

/// What `refuse_silently` made is short of pods, and does not fail for it before ten minutes are over. They pass in the simulation
/// of this very cluster, in which workloads stay as they are.
async fn pods_are_missing_for_ten_minutes(test_cluster: &TestCluster) -> Test {
    let short = |status: &Value| {
        let short = &status["health"]["short"][0];
        short["kind"] == "StatefulSet" && short["name"] == "web" && short["since"].is_string()
    };
    let said = status(test_cluster, "health-silent", "that it is short of pods", short).await?;
    ensure!(said["phase"] == "Ok" && said["failing"].is_null(), "{said:#}");
    let (code, out, err) =
        coppice(test_cluster, ADMIN, &["simulate", "--for", "1h", "-n", "health-silent", "-o", "json"])
            .await?;
    ensure!(code == 0, "{code}: {out}{err}");
    let predicted: Value = serde_json::from_str(&out)?;
    let instant = |value: &Value| {
        Ok::<_, anyhow::Error>(value.as_str().unwrap_or_default().parse::<jiff::Timestamp>()?)
    };
    let timeline = predicted["timeline"].as_array().into_iter().flatten();
    let announced: Vec<_> = timeline.filter(|entry| entry["reason"] == "DeletionAnnounced").collect();
    let [announced] = announced.as_slice() else { anyhow::bail!("it is announced once: {predicted:#}") };
    // Nobody has followed it before the simulation begins, and nothing else can fail there; then come settlingPeriod and gracePeriod,
    // 15 s together.
    let waited = instant(&announced["at"])?.duration_since(instant(&predicted["from"])?).as_secs();
    ensure!((600..700).contains(&waited), "announced {waited} s after it began: {announced:#}");
    Ok(())
}

/// Before a deletion every list behind it is read again, in the namespace alone.
fn lists_were_read_again(test_cluster: &TestCluster, namespace: &str) -> Test {
    let reads = test_cluster.by_operator()?;
    for resource in
        ["deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "pods", "persistentvolumeclaims"]
    {
        let read =
            reads.iter().any(|e| e.verb == "list" && e.resource == resource && e.namespace == namespace);
        ensure!(read, "{resource} were not read again");
    }
    Ok(())
}

#[test]
fn what_fails_is_deleted_with_notice_and_what_recovers_or_starts_slowly_is_not() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start().await?;
        // Nine hours ahead of UTC: nothing compares what a clock on the wall says.
        let operator = Operator::start_in_zone(&test_cluster, "Asia/Tokyo").await?;
        let watched = async |synced: bool| {
            let series = "coppice_watch_synced{kind=\"deployments\"}";
            let is = async || (operator.metric(series).await.ok()? == synced.then_some(1.0)).then_some(());
            test_cluster.until(&format!("Deployments are watched: {synced}"), is).await
        };
        watched(false).await?;
        let crash = test_cluster.namespace("health-crash").await?;
        for name in ["health-recovers", "health-slow", "health-quota", "health-silent"] {
            test_cluster.namespace(name).await?;
        }
        refuse_silently(&test_cluster).await?;
        test_cluster.apply(MANAGER).await?;
        watched(true).await?;
        let crashing = format!("{OUTCOME_LABEL}: crashloop");
        test_cluster
            .apply(&deployment("health-slow", "tier: web", &format!("{DELAY_ANNOTATION}: 600s")))
            .await?;
        test_cluster.apply(&deployment("health-recovers", &crashing, "")).await?;
        status(&test_cluster, "health-recovers", "Unstable", |status| status["phase"] == "Unstable").await?;
        let well = format!("{OUTCOME_LABEL}=run");
        test_cluster
            .kubectl(
                ADMIN,
                &["label", "pods", "-n", "health-recovers", "-l", "app=web", "--overwrite", &well],
            )
            .await?;
        status(&test_cluster, "health-recovers", "Ok again", |status| status["phase"] == "Ok").await?;

        test_cluster.quota_of_pods("health-quota", 0).await?;
        test_cluster.apply(&deployment("health-quota", "tier: web", "")).await?;
        let refused = |status: &Value| failing(status) == ["Deployment web PodsNotCreated"];
        let said = status(&test_cluster, "health-quota", "that no pods are created", refused).await?;
        let message = said["failing"][0]["message"].as_str().unwrap_or_default();
        ensure!(message.contains("exceeded quota"), "{message}");

        test_cluster.apply(&deployment("health-crash", &crashing, "")).await?;
        let failed =
            status(&test_cluster, "health-crash", "Failed", |status| status["phase"] == "Failed").await?;
        ensure!(failing(&failed) == ["Deployment web CrashLoopBackOff"], "{failed:#}");
        let past: Vec<_> =
            failed["pastPhases"].as_array().into_iter().flatten().map(|past| &past["phase"]).collect();
        ensure!(past.starts_with(&[&Value::from("Failing"), &Value::from("Unstable")]), "{failed:#}");
        let since = failed["phaseSince"].as_str().context("it has no date")?.parse::<jiff::Timestamp>()?;
        let unstable =
            failed["pastPhases"][1]["since"].as_str().unwrap_or_default().parse::<jiff::Timestamp>()?;
        let waited = since.duration_since(unstable);
        ensure!(waited.as_secs() >= 15, "Failed {waited} after it was Unstable: it takes 10 s and 5 s");
        test_cluster.deleted("health-crash", &crash).await?;
        let delete = effective_delete(&test_cluster, "health-crash").await?;
        let waited = delete.received.duration_since(since);
        ensure!(waited.as_secs() >= 6, "deleted {waited} after it was Failed: its notice takes 6 s");
        lists_were_read_again(&test_cluster, "health-crash")?;

        let slow = test_cluster.get("mns", "health-slow", "coppice").await?.context("it has no record")?;
        let past = &slow["status"]["pastPhases"];
        let other = past.as_array().into_iter().flatten().find(|past| past["phase"] == "Unstable");
        ensure!(slow["status"]["phase"] == "Ok" && other.is_none(), "a slow start is no failure: {slow:#}");
        let recovered = test_cluster.get("ns", "", "health-recovers").await?.context("it is gone")?;
        ensure!(recovered["metadata"]["deletionTimestamp"].is_null(), "{recovered:#}");
        pods_are_missing_for_ten_minutes(&test_cluster).await?;
        test_cluster.patch("cnsman", "", "health", r#"{"spec":{"health":null,"policies":[]}}"#).await?;
        watched(false).await?;
        status(&test_cluster, "health-recovers", "nothing of its health", |status| {
            status["health"].is_null()
        })
        .await?;
        Ok(())
    })
}

/// A claim of a storage class that there is not.
fn claim(namespace: &str, name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{accessModes: \
         [ReadWriteOnce], storageClassName: no-such-class, resources: {{requests: {{storage: 1Gi}}}}}}}}"
    )
}

/// What fails in `causes-a`, in the order in which it is shown: kind, name, reason, and the message after the name of a pod.
const CAUSES: [(&str, &str, &str, &str); 13] = [
    ("DaemonSet", "agent", "ImagePullBackOff", "container main: ImagePullBackOff"),
    (
        "Deployment",
        "config",
        "CreateContainerError",
        "container main: CreateContainerConfigError: secret \"db\" not found",
    ),
    (
        "Deployment",
        "create",
        "CreateContainerError",
        "container main: CreateContainerError: no command specified",
    ),
    ("Deployment", "image", "ImagePullBackOff", "container main: ImagePullBackOff"),
    ("Deployment", "late", "ProgressDeadlineExceeded", "has timed out progressing"),
    (
        "Deployment",
        "memory",
        "OOMKilled",
        "container main restarts repeatedly with exit code 137 (OOMKilled)",
    ),
    ("Deployment", "nowhere", "Unschedulable", "0/1 nodes are available"),
    // The Job before it has failed, too, and says nothing of its CronJob any more.
    ("Job", "nightly-2", "JobFailed", "Job has reached the specified backoff limit"),
    ("PersistentVolumeClaim", "gone", "VolumeLost", "its volume is gone"),
    ("PersistentVolumeClaim", "waits", "VolumePending", "waits for its volume: 0/1 nodes are available"),
    ("Pod", "alone", "PodFailed", "container main ended with exit code 1 (Error)"),
    ("Pod", "unready", "PodsNotReady", "it has not been ready for ten minutes"),
    (
        "StatefulSet",
        "ordered",
        "CrashLoopBackOff",
        "container main restarts repeatedly with exit code 1 (Error)",
    ),
];

/// What says by itself what is wrong with it, and not by its pods.
const WITHOUT_PODS: [&str; 5] = ["late", "nightly-2", "gone", "alone", "unready"];

/// What to do about each reason.
const ADVICE: [(&str, &str); 11] = [
    ("CrashLoopBackOff", "Read the log of the last run: `kubectl logs POD -c CONTAINER --previous`."),
    ("CreateContainerError", "Read the message: it names the Secret, ConfigMap or command that is missing."),
    (
        "ImagePullBackOff",
        "Check the image's name and tag, the pull secret, and whether the registry answers.",
    ),
    ("JobFailed", "Read the logs of its pods; delete the Job once it is understood."),
    ("OOMKilled", "Raise the container's memory limit, or find out what it uses the memory for."),
    ("PodFailed", "Read its log: `kubectl logs POD`; delete it once it is understood."),
    ("PodsNotReady", "Look at the pod's readiness probe and its log."),
    ("ProgressDeadlineExceeded", "Look at the newest pods of the Deployment: `kubectl describe pod`."),
    ("Unschedulable", "Ask for more nodes."),
    ("VolumeLost", "The data is lost: delete the claim and create it again, or restore the volume."),
    ("VolumePending", "Check the claim's storage class and its provisioner: `kubectl describe pvc NAME`."),
];

/// The same workload with this name instead of `web`.
fn named(workload: &str, name: &str) -> String {
    workload.replace("app: web", &format!("app: {name}")).replace("name: web", &format!("name: {name}"))
}

/// A StatefulSet whose roll-out stops at the first pod that it replaces.
async fn fail_to_roll_out(test_cluster: &TestCluster) -> Test {
    let set = |outcome: &str| {
        let set = deployment("causes-a", &format!("{OUTCOME_LABEL}: {outcome}"), "");
        named(&set.replace("kind: Deployment", "kind: StatefulSet"), "ordered")
    };
    test_cluster.apply(&set("run")).await?;
    let ready = async || {
        let set = test_cluster.get("sts", "causes-a", "ordered").await.ok()??;
        (set["status"]["readyReplicas"] == 2).then_some(())
    };
    test_cluster.until("the pods of the StatefulSet are ready", ready).await?;
    test_cluster.apply(&set("crashloop")).await.map(drop)
}

/// Two Jobs of one CronJob, one after the other.
async fn fail_nightly(test_cluster: &TestCluster) -> Test {
    let nightly = format!(
        "{{apiVersion: batch/v1, kind: CronJob, metadata: {{name: nightly, namespace: causes-a}}, spec: {{schedule: '0 0 1 1 *', \
         suspend: true, failedJobsHistoryLimit: 5, jobTemplate: {{spec: {{backoffLimit: 0, template: {{metadata: {{labels: \
         {{{OUTCOME_LABEL}: fail}}, annotations: {{{DELAY_ANNOTATION}: 2s}}}}, spec: {{restartPolicy: Never, containers: \
         [{{name: main, image: example.com/none}}]}}}}}}}}}}}}"
    );
    test_cluster.apply(&nightly).await?;
    for name in ["nightly-1", "nightly-2"] {
        let create = ["create", "job", name, "--from=cronjob/nightly", "-n", "causes-a"];
        test_cluster.kubectl(ADMIN, &create).await?;
        let failed = async || {
            let job = test_cluster.get("job", "causes-a", name).await.ok()??;
            (condition(&job, "Failed")["status"] == "True").then_some(())
        };
        test_cluster.until(&format!("{name} has failed"), failed).await?;
    }
    Ok(())
}

/// Pods that no controller owns: one fails, and the readiness probe of the other one, as its kubelet writes it.
async fn fail_alone(test_cluster: &TestCluster) -> Test {
    test_cluster.pod("causes-a", "alone", "fail", "app: alone").await?;
    test_cluster.pod("causes-a", "unready", "run", "app: unready").await?;
    let ready = async || {
        let pod = test_cluster.get("pod", "causes-a", "unready").await.ok()??;
        (condition(&pod, "Ready")["status"] == "True").then_some(())
    };
    test_cluster.until("the pod is ready", ready).await?;
    let since = "2020-01-01T00:00:00Z";
    let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": since}]);
    let status = json!({"status": {"conditions": conditions}}).to_string();
    let of = ["patch", "pod", "unready", "-n", "causes-a", "--subresource=status", "--type=merge", "-p"];
    test_cluster.kubectl(ADMIN, &[&of[..], &[&*status]].concat()).await.map(drop)
}

/// Makes in `causes-a` what fails for each cause, and a Deployment whose containers wait to be created.
async fn fail_for_each_cause(test_cluster: &TestCluster) -> Test {
    let with_outcome = |outcome: &str| deployment("causes-a", &format!("{OUTCOME_LABEL}: {outcome}"), "");
    let late = deployment("causes-a", "tier: web", &format!("{DELAY_ANNOTATION}: 600s"));
    let with_spec = |more: &str| {
        let spec = format!("spec: {{{more}, containers");
        deployment("causes-a", "tier: web", "").replace("spec: {containers", &spec)
    };
    for (name, deployment) in [
        ("config", with_outcome("configerror")),
        ("create", with_outcome("createerror")),
        ("image", with_outcome("imagepull")),
        ("memory", with_outcome("oomkilled")),
        // The image is there, and its containers are not created yet: that is no failure.
        ("starting", with_outcome("pending")),
        ("late", late.replace("replicas: 2", "replicas: 2, progressDeadlineSeconds: 2")),
        ("agent", with_outcome("imagepull").replace("Deployment", "DaemonSet").replace("replicas: 2, ", "")),
        ("nowhere", with_spec("nodeSelector: {example.org/none: here}")),
        // Its pods fail for the claim, and are no line of their own.
        ("waits", with_spec("volumes: [{name: data, persistentVolumeClaim: {claimName: waits}}]")),
    ] {
        test_cluster.apply(&named(&deployment, name)).await?;
    }
    for name in ["waits", "gone"] {
        test_cluster.apply(&claim("causes-a", name)).await?;
    }
    // As the controller does that binds claims, which this plane has not, when the volume of a claim is deleted.
    let lost = r#"{"status":{"phase":"Lost"}}"#;
    let patch =
        ["patch", "pvc", "gone", "-n", "causes-a", "--subresource=status", "--type=merge", "-p", lost];
    test_cluster.kubectl(ADMIN, &patch).await?;
    let waits = async || {
        let pods = test_cluster.list("pods", "causes-a").await.ok()?;
        let creating = pods.iter().filter(|pod| {
            let state = &pod["status"]["containerStatuses"][0]["state"];
            state["waiting"]["reason"] == "ContainerCreating"
        });
        (creating.count() == 2).then_some(())
    };
    test_cluster.until("the containers of one wait to be created", waits).await
}

/// Since when something of this name fails, by Kubernetes: of each of its pods the time since when it is not ready or not scheduled;
/// of a claim without pods its creation; of what says by itself that it fails since when it does.
async fn since_when(test_cluster: &TestCluster, name: &str) -> anyhow::Result<Vec<Value>> {
    for (of, kind, type_) in [("late", "deploy", "Progressing"), ("nightly-2", "job", "Failed")] {
        if name == of {
            let object = test_cluster.get(kind, "causes-a", name).await?.context("it is gone")?;
            return Ok(vec![condition(&object, type_)["lastTransitionTime"].clone()]);
        }
    }
    if name == "gone" {
        let claim = test_cluster.get("pvc", "causes-a", name).await?.context("it is gone")?;
        return Ok(vec![claim["metadata"]["creationTimestamp"].clone()]);
    }
    let pods = test_cluster.list("pods", "causes-a").await?;
    let own = pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == name);
    let conditions = own.flat_map(|pod| pod["status"]["conditions"].as_array().into_iter().flatten());
    let failing = conditions
        .filter(|one| one["status"] == "False" && (one["type"] == "Ready" || one["type"] == "PodScheduled"));
    Ok(failing.map(|one| one["lastTransitionTime"].clone()).collect())
}

#[test]
fn each_cause_is_one_line_with_its_workload_and_advice() -> Test {
    const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: causes}, spec: {selector: \
                           {names: ['causes-*']}, settle: 1s, health: {advice: [{reason: Unschedulable, text: Ask for more nodes.}]}}}";
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("causes-a").await?;
        test_cluster.apply(MANAGER).await?;
        fail_for_each_cause(test_cluster).await?;
        fail_to_roll_out(test_cluster).await?;
        fail_alone(test_cluster).await?;
        fail_nightly(test_cluster).await?;
        // Each Deployment fails two pods, and its ReplicaSet and itself are short of them: that is one line.
        let expected: Vec<_> =
            CAUSES.iter().map(|(kind, name, reason, _)| format!("{kind} {name} {reason}")).collect();
        let all = |status: &Value| failing(status) == expected;
        let said = status(test_cluster, "causes-a", "every cause", all).await?;
        ensure!(said["phase"] == "Unstable" && said["failingMore"].is_null(), "{said:#}");
        for ((kind, name, _, message), line) in
            CAUSES.iter().zip(said["failing"].as_array().into_iter().flatten())
        {
            let shown = line["message"].as_str().unwrap_or_default();
            let by_pod = shown.starts_with(&format!("pod {name}-"));
            ensure!(
                by_pod != WITHOUT_PODS.contains(name)
                    && shown.contains(message)
                    && line["source"] == "Workloads",
                "{kind} {name}: {line:#}"
            );
            let since = since_when(test_cluster, name).await?;
            ensure!(since.contains(&line["since"]), "{line:#}, and not since one of {since:?}");
        }
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "causes-a"]).await?;
        ensure!(code == 0, "{said}{error}");
        for (kind, name, reason, message) in CAUSES {
            let about = |line: &&str| line.trim_start().starts_with(&format!("{kind}/{name}: "));
            let reported: Vec<_> = said.lines().filter(about).collect();
            let [line] = reported.as_slice() else { anyhow::bail!("one line about {name}: {said}") };
            ensure!(line.contains(message) && line.contains(&format!("[{reason}], since ")), "{line}");
        }
        for (reason, advice) in ADVICE {
            let lines = said.lines().filter(|line| line.trim() == format!("{reason}: {advice}"));
            ensure!(lines.count() == 1, "the advice for {reason}, once: {said}");
        }
        Ok(())
    })
}

/// A policy that observes would have deleted what failed, and its users have put it right since.
#[test]
fn what_recovers_after_an_observing_manager_would_have_deleted_it_is_counted() -> Test {
    const OBSERVES: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: recovering}, spec: \
                            {selector: {names: ['recovering-*']}, settle: 1s, health: {settlingPeriod: 2s, gracePeriod: 1s, \
                            recoveryPeriod: 2s}, policies: [{name: end, when: {phase: {in: [Failed]}}, then: {delete: {notice: \
                            1s}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        for name in ["recovering-fails", "recovering-again"] {
            test_cluster.namespace(name).await?;
            test_cluster.pod(name, "web", "fail", "a: b").await?;
        }
        test_cluster.apply(OBSERVES).await?;
        let counted = async |what: &str, recovered: u32| {
            let expected = json!([{
                "name": "end", "wouldHaveActed": 2, "recovered": recovered, "extended": 0, "held": 0, "deletedByOthers": 0,
                "notGoverned": 0,
            }]);
            let counts = async || {
                let manager = test_cluster.get("cnsman", "", "recovering").await.ok()??;
                (manager["status"]["observed"]["policies"] == expected).then_some(())
            };
            let found = test_cluster.until(what, counts).await;
            let now = test_cluster.get("cnsman", "", "recovering").await;
            found.with_context(|| format!("it is {now:#?}"))
        };
        counted("two that would be gone", 0).await?;
        let delete = ["delete", "pod", "web", "-n", "recovering-again", "--wait=false"];
        test_cluster.kubectl(ADMIN, &delete).await?;
        let recovered = |status: &Value| {
            let noted = &status["wouldHaveActed"][0];
            noted["outcome"] == "Recovered" && noted["reason"] == "Unhealthy" && status["phase"] == "Ok"
        };
        status(test_cluster, "recovering-again", "that it has recovered", recovered).await?;
        counted("one that has recovered", 1).await?;
        let fails =
            |status: &Value| status["phase"] == "Failed" && status["wouldHaveActed"][0]["outcome"].is_null();
        status(test_cluster, "recovering-fails", "that it fails", fails).await?;
        let deletes = test_cluster.namespace_deletes()?;
        ensure!(!deletes.iter().any(|e| e.name.starts_with("recovering-")), "it only observes");
        Ok(())
    })
}
