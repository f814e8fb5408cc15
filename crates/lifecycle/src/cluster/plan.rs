//! What becomes of one namespace under the cluster managers: the one place where that is decided.

mod announced;
mod by_annotations;
mod counted;
mod decide;
mod expiry;
mod fired;
mod governed;
mod health;
mod limits;
pub mod lint;
mod not_governed;
mod observed;
mod owner_messages;
mod pods;
mod ready;
mod superseded;
mod text;
mod wake;
mod webhook;

use std::collections::BTreeMap;

use coppice_api::condition::{self, READY};
use coppice_api::config::GovernorStatus;
use coppice_api::managed_namespace::{GoverningManager, NextStep};
use coppice_api::manager::ScaleDown;
use coppice_api::steps::{Action, Intent};
use coppice_api::{DecodeError, ManagedNamespaceSpec, ManagedNamespaceStatus, NamespacePhase, Reason};
use coppice_quantity::Duration;
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;

use super::census::Census;
use super::phase::phase;
use super::selection::{ClusterManagerFacts, SelectingManager, contest};
use super::{AddressKey, SuccessorFacts, ttl_of};
use crate::circumstances::Circumstances;
use crate::condition::{later, whole_second_after};
use crate::facts::{Fact, JobFacts, NamespaceFacts, ObjectSlice, PodFacts};
use crate::governor::Share;
use crate::message::{MessagesWhenGone, OwnerMessage};
use crate::other_deletion::OtherDeletion;
use crate::pending_webhook::PendingWebhook;
use crate::plan::{Delivery, PlannedEvent, WebhookMessage};
use crate::record;
use crate::settings::PlatformSettings;
use crate::steps;
pub(super) use fired::has_fired;
use governed::{Governed, Judged};
pub use health::HealthFacts;
use owner_messages::NotificationTargets;

/// So long after something was due nothing is said of annotations that are being read.
const LISTED: Duration = Duration::from_secs(30);

/// The record of a namespace, as observed.
#[derive(Clone, Copy, Debug)]
pub struct RecordFacts<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted itself.
    pub terminating: bool,
    /// Its spec, or why it cannot be understood.
    pub spec: Result<&'a ManagedNamespaceSpec, &'a DecodeError>,
    /// Its status.
    pub status: &'a ManagedNamespaceStatus,
}

/// The inputs of a decision about one namespace.
#[derive(Clone, Debug)]
pub struct ClusterObserved<'a> {
    /// The namespace, or why it cannot be understood.
    pub namespace: Result<&'a NamespaceFacts, (Reason, String)>,
    /// Its record; none if there is none.
    pub record: Option<RecordFacts<'a>>,
    /// Every cluster manager.
    pub managers: &'a [ClusterManagerFacts<'a>],
    /// Its workloads.
    pub health: HealthFacts<'a>,
    /// Its pods; looked at only where a policy waits for them.
    pub pods: Fact<ObjectSlice<'a, PodFacts>>,
    /// Its Jobs; as its pods.
    pub jobs: Fact<ObjectSlice<'a, JobFacts>>,
    /// When anything was heard of pods and Jobs last: what has happened since may not be known.
    pub pods_heard: Timestamp,
    /// What the platform allows.
    pub settings: &'a PlatformSettings,
    /// The budget's ledger.
    pub budget: &'a GovernorStatus,
    /// How many namespaces are managed.
    pub managed: u64,
    /// What there is for each cluster manager; none if it has not been counted.
    pub census: Option<&'a Census>,
    /// Why the facts cannot be trusted at present, if so.
    pub stale: Option<(Reason, String)>,
    /// The namespace that has taken its place, if one has; looked at only where its manager compares namespaces.
    pub successor: SuccessorFacts<'a>,
    /// Which manager in the namespace deletes it, if one does.
    pub other: Option<OtherDeletion>,
    /// Which webhook of a manager in the namespace is under way, if one is.
    pub webhook: Option<PendingWebhook>,
    /// The attempt at the webhook of the intent in the record.
    pub delivery: Delivery,
    /// The attempts to tell the owner, by the keys of the notices in the record.
    pub deliveries: &'a BTreeMap<String, Delivery>,
    /// Tells recipients in the record apart; none if there is no signing key at present.
    pub address_key: Option<&'a AddressKey>,
}

