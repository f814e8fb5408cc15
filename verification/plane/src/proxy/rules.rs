//! Which fault is applied to what.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::SignedDuration;
use tokio::sync::watch;

use super::{
    answer::{Corruption, FakeResponse},
    trace::TraceEntry,
};

/// What is done to a request, to its answer, or to an event of a watch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ProxyFault {
    /// The request is not forwarded, and answered with this.
    FakeResponse(FakeResponse),
    /// The request is not forwarded; the connection is cut.
    LoseRequest,
    /// The request is held before it is forwarded, until it is [released or discarded](Active). It is forwarded also if
    /// its client has left meanwhile, as a network does that was slow.
    HoldRequest,
    /// The request is forwarded after this time, also if its client has left meanwhile.
    Delay(Duration),
    /// The request is forwarded twice, one after the other; the client gets the second answer.
    Twice,
    /// The request is forwarded; the connection is cut when all of its answer is there.
    LoseResponse,
    /// The request is forwarded; all of its answer is held, until it is [released or discarded](Active). Of a watch, the
    /// beginning is held.
    HoldResponse,
    /// The request is forwarded; its answer is spoilt. Not for watches.
    Corruption(Corruption),
    /// The answer tells another time than the API server's. Nothing else about it changes: it can meet another fault.
    Date(Date),
    /// Reads see the past, as long as the rule exists; writes are not affected.
    Stale(Stale),
    /// The event is left out.
    DropEvent,
    /// The event comes later by this time, and so do those behind it.
    DelayEvent(Duration),
    /// The event is held with all behind it, until it is [released or discarded](Active); then the next one is, if the
    /// rule still applies. A discarded event is left out.
    HoldEvent,
    /// The watch breaks in place of the event.
    Break(Break),
}

/// What becomes of the `Date` header of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Date {
    /// It tells a time that is later by so much, or earlier if that is negative.
    Shifted(SignedDuration),
    /// There is none.
    Removed,
}

/// A way for a watch to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// In due form, as after its timeout.
    End,
    /// The connection is cut.
    Cut,
    /// The connection stays open and nothing ever comes again, also when no rule says so any more.
    Silence,
    /// With an `ERROR` event that says 410, after which clients have to list again.
    Expire,
}

/// A view of the past. The API server must still have the revision: see [`HISTORY_ARGS`](crate::HISTORY_ARGS). It
/// answers 410 if not, and does so for watches also when the revision is no longer in the memory of its watches, which
/// holds at least the last 75 seconds.
///
/// Lists show the state at the revision. A `get` does too, made from a list: that takes a live `get` first, so that it is
/// refused to those who may not. Watches begin at the revision, unless they ask for an older one. Lists that are
/// continued stay at the revision of their first page. Other subresources than `status` are live. A watch that asks for
/// initial events is refused with 400: there is no such thing for a past revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The revision that is seen: a `resourceVersion` of any object or list.
    pub revision: u64,
    /// What watches do.
    pub watches: Watches,
}

/// What a watch in a view of the past does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// Events after the revision are held until the rule is gone, also in watches that were there before it: an API
    /// server that is behind.
    Stop,
    /// Events follow at once: history is replayed.
    Replay,
}

/// What a rule is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultPhase {
    Request,
    View,
    Date,
    Event,
}

impl ProxyFault {
    /// Its name in a trace.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FakeResponse(_) => "answer",
            Self::LoseRequest => "lose-request",
            Self::HoldRequest => "hold-request",
            Self::Delay(_) => "delay",
            Self::Twice => "twice",
            Self::LoseResponse => "lose-answer",
            Self::HoldResponse => "hold-answer",
            Self::Corruption(_) => "spoil",
            Self::Date(_) => "date",
            Self::Stale(_) => "stale",
            Self::DropEvent => "drop-event",
            Self::DelayEvent(_) => "delay-event",
            Self::HoldEvent => "hold-event",
            Self::Break(how) => how.name(),
        }
    }

    fn phase(&self) -> FaultPhase {
        match self {
            Self::Stale(_) => FaultPhase::View,
            Self::Date(_) => FaultPhase::Date,
            Self::DropEvent | Self::DelayEvent(_) | Self::HoldEvent | Self::Break(_) => FaultPhase::Event,
            _ => FaultPhase::Request,
        }
    }

    fn suits(&self, entry: &TraceEntry) -> bool {
        match self {
            Self::Corruption(_) => entry.verb != "watch",
            Self::Stale(_) => match entry.verb.as_str() {
                "list" | "watch" => true,
                "get" => !entry.resource.is_empty() && matches!(entry.subresource.as_str(), "" | "status"),
                _ => false,
            },
            _ => true,
        }
    }
}

