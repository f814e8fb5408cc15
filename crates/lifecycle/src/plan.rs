//! From what was observed to what to do: the one place where Coppice decides.

mod decide;
mod intent;
mod rest;
mod status;

pub use rest::{Rest, rest};

use coppice_api::config::GovernorStatus;
use coppice_api::manager::{
    Intent, NamespaceManagerSpec, NamespaceManagerStatus, Phase, Policy, PolicyStatus, Verdict,
};
use coppice_api::{Reason, manager};
use jiff::Timestamp;

use crate::condition::{Evaluation, evaluate, whole_second_after};
use crate::digest::Comparison;
use crate::facts::World;
use crate::law::{Law, Refusal};
use crate::record;
use crate::time::ServerTime;
use crate::wishes::Wishes;

/// A manager, as observed.
#[derive(Clone, Debug)]
pub struct ManagerFacts<'a> {
    /// The namespace that it lives in and is about.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted itself.
    pub terminating: bool,
    /// Its spec, or why it cannot be understood.
    pub spec: Result<&'a Wishes, &'a str>,
    /// Its status.
    pub status: &'a NamespaceManagerStatus,
}

/// What is known of an attempt to deliver a webhook, by this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Nothing is under way.
    #[default]
    None,
    /// An attempt is under way.
    InFlight,
    /// The receiver answered with success; what it answered.
    Delivered(String),
    /// The attempt failed.
    Failed {
        /// How.
        error: String,
        /// Whether another attempt cannot end otherwise.
        permanent: bool,
        /// How long the receiver asks to be left alone.
        retry_after: Option<std::time::Duration>,
    },
}

/// Everything that a decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The manager.
    pub manager: ManagerFacts<'a>,
    /// Its namespace and what is in it; none while the namespace has not been seen.
    pub world: Option<World<'a>>,
    /// How many managers of its namespace come before it: older ones, and of those of the same second, the ones whose name
    /// is less.
    pub before: usize,
    /// What the platform allows.
    pub law: &'a Law,
    /// The budget's ledger.
    pub ledger: &'a GovernorStatus,
    /// How many namespaces are managed.
    pub managed: u64,
    /// Why the facts that every decision rests on cannot be believed at present, if so.
    pub stale: Option<(Reason, String)>,
    /// The attempt at the webhook of the intent in status.
    pub delivery: Delivery,
}

/// What to do: first make `status` durable, then carry out `effect`, and look again at `look_at` at the latest.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The status that the manager shall have. Equal to the observed one when there is nothing new to say.
    pub status: NamespaceManagerStatus,
    /// What to do once that status is durable. Always the step of an intent that already was in the observed status.
    pub effect: Option<Effect>,
    /// When time alone can change the plan.
    pub look_at: Option<Timestamp>,
    /// What to tell people once the status is durable.
    pub notes: Vec<Note>,
}

/// How many managers of a namespace are followed, the oldest first. Each costs the operator memory and looks; a namespace
/// needs a few.
pub const MAX_MANAGERS: usize = 20;

/// A step in the world. What it is about is in the intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Delete the namespace with this uid, if a fresh look gives this effect again.
    Delete(Intent),
    /// Scale down what the policy selects, if a fresh look gives this effect again.
    ScaleDown(Intent, manager::ScaleDown),
    /// Make one attempt at delivering the webhook.
    Webhook(Intent, Policy),
    /// Give workloads back the replicas that status remembers.
    Wake(Intent),
}

impl Effect {
    /// The intent that the effect carries out.
    pub const fn intent(&self) -> &Intent {
        match self {
            Self::Delete(intent)
            | Self::ScaleDown(intent, _)
            | Self::Webhook(intent, _)
            | Self::Wake(intent) => intent,
        }
    }
}

/// Something to tell people: an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether somebody should look at it.
    pub warning: bool,
    /// What happened.
    pub reason: Reason,
    /// The same for people.
    pub message: String,
}

/// Decides. Depends on nothing but its arguments.
pub fn plan(observed: &Observed<'_>, now: ServerTime) -> Plan {
    let mut plan = unbounded(observed, now);
    record::bound(&mut plan.status);
    plan
}

/// The plan, with texts of any length in its status.
fn unbounded(observed: &Observed<'_>, now: ServerTime) -> Plan {
    let mut draft = Draft::new(observed, now);
    if observed.manager.terminating {
        // Whatever it wished for, it does no longer; there is nobody left to tell.
        return draft.unchanged();
    }
    draft.status.observed_generation = Some(observed.manager.generation);
    let spec = match observed.manager.spec {
        Ok(spec) => spec,
        Err(why) => {
            let refusal = Refusal { reason: Reason::InvalidSpec, message: why.to_owned() };
            return draft.refused(&refusal);
        }
    };
    let Some(world) = &observed.world else {
        return draft.waiting_for_namespace();
    };
    spec.digest().clone_into(&mut draft.digest);
    if let Some(intent) = observed.manager.status.intent.clone() {
        return intent::carry_on(draft, spec, world, &intent);
    }
    decide::decide(draft, spec, world)
}

fn settles(policy: &Policy) -> bool {
    policy.when.pods_succeed.as_ref().is_some_and(|pods| !pods.settle.is_zero())
}

/// A plan in the making.
struct Draft<'a> {
    observed: &'a Observed<'a>,
    time: ServerTime,
    /// The earliest that it can be.
    now: Timestamp,
    digest: String,
    status: NamespaceManagerStatus,
    look_at: Option<Timestamp>,
    notes: Vec<Note>,
    facts_unknown: Option<(Reason, String)>,
}

