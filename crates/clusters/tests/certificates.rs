//! Certificates cannot be revoked: whatever the program ends at, each that was in the Secret is named in status until it expires, none
//! keeps another one from being issued, and without its `ClusterAccess` none has a right, but for those that Gardener issues.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use coppice_clusters::{
    AccessObservation, AccessStep, IssueProgress, KubeconfigFact, OutputFact, OutputSecret, Permission,
    Progress, Turn, Validity, plan,
};
use coppice_clusters_api::{OutputRevision, TargetIdentity};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{Memory, StoredAccess};

/// A certificate that was signed.
#[derive(Clone, Debug)]
struct Certificate {
    credential: String,
    validity: Validity,
    was_written: bool,
}

/// What is durable, on both sides.
struct DurableState {
    now: Timestamp,
    access: StoredAccess,
    /// The revision of the Secret, and the certificate in it.
    output: Option<(u64, usize)>,
    certificates: Vec<Certificate>,
    /// Signing requests in the target.
    requests: BTreeSet<String>,
    rights: bool,
    revision: u64,
}

/// Where the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    Before(usize),
    /// While a certificate is waited for: its key is lost.
    Within(usize),
    After(usize),
}

fn here() -> TargetIdentity {
    TargetIdentity { uid: "here".to_owned(), endpoint: "e".to_owned() }
}

impl DurableState {
    fn new() -> Self {
        let spec = json!({
            "cluster": {"kubeconfigSecret": {"name": "target"}}, "issuer": "ClientCertificate",
            "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}},
            "output": {"secret": "out"}, "ttl": "1h",
        });
        Self {
            now: Timestamp::from_second(1_000_000).unwrap(),
            access: StoredAccess::new(spec),
            output: None,
            certificates: Vec::new(),
            requests: BTreeSet::new(),
            rights: false,
            revision: 0,
        }
    }

    /// The same for a Shoot, with the rights of Gardener.
    fn of_shoot() -> Self {
        let spec = json!({
            "cluster": {"gardener": {"provider": "dev", "shoot": "shop"}}, "issuer": "GardenerAdmin",
            "output": {"secret": "out"}, "ttl": "1h",
        });
        Self { access: StoredAccess::new(spec), ..Self::new() }
    }

    fn is_of_garden(&self) -> bool {
        self.access.spec.issuer.is_of_garden()
    }

    fn observed(&self, memory: &Memory) -> AccessObservation {
        let user_name = self.is_of_garden().then(|| "x1y2:robot".to_owned());
        AccessObservation { user_name, ..self.access.observed(memory) }
    }

    fn read(&self) -> OutputFact {
        let Some((revision, certificate)) = self.output else { return OutputFact::Absent };
        OutputFact::Ours(OutputSecret {
            revision: OutputRevision {
                uid: "s".to_owned(),
                resource_version: revision.to_string(),
                sha256: certificate.to_string(),
            },
            credential: Some(self.certificates[certificate].credential.clone()),
            validity: Some(self.certificates[certificate].validity),
            obstacle: None,
        })
    }

    /// Runs one reconcile, which the program may not survive.
    fn reconcile(&mut self, crash: Option<Crash>) {
        let watched = self.output.map(|(revision, _)| ("s".to_owned(), revision.to_string()));
        let mut memory = Memory::new(OutputFact::Watched(watched));
        for at in 0..60 {
            let step = plan(&self.observed(&memory), self.now);
            if self.access.gone || matches!(step, AccessStep::Wait(_)) || crash == Some(Crash::Before(at)) {
                return;
            }
            if crash == Some(Crash::Within(at)) {
                match &step {
                    AccessStep::Issue { credential } => _ = self.sign(credential),
                    AccessStep::Request { credential } if self.is_of_garden() => _ = self.sign(credential),
                    _ => {}
                }
                return;
            }
            self.carry_out(&step, &mut memory);
            self.check();
            if crash == Some(Crash::After(at)) {
                return;
            }
        }
        panic!("it never rests: {:?}", self.access.status);
    }

