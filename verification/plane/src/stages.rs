//! What the fake kubelet does to pods: KWOK stages, chosen by label and delayed by annotation.
//!
//! A stage applies to every object that its selector matches, and again after its own change; so each selector must stop
//! matching once the change is there. As soon as one pod stage is given, KWOK drops its own: the set is complete.

use serde_json::{Value, json};

/// Label of a pod that chooses its [outcome](OUTCOMES); without it the pod runs.
pub const OUTCOME_LABEL: &str = "plane.coppice.dev/outcome";
/// Annotation of a pod: a Go duration such as `2s` between its start and its outcome. A pod with the outcome `run`
/// starts that much later.
pub const DELAY_ANNOTATION: &str = "plane.coppice.dev/delay";
/// Annotation of a pod: a Go duration for which it stays Terminating.
pub const DELETE_DELAY_ANNOTATION: &str = "plane.coppice.dev/delete-delay";
/// Values of the outcome label. A new value on a pod that lives takes effect at once.
pub const OUTCOMES: [&str; 9] = [
    "run",
    "succeed",
    "fail",
    "crashloop",
    "oomkilled",
    "imagepull",
    "configerror",
    "createerror",
    "pending",
];

/// A container that waits, as a kubelet writes it.
#[derive(Clone, Copy)]
struct Wait {
    outcome: &'static str,
    /// The phase of a pod of which that becomes.
    from: &'static str,
    reason: &'static str,
    message: &'static str,
    /// Why its last run ended; empty if there was none.
    last: &'static str,
}

/// The outcomes whose pods wait.
const WAITING: [Wait; 6] = [
    Wait { outcome: "crashloop", from: "Running", reason: "CrashLoopBackOff", message: "", last: "Error" },
    Wait {
        outcome: "oomkilled",
        from: "Running",
        reason: "CrashLoopBackOff",
        message: "",
        last: "OOMKilled",
    },
    Wait { outcome: "imagepull", from: "Pending", reason: "ImagePullBackOff", message: "", last: "" },
    Wait {
        outcome: "configerror",
        from: "Pending",
        reason: "CreateContainerConfigError",
        message: "secret \"db\" not found",
        last: "",
    },
    Wait {
        outcome: "createerror",
        from: "Pending",
        reason: "CreateContainerError",
        message: "no command specified",
        last: "",
    },
    Wait { outcome: "pending", from: "Pending", reason: "ContainerCreating", message: "", last: "" },
];
/// What the first container waits for, and why its last run ended.
const WAITS_SINCE: &str = r#".status.containerStatuses.[0] | "\(.state.waiting.reason // "") \(.lastState.terminated.reason // "")""#;

/// The complete configuration of KWOK, as YAML documents (JSON is YAML).
pub(crate) fn config() -> String {
    // The defaults play four pods at a time, which is slow for thousands.
    let options = json!({
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokConfiguration",
        "options": {"podPlayStageParallelism": 32, "podsOnNodeSyncParallelism": 8},
    });
    let documents = [options, node()].into_iter().chain(pods());
    documents.map(|document| format!("{document:#}\n")).collect::<Vec<_>>().join("---\n")
}

fn stage(name: &str, kind: &str, selector: &[Value], delay: Option<String>, next: &Value) -> Value {
    let delay = delay
        .map(|expression| json!({"durationMilliseconds": 0, "durationFrom": {"expressionFrom": expression}}));
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": selector},
            "delay": delay,
            "next": next,
        },
    })
}

/// The node says once that it is ready; its lease is renewed by KWOK itself.
fn node() -> Value {
    let ready = r#".status.conditions.[] | select(.type == "Ready") | .status"#;
    let status = r"{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- {type: {{ .type | Quote }}, status: {{ .status | Quote }}, reason: {{ .reason | Quote }}, message: {{ .message | Quote }},
   lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
- {type: Hostname, address: {{ NodeName | Quote }}}
";
    stage("node-ready", "Node", &[not_in(ready, &["True"])], None, &json!({"statusTemplate": status}))
}

