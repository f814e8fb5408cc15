//! The loop around the decision: reads, writes, waits.

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    Election, ElectionEnd, LeaseDecision, LeaseLost, LeaseObservation, LeaseSettings, LeaseView, decide,
    whole_seconds,
};
use crate::client::ambiguous;
use crate::clock::{Clock, SeededRng};
use crate::error::chain;
use crate::leader::GateHandle;
use crate::metrics::Metrics;

/// How long the API server is asked to serve a watch of the lease; then it is opened again.
const WATCH_SECONDS: u32 = 60;
/// The pause after losing a race for the lease, at most.
const RACE_PAUSE: Duration = Duration::from_millis(100);

impl Election {
    /// Tries to become and stay leader, until `release`. What the process writes must be finished before that is
    /// cancelled, or hold a [`Permit`](crate::leader::Permit): then no further permit is given, the lease is renewed
    /// until the last one is dropped (for at most a renew deadline), and then it is released, so that a standby takes
    /// over at once.
    ///
    /// Never gives up before: without the API server a follower waits.
    pub async fn run(self, release: CancellationToken) -> Result<ElectionEnd, LeaseLost> {
        let Self { clients, settings, clock, metrics, gate_handle } = self;
        let mut candidate = Candidate {
            api: Api::namespaced(clients.writes, &settings.namespace),
            watched: Api::namespaced(clients.reads, &settings.namespace),
            rng: SeededRng::new(settings.seed),
            seen: LeaseObservation::default(),
            lease: None,
            problem: None,
            settings,
            clock,
            gate_handle,
        };
        metrics.leader(&candidate.settings.name, false);
        let Some(term) = candidate.follow(&release).await else { return Ok(ElectionEnd::Followed) };
        candidate.lead(term, &release, &metrics).await
    }
}

/// One process' part in the election.
struct Candidate {
    api: Api<Lease>,
    watched: Api<Lease>,
    settings: LeaseSettings,
    clock: Clock,
    gate_handle: GateHandle,
    rng: SeededRng,
    seen: LeaseObservation,
    /// The revision to replace; `None` if it is not known for sure.
    lease: Option<Lease>,
    /// The problem that was logged last, so that it is logged once.
    problem: Option<String>,
}

/// A time during which we lead.
struct Term {
    /// On the monotonic clock of this process.
    since: Duration,
    transitions: i32,
    /// When the request was sent that last renewed the lease.
    renewed: Instant,
}

/// Why a step did not succeed.
enum Failure {
    /// Another replica was faster: read again.
    Raced,
    /// The lease is not ours to renew.
    Lost(Option<String>),
    /// Something is wrong; try again later.
    Unavailable(String),
}

/// Why a follower reads again.
enum WaitEnd {
    /// It may be time to act.
    Now,
    /// The watch did not work.
    Unwatched(String),
}

impl Candidate {
    /// Until we lead, or `None` when asked to end.
    async fn follow(&mut self, release: &CancellationToken) -> Option<Term> {
        while !release.is_cancelled() {
            let step = match self.read_lease().await {
                Ok(()) => self.step(release).await,
                Err(failure) => Err(failure),
            };
            let pause = match step {
                Ok(Some(term)) => return Some(term),
                Ok(None) => continue,
                Err(Failure::Unavailable(problem)) => {
                    self.log_problem(&problem);
                    self.gate_handle.unknown(problem);
                    self.rng.between(self.settings.retry, self.settings.max_pause())
                }
                Err(Failure::Raced | Failure::Lost(_)) => self.rng.between(Duration::ZERO, RACE_PAUSE),
            };
            tokio::select! {
                biased;
                () = release.cancelled() => {}
                () = sleep(pause) => {}
            }
        }
        None
    }

