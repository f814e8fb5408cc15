//! Taking the lease from a leader that works, for a program that has to be alone: what wakes everything before an uninstallation.
//!
//! A leader that finds its lease in other hands ends, and its successor follows. What it had sent before has ended when the lease has
//! been ours for its duration, by the same reckoning by which a standby waits for a lease to expire.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::{Instant, sleep, timeout_at};

use super::{LeaseDecision, LeaseObservation, LeaseSettings, LeaseView, decide};
use crate::client::{Clients, ambiguous};
use crate::clock::Clock;
use crate::error::chain;

/// Why the lease could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeizeError {
    /// Another program that has to be alone holds it, and runs.
    #[error(
        "the lease {lease} is held by {holder}, which does the same work and renews it: wait until it has ended, or stop it, \
         then start this again"
    )]
    Peer {
        /// The lease, as `namespace/name`.
        lease: String,
        /// Who has it.
        holder: String,
    },
    /// The API server refuses it.
    #[error("the lease {lease} cannot be taken: {why}")]
    Refused {
        /// The lease, as `namespace/name`.
        lease: String,
        /// What the API server says.
        why: String,
    },
}

/// Takes the lease from its leader and returns when nothing is under way any more that another has sent. An
/// [`Election`](super::Election) with the same settings leads from there on.
///
/// `is_peer` decides by its identity whether a holder has to be alone, too: the lease is never taken from one that
/// runs. Its renewals show whether it runs, so one that has ended is waited for until its lease has expired.
///
/// Without an answer of the API server it keeps trying; what it refuses is an error. Dropping the future leaves the
/// lease to expire.
pub async fn take_over(
    clients: &Clients,
    settings: &LeaseSettings,
    clock: &Clock,
    is_peer: impl Fn(&str) -> bool,
) -> Result<(), SeizeError> {
    let lease = format!("{}/{}", settings.namespace, settings.name);
    let mut seizure = Seizure {
        api: Api::namespaced(clients.writes.clone(), &settings.namespace),
        settings,
        clock,
        is_peer,
        seen: LeaseObservation::default(),
        alone: None,
    };
    loop {
        let until = match seizure.take_or_renew().await {
            Ok(Turn::Ours { alone }) if alone <= Instant::now() => return Ok(()),
            Ok(Turn::Ours { alone: until } | Turn::Silent { until }) => until,
            Ok(Turn::Peer { holder }) => return Err(SeizeError::Peer { lease, holder }),
            // Another was faster: read again.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                seizure.alone = None;
                continue;
            }
            Err(error) if passes(&error) => {
                tracing::warn!("the lease {lease} cannot be taken yet: {}", chain(&error));
                Instant::now() + settings.retry
            }
            Err(error) => return Err(SeizeError::Refused { lease, why: chain(&error) }),
        };
        sleep(until.saturating_duration_since(Instant::now()).min(settings.retry)).await;
    }
}

/// Whether another attempt may succeed: there was no answer, or the API server has too much to do.
fn passes(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || ambiguous(error),
        _ => true,
    }
}

/// One attempt at the lease, over several turns.
struct Seizure<'a, P> {
    api: Api<Lease>,
    settings: &'a LeaseSettings,
    clock: &'a Clock,
    is_peer: P,
    seen: LeaseObservation,
    /// When what others have sent has ended, once the lease is ours.
    alone: Option<Instant>,
}

/// The result of one turn.
enum Turn {
    /// The lease is ours, and from then on nothing of others is under way.
    Ours { alone: Instant },
    /// A peer holds it of which no renewal was seen so far. It expires then.
    Silent { until: Instant },
    /// A peer holds it and runs.
    Peer { holder: String },
}

