//! Everything around the programs of a run: the API server, the other controllers, the time, and what goes wrong. One seed decides it all.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use coppice_runtime::clock::{Clock, SeededRng};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::task::AbortHandle;

use crate::fault::{DateFault, Faults, rng};
use crate::receiver::Receiver;
use crate::scenario::ReadFault;
use crate::server::models::{ControllerStep, Models};
use crate::server::{Request, Server, ServerReply};
use crate::target::TargetServer;
use crate::trace::{Actor, Trace, TraceLine};
use crate::webhook::{AskedWebhook, Webhook};

/// The quota controller is late by up to so long, now and then.
const QUOTA_LAG: Duration = Duration::from_secs(5);

/// Clones are the same simulation.
#[derive(Clone)]
pub(crate) struct Simulation(Arc<Inner>);

struct Inner {
    seed: u64,
    clock: Clock,
    began: Timestamp,
    /// Wakes in the order of waiting; a `watch` channel would wake in a random order.
    revised: Arc<Notify>,
    state: Mutex<State>,
}

/// What is behind the lock.
pub(crate) struct State {
    pub(crate) server: Server,
    pub(crate) models: Models,
    pub(crate) trace: Trace,
    pub(crate) faults: Faults,
    pub(crate) receiver: Receiver,
    /// What is wrong with reads.
    pub(crate) read_fault: Option<ReadFault>,
    /// What is wrong with the `Date` of answers.
    pub(crate) dates: Option<DateFault>,
    /// How many answers there were.
    pub(crate) responses: u64,
    /// Until when nobody reaches the API server.
    pub(crate) away_until: Duration,
    /// The second API server, if there is one.
    pub(crate) target: Option<TargetServer>,
    /// Until when nobody reaches that.
    pub(crate) target_away_until: Duration,
    /// Until when no admission webhook listens.
    pub(crate) webhooks_off_until: Duration,
    /// What admission webhooks were asked.
    pub(crate) asked: Vec<AskedWebhook>,
    /// Each replica's present life, and how to end it.
    pub(crate) incarnations: Vec<Incarnation>,
    /// Writes of the replicas as the API server carried them out.
    pub(crate) done: Vec<Done>,
    /// When a replica was answered, wrongly, that there is nothing.
    pub(crate) emptied: Vec<(usize, Duration)>,
    /// When a replica read something, the opening of watches and Leases apart.
    pub(crate) reads: Vec<Duration>,
    /// How often the API server has notified all watches that their revisions are gone.
    pub(crate) compactions: u64,
    choices: u64,
}

/// The present life of a replica.
#[derive(Default)]
pub(crate) struct Incarnation {
    pub(crate) number: u32,
    pub(crate) alive: bool,
    pub(crate) end: Option<AbortHandle>,
    /// Until when nothing gets from or to this replica.
    pub(crate) cut_until: Duration,
    /// The admission webhook that it serves, as long as it does.
    pub(crate) webhook: Option<Weak<dyn Webhook>>,
}

/// A write of a replica that the API server carried out.
#[derive(Clone, Debug)]
pub struct Done {
    /// When it was sent, which is when it was decided.
    pub sent: Duration,
    /// When it was carried out.
    pub at: Duration,
    /// Who sent it.
    pub who: Actor,
    /// What was asked.
    pub request: Request,
    /// The status code of the answer, as the API server gave it.
    pub code: u16,
    /// The newest revision before, and after.
    pub revisions: (u64, u64),
}

impl Simulation {
    /// A simulation at its beginning. Must be called on a tokio runtime whose time is paused.
    pub(crate) fn new(
        seed: u64,
        began: Timestamp,
        server: Server,
        faults: Faults,
        receiver: Receiver,
    ) -> Self {
        let state = State {
            models: Models::new(&server),
            server,
            trace: Trace::default(),
            faults,
            receiver,
            read_fault: None,
            dates: None,
            responses: 0,
            away_until: Duration::ZERO,
            target: None,
            target_away_until: Duration::ZERO,
            webhooks_off_until: Duration::ZERO,
            asked: Vec::new(),
            incarnations: Vec::new(),
            done: Vec::new(),
            emptied: Vec::new(),
            reads: Vec::new(),
            compactions: 0,
            choices: 0,
        };
        Self(Arc::new(Inner {
            seed,
            clock: Clock::following_tokio(began),
            began,
            revised: Arc::default(),
            state: Mutex::new(state),
        }))
    }