    /// What a follower does after it has read the lease: take it, or wait for a reason to read it again.
    async fn step(&mut self, release: &CancellationToken) -> Result<Option<Term>, Failure> {
        match decide(&self.seen, &self.settings.identity, false, Instant::now()) {
            LeaseDecision::Wait { until, holder } => {
                self.clear_problem();
                self.gate_handle.follows(Some(holder));
                let wait_end = tokio::select! {
                    biased;
                    () = release.cancelled() => WaitEnd::Now,
                    wait_end = self.watch(until) => wait_end,
                };
                if let WaitEnd::Unwatched(problem) = wait_end {
                    // Not a problem: periodic reads do as well, only later.
                    self.log_problem(&problem);
                    let pause = self.rng.between(self.settings.retry, self.settings.max_pause());
                    tokio::select! {
                        biased;
                        () = release.cancelled() => {}
                        () = sleep(pause) => {}
                    }
                }
                Ok(None)
            }
            decision => {
                let term = self.write(&decision).await?;
                self.clear_problem();
                self.gate_handle.renewed(term.renewed, term.since, term.transitions);
                Ok(Some(term))
            }
        }
    }

    /// Watches the lease until it is to be read again: it changed to something that we need not wait for, or has not changed until it
    /// expired.
    async fn watch(&mut self, mut until: Instant) -> WaitEnd {
        let Some(revision) = self.lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone())
        else {
            sleep_until(until.min(Instant::now() + self.settings.retry)).await;
            return WaitEnd::Now;
        };
        let only = format!("metadata.name={}", self.settings.name);
        let parameters = WatchParams::default().fields(&only).timeout(WATCH_SECONDS).disable_bookmarks();
        let events = match timeout_at(until, self.watched.watch(&parameters, &revision)).await {
            Err(_) => return WaitEnd::Now,
            Ok(Err(error)) => return WaitEnd::Unwatched(self.explain("watch", &error)),
            Ok(Ok(events)) => events,
        };
        let opened = Instant::now();
        let mut events = std::pin::pin!(events);
        loop {
            let lease = match timeout_at(until, events.try_next()).await {
                Ok(Ok(Some(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => lease,
                Ok(Ok(Some(WatchEvent::Bookmark(_)))) => continue,
                Ok(Ok(Some(WatchEvent::Deleted(_)))) | Err(_) => return WaitEnd::Now,
                // The API server ends watches now and then. One that ends at once has failed.
                Ok(_) if opened.elapsed() >= self.settings.retry => return WaitEnd::Now,
                Ok(Ok(_)) => {
                    return WaitEnd::Unwatched(format!(
                        "the watch of the lease {} ended at once",
                        self.name()
                    ));
                }
                Ok(Err(error)) => return WaitEnd::Unwatched(self.explain("watch", &error)),
            };
            self.note(Some(lease));
            match decide(&self.seen, &self.settings.identity, false, Instant::now()) {
                LeaseDecision::Wait { until: later, holder } => {
                    until = later;
                    self.gate_handle.follows(Some(holder));
                }
                _ => return WaitEnd::Now,
            }
        }
    }

    /// Until we lead no longer.
    async fn lead(
        &mut self,
        mut term: Term,
        release: &CancellationToken,
        metrics: &Metrics,
    ) -> Result<ElectionEnd, LeaseLost> {
        tracing::info!(lease = self.name(), identity = self.settings.identity, "this replica leads");
        metrics.leader(&self.settings.name, true);
        let ended = self.hold(&mut term, release).await;
        metrics.leader(&self.settings.name, false);
        match &ended {
            Ok(ended) => tracing::info!(lease = self.name(), ?ended, "this replica leads no longer"),
            Err(lost) => tracing::error!("{lost}"),
        }
        self.gate_handle.follows(None);
        ended
    }

    async fn hold(&mut self, term: &mut Term, release: &CancellationToken) -> Result<ElectionEnd, LeaseLost> {
        let mut next = term.renewed + self.settings.retry;
        let mut give_up: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                () = release.cancelled(), if give_up.is_none() => {
                    self.gate_handle.close();
                    give_up = Some(Instant::now() + self.settings.renew_deadline);
                }
                () = self.gate_handle.drained(), if give_up.is_some() => return Ok(self.release().await),
                () = sleep_until(next) => next = self.renew(term).await?,
            }
            if give_up.is_some_and(|give_up| give_up <= Instant::now()) {
                return Ok(ElectionEnd::LeftToExpire { why: "writes were still in progress".to_owned() });
            }
        }
    }

