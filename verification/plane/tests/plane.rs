//! Starts real control planes and uses them as tests and people do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper has nobody to return an error to")]

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use coppice_plane::{
    ADMIN, ALICE, BOB, Binaries, Error, OPERATOR, OUTCOMES, Options, Plane, Pods, User, VIEWER,
};

/// Runs kubectl as `user` and returns what it printed, or what it complained about.
fn kubectl(plane: &Plane, user: &str, command: &str) -> Result<String, String> {
    let output = plane.kubectl_as(user).unwrap().args(command.split_whitespace()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// The same for the administrator, to whom nothing is refused.
fn admin(plane: &Plane, command: &str) -> String {
    kubectl(plane, ADMIN, command).unwrap_or_else(|error| panic!("kubectl {command}: {error}"))
}

/// Waits until the field of a pod in the namespace `pods` has the value.
fn pod_reaches(plane: &Plane, pod: &str, field: &str, value: &str) {
    admin(plane, &format!("wait -n pods pod/{pod} --for=jsonpath={{{field}}}={value} --timeout=60s"));
}

fn pod_field(plane: &Plane, pod: &str, field: &str) -> String {
    admin(plane, &format!("get -n pods pod/{pod} -o jsonpath={{{field}}}"))
}

fn namespace(plane: &Plane, name: &str) {
    admin(plane, &format!("create namespace {name}"));
    admin(plane, &format!("wait -n {name} --for=create serviceaccount/default --timeout=60s"));
}

fn apply(plane: &Plane, namespace: &str, manifest: &str) {
    let file = plane.dir().join(format!("{namespace}.yaml"));
    fs::write(&file, manifest).unwrap();
    admin(plane, &format!("apply -n {namespace} -f {}", file.display()));
}

/// Command lines of all processes that mention `text`.
fn processes(text: &str) -> Vec<String> {
    let command = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("cmdline")).ok();
    let commands = fs::read_dir("/proc").unwrap().filter_map(|entry| command(entry.unwrap()));
    commands.filter(|command| command.contains(text)).collect()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        std::thread::yield_now();
    }
}

const STATE: &str = ".status.containerStatuses[0].state";

fn pods() -> String {
    let pod = |name: &str, outcome: &str, more: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{plane.coppice.dev/outcome: {outcome}}} \
             {more}}}, spec: {{containers: [{{name: main, image: example.org/main}}]}}}}\n"
        )
    };
    let late = ", annotations: {plane.coppice.dev/delay: 2s}";
    let slow = ", annotations: {plane.coppice.dev/delete-delay: 24h}";
    let mut text: String = OUTCOMES.map(|outcome| pod(outcome, outcome, "")).concat();
    text += &pod("late", "succeed", late);
    text += &pod("slow", "run", slow);
    text += &pod("held", "run", ", finalizers: [example.org/held]");
    text + "---\n{apiVersion: v1, kind: Pod, metadata: {name: plain}, spec: {containers: [{name: a, image: a}, {name: b, image: b}]}}\n"
}

