//! The two binaries as a shell runs them: exit codes, names, pipes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::process::{Command, Stdio};

use assert_cmd::assert::OutputAssertExt as _;

fn coppice(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coppice"));
    command.args(args).env("KUBECONFIG", "/nonexistent").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

fn fixture(name: &str) -> String {
    format!("tests/fixtures/{name}")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn exit_codes_are_stable() {
    coppice(&["--help"]).assert().code(0);
    coppice(&["crds"]).assert().code(0);
    coppice(&["version", "--client"]).assert().code(0);
    coppice(&["plan", "-f", &fixture("bad.yaml")]).assert().code(1);
    coppice(&["plan", "-f", &fixture("cluster.yaml")]).assert().code(3);
    coppice(&["import", "consol", &fixture("consol/awkward.yaml")]).assert().code(3);
    for usage in [
        &["nonsense"][..],
        &["hold", "a/b"],
        &["hold", "a/b", "--for", "300"],
        &["hold", "A", "--for", "1h"],
        &["extend", "a/b", "--by", "0s"],
        &["extend", "a/b", "--until", "tomorrow"],
        &["plan", "--at", "noon"],
        &["plan", "-o", "xml"],
    ] {
        let output = coppice(usage).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{usage:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{usage:?}");
    }
}

#[test]
fn without_an_api_server_it_says_what_to_do() {
    for args in [&["list"][..], &["plan"], &["hold", "a/b", "--for", "1h"], &["doctor"], &["version"]] {
        let output = coppice(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let error = text(&output.stderr);
        assert!(error.contains("--kubeconfig") && !error.contains("panicked"), "{args:?}: {error}");
    }
}

#[test]
fn an_api_server_that_is_not_there_is_named() {
    let output = coppice(&["list", "--server", "http://127.0.0.1:1"]).output().unwrap();
    let error = text(&output.stderr);
    assert!(error.contains("the API server cannot be reached"), "{error}");
}

#[test]
fn the_plugin_calls_itself_as_kubectl_does() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_kubectl-coppice")).args(["hold", "--help"]).output().unwrap();
    assert!(text(&output.stdout).contains("Usage: kubectl coppice hold"), "{}", text(&output.stdout));
    let output = coppice(&["hold", "--help"]).output().unwrap();
    assert!(text(&output.stdout).contains("Usage: coppice hold"), "{}", text(&output.stdout));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = coppice(&["crds"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

/// An API server that has nothing. It says here that it was asked to create something, and answers nothing.
#[cfg(unix)]
fn never_creates(asked: std::sync::mpsc::Sender<()>) -> String {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    const NOTHING: &str = r#"{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}"#;
    const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"not found","reason":"NotFound","code":404}"#;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, asked) = (stream.unwrap(), asked.clone());
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                if first.starts_with("POST ") {
                    asked.send(()).unwrap();
                    // Until the client is gone.
                    let _ = stream.read_to_end(&mut Vec::new());
                    return;
                }
                let is_list = first.contains("labelSelector=");
                let (code, body) = if is_list { ("200 OK", NOTHING) } else { ("404 Not Found", NOT_FOUND) };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close"
                );
                let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
            });
        }
    });
    url
}

#[cfg(unix)]
#[test]
fn a_probe_that_is_stopped_says_that_its_cluster_may_be_created_still() {
    let (asked, heard) = std::sync::mpsc::channel();
    let server = never_creates(asked);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("probe.yaml");
    let cluster = "{apiVersion: coppice.dev/v1alpha1, kind: ManagedCluster, metadata: {name: shop}, \
        spec: {provider: {clusterAPI: {class: small}}, version: 1.33.4}}";
    std::fs::write(&file, cluster).unwrap();
    let args = ["probe", "--server", server.as_str(), "--new-cluster", file.to_str().unwrap(), "-o", "json"];
    let child = coppice(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    heard.recv_timeout(std::time::Duration::from_mins(1)).unwrap();
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", pid.as_str()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{out}{}", text(&output.stderr));
    let says = "it was stopped; ManagedCluster default/shop is not there, and may be created still";
    assert!(out.contains(says), "{out}");
}

#[test]
fn every_shell_gets_its_completion() {
    for shell in ["bash", "zsh", "fish", "powershell", "kubectl"] {
        let output = coppice(&["completion", shell]).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("explain"), "{shell}");
    }
}

#[test]
fn the_plugin_completes_commands_and_flags() {
    let script = coppice(&["completion", "kubectl"]).output().unwrap().stdout;
    let ask = |words: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &text(&script), "kubectl_complete-coppice"]).args(words);
        text(&shell.output().unwrap().stdout)
    };
    assert!(
        ask(&[""]).starts_with("plan\npreview\nsimulate\nexplain\n") && ask(&[""]).ends_with(":4\n"),
        "{}",
        ask(&[""])
    );
    assert!(ask(&["hold", "--"]).contains("--until\n"), "{}", ask(&["hold", "--"]));
    assert_eq!(ask(&["plan", ""]), ":0\n");
}

#[test]
fn the_time_zone_of_whoever_asks_decides_nothing() {
    let manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: a, creationTimestamp: '2026-03-01T12:00:00Z'}}\n---\n\
                    {apiVersion: coppice.dev/v1alpha1, kind: NamespaceManager, metadata: {name: m, namespace: a}, spec: \
                    {policies: [{name: end, when: {ttl: {after: 2h}}, then: {delete: {notice: 15m}}}]}}\n";
    let plan = |zone: &str| {
        let mut command = coppice(&["plan", "-o", "json", "--at", "2026-03-01T13:00:00Z", "-f", "-"]);
        let mut child = command
            .env("TZ", zone)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), manifest.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let utc = plan("UTC");
    assert!(utc.contains("2026-03-01T14:00:01Z"), "{utc}");
    for zone in ["Asia/Tokyo", "America/Los_Angeles"] {
        assert_eq!(plan(zone), utc, "{zone}");
    }
}

#[test]
fn the_definitions_are_printed_as_yaml() {
    let output = coppice(&["crds"]).output().unwrap();
    let names: Vec<String> = serde_yaml::Deserializer::from_slice(&output.stdout)
        .map(|document| {
            let value: serde_json::Value = serde::Deserialize::deserialize(document).unwrap();
            value["metadata"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    let plurals = [
        "clusternamespacemanagers",
        "coppiceconfigs",
        "deletednamespaces",
        "managednamespaces",
        "namespacemanagers",
        "namespacetrees",
        "quotatransfers",
        "subnamespaces",
        // Of a component of its own.
        "clusteraccesses",
        "clusterproviders",
        "managedclusters",
    ];
    assert_eq!(names, plurals.map(|plural| format!("{plural}.coppice.dev")));
}

/// The definitions in a file of manifests.
fn definitions(manifests: &[u8]) -> Vec<serde_json::Value> {
    serde_yaml::Deserializer::from_slice(manifests)
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .filter(|object: &serde_json::Value| object["kind"] == "CustomResourceDefinition")
        .collect()
}

#[test]
fn the_definitions_are_those_of_the_manifests() {
    let printed = definitions(&coppice(&["crds"]).output().unwrap().stdout);
    let manifests = ["install.yaml", "access.yaml"].map(|file| std::fs::read(format!("../../deploy/{file}")));
    let installed: Vec<_> = manifests.into_iter().flat_map(|text| definitions(&text.unwrap())).collect();
    assert_eq!(printed.len(), installed.len());
    for (printed, installed) in printed.iter().zip(&installed) {
        assert_eq!(printed["metadata"], installed["metadata"]);
        assert!(printed == installed, "{} differs", printed["metadata"]["name"]);
    }
}
