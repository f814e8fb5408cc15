//! What is known of the namespace that has taken the place of another one.

use std::sync::Arc;

use coppice_api::NamespacePhase;
use coppice_api::names::MANAGED_NAMESPACE_NAME;
use coppice_kinds::{ManagedNamespaces, NamespaceRecord, Namespaces, record_facts};
use coppice_lifecycle::cluster::SuccessorFacts;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_runtime::read;

use crate::context::ControllerContext;
use crate::health::HealthObservation;
use crate::status_writer::FactsError;

/// It, as found when all namespaces were compared, and as it is now.
pub(crate) enum SuccessorObservation {
    /// There is none.
    None,
    /// This one.
    Found {
        /// It.
        namespace: Arc<NamespaceFacts>,
        /// Its record.
        record: Arc<NamespaceRecord>,
        /// Its workloads, where they were read again.
        workloads: Option<Box<HealthObservation>>,
    },
    /// They have not been compared, or its record cannot be understood.
    Unknown,
}

impl SuccessorObservation {
    /// By the caches.
    pub(crate) fn cached(shared: &ControllerContext, name: &str) -> Self {
        let later = match successor_of(shared, name) {
            Ok(later) => later,
            Err(other) => return other,
        };
        // What cannot be understood is not in the cache of namespaces.
        if shared.namespaces.unreadable_object(&later).is_some() {
            return Self::Unknown;
        }
        Self::of(shared.namespaces.get("", &later), shared.record(&later), None)
    }

    /// Straight from the API server.
    pub(crate) async fn fresh(shared: &ControllerContext, name: &str) -> Result<Self, FactsError> {
        let later = match successor_of(shared, name) {
            Ok(later) => later,
            Err(other) => return Ok(other),
        };
        let (client, keys) = (&shared.clients.reads, shared.namespaces.current_context());
        let (namespace, record, workloads) = futures::future::join3(
            read::get_with::<Namespaces>(client, "", &later, &keys),
            read::get::<ManagedNamespaces>(client, &later, MANAGED_NAMESPACE_NAME),
            HealthObservation::fresh(shared, &later),
        )
        .await;
        Ok(Self::of(namespace?.map(Arc::new), record?.map(Arc::new), Some(Box::new(workloads?))))
    }

    fn of(
        namespace: Option<Arc<NamespaceFacts>>,
        record: Option<Arc<NamespaceRecord>>,
        workloads: Option<Box<HealthObservation>>,
    ) -> Self {
        match (namespace, record) {
            (Some(_), Some(record)) if record.status_error.is_some() => Self::Unknown,
            (Some(namespace), Some(record)) => Self::Found { namespace, record, workloads },
            (None, _) | (_, None) => Self::None,
        }
    }

    /// As the pure functions take it.
    pub(crate) fn facts(&self) -> SuccessorFacts<'_> {
        match self {
            Self::None => SuccessorFacts::None,
            Self::Found { namespace, record, workloads } => SuccessorFacts::Found {
                namespace,
                record: record_facts(record),
                workloads: workloads.as_ref().map(|workloads| Box::new(workloads.facts())),
            },
            Self::Unknown => SuccessorFacts::Unknown,
        }
    }
}

/// The namespace that has taken the place of this one, when they were last compared; otherwise what is known instead.
fn successor_of(shared: &ControllerContext, name: &str) -> Result<Arc<str>, SuccessorObservation> {
    let census = shared.census().ok_or(SuccessorObservation::Unknown)?;
    let successors = census.successors.as_ref().ok_or(SuccessorObservation::Unknown)?;
    let later = successors.get(name).ok_or(SuccessorObservation::None)?;
    Ok(Arc::clone(&later.name))
}

/// The namespaces whose records do not say yet what came of comparing them.
pub(crate) fn not_recorded(shared: &ControllerContext) -> Vec<Arc<str>> {
    let census = shared.census();
    let Some(successors) = census.as_ref().and_then(|census| census.successors.as_ref()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    shared.managed_namespaces.for_each(|record| {
        let recorded = record.status.superseded_by.as_ref().map(|by| &*by.namespace);
        // Nothing more is written to these.
        let ends = record.status_error.is_some()
            || record.terminating
            || record.status.phase == Some(NamespacePhase::Terminating);
        if !ends && successors.get(&*record.namespace).map(|later| &*later.name) != recorded {
            all.push(Arc::from(&*record.namespace));
        }
    });
    all
}
