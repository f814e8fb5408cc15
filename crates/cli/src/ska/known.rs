//! The fields of that system's settings. Whatever is none of them is an error: that system ignores it in silence, and here it must not
//! get lost in silence again.

use serde_json::Value;

/// What may be written at a place.
#[derive(Debug)]
pub(super) enum Shape {
    /// Anything: who reads it checks it, or it is left out as a whole.
    Any,
    /// An object with the fields of these groups.
    Object(&'static [Group]),
    /// A list of such.
    List(&'static Shape),
}

/// Fields.
#[derive(Debug)]
pub(super) enum Group {
    /// With anything in them.
    Plain(&'static [&'static str]),
    /// With more fields in them.
    Nested(&'static [(&'static str, &'static Shape)]),
}

use Group::{Nested, Plain};
use Shape::{Any, List, Object};

const CONDITION: &Shape = &Object(&[Plain(&["labels", "annotations"])]);
const MATCHER: Group = Nested(&[("names", &Any), ("any", &List(CONDITION)), ("all", &List(CONDITION))]);
const SCHEDULE: &Shape = &Object(&[Nested(&[("check-namespace", &Object(&[Plain(&["schedule"])]))])]);
const COLLECT_ENTRY: Group = Nested(&[
    ("ttl", &Any),
    ("settling_period", &Any),
    ("grace_period", &Any),
    ("checks", &Object(&[Plain(&["cancelled", "superseded"])])),
    ("actions", SCHEDULE),
]);
const BLOCK: &Shape = &Object(&[Plain(&["delete", "notify_on_delete", "notify_on_status"])]);
const ACTION_ENTRY: Group = Nested(&[
    ("stale", BLOCK),
    ("failed", BLOCK),
    ("failing", BLOCK),
    ("unstable", BLOCK),
    ("cancelled", BLOCK),
    ("superseded", BLOCK),
]);

/// How a component runs.
const RUNNING: Group = Plain(&["context", "leader_election", "metrics"]);
const COLLECT_BLOCKS: Group = Nested(&[
    ("heartbeat", &Any),
    ("people_api", &Any),
    (
        "prometheus",
        &Object(&[Plain(&[
            "enabled",
            "url",
            "ca",
            "ca_path",
            "insecure",
            "datacentre",
            "whitelisted_alerts",
        ])]),
    ),
    (
        "gitlab",
        &Object(&[Plain(&[
            "enabled",
            "api_base",
            "requester",
            "private_token",
            "cache_ttl",
            "cache_max_entries",
            "request_timeout",
        ])]),
    ),
]);
const ACTION_BLOCKS: Group = Nested(&[("notifier", &Object(&[Plain(&["token"])]))]);
const API_BLOCKS: Group = Plain(&[
    "people_database",
    "http_port",
    "https_port",
    "https_enabled",
    "pki_path",
    "ca_path",
    "cert_path",
    "key_path",
]);

/// The configuration of the collect controller.
pub(super) const COLLECT: &Shape =
    &Object(&[RUNNING, COLLECT_BLOCKS, Nested(&[("namespaces", &List(&Object(&[MATCHER, COLLECT_ENTRY])))])]);
/// The configuration of the action controller.
pub(super) const ACTION: &Shape =
    &Object(&[RUNNING, ACTION_BLOCKS, Nested(&[("namespaces", &List(&Object(&[MATCHER, ACTION_ENTRY])))])]);
/// The configuration of the API.
pub(super) const API: &Shape = &Object(&[RUNNING, API_BLOCKS]);
/// What all components have in common in the values of the chart: each reads of it what it knows.
const SHARED: &Shape = &Object(&[
    RUNNING,
    COLLECT_BLOCKS,
    ACTION_BLOCKS,
    API_BLOCKS,
    Nested(&[("namespaces", &List(&Object(&[MATCHER, COLLECT_ENTRY, ACTION_ENTRY])))]),
]);
/// The values of the chart.
pub(super) const VALUES: &Shape = &Object(&[
    Nested(&[
        ("config", SHARED),
        ("collectController", &Object(&[Nested(&[("config", COLLECT)]), DEPLOYMENT])),
        ("actionController", &Object(&[Nested(&[("config", ACTION)]), DEPLOYMENT])),
        ("api", &Object(&[Nested(&[("config", API)]), DEPLOYMENT])),
    ]),
    Plain(&[
        "nameOverride",
        "fullnameOverride",
        "namespaceOverride",
        "extraDeploy",
        "clusterWide",
        "leaderElectionPath",
        "global",
        // What `helm get values` writes above them.
        "USER-SUPPLIED VALUES",
        "COMPUTED VALUES",
    ]),
    DEPLOYMENT,
]);
/// How the chart deploys a component.
const DEPLOYMENT: Group = Plain(&[
    "image",
    "replicas",
    "pvc",
    "labels",
    "annotations",
    "updateStrategy",
    "podManagementPolicy",
    "dnsPolicy",
    "apiPriorityAndFairness",
    "priorityLevelConfigurationSpec",
    "startupProbe",
    "livenessProbe",
    "readinessProbe",
    "nodeSelector",
    "tolerations",
    "antiAffinity",
    "podAntiAffinity",
    "podAffinity",
    "nodeAffinity",
    "topologySpreadConstraints",
    "podSecurityContext",
    "imagePullSecrets",
    "priorityClassName",
    "resources",
    "securityContext",
    "extraArgs",
    "extraEnvVars",
    "extraConfigSecrets",
    "configPath",
    "service",
    "pki",
]);

/// Blocks that have a credential. What is written in them and is no field of theirs may be one: its name is not shown.
const CREDENTIALS: [&str; 2] = ["notifier", "gitlab"];
/// What credentials of Slack and GitLab begin with, wherever somebody has put them.
const TOKENS: [&str; 2] = ["xox", "glpat-"];
/// The longest name of a field that is shown.
const LONGEST_NAME: usize = 60;

/// A field that is not known where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Where it is.
    parent: String,
    /// Its name.
    key: String,
    /// What is known there.
    known: String,
}

impl Unknown {
    /// The path to it.
    pub(super) fn path(&self) -> String {
        below(&self.parent, &self.key)
    }

