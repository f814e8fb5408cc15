//! From whatever prefix of steps, with a crash, a lost answer or a target that is away after each, it ends right: one intent has one
//! valid credential, the one before is revoked when the Secret holds the new one, and nothing outlives its `ClusterAccess`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;

use coppice_api::Reason;
use coppice_clusters::{
    AccessStep, IssueProgress, KubeconfigFact, Obstacle, OutputFact, OutputSecret, Progress, Validity,
    failed, plan, revoked,
};
use coppice_clusters_api::{OutputRevision, TargetIdentity};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use crate::support::{Memory, StoredAccess};

/// A token: the credential that it was issued for, and the Secret in the target that it is bound to.
#[derive(Clone, Debug, PartialEq)]
struct Token {
    credential: String,
    bound_to: u64,
    validity: Validity,
}

/// The Secret with the kubeconfig.
#[derive(Clone, Debug)]
struct Output {
    revision: u64,
    ours: bool,
    credential: String,
    token: usize,
    edited: bool,
    immutable: bool,
    /// The address that was written.
    endpoint: u64,
}

/// What is durable, on both sides.
struct DurableState {
    now: Timestamp,
    access: StoredAccess,
    output: Option<Output>,
    reachable: bool,
    /// The kubeconfig leads to another cluster than that of `rights`, `bound` and `tokens`.
    elsewhere: bool,
    /// The address that the kubeconfig has.
    endpoint: u64,
    /// The target lets nothing be revoked.
    keeps_all: bool,
    rights: Option<i64>,
    bound: BTreeMap<String, u64>,
    tokens: Vec<Token>,
    counter: u64,
}

/// What goes wrong with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// The program ends before the step.
    CrashBefore,
    /// The program ends after the step.
    CrashAfter,
    /// The step is done, and nobody hears of it.
    AnswerLost,
}

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    Reconcile(Vec<Fault>),
    Later(i64),
    Rotate,
    OtherSpec,
    SecretDeleted,
    SecretEdited,
    SecretImmutable,
    SecretOfOthers,
    TargetAway(bool),
    OtherCluster(bool),
    OtherAddress,
    KeepsAll(bool),
    Suspend(bool),
}

