//! A short name for the content of a manager's policies.
//!
//! A manager that has fired is dormant while the digest of its policies stays the same, so digests outlive the version of
//! Coppice that wrote them: see `docs/decisions/0012-versioned-digests.md`.

use std::fmt::Write as _;

use coppice_api::manager::Policy;
use sha2::{Digest as _, Sha256};

mod canonical;
pub(crate) mod cluster;
mod unversioned;

/// What the digests of this version begin with.
const VERSION: &str = "v2:";

/// An id of these parts, the same wherever it is made: a function of them, and of where one ends.
pub(crate) fn id_of<'a>(prefix: &str, parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    format!("{prefix}-{}", hex(&hash.finalize()[..10]))
}

/// How a digest from a status relates to policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestComparison {
    /// It is of these policies.
    Same,
    /// It is of other policies.
    Changed,
    /// Another version of Coppice wrote it, in a form that this one does not know: it cannot be compared.
    NotUnderstood,
}

/// The digest of some policies, in every form that a status may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDigests {
    current: String,
    /// As it was before digests had versions: 8 bytes, written as 16 hexadecimal digits.
    unversioned: [u8; 8],
}

impl PolicyDigests {
    /// Computes a hash for each form.
    pub fn of(policies: &[Policy]) -> Self {
        let current = format!("{VERSION}{}", hex(&shorten(&canonical::encode(policies))));
        Self { current, unversioned: shorten(&unversioned::encode(policies)) }
    }

    /// The form that is written.
    pub fn current(&self) -> &str {
        &self.current
    }

    /// Compares by the form that the stored digest names. Allocates nothing.
    pub fn compare(&self, stored: &str) -> DigestComparison {
        let same = |same: bool| if same { DigestComparison::Same } else { DigestComparison::Changed };
        if stored.starts_with(VERSION) {
            return same(stored == self.current);
        }
        let digits = |bytes: &[u8]| bytes.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b));
        if stored.len() != 16 || !digits(stored.as_bytes()) {
            return DigestComparison::NotUnderstood;
        }
        same(u64::from_str_radix(stored, 16) == Ok(u64::from_be_bytes(self.unversioned)))
    }
}

/// The digest of policies, as it is written to status.
pub fn digest(policies: &[Policy]) -> String {
    PolicyDigests::of(policies).current
}

fn shorten(bytes: &[u8]) -> [u8; 8] {
    Sha256::digest(bytes).first_chunk().copied().unwrap_or_default()
}

/// Two hexadecimal digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
