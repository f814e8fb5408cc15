//! From a snapshot to a plan: the one place where Coppice decides.

mod decide;
mod intent;
pub mod lint;
mod status;
mod steady;

pub(crate) use decide::earlier;
pub(crate) use status::UNKNOWN;
pub use steady::{Steady, steady};

use coppice_api::config::GovernorStatus;
use coppice_api::manager::{Intent, NamespaceManagerStatus, Phase, PolicyStatus, ScaleDown, Verdict};
use coppice_api::{DecodeError, Reason};
use coppice_destination::{AllowList, Destination};
use jiff::Timestamp;

use crate::circumstances::Circumstances;
use crate::condition::{Evaluation, evaluate, whole_second_after};
use crate::digest::DigestComparison;
use crate::facts::NamespaceSnapshot;
use crate::governor::{self, Share};
use crate::limits::NamespaceLimits;
use crate::other_deletion::OtherDeletion;
use crate::pending_webhook::PendingWebhook;
use crate::record;
use crate::settings::{PlatformSettings, SpecRefusal};
use crate::steps;
use crate::valid_spec::{ValidPolicy, ValidSpec};
use coppice_quantity::time::ServerTime;

/// A manager, as observed.
#[derive(Clone, Debug)]
pub struct ManagerFacts<'a> {
    /// The namespace that it lives in and governs.
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
    pub spec: Result<&'a ValidSpec, &'a DecodeError>,
    /// Its status.
    pub status: &'a NamespaceManagerStatus,
}

/// What this process knows of an attempt to deliver a webhook.
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
        /// The error.
        error: String,
        /// Whether another attempt would fail in the same way.
        permanent: bool,
        /// How long the receiver asks to wait.
        retry_after: Option<std::time::Duration>,
        /// Whether it failed by the channel, as every message would, and not by this one: the outbox lets the channel rest.
        by_channel: bool,
    },
}

/// Where nothing is known of attempts to tell an owner.
pub static NO_DELIVERIES: std::collections::BTreeMap<String, Delivery> = std::collections::BTreeMap::new();

/// The inputs of a decision.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The manager.
    pub manager: ManagerFacts<'a>,
    /// Its namespace and what is in it; none while the namespace has not been seen.
    pub snapshot: Option<NamespaceSnapshot<'a>>,
    /// How many managers of its namespace come before it: older ones, and of those of the same second, the ones whose name
    /// is less.
    pub before: usize,
    /// What the platform allows.
    pub settings: &'a PlatformSettings,
    /// What the cluster manager of the namespace allows of that.
    pub limits: NamespaceLimits<'a>,
    /// The budget's ledger.
    pub budget: &'a GovernorStatus,
    /// How many namespaces are managed.
    pub managed: u64,
    /// Why the facts cannot be trusted at present, if so.
    pub stale: Option<(Reason, String)>,
    /// Who else deletes the namespace, if anybody does.
    pub other: Option<OtherDeletion>,
    /// Which webhook of another manager in the namespace is under way, if one is.
    pub webhook: Option<PendingWebhook>,
    /// The attempt at the webhook of the intent in status.
    pub delivery: Delivery,
}

impl<'a> Observed<'a> {
    /// What its steps depend on besides the conditions of its policies.
    fn circumstances(&'a self, time: ServerTime) -> Circumstances<'a> {
        let Self { settings, limits, budget, managed, stale, other, webhook, .. } = self;
        Circumstances {
            settings,
            budget,
            share: Share::Managers(*managed),
            stale: stale.as_ref(),
            other: other.as_ref(),
            webhook: webhook.as_ref(),
            unknown_limits: limits.why_unknown(),
            time,
        }
    }
}

/// What to do: first make `status` durable, then carry out `step`, and evaluate again at `next_check` at the latest.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The status that the manager is to have. Equal to the observed one when there is nothing new to say.
    pub status: NamespaceManagerStatus,
    /// What to do once that status is durable. Always the step of an intent that already was in the observed status.
    pub step: Option<Step>,
    /// When time alone can change the plan.
    pub next_check: Option<Timestamp>,
    /// The Events to publish once the status is durable.
    pub events: Vec<PlannedEvent>,
}

/// How many managers of a namespace are followed, the oldest first. Each costs the operator memory and evaluations; a
/// namespace needs a few.
pub const MAX_MANAGERS: usize = 20;

