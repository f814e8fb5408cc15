//! How a run ends: what became of each `ClusterAccess`, and how many credentials are valid: of certificates, which cannot be revoked, those in
//! Secrets.

use std::collections::BTreeMap;

use coppice_sim::run::RunRecord;
use coppice_sim::target::TargetServer;
use serde_json::{Value, json};

use super::oracle::{held, recorded_state};
use crate::oracle::EndState;

/// How many credentials are valid.
const VALID: &str = "valid credentials";

/// How a run ended.
pub(super) fn end_state(record: &RunRecord<'_>) -> EndState {
    let mut objects = BTreeMap::new();
    for change in record.changes.iter().filter(|change| &*change.kind.plural == "clusteraccesses") {
        let status = change.after.as_deref().map(|access| &access["status"]);
        let masked = status.map_or(
            json!({ "phase": "gone" }),
            |status| json!({ "phase": status["phase"], "rotated": status["rotated"] }),
        );
        objects.insert(format!("access {}/{}", change.namespace(), change.name()), masked);
    }
    let state = recorded_state::replay(record, |_| {});
    let tokens = state.tokens.iter().filter(|token| state.is_valid(token)).count();
    let valid = tokens + held::valid_certificates(&state);
    objects.insert(VALID.to_owned(), json!(valid));
    EndState { objects, effects: BTreeMap::new() }
}

/// The same in words: a line for each `ClusterAccess`, and one for the credentials.
pub(super) fn end_lines(end: &EndState) -> Vec<String> {
    let line = |(place, object): (&String, &Value)| {
        if place == VALID {
            return format!("{place}: {object}");
        }
        let phase = object["phase"].as_str().unwrap_or("unseen");
        let rotated = object["rotated"].as_str().map_or(String::new(), |id| format!(", rotated {id}"));
        format!("{place}: {phase}{rotated}")
    };
    end.objects.iter().map(line).collect()
}

/// Each credential that was issued, by the number of its intent.
pub(super) fn effects(record: &RunRecord<'_>) -> Vec<String> {
    let tokens = record.target.map(TargetServer::tokens).unwrap_or_default();
    let certificates = record.target.map(TargetServer::certificates).unwrap_or_default();
    let issued_from = tokens.iter().map(|token| &token.secret.0);
    let issued_from = issued_from.chain(certificates.iter().map(|certificate| &certificate.requested_by));
    let number = |object: &str| object.rsplit('-').next().unwrap_or_default().to_owned();
    issued_from.map(|object| format!("issued for intent {}", number(object))).collect()
}