impl DurableState {
    fn new() -> Self {
        let spec = json!({
            "cluster": {"kubeconfigSecret": {"name": "target"}},
            "rights": {"bind": {"clusterRole": "view", "namespaces": ["shop"]}},
            "output": {"secret": "out"}, "ttl": "1h",
        });
        Self {
            now: Timestamp::from_second(1_000_000).unwrap(),
            access: StoredAccess::new(spec),
            output: None,
            reachable: true,
            elsewhere: false,
            endpoint: 0,
            keeps_all: false,
            rights: None,
            bound: BTreeMap::new(),
            tokens: Vec::new(),
            counter: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn is_valid(&self, token: &Token) -> bool {
        self.rights.is_some()
            && self.bound.get(&token.credential) == Some(&token.bound_to)
            && self.now < token.validity.not_after
    }

    fn valid(&self) -> Vec<&Token> {
        self.tokens.iter().filter(|token| self.is_valid(token)).collect()
    }

    fn watched(&self) -> OutputFact {
        let ours = self.output.as_ref().filter(|output| output.ours);
        OutputFact::Watched(ours.map(|output| ("s".to_owned(), output.revision.to_string())))
    }

    fn read(&self) -> OutputFact {
        match &self.output {
            None => OutputFact::Absent,
            Some(output) if !output.ours => OutputFact::Foreign,
            Some(output) => OutputFact::Ours(OutputSecret {
                revision: OutputRevision {
                    uid: "s".to_owned(),
                    resource_version: output.revision.to_string(),
                    sha256: digest(output.token, output.edited),
                },
                credential: Some(output.credential.clone()),
                validity: self.tokens.get(output.token).map(|token| token.validity),
                obstacle: output.immutable.then_some(Obstacle::Immutable),
            }),
        }
    }

    /// Runs one reconcile, with these faults at its steps.
    fn reconcile(&mut self, faults: &[Fault]) {
        let mut memory = Memory::new(self.watched());
        let mut faults = faults.iter();
        for _ in 0..60 {
            if self.access.gone {
                return;
            }
            let step = plan(&self.access.observed(&memory), self.now);
            if matches!(step, AccessStep::Wait(_)) {
                return;
            }
            let fault = faults.next().copied().unwrap_or(Fault::None);
            if fault == Fault::CrashBefore {
                return;
            }
            if in_target(&step) && !self.reachable {
                let observed = self.access.observed(&memory);
                self.access.status = failed(&observed, Reason::TargetUnreachable, "away", self.now);
                continue;
            }
            if self.keeps_all && matches!(step, AccessStep::Revoke { .. }) {
                let observed = self.access.observed(&memory);
                self.access.status = failed(&observed, Reason::TargetRefused, "no", self.now);
                continue;
            }
            assert!(
                step == AccessStep::Identify || !in_target(&step) || !self.elsewhere,
                "{step:?} in another cluster"
            );
            self.carry_out(&step, &mut memory);
            self.check();
            match fault {
                Fault::AnswerLost if in_target(&step) => {
                    let observed = self.access.observed(&memory);
                    memory.progress = Progress::Nothing;
                    self.access.status = failed(&observed, Reason::TargetUnreachable, "no answer", self.now);
                }
                Fault::CrashAfter | Fault::AnswerLost => return,
                Fault::None | Fault::CrashBefore => {}
            }
        }
        panic!("it never rests: {:?}", self.access.status);
    }

    fn carry_out(&mut self, step: &AccessStep, memory: &mut Memory) {
        match step {
            AccessStep::Wait(_) => {}
            AccessStep::AddFinalizer | AccessStep::SaveStatus(_) | AccessStep::RemoveFinalizer { .. } => {
                self.access.write(step);
            }
            AccessStep::ReadOutput => memory.output = self.read(),
            AccessStep::ReadCluster | AccessStep::ReadProvider | AccessStep::TakeTurn => {
                panic!("its target has a kubeconfig of its own")
            }
            AccessStep::ReadKubeconfig => {
                memory.kubeconfig = KubeconfigFact::Endpoint(self.endpoint.to_string());
            }
            AccessStep::Identify => {
                let uid = if self.elsewhere { "there" } else { "here" }.to_owned();
                memory.target = Some(TargetIdentity { uid, endpoint: self.endpoint.to_string() });
            }
            AccessStep::FindRights | AccessStep::TakeRights => panic!("it is none of a provider"),
            AccessStep::TryOutAgain => panic!("it is replaced within a day"),
            AccessStep::FindAccount => panic!("status names the target before anything is done there"),
            AccessStep::ApplyRights => {
                assert!(self.access.status.sequence > 0, "an intent comes first");
                assert!(self.access.status.target.is_some(), "which cluster it is comes first");
                self.rights = Some(self.access.generation);
                memory.progress = std::mem::take(&mut memory.progress).with_rights();
            }
            AccessStep::Request { credential } => {
                let uid = self.next();
                self.bound.insert(credential.clone(), uid);
                memory.progress = Progress::Issuing(credential.clone(), IssueProgress::Requested);
            }
            AccessStep::Issue { credential } => {
                let bound_to = self.bound[credential];
                let not_after = self.now + SignedDuration::from_hours(1);
                let validity = Validity { not_before: self.now, not_after };
                self.tokens.push(Token { credential: credential.clone(), bound_to, validity });
                memory.issued = Some(self.tokens.len() - 1);
                memory.progress = Progress::Issuing(credential.clone(), IssueProgress::Issued(validity));
            }
            AccessStep::Verify { credential } => {
                let token = memory.issued.unwrap();
                assert!(self.is_valid(&self.tokens[token]));
                let validity = self.tokens[token].validity;
                let verified = IssueProgress::Verified(validity, digest(token, false));
                memory.progress = Progress::Issuing(credential.clone(), verified);
            }
            AccessStep::WriteOutput { credential, on, .. } => self.write(credential, on.as_ref(), memory),
            AccessStep::VerifyWritten { credential } => {
                let output = self.output.clone().unwrap();
                // To another server it is not shown.
                let elsewhere = output.endpoint != self.endpoint;
                let valid = !output.edited && (elsewhere || self.is_valid(&self.tokens[output.token]));
                let proven = if valid {
                    IssueProgress::Proven(output.endpoint.to_string())
                } else {
                    IssueProgress::Disproven
                };
                memory.progress = Progress::Issuing(credential.clone(), proven);
            }
            AccessStep::Revoke { .. }
            | AccessStep::RevokeAll
            | AccessStep::RemoveRights
            | AccessStep::DeleteOutput(_) => {
                self.remove(step, memory);
            }
        }
    }

    fn write(&mut self, credential: &str, on: Option<&OutputRevision>, memory: &mut Memory) {
        let found = self.output.as_ref().map(|output| output.revision.to_string());
        if found != on.map(|on| on.resource_version.clone()) {
            memory.output = self.read();
            return;
        }
        assert!(self.output.as_ref().is_none_or(|output| output.ours && !output.immutable));
        let (revision, token) = (self.next(), memory.issued.unwrap());
        self.output = Some(Output {
            revision,
            ours: true,
            credential: credential.to_owned(),
            token,
            edited: false,
            immutable: false,
            endpoint: self.endpoint,
        });
        memory.output = self.read();
    }

    fn remove(&mut self, step: &AccessStep, memory: &mut Memory) {
        match step {
            AccessStep::Revoke { credential } => {
                assert_ne!(self.access.status.credential.as_ref(), Some(credential));
                let output = self.output.clone().filter(|output| output.ours && !output.edited);
                if let Some(output) = output {
                    assert_ne!(output.credential, *credential, "the Secret holds the new one by now");
                    let token = &self.tokens[output.token];
                    assert!(
                        self.is_valid(token) || self.now >= token.validity.not_after,
                        "and that is valid"
                    );
                }
                self.bound.remove(credential);
                self.access.status = revoked(&self.access.observed(memory), credential, self.now);
            }
            AccessStep::RevokeAll => {
                self.bound.clear();
                memory.progress = Progress::AllRevoked;
            }
            AccessStep::RemoveRights => {
                assert!(self.valid().is_empty());
                self.rights = None;
                memory.progress = Progress::RightsRemoved;
            }
            _ => {
                assert!(self.rights.is_none() && self.valid().is_empty());
                self.output = None;
                memory.output = OutputFact::Absent;
            }
        }
    }

    /// What holds at every revision.
    fn check(&self) {
        let mut by_credential: BTreeMap<&str, usize> = BTreeMap::new();
        for token in self.valid() {
            *by_credential.entry(&token.credential).or_default() += 1;
        }
        assert!(
            by_credential.values().all(|count| *count == 1),
            "one intent, one credential: {by_credential:?}"
        );
        let status = &self.access.status;
        let named = status.credential.iter().chain(status.intent.as_ref().map(|intent| &intent.credential));
        let named: Vec<&String> = named.chain(&status.superseded).collect();
        for token in self.valid() {
            assert!(self.access.deleting || named.contains(&&token.credential), "status names {token:?}");
        }
        // While the status names a credential and nobody else touched the Secret, that holds a valid one.
        let untouched = self.output.as_ref().filter(|output| output.ours && !output.edited);
        if let (Some(output), false) = (untouched, self.access.deleting) {
            let token = &self.tokens[output.token];
            assert!(self.is_valid(token) || self.now >= token.validity.not_after, "{token:?}");
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Reconcile(faults) => self.reconcile(faults),
            Event::Later(minutes) => self.now += SignedDuration::from_mins(*minutes),
            Event::Rotate => self.access.rotate(),
            Event::OtherSpec => self.access.generation += 1,
            Event::SecretDeleted => self.output = None,
            Event::SecretEdited => {
                let revision = self.next();
                if let Some(output) = &mut self.output {
                    (output.revision, output.edited) = (revision, true);
                }
            }
            Event::SecretImmutable => {
                let revision = self.next();
                if let Some(output) = &mut self.output {
                    (output.revision, output.immutable) = (revision, true);
                }
            }
            Event::SecretOfOthers => {
                let revision = self.next();
                let credential = String::new();
                self.output = Some(Output {
                    revision,
                    ours: false,
                    credential,
                    token: 0,
                    edited: false,
                    immutable: false,
                    endpoint: 0,
                });
            }
            Event::TargetAway(away) => self.reachable = !away,
            // The first one that answers is the one.
            Event::OtherCluster(elsewhere) => {
                self.elsewhere = *elsewhere && self.access.status.target.is_some();
            }
            Event::OtherAddress => self.endpoint += 1,
            Event::KeepsAll(keeps_all) => self.keeps_all = *keeps_all,
            Event::Suspend(suspend) => {
                self.access.generation += 1;
                self.access.spec.suspend = *suspend;
            }
        }
    }

    /// Nothing goes wrong any more.
    fn settle(&mut self) {
        (self.reachable, self.elsewhere, self.keeps_all, self.access.spec.suspend) =
            (true, false, false, false);
        for _ in 0..6 {
            self.now += SignedDuration::from_mins(31);
            self.reconcile(&[]);
        }
    }
}

fn digest(token: usize, edited: bool) -> String {
    format!("{token}{}", if edited { " edited" } else { "" })
}

const fn in_target(step: &AccessStep) -> bool {
    matches!(
        step,
        AccessStep::Identify
            | AccessStep::FindAccount
            | AccessStep::FindRights
            | AccessStep::TakeRights
            | AccessStep::ApplyRights
            | AccessStep::Request { .. }
            | AccessStep::Issue { .. }
            | AccessStep::Verify { .. }
            | AccessStep::VerifyWritten { .. }
            | AccessStep::Revoke { .. }
            | AccessStep::RevokeAll
            | AccessStep::RemoveRights
    )
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        1 => Just(Fault::CrashBefore),
        1 => Just(Fault::CrashAfter),
        1 => Just(Fault::AnswerLost),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => prop::collection::vec(fault(), 0..12).prop_map(Event::Reconcile),
        3 => (1_i64..40).prop_map(Event::Later),
        2 => Just(Event::Rotate),
        1 => Just(Event::OtherSpec),
        1 => Just(Event::SecretDeleted),
        1 => Just(Event::SecretEdited),
        1 => Just(Event::SecretImmutable),
        1 => Just(Event::SecretOfOthers),
        2 => any::<bool>().prop_map(Event::TargetAway),
        2 => any::<bool>().prop_map(Event::OtherCluster),
        1 => Just(Event::OtherAddress),
        1 => any::<bool>().prop_map(Event::KeepsAll),
        1 => any::<bool>().prop_map(Event::Suspend),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_right(events in prop::collection::vec(event(), 0..30), last in prop::collection::vec(fault(), 0..12)) {
        let mut state = DurableState::new();
        for event in &events {
            state.happen(event);
        }
        if state.output.as_ref().is_some_and(|output| !output.ours) {
            state.settle();
            prop_assert!(state.output.as_ref().is_some_and(|output| !output.ours), "what others made stays");
            state.output = None;
        }
        if state.output.as_ref().is_some_and(|output| output.immutable) {
            state.output = None;
        }
        state.settle();
        let valid = state.valid();
        let output = state.output.as_ref().unwrap();
        prop_assert!(!output.edited);
        prop_assert_eq!(valid.len(), 1);
        prop_assert_eq!(valid[0], &state.tokens[output.token]);
        prop_assert_eq!(state.access.status.credential.as_ref(), Some(&output.credential));
        prop_assert_eq!(output.endpoint, state.endpoint);
        prop_assert_eq!(&state.access.status.rotated, &state.access.spec.rotate);
        prop_assert!(state.access.status.superseded.is_empty() && state.access.status.intent.is_none());
        prop_assert_eq!(state.bound.keys().collect::<Vec<_>>(), [&output.credential]);
        prop_assert_eq!(state.rights, Some(state.access.generation));

        state.access.deleting = true;
        state.reconcile(&last);
        state.settle();
        prop_assert!(state.access.gone && state.output.is_none() && state.bound.is_empty() && state.rights.is_none());
    }
}

/// Ends the program before and after each step of the first credential, of a rotation, and of the deletion.
#[test]
fn a_crash_at_each_step_in_turn_ends_right() {
    for crash in [Fault::CrashBefore, Fault::CrashAfter, Fault::AnswerLost] {
        for at in 0..18 {
            let mut faults = vec![Fault::None; at];
            faults.push(crash);
            let mut state = DurableState::new();
            state.reconcile(&faults);
            state.settle();
            assert_eq!(state.valid().len(), 1, "{crash:?} at {at}");
            state.happen(&Event::Rotate);
            state.reconcile(&faults);
            state.settle();
            let output = state.output.clone().unwrap();
            assert_eq!(state.valid(), [&state.tokens[output.token]], "{crash:?} at {at}");
            state.access.deleting = true;
            state.reconcile(&faults);
            state.settle();
            assert!(
                state.access.gone && state.valid().is_empty() && state.output.is_none(),
                "{crash:?} at {at}"
            );
        }
    }
}
