//! What is lost with a namespace, from the objects that say so. It decides nothing: people read it before it happens.

use std::collections::BTreeMap;
use std::fmt::Display;

pub use coppice_api::losses::Losses;
use coppice_api::losses::{ForeignFinalizer, LostLoadBalancer, LostVolume, MAX_LISTED};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Of each load balancer so many addresses are listed.
const MAX_ADDRESSES: usize = 4;
const A_VOLUME: &str = "PersistentVolume ";
/// Longer texts of errors are cut.
const MAX_ERROR: usize = 1000;

/// What Kubernetes itself removes in time. Sources: `k8s.io/api/core/v1` (`FinalizerKubernetes`), `k8s.io/kubernetes/pkg/volume/util`
/// (`PVCProtectionFinalizer`), `k8s.io/cloud-provider/service/helpers` (`LoadBalancerCleanupFinalizer`), `k8s.io/apimachinery`
/// (`FinalizerDeleteDependents`, `FinalizerOrphanDependents`), `k8s.io/api/batch/v1` (`JobTrackingFinalizer`), `k8s.io/api/resource/v1`
/// (`Finalizer`).
const OF_KUBERNETES: [&str; 7] = [
    "kubernetes",
    "kubernetes.io/pvc-protection",
    "service.kubernetes.io/load-balancer-cleanup",
    "foregroundDeletion",
    "orphan",
    "batch.kubernetes.io/job-tracking",
    "resource.kubernetes.io/delete-protection",
];
/// Our own are removed as soon as their objects are deleted.
const OURS: &str = "coppice.dev/";

/// What there is that may be lost, or why it is not known: whoever reads it has errors of its own.
#[derive(Debug)]
pub struct AtStake<E> {
    /// The namespace.
    pub namespace: Result<Namespace, E>,
    /// The claims in it.
    pub claims: Result<Vec<PersistentVolumeClaim>, E>,
    /// The volumes that they are bound to, by name. One that is not among them is not there.
    pub volumes: BTreeMap<String, Result<PersistentVolume, E>>,
    /// The Services in it.
    pub services: Result<Vec<Service>, E>,
}

/// The volume that a claim is bound to, if it is. `spec.volumeName` alone is what users ask for, whosever that volume is.
pub fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    let is_bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| is_bound && !name.is_empty())
}

/// Whether a volume says that it is bound to this claim.
fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let of = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let of = of.map(|of| (&of.namespace, &of.name, &of.uid));
    of == Some((&claim.metadata.namespace, &claim.metadata.name, &claim.metadata.uid))
}

/// Whether a finalizer is one that neither Kubernetes nor Coppice removes by itself.
pub fn is_foreign(finalizer: &str) -> bool {
    !OF_KUBERNETES.contains(&finalizer) && !finalizer.starts_with(OURS)
}

/// What is lost with a namespace.
pub fn losses<E: Display>(at_stake: &AtStake<E>) -> Losses {
    let mut found = Found::default();
    match &at_stake.namespace {
        Ok(namespace) => {
            found.finalizers_of("Namespace", &namespace.metadata);
            let spec = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
            found.finalizers("Namespace", &namespace.metadata, spec);
        }
        Err(error) => found.unknown("the namespace", error),
    }
    match &at_stake.claims {
        Ok(claims) => claims.iter().for_each(|claim| found.claim(claim, &at_stake.volumes)),
        Err(error) => found.unknown("its PersistentVolumeClaims", error),
    }
    match &at_stake.services {
        Ok(services) => services.iter().for_each(|service| found.service(service)),
        Err(error) => found.unknown("its Services", error),
    }
    found.listed()
}

#[derive(Default)]
struct Found(Losses);

