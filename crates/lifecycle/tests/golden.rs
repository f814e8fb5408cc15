//! Statuses as the first version wrote them, in `golden/`: files that never change. After an upgrade each is still understood,
//! fires nothing, and nothing but its conditions is written again, once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::Scene;
use coppice_api::condition::{self, READY};
use coppice_api::manager::{NamespaceManagerSpec, NamespaceManagerStatus, Phase};
use coppice_lifecycle::facts::{JobState, PodPhase};
use coppice_lifecycle::plan::Step;
use coppice_lifecycle::{DigestComparison, PolicyDigests};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;

/// A status, and what it was written about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    about: String,
    now: Timestamp,
    generation: i64,
    terminating: bool,
    protected: bool,
    pods: Vec<Pod>,
    jobs: Vec<Job>,
    spec: NamespaceManagerSpec,
    status: NamespaceManagerStatus,
}

#[derive(Deserialize)]
struct Pod {
    name: String,
    phase: String,
    job: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Job {
    name: String,
    complete: bool,
    succeeded: u32,
}

impl Golden {
    fn scene(self) -> Scene {
        let mut scene = Scene::policy("{podsSucceed: {}}", "{delete: {}}");
        scene.namespace.terminating = self.terminating;
        if self.protected {
            scene.namespace.labels = [("coppice.dev/protected", "true")].into_iter().collect();
        }
        for pod in self.pods {
            let made = scene.pod(&pod.name, PodPhase::parse(Some(&pod.phase)));
            made.labels = pod.labels.into_iter().collect();
            made.job = pod.job.map(Into::into);
        }
        for job in self.jobs {
            let state = if job.complete { JobState::Complete } else { JobState::Unfinished };
            scene.job(&job.name, state, job.succeeded);
        }
        Scene { spec: self.spec, status: self.status, generation: self.generation, ..scene }
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn each(mut check: impl FnMut(&str, Timestamp, Scene)) {
    for file in files() {
        let golden: Golden = serde_json::from_str(&std::fs::read_to_string(&file).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let about = format!("{} ({})", golden.about, file.display());
        check(&about, golden.now, golden.scene());
    }
}

#[test]
fn statuses_of_the_first_version_fire_nothing_and_only_their_conditions_are_written_again() {
    let mut phases = std::collections::BTreeSet::new();
    each(|about, now, mut scene| {
        phases.insert(scene.phase());
        let plan = scene.plan_at(now);
        assert_eq!((&plan.step, &plan.events), (&None, &Vec::new()), "{about}");
        let conditions = plan.status.conditions.clone();
        let other =
            NamespaceManagerStatus { conditions: scene.status.conditions.clone(), ..plan.status.clone() };
        assert_eq!(other, scene.status, "{about}");
        // The first version had one condition, and its reason was what the manager waits for.
        let since = |conditions: &[Condition]| {
            condition::find(conditions, READY).unwrap().last_transition_time.clone()
        };
        assert_eq!(since(&conditions), since(&scene.status.conditions), "{about}");
        scene.status = plan.status;
        assert_eq!(scene.plan_at(now).status, scene.status, "{about}: once");
    });
    assert_eq!(phases.len(), Phase::ALL.len(), "{phases:?}");
}

#[test]
fn what_has_fired_is_dormant_for_ever_and_armed_by_other_policies() {
    let mut seen = 0;
    each(|about, now, mut scene| {
        if scene.phase() != Phase::Fired {
            return;
        }
        seen += 1;
        let later = now + jiff::SignedDuration::from_hours(24 * 365);
        assert_eq!(
            (scene.plan_at(later).step, scene.plan_at(later).status.steps.intent),
            (None, None),
            "{about}"
        );
        scene.edit(|spec| spec.policies[0].name.push('!'));
        assert!(scene.plan_at(later).status.steps.intent.is_some(), "{about}: other policies arm it");
    });
    assert!(seen >= 6, "{seen}");
}

#[test]
fn steps_under_way_are_taken_up_as_they_were_decided() {
    let mut seen = 0;
    each(|about, _, scene| {
        let Some(intent) = scene.status.steps.intent.clone() else { return };
        seen += 1;
        let step = scene.plan_at(intent.next_attempt.unwrap()).step;
        let Some(
            Step::Delete(taken) | Step::ScaleDown(taken, _) | Step::Webhook(taken, _) | Step::Wake(taken),
        ) = step
        else {
            panic!("{about}: {step:?}")
        };
        assert_eq!(taken, intent, "{about}");
    });
    assert!(seen >= 4, "{seen}");
}

/// Every digest in them, also of the first and richest policies, is that of their spec in the form without a version.
#[test]
fn their_digests_are_recognised() {
    each(|about, _, scene| {
        let digests = PolicyDigests::of(&scene.spec.policies);
        let status = &scene.status;
        let stored = [
            status.policies_digest.as_deref(),
            status.steps.intent.as_ref().map(|intent| intent.digest.as_str()),
            status.steps.last_firing.as_ref().map(|firing| firing.digest.as_str()),
        ];
        for stored in stored.into_iter().flatten() {
            assert_eq!(digests.compare(stored), DigestComparison::Same, "{about}: {stored}");
            assert!(!stored.contains(':'), "{about}");
        }
    });
}
