//! Credentials that were replaced, in the status of a `ClusterAccess`.

use coppice_api::schema as shared;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A credential that is to be revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRevocation {
    /// Its id.
    #[schemars(length(max = 128))]
    pub credential: String,
    /// Since when it is to be revoked.
    #[schemars(schema_with = "shared::status_instant")]
    pub since: Timestamp,
    /// Until when it is valid. Absent: an earlier version did not write that down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "shared::status_instant")]
    pub not_after: Option<Timestamp>,
}

/// A certificate that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupersededCertificate {
    /// Its id.
    #[schemars(length(max = 128))]
    pub credential: String,
    /// Until when it is valid.
    #[schemars(schema_with = "shared::status_instant")]
    pub not_after: Timestamp,
}
