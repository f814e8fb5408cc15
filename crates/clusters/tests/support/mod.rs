//! What the models of these tests have in common: a `ClusterAccess` as the API server has it, and what a reconcile keeps in memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_clusters::{
    AccessObservation, AccessStep, ClusterFact, GrantVerdict, KubeconfigFact, ManagedFact, OutputFact,
    Permission, Progress, Turn,
};
use coppice_clusters_api::{ClusterAccessSpec, ClusterAccessStatus, TargetIdentity};

/// The object.
pub(crate) struct StoredAccess {
    pub(crate) deleting: bool,
    pub(crate) finalizer: bool,
    pub(crate) gone: bool,
    pub(crate) generation: i64,
    pub(crate) spec: ClusterAccessSpec,
    pub(crate) status: ClusterAccessStatus,
}

/// What a reconcile keeps in memory.
pub(crate) struct Memory {
    pub(crate) progress: Progress,
    pub(crate) output: OutputFact,
    pub(crate) kubeconfig: KubeconfigFact,
    pub(crate) target: Option<TargetIdentity>,
    pub(crate) permission: Permission,
    pub(crate) turn: Turn,
    /// Which of the credentials that the model has issued.
    pub(crate) issued: Option<usize>,
}

impl Memory {
    /// Nothing but what the watch shows of the Secret.
    pub(crate) fn new(output: OutputFact) -> Self {
        Self {
            progress: Progress::Nothing,
            output,
            kubeconfig: KubeconfigFact::Unread,
            target: None,
            permission: Permission::Unread,
            turn: Turn::Unasked,
            issued: None,
        }
    }
}

impl StoredAccess {
    /// As somebody has just created it.
    pub(crate) fn new(spec: serde_json::Value) -> Self {
        Self {
            deleting: false,
            finalizer: false,
            gone: false,
            generation: 1,
            spec: serde_json::from_value(spec).unwrap(),
            status: ClusterAccessStatus::default(),
        }
    }

    pub(crate) fn observed(&self, memory: &Memory) -> AccessObservation {
        // Nobody has to be asked where no provider leads.
        let turn = self.spec.cluster.provider_name().map_or(Turn::Granted, |_| memory.turn);
        AccessObservation {
            uid: "u".to_owned(),
            generation: self.generation,
            deleting: self.deleting,
            has_finalizer: self.finalizer,
            spec: self.spec.clone(),
            status: self.status.clone(),
            kubeconfig: memory.kubeconfig.clone(),
            managed: ManagedFact::NotNamed,
            cluster: ClusterFact::Unread,
            permission: memory.permission.clone(),
            grant: GrantVerdict::Settled,
            turn,
            min_forget_after: None,
            narrows: false,
            target: memory.target.clone(),
            user_name: None,
            output: memory.output.clone(),
            progress: memory.progress.clone(),
        }
    }

    /// Does what is done to the object itself.
    pub(crate) fn write(&mut self, step: &AccessStep) {
        match step {
            AccessStep::AddFinalizer => self.finalizer = true,
            AccessStep::SaveStatus(status) => self.status = (**status).clone(),
            AccessStep::RemoveFinalizer { skipped } => {
                assert!(!skipped, "the target is never away for that long");
                self.gone = true;
            }
            _ => panic!("{step:?} is not done to the object"),
        }
    }

    /// Somebody asks for another credential.
    pub(crate) fn rotate(&mut self) {
        self.generation += 1;
        self.spec.rotate = Some(self.generation.to_string());
    }
}
