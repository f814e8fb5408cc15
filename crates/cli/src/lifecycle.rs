//! What is read for the plans of managers and of cluster managers, at one instant: of a cluster or of files. A further suite has a
//! snapshot of its own, in a file beside this one.

mod cluster;
pub(crate) mod documents;
mod governed;
mod resolved_plan;
mod subnamespaces;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use coppice_api::CoppiceConfigSpec;
use coppice_api::config::GovernorStatus;
use coppice_lifecycle::cluster::census::Census;
use coppice_lifecycle::facts::{JobFacts, NamespaceFacts, NamespaceSnapshot, PodFacts};
use coppice_lifecycle::governor::hourly_limit;
use coppice_lifecycle::plan::MAX_MANAGERS;
use coppice_lifecycle::settings::{PlatformSettings, ScaleKind};
use jiff::Timestamp;

use crate::args::{ConnectionArgs, SourceArgs};
use crate::by_namespace::ByNamespace;
use crate::connect::connect;
use crate::facts::{Config, Manager};
use crate::refused_pods::RefusedPods;
use crate::{Io, files, print, with_progress};
use documents::Reading;
pub(crate) use governed::{Governed, GovernedPlan, UnknownManagers};
pub(crate) use resolved_plan::{ResolvedPlan, resolved_plan};
pub(crate) use subnamespaces::TreeObjects;

/// A plan needs a few passes to unfold (a notice or an intent is written first); no plan needs more than this.
const MAX_PASSES: usize = 10;

/// What there is.
#[derive(Debug)]
pub(crate) struct LifecycleSnapshot {
    /// The managers that were asked for, by namespace and name.
    pub(crate) managers: Vec<Manager>,
    /// Namespace and name of the managers that have too many older ones beside them.
    pub(crate) excess_managers: BTreeSet<(String, String)>,
    /// Every namespace that is known.
    pub(crate) namespaces: BTreeMap<String, NamespaceFacts>,
    pub(crate) pods: ByNamespace<PodFacts>,
    pub(crate) jobs: ByNamespace<JobFacts>,
    pub(crate) governed: Governed,
    pub(crate) settings: PlatformSettings,
    pub(crate) budget: GovernorStatus,
    /// The namespaces that have a manager of their own.
    pub(crate) own_managers: BTreeSet<String>,
    /// How many namespaces are managed.
    pub(crate) managed: u64,
    /// What there is for each cluster manager; none if that is not known.
    pub(crate) census: Option<Census>,
    /// What Events in files say of refused pods, by namespace; those of a cluster are read when they are needed.
    pub(crate) refused_pods: BTreeMap<String, Vec<RefusedPods>>,
    /// What there is of trees: of files, or of a cluster once it was [read](Self::read_trees).
    pub(crate) trees: TreeObjects,
    /// Remarks on how the snapshot was made.
    pub(crate) warnings: Vec<String>,
}

impl LifecycleSnapshot {
    /// A namespace and what is in it; none if it could not be read.
    pub(crate) fn of_namespace(&self, namespace: &str) -> Option<NamespaceSnapshot<'_>> {
        let facts = self.namespaces.get(namespace)?;
        Some(NamespaceSnapshot::new(facts, self.pods.fact(namespace), self.jobs.fact(namespace)))
    }
}

/// Which managers to show.
#[derive(Clone, Copy)]
pub(crate) struct ManagerFilter<'a> {
    /// None for all namespaces; for files also if nothing was said.
    pub(crate) namespace: Option<&'a str>,
    /// One manager of the namespace.
    pub(crate) name: Option<&'a str>,
    /// Whose conditions are judged: if one of them rests on pods and Jobs, these are read.
    pub(crate) judged: JudgedManagers,
}

/// Whose conditions are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum JudgedManagers {
    /// Those of all managers that are found.
    All,
    /// Those of cluster managers alone, the ones that are found and further ones.
    Cluster {
        /// Whether one of the further ones waits for pods.
        further_need_pods: bool,
    },
}

