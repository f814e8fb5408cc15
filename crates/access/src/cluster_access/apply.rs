//! Carries out one step, in the target or here.

use std::time::Duration;

use coppice_api::Reason;
use coppice_clusters::kubeconfig::{self, User, sha256};
use coppice_clusters::rights::Owner;
use coppice_clusters::{IssueProgress, Observed, OutputFact, Progress, Step, Validity, failed, revoked};
use coppice_clusters_api::{ClusterAccessStatus, OutputRevision};
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, Revision, WriteError};
use jiff::{SignedDuration, Timestamp};

use super::{ClusterAccessController, observe, report};
use crate::kinds::{Access, ClusterAccesses, OutputSecrets};
use crate::output::Write;
use crate::target::{Failure, Target, Verdict, try_out};

/// A target's authorizer hears of a new binding a moment after it was written: so often a credential is tried out.
const TRIES: u32 = 10;
/// Between two of them.
const BETWEEN_TRIES: Duration = Duration::from_millis(300);

/// What a reconcile knows beside what is durable.
pub(super) struct Memory {
    pub(super) output: OutputFact,
    pub(super) progress: Progress,
    /// What the Secret holds, if it was read.
    value: Vec<u8>,
    /// The uid of the Secret in the target that the credential is bound to.
    bound_uid: String,
    /// The token that was issued.
    token: String,
}

impl Memory {
    pub(super) fn new(output: OutputFact) -> Self {
        let (value, bound_uid, token) = (Vec::new(), String::new(), String::new());
        Self { output, progress: Progress::Nothing, value, bound_uid, token }
    }
}

/// What came of a step.
pub(super) enum Applied {
    /// It is done; the object is as it was.
    Again,
    /// It is done; this is the object now.
    Changed(Box<Access>),
    /// There is nothing to do until then.
    CheckAt(Option<Timestamp>),
    /// The object has changed: read and decide again.
    Behind,
    /// The API server did not do it.
    Failed(String),
}

impl From<WriteError> for Applied {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict | WriteError::Gone => Self::Behind,
            error => Self::Failed(error.to_string()),
        }
    }
}

/// What a step is carried out on.
struct Work<'a> {
    controller: &'a ClusterAccessController,
    permit: &'a Permit,
    access: &'a Access,
    observed: &'a Observed,
}

/// Carries out a step.
pub(super) async fn apply(
    controller: &ClusterAccessController,
    permit: &Permit,
    access: &Access,
    observed: &Observed,
    memory: &mut Memory,
    step: Step,
) -> Applied {
    let work = Work { controller, permit, access, observed };
    match step {
        Step::Wait(at) => Applied::CheckAt(at),
        Step::SaveStatus(status) => work.save(*status).await,
        Step::ReadOutput => work.read_output(memory).await,
        Step::AddFinalizer => {
            let added = write::add_finalizer::<ClusterAccesses>(&controller.clients, permit, access).await;
            added.map_or_else(Applied::from, |access| Applied::Changed(Box::new(access)))
        }
        Step::WriteOutput { credential, validity, on } => {
            work.write_output(memory, &credential, validity, on.as_ref()).await
        }
        Step::DeleteOutput(revision) => work.delete_output(memory, &revision).await,
        Step::RemoveFinalizer { skipped } => work.remove_finalizer(skipped).await,
        step => match work.in_target(memory, step).await {
            Ok(None) => Applied::Again,
            Ok(Some(status)) => work.save(status).await,
            Err(failure) => {
                let now = controller.now();
                work.save(failed(observed, failure.reason, &failure.message, now)).await
            }
        },
    }
}