impl Break {
    /// Its name in a trace.
    pub fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Cut => "cut",
            Self::Silence => "silence",
            Self::Expire => "expire",
        }
    }
}

type Predicate = Arc<dyn Fn(&TraceEntry) -> bool + Send + Sync>;

/// Selects requests or events. The default selects all; each method leaves fewer.
#[derive(Clone, Default)]
#[must_use]
pub struct Match {
    verb: Option<String>,
    group: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    event: Option<String>,
    predicates: Vec<Predicate>,
}

impl Match {
    /// All requests, or all events.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests of this verb: see [`TraceEntry::verb`].
    pub fn verb(verb: &str) -> Self {
        Self { verb: Some(verb.to_owned()), ..Self::default() }
    }

    /// Requests that may change something: see [`TraceEntry::is_write`].
    pub fn writes() -> Self {
        Self::any().when(TraceEntry::is_write)
    }

    /// Lists from the second page on.
    pub fn continued_lists() -> Self {
        Self::verb("list").when(|entry| entry.query("continue").is_some_and(|token| !token.is_empty()))
    }

    /// Of this API group; empty for the core group.
    pub fn group(self, group: &str) -> Self {
        Self { group: Some(group.to_owned()), ..self }
    }

    /// Of this resource, by its plural name.
    pub fn resource(self, resource: &str) -> Self {
        Self { resource: Some(resource.to_owned()), ..self }
    }

    /// Of this subresource; empty for the resource itself.
    pub fn subresource(self, subresource: &str) -> Self {
        Self { subresource: Some(subresource.to_owned()), ..self }
    }

    /// In this namespace. For events it is that of the object.
    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Of the object with this name.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Events of this kind: see [`WatchEvent::kind`](super::WatchEvent::kind).
    pub fn event(self, kind: &str) -> Self {
        Self { event: Some(kind.to_owned()), ..self }
    }

    /// Those of which `predicate` is true. It sees what is known when a request or an event arrives.
    pub fn when(mut self, predicate: impl Fn(&TraceEntry) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// Whether it selects this.
    pub fn selects(&self, entry: &TraceEntry) -> bool {
        let same =
            |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        let kind = entry.event.as_ref().map_or("", |event| event.kind.as_str());
        same(&self.verb, &entry.verb)
            && same(&self.group, &entry.group)
            && same(&self.resource, &entry.resource)
            && same(&self.subresource, &entry.subresource)
            && same(&self.namespace, &entry.namespace)
            && same(&self.name, &entry.name)
            && same(&self.event, kind)
            && self.predicates.iter().all(|predicate| predicate(entry))
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("verb", &self.verb),
            ("group", &self.group),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("event", &self.event),
        ];
        let mut output = formatter.debug_struct("Match");
        for (name, value) in fields {
            if let Some(value) = value {
                output.field(name, value);
            }
        }
        output.field("predicates", &self.predicates.len()).finish()
    }
}

/// A fault and what it is applied to: all that matches, unless it is restricted.
#[derive(Clone, Debug)]
#[must_use]
pub struct FaultRule {
    matches: Match,
    fault: ProxyFault,
    /// The first match that it is applied to, from 1.
    from: u64,
    /// How often.
    times: u64,
}

impl FaultRule {
    /// Applies the fault to everything that matches.
    pub fn new(matches: Match, fault: ProxyFault) -> Self {
        Self { matches, fault, from: 1, times: u64::MAX }
    }

    /// Lets matches pass until the `n`-th, counted from 1.
    pub fn from(self, n: u64) -> Self {
        Self { from: n, ..self }
    }

    /// Applies the fault at most this often.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Applies the fault once.
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// How far a rule has come.
#[derive(Debug, Default)]
struct Progress {
    /// Matches.
    seen: u64,
    applied: u64,
    /// Tickets given to what is held, from 0.
    held: u64,
    /// What is held with a ticket below this is held no more.
    decided: u64,
    /// Tickets of what was discarded.
    discarded: Vec<u64>,
    /// The rule was removed.
    over: bool,
}

/// A rule in force.
#[derive(Debug)]
pub(super) struct Installed {
    rule: FaultRule,
    progress: watch::Sender<Progress>,
}

/// What becomes of something held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldResult {
    Pass,
    Discard,
}

impl Installed {
    pub(super) fn fault(&self) -> &ProxyFault {
        &self.rule.fault
    }

