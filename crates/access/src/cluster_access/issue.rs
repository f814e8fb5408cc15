//! Has the target issue a credential: what each of its issuers does in two steps. What it is issued from is made there first, so that one
//! that got lost is found again by its name; then it is issued. Gardener's issuers have one step (`apply/garden.rs`).

use coppice_api::Reason;
use coppice_clusters::Validity;
use coppice_clusters::certificate::granted;
use coppice_clusters::kubeconfig::User;
use coppice_clusters::rights::Owner;
use coppice_clusters_api::Issuer;
use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use coppice_runtime::leader::Permit;
use jiff::{SignedDuration, Timestamp};

use crate::target::{Failure, MakeKey, RequestedCertificate, Target};

/// What a credential is issued from, in memory alone.
pub(super) enum Requested {
    /// The Secret of this uid in the target, which the token will be bound to.
    Token { bound_uid: String },
    /// The request of a certificate.
    Certificate(RequestedCertificate),
}

/// A credential that is being issued.
pub(super) struct Issuing<'a> {
    pub(super) target: &'a Target,
    pub(super) permit: &'a Permit,
    pub(super) owner: Owner<'a>,
    pub(super) credential: &'a str,
    /// For how long it is asked for.
    pub(super) ttl: Duration,
    /// How a simulation makes the keys of certificates; none: with the system's randomness.
    pub(super) make_key: Option<&'a MakeKey>,
}

impl Issuing<'_> {
    /// Makes in the target what it is issued from.
    pub(super) async fn request(&self) -> Result<Requested, Failure> {
        let Self { target, permit, owner, credential, ttl, make_key } = *self;
        if active(Mutant::RevokedFirst) {
            target.revoke_all(permit, owner, &[]).await?;
        }
        if owner.issuer == Issuer::TokenRequest {
            let bound_uid = target.bind(permit, owner, credential).await?;
            return Ok(Requested::Token { bound_uid });
        }
        let asked = (credential, ttl.as_secs());
        let requested = target.request_certificate(permit, owner, asked, make_key).await?;
        Ok(Requested::Certificate(requested))
    }

    /// Has it issued; and from when until when it is valid, where the issuing begins at this instant.
    pub(super) async fn issue(
        &self,
        requested: &Requested,
        now: Timestamp,
    ) -> Result<(User, Validity), Failure> {
        let Self { target, permit, owner, credential, ttl, .. } = *self;
        let not_before = whole_second(now);
        match requested {
            Requested::Token { bound_uid } => {
                let bound_to = (credential, bound_uid.as_str());
                let token = target.request_token(permit, owner, bound_to, ttl.as_secs()).await?;
                let time = SignedDuration::from_secs(token.seconds);
                let not_after = not_before.saturating_add(time).unwrap_or(Timestamp::MAX);
                Ok((User::Token(token.text), Validity { not_before, not_after }))
            }
            Requested::Certificate(requested) => {
                let (user, certificate) = target.issue_certificate(permit, requested).await?;
                let asked = SignedDuration::from_secs(ttl.as_secs_i64());
                let validity = granted(not_before, certificate, asked)
                    .map_err(|why| Failure::new(Reason::VerificationFailed, why.to_string()))?;
                Ok((user, validity))
            }
        }
    }
}

/// In whole seconds, so that people can read it: a moment early.
pub(super) fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
