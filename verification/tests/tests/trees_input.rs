//! Bad input of every field of the kinds of trees: a real API server answers in the words that are expected without one.

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access_control::raw_requests::{PLAIN, Wire, WireResponse};
use crate::trees_access::{of, on_trees};

type Test = anyhow::Result<()>;

/// The cases of the tests of `crates/schema`.
const CASES: &str = include_str!("../../../crates/schema/tests/refused_trees.yaml");
const NAMESPACE: &str = "input-trees";

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) what: String,
    pub(crate) kind: String,
    name: Option<String>,
    /// What was stored before, where it is an update.
    pub(crate) old: Option<Value>,
    spec: Value,
    pub(crate) says: Vec<String>,
}

impl Case {
    /// What the API server answers to one that is not there yet, of the objects at this path, if it is asked to treat unknown fields so.
    pub(crate) async fn created(
        &self,
        admin: &Wire,
        all: &str,
        validation: &str,
    ) -> anyhow::Result<WireResponse> {
        let name = self.name.as_deref().unwrap_or("m");
        let path = format!("{all}?fieldValidation={validation}");
        admin.send("POST", &path, PLAIN, object(&self.kind, name, &self.spec)).await
    }

    /// The same to a change.
    pub(crate) async fn changed(&self, admin: &Wire, all: &str, old: &Value) -> anyhow::Result<WireResponse> {
        let name = "input-old";
        let stored = admin.send("POST", all, PLAIN, object(&self.kind, name, old)).await?;
        ensure!(stored.accepted(), "{stored:?}");
        let path = format!("{all}/{name}");
        let mut object = admin.get(&path).await?;
        object["spec"] = self.spec.clone();
        let answer = admin.send("PUT", &path, PLAIN, object).await?;
        let deleted = admin.send("DELETE", &path, PLAIN, json!({})).await?;
        ensure!(deleted.accepted(), "{deleted:?}");
        Ok(answer)
    }

    pub(crate) fn is_said_in(&self, answer: &WireResponse) -> Test {
        let status: Value = serde_json::from_str(&answer.text).with_context(|| answer.text.clone())?;
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(answer.code >= 400, "it is accepted");
        for said in &self.says {
            ensure!(message.contains(said.as_str()), "{said}\nis not in\n{message}");
        }
        Ok(())
    }
}

/// The path of all objects of a kind.
fn all(kind: &str) -> String {
    match kind {
        "NamespaceTree" => "/apis/coppice.dev/v1alpha1/namespacetrees".to_owned(),
        "Subnamespace" => of(NAMESPACE, "subnamespaces"),
        _ => of(NAMESPACE, "quotatransfers"),
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "coppice.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[test]
fn what_is_written_wrong_is_refused_with_what_to_write_instead() -> Test {
    on_trees(async |on| {
        on.test_cluster.namespace(NAMESPACE).await?;
        let cases: Vec<Case> = serde_yaml::from_str(CASES)?;
        ensure!(cases.len() >= 90, "{} cases", cases.len());
        for case in &cases {
            let answer = match &case.old {
                None => case.created(&on.admin, &all(&case.kind), "Strict").await?,
                Some(old) if case.kind == "NamespaceTree" => {
                    case.changed(&on.admin, &all(&case.kind), old).await?
                }
                // Who asks for a transfer writes their own name: `trees_transfers_access.rs` changes those.
                Some(_) => continue,
            };
            case.is_said_in(&answer).with_context(|| case.what.clone())?;
        }
        scopes_are_refused_to_every_client(&on.admin, &cases).await
    })
}

/// What is not in the schema is dropped for most clients, and the object is stored without it: a scope is refused to all of them.
async fn scopes_are_refused_to_every_client(admin: &Wire, cases: &[Case]) -> Test {
    let scoped: Vec<&Case> = cases.iter().filter(|case| case.what.contains("scope")).collect();
    ensure!(scoped.len() >= 5, "{} cases", scoped.len());
    for case in scoped {
        for validation in ["Warn", "Ignore"] {
            let answer = case.created(admin, &all(&case.kind), validation).await?;
            case.is_said_in(&answer).with_context(|| format!("{} with {validation}", case.what))?;
        }
    }
    Ok(())
}