    /// Whether its name may be a credential that has got into the wrong place.
    fn is_secret(&self) -> bool {
        let block = self.parent.rsplit('.').next().unwrap_or_default();
        let named = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
        CREDENTIALS.contains(&block)
            || TOKENS.iter().any(|token| self.key.contains(token))
            || self.key.len() > LONGEST_NAME
            || !self.key.chars().all(named)
    }
}

fn below(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_secret() {
            let parent = if self.parent.is_empty() { "at the top" } else { &self.parent };
            write!(f, "{parent}: unknown field, not shown because it may be a credential")?;
        } else {
            write!(f, "{}: unknown field", self.path())?;
        }
        write!(f, ", which was never read: take it out, or correct it; known here: {}", self.known)
    }
}

impl Shape {
    /// The fields of a value that are not known. What is no object where one should be is left to its reader.
    pub(super) fn unknown(&self, value: &Value, path: &str) -> Vec<Unknown> {
        let mut found = Vec::new();
        self.find_unknown(value, path, &mut found);
        found
    }

    fn find_unknown(&self, value: &Value, path: &str, found: &mut Vec<Unknown>) {
        match (self, value) {
            (Object(groups), Value::Object(fields)) => {
                for (key, value) in fields {
                    match groups.iter().find_map(|group| group.get(key)) {
                        Some(shape) => shape.find_unknown(value, &below(path, key), found),
                        None => found.push(Unknown {
                            parent: path.to_owned(),
                            key: key.clone(),
                            known: names(groups),
                        }),
                    }
                }
            }
            (List(item), Value::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    item.find_unknown(value, &format!("{path}[{index}]"), found);
                }
            }
            _ => {}
        }
    }
}

impl Group {
    fn get(&self, key: &str) -> Option<&'static Shape> {
        match self {
            Plain(names) => names.contains(&key).then_some(&Any),
            Nested(fields) => fields.iter().find(|(name, _)| *name == key).map(|(_, shape)| *shape),
        }
    }
}

fn names(groups: &[Group]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for group in groups {
        match group {
            Plain(all) => names.extend(*all),
            Nested(all) => names.extend(all.iter().map(|(name, _)| *name)),
        }
    }
    names.join(", ")
}
