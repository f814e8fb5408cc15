//! Who issues credentials, and what follows from that alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::{certificate_user, identity};

/// Who issues credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Issuer {
    /// The target's API server, as tokens of a service account.
    #[default]
    TokenRequest,
    /// The target, as client certificates of its API of certificate signing requests.
    ClientCertificate,
}

impl Issuer {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The issuer as written in spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenRequest => "TokenRequest",
            Self::ClientCertificate => "ClientCertificate",
        }
    }

    /// The user that the target's API server sees, of the credentials of a `ClusterAccess` with this uid.
    pub fn identity(self, uid: &str) -> String {
        match self {
            Self::TokenRequest => identity(uid),
            Self::ClientCertificate => certificate_user(uid),
        }
    }

    /// Whether one credential can be revoked before it expires, and the others of the same user stay valid.
    pub const fn is_revocable(self) -> bool {
        match self {
            Self::TokenRequest => true,
            Self::ClientCertificate => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_differ_by_uid_and_fit_into_a_common_name() {
        let uid = "1d9a5c2e-0000-4000-8000-1234567890ab";
        let user = Issuer::ClientCertificate.identity(uid);
        assert_eq!(user, format!("coppice-access:{uid}"));
        // X.509 limits a common name to 64 characters.
        assert!(user.len() <= 64, "{user}");
        assert_ne!(Issuer::TokenRequest.identity(uid), user);
    }
}