/// What to do now: one step, after which everything is decided again.
#[derive(Clone, Debug, PartialEq)]
pub enum NamespaceStep {
    /// Nothing: the record says why.
    Nothing,
    /// Create the record: before it is there nothing is decided.
    Create,
    /// Write the status of the record.
    WriteStatus(Box<ManagedNamespaceStatus>),
    /// Delete the namespace with this uid, if a fresh read gives this step again. The intent is that of the observed status.
    Delete(Box<Intent>),
    /// Scale these workloads down, if a fresh read gives this step again. The intent is that of the observed status.
    ScaleDown(Box<Intent>, ScaleDown),
    /// Make one attempt at delivering the webhook. The intent is that of the observed status.
    Webhook(Box<Intent>, WebhookMessage),
    /// Give workloads their replicas back. The intent is that of the observed status.
    Wake(Box<Intent>),
}

/// What to do about a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespacePlan {
    /// What to do now.
    pub step: NamespaceStep,
    /// When time alone can change the plan.
    pub next_check: Option<Timestamp>,
    /// The Events to publish once the status is durable.
    pub events: Vec<PlannedEvent>,
    /// Whether the step that has been decided is to be carried out, also where something else is written first.
    pub goes_on: bool,
    /// What the owner is to be notified of now, besides the step. It is in the record already.
    pub messages: Vec<OwnerMessage>,
    /// What the owner is to be notified of once the namespace is gone, where the step deletes it.
    pub notification: MessagesWhenGone,
}

impl NamespacePlan {
    const NOTHING: Self = Self {
        step: NamespaceStep::Nothing,
        next_check: None,
        events: Vec::new(),
        goes_on: false,
        messages: Vec::new(),
        notification: MessagesWhenGone { messages: Vec::new(), superseded: Vec::new(), working_hours: None },
    };
}

/// Decides about one namespace. Depends on nothing but its arguments.
pub fn plan(observed: &ClusterObserved<'_>, time: ServerTime) -> NamespacePlan {
    let plan = plan_unchecked(observed, time);
    debug_assert_eq!(lint::lint(observed, time, &plan), Vec::new(), "{plan:#?}");
    plan
}

fn plan_unchecked(observed: &ClusterObserved<'_>, time: ServerTime) -> NamespacePlan {
    let Some(record) = observed.record else { return without_record(observed) };
    let mut builder = Builder::new(observed, record, time);
    let ended = builder.record_attempt();
    builder.record_deliveries();
    let namespace = match &observed.namespace {
        Ok(namespace) => *namespace,
        Err((reason, message)) => {
            builder.set_phase(NamespacePhase::Unknown, None);
            return builder.not_known(*reason, message.clone());
        }
    };
    if record.terminating {
        return builder.record_terminating(namespace);
    }
    builder.about(namespace);
    if namespace.terminating {
        return builder.terminating(namespace);
    }
    if builder.status.phase == Some(NamespacePhase::Terminating) {
        // It is being deleted: a cache that is behind says otherwise.
        return NamespacePlan::NOTHING;
    }
    if builder.wakes() && !ended {
        return builder.wake(namespace);
    }
    let next_attempt = builder.status.steps.intent.as_ref().and_then(|intent| intent.next_attempt);
    builder.check_no_later_than(next_attempt.filter(|at| builder.now < *at));
    if let Some((reason, message)) = builder.circumstances().unreliable_facts() {
        return builder.unreliable(reason, message);
    }
    builder.status.observed_generation = Some(record.generation);
    let spec = match record.spec {
        Ok(spec) => spec,
        Err(why) => return builder.not_known(Reason::InvalidSpec, why.to_string()),
    };
    let manager = match contest(observed.managers.iter().copied(), namespace) {
        Ok(contest) => contest.winner,
        Err(unknown) if unknown.reason() == Reason::AnnotationsNotRead => {
            return builder.not_read(unknown.to_string());
        }
        Err(unknown) => return builder.not_known(unknown.reason(), unknown.to_string()),
    };
    let Some(manager) = manager else { return builder.not_governed() };
    let ttl = match manager.spec.ttl.as_ref().map(|ttl| ttl_of(ttl, namespace)).transpose() {
        Ok(ttl) => ttl,
        Err(not_read) => {
            let message = format!("when the namespace expires is not known: {not_read}");
            return builder.not_read(message);
        }
    };
    let since = builder.set_manager(&manager);
    builder.say_ttl(ttl.as_ref(), &manager);
    builder.say_owner(&manager, namespace);
    builder.look_at_health(manager.spec.health.as_ref());
    builder.look_at_pods(manager.spec, namespace);
    let superseded = builder.say_superseded(&manager, namespace);
    builder.say_limits(&manager, namespace);
    let (hold_end, extended) = (builder.hold_end(), builder.extended());
    let running = ttl.as_ref().map(|ttl| ttl.running(builder.status.ttl.as_ref()));
    let known = (Some(&builder.status), superseded);
    let finding = phase(manager.spec, (namespace, running), extended, known, builder.now);
    builder.set_phase(finding.phase, finding.since);
    builder.say_expiry((finding.expires_at, extended), ttl.as_ref().zip(running), &manager);
    builder.check_no_later_than(finding.expires_at.filter(|at| builder.now < *at));
    let settled_at = later(since, manager.spec.settle);
    let (failing, successor) = (builder.failing_text(), builder.status.superseded_by.clone());
    let now = builder.now;
    let governed =
        Governed { manager, namespace, spec, hold_end, since, settled_at, finding, failing, successor, now };
    builder.targets = NotificationTargets::of(&builder, &governed);
    if governed.manager.spec.notify.is_none() {
        builder.give_up_messages("the cluster manager notifies nobody any more");
    }
    builder.say_within_limits(&governed, ttl.as_ref());
    builder.clear_fired(&governed);
    builder.note_observed(&governed);
    match builder.status.steps.intent.clone() {
        Some(intent) => builder.resume(&governed, &intent),
        None if ended => builder.after_attempt(&governed),
        None => builder.decide(&governed),
    }
}