/// Makes a snapshot of files, or of the cluster, and reports on standard error what was assumed. Also returns the
/// instant to plan for.
pub(crate) async fn read(
    source: &SourceArgs,
    wanted: ManagerFilter<'_>,
    connection: &ConnectionArgs,
    io: &mut Io<'_>,
) -> Result<(LifecycleSnapshot, Timestamp)> {
    let at = source.at.map_or(io.now, |at| at.from(io.now));
    let mut snapshot = if source.files.is_empty() {
        let api = connect(connection, io).await?;
        with_progress("reading the cluster", io, cluster::snapshot(&api.client, wanted, source)).await??
    } else {
        let documents = files::read(&source.files, source.recursive, io.stdin)?;
        let further_need_pods = matches!(wanted.judged, JudgedManagers::Cluster { further_need_pods: true });
        let assumed = io.now.min(at);
        let reading = Reading { source, namespace: wanted.namespace, assumed, further_need_pods };
        let mut snapshot = documents::snapshot(&documents, reading)?;
        snapshot.managers.retain(|m| wanted.name.is_none_or(|n| n == m.name()));
        if let Some(note) = documents::defaults_assumed(&documents) {
            io.print_note(note)?;
        }
        snapshot
    };
    // Of a cluster of which one namespace is known, the operator knows the rest.
    if source.files.is_empty() && wanted.namespace.is_some() {
        snapshot.census = snapshot.governed.reported_census(at);
    } else {
        snapshot.count(at);
    }
    for warning in &snapshot.warnings {
        io.print_note(&format!("warning: {warning}"))?;
    }
    if source.at.is_some() {
        let when = print::instant_from(at, io.now);
        io.print_note(&format!(
            "as of {when}: only the clock moves; objects, pods and the budget are as they are now"
        ))?;
    }
    Ok((snapshot, at))
}

/// The namespaces that have a manager of their own.
fn own_managers(managers: &[Manager]) -> BTreeSet<String> {
    managers.iter().map(|manager| manager.namespace().to_owned()).collect()
}

/// The managers that are not followed because their namespace has too many, by namespace and name.
fn excess_managers(managers: &[Manager]) -> BTreeSet<(String, String)> {
    let mut by_namespace: BTreeMap<&str, Vec<&Manager>> = BTreeMap::new();
    for manager in managers {
        by_namespace.entry(manager.namespace()).or_default().push(manager);
    }
    let beyond = by_namespace.into_values().flat_map(|mut all| {
        all.sort_by_key(|m| (m.meta.creation_timestamp.as_ref().map_or(Timestamp::MAX, |at| at.0), m.name()));
        all.into_iter().skip(MAX_MANAGERS)
    });
    beyond.map(|m| (m.namespace().to_owned(), m.name().to_owned())).collect()
}

/// The compiled settings, with the budget's ledger. Settings that are absent have their defaults; settings that
/// cannot be understood stop every destructive step, as in the operator.
fn settings(
    config: Option<Config>,
    own_namespace: &str,
    scale_kinds: Vec<ScaleKind>,
    warnings: &mut Vec<String>,
) -> (PlatformSettings, GovernorStatus) {
    let (spec, budget) = match config {
        None => (CoppiceConfigSpec::default(), GovernorStatus::default()),
        Some(config) => {
            let spec = config.spec.unwrap_or_else(|error| {
                warnings.push(format!("CoppiceConfig/coppice: {error}; no destructive step is taken"));
                let mut spec = CoppiceConfigSpec::default();
                spec.governor.paused = true;
                spec
            });
            (spec, config.status.governor)
        }
    };
    let settings = PlatformSettings::new(spec, own_namespace, scale_kinds);
    warnings.extend(
        settings.problems.iter().map(|p| format!("CoppiceConfig/coppice: {p}; the entry permits nothing")),
    );
    (settings, budget)
}

/// The number of managed namespaces that gives the hourly limit which the operator reports: the count itself may not be
/// visible to the user.
fn managed_by_limit(settings: &PlatformSettings, budget: &GovernorStatus) -> u64 {
    let settings = &settings.config.governor;
    let percent = settings.max_share.of(100).max(1);
    let managed = (u64::from(budget.hourly_limit) * 100).div_ceil(percent);
    if hourly_limit(settings, managed) == budget.hourly_limit { managed } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reported_limit_gives_back_a_count_with_the_same_limit() {
        let settings = PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new());
        for managed in [0, 1, 50, 51, 99, 1000, 100_000] {
            let limit = hourly_limit(&settings.config.governor, managed);
            let budget = GovernorStatus { hourly_limit: limit, ..GovernorStatus::default() };
            assert_eq!(
                hourly_limit(&settings.config.governor, managed_by_limit(&settings, &budget)),
                limit,
                "{managed}"
            );
        }
    }
}
