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
    /// The longest time after its creation until which an annotation (`ttl.fromAnnotation`) and `extendUntil` in the record keep a
    /// namespace from expiring. A shorter one than `ttl.after` counts as that; `when.ttl` of a policy is not limited. Default: no
    /// limit, so that users keep what they need until a platform says otherwise.
    #[serde(rename = "maxTTL", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::positive_duration")]
    pub max_ttl: Option<Duration>,
    /// How long holds in the record count, from the first one on: a hold that follows another one within 24 hours, and the longest
    /// notice of the policies besides, is no first one. `0s` permits none. Default: no limit, so that users keep what they need
    /// until a platform says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_hold: Option<Duration>,
    /// `NamespaceManagers` announce a deletion for so long at least. Default: no limit, so that their authors decide.
    /// `minNotice`, `tenantActions` and `webhookHosts` count while this manager enforces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub min_notice: Option<Duration>,
    /// The actions that `NamespaceManagers` may use, of those that `CoppiceConfig` permits; `[]` permits none. Default: all of
    /// those, so that `CoppiceConfig` alone counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub tenant_actions: Option<Vec<TenantAction>>,
    /// Where webhooks of `NamespaceManagers` may go, of where `CoppiceConfig` permits, written as there; `[]` permits nothing.
    /// Default: all of that, so that `CoppiceConfig` alone counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::webhook_hosts")]
    pub webhook_hosts: Option<Vec<String>>,
}