fn pods() -> Vec<Value> {
    let outcome = format!(r#".metadata.labels["{OUTCOME_LABEL}"]"#);
    let outcome = outcome.as_str();
    let phase = ".status.phase";
    let alive = absent(".metadata.deletionTimestamp");
    let pod = |name: &str, selector: &[Value], delay: Option<String>, status: String| {
        let selector: Vec<Value> = std::iter::once(alive.clone()).chain(selector.iter().cloned()).collect();
        stage(name, "Pod", &selector, delay, &json!({"statusTemplate": status}))
    };
    let delay = format!(r#".metadata.annotations["{DELAY_ANNOTATION}"]"#);
    let only_run = format!(r#"if ({outcome} // "run") == "run" then {delay} else "0s" end"#);
    let mut stages = vec![
        // A pod that was relabelled comes back to life; one that ended does not.
        pod(
            "pod-run",
            &[
                not_in(outcome, &WAITING.map(|wait| wait.outcome)),
                is_in(phase, &["Pending", "Running"]),
                absent(".status.containerStatuses.[0].state.running"),
            ],
            Some(only_run),
            running(),
        ),
        pod(
            "pod-start",
            &[is_in(outcome, &["crashloop", "oomkilled"]), is_in(phase, &["Pending"])],
            None,
            running(),
        ),
        pod(
            "pod-succeed",
            &[is_in(outcome, &["succeed"]), is_in(phase, &["Running"])],
            Some(delay.clone()),
            terminated("Succeeded", 0, "Completed"),
        ),
        pod(
            "pod-fail",
            &[is_in(outcome, &["fail"]), is_in(phase, &["Running"])],
            Some(delay.clone()),
            terminated("Failed", 1, "Error"),
        ),
    ];
    for Wait { outcome: name, from, reason, message, last } in WAITING {
        let is = format!("{reason} {last}");
        let selector = [is_in(outcome, &[name]), is_in(phase, &[from]), not_in(WAITS_SINCE, &[&is])];
        let delay = (name != "pending").then(|| delay.clone());
        stages.push(pod(
            &format!("pod-{name}"),
            &selector,
            delay,
            waiting_container(from, reason, message, last),
        ));
    }
    stages.extend(deletion(phase));
    stages
}

/// The kubelet's part in deletion. Finalizers stay what they are: somebody else's.
fn deletion(phase: &str) -> [Value; 3] {
    let deleted = present(".metadata.deletionTimestamp");
    // Zero once the kubelet has confirmed: what remains are finalizers.
    let unconfirmed = not_in(".metadata.deletionGracePeriodSeconds | tostring", &["0"]);
    let (free, held) = (absent(".metadata.finalizers.[0]"), present(".metadata.finalizers.[0]"));
    let delay = Some(format!(r#".metadata.annotations["{DELETE_DELAY_ANNOTATION}"]"#));
    let delete = json!({"delete": true});
    let killed = json!({"statusTemplate": terminated("Failed", 137, "Error")});
    let [live, ended] =
        [&["Pending", "Running"], &["Succeeded", "Failed"]].map(|phases| is_in(phase, phases));
    [
        stage("pod-delete", "Pod", &[deleted.clone(), free, unconfirmed.clone()], delay.clone(), &delete),
        // Controllers that hold a finalizer, such as that of Jobs, want to see how the pod ended.
        stage("pod-kill", "Pod", &[deleted.clone(), held.clone(), live], delay, &killed),
        stage("pod-confirm", "Pod", &[deleted, held, ended, unconfirmed], None, &delete),
    ]
}

fn running() -> String {
    let init = r"
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
{{ if eq .restartPolicy `Always` }}
  started: true
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ else }}
  state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
{{ end }}
{{ end }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid ``) (or .metadata.name ``) (or .metadata.namespace ``) | Quote }}
";
    let state = "started: true, state: {running: {startedAt: {{ $now | Quote }}}}";
    status("Running", true, "", "restartCount: 0", state) + init
}

fn terminated(phase: &str, code: u8, reason: &str) -> String {
    let condition = if code == 0 { "PodCompleted" } else { "PodFailed" };
    let state = format!(
        "started: false, state: {{terminated: {{exitCode: {code}, reason: {reason}, \
         startedAt: {{{{ or $.status.startTime $now | Quote }}}}, finishedAt: {{{{ $now | Quote }}}}}}}}"
    );
    status(phase, false, condition, "restartCount: 0", &state)
}

/// A container that waits; one whose last run ended so has a past.
fn waiting_container(phase: &str, reason: &str, message: &str, last: &str) -> String {
    let code = if last == "OOMKilled" { 137 } else { 1 };
    let past = if last.is_empty() {
        "restartCount: 0".to_owned()
    } else {
        format!(
            "restartCount: 5, lastState: {{terminated: {{exitCode: {code}, reason: {last}, \
             startedAt: {{{{ $now | Quote }}}}, finishedAt: {{{{ $now | Quote }}}}}}}}"
        )
    };
    let state = format!("started: false, state: {{waiting: {{reason: {reason}, message: {message:?}}}}}");
    status(phase, false, "ContainersNotReady", &past, &state)
}

/// The parts that every pod status has.
fn status(phase: &str, ready: bool, reason: &str, past: &str, state: &str) -> String {
    let yes = if ready { "True" } else { "False" };
    let initialized = if phase == "Pending" { "False" } else { "True" };
    format!(
        r#"{{{{ $now := Now }}}}
phase: {phase}
startTime: {{{{ or .status.startTime $now | Quote }}}}
hostIP: {{{{ NodeIPWith .spec.nodeName | Quote }}}}
conditions:
- {{type: Initialized, status: "{initialized}", lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: Ready, status: "{yes}", reason: "{reason}", lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: ContainersReady, status: "{yes}", reason: "{reason}", lastTransitionTime: {{{{ $now | Quote }}}}}}
{{{{ range .spec.readinessGates }}}}
- {{type: {{{{ .conditionType | Quote }}}}, status: "{yes}", lastTransitionTime: {{{{ $now | Quote }}}}}}
{{{{ end }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- {{name: {{{{ .name | Quote }}}}, image: {{{{ .image | Quote }}}}, imageID: "", ready: {ready}, {past}, {state}}}
{{{{ end }}}}"#
    )
}

fn is_in(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "In", "values": values})
}

fn not_in(key: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": "NotIn", "values": values})
}

fn present(key: &str) -> Value {
    json!({"key": key, "operator": "Exists"})
}

fn absent(key: &str) -> Value {
    json!({"key": key, "operator": "DoesNotExist"})
}