#[tokio::test]
async fn pods_take_their_outcomes() {
    let plane = Plane::start(Options::default()).await.unwrap();
    namespace(&plane, "pods");
    apply(&plane, "pods", &pods());

    for pod in ["run", "plain"] {
        admin(&plane, &format!("wait -n pods pod/{pod} --for=condition=Ready --timeout=60s"));
    }
    pod_reaches(&plane, "succeed", ".status.phase", "Succeeded");
    assert_eq!(pod_field(&plane, "succeed", &format!("{STATE}.terminated.exitCode")), "0");
    pod_reaches(&plane, "fail", ".status.phase", "Failed");
    assert_eq!(pod_field(&plane, "fail", &format!("{STATE}.terminated.exitCode")), "1");
    pod_reaches(&plane, "crashloop", &format!("{STATE}.waiting.reason"), "CrashLoopBackOff");
    assert_eq!(pod_field(&plane, "crashloop", ".status.phase"), "Running");
    pod_reaches(&plane, "oomkilled", &format!("{STATE}.waiting.reason"), "CrashLoopBackOff");
    let last = ".status.containerStatuses[0].lastState.terminated.reason";
    assert_eq!(["crashloop", "oomkilled"].map(|pod| pod_field(&plane, pod, last)), ["Error", "OOMKilled"]);
    for (pod, reason) in [
        ("imagepull", "ImagePullBackOff"),
        ("configerror", "CreateContainerConfigError"),
        ("createerror", "CreateContainerError"),
        ("pending", "ContainerCreating"),
    ] {
        pod_reaches(&plane, pod, &format!("{STATE}.waiting.reason"), reason);
        assert_eq!(pod_field(&plane, pod, ".status.phase"), "Pending");
    }

    // A delay passes between the start and the outcome.
    pod_reaches(&plane, "late", ".status.phase", "Succeeded");
    let ended = format!("{STATE}.terminated");
    let [from, to] =
        ["startedAt", "finishedAt"].map(|field| pod_field(&plane, "late", &format!("{ended}.{field}")));
    let [from, to]: [jiff::Timestamp; 2] = [from, to].map(|time| time.parse().unwrap());
    assert!(to.duration_since(from).as_secs() >= 1, "{from} to {to}");

    // A new label takes effect on a living pod, and back.
    admin(&plane, "label -n pods pod/run plane.coppice.dev/outcome=crashloop --overwrite");
    pod_reaches(&plane, "run", &format!("{STATE}.waiting.reason"), "CrashLoopBackOff");
    admin(&plane, "label -n pods pod/run plane.coppice.dev/outcome=oomkilled --overwrite");
    pod_reaches(&plane, "run", last, "OOMKilled");
    admin(&plane, "label -n pods pod/run plane.coppice.dev/outcome=run --overwrite");
    admin(&plane, "wait -n pods pod/run --for=condition=Ready --timeout=60s");

    deletions(&plane);
    plane.stop().await.unwrap();
}