impl<P: Fn(&str) -> bool> Seizure<'_, P> {
    /// Makes the lease ours, or renews it, unless a peer holds it.
    async fn take_or_renew(&mut self) -> Result<Turn, kube::Error> {
        let settings = self.settings;
        let found = self.api.get_opt(&settings.name).await?;
        let view = found.as_ref().map(|lease| LeaseView::of(lease, settings.duration));
        let before = self.seen.last.clone();
        self.seen.note(view.clone(), Instant::now());
        let holder = view.as_ref().and_then(|view| view.holder.clone());
        if holder.as_deref() != Some(&settings.identity) {
            self.alone = None;
        }
        let peer = holder.as_deref().filter(|holder| *holder != settings.identity && (self.is_peer)(holder));
        if let Some(peer) = peer {
            // A holder that has changed it since our first read is running.
            if before.as_ref().is_some_and(|(before, _)| Some(before) != view.as_ref()) {
                return Ok(Turn::Peer { holder: peer.to_owned() });
            }
            if let LeaseDecision::Wait { until, holder } =
                decide(&self.seen, &settings.identity, false, Instant::now())
            {
                if before.is_none() {
                    let wait = until.saturating_duration_since(Instant::now());
                    tracing::info!(%holder, ?wait, "another holds the lease for the same work: waiting until it renews or expires");
                }
                return Ok(Turn::Silent { until });
            }
        }
        let expired = peer.is_some();
        self.write(found, view.as_ref()).await?;
        let alone = *self.alone.get_or_insert_with(|| {
            // A lease that nobody held was released when its holder had finished, or never held. One that is ours was taken by a write
            // whose answer was lost: who held it before is not known any more.
            let wait = view.filter(|view| view.holder.is_some() && !expired);
            let wait = wait.map(|view| view.duration.max(settings.duration));
            if let (Some(holder), Some(wait)) = (&holder, wait) {
                tracing::info!(%holder, ?wait, "took the lease from its holder: waiting until what it has sent has ended");
            }
            Instant::now() + wait.unwrap_or_default()
        });
        Ok(Turn::Ours { alone })
    }

    async fn write(&self, found: Option<Lease>, view: Option<&LeaseView>) -> Result<(), kube::Error> {
        let settings = self.settings;
        let parameters = PostParams {
            field_manager: Some(coppice_api::names::FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let transitions = view.map_or(0, |view| view.transitions.saturating_add(1));
        let exists = found.is_some();
        let body = lease_held_by_us(found, settings, self.clock, settings.duration, transitions);
        if exists {
            self.api.replace(&settings.name, &parameters, &body).await?;
        } else {
            self.api.create(&parameters, &body).await?;
        }
        Ok(())
    }
}

/// Why a lease could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Somebody else holds it.
    #[error("the lease {name} is in other hands")]
    OtherHands {
        /// Namespace and name of the lease.
        name: String,
    },
    /// The API server refused, and will refuse again.
    #[error("the lease {name} cannot be kept: {}", chain(source))]
    Refused {
        /// Namespace and name of the lease.
        name: String,
        /// What it said.
        source: kube::Error,
    },
    /// Attempts failed for as long as it was ours.
    #[error("the lease {name} could not be kept, tried for {tried:?}: {problem}")]
    Unanswered {
        /// Namespace and name of the lease.
        name: String,
        /// For how long.
        tried: Duration,
        /// What was wrong last.
        problem: String,
    },
}

/// Leaves the lease as ours for `keep` without renewing it: no replica leads in that time. Tries for the lease's
/// duration: for that long it stays ours after the last renewal.
pub async fn keep(
    clients: &Clients,
    settings: &LeaseSettings,
    clock: &Clock,
    keep: Duration,
) -> Result<(), KeepError> {
    let api: Api<Lease> = Api::namespaced(clients.writes.clone(), &settings.namespace);
    let name = format!("{}/{}", settings.namespace, settings.name);
    let end = Instant::now() + settings.duration;
    loop {
        let attempt = end.min(Instant::now() + settings.attempt());
        let problem = match timeout_at(attempt, prolong(&api, settings, clock, keep)).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => return Err(KeepError::OtherHands { name }),
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
                "it was changed by somebody else".to_owned()
            }
            Ok(Err(error)) if passes(&error) => chain(&error),
            Ok(Err(source)) => return Err(KeepError::Refused { name, source }),
            Err(_) => "the API server did not answer in time".to_owned(),
        };
        let pause = settings.retry / 2;
        if Instant::now() + pause >= end {
            let tried = settings.duration;
            return Err(KeepError::Unanswered { name, tried, problem });
        }
        tracing::warn!("the lease {name} cannot be kept yet: {problem}");
        sleep(pause).await;
    }
}

/// One attempt; false if the lease is not ours.
async fn prolong(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    clock: &Clock,
    keep: Duration,
) -> Result<bool, kube::Error> {
    let found = api.get(&settings.name).await?;
    let view = LeaseView::of(&found, settings.duration);
    if view.holder.as_deref() != Some(&settings.identity) {
        return Ok(false);
    }
    let body = lease_held_by_us(Some(found), settings, clock, keep, view.transitions);
    api.replace(&settings.name, &PostParams::default(), &body).await?;
    Ok(true)
}

fn lease_held_by_us(
    found: Option<Lease>,
    settings: &LeaseSettings,
    clock: &Clock,
    duration: Duration,
    transitions: i32,
) -> Lease {
    let before = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let now = Some(MicroTime(clock.now()));
    let renewal = before.holder_identity.as_deref() == Some(&settings.identity);
    let metadata = found.map_or_else(
        || ObjectMeta {
            namespace: Some(settings.namespace.clone()),
            name: Some(settings.name.clone()),
            ..ObjectMeta::default()
        },
        |lease| lease.metadata,
    );
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            holder_identity: Some(settings.identity.clone()),
            lease_duration_seconds: Some(super::whole_seconds(duration)),
            lease_transitions: if renewal { before.lease_transitions } else { Some(transitions) },
            acquire_time: if renewal { before.acquire_time.clone() } else { now.clone() },
            renew_time: now,
            ..before
        }),
    }
}