    /// True if the rule is to be applied to this match.
    fn count(&self, taken: bool) -> bool {
        let mut apply = false;
        self.progress.send_modify(|progress| {
            progress.seen += 1;
            apply = !taken && progress.seen >= self.rule.from && progress.applied < self.rule.times;
            progress.applied += u64::from(apply);
        });
        apply
    }

    /// Waits until what is held now is released or discarded.
    pub(super) async fn hold(&self) -> HeldResult {
        let mut ticket = 0;
        let mut changes = self.progress.subscribe();
        self.progress.send_modify(|progress| {
            ticket = progress.held;
            progress.held += 1;
        });
        let decision = changes.wait_for(|progress| progress.over || progress.decided > ticket).await;
        match decision {
            Ok(progress) if progress.discarded.contains(&ticket) => HeldResult::Discard,
            _ => HeldResult::Pass,
        }
    }

    /// Waits until the rule is removed.
    pub(super) async fn over(&self) {
        let _ = self.progress.subscribe().wait_for(|progress| progress.over).await;
    }

    fn end(&self) {
        self.progress.send_modify(|progress| progress.over = true);
    }
}

/// All rules in force, in the order of their coming. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultRules(Arc<Mutex<Vec<Arc<Installed>>>>);

impl FaultRules {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Installed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, rule: FaultRule) -> Active {
        let installed = Arc::new(Installed { rule, progress: watch::Sender::new(Progress::default()) });
        self.lock().push(Arc::clone(&installed));
        Active { installed, rules: self.clone() }
    }

    pub(super) fn clear(&self) {
        self.lock().drain(..).for_each(|installed| installed.end());
    }

    /// The first rule of this phase to be applied to the entry. All that match count it.
    pub(super) fn apply(&self, phase: FaultPhase, entry: &TraceEntry) -> Option<Arc<Installed>> {
        let mut found: Option<Arc<Installed>> = None;
        for installed in self.lock().iter() {
            let FaultRule { matches, fault, .. } = &installed.rule;
            if fault.phase() == phase
                && fault.suits(entry)
                && matches.selects(entry)
                && installed.count(found.is_some())
            {
                found = Some(Arc::clone(installed));
            }
        }
        found
    }

    /// The first rule that stops the events after a revision in a watch. Nothing is counted.
    pub(super) fn stops(&self, watch: &TraceEntry, revision: u64) -> Option<Arc<Installed>> {
        let stops = |installed: &&Arc<Installed>| {
            let FaultRule { matches, fault, .. } = &installed.rule;
            let ProxyFault::Stale(stale) = fault else { return false };
            stale.watches == Watches::Stop && revision > stale.revision && matches.selects(watch)
        };
        self.lock().iter().find(stops).cloned()
    }
}

/// A rule in force; dropping it removes the rule, and lets everything go that it holds.
///
/// What [`ProxyFault::HoldRequest`], [`ProxyFault::HoldResponse`] and [`ProxyFault::HoldEvent`] hold is numbered in the order of its
/// coming.
#[derive(Debug)]
#[must_use = "a rule is removed when this is dropped"]
pub struct Active {
    installed: Arc<Installed>,
    rules: FaultRules,
}

impl Active {
    /// How often the fault was applied.
    pub fn count(&self) -> u64 {
        self.installed.progress.borrow().applied
    }

    /// Waits until the fault was applied this often, now or before. Has no deadline of its own.
    pub async fn applied(&self, times: u64) {
        let _ = self.installed.progress.subscribe().wait_for(|progress| progress.applied >= times).await;
    }

    /// Waits until this many in all have been held, now or before; of a request held by [`ProxyFault::HoldResponse`] the answer
    /// is there then. Has no deadline of its own.
    pub async fn held(&self, count: u64) {
        let _ = self.installed.progress.subscribe().wait_for(|progress| progress.held >= count).await;
    }

    /// Lets everything go that is held, and holds what comes after.
    pub fn release(&self) {
        self.decide(u64::MAX, HeldResult::Pass);
    }

    /// Lets the first go of what is held.
    pub fn release_one(&self) {
        self.decide(1, HeldResult::Pass);
    }

    /// Discards everything that is held: of requests and answers the connections are cut, events are left out.
    pub fn discard(&self) {
        self.decide(u64::MAX, HeldResult::Discard);
    }

    fn decide(&self, count: u64, verdict: HeldResult) {
        self.installed.progress.send_modify(|progress| {
            let end = progress.held.min(progress.decided.saturating_add(count));
            if verdict == HeldResult::Discard {
                progress.discarded.extend(progress.decided..end);
            }
            progress.decided = end;
        });
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.rules.lock().retain(|other| !Arc::ptr_eq(other, &self.installed));
        self.installed.end();
    }
}
