//! Tries a credential out: one that was issued, and one that the Secret holds.

use std::time::Duration;

use coppice_api::Reason;
use coppice_clusters::kubeconfig::{self, Kubeconfig, Unencrypted, User};
use coppice_clusters::probe::questions;
use coppice_clusters::{AccessObservation, IssueProgress, OutputFact, tried_out_again};
use coppice_clusters_api::Issuer;
use coppice_runtime::client::Clients;

use super::{Applied, Memory, Work, in_time};
use crate::target::{Failure, Target, VerificationResult, try_out, user_of};

/// A target's authorizer hears of a new binding a moment after it was written: so often a credential is tried out.
const TRIES: u32 = 10;
/// Between two of them.
const BETWEEN_TRIES: Duration = Duration::from_millis(300);

impl Work<'_> {
    /// Tries out what was issued.
    pub(super) async fn verify(&self, target: &Target, kubeconfig: &Kubeconfig) -> Result<(), Failure> {
        let clients = self.controller.targets.clients(kubeconfig).await?;
        match self.try_out(target, &clients, &kubeconfig.user).await? {
            VerificationResult::Right => Ok(()),
            VerificationResult::NotValid => {
                let why = match self.observed.spec.issuer {
                    Issuer::TokenRequest => "the target does not take its own token",
                    Issuer::ClientCertificate => {
                        "the target does not take the certificate that it signed: write a kubeconfig whose server is the API server itself, since \
                         no certificate gets through a proxy that ends TLS"
                    }
                    Issuer::GardenerAdmin | Issuer::GardenerViewer => {
                        "the Shoot does not take the certificate that Gardener issued: look in the garden whether it is reconciled"
                    }
                };
                Err(Failure::new(Reason::VerificationFailed, why))
            }
            VerificationResult::Wrong(why) => Err(Failure::new(Reason::VerificationFailed, why)),
        }
    }

    /// Whether what the Secret holds has the form that is written, and is valid.
    pub(super) async fn verify_written(
        &self,
        target: &Target,
        value: &[u8],
    ) -> Result<IssueProgress, Failure> {
        // It was written by us, or is not in our form.
        let parsed = kubeconfig::parse(value, Unencrypted::ToLoopback).ok();
        let Some(written) = parsed.filter(|parsed| parsed.text().as_bytes() == value) else {
            return Ok(IssueProgress::Disproven);
        };
        let is_token = matches!(written.user, User::Token(_));
        if is_token != (self.observed.spec.issuer == Issuer::TokenRequest) {
            return Ok(IssueProgress::Disproven);
        }
        let endpoint = written.cluster.endpoint();
        if endpoint != target.kubeconfig.cluster.endpoint() {
            // It is sent to no other server than the one that it was written with; and it is replaced next, since that is another by now.
            return Ok(IssueProgress::Proven(endpoint));
        }
        // What no client can be made of, such as a certificate with another key, was edited.
        let Ok(clients) = self.controller.targets.clients(&written).await else {
            return Ok(IssueProgress::Disproven);
        };
        let right = self.try_out(target, &clients, &written.user).await? == VerificationResult::Right;
        Ok(if right { IssueProgress::Proven(endpoint) } else { IssueProgress::Disproven })
    }

    /// Tries out again what the Secret holds, by that alone: the target is asked whose it is, and nobody else for anything. What it holds is what
    /// was written there, for the server that it names.
    pub(super) async fn try_out_again(&self, memory: &mut Memory) -> Applied {
        if matches!(self.observed.output, OutputFact::Watched(_)) {
            return self.read_output(memory).await;
        }
        let (controller, AccessObservation { uid, spec, .. }) = (self.controller, self.observed);
        let Ok(written) = kubeconfig::parse(&memory.value, Unencrypted::ToLoopback) else {
            return self.disproven("it is no kubeconfig of this version").await;
        };
        let identity = spec.issuer.identity(uid).or_else(|| user_of(&written.user)).unwrap_or_default();
        let clients = match controller.targets.clients(&written).await {
            Ok(clients) => clients,
            Err(failure) => return self.disproven(&failure.message).await,
        };
        let target = Target { kubeconfig: written, clients };
        let Some(_place) = controller.targets.place(&target) else { return Applied::Busy };
        let found = in_time(memory.ends, try_out(&target.clients, &identity, &[])).await;
        let is_silent = found.as_ref().is_err_and(|failure| failure.reason == Reason::TargetUnreachable);
        controller.targets.answered(&target, !is_silent);
        controller.metrics.tried_out_again(match found {
            Ok(VerificationResult::Right) => "valid",
            Ok(VerificationResult::NotValid | VerificationResult::Wrong(_)) => "invalid",
            Err(_) => "unknown",
        });
        match found {
            Ok(VerificationResult::Right) => {
                self.save(tried_out_again(self.observed, controller.now())).await
            }
            Ok(VerificationResult::NotValid) => self.disproven("the target does not take it").await,
            Ok(VerificationResult::Wrong(why)) => self.disproven(&why).await,
            Err(failure) => self.failed(&failure).await,
        }
    }

    /// What the Secret holds is not valid, and stays there: whether another one would be is decided by somebody.
    async fn disproven(&self, why: &str) -> Applied {
        let message = format!(
            "the credential in the Secret is not valid any more: {why}; if that is not put right in the target, write another spec.rotate to have \
             another one issued"
        );
        self.failed(&Failure::new(Reason::VerificationFailed, message)).await
    }

    /// Tries a credential out, more than once where it does not permit what it is to permit.
    async fn try_out(
        &self,
        target: &Target,
        clients: &Clients,
        user: &User,
    ) -> Result<VerificationResult, Failure> {
        let AccessObservation { uid, spec, .. } = self.observed;
        // Gardener chooses the user: it is the one that the certificate says.
        let identity = spec.issuer.identity(uid).or_else(|| user_of(user)).unwrap_or_default();
        let questions = questions(spec.issuer, &spec.rights, &target.rules(&spec.rights).await?);
        for _ in 1..TRIES {
            match try_out(clients, &identity, &questions).await? {
                VerificationResult::Wrong(_) => tokio::time::sleep(BETWEEN_TRIES).await,
                result => return Ok(result),
            }
        }
        try_out(clients, &identity, &questions).await
    }
}