impl Found {
    fn claim<E: Display>(
        &mut self,
        claim: &PersistentVolumeClaim,
        volumes: &BTreeMap<String, Result<PersistentVolume, E>>,
    ) {
        self.finalizers_of("PersistentVolumeClaim", &claim.metadata);
        let Some(name) = volume_of(claim) else { return };
        let bound = || claim.status.as_ref()?.capacity.as_ref()?.get("storage");
        let requested = || claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage");
        let volume = match volumes.get(name) {
            // Another's: nothing of it is said.
            Some(Ok(volume)) if !is_bound_to(volume, claim) => return,
            Some(Ok(volume)) => Some(volume),
            Some(Err(error)) => {
                // Whoever may not read one may read none: the first says it for all.
                if !self.0.unknown.iter().any(|known| known.starts_with(A_VOLUME)) {
                    self.unknown(&format!("{A_VOLUME}{name}"), error);
                }
                None
            }
            // There is no such volume any more: nothing of it can be lost.
            None => return,
        };
        let spec = volume.and_then(|volume| volume.spec.as_ref());
        let capacity =
            spec.and_then(|spec| spec.capacity.as_ref()?.get("storage")).or_else(bound).or_else(requested);
        self.0.volumes.push(LostVolume {
            claim: claim.metadata.name.clone().unwrap_or_default(),
            volume: name.to_owned(),
            capacity: capacity.map(|quantity| quantity.0.clone()),
            reclaim_policy: spec.and_then(|spec| spec.persistent_volume_reclaim_policy.clone()),
        });
    }

    fn service(&mut self, service: &Service) {
        self.finalizers_of("Service", &service.metadata);
        if service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) != Some("LoadBalancer") {
            return;
        }
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.into_iter().flat_map(|balancer| balancer.ingress.iter().flatten());
        let addresses = ingress.filter_map(|ingress| ingress.ip.clone().or_else(|| ingress.hostname.clone()));
        self.0.load_balancers.push(LostLoadBalancer {
            service: service.metadata.name.clone().unwrap_or_default(),
            addresses: addresses.take(MAX_ADDRESSES).collect(),
        });
    }

    fn finalizers_of(&mut self, kind: &str, metadata: &ObjectMeta) {
        self.finalizers(kind, metadata, metadata.finalizers.iter().flatten());
    }

    fn finalizers<'a>(
        &mut self,
        kind: &str,
        metadata: &ObjectMeta,
        finalizers: impl Iterator<Item = &'a String>,
    ) {
        self.0.finalizers.extend(finalizers.filter(|finalizer| is_foreign(finalizer)).map(|finalizer| {
            let (kind, name) = (kind.to_owned(), metadata.name.clone().unwrap_or_default());
            ForeignFinalizer { finalizer: finalizer.clone(), kind, name }
        }));
    }

    fn unknown(&mut self, what: &str, error: &impl Display) {
        let error: String = error.to_string().chars().take(MAX_ERROR - what.len().min(MAX_ERROR)).collect();
        self.0.unknown.push(format!("{what}: {error}"));
    }

    /// What fits into a status, in an order that does not depend on the lists.
    fn listed(self) -> Losses {
        let Losses { mut volumes, mut load_balancers, mut finalizers, mut unknown, .. } = self.0;
        // Of what does not fit, what stays is the first to be left out.
        volumes.sort_by(|a, b| (a.stays(), &a.claim).cmp(&(b.stays(), &b.claim)));
        load_balancers.sort_by(|a, b| a.service.cmp(&b.service));
        finalizers.sort();
        unknown.sort();
        let more = [volumes.len(), load_balancers.len(), finalizers.len()].into_iter();
        let more: usize = more.map(|found| found.saturating_sub(MAX_LISTED)).sum();
        volumes.truncate(MAX_LISTED);
        load_balancers.truncate(MAX_LISTED);
        finalizers.truncate(MAX_LISTED);
        unknown.truncate(MAX_LISTED);
        let more = u32::try_from(more).ok().filter(|more| *more > 0);
        Losses { volumes, load_balancers, finalizers, more, unknown }
    }
}
