//! Bad input of every field of the kinds of access to other clusters: a real API server answers in the words that are expected without one.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::{TestCluster, on_own_plane};
use serde_json::Value;

use crate::access_control::raw_requests::{Wire, WireResponse};
use crate::trees_input::Case;

type Test = anyhow::Result<()>;

/// The cases of the tests of `crates/schema`.
const CASES: &str = include_str!("../../../crates/schema/tests/refused_access.yaml");
const NAMESPACE: &str = "team";

/// The path of all objects of a kind.
fn all(kind: &str) -> String {
    let group = "/apis/coppice.dev/v1alpha1";
    match kind {
        "ClusterProvider" => format!("{group}/clusterproviders"),
        "ClusterAccess" => format!("{group}/namespaces/{NAMESPACE}/clusteraccesses"),
        _ => format!("{group}/namespaces/{NAMESPACE}/managedclusters"),
    }
}

/// What the API server says is all that the case has, and nothing besides.
fn is_all(case: &Case, answer: &WireResponse) -> Test {
    case.is_said_in(answer)?;
    let status: Value = serde_json::from_str(&answer.text)?;
    // Of fields that it does not know there are no causes.
    let causes = status["details"]["causes"].as_array().map_or(case.says.len(), Vec::len);
    ensure!(causes == case.says.len(), "it says more: {}", status["message"]);
    Ok(())
}

#[test]
fn what_is_written_wrong_is_refused_with_what_to_write_instead() -> Test {
    on_own_plane(async {
        let here = TestCluster::start_with_access(None).await?;
        here.namespace(NAMESPACE).await?;
        let admin = Wire::new(&here, ADMIN)?;
        let cases: Vec<Case> = serde_yaml::from_str(CASES)?;
        ensure!(cases.len() >= 170, "{} cases", cases.len());
        for case in &cases {
            let path = all(&case.kind);
            let answer = match &case.old {
                None => case.created(&admin, &path, "Strict").await?,
                Some(old) => case.changed(&admin, &path, old).await?,
            };
            is_all(case, &answer).with_context(|| case.what.clone())?;
        }
        Ok(())
    })
}
