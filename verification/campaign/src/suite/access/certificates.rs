//! Credentials that are certificates, which the target signs some time after they were asked for, and nobody can revoke. Scenarios with seeds
//! of their own: which of the others a seed chooses stays as it is.

use std::time::Duration;

use coppice_sim::scenario::{Scenario, ScriptStep};
use coppice_sim::target::{Obstacle, SignerSettings};
use serde_json::{Value, json};

use super::scenarios::{access, change, delete, gone, scenario, spec};

/// Those that are run by their name alone.
pub(super) fn all() -> Vec<Scenario> {
    vec![rotated(), requested(), capped(), deleted_while_signed(), not_signed(), denied(), failed()]
}

/// A certificate is there so long after its request was approved.
const SIGNED_AFTER: Duration = Duration::from_secs(2);
/// How a `ClusterAccess` ends that was asked once for another credential.
const REPLACED: [&str; 2] = ["access team/ci: Ready, rotated again", "valid credentials: 1"];

/// A target that signs what is approved, and a `ClusterAccess` by certificates for this time.
fn signing(name: &'static str, about: &'static str, ttl: &str) -> Scenario {
    let mut scenario = scenario(name, about);
    scenario.setup.push(access(&by_certificate(ttl)));
    if let Some(target) = &mut scenario.target {
        target.signer = SignerSettings { latency: SIGNED_AFTER, obstacle: None };
    }
    scenario
}

fn by_certificate(ttl: &str) -> Value {
    let mut spec = spec(ttl);
    spec["issuer"] = json!("ClientCertificate");
    spec
}

fn asked_again() -> ScriptStep {
    ScriptStep::at(30, |_| change(&json!({ "rotate": "again" })))
}

fn rotated() -> Scenario {
    let about = "a certificate for ten minutes is replaced after one, and has no right once its ClusterAccess is gone";
    let mut scenario = signing("access-certificate-rotated", about, "10m");
    scenario.script = vec![ScriptStep::at(100, |_| delete())];
    scenario.ends = gone();
    scenario.lasts = Duration::from_secs(130);
    scenario
}

fn requested() -> Scenario {
    let about = "a certificate is replaced on request, and the leader is killed while it is signed";
    let mut scenario = signing("access-certificate-requested", about, "24h");
    let killed = ScriptStep { at: Duration::from_millis(31_500), ..ScriptStep::kill_leader(31) };
    scenario.script = vec![asked_again(), killed];
    scenario.ends = REPLACED.to_vec();
    scenario
}

fn capped() -> Scenario {
    let about = "the target signs for ten minutes, whatever is asked for: that is what counts";
    let mut scenario = signing("access-certificate-capped", about, "24h");
    if let Some(target) = &mut scenario.target {
        target.longest = Duration::from_mins(10);
    }
    scenario.script = vec![ScriptStep::at(100, |_| delete())];
    scenario.ends = gone();
    scenario.lasts = Duration::from_secs(130);
    scenario
}

fn deleted_while_signed() -> Scenario {
    let about = "a ClusterAccess is deleted while its next certificate is signed";
    let mut scenario = signing("access-certificate-deleted", about, "24h");
    scenario.script = vec![asked_again(), ScriptStep::at(31, |_| delete())];
    scenario.ends = gone();
    scenario
}

/// Something is in the way of the first certificate, and of none that is asked for later.
fn obstructed(name: &'static str, about: &'static str, obstacle: Obstacle) -> Scenario {
    let mut scenario = signing(name, about, "24h");
    if let Some(target) = &mut scenario.target {
        target.signer.obstacle = Some((obstacle, Duration::from_secs(40)));
    }
    scenario.script = vec![ScriptStep::at(120, |_| change(&json!({ "rotate": "again" })))];
    scenario.ends = REPLACED.to_vec();
    scenario.lasts = Duration::from_secs(150);
    scenario
}

fn not_signed() -> Scenario {
    let about = "nothing signs certificates for forty seconds: what was approved meanwhile is given up, and asked for again";
    obstructed("access-certificate-not-signed", about, Obstacle::NotSigned)
}

fn denied() -> Scenario {
    let about =
        "somebody denies requests for certificates for forty seconds: it is asked for again after that";
    obstructed("access-certificate-denied", about, Obstacle::Denied)
}

fn failed() -> Scenario {
    let about = "the signer of the target fails for forty seconds: it is asked for again after that";
    obstructed("access-certificate-failed", about, Obstacle::Failed)
}
