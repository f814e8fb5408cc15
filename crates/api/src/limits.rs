//! How far the users of a governed namespace may go.

use coppice_quantity::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::TenantAction;
use crate::schema;

/// How far the users of a governed namespace may go, by its annotations, its record and its `NamespaceManagers`. What goes
/// further counts up to the limit; status says so. These limits come on top of `spec.tenants` of `CoppiceConfig`, and widen
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// So long after its creation a namespace expires at the latest, whatever its annotation (`ttl.fromAnnotation`) and
    /// `extendUntil` in its record ask for. `ttl.after`, and `when.ttl` of a policy, are the platform's own and not limited.
    /// Default: no limit.
    #[serde(rename = "maxTTL", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub max_ttl: Option<Duration>,
    /// So long a hold in the record counts, from the first one on: holds that follow each other are one, until the namespace
    /// has not been held for 24 hours. `0s` permits none. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_hold: Option<Duration>,
    /// `NamespaceManagers` announce a deletion for so long at least. Default: no limit. Counts while this manager enforces,
    /// as do the two that follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub min_notice: Option<Duration>,
    /// The actions that `NamespaceManagers` may use, of those that `CoppiceConfig` permits; `[]` permits none. Default: all of
    /// those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub tenant_actions: Option<Vec<TenantAction>>,
    /// Where webhooks of `NamespaceManagers` may go, of where `CoppiceConfig` permits, written as there; `[]` permits nothing.
    /// Default: all of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::webhook_hosts")]
    pub webhook_hosts: Option<Vec<String>>,
}