impl Work<'_> {
    async fn save(&self, status: ClusterAccessStatus) -> Applied {
        let before = &self.observed.status;
        let clients = &self.controller.clients;
        match write::status::<ClusterAccesses>(clients, self.permit, self.access, &status).await {
            Ok(written) => {
                report::saved(self.controller, &written, before);
                self.controller.accesses.update_if_newer(&written.namespace, written.clone());
                Applied::Changed(Box::new(written))
            }
            Err(error) => error.into(),
        }
    }

    async fn read_output(&self, memory: &mut Memory) -> Applied {
        match observe::output(self.controller, self.access, self.observed).await {
            Ok((output, value)) => {
                (memory.output, memory.value) = (output, value);
                Applied::Again
            }
            Err(error) => Applied::Failed(error),
        }
    }

    async fn write_output(
        &self,
        memory: &mut Memory,
        credential: &str,
        validity: Validity,
        on: Option<&OutputRevision>,
    ) -> Applied {
        let output = &self.observed.spec.output;
        let value = match self.target().await {
            Ok(target) => target.kubeconfig.with_token(&memory.token).text(),
            Err(failure) => {
                let now = self.controller.now();
                return self.save(failed(self.observed, failure.reason, &failure.message, now)).await;
            }
        };
        let (secret, key) = (&output.secret, &output.key);
        let write = Write { access: self.access, secret, key, credential, validity, value: &value };
        match write.send(&self.controller.clients, self.permit, on).await {
            Ok(written) => {
                (memory.output, memory.value) = (written, value.into_bytes());
                Applied::Again
            }
            // The token is kept: what is there decides whether it is written again.
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => self.read_output(memory).await,
            Err(error) => {
                let message = format!("the Secret {secret} could not be written: {error}");
                let now = self.controller.now();
                self.save(failed(self.observed, Reason::WriteFailed, &message, now)).await
            }
        }
    }

    async fn delete_output(&self, memory: &mut Memory, revision: &OutputRevision) -> Applied {
        let at = (&*self.access.namespace, self.observed.spec.output.secret.as_str());
        let revision = Revision { uid: &revision.uid, resource_version: Some(&revision.resource_version) };
        let clients = &self.controller.clients;
        match write::delete_object::<OutputSecrets>(clients, self.permit, at, revision).await {
            Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => self.read_output(memory).await,
            Err(error) => error.into(),
        }
    }

    async fn remove_finalizer(&self, skipped: bool) -> Applied {
        let clients = &self.controller.clients;
        let removed = write::remove_finalizer::<ClusterAccesses>(clients, self.permit, self.access).await;
        match removed {
            Ok(_) => {
                report::ended(self.controller, self.access, skipped);
                Applied::CheckAt(None)
            }
            Err(error) => error.into(),
        }
    }

    /// The target, as the user of the bootstrap kubeconfig.
    async fn target(&self) -> Result<Target, Failure> {
        let Some(source) = &self.observed.spec.cluster.kubeconfig_secret else {
            return Err(Failure::new(Reason::InvalidSpec, "spec.cluster: write kubeconfigSecret"));
        };
        let Self { controller, access, observed, .. } = self;
        controller.targets.of(&controller.clients, &access.namespace, source, observed.deleting).await
    }

    /// A step in the target; the status that follows, if one does.
    async fn in_target(
        &self,
        memory: &mut Memory,
        step: Step,
    ) -> Result<Option<ClusterAccessStatus>, Failure> {
        let (target, permit, rights) = (self.target().await?, self.permit, &self.observed.spec.rights);
        let owner =
            Owner { namespace: &self.access.namespace, name: &self.access.name, uid: &self.access.uid };
        match step {
            Step::ApplyRights => {
                target.apply_rights(permit, owner, rights).await?;
                memory.progress = Progress::RightsApplied;
            }
            Step::Bind { credential } => {
                memory.bound_uid = target.bind(permit, owner, &credential).await?;
                memory.progress = Progress::Issuing(credential, IssueProgress::Bound);
            }
            Step::RequestToken { credential } => {
                // In whole seconds, so that people can read it: a moment early.
                let now = self.controller.now();
                let not_before = Timestamp::from_second(now.as_second()).unwrap_or(now);
                let bound_to = (credential.as_str(), memory.bound_uid.as_str());
                let ttl = self.observed.spec.ttl.as_secs();
                let token = target.request_token(permit, owner, bound_to, ttl).await?;
                let not_after = not_before
                    .saturating_add(SignedDuration::from_secs(token.seconds))
                    .unwrap_or(Timestamp::MAX);
                memory.token = token.text;
                let issued = IssueProgress::Issued(Validity { not_before, not_after });
                memory.progress = Progress::Issuing(credential, issued);
            }
            Step::Verify { credential } => {
                let Progress::Issuing(_, IssueProgress::Issued(validity)) = memory.progress else {
                    return Ok(None);
                };
                match self.try_out(&target, &memory.token).await? {
                    Verdict::Right => {}
                    Verdict::NotValid => {
                        return Err(Failure::new(
                            Reason::VerificationFailed,
                            "the target does not take its own token",
                        ));
                    }
                    Verdict::Wrong(why) => return Err(Failure::new(Reason::VerificationFailed, why)),
                }
                let text = target.kubeconfig.with_token(&memory.token).text();
                let verified = IssueProgress::Verified(validity, sha256(text.as_bytes()));
                memory.progress = Progress::Issuing(credential, verified);
            }
            Step::VerifyWritten { credential } => {
                let found = self.verify_written(&target, &memory.value).await?;
                memory.progress = Progress::Issuing(credential, found);
            }
            Step::Revoke { credential } => {
                target.revoke(permit, owner, &credential).await?;
                report::revoked(self.access, &credential);
                return Ok(Some(revoked(self.observed, &credential, self.controller.now())));
            }
            Step::RevokeAll => {
                target.revoke_all(permit, owner).await?;
                memory.progress = Progress::AllRevoked;
            }
            Step::RemoveRights => {
                target.remove_rights(permit, owner).await?;
                memory.progress = Progress::RightsRemoved;
            }
            // None of the others is in the target.
            _ => {}
        }
        Ok(None)
    }

    /// Whether what the Secret holds is what would have been written, and is valid.
    async fn verify_written(&self, target: &Target, value: &[u8]) -> Result<IssueProgress, Failure> {
        let parsed = std::str::from_utf8(value).ok().and_then(|text| kubeconfig::parse(text).ok());
        let Some(User::Token(token)) = parsed.map(|parsed| parsed.user) else {
            return Ok(IssueProgress::Disproven);
        };
        if target.kubeconfig.with_token(&token).text().as_bytes() != value {
            return Ok(IssueProgress::Disproven);
        }
        let right = self.try_out(target, &token).await? == Verdict::Right;
        Ok(if right { IssueProgress::Proven } else { IssueProgress::Disproven })
    }

    /// Tries a token out, more than once where it does not permit what it is to permit.
    async fn try_out(&self, target: &Target, token: &str) -> Result<Verdict, Failure> {
        let rights = &self.observed.spec.rights;
        let rules = target.rules(rights).await?;
        let clients = self.controller.targets.clients(&target.kubeconfig.with_token(token)).await?;
        for _ in 1..TRIES {
            match try_out(&clients, &self.observed.uid, rights, &rules).await? {
                Verdict::Wrong(_) => tokio::time::sleep(BETWEEN_TRIES).await,
                verdict => return Ok(verdict),
            }
        }
        try_out(&clients, &self.observed.uid, rights, &rules).await
    }
}