    /// One attempt to renew; answers when the next one is due.
    async fn renew(&mut self, term: &mut Term) -> Result<Instant, LeaseLost> {
        let lost_at = term.renewed + self.settings.renew_deadline;
        let end = lost_at.min(Instant::now() + self.settings.attempt());
        let problem = match timeout_at(end, self.try_renew()).await {
            Ok(Ok(renewed)) => {
                self.clear_problem();
                *term = Term { since: term.since, ..renewed };
                self.gate_handle.renewed(term.renewed, term.since, term.transitions);
                return Ok(term.renewed + self.settings.retry);
            }
            Ok(Err(Failure::Lost(holder))) => return Err(LeaseLost::Taken { lease: self.name(), holder }),
            Ok(Err(Failure::Raced)) => format!("the lease {} was changed by somebody else", self.name()),
            Ok(Err(Failure::Unavailable(problem))) => problem,
            Err(_) => {
                self.lease = None;
                "the API server did not answer in time".to_owned()
            }
        };
        self.log_problem(&problem);
        if Instant::now() < lost_at {
            return Ok(lost_at.min(Instant::now() + self.settings.retry / 2));
        }
        Err(LeaseLost::NotRenewed { lease: self.name(), after: term.renewed.elapsed(), problem })
    }

    async fn try_renew(&mut self) -> Result<Term, Failure> {
        if self.lease.is_some() {
            match self.write(&LeaseDecision::Renew).await {
                Err(Failure::Raced) => {}
                done => return done,
            }
        }
        self.read_lease().await?;
        match decide(&self.seen, &self.settings.identity, true, Instant::now()) {
            LeaseDecision::Lost { holder } => Err(Failure::Lost(holder)),
            decision => self.write(&decision).await,
        }
    }

    /// Gives the lease back, if it is still ours.
    async fn release(&mut self) -> ElectionEnd {
        let mut why = String::new();
        for _ in 0..2 {
            let end = Instant::now() + self.settings.attempt();
            match timeout_at(end, self.try_release()).await {
                Ok(Ok(())) => return ElectionEnd::Released,
                Ok(Err(Failure::Lost(_))) => return ElectionEnd::Followed,
                Ok(Err(Failure::Raced)) => "the lease was changed by somebody else".clone_into(&mut why),
                Ok(Err(Failure::Unavailable(problem))) => why = problem,
                Err(_) => {
                    self.lease = None;
                    "the API server did not answer in time".clone_into(&mut why);
                }
            }
        }
        ElectionEnd::LeftToExpire { why }
    }

