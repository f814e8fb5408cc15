//! What a manager asks for, with the name of its policies.

use std::ops::Deref;

use coppice_api::manager::NamespaceManagerSpec;
use serde::Deserialize;

use crate::digest;

/// A spec and the digest of its policies. The digest is made once, when the spec is read: it costs more than a decision.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "NamespaceManagerSpec")]
pub struct Wishes {
    spec: NamespaceManagerSpec,
    digest: String,
}

impl Wishes {
    /// The digest of the policies.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl From<NamespaceManagerSpec> for Wishes {
    fn from(spec: NamespaceManagerSpec) -> Self {
        Self { digest: digest(&spec.policies), spec }
    }
}

// To be read, never to be written: then the digest would be another's.
impl Deref for Wishes {
    type Target = NamespaceManagerSpec;

    fn deref(&self) -> &NamespaceManagerSpec {
        &self.spec
    }
}
