//! Client certificates of a target: what asks for one, and whether one that was granted is used.

use coppice_clusters_api::names::{SIGNER, signing_request};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::observed::Validity;
use crate::rights::{Owner, TargetKind, TargetObject};

/// For so much longer than asked a certificate may be valid: signers round, and clocks differ.
pub(crate) const TOLERANCE: SignedDuration = SignedDuration::from_mins(15);
/// One that is valid for less is not used. API servers grant ten minutes and more, unless their authority expires before.
const SHORTEST: SignedDuration = SignedDuration::from_mins(5);

impl Owner<'_> {
    /// What asks for a certificate: `request` is the request in PEM, in base64.
    pub fn signing_request(&self, credential: &str, request: &str, seconds: u64) -> TargetObject {
        let fields = json!({"spec": {
            "signerName": SIGNER, "request": request, "expirationSeconds": seconds,
            "usages": ["digital signature", "client auth"]
        }});
        self.object(TargetKind::SigningRequest, "", &signing_request(credential), fields)
    }
}

/// Why a certificate that a target granted is not used, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// It expires at once.
    #[error(
        "the target granted a certificate that expires at {not_after} already: renew the authority that it signs with, if that \
         expires then, and compare the target's clock"
    )]
    TooShort {
        /// When it expires.
        not_after: Timestamp,
    },
    /// It is valid for longer than asked, and nobody can revoke it.
    #[error(
        "the target granted a certificate until {not_after}, for longer than spec.ttl, and it could not be revoked: its signer has to heed \
         expirationSeconds, as that of Kubernetes does; otherwise let another ClusterAccess use the issuer TokenRequest"
    )]
    TooLong {
        /// When it expires.
        not_after: Timestamp,
    },
}

/// From when until when a certificate counts as valid that was issued at this instant, after so much time was asked for. What was
/// granted counts, if that is less.
///
/// # Errors
/// If it is not used.
pub fn granted(
    issued_at: Timestamp,
    certificate: Validity,
    asked: SignedDuration,
) -> Result<Validity, GrantError> {
    // Signers write an instant before: by that it would be replaced too early.
    let validity = Validity { not_before: certificate.not_before.max(issued_at), ..certificate };
    let time = validity.not_after.duration_since(validity.not_before);
    let not_after = validity.not_after;
    if time < SHORTEST {
        return Err(GrantError::TooShort { not_after });
    }
    if time > asked + TOLERANCE {
        return Err(GrantError::TooLong { not_after });
    }
    Ok(validity)
}

#[cfg(test)]
mod tests {
    use coppice_clusters_api::Issuer;

    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn of(not_before: i64, not_after: i64) -> Validity {
        Validity { not_before: at(not_before), not_after: at(not_after) }
    }

    #[test]
    fn a_request_names_the_signer_the_time_and_the_access() {
        let issuer = Issuer::ClientCertificate;
        let owner = Owner { namespace: "team", name: "ci", uid: "1-2", issuer, installation: "i" };
        let object = owner.signing_request("1-2-7", "cmVxdWVzdA==", 600);
        assert!(owner.is_ours(TargetKind::SigningRequest, &object.body));
        assert_eq!((object.namespace.as_str(), object.name.as_str()), ("", "coppice-1-2-7"));
        let spec = &object.body["spec"];
        assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client");
        assert_eq!((&spec["request"], &spec["expirationSeconds"]), (&json!("cmVxdWVzdA=="), &json!(600)));
    }

    #[test]
    fn what_was_granted_counts_from_when_it_was_issued() {
        // Kubernetes writes five minutes before as the beginning.
        assert_eq!(granted(at(1000), of(700, 4600), HOUR), Ok(of(1000, 4600)));
        // Less than asked.
        assert_eq!(granted(at(1000), of(700, 1600), HOUR), Ok(of(1000, 1600)));
        // The target's clock is ahead.
        assert_eq!(granted(at(1000), of(1100, 4700), HOUR), Ok(of(1100, 4700)));
    }

    #[test]
    fn one_that_expires_at_once_or_is_valid_for_longer_than_asked_is_not_used() {
        for not_after in [0, 999, 1299] {
            let error = granted(at(1000), of(0, not_after), HOUR).unwrap_err().to_string();
            assert!(error.contains("expires at") && error.contains("renew the authority"), "{error}");
        }
        let year = granted(at(1000), of(700, 31_536_000), HOUR).unwrap_err().to_string();
        assert!(year.contains("longer than spec.ttl") && year.contains("TokenRequest"), "{year}");
        assert!(granted(at(0), of(0, 3600 + 900), HOUR).is_ok());
        assert!(granted(at(0), of(0, 3600 + 901), HOUR).is_err());
    }
}