fn deletions(plane: &Plane) {
    admin(plane, "delete -n pods pod/run pod/succeed pod/crashloop pod/imagepull pod/pending --timeout=60s");
    // Stays Terminating as long as its annotation says.
    admin(plane, "delete -n pods pod/slow --wait=false");
    assert_ne!(pod_field(plane, "slow", ".metadata.deletionTimestamp"), "");
    admin(plane, "annotate -n pods pod/slow plane.coppice.dev/delete-delay=0s --overwrite");
    admin(plane, "wait -n pods pod/slow --for=delete --timeout=60s");
    // A finalizer is for its owner to remove.
    admin(plane, "delete -n pods pod/held --wait=false");
    pod_reaches(plane, "held", ".metadata.deletionGracePeriodSeconds", "0");
    assert_eq!(pod_field(plane, "held", ".status.phase"), "Failed");
    admin(plane, r#"patch -n pods pod/held --type=merge -p {"metadata":{"finalizers":null}}"#);
    admin(plane, "wait -n pods pod/held --for=delete --timeout=60s");
}

const WORKLOADS: &str = "
{apiVersion: batch/v1, kind: Job, metadata: {name: good}, spec: {completions: 3, parallelism: 2, template: {
  metadata: {labels: {plane.coppice.dev/outcome: succeed}},
  spec: {restartPolicy: Never, containers: [{name: main, image: example.org/main}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: bad}, spec: {backoffLimit: 0, template: {
  metadata: {labels: {plane.coppice.dev/outcome: fail}},
  spec: {restartPolicy: Never, containers: [{name: main, image: example.org/main}]}}}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: long}, spec: {template: {
  spec: {restartPolicy: Never, containers: [{name: main, image: example.org/main}]}}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {
  metadata: {labels: {app: web}},
  spec: {initContainers: [{name: first, image: example.org/first}], containers: [{name: main, image: example.org/main}]}}}}
";

#[tokio::test]
async fn controllers_and_users_are_those_of_a_cluster() {
    let options = Options { users: vec![User::new("carol", ["friends"])], ..Options::default() };
    let mut plane = Plane::start(options).await.unwrap();
    plane.check().unwrap();
    namespace(&plane, "work");
    apply(&plane, "work", WORKLOADS);
    admin(&plane, "wait -n work job/good --for=condition=Complete --timeout=60s");
    admin(&plane, "wait -n work job/bad --for=condition=Failed --timeout=60s");
    admin(&plane, "wait -n work deployment/web --for=condition=Available --timeout=60s");
    admin(&plane, "wait -n work job/long --for=jsonpath={.status.ready}=1 --timeout=60s");
    // Garbage is collected, also that which the Job controller holds by a finalizer.
    admin(&plane, "delete -n work deployment/web job/long --timeout=60s");
    admin(&plane, "wait -n work pod -l app=web --for=delete --timeout=60s");
    admin(&plane, "wait -n work pod -l job-name=long --for=delete --timeout=60s");

    users(&plane);
    guarded_delete(&plane);
    admin(&plane, "delete namespace work --timeout=60s");
    plane.stop().await.unwrap();
}

fn users(plane: &Plane) {
    for user in [OPERATOR, ALICE, BOB, VIEWER, "carol"] {
        let name = kubectl(plane, user, "auth whoami -o jsonpath={.status.userInfo.username}").unwrap();
        assert_eq!(name, user);
        let refusal = kubectl(plane, user, "get namespaces").unwrap_err();
        assert!(refusal.contains("Forbidden") && refusal.contains(user), "{refusal}");
    }
    let groups = kubectl(plane, OPERATOR, "auth whoami -o jsonpath={.status.userInfo.groups}").unwrap();
    for group in ["system:serviceaccounts", "system:serviceaccounts:coppice-system", "system:authenticated"] {
        assert!(groups.contains(&format!("\"{group}\"")), "{groups}");
    }
    assert!(
        kubectl(plane, "carol", "auth whoami -o jsonpath={.status.userInfo.groups}")
            .unwrap()
            .contains("friends")
    );
    assert!(matches!(plane.kubeconfig("mallory"), Err(Error::NoUser(_))));
    assert!(admin(plane, "version").contains("Server Version: v1."));
}

/// A delete with preconditions is refused if they are wrong, and the audit log has all of it.
fn guarded_delete(plane: &Plane) {
    let file = plane.dir().join("options.json");
    fs::write(&file, r#"{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"not-this-one"}}"#)
        .unwrap();
    let command = format!("delete --raw /api/v1/namespaces/work -f {}", file.display());
    let refusal = kubectl(plane, ADMIN, &command).unwrap_err();
    assert!(refusal.contains("Precondition failed"), "{refusal}");

    let events = plane.audit().unwrap();
    let delete =
        events.iter().find(|event| event.verb == "delete" && event.resource == "namespaces").unwrap();
    assert_eq!((delete.user.as_str(), delete.name.as_str(), delete.code), (ADMIN, "work", Some(409)));
    assert_eq!(delete.precondition("uid"), Some("not-this-one"));
    assert!(delete.message.contains("Precondition failed") && delete.is_write() && !delete.succeeded());
    assert!(delete.at >= delete.received);

    let created = events.iter().find(|event| event.verb == "create" && event.name == "work").unwrap();
    assert_eq!(created.response.as_ref().unwrap()["metadata"]["name"], "work");
    let refused = events.iter().find(|event| event.user == OPERATOR && event.verb == "list").unwrap();
    assert_eq!((refused.resource.as_str(), refused.code), ("namespaces", Some(403)));
    assert!(!events.iter().any(|event| event.user.starts_with("system:kube-") && !event.is_write()));
}

/// Writes an object straight into etcd, which a plane for scale reads as JSON.
async fn seed_namespace(plane: &Plane, name: &str) {
    let object = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "uid": "00000000-0000-4000-8000-000000000001", "creationTimestamp": "2026-01-02T03:04:05Z"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    });
    let key = STANDARD.encode(format!("/registry/namespaces/{name}"));
    let body = serde_json::json!({"key": key, "value": STANDARD.encode(object.to_string())});
    let request =
        reqwest::Client::new().post(format!("{}/v3/kv/put", plane.etcd_url())).body(body.to_string());
    assert!(request.send().await.unwrap().status().is_success());
}

#[tokio::test]
async fn two_run_side_by_side() {
    let quiet = Options { audit: false, ..Options::default() };
    let (one, two) =
        tokio::join!(Plane::start(quiet), Plane::start(Options { scale: true, ..Options::default() }));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(matches!((one.audit(), two.audit()), (Err(Error::NoAudit), Err(Error::NoAudit))));
    namespace(&one, "mine");
    assert!(kubectl(&two, ADMIN, "get namespace mine").unwrap_err().contains("not found"));
    seed_namespace(&two, "seeded").await;
    assert_eq!(admin(&two, "get namespace seeded -o jsonpath={.status.phase}"), "Active");

    let dirs = [one.dir().to_owned(), two.dir().to_owned()];
    one.stop().await.unwrap();
    assert!(admin(&two, "get nodes").contains("Ready"));
    drop(two);
    for dir in dirs {
        assert_eq!(processes(dir.to_str().unwrap()), [""; 0]);
        assert!(!dir.exists(), "{}", dir.display());
    }
}

#[tokio::test]
async fn without_scheduler_and_node_pods_stay_pending_and_controllers_work() {
    let plane = Plane::start(Options { pods: Pods::Pending, ..Options::default() }).await.unwrap();
    assert_eq!(admin(&plane, "get nodes -o name"), "");
    let running = processes(plane.dir().to_str().unwrap());
    assert!(
        !running.iter().any(|line| line.contains("kube-scheduler") || line.contains("kwok")),
        "{running:#?}"
    );
    namespace(&plane, "work");
    apply(&plane, "work", WORKLOADS);
    let pod = "get pods -n work -l app=web -o jsonpath={.items[*].status.phase}";
    wait_until("the Deployment has its pods", || admin(&plane, pod) == "Pending Pending");
    admin(&plane, "delete namespace work --timeout=60s");
    plane.stop().await.unwrap();
}

/// Starts the program and returns it when it says that the plane is up.
fn program(dir: &Path) -> Child {
    let bin = Binaries::locate().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_coppice-plane"))
        .args(["start", "--dir", dir.to_str().unwrap()])
        .env(coppice_plane::BIN_VARIABLE, bin.dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let lines: Vec<_> = lines.map(Result::unwrap).take_while(|line| !line.starts_with("Ready.")).collect();
    let kubeconfig = format!("export KUBECONFIG={}/kubeconfig/admin.yaml", dir.display());
    assert!(lines.contains(&kubeconfig), "{lines:#?}");
    // One for each process, and one for its supervisor.
    assert!(processes(dir.to_str().unwrap()).len() > 10);
    child
}

#[test]
fn nothing_outlives_a_killed_parent() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap().join("plane");
    let mut child = program(&dir);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("all processes are gone", || processes(dir.to_str().unwrap()).is_empty());
}

#[test]
fn an_interrupt_stops_everything_and_keeps_the_named_folder() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap().join("plane");
    let mut child = program(&dir);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
    // What watched over each of them has its signal by then, and ends a moment later.
    wait_until("all processes are gone", || processes(dir.to_str().unwrap()).is_empty());
    assert!(dir.join("log/kube-apiserver.log").exists());
}

/// A folder with the real binaries, but for the API server, which is this script.
fn with_apiserver(script: &str) -> tempfile::TempDir {
    let (dir, real) = (tempfile::tempdir().unwrap(), Binaries::locate().unwrap());
    for entry in fs::read_dir(real.dir()).unwrap() {
        let entry = entry.unwrap();
        symlink(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    let path = dir.path().join("kube-apiserver");
    fs::remove_file(&path).unwrap();
    let script = script.replace("REAL", real.path("kube-apiserver").to_str().unwrap());
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[tokio::test]
async fn a_failed_start_says_why_and_keeps_the_log() {
    let bin = with_apiserver("echo no such luck; exit 9");
    let options = Options { binaries: Some(bin.path().to_owned()), ..Options::default() };
    let error = Plane::start(options).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("kube-apiserver ended (exit status: 9)") && text.contains("no such luck"),
        "{text}"
    );
    let Error::Ended { log, .. } = error else { panic!("{error:?}") };
    assert!(
        text.contains(log.to_str().unwrap()) && fs::read_to_string(&log).unwrap().contains("no such luck")
    );
    let dir = log.ancestors().nth(2).unwrap();
    assert_eq!(processes(dir.to_str().unwrap()), [""; 0]);
    fs::remove_dir_all(dir).unwrap();
}

#[tokio::test]
async fn a_port_lost_to_somebody_else_is_no_failure() {
    let bin = with_apiserver(
        r#"[ -e "$0.done" ] && exec REAL "$@"; : >"$0.done"; echo bind: address already in use; exit 1"#,
    );
    let temp = tempfile::tempdir().unwrap();
    let keep_dir = Some(temp.path().join("plane"));
    let options = Options { binaries: Some(bin.path().to_owned()), keep_dir, ..Options::default() };
    let plane = Plane::start(options).await.unwrap();
    assert!(bin.path().join("kube-apiserver.done").exists());
    plane.stop().await.unwrap();
}

#[tokio::test]
async fn a_user_declared_twice_is_refused() {
    let options = Options { users: vec![User::new(ALICE, ["friends"])], ..Options::default() };
    assert!(matches!(Plane::start(options).await, Err(Error::DuplicateUser(name)) if name == ALICE));
}
