//! Carries out one step, in the target or here.

mod garden;
mod throttled;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use coppice_api::Reason;
use coppice_clusters::kubeconfig::{User, sha256};
use coppice_clusters::rights::Owner;
use coppice_clusters::{
    AccessObservation, AccessStep, ClusterFact, GrantVerdict, IssueProgress, ManagedFact, OutputFact,
    Permission, Progress, Turn, Validity, failed, revoked, rights_taken,
};
use coppice_clusters_api::{ClusterAccessStatus, ClusterSource, OutputRevision, Rights, TargetIdentity};
use coppice_mutants::{Mutant, active};
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, Revision, WriteError};
use jiff::Timestamp;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::issue::{Issuing, Requested};
use super::observe::ObserveError;
use super::{AccessKey, ClusterAccessController, observe, report};
use crate::kinds::{Access, ClusterAccesses, OutputSecrets};
use crate::output::Write;
use crate::target::{Failure, Target};
use crate::targets::{Place, ReadError};

/// What one reconcile does in a target has to end within this: a rotation has some twenty requests, and one that hangs keeps a worker.
pub(super) const DEADLINE: Duration = Duration::from_mins(1);

/// What a reconcile knows beside what is durable.
pub(super) struct Memory {
    pub(super) output: OutputFact,
    pub(super) progress: Progress,
    /// Whether the `Cluster` of its target stays.
    pub(super) cluster: ClusterFact,
    /// What the API server says of its `ManagedCluster`, if it was asked.
    pub(super) managed: Option<ManagedFact>,
    /// What its `ClusterProvider` allows.
    pub(super) permission: Permission,
    /// What that says of what the target has by now.
    pub(super) grant: GrantVerdict,
    /// Whether the budget of that has a call left.
    pub(super) turn: Turn,
    /// Which cluster answers to the kubeconfig.
    pub(super) identity: Option<TargetIdentity>,
    /// That cluster: all of a reconcile is done by the one kubeconfig that was read at its beginning.
    target: Option<Target>,
    /// The id of this installation, which what is written there has.
    installation: Arc<str>,
    /// A place among those that work on it.
    place: Option<Place>,
    /// A place among those that work for its namespace, where tenants decide where the target is.
    share: Option<OwnedSemaphorePermit>,
    /// When what is done there has to end.
    ends: Instant,
    /// What the Secret holds, if it was read.
    pub(super) value: Vec<u8>,
    /// What the credential is issued from.
    requested: Option<Requested>,
    /// The credential that was issued.
    user: Option<User>,
}

impl Memory {
    pub(super) fn new(output: OutputFact) -> Self {
        Self {
            output,
            progress: Progress::Nothing,
            cluster: ClusterFact::Unread,
            managed: None,
            permission: Permission::Unread,
            grant: GrantVerdict::Settled,
            turn: Turn::Unasked,
            identity: None,
            target: None,
            installation: "".into(),
            place: None,
            share: None,
            ends: Instant::now() + DEADLINE,
            value: Vec::new(),
            requested: None,
            user: None,
        }
    }

    /// The same with a share of the workers of its namespace.
    pub(super) fn with_share(self, share: Option<OwnedSemaphorePermit>) -> Self {
        Self { share, ..self }
    }

    /// What the target has is another by now: if its provider is asked about anything, it is asked again.
    fn look_again(&mut self) {
        if self.permission != Permission::Unread {
            (self.permission, self.grant) = (Permission::Unread, GrantVerdict::Unread);
        }
    }
}

/// Why the API server here did not do a step. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    /// What it rests on could not be read.
    #[error(transparent)]
    Observe(ObserveError),
    /// It was refused, or the answer was lost.
    #[error(transparent)]
    Write(WriteError),
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
    Failed(ApplyError),
    /// As many work on the target as may.
    Busy,
}

impl From<WriteError> for Applied {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict | WriteError::Gone => Self::Behind,
            error => Self::Failed(ApplyError::Write(error)),
        }
    }
}

