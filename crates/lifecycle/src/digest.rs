//! A short name for the content of a manager's policies.

use std::fmt::Write as _;

use coppice_api::manager::Policy;
use sha2::{Digest as _, Sha256};

/// A digest of policies: 16 hexadecimal digits of the SHA-256 of their JSON.
///
/// A manager that has fired is dormant while this stays the same, so it must not change with a version of Coppice: a
/// field added to a policy later has to be left out of the JSON where it has its default (a test holds the value of
/// an example fast).
pub fn digest(policies: &[Policy]) -> String {
    let json = serde_json::to_vec(policies).unwrap_or_default();
    Sha256::digest(&json)[..8].iter().fold(String::with_capacity(16), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