/// An effect on the cluster. Its details are in the intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Delete the namespace with this uid, if a fresh read gives this effect again.
    Delete(Intent),
    /// Scale down what the policy selects, if a fresh read gives this effect again.
    ScaleDown(Intent, ScaleDown),
    /// Make one attempt at delivering the webhook.
    Webhook(Intent, WebhookMessage),
    /// Restore the original replicas that status records.
    Wake(Intent),
}

impl Step {
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

/// What an attempt at a webhook sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookMessage {
    /// Where to.
    pub destination: Destination,
    /// Where it may go, besides what the settings say of it; none if anywhere.
    pub limits: Option<AllowList>,
    /// The same for every attempt.
    pub body: Vec<u8>,
}

/// An Event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedEvent {
    /// Whether the Event is a warning.
    pub warning: bool,
    /// What happened.
    pub reason: Reason,
    /// The message.
    pub message: String,
}

/// Decides. Depends on nothing but its arguments.
pub fn plan(observed: &Observed<'_>, now: ServerTime) -> Plan {
    let mut plan = plan_untruncated(observed, now);
    record::truncate_texts(&mut plan.status);
    debug_assert_eq!(lint::lint(observed, now, &plan), Vec::new(), "{plan:#?}");
    plan
}

/// The plan, with messages of any length in its status.
fn plan_untruncated(observed: &Observed<'_>, now: ServerTime) -> Plan {
    let mut builder = PlanBuilder::new(observed, now);
    if observed.manager.terminating {
        // The manager is being deleted: its policies no longer apply.
        return builder.unchanged();
    }
    builder.status.observed_generation = Some(observed.manager.generation);
    let spec = match observed.manager.spec {
        Ok(spec) => spec,
        Err(why) => {
            let refusal = SpecRefusal { reason: Reason::InvalidSpec, message: why.to_string() };
            return builder.refused(&refusal);
        }
    };
    let Some(snapshot) = &observed.snapshot else {
        return builder.waiting_for_namespace();
    };
    spec.digest().clone_into(&mut builder.digest);
    let spec = &*observed.limits.apply(spec);
    if let Some(intent) = observed.manager.status.steps.intent.clone() {
        return intent::resume(builder, spec, snapshot, &intent);
    }
    decide::decide(builder, spec, snapshot)
}

/// A plan in the making.
struct PlanBuilder<'a> {
    observed: &'a Observed<'a>,
    time: ServerTime,
    /// The earliest possible current time.
    now: Timestamp,
    digest: String,
    status: NamespaceManagerStatus,
    next_check: Option<Timestamp>,
    events: Vec<PlannedEvent>,
    facts_unknown: Option<(Reason, String)>,
}

impl<'a> PlanBuilder<'a> {
    fn new(observed: &'a Observed<'a>, time: ServerTime) -> Self {
        Self {
            observed,
            time,
            now: time.now(),
            digest: String::new(),
            status: observed.manager.status.clone(),
            next_check: None,
            events: Vec::new(),
            facts_unknown: None,
        }
    }