impl From<ObserveError> for Applied {
    fn from(error: ObserveError) -> Self {
        Self::Failed(ApplyError::Observe(error))
    }
}

/// What a step is carried out on.
struct Work<'a> {
    controller: &'a ClusterAccessController,
    permit: &'a Permit,
    access: &'a Access,
    observed: &'a AccessObservation,
}

/// Carries out a step.
pub(super) async fn apply(
    controller: &ClusterAccessController,
    permit: &Permit,
    access: &Access,
    observed: &AccessObservation,
    memory: &mut Memory,
    step: AccessStep,
) -> Applied {
    let work = Work { controller, permit, access, observed };
    match step {
        AccessStep::Wait(at) => Applied::CheckAt(at),
        AccessStep::SaveStatus(status) => work.save(*status).await,
        AccessStep::ReadOutput => work.read_output(memory).await,
        AccessStep::ReadCluster => match observe::cluster(controller, access).await {
            Ok((managed, cluster)) => {
                (memory.managed, memory.cluster) = (Some(managed), cluster);
                Applied::Again
            }
            Err(error) => error.into(),
        },
        AccessStep::ReadProvider => match observe::permission(controller, access).await {
            Ok((permission, grant)) => {
                (memory.permission, memory.grant) = (permission, grant);
                Applied::Again
            }
            Err(error) => error.into(),
        },
        AccessStep::TakeTurn => {
            memory.turn = controller.take_turn(access, observed);
            Applied::Again
        }
        AccessStep::ReadKubeconfig => {
            let read = observe::read_kubeconfig(controller, access).await;
            read.map_or_else(Applied::from, |()| Applied::Again)
        }
        AccessStep::AddFinalizer => {
            let added = write::add_finalizer::<ClusterAccesses>(&controller.clients, permit, access).await;
            added.map_or_else(Applied::from, |access| Applied::Changed(Box::new(access)))
        }
        AccessStep::WriteOutput { credential, validity, on } => {
            work.write_output(memory, &credential, validity, on.as_ref()).await
        }
        AccessStep::DeleteOutput(revision) => work.delete_output(memory, &revision).await,
        AccessStep::RemoveFinalizer { skipped } => work.remove_finalizer(skipped).await,
        AccessStep::Identify => work.identify(memory).await,
        AccessStep::TryOutAgain => work.try_out_again(memory).await,
        AccessStep::Request { credential } if observed.spec.issuer.is_of_garden() => {
            work.issue_by_garden(memory, credential).await
        }
        step => {
            let (requests, issues) =
                (matches!(step, AccessStep::Request { .. }), matches!(step, AccessStep::Issue { .. }));
            let done = in_time(memory.ends, work.in_target(memory, step)).await;
            if issues || requests && done.is_err() {
                controller.metrics.issuer_called(observed.spec.issuer, answer_of(&done));
            }
            match (done, &memory.target) {
                (Ok(None), _) => Applied::Again,
                (Ok(Some(status)), _) => work.save(status).await,
                (Err(failure), Some(target)) => work.failed_in(target, failure).await,
                (Err(failure), None) => work.failed(&failure).await,
            }
        }
    }
}

/// What came of a call of an issuer, for metrics.
fn answer_of<T>(called: &Result<T, Failure>) -> Result<(), Option<u16>> {
    called.as_ref().map(|_| ()).map_err(|failure| failure.code)
}

