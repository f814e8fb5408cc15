//! Namespaces under three cluster managers, in memory, and passes over them: counting all of them, and planning each.

use std::hint::black_box;

use anyhow::{Context as _, ensure};
use coppice_api::config::{CoppiceConfigSpec, GovernorStatus};
use coppice_api::{ManagedNamespaceSpec, ManagedNamespaceStatus};
use coppice_lifecycle::PlatformSettings;
use coppice_lifecycle::cluster::census::{Census, Counted, census};
use coppice_lifecycle::cluster::{
    ClusterManagerFacts, ClusterObserved, HealthFacts, NamespaceStep, RecordFacts, SuccessorFacts,
    ValidClusterManager, plan,
};
use coppice_lifecycle::facts::{Fact, NamespaceFacts, ObjectSlice, PodFacts};
use coppice_lifecycle::health::Workloads;
use coppice_lifecycle::plan::Delivery;
use coppice_quantity::time::ServerTime;
use jiff::{SignedDuration, Timestamp};

use super::fleet::{namespace, pod};

/// Records stand still after a few plans; more is a loop.
const ROUNDS: usize = 10;
/// Pods of a namespace, all of which are well.
const PODS: usize = 10;
/// Each governs a third of the namespaces, by their names, and looks at the health.
const MANAGERS: [(&str, &str); 3] = [
    ("first", "{names: ['team-0*'], exclude: ['team-07*', 'team-08*', 'team-09*']}"),
    (
        "second",
        "{names: ['team-07*', 'team-08*', 'team-09*', 'team-10*', 'team-11*', 'team-12*', 'team-13*']}",
    ),
    ("third", "{names: ['team-1*'], exclude: ['team-10*', 'team-11*', 'team-12*', 'team-13*']}"),
];

/// Namespaces whose records have settled.
pub struct GovernedFleet {
    namespaces: Vec<NamespaceFacts>,
    records: Vec<ManagedNamespaceStatus>,
    managers: Vec<(&'static str, ValidClusterManager)>,
    pods: Vec<PodFacts>,
    spec: ManagedNamespaceSpec,
    settings: PlatformSettings,
    budget: GovernorStatus,
    now: Timestamp,
}

impl GovernedFleet {
    /// Builds it. An error means that this benchmark does not measure what it says.
    pub fn new(namespaces: usize) -> anyhow::Result<Self> {
        let created: Timestamp = "2026-03-01T12:00:00Z".parse().context("the instant of creation")?;
        let manager = |(name, selector): (&'static str, &str)| {
            let text = format!(
                "{{mode: Enforce, selector: {selector}, ttl: {{after: 300d}}, health: {{}}, policies: [{{name: stale, when: {{phase: \
                 {{in: [Stale]}}}}, then: {{delete: {{notice: 1h}}}}}}, {{name: failed, when: {{phase: {{in: [Failed]}}}}, then: \
                 {{delete: {{notice: 1h}}}}}}]}}"
            );
            let spec: ValidClusterManager = serde_yaml::from_str(&text).context("a cluster manager")?;
            anyhow::Ok((name, spec))
        };
        let mut fleet = Self {
            namespaces: (0..namespaces).map(|n| namespace(n, created)).collect(),
            records: vec![ManagedNamespaceStatus::default(); namespaces],
            managers: MANAGERS.into_iter().map(manager).collect::<Result<_, _>>()?,
            pods: (0..PODS).map(pod).collect(),
            spec: ManagedNamespaceSpec::default(),
            settings: PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new()),
            budget: GovernorStatus::default(),
            now: created + SignedDuration::from_secs(1),
        };
        // Once when they are new, and once when every clock has run.
        for _ in 0..2 {
            fleet.settle()?;
            fleet.now += SignedDuration::from_hours(1);
        }
        fleet.settle()?;
        ensure!(fleet.pass() == 0, "records of a settled fleet are to be written");
        Ok(fleet)
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        for _ in 0..ROUNDS {
            let (managers, mut changed) = (self.facts(), Vec::new());
            let counts = self.count(&managers);
            for n in 0..self.namespaces.len() {
                if let NamespaceStep::WriteStatus(status) = self.plan(n, &managers, counts.as_ref()) {
                    changed.push((n, *status));
                }
            }
            if changed.is_empty() {
                return Ok(());
            }
            for (n, status) in changed {
                self.records[n] = status;
            }
        }
        anyhow::bail!("the records never stand still")
    }

    fn facts(&self) -> Vec<ClusterManagerFacts<'_>> {
        let facts = |(name, spec)| ClusterManagerFacts {
            name,
            uid: name,
            generation: 1,
            terminating: false,
            spec: Ok(spec),
        };
        self.managers.iter().map(|(name, spec)| facts((*name, spec))).collect()
    }

    fn record(&self, n: usize) -> RecordFacts<'_> {
        let (spec, status) = (Ok(&self.spec), &self.records[n]);
        RecordFacts { uid: "record", generation: 1, terminating: false, spec, status }
    }

    fn count(&self, managers: &[ClusterManagerFacts<'_>]) -> Option<Census> {
        let counted = self.namespaces.iter().enumerate().map(|(n, namespace)| Counted {
            namespace,
            record: Some(self.record(n)),
            managed: false,
        });
        census(counted, managers, &self.settings, 0, self.now)
    }

    fn plan(&self, n: usize, managers: &[ClusterManagerFacts<'_>], counts: Option<&Census>) -> NamespaceStep {
        let workloads = Workloads { pods: ObjectSlice::Slice(&self.pods), ..Workloads::EMPTY };
        let observed = ClusterObserved {
            namespace: Ok(&self.namespaces[n]),
            record: Some(self.record(n)),
            managers,
            health: HealthFacts::Known { workloads, followed: Timestamp::MIN, before: None },
            pods: Fact::Known { value: ObjectSlice::Slice(&self.pods), since: Timestamp::MIN },
            jobs: Fact::Known { value: ObjectSlice::EMPTY, since: Timestamp::MIN },
            pods_heard: self.now,
            settings: &self.settings,
            budget: &self.budget,
            managed: self.namespaces.len() as u64,
            census: counts,
            successor: SuccessorFacts::None,
            stale: None,
            other: None,
            webhook: None,
            delivery: Delivery::None,
            deliveries: &coppice_lifecycle::plan::NO_DELIVERIES,
            address_key: None,
        };
        plan(&observed, ServerTime::certain(self.now)).step
    }

    /// Counts all namespaces and plans every one; returns how many records are to be written.
    pub fn pass(&self) -> usize {
        let managers = self.facts();
        let counts = black_box(self.count(&managers));
        let steps = (0..self.namespaces.len()).map(|n| black_box(self.plan(n, &managers, counts.as_ref())));
        steps.filter(|step| *step != NamespaceStep::Nothing).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settled_fleet_is_governed_by_all_three_and_has_nothing_to_write() {
        let fleet = GovernedFleet::new(400).unwrap();
        let counts = fleet.count(&fleet.facts()).unwrap();
        let governed: Vec<u32> = counts.managers.values().map(|counts| counts.namespaces.governed).collect();
        assert_eq!(governed, [140, 140, 120], "every namespace is governed");
    }
}
