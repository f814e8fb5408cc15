//! The cluster managers, and what the caches count for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use coppice_kinds::{ClusterManager, cluster_manager_facts, past_deletion, record_facts};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Census, Counted, census};
use coppice_lifecycle::cluster::recreated::Recreated;
use coppice_lifecycle::cluster::selection::{ClusterManagerFacts, contest};
use coppice_lifecycle::facts::AnnotationKeys;
use coppice_runtime::store::Freshness;
use jiff::Timestamp;

use crate::context::ControllerContext;

/// What there is.
pub(super) struct Observation {
    pub(super) managers: Vec<Arc<ClusterManager>>,
    /// None if a manager cannot be understood, or names an annotation that was not read: then it is not known who governs what.
    pub(super) census: Option<Arc<Census>>,
    /// Which annotations every namespace has been listed with, also while they are listed with others.
    pub(super) annotations: AnnotationKeys,
    /// Of the records of each cluster manager that do not say so yet the first that was refused, by the manager's name.
    pub(super) refused: BTreeMap<String, RefusedRecord>,
    pub(super) settings: Arc<PlatformSettings>,
    pub(super) now: Timestamp,
}

/// A record that the API server refuses.
pub(super) struct RefusedRecord {
    pub(super) namespace: String,
    /// In its words.
    pub(super) why: String,
}

/// None if the caches are behind.
pub(super) fn observe(shared: &ControllerContext) -> Option<Observation> {
    let fresh = [
        shared.cluster_managers.freshness(),
        shared.managed_namespaces.freshness(),
        shared.managers.freshness(),
        shared.deleted_namespaces.freshness(),
        shared.namespaces.freshness(),
        shared.configs.freshness(),
    ];
    if !fresh.iter().all(|freshness| matches!(freshness, Freshness::Fresh(_))) {
        return None;
    }
    let managers = shared.cluster_managers.list("");
    let facts: Vec<_> = managers.iter().map(|manager| cluster_manager_facts(manager)).collect();
    let namespaces = shared.namespaces.list("");
    let (settings, _) = shared.settings();
    let now = shared.now();
    let records: Vec<_> = namespaces.iter().map(|namespace| shared.record(&namespace.name)).collect();
    let counted = namespaces.iter().zip(&records).map(|(namespace, record)| Counted {
        namespace,
        record: record.as_deref().map(record_facts),
        managed: !shared.managers.list(&namespace.name).is_empty(),
    });
    let census = census(counted, &facts, &settings, shared.managers.namespaces() as u64, now);
    let deletions = shared.deleted_namespaces.list("");
    let recreated = || Recreated::of(deletions.iter().filter_map(|record| past_deletion(record)), now);
    let census = census.map(|census| Census { recreated: Some(recreated()), ..census });
    let annotations = shared.namespaces.listed_context().map(|keys| (*keys).clone()).unwrap_or_default();
    let refused = refused(shared, &facts);
    Some(Observation { managers, census: census.map(Arc::new), annotations, refused, settings, now })
}

/// Of each cluster manager the first record that is not written because the API server refuses it.
fn refused(
    shared: &ControllerContext,
    managers: &[ClusterManagerFacts<'_>],
) -> BTreeMap<String, RefusedRecord> {
    let mut first = BTreeMap::new();
    for (name, why) in shared.refused_records.all() {
        let namespace = shared.namespaces.get("", &name).filter(|namespace| !namespace.terminating);
        let contest = namespace.and_then(|namespace| contest(managers.iter().copied(), &namespace).ok());
        let Some(winner) = contest.and_then(|contest| contest.winner) else { continue };
        let record = shared.record(&name);
        let recorded = record.as_ref().and_then(|record| record.status.manager.as_ref());
        if !recorded.is_some_and(|recorded| winner.is(recorded)) {
            first.entry(winner.name.to_owned()).or_insert(RefusedRecord { namespace: name, why });
        }
    }
    first
}