    async fn try_release(&mut self) -> Result<(), Failure> {
        if self.lease.is_none() {
            self.read_lease().await?;
            if decide(&self.seen, &self.settings.identity, true, Instant::now()) != LeaseDecision::Renew {
                return Err(Failure::Lost(None));
            }
        }
        let lease = self.lease.take().unwrap_or_default();
        let now = Some(MicroTime(self.clock.now()));
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        // As client-go does it: no holder, and a duration of a second.
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            lease_transitions: transitions,
            acquire_time: now.clone(),
            renew_time: now,
            ..LeaseSpec::default()
        };
        let released = Lease { metadata: lease.metadata, spec: Some(spec) };
        let parameters = parameters();
        let answer = self.api.replace(&self.settings.name, &parameters, &released).await;
        answer.map(drop).map_err(|error| self.failed("release", &error))
    }

    /// Reads the lease from the API server's storage.
    async fn read_lease(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + self.settings.attempt();
        match timeout_at(end, self.api.get_opt(&self.settings.name)).await {
            Ok(Ok(lease)) => {
                self.note(lease);
                Ok(())
            }
            Ok(Err(error)) => Err(Failure::Unavailable(self.explain("read", &error))),
            Err(_) => Err(Failure::Unavailable(format!(
                "the API server did not answer about the lease {}",
                self.name()
            ))),
        }
    }

    fn note(&mut self, lease: Option<Lease>) {
        let view = lease.as_ref().map(|lease| LeaseView::of(lease, self.settings.duration));
        self.seen.note(view, Instant::now());
        self.lease = lease;
    }

    /// Makes the lease say that it is ours, as of now.
    async fn write(&mut self, decision: &LeaseDecision) -> Result<Term, Failure> {
        let now = self.clock.now();
        let before = self.lease.take();
        let spec = before.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let (transitions, acquired) = match decision {
            LeaseDecision::Create { transitions } | LeaseDecision::Take { transitions } => {
                (*transitions, now)
            }
            _ => (spec.lease_transitions.unwrap_or(0), spec.acquire_time.as_ref().map_or(now, |time| time.0)),
        };
        let lease = Lease {
            metadata: before.map_or_else(|| self.metadata(), |lease| lease.metadata),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.settings.identity.clone()),
                lease_duration_seconds: Some(whole_seconds(self.settings.duration)),
                lease_transitions: Some(transitions),
                acquire_time: Some(MicroTime(acquired)),
                renew_time: Some(MicroTime(now)),
                ..spec
            }),
        };
        let (sent, since) = (Instant::now(), self.clock.monotonic());
        let end = sent + self.settings.attempt();
        let parameters = parameters();
        let answer = if matches!(decision, LeaseDecision::Create { .. }) {
            timeout_at(end, self.api.create(&parameters, &lease)).await
        } else {
            timeout_at(end, self.api.replace(&self.settings.name, &parameters, &lease)).await
        };
        let answer = match answer {
            Ok(Ok(lease)) => lease,
            Ok(Err(error)) => return Err(self.failed("write", &error)),
            Err(_) => {
                let name = self.name();
                return Err(Failure::Unavailable(format!(
                    "the API server did not answer to a write of the lease {name}"
                )));
            }
        };
        self.note(Some(answer));
        Ok(Term { since, transitions, renewed: sent })
    }

    /// A write that may have happened is found out by reading: the revision is not known any more.
    fn failed(&self, what: &str, error: &kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => Failure::Raced,
            // Deleted since it was read; in a namespace that is missing, reading it again fails in the same way.
            kube::Error::Api(status) if status.is_not_found() && self.seen.exists => Failure::Raced,
            error if ambiguous(error) => Failure::Unavailable(format!(
                "{}; whether it was written is not known",
                self.explain(what, error)
            )),
            error => Failure::Unavailable(self.explain(what, error)),
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            namespace: Some(self.settings.namespace.clone()),
            name: Some(self.settings.name.clone()),
            ..ObjectMeta::default()
        }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    /// What is wrong, and what to do about it.
    fn explain(&self, what: &str, error: &kube::Error) -> String {
        let hint = match error {
            kube::Error::Api(status) if status.code == 401 || status.code == 403 => {
                "; apply the Role of deploy/install.yaml"
            }
            kube::Error::Api(status) if status.is_not_found() => "; does its namespace exist?",
            _ => "",
        };
        let reason = match error {
            kube::Error::Api(status) => status.message.clone(),
            error => chain(error),
        };
        format!("cannot {what} the lease {}: {reason}{hint}", self.name())
    }

    /// Logs a problem once, until it is over or another one.
    fn log_problem(&mut self, problem: &str) {
        if self.problem.as_deref() != Some(problem) {
            tracing::warn!("{problem}");
            self.problem = Some(problem.to_owned());
        }
    }

    fn clear_problem(&mut self) {
        if self.problem.take().is_some() {
            tracing::info!(lease = self.name(), "the lease can be read and written again");
        }
    }
}

fn parameters() -> PostParams {
    PostParams { field_manager: Some(coppice_api::names::FIELD_MANAGER.to_owned()), ..PostParams::default() }
}
