//! Taking the lease from a leader that works, for a program that has to be alone: what wakes everything before an uninstallation.
//!
//! A leader that finds its lease in other hands ends, and its successor follows. What it had sent before has ended when the lease has
//! been ours for its duration, by the same reckoning by which a standby waits for a lease to expire.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::{Instant, sleep};

use super::{LeaseSettings, LeaseView};
use crate::client::{Clients, ambiguous};
use crate::clock::Clock;
use crate::error::chain;

/// Takes the lease, whoever holds it, and returns when nothing is under way any more that another leader has sent. An
/// [`Election`](super::Election) with the same settings leads from there on.
///
/// Without an answer of the API server it goes on trying; what it refuses is an error. Dropping the future leaves the lease to expire.
pub async fn seize(clients: &Clients, settings: &LeaseSettings, clock: &Clock) -> Result<(), String> {
    let api: Api<Lease> = Api::namespaced(clients.writes.clone(), &settings.namespace);
    let name = format!("{}/{}", settings.namespace, settings.name);
    // When what others have sent has ended, once the lease is ours.
    let mut alone: Option<Instant> = None;
    loop {
        match turn(&api, settings, clock, &mut alone).await {
            Ok(()) if alone.is_some_and(|alone| alone <= Instant::now()) => return Ok(()),
            Ok(()) => {}
            // Another was faster: look again.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                alone = None;
                continue;
            }
            Err(error) if ambiguous(&error) || !matches!(error, kube::Error::Api(_)) => {
                tracing::warn!("the lease {name} cannot be taken yet: {}", chain(&error));
            }
            Err(error) => return Err(format!("the lease {name} cannot be taken: {}", chain(&error))),
        }
        let left = alone.map_or(settings.retry, |alone| alone.saturating_duration_since(Instant::now()));
        sleep(left.min(settings.retry)).await;
    }
}

/// Makes the lease ours, or renews it.
async fn turn(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    clock: &Clock,
    alone: &mut Option<Instant>,
) -> Result<(), kube::Error> {
    let found = api.get_opt(&settings.name).await?;
    let view = found.as_ref().map(|lease| LeaseView::of(lease, settings.duration));
    let holder = view.as_ref().and_then(|view| view.holder.clone());
    let parameters = PostParams {
        field_manager: Some(coppice_api::names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    if holder.as_deref() != Some(&settings.identity) {
        *alone = None;
    }
    let transitions = view.as_ref().map_or(0, |view| view.transitions.saturating_add(1));
    let body = ours(found.clone(), settings, clock, settings.duration, transitions);
    match found {
        None => drop(api.create(&parameters, &body).await?),
        Some(_) => drop(api.replace(&settings.name, &parameters, &body).await?),
    }
    if alone.is_none() {
        // A lease that nobody held was released when its holder had finished, or never held. One that is ours was taken by a write
        // whose answer was lost: who held it before is not known any more.
        let rest = view.filter(|view| view.holder.is_some()).map(|view| view.duration.max(settings.duration));
        if let (Some(holder), Some(rest)) = (&holder, rest) {
            tracing::info!(%holder, ?rest, "took the lease from its holder: waiting until what it has sent has ended");
        }
        *alone = Some(Instant::now() + rest.unwrap_or_default());
    }
    Ok(())
}

/// Leaves the lease as ours for `keep` without renewing it: no replica leads in that time.
pub async fn keep(
    clients: &Clients,
    settings: &LeaseSettings,
    clock: &Clock,
    keep: Duration,
) -> Result<(), String> {
    let api: Api<Lease> = Api::namespaced(clients.writes.clone(), &settings.namespace);
    let name = format!("{}/{}", settings.namespace, settings.name);
    let found = api.get(&settings.name).await.map_err(|e| format!("the lease {name}: {}", chain(&e)))?;
    let view = LeaseView::of(&found, settings.duration);
    if view.holder.as_deref() != Some(&settings.identity) {
        return Err(format!("the lease {name} is in other hands"));
    }
    let body = ours(Some(found), settings, clock, keep, view.transitions);
    let written = api.replace(&settings.name, &PostParams::default(), &body).await;
    written.map(drop).map_err(|e| format!("the lease {name}: {}", chain(&e)))
}

fn ours(
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