    fn sign(&mut self, credential: &str) -> Validity {
        assert!(self.is_of_garden() || self.requests.contains(credential), "it was asked for");
        let validity = Validity { not_before: self.now, not_after: self.now + SignedDuration::from_hours(1) };
        let credential = credential.to_owned();
        self.certificates.push(Certificate { credential, validity, was_written: false });
        validity
    }

    /// It is signed.
    fn issue(&mut self, credential: &str, memory: &mut Memory) {
        let validity = self.sign(credential);
        memory.issued = Some(self.certificates.len() - 1);
        memory.progress = Progress::Issuing(credential.to_owned(), IssueProgress::Issued(validity));
    }

    fn carry_out(&mut self, step: &AccessStep, memory: &mut Memory) {
        match step {
            AccessStep::Wait(_) => {}
            AccessStep::AddFinalizer | AccessStep::SaveStatus(_) | AccessStep::RemoveFinalizer { .. } => {
                self.access.write(step);
            }
            AccessStep::ReadOutput => memory.output = self.read(),
            AccessStep::ReadKubeconfig if self.is_of_garden() => memory.kubeconfig = KubeconfigFact::OfGarden,
            AccessStep::ReadKubeconfig => memory.kubeconfig = KubeconfigFact::Endpoint(here().endpoint),
            AccessStep::Identify => memory.target = Some(here()),
            AccessStep::ReadProvider => memory.permission = Permission::Allowed,
            AccessStep::TakeTurn => memory.turn = Turn::Granted,
            AccessStep::ReadCluster => panic!("it is none of Cluster API"),
            AccessStep::FindRights | AccessStep::TakeRights => panic!("what it has is allowed"),
            AccessStep::TryOutAgain => panic!("it is replaced within a day"),
            AccessStep::FindAccount => panic!("status names the target from the beginning"),
            AccessStep::ApplyRights => {
                self.rights = !self.is_of_garden();
                memory.progress = std::mem::take(&mut memory.progress).with_rights();
            }
            AccessStep::Request { credential } if self.is_of_garden() => self.issue(credential, memory),
            AccessStep::Request { credential } => {
                self.requests.insert(credential.clone());
                memory.progress = Progress::Issuing(credential.clone(), IssueProgress::Requested);
            }
            AccessStep::Issue { credential } => {
                self.issue(credential, memory);
                self.requests.remove(credential);
            }
            AccessStep::Verify { credential } => {
                let certificate = memory.issued.unwrap();
                let validity = self.certificates[certificate].validity;
                let verified = IssueProgress::Verified(validity, certificate.to_string());
                memory.progress = Progress::Issuing(credential.clone(), verified);
            }
            AccessStep::WriteOutput { on, .. } => {
                let found = self.output.map(|(revision, _)| revision.to_string());
                assert_eq!(found, on.as_ref().map(|on| on.resource_version.clone()));
                let certificate = memory.issued.unwrap();
                self.certificates[certificate].was_written = true;
                self.revision += 1;
                self.output = Some((self.revision, certificate));
                memory.output = self.read();
            }
            AccessStep::VerifyWritten { credential } => {
                let (_, certificate) = self.output.unwrap();
                assert!(self.now < self.certificates[certificate].validity.not_after);
                let proven = IssueProgress::Proven(here().endpoint);
                memory.progress = Progress::Issuing(credential.clone(), proven);
            }
            AccessStep::Revoke { credential } => panic!("{credential} cannot be revoked"),
            AccessStep::RevokeAll => {
                assert!(!self.is_of_garden(), "nothing of it is there");
                self.requests.clear();
                memory.progress = Progress::AllRevoked;
            }
            AccessStep::RemoveRights => {
                self.rights = false;
                memory.progress = Progress::RightsRemoved;
            }
            AccessStep::DeleteOutput(_) => {
                assert!(!self.rights, "what it holds has no right any more");
                self.output = None;
                memory.output = OutputFact::Absent;
            }
        }
    }