/// What is done in a target, unless it takes too long.
async fn in_time<T>(ends: Instant, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let in_time = tokio::time::timeout_at(ends, work).await;
    in_time.unwrap_or_else(|_| {
        let message = format!("the target did not do within {} s what is done in one go", DEADLINE.as_secs());
        Err(Failure::new(Reason::TargetUnreachable, message))
    })
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

    async fn failed(&self, failure: &Failure) -> Applied {
        let now = self.controller.now();
        self.save(failed(self.observed, failure.reason, &failure.message, now)).await
    }

    async fn read_output(&self, memory: &mut Memory) -> Applied {
        match observe::output(self.controller, self.access, self.observed).await {
            Ok((output, value)) => {
                (memory.output, memory.value) = (output, value);
                Applied::Again
            }
            Err(error) => error.into(),
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
        // The one that it was tried out in.
        let (Some(target), Some(user)) = (&memory.target, &memory.user) else { return Applied::Behind };
        let value = target.kubeconfig.with_user(user.clone()).text();
        let metadata = match observe::output_metadata(self.controller, self.access, output.format).await {
            Ok(metadata) => metadata,
            Err(error) => return error.into(),
        };
        let (access, secret, key) = (self.access, &output.secret, output.data_key());
        let (metadata, installation) = (&metadata, Arc::clone(&memory.installation));
        let write = Write {
            access,
            secret,
            key,
            credential,
            validity,
            value: &value,
            metadata,
            installation: &installation,
        };
        match write.send(&self.controller.clients, self.permit, on).await {
            Ok(written) => {
                (memory.output, memory.value) = (written, value.into_bytes());
                Applied::Again
            }
            // The credential is kept: what is there decides whether it is written again.
            Err(WriteError::Conflict | WriteError::Ambiguous(_)) => self.read_output(memory).await,
            Err(error) => {
                let message = format!("the Secret {secret} could not be written: {error}");
                self.failed(&Failure::new(Reason::WriteFailed, message)).await
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
                let why = self.observed.status.last_error.as_ref();
                let why = why.map_or("the target could not be reached", |error| error.message.as_str());
                report::ended(self.controller, self.access, skipped.then_some(why));
                Applied::CheckAt(None)
            }
            Err(error) => error.into(),
        }
    }

    /// Finds the target, as the user of its kubeconfig, takes a place there, and asks it which cluster it is.
    async fn identify(&self, memory: &mut Memory) -> Applied {
        let Self { controller, access, .. } = self;
        let Some(source) = observe::source(controller, access) else {
            return self.failed(&nowhere(&self.observed.spec.cluster)).await;
        };
        let target = match self.find(memory.ends, &source).await {
            Ok(Some(target)) => target,
            Ok(None) => return Applied::Busy,
            Err(error) => return self.not_read(error).await,
        };
        // It has one already, unless this is known of the fresh object alone.
        if memory.share.is_none() && controller.is_of_tenants(&source) {
            memory.share = controller.targets.share(&source);
            if memory.share.is_none() {
                return Applied::Busy;
            }
        }
        let Some(place) = controller.targets.place(&target) else { return Applied::Busy };
        let identity = in_time(memory.ends, target.identity()).await;
        match identity {
            Ok(identity) => {
                controller.targets.answered(&target, true);
                // Nothing is made there that would not be known as ours.
                match controller.installation.id(&controller.clients).await {
                    Ok(id) => memory.installation = id,
                    Err(error) => return ObserveError::Get(error).into(),
                }
                (memory.target, memory.place) = (Some(target), Some(place));
                memory.identity = Some(identity);
                Applied::Again
            }
            Err(failure) => {
                controller.targets.remove_shoot_kubeconfig(&source);
                self.failed_in(&target, failure).await
            }
        }
    }

    /// A kubeconfig was not read, or is not used.
    async fn not_read(&self, error: ReadError) -> Applied {
        match error {
            ReadError::Unusable(failure) => {
                self.failed(&of_provider(&self.observed.spec.cluster, failure)).await
            }
            // It is not known whether there is one: status says nothing about it.
            error @ ReadError::Unknown { .. } => ObserveError::Kubeconfig(error).into(),
        }
    }

    /// A step in the target failed.
    async fn failed_in(&self, target: &Target, failure: Failure) -> Applied {
        if failure.reason == Reason::TargetUnreachable {
            self.controller.targets.answered(target, false);
        }
        let source = observe::source(self.controller, self.access);
        let failure = match source {
            Some(source) => self.throttle((&source, target), failure),
            None => failure,
        };
        self.failed(&failure).await
    }

    /// A step in the target; the status that follows, if one does.
    async fn in_target(
        &self,
        memory: &mut Memory,
        step: AccessStep,
    ) -> Result<Option<ClusterAccessStatus>, Failure> {
        let (permit, rights) = (self.permit, &self.observed.spec.rights);
        let within = self.observed.status.namespaces.as_deref();
        // Each of these steps comes after it was identified.
        let Some(target) = memory.target.clone() else { return Ok(None) };
        let Access { namespace, name, uid, .. } = self.access;
        let (issuer, installation) = (self.observed.spec.issuer, Arc::clone(&memory.installation));
        let owner = Owner { namespace, name, uid, issuer, installation: &installation };
        let (ttl, make_key) = (self.observed.spec.ttl, self.controller.make_key.as_ref());
        match step {
            AccessStep::FindAccount => {
                memory.progress = Progress::AccountFound(target.has_account(owner).await?);
            }
            AccessStep::ApplyRights => {
                self.apply_rights(&target, owner).await?;
                memory.progress = std::mem::take(&mut memory.progress).with_rights();
                // What was not allowed may be by now, and the other way round.
                if memory.permission != Permission::Allowed {
                    memory.look_again();
                }
            }
            AccessStep::FindRights => self.find_rights(memory, &target, owner).await?,
            AccessStep::TakeRights => {
                self.take_rights(memory, &target, owner).await?;
                return Ok(Some(rights_taken(self.observed, self.controller.now())));
            }
            AccessStep::Request { credential } => {
                let issuing =
                    Issuing { target: &target, permit, owner, credential: &credential, ttl, make_key };
                memory.requested = Some(issuing.request().await?);
                memory.progress = Progress::Issuing(credential, IssueProgress::Requested);
            }
            AccessStep::Issue { credential } => {
                let Some(requested) = &memory.requested else { return Ok(None) };
                let issuing =
                    Issuing { target: &target, permit, owner, credential: &credential, ttl, make_key };
                let (user, validity) = issuing.issue(requested, self.controller.now()).await?;
                memory.user = Some(user);
                memory.progress = Progress::Issuing(credential, IssueProgress::Issued(validity));
            }
            AccessStep::Verify { credential } => {
                let Progress::Issuing(_, IssueProgress::Issued(validity)) = memory.progress else {
                    return Ok(None);
                };
                let Some(user) = &memory.user else { return Ok(None) };
                let kubeconfig = target.kubeconfig.with_user(user.clone());
                self.verify(&target, &kubeconfig).await?;
                let verified = IssueProgress::Verified(validity, sha256(kubeconfig.text().as_bytes()));
                memory.progress = Progress::Issuing(credential, verified);
            }
            AccessStep::VerifyWritten { credential } => {
                let found = self.verify_written(&target, &memory.value).await?;
                memory.progress = Progress::Issuing(credential, found);
            }
            AccessStep::Revoke { credential } => {
                target.revoke(permit, &credential).await?;
                return Ok(Some(revoked(self.observed, &credential, self.controller.now())));
            }
            AccessStep::RevokeAll => {
                if !active(Mutant::BoundSecretsLeft) {
                    self.revoke_all(&target, owner).await?;
                }
                memory.progress = Progress::AllRevoked;
            }
            AccessStep::RemoveRights => {
                target.remove_rights(permit, owner, rights, within).await?;
                memory.progress = Progress::RightsRemoved;
            }
            // None of the others is in the target.
            _ => {}
        }
        Ok(None)
    }

    /// Applies the rights. By a kubeconfig of the platform it is remembered which ones the target may have.
    async fn apply_rights(&self, target: &Target, owner: Owner<'_>) -> Result<(), Failure> {
        let AccessObservation { spec, status, .. } = self.observed;
        if active(Mutant::RightsKept) && status.observed_generation.is_some() {
            return Ok(());
        }
        let applied = target.apply_rights(self.permit, owner, &spec.rights, status.namespaces.as_deref());
        let is_by_provider = spec.cluster.provider_name().is_some();
        let by_provider = self.access.spec.as_ref().ok().filter(|_| is_by_provider);
        let Some(spec) = by_provider else { return applied.await };
        let (key, known) = (AccessKey::new(owner.namespace, owner.name), &self.controller.target_rights);
        known.begins(&key, spec);
        applied.await?;
        known.ended(&key, spec);
        Ok(())
    }

    /// Revokes everything. At the end what the target refuses to delete keeps neither its rights nor the account that it is of.
    async fn revoke_all(&self, target: &Target, owner: Owner<'_>) -> Result<(), Failure> {
        let AccessObservation { spec, status, deleting, .. } = self.observed;
        let revoked = target.revoke_all(self.permit, owner, &status.credentials()).await;
        if *deleting && revoked.as_ref().is_err_and(|failure| failure.reason == Reason::TargetRefused) {
            let within = status.namespaces.as_deref();
            return target.remove_rights(self.permit, owner, &spec.rights, within).await.and(revoked);
        }
        revoked
    }

    /// Asks the target which rights it has.
    async fn find_rights(
        &self,
        memory: &mut Memory,
        target: &Target,
        owner: Owner<'_>,
    ) -> Result<(), Failure> {
        let AccessObservation { spec, status, .. } = self.observed;
        let found = target.rights_of(owner, status.namespaces.as_deref()).await?;
        self.controller.target_rights.found(&AccessKey::new(owner.namespace, owner.name), spec, found);
        memory.look_again();
        Ok(())
    }

    /// Removes all of its rights; what a credential is issued from stays.
    async fn take_rights(
        &self,
        memory: &mut Memory,
        target: &Target,
        owner: Owner<'_>,
    ) -> Result<(), Failure> {
        let AccessObservation { spec, status, .. } = self.observed;
        let within = status.namespaces.as_deref();
        target.apply_rights(self.permit, owner, &Rights::default(), within).await?;
        let key = AccessKey::new(owner.namespace, owner.name);
        self.controller.target_rights.found(&key, spec, Vec::new());
        memory.progress = Progress::Nothing;
        memory.look_again();
        Ok(())
    }
}

/// What a tenant reads about a kubeconfig that is not used: of one that the platform keeps neither where it is nor what is wrong with
/// it, which its `ClusterProvider` says.
fn of_provider(cluster: &ClusterSource, failure: Failure) -> Failure {
    let is_of_kubeconfig = [Reason::KubeconfigMissing, Reason::KubeconfigRefused].contains(&failure.reason);
    let Some(name) = cluster.provider_name().filter(|_| is_of_kubeconfig) else { return failure };
    let message = format!(
        "the kubeconfig of ClusterProvider {name} is missing or cannot be used: ask the platform, which sees why in its condition Ready"
    );
    Failure::new(failure.reason, message)
}

/// Why nobody knows where its target is.
fn nowhere(cluster: &ClusterSource) -> Failure {
    let Some(name) = cluster.provider_name() else {
        let message = "spec.cluster: write exactly one of: kubeconfigSecret, clusterAPI, gardener, provider, managedCluster";
        return Failure::new(Reason::InvalidSpec, message);
    };
    let kind = if cluster.gardener.is_some() { "with a project of Gardener " } else { "" };
    let message = format!(
        "{}: no ClusterProvider {name} {kind}exists: ask the platform to create it",
        cluster.provider_field()
    );
    Failure::new(Reason::ProviderMissing, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_that_hangs_is_given_up_after_a_minute() {
        let began = Instant::now();
        let hangs = std::future::pending::<Result<(), Failure>>();
        let failure = in_time(Memory::new(OutputFact::Absent).ends, hangs).await.unwrap_err();
        assert_eq!(failure.reason, Reason::TargetUnreachable);
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
