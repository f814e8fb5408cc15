//! Runs command lines in this process, at a fixed time.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses its part"
)]

pub mod ska;

pub mod server;

use std::ffi::OsString;

use coppice_api::manager::NamespaceManagerSpec;
use coppice_cli::Io;
use coppice_lifecycle::cluster::ValidClusterManager;
use jiff::Timestamp;

pub const NOW: &str = "2026-03-01T12:30:00Z";

#[derive(Debug)]
pub struct Ran {
    pub code: u8,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Everything, as a golden file shows it: without the progress, which depends on how fast the machine is.
    pub fn all(&self) -> String {
        let lines = self.err.split_inclusive('\n').filter(|line| !line.ends_with(" s so far ...\n"));
        let err: String = lines.collect();
        let err = if err.is_empty() { err } else { format!("\n--- standard error\n{err}") };
        format!("exit code {}\n--- standard output\n{}{err}", self.code, self.out)
    }
}

pub fn run(line: &str, stdin: &str) -> Ran {
    run_at(line, stdin, NOW, None)
}

pub fn run_at(line: &str, stdin: &str, now: &str, client: Option<kube::Client>) -> Ran {
    let now: Timestamp = now.parse().unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = line.split(' ').map(OsString::from);
    let mut io = Io {
        stdin: &mut stdin.as_bytes(),
        out: &mut out,
        err: &mut err,
        now,
        color: false,
        width: None,
        progress: false,
        client,
    };
    let code = coppice_cli::run(args, &mut io);
    Ran { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// The text of a fixture.
pub fn fixture(name: &str) -> String {
    let path = format!("tests/fixtures/{name}");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The small cluster of `cluster.yaml`; a manager that has fired remembers by which policies.
pub fn cluster() -> String {
    let spec = "policies: [{name: sleep, when: {ttl: {after: 5m}}, then: {scaleDown: {}}}]";
    let spec: NamespaceManagerSpec = serde_yaml::from_str(spec).unwrap();
    fixture("cluster.yaml").replace("DIGEST", &coppice_lifecycle::digest(&spec.policies))
}

/// The small cluster of `governed.yaml`, whose records are about the manager `ci` as it is there.
pub fn governed() -> String {
    let text = fixture("governed.yaml");
    let all: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let is_ci = |object: &&serde_yaml::Value| object["metadata"]["uid"] == "c-1";
    let spec = all["items"].as_sequence().unwrap().iter().find(is_ci).unwrap()["spec"].clone();
    let spec: ValidClusterManager = serde_yaml::from_value(spec).unwrap();
    text.replace("DIGEST", spec.digest())
}