    /// Whatever could be read in the Secret and is valid, is named in status, with its end if it was replaced.
    fn check(&self) {
        let status = &self.access.status;
        assert_eq!(status.superseded, Vec::<String>::new(), "nothing waits to be revoked");
        for certificate in self.certificates.iter().filter(|certificate| certificate.was_written) {
            let Certificate { credential, validity, .. } = certificate;
            let is_current = status.credential.as_ref() == Some(credential);
            let is_intended = status.intent.as_ref().is_some_and(|intent| intent.credential == *credential);
            let listed =
                status.superseded_certificates.iter().find(|before| before.credential == *credential);
            let is_listed = listed.is_some_and(|before| before.not_after == validity.not_after);
            let has_expired = self.now >= validity.not_after;
            assert!(is_current || is_intended || is_listed || has_expired, "{certificate:?}: {status:?}");
        }
    }

    /// Nothing goes wrong any more.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.now += SignedDuration::from_mins(2);
            self.reconcile(None);
        }
    }
}

#[test]
fn a_crash_at_each_step_leaves_one_in_force_and_names_those_before() {
    let lost = crashed_at_each_step(DurableState::new, "coppice-access:u");
    assert!(lost > 4, "some keys got lost with their program: {lost}");
    let lost = crashed_at_each_step(DurableState::of_shoot, "x1y2:robot");
    assert!(lost > 4, "and with those of Gardener: {lost}");
}

/// The same of these; how many keys got lost.
fn crashed_at_each_step(new: fn() -> DurableState, identity: &str) -> usize {
    let mut lost = 0;
    for crash in (0..18).flat_map(|at| [Crash::Before(at), Crash::Within(at), Crash::After(at)]) {
        let mut state = new();
        state.reconcile(Some(crash));
        state.settle();
        let (_, first) = state.output.unwrap();
        let first = state.certificates[first].clone();
        assert_eq!(state.access.status.credential.as_ref(), Some(&first.credential), "{crash:?}");
        assert_eq!(state.access.status.identity.as_deref(), Some(identity));

        state.access.rotate();
        state.reconcile(Some(crash));
        state.settle();
        let (_, second) = state.output.unwrap();
        let second = state.certificates[second].clone();
        assert_eq!(state.access.status.credential.as_ref(), Some(&second.credential), "{crash:?}");
        assert_ne!(first.credential, second.credential);
        let listed = &state.access.status.superseded_certificates;
        assert_eq!(listed.len(), 1, "{crash:?}: {listed:?}");
        assert_eq!(listed[0].not_after, first.validity.not_after, "{crash:?}");
        let ready =
            state.access.status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert!(ready.message.contains(&listed[0].not_after.to_string()), "{}", ready.message);
        assert!(state.requests.is_empty(), "{crash:?}: no request is left");
        lost += state.certificates.iter().filter(|certificate| !certificate.was_written).count();

        state.access.deleting = true;
        state.reconcile(Some(crash));
        state.settle();
        assert!(state.access.gone && !state.rights && state.output.is_none(), "{crash:?}");
    }
    lost
}

#[test]
fn those_that_have_expired_are_listed_no_more() {
    let mut state = DurableState::new();
    state.reconcile(None);
    state.access.rotate();
    state.reconcile(None);
    let expires = state.access.status.superseded_certificates[0].not_after;
    state.now = expires - SignedDuration::from_mins(1);
    state.reconcile(None);
    // The second one was due by then.
    assert_eq!(state.access.status.superseded_certificates.len(), 2);
    state.now = expires;
    state.reconcile(None);
    assert!(state.access.status.superseded_certificates.is_empty(), "{:?}", state.access.status);
}

#[test]
fn none_of_them_keeps_another_one_from_being_issued() {
    let mut state = DurableState::new();
    state.reconcile(None);
    for _ in 0..40 {
        state.now += SignedDuration::from_secs(1);
        state.access.rotate();
        let before = state.access.status.credential.clone();
        // Only the 32 that are valid for longest are listed, so that what `check` asks does not hold for the others.
        state.certificates.iter_mut().for_each(|certificate| certificate.was_written = false);
        state.reconcile(None);
        assert_ne!(state.access.status.credential, before);
    }
    let listed = &state.access.status.superseded_certificates;
    assert_eq!(listed.len(), 32);
    let first = listed.iter().map(|before| before.not_after).min().unwrap();
    // The first eight of 40 are not among them.
    assert_eq!(first, state.certificates[8].validity.not_after);
}
