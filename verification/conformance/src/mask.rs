//! Makes the answers of two API servers comparable: what each chose for itself is replaced by the order in which it
//! showed up, and what the server in memory never shows is removed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::step::{Exchange, Transcript};

/// An expression that is part of the source.
#[expect(clippy::expect_used, reason = "a test compiles every expression")]
fn expression(text: &'static str) -> Regex {
    Regex::new(text).expect("a regular expression")
}

static UID: LazyLock<Regex> =
    LazyLock::new(|| expression("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
/// Generated times are of this decade; those in requests are not.
static TIME: LazyLock<Regex> = LazyLock::new(|| expression(r"202\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"));
/// Names that the API server made: requests ask for them with these prefixes.
static GENERATED: LazyLock<Regex> =
    LazyLock::new(|| expression("\\bgen-[bcdfghjklmnpqrstvwxz2456789]{5}\\b"));
/// A ReplicaSet is named by a hash of its template.
static HASHED: LazyLock<Regex> =
    LazyLock::new(|| expression("\"([a-z]+)-[bcdf0-9ghjklmnpqrstvwxz]{6,10}\" has"));
/// Revisions in messages.
static REVISION: LazyLock<Regex> = LazyLock::new(|| {
    expression(
        r"(in the precondition \(|in record \(|in precondition: |in object meta: |current: |resource version: )(\d+)",
    )
});

/// The answers of a transcript, comparable.
pub fn masked(transcript: &Transcript) -> Vec<(usize, Exchange)> {
    let mut seen = Seen { revisions: BTreeSet::new(), uids: Vec::new(), names: Vec::new() };
    let mask = |(id, exchange): &(usize, Exchange)| {
        let mut exchange = exchange.clone();
        collect_revisions(&exchange.body, &mut seen.revisions);
        seen.value(&mut exchange.body);
        exchange.warnings.iter_mut().for_each(|text| *text = seen.text(text));
        (*id, exchange)
    };
    transcript.exchanges.iter().map(mask).collect()
}

/// What one side chose, in order.
struct Seen {
    /// Those of objects, up to the answer that is being masked.
    revisions: BTreeSet<u64>,
    uids: Vec<String>,
    names: Vec<String>,
}

/// Whether other controllers write to this whenever they like: to a Deployment, also seen as its `Scale`.
fn is_written_by_controllers(value: &Value) -> bool {
    value["kind"] == "Scale" || value["spec"]["strategy"]["type"].is_string()
}

/// Whether the revision of this is its own, not that of everything: lists and bookmarks have none of their own.
fn has_own_revision(value: &Value) -> bool {
    value["metadata"]["uid"].is_string()
}

fn revision_of(value: &Value) -> Option<u64> {
    value["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

fn collect_revisions(value: &Value, into: &mut BTreeSet<u64>) {
    match value {
        Value::Array(list) => list.iter().for_each(|v| collect_revisions(v, into)),
        Value::Object(map) => {
            if has_own_revision(value) && !is_written_by_controllers(value) {
                into.extend(revision_of(value));
            }
            map.values().for_each(|v| collect_revisions(v, into));
        }
        _ => {}
    }
}

impl Seen {
    /// How many revisions there are up to this one.
    fn revision_rank(&self, revision: u64) -> usize {
        self.revisions.range(..=revision).count()
    }

    fn value(&mut self, value: &mut Value) {
        if let Some(revision) = revision_of(value) {
            let older = self.revision_rank(revision);
            let shown = if is_written_by_controllers(value) {
                "some revision".to_owned()
            } else if has_own_revision(value) {
                format!("revision {older}")
            } else {
                format!("at {older}")
            };
            value["metadata"]["resourceVersion"] = shown.into();
        }
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(list) => list.iter_mut().for_each(|v| self.value(v)),
            Value::Object(map) => {
                map.remove("managedFields");
                if let Some(Value::String(token)) = map.get_mut("continue") {
                    *token = continued(token);
                }
                if let Some(certificates) = map.get_mut("ca.crt") {
                    *certificates = json!("certificates");
                }
                map.values_mut().for_each(|v| self.value(v));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let text = UID.replace_all(text, |found: &regex::Captures<'_>| {
            format!("uid {}", position(&mut self.uids, &found[0]))
        });
        let text = TIME.replace_all(&text, |found: &regex::Captures<'_>| {
            if found.get(1).is_some() { "time with fraction" } else { "time" }.to_owned()
        });
        let text = GENERATED.replace_all(&text, |found: &regex::Captures<'_>| {
            format!("generated {}", position(&mut self.names, &found[0]))
        });
        let text = HASHED.replace_all(&text, "\"$1-hash\" has");
        let text = REVISION.replace_all(&text, |found: &regex::Captures<'_>| {
            let older = found[2].parse().map_or(0, |revision| self.revision_rank(revision));
            format!("{}revision {older}", &found[1])
        });
        text.into_owned()
    }
}

fn position(known: &mut Vec<String>, text: &str) -> usize {
    known.iter().position(|k| k == text).unwrap_or_else(|| {
        known.push(text.to_owned());
        known.len() - 1
    })
}

/// What a token for the next page says, without its revision.
fn continued(token: &str) -> String {
    let decoded = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, token);
    let value: Value = decoded.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    match value["start"].as_str() {
        Some(start) => format!("after {start:?}"),
        None => token.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, uid: u8, revision: &str) -> Value {
        let uid = format!("0000000{uid}-0000-4000-8000-000000000000");
        json!({"metadata": {"name": name, "uid": uid, "resourceVersion": revision, "managedFields": [1],
            "creationTimestamp": "2026-01-01T00:00:00Z"}})
    }

    fn bodies(bodies: Vec<Value>) -> Vec<Value> {
        let exchanges = bodies.into_iter().enumerate();
        let exchanges = exchanges.map(|(id, body)| (id, Exchange { code: 200, warnings: Vec::new(), body }));
        let transcript = Transcript { namespace: "n".to_owned(), exchanges: exchanges.collect() };
        masked(&transcript).into_iter().map(|(_, exchange)| exchange.body).collect()
    }

    #[test]
    fn what_each_server_chose_is_replaced_by_its_order() {
        let of = |first: u8, second: u8, revisions: [&str; 3]| {
            bodies(vec![
                object("a", first, revisions[0]),
                object("b", second, revisions[1]),
                object("a", first, revisions[2]),
                json!({"metadata": {"resourceVersion": revisions[2]}}),
                json!({"message": format!("the ResourceVersion in record ({})", revisions[1])}),
            ])
        };
        assert_eq!(of(1, 2, ["5", "9", "70"]), of(4, 3, ["1", "2", "3"]));
        assert_ne!(of(1, 2, ["5", "9", "70"]), of(1, 2, ["9", "5", "70"]), "the order shows");
        assert_ne!(of(1, 2, ["5", "9", "70"]), of(1, 1, ["5", "9", "70"]), "so does what is the same");
        let shown = &of(1, 2, ["5", "9", "70"])[2]["metadata"];
        let expected = json!({"name": "a", "uid": "uid 0", "resourceVersion": "revision 3", "creationTimestamp": "time"});
        assert_eq!(shown, &expected);
    }

    #[test]
    fn times_and_names_from_requests_stay() {
        let given = json!({"a": "2001-01-01T00:00:00Z", "name": "gen-", "b": "gen-bcdfg"});
        let shown = json!({"a": "2001-01-01T00:00:00Z", "name": "gen-", "b": "generated 0"});
        assert_eq!(bodies(vec![given]), [shown]);
        assert_eq!(bodies(vec![json!("ReplicaSet \"d-5f6b9\" has")]), [json!("ReplicaSet \"d-5f6b9\" has")]);
    }
}