/// A namespace that is governed gets a record; nothing else is done without one.
fn without_record(observed: &ClusterObserved<'_>) -> NamespacePlan {
    let Ok(namespace) = observed.namespace else { return NamespacePlan::NOTHING };
    if namespace.terminating || observed.stale.is_some() {
        return NamespacePlan::NOTHING;
    }
    let managers = observed.managers.iter().copied();
    match contest(managers, namespace).map(|contest| contest.winner) {
        Ok(Some(_)) => NamespacePlan { step: NamespaceStep::Create, ..NamespacePlan::NOTHING },
        Ok(None) | Err(_) => NamespacePlan::NOTHING,
    }
}

/// A plan in the making.
#[derive(Clone)]
struct Builder<'a> {
    observed: &'a ClusterObserved<'a>,
    record: RecordFacts<'a>,
    time: ServerTime,
    /// The earliest possible current time.
    now: Timestamp,
    status: ManagedNamespaceStatus,
    next_check: Option<Timestamp>,
    events: Vec<PlannedEvent>,
    /// What of its health is not known, if so.
    unknown: Option<(Reason, String)>,
    /// What was seen of the pods, for each policy that waits for them and is true.
    evidence: BTreeMap<String, BTreeMap<String, String>>,
    /// Who is notified, if somebody is.
    targets: Option<NotificationTargets<'a>>,
}

impl<'a> Builder<'a> {
    fn new(observed: &'a ClusterObserved<'a>, record: RecordFacts<'a>, time: ServerTime) -> Self {
        Self {
            observed,
            record,
            time,
            now: time.now(),
            status: record.status.clone(),
            next_check: None,
            events: Vec::new(),
            unknown: None,
            evidence: BTreeMap::new(),
            targets: None,
        }
    }

