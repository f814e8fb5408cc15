//! What a manager asks for, with the name of its policies.

use std::ops::Deref;

use coppice_api::manager::NamespaceManagerSpec;
use serde::Deserialize;

use crate::digest::{Comparison, Digests};

/// A spec and the digests of its policies. They are made once, when the spec is read: they cost more than a decision.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "NamespaceManagerSpec")]
pub struct DigestedSpec {
    spec: NamespaceManagerSpec,
    digests: Digests,
}

impl DigestedSpec {
    /// The digest of the policies, as it is written to status.
    pub fn digest(&self) -> &str {
        self.digests.current()
    }

    /// How a digest from a status relates to the policies.
    pub fn compare(&self, stored: &str) -> Comparison {
        self.digests.compare(stored)
    }
}

impl From<NamespaceManagerSpec> for DigestedSpec {
    fn from(spec: NamespaceManagerSpec) -> Self {
        Self { digests: Digests::of(&spec.policies), spec }
    }
}

// Read-only: after a write the digests would not match the spec.
impl Deref for DigestedSpec {
    type Target = NamespaceManagerSpec;

    fn deref(&self) -> &NamespaceManagerSpec {
        &self.spec
    }
}