impl<'a> Draft<'a> {
    fn new(observed: &'a Observed<'a>, time: ServerTime) -> Self {
        Self {
            observed,
            time,
            now: time.now(),
            digest: String::new(),
            status: observed.manager.status.clone(),
            look_at: None,
            notes: Vec::new(),
            facts_unknown: None,
        }
    }

    /// Evaluates every policy and records the verdicts.
    fn evaluate(&mut self, spec: &NamespaceManagerSpec, world: &World<'_>) -> Vec<Evaluation> {
        let stored = self.status.policies_digest.as_deref();
        let same = stored.is_some_and(|stored| self.compare(stored) == Comparison::Same);
        let before = std::mem::take(&mut self.status.policies);
        let mut evaluations = Vec::with_capacity(spec.policies.len());
        for policy in &spec.policies {
            let previous = before.iter().find(|p| same && p.name == policy.name);
            let evaluation = self.judge(policy, spec, world, previous);
            self.look_no_later_than(evaluation.look_at);
            if evaluation.verdict == Verdict::Unknown {
                self.facts_unknown.get_or_insert((evaluation.reason, evaluation.message.clone()));
            }
            self.status.policies.push(self.policy_status(policy, &evaluation, previous));
            evaluations.push(evaluation);
        }
        // One of an older form stays: an upgrade by itself is nothing to write.
        if !same {
            self.status.policies_digest = Some(self.digest.clone());
        }
        evaluations
    }

    fn judge(
        &self,
        policy: &Policy,
        spec: &NamespaceManagerSpec,
        world: &World<'_>,
        previous: Option<&PolicyStatus>,
    ) -> Evaluation {
        // How long something has held is not known by a clock that is wrong.
        if let Some((reason, message)) = self.blind().filter(|_| settles(policy)) {
            return Evaluation::unknown(reason, message);
        }
        let evaluation = evaluate(policy, spec, world, previous, self.now);
        // What waits for a date that may have come is not known, either.
        let waits_for = evaluation.look_at.filter(|_| evaluation.verdict == Verdict::False);
        match self.time.doubt().filter(|_| waits_for.is_some_and(|at| self.time.may_have_come(at))) {
            Some(doubt) => {
                let (reason, message) = doubt.tell();
                Evaluation { due: evaluation.due, look_at: waits_for, ..Evaluation::unknown(reason, message) }
            }
            None => Evaluation {
                look_at: evaluation.look_at.map(|at| self.time.when_it_may_have_come(at)),
                ..evaluation
            },
        }
    }

    /// How a digest from status relates to the policies.
    fn compare(&self, stored: &str) -> Comparison {
        self.observed.manager.spec.map_or(Comparison::NotUnderstood, |spec| spec.compare(stored))
    }

    fn policy_status(
        &self,
        policy: &Policy,
        evaluation: &Evaluation,
        previous: Option<&PolicyStatus>,
    ) -> PolicyStatus {
        let unchanged = previous.filter(|p| p.result == evaluation.verdict).map(|p| p.since);
        PolicyStatus {
            name: policy.name.clone(),
            result: evaluation.verdict,
            reason: evaluation.reason.to_string(),
            message: evaluation.message.clone(),
            since: evaluation.since.or(unchanged).unwrap_or_else(|| whole_second_after(self.now)),
            due: evaluation.due,
        }
    }

    fn look_no_later_than(&mut self, at: Option<Timestamp>) {
        self.look_at = match (self.look_at, at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    fn note(&mut self, warning: bool, reason: Reason, message: String) {
        self.notes.push(Note { warning, reason, message });
    }

    /// Withdraws a notice that no longer announces anything.
    fn withdraw_notice(&mut self, why: &str) {
        if let Some(notice) = self.status.notice.take() {
            let message = format!(
                "the deletion announced for {:.0} (policy {:?}) will not happen then: {why}",
                notice.not_before, notice.policy
            );
            self.note(false, Reason::NoticeWithdrawn, message);
        }
    }

    /// Leaves the manager as it is.
    fn unchanged(self) -> Plan {
        Plan { status: self.observed.manager.status.clone(), effect: None, look_at: None, notes: Vec::new() }
    }

    fn waiting_for_namespace(mut self) -> Plan {
        let (reason, message) = self.observed.stale.clone().unwrap_or_else(|| {
            let namespace = self.observed.manager.namespace;
            (Reason::NotSynced, format!("namespace {namespace} has not been seen yet"))
        });
        self.facts_unknown = Some((reason, message.clone()));
        let phase = self.status.phase.unwrap_or(Phase::Active);
        self.waits(phase, reason, message)
    }

    /// Why the manager cannot be followed, if so.
    fn refusal(&self, spec: &NamespaceManagerSpec, world: &World<'_>) -> Option<Refusal> {
        let name = &world.namespace.name;
        let too_many = || Refusal {
            reason: Reason::TooManyManagers,
            message: format!(
                "namespace {name} has {MAX_MANAGERS} older NamespaceManagers, and only so many of a namespace are \
                 followed: delete one of them, or write the policies into one of them"
            ),
        };
        let refusal = (self.observed.before >= MAX_MANAGERS).then(too_many);
        refusal.or_else(|| self.observed.law.refusal(world.namespace, spec))
    }

    fn refused(mut self, refusal: &Refusal) -> Plan {
        self.withdraw_notice(&refusal.message);
        let before = self.observed.manager.status;
        let known = before.phase == Some(Phase::Refused)
            && before.next.as_ref().is_some_and(|n| n.message == refusal.message);
        if !known {
            self.note(true, refusal.reason, refusal.message.clone());
        }
        self.waits(Phase::Refused, refusal.reason, refusal.message.clone())
    }
}