    /// The one true time.
    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The seed of everything.
    pub(crate) fn seed(&self) -> u64 {
        self.0.seed
    }

    /// When the simulation began.
    pub(crate) fn began(&self) -> Timestamp {
        self.0.began
    }

    /// How long ago the simulation began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.clock.monotonic()
    }

    /// Ends at the next change after this call, once it is [enabled](tokio::sync::futures::OwnedNotified::enable).
    pub(crate) fn revised(&self) -> OwnedNotified {
        Arc::clone(&self.0.revised).notified_owned()
    }

    /// Reads or changes the state. Keep it short: everybody else waits.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let before = state.server.revision();
        let result = f(&mut state);
        if state.server.revision() != before {
            self.0.revised.notify_waiters();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a run ends the run.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seeded RNG for the next choice that no fault plan should disturb.
    pub(crate) fn choose(&self) -> SeededRng {
        let n = self.with(|state| {
            state.choices += 1;
            state.choices
        });
        rng(self.0.seed, 1, n)
    }

    /// How long something takes on its way, by a choice that no fault plan should disturb.
    pub(crate) fn latency(&self) -> Duration {
        latency(&mut self.choose())
    }

    /// A request of somebody else than a replica. It is answered at once.
    pub(crate) fn request(&self, who: Actor, request: &Request) -> ServerReply {
        let now = self.0.clock.now();
        let answer = self.with(|state| {
            let user = match who {
                Actor::User(name) => name,
                _ => "system:admin",
            };
            state.server.handle(now, user, request)
        });
        self.note(who, describe(request, code_of(&answer)));
        answer
    }

    /// Writes a line into the trace.
    pub(crate) fn note(&self, who: Actor, what: String) {
        let at = self.elapsed();
        self.with(|state| {
            let revision = state.server.revision();
            state.trace.note(TraceLine { at, who, what, revision });
        });
    }

    /// Whether that life of a replica continues.
    pub(crate) fn incarnations(&self, replica: usize, incarnation: u32) -> bool {
        self.with(|state| state.incarnations.get(replica).is_some_and(|l| l.alive && l.number == incarnation))
    }

    /// The API server compacts its history: every open watch is notified, and none can begin there.
    pub(crate) fn compact_history(&self) {
        self.with(|state| {
            state.compactions += 1;
            let now = state.server.revision();
            state.server.compact(now);
        });
        self.0.revised.notify_waiters();
    }

    /// Cuts a replica off, or takes the API server away from all, for this long.
    pub(crate) fn cut(&self, replica: Option<usize>, by: Duration) {
        let until = self.elapsed() + by;
        self.with(|state| match replica.and_then(|replica| state.incarnations.get_mut(replica)) {
            Some(incarnation) => incarnation.cut_until = incarnation.cut_until.max(until),
            None => state.away_until = state.away_until.max(until),
        });
        self.0.revised.notify_waiters();
    }

    /// How long a replica is still cut off; zero if it is not.
    pub(crate) fn cut_off(&self, replica: usize) -> Duration {
        let until = self.with(|state| {
            state.incarnations.get(replica).map_or(Duration::ZERO, |incarnation| incarnation.cut_until)
        });
        until.saturating_sub(self.elapsed())
    }

    /// How long the API server is still away; zero if it is there.
    pub(crate) fn away(&self) -> Duration {
        self.with(|state| state.away_until).saturating_sub(self.elapsed())
    }

    /// Takes the second API server away from all for this long.
    pub(crate) fn take_target_away(&self, by: Duration) {
        let until = self.elapsed() + by;
        self.with(|state| state.target_away_until = state.target_away_until.max(until));
    }

    /// Whether nobody reaches the second API server.
    pub(crate) fn is_target_away(&self) -> bool {
        self.elapsed() < self.with(|state| state.target_away_until)
    }

    /// Waits until the API server is there.
    pub(crate) async fn wait_while_away(&self) {
        while !self.away().is_zero() {
            tokio::time::sleep(self.away()).await;
        }
    }

    /// Which replica holds a Lease, by namespace and name.
    pub(crate) fn leader(&self, (namespace, name): (&str, &str)) -> Option<usize> {
        self.with(|state| {
            let lease = state.server.object("coordination.k8s.io", "leases", namespace, name)?;
            let (replica, _) =
                lease["spec"]["holderIdentity"].as_str()?.strip_prefix("replica-")?.split_once('.')?;
            replica.parse().ok()
        })
    }

    /// Ends the present life of a replica at once, wherever it is.
    pub(crate) fn kill(&self, replica: usize) {
        self.with(|state| {
            let Some(incarnation) = state.incarnations.get_mut(replica) else { return };
            incarnation.alive = false;
            if let Some(end) = incarnation.end.take() {
                end.abort();
            }
        });
        self.note(Actor::Faults, format!("replica {replica} is killed"));
    }

    /// Lets the other controllers work at once, each step in the order in which it became due, for ever.
    pub(crate) async fn run_cluster_in_order(self) {
        loop {
            let mut revised = pin!(self.revised());
            revised.as_mut().enable();
            let now = self.0.clock.now();
            let due = self.with(|state| {
                let State { models, server, .. } = state;
                models.settle(server, now);
                models.pending(server, now)
            });
            let until = due.map(|at| self.0.clock.instant(at));
            tokio::select! {
                biased;
                () = revised => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Lets the other controllers work, one step at a time and in an order that the seed decides, for ever.
    pub(crate) async fn run_cluster(self) {
        loop {
            self.wait_while_away().await;
            let mut revised = pin!(self.revised());
            revised.as_mut().enable();
            let now = self.0.clock.now();
            let due = self.with(|state| state.models.pending(&state.server, now));
            match due {
                Some(at) if at <= now => {
                    tokio::time::sleep(self.latency()).await;
                    let (mut rng, now) = (self.choose(), self.0.clock.now());
                    self.with(|state| {
                        let ready = state.models.ready(&state.server, now);
                        let Some(last) = ready.len().checked_sub(1) else { return };
                        let one = usize::try_from(rng.next_u64() % ready.len() as u64).unwrap_or(last);
                        let State { models, server, .. } = state;
                        if matches!(ready[one], ControllerStep::Quota(_)) && rng.next_u64().is_multiple_of(4)
                        {
                            let lag = rng.between(Duration::ZERO, QUOTA_LAG);
                            let at = now.saturating_add(lag).unwrap_or(Timestamp::MAX);
                            return models.postpone(&ready[one], at);
                        }
                        models.run(server, now, &ready[one]);
                    });
                }
                due => {
                    let until = due.map(|at| self.0.clock.instant(at));
                    tokio::select! {
                        biased;
                        () = revised => {}
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }
}

/// How long something takes on its way: mostly some milliseconds, sometimes a good part of a second.
pub(crate) fn latency(rng: &mut SeededRng) -> Duration {
    let most = if rng.next_u64().is_multiple_of(16) { 400 } else { 4 };
    rng.between(Duration::from_millis(1), Duration::from_millis(most))
}

async fn sleep_until(until: Option<tokio::time::Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The status code of an answer; 200 for a watch.
pub(crate) fn code_of(answer: &ServerReply) -> u16 {
    match answer {
        ServerReply::Done(response) => response.code,
        ServerReply::Watch(_) => 200,
    }
}

/// A request and its answer in one line.
pub(crate) fn describe(request: &Request, code: u16) -> String {
    let query = if request.query.is_empty() { "" } else { "?" };
    format!("{} {}{query}{} → {code}", request.method, request.path, request.query)
}
