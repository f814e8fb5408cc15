//! What has been decided, announced and done: the part of a status that is the same for every kind whose policies act.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::losses::Losses;
use crate::scaled_down::ScaledDown;
use crate::schema;

/// What has been decided, announced and done. A kind embeds it in its status, whose fields these are then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Steps {
    /// How often a policy has fired.
    #[serde(default)]
    pub firings: i64,
    /// A deletion that has been announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Notice>,
    /// A step that has been decided and is not known to be complete. Written before the step is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// The last completed firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_firing: Option<Firing>,
    /// Workloads that were scaled down and not woken since, with the replicas they had. Atomic, since `managedFields` would have each of up
    /// to 4,096 entries again.
    #[serde(default, skip_serializing_if = "ScaledDown::is_empty")]
    #[schemars(length(max = 4096), extend("x-kubernetes-list-type" = "atomic"))]
    pub scaled_down: ScaledDown,
}

impl Steps {
    /// Takes back what was recorded of workloads that the firing under way has not scaled down: see [`ScaledDown::remove_unchanged`].
    pub fn remove_unchanged(&mut self, unchanged: &BTreeSet<String>) {
        self.scaled_down.remove_unchanged(unchanged, self.firings);
    }
}

/// [`Steps`] of a kind most of whose objects never take any: those of such an object need no memory, where they would need 648 bytes.
#[derive(Clone, Debug, Default)]
pub struct RareSteps(Option<Box<Steps>>);

/// Those of an object that has taken none.
static NONE: Steps = Steps {
    firings: 0,
    notice: None,
    intent: None,
    last_firing: None,
    scaled_down: ScaledDown::Listed(Vec::new()),
};

impl Deref for RareSteps {
    type Target = Steps;

    fn deref(&self) -> &Steps {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for RareSteps {
    fn deref_mut(&mut self) -> &mut Steps {
        self.0.get_or_insert_default()
    }
}

impl From<Steps> for RareSteps {
    fn from(steps: Steps) -> Self {
        Self((steps != NONE).then(|| Box::new(steps)))
    }
}

impl PartialEq for RareSteps {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Serialize for RareSteps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RareSteps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Steps::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for RareSteps {
    fn inline_schema() -> bool {
        Steps::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        Steps::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        Steps::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Steps::json_schema(generator)
    }
}

/// A deletion that has been announced. Its date may move later, never earlier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// The policy that will delete.
    #[schemars(length(max = 256))]
    pub policy: String,
    /// The namespace's uid when notice was given.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// When notice was given.
    #[schemars(schema_with = "schema::status_instant")]
    pub given_at: Timestamp,
    /// No deletion before this instant.
    #[schemars(schema_with = "schema::status_instant")]
    pub not_before: Timestamp,
    /// Why it will be deleted: an enumerated reason; absent in a notice of a version that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
    /// What is lost with the namespace, as it was when notice was given; absent in a notice of a version that did not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<Losses>,
}

/// A step that has been decided. It is durable before its first effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// One id per decision: in logs, Events, metrics' exemplars, and the `webhook-id` of every attempt.
    #[schemars(length(max = 128))]
    pub id: String,
    /// The policy that fired.
    #[schemars(length(max = 256))]
    pub policy: String,
    /// The action.
    pub action: Action,
    /// The uid of the namespace that it was decided about.
    #[schemars(length(max = 128))]
    pub uid: String,
    /// A digest of the policies that it was decided by.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// When.
    #[schemars(schema_with = "schema::status_instant")]
    pub decided_at: Timestamp,
    /// Failed attempts so far.
    #[serde(default)]
    pub attempts: u32,
    /// No attempt before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::status_instant")]
    pub next_attempt: Option<Timestamp>,
    /// What went wrong at the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub last_error: Option<String>,
    /// Why it was decided: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// What was seen when it was decided.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: BTreeMap<String, String>,
}

/// An action, as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Delete the namespace.
    Delete,
    /// Scale workloads to zero.
    ScaleDown,
    /// POST to a URL.
    Webhook,
    /// Undo a scale-down.
    Wake,
}

impl Action {
    /// The action as written in spec and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::ScaleDown => "scaleDown",
            Self::Webhook => "webhook",
            Self::Wake => "wake",
        }
    }

    /// Whether it takes something away: such actions need budget, fresh facts and an unprotected namespace.
    pub const fn is_destructive(self) -> bool {
        matches!(self, Self::Delete | Self::ScaleDown)
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A completed firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Firing {
    /// The id of the decision.
    #[schemars(length(max = 128))]
    pub id: String,
    /// The policy that fired.
    #[schemars(length(max = 256))]
    pub policy: String,
    /// The action.
    pub action: Action,
    /// When it was complete.
    #[schemars(schema_with = "schema::status_instant")]
    pub at: Timestamp,
    /// Why it was decided: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// A digest of the policies that it was decided by: while they are the same, the manager is dormant.
    #[schemars(length(max = 128))]
    pub digest: String,
    /// What came of it: an enumerated reason.
    #[schemars(length(max = 1024))]
    pub result: String,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    pub message: Option<String>,
    /// What was seen when it was decided.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::evidence")]
    pub evidence: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As a status embeds them.
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Status<S> {
        phase: String,
        #[serde(flatten)]
        steps: S,
    }

    fn intent() -> Value {
        json!({"id": "i", "policy": "p", "action": "delete", "uid": "u", "digest": "v1", "decidedAt": "2026-01-01T00:00:00Z",
            "attempts": 0, "reason": "SubnamespaceDeleted"})
    }

    #[test]
    fn rare_steps_are_read_and_written_as_steps_are() {
        for status in [
            json!({"phase": "Ready"}),
            json!({"phase": "Ready", "firings": 0}),
            json!({"phase": "Deleting", "firings": 1, "intent": intent()}),
        ] {
            let rare: Status<RareSteps> = serde_json::from_value(status.clone()).unwrap();
            let steps: Status<Steps> = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(*rare.steps, steps.steps);
            assert_eq!(serde_json::to_string(&rare).unwrap(), serde_json::to_string(&steps).unwrap());
            assert_eq!(rare.steps.0.is_some(), status["intent"].is_object());
        }
        let wrong = json!({"phase": "Ready", "firings": "many"});
        assert!(serde_json::from_value::<Status<RareSteps>>(wrong).is_err());
        let schema = |schema: Schema| schema.to_value()["properties"].clone();
        let (rare, steps) = (schemars::schema_for!(Status<RareSteps>), schemars::schema_for!(Status<Steps>));
        assert_eq!(schema(rare), schema(steps));
    }

    #[test]
    fn steps_that_were_taken_back_are_none() {
        let mut rare = RareSteps::default();
        assert_eq!(rare, RareSteps::from(Steps::default()));
        rare.intent = Some(serde_json::from_value(intent()).unwrap());
        assert_ne!(rare, RareSteps::default());
        assert_eq!(rare.intent.as_ref().unwrap().id, "i");
        rare.intent = None;
        assert_eq!(rare, RareSteps::default(), "whatever memory it needs");
        assert_eq!(size_of::<RareSteps>(), size_of::<usize>());
    }
}