    /// What a step depends on besides the condition of its policy.
    fn circumstances(&self) -> Circumstances<'a> {
        let ClusterObserved { settings, budget, managed, stale, other, webhook, .. } = self.observed;
        Circumstances {
            settings,
            budget,
            share: Share::Managers(*managed),
            stale: stale.as_ref(),
            other: other.as_ref(),
            webhook: webhook.as_ref(),
            unknown_limits: None,
            time: self.time,
        }
    }

    /// Writes down which namespace this is about. For another one everything begins again; its intent is given up.
    fn about(&mut self, namespace: &NamespaceFacts) {
        let status = &mut self.status;
        if status.namespace_uid.as_ref().is_some_and(|uid| *uid != namespace.uid) {
            (status.manager, status.phase, status.phase_since) = (None, None, None);
            (status.superseded_by, status.ready_at) = (None, None);
            (status.limits, status.held, status.expires_at) = (None, None, None);
            status.past_phases.clear();
            status.expiry_changes.clear();
            status.fired.clear();
            status.would_have_acted.clear();
            status.observed_before.clear();
            status.notices.clear();
            status.steps.notice = None;
        }
        status.namespace_uid = Some(namespace.uid.clone());
    }

    /// Writes down which manager governs. Under another one, or the same with another spec, everything begins again.
    /// Returns since when it governs: `settle` counts from then.
    fn set_manager(&mut self, manager: &SelectingManager<'_>) -> Timestamp {
        if let Some(known) = &mut self.status.manager {
            // By one change a spec that is the same was suspended, or is not any more. By two it may have been another.
            let seen = manager.generation <= known.generation.saturating_add(1);
            if manager.is(known) && seen {
                // A cache may be behind what was read before.
                known.generation = known.generation.max(manager.generation);
                return known.since;
            }
            let other = known.uid != manager.uid;
            let counts_on = other || known.digest == manager.spec.digest();
            if other {
                self.status.fired.clear();
                let intent = self.status.steps.intent.clone();
                if let Some(webhook) = intent.filter(|intent| intent.action == Action::Webhook) {
                    // It would speak for the other one.
                    self.count_given_up(&webhook);
                    let why = "another cluster manager governs the namespace";
                    steps::abandon(&mut self.status.steps, &webhook, why, &mut self.events);
                }
            }
            if counts_on {
                self.remember_observed();
            }
            self.withdraw_notice("another cluster manager governs the namespace, or its spec has changed");
        }
        self.clear_health();
        self.clear_superseded();
        self.status.policies.clear();
        self.status.would_have_acted.clear();
        self.status.ttl = None;
        let since = whole_second_after(self.now);
        let digest = manager.spec.digest().to_owned();
        let (name, uid) = (manager.name.to_owned(), manager.uid.to_owned());
        let generation = manager.generation;
        self.status.manager = Some(GoverningManager { name, uid, digest, generation, since });
        since
    }

    /// The namespace is being deleted: what was to be done to it is done.
    fn terminating(mut self, namespace: &NamespaceFacts) -> NamespacePlan {
        self.set_phase(NamespacePhase::Terminating, None);
        self.status.steps.notice = None;
        let intent = self.status.steps.intent.take().filter(|intent| intent.uid == namespace.uid);
        if let Some(other) = intent.as_ref().filter(|intent| intent.action != Action::Delete) {
            let why = "the namespace is being deleted";
            steps::abandon(&mut self.status.steps, other, why, &mut self.events);
        }
        if let Some(intent) = intent.filter(|intent| intent.action == Action::Delete) {
            let message = record::ALREADY_GONE;
            let done = (Reason::NamespaceDeleted, message.to_owned());
            record::complete(&mut self.status.steps, &intent, done.0, done.1, self.now);
            let note = format!("policy {:?}: {message} ({})", intent.policy, record::why(&intent));
            self.note(false, Reason::NamespaceDeleted, note);
        }
        self.waiting(Reason::NamespaceTerminating, "the namespace is being deleted".to_owned())
    }

    /// Somebody deletes the record, and finalizers of others keep it, perhaps for ever: nothing is decided by it, and another one
    /// cannot be created.
    fn record_terminating(mut self, namespace: &NamespaceFacts) -> NamespacePlan {
        if namespace.terminating {
            // What is written now is lost.
            return NamespacePlan::NOTHING;
        }
        self.next_check = None;
        let message = "the record is being deleted, and a finalizer keeps it: nothing is done before it is gone and another one is there";
        self.waiting(Reason::RecordTerminating, message.to_owned())
    }

    /// Caches are behind, or the clocks differ: nothing is decided. Where something would have been done, the record says
    /// why it is not; what others say stays true.
    fn unreliable(mut self, reason: Reason, message: String) -> NamespacePlan {
        self.pause_health();
        let steps = &self.status.steps;
        let next = self.status.next.as_ref();
        let acts = |next: &&NextStep| next.action.is_some() && next.reason != Reason::Observing.as_str();
        let due = next.filter(acts).is_some_and(|next| next.due.is_none_or(|due| due <= self.now));
        // A record that says nothing yet says why.
        if next.is_some() && steps.intent.is_none() && steps.notice.is_none() && !due {
            // Its clocks have to stand still, if any runs.
            return if self.status.health == self.record.status.health {
                NamespacePlan::NOTHING
            } else {
                self.write()
            };
        }
        let next = self.status.next.take().unwrap_or_default();
        self.say(NextStep { reason: reason.to_string(), message, ..next })
    }

    /// Namespaces are listed with other annotations, which takes seconds: nothing is decided, and nothing written about it before
    /// something is overdue by more.
    fn not_read(mut self, message: String) -> NamespacePlan {
        // Nor is anything decided by what the record asks for by now, where it says something of what it asked for before.
        self.status.observed_generation =
            self.record.status.observed_generation.or(self.status.observed_generation);
        let steps = &self.status.steps;
        let decided = steps.intent.as_ref().map(|intent| intent.next_attempt.unwrap_or(intent.decided_at));
        let announced = steps.notice.as_ref().map(|notice| notice.not_before);
        let planned =
            self.status.next.as_ref().filter(|next| next.action.is_some()).and_then(|next| next.due);
        let overdue_at = decided.or(announced).or(planned).map(|at| later(at, LISTED));
        if self.status.next.is_none() || overdue_at.is_some_and(|at| at <= self.now) {
            return self.unreliable(Reason::AnnotationsNotRead, message);
        }
        self.check_no_later_than(overdue_at);
        self.pause_health();
        self.write()
    }

    /// Gives up an intent, and the notice that led to it; the next evaluation decides again.
    fn abandon(mut self, intent: &Intent, reason: Reason, why: &str) -> NamespacePlan {
        self.next_check = Some(self.now);
        self.count_given_up(intent);
        let message = steps::abandon(&mut self.status.steps, intent, why, &mut self.events);
        self.waiting(reason, message)
    }

    /// What was scaled down by a step that is given up is woken by a number of its own; and a webhook that is decided again has
    /// another id, since its body differs.
    fn count_given_up(&mut self, intent: &Intent) {
        let begun = self.has_begun(intent);
        if begun || intent.action == Action::Webhook {
            self.status.steps.firings += 1;
        }
        if begun {
            self.status.wakes_from = Some(self.status.steps.firings);
        }
    }

    fn check_no_later_than(&mut self, at: Option<Timestamp>) {
        self.next_check = self.next_check.into_iter().chain(at).min();
    }

    fn note(&mut self, warning: bool, reason: Reason, message: String) {
        self.events.push(PlannedEvent { warning, reason, message });
    }

    fn withdraw_notice(&mut self, why: &str) {
        steps::withdraw_notice(&mut self.status.steps, why, &mut self.events);
    }

    /// Nothing is to be done: why.
    fn waiting(self, reason: Reason, message: String) -> NamespacePlan {
        self.finish(None, reason, message)
    }

    /// What a policy does next, if any, and when; and what it waits for.
    fn finish(
        self,
        policy: Option<(&Judged<'_>, Option<Timestamp>)>,
        reason: Reason,
        message: String,
    ) -> NamespacePlan {
        let next = NextStep {
            action: policy.map(|(judged, _)| judged.policy.action.kind().to_string()),
            policy: policy.map(|(judged, _)| judged.policy.name.clone()),
            due: policy.and_then(|(_, due)| due),
            reason: reason.to_string(),
            message,
        };
        self.say(next)
    }

    fn say(mut self, next: NextStep) -> NamespacePlan {
        let state = self.ready(&next);
        self.status.next = Some(next);
        condition::set(&mut self.status.conditions, READY, state, self.record.generation, self.now);
        self.write()
    }

    /// What has been decided is written down, if it says anything new.
    fn write(mut self) -> NamespacePlan {
        let messages = self.update_messages();
        record::truncate_record_texts(&mut self.status);
        let step = if self.status == *self.record.status {
            NamespaceStep::Nothing
        } else {
            NamespaceStep::WriteStatus(Box::new(self.status))
        };
        let (next_check, events) = (self.next_check, self.events);
        NamespacePlan { step, next_check, events, messages, ..NamespacePlan::NOTHING }
    }
}
