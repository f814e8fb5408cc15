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
    /// Gardener, as client certificates of an administrator of a Shoot.
    GardenerAdmin,
    /// Gardener, as client certificates of somebody who may read everything in a Shoot but Secrets.
    GardenerViewer,
}

impl Issuer {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::TokenRequest, Self::ClientCertificate, Self::GardenerAdmin, Self::GardenerViewer];

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The issuer as written in spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenRequest => "TokenRequest",
            Self::ClientCertificate => "ClientCertificate",
            Self::GardenerAdmin => "GardenerAdmin",
            Self::GardenerViewer => "GardenerViewer",
        }
    }

    /// The user that the target's API server sees, of the credentials of a `ClusterAccess` with this uid. Gardener gives each credential
    /// another one, which nobody knows before.
    pub fn identity(self, uid: &str) -> Option<String> {
        match self {
            Self::TokenRequest => Some(identity(uid)),
            Self::ClientCertificate => Some(certificate_user(uid)),
            Self::GardenerAdmin | Self::GardenerViewer => None,
        }
    }

    /// Whether Gardener issues them, with rights of its own: the target has no object of such a `ClusterAccess`.
    pub const fn is_of_garden(self) -> bool {
        matches!(self, Self::GardenerAdmin | Self::GardenerViewer)
    }

    /// Whether one credential can be revoked before it expires, and the others of the same user stay valid.
    pub const fn is_revocable(self) -> bool {
        match self {
            Self::TokenRequest => true,
            Self::ClientCertificate | Self::GardenerAdmin | Self::GardenerViewer => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_differ_by_uid_and_fit_into_a_common_name() {
        let uid = "1d9a5c2e-0000-4000-8000-1234567890ab";
        let user = Issuer::ClientCertificate.identity(uid).unwrap();
        assert_eq!(user, format!("coppice-access:{uid}"));
        // X.509 limits a common name to 64 characters.
        assert!(user.len() <= 64, "{user}");
        assert_ne!(Issuer::TokenRequest.identity(uid), Some(user));
    }
}