    fn circumstances(&self) -> Circumstances<'a> {
        self.observed.circumstances(self.time)
    }

    /// Evaluates every policy and records the verdicts.
    fn evaluate(&mut self, spec: &ValidSpec, snapshot: &NamespaceSnapshot<'_>) -> Vec<Evaluation> {
        let stored = self.status.policies_digest.as_deref();
        let same = stored.is_some_and(|stored| self.compare(stored) == DigestComparison::Same);
        let before = std::mem::take(&mut self.status.policies);
        let mut evaluations = Vec::with_capacity(spec.policies().len());
        for policy in spec.policies() {
            let previous = before.iter().find(|p| same && p.name == policy.name);
            let evaluation = self.evaluate_policy(policy, spec, snapshot, previous);
            self.check_no_later_than(evaluation.next_check);
            if evaluation.verdict == Verdict::Unknown {
                self.facts_unknown.get_or_insert((evaluation.reason, evaluation.message.clone()));
            }
            self.status.policies.push(self.policy_status(policy, &evaluation, previous));
            evaluations.push(evaluation);
        }
        // A digest of an older form stays: an upgrade alone causes no write.
        if !same {
            self.status.policies_digest = Some(self.digest.clone());
        }
        evaluations
    }

    fn evaluate_policy(
        &self,
        policy: &ValidPolicy,
        spec: &ValidSpec,
        snapshot: &NamespaceSnapshot<'_>,
        previous: Option<&PolicyStatus>,
    ) -> Evaluation {
        // A wrong clock cannot measure how long something has held.
        if let Some((reason, message)) =
            self.circumstances().unreliable_facts().filter(|_| policy.condition.has_settle())
        {
            return Evaluation::unknown(reason, message);
        }
        let evaluation = evaluate(policy, spec, snapshot, previous, self.now);
        // A condition that waits for a date that may have come is unknown, too.
        let waits_for = evaluation.next_check.filter(|_| evaluation.verdict == Verdict::False);
        match self.time.uncertainty().filter(|_| waits_for.is_some_and(|at| self.time.may_have_passed(at))) {
            Some(uncertainty) => {
                let (reason, message) = governor::clock_skew(uncertainty);
                Evaluation {
                    due: evaluation.due,
                    next_check: waits_for,
                    ..Evaluation::unknown(reason, message)
                }
            }
            None => Evaluation {
                next_check: evaluation.next_check.map(|at| self.time.when_it_may_have_passed(at)),
                ..evaluation
            },
        }
    }

    /// How a digest from status relates to the policies.
    fn compare(&self, stored: &str) -> DigestComparison {
        self.observed.manager.spec.map_or(DigestComparison::NotUnderstood, |spec| spec.compare(stored))
    }

    fn policy_status(
        &self,
        policy: &ValidPolicy,
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

    fn check_no_later_than(&mut self, at: Option<Timestamp>) {
        self.next_check = match (self.next_check, at) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    fn note(&mut self, warning: bool, reason: Reason, message: String) {
        self.events.push(PlannedEvent { warning, reason, message });
    }

    /// Withdraws a notice that no longer announces anything.
    fn withdraw_notice(&mut self, why: &str) {
        steps::withdraw_notice(&mut self.status.steps, why, &mut self.events);
    }

    /// Leaves the manager as it is.
    fn unchanged(self) -> Plan {
        Plan {
            status: self.observed.manager.status.clone(),
            step: None,
            next_check: None,
            events: Vec::new(),
        }
    }

    fn waiting_for_namespace(mut self) -> Plan {
        let (reason, message) = self.observed.stale.clone().unwrap_or_else(|| {
            let namespace = self.observed.manager.namespace;
            (Reason::NotSynced, format!("namespace {namespace} has not been seen yet"))
        });
        self.facts_unknown = Some((reason, message.clone()));
        // The phase stays, and with it the spec that it is of; without one before this is said of the first.
        self.status.observed_generation =
            self.observed.manager.status.observed_generation.or(self.status.observed_generation);
        let phase = self.status.phase.unwrap_or(Phase::Active);
        self.finish_waiting(phase, reason, message)
    }

    /// Why the manager cannot be followed, if so.
    fn refusal(&self, spec: &ValidSpec, snapshot: &NamespaceSnapshot<'_>) -> Option<SpecRefusal> {
        let name = &snapshot.namespace.name;
        let too_many = || SpecRefusal {
            reason: Reason::TooManyManagers,
            message: format!(
                "namespace {name} has {MAX_MANAGERS} older NamespaceManagers, and only so many of a namespace are \
                 followed: delete one of them, or write the policies into one of them"
            ),
        };
        let refusal = (self.observed.before >= MAX_MANAGERS).then(too_many);
        let Observed { settings, limits, .. } = self.observed;
        refusal
            .or_else(|| settings.refusal(snapshot.namespace, spec))
            .or_else(|| limits.refusal(snapshot.namespace, spec))
    }

    /// Whether it was refused, by limits that are not known at present.
    fn may_still_be_refused(&self) -> bool {
        let Observed { manager, limits, .. } = self.observed;
        limits.why_unknown().is_some()
            && manager.status.phase == Some(Phase::Refused)
            && manager.status.observed_generation == Some(manager.generation)
    }

    fn refused(mut self, refusal: &SpecRefusal) -> Plan {
        self.withdraw_notice(&refusal.message);
        let before = self.observed.manager.status;
        let known = before.phase == Some(Phase::Refused)
            && before.next.as_ref().is_some_and(|n| n.message == refusal.message);
        if !known {
            self.note(true, refusal.reason, refusal.message.clone());
        }
        self.finish_waiting(Phase::Refused, refusal.reason, refusal.message.clone())
    }
}
