//! What a manager asks for, with the name of its policies.

use std::ops::Deref;

use coppice_api::manager::NamespaceManagerSpec;
use serde::Deserialize;

use crate::digest::{Comparison, Digests};

/// A spec and the digests of its policies. They are made once, when the spec is read: they cost more than a decision.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "NamespaceManagerSpec")]
pub struct Wishes {
    spec: NamespaceManagerSpec,
    digests: Digests,
}

impl Wishes {
    /// The digest of the policies, as it is written to status.
    pub fn digest(&self) -> &str {
        self.digests.current()
    }

    /// How a digest from a status relates to the policies.
    pub fn compare(&self, stored: &str) -> Comparison {
        self.digests.compare(stored)
    }
}

impl From<NamespaceManagerSpec> for Wishes {
    fn from(spec: NamespaceManagerSpec) -> Self {
        Self { digests: Digests::of(&spec.policies), spec }
    }
}

// To be read, never to be written: then the digest would be another's.
impl Deref for Wishes {
    type Target = NamespaceManagerSpec;

    fn deref(&self) -> &NamespaceManagerSpec {
        &self.spec
    }
}
