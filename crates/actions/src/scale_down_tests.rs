use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_api::CoppiceConfigSpec;
use coppice_api::steps::{Action, Intent};
use coppice_lifecycle::facts::NamespaceFacts;
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::decision::tests::{Carrier, intent, namespace, settings};
use crate::decision::{DecidedBy, FreshFacts};
use crate::governor::Reservation;
use coppice_scripted::{Answer, scripted};

/// The decision of some object, which records what is scaled down. It does not stand any more once it is held.
struct Decided {
    held: Arc<AtomicBool>,
    recorded: Mutex<Vec<Vec<ScaledWorkload>>>,
    intent: Intent,
    firings: i64,
    restored: &'static str,
}

impl Default for Decided {
    fn default() -> Self {
        Self {
            held: Arc::default(),
            recorded: Mutex::default(),
            intent: intent(Action::ScaleDown),
            firings: 0,
            restored: "",
        }
    }
}

struct Facts {
    namespace: NamespaceFacts,
    settings: PlatformSettings,
    steps: Steps,
    /// Facts are old as soon as somebody has written a hold.
    held: Arc<AtomicBool>,
}

impl FreshFacts for Facts {
    fn namespace(&self) -> Option<&NamespaceFacts> {
        Some(&self.namespace)
    }

    fn settings(&self) -> &PlatformSettings {
        &self.settings
    }

    fn age(&self) -> Duration {
        if self.held.load(Ordering::Relaxed) { 2 * MAX_FACT_AGE } else { Duration::ZERO }
    }
}

impl Decision for Decided {
    type Observation = Facts;
    type Interruption = &'static str;

    fn intent(&self) -> &Intent {
        &self.intent
    }

    async fn reverify(&self, _: Option<&Reservation>) -> Result<Facts, &'static str> {
        if self.held.load(Ordering::Relaxed) {
            return Err("held");
        }
        Ok(Facts {
            namespace: namespace(),
            settings: PlatformSettings::new(CoppiceConfigSpec::default(), "coppice-system", Vec::new()),
            steps: Steps {
                scaled_down: self.recorded.lock().unwrap().last().cloned().unwrap_or_default().into(),
                firings: self.firings,
                ..Steps::default()
            },
            held: Arc::clone(&self.held),
        })
    }

    fn reverify_under(&self, facts: Facts, _: &Reservation) -> Result<Facts, &'static str> {
        Ok(facts)
    }

    fn decided_by(&self, _: &Facts) -> DecidedBy {
        unreachable!("nothing is deleted")
    }
}

impl ScaleDecision for Decided {
    fn steps(observation: &Facts) -> &Steps {
        &observation.steps
    }

    async fn save_scaled_down(
        &self,
        _: &Permit,
        observation: &mut Facts,
        all: Vec<ScaledWorkload>,
    ) -> Result<(), &'static str> {
        observation.steps.scaled_down = all.clone().into();
        self.recorded.lock().unwrap().push(all);
        Ok(())
    }
}

/// Three Deployments of these replicas, one of which is scaled down by every PATCH that is not refused.
struct Cluster {
    all: Mutex<Vec<(&'static str, u32)>>,
    /// What argocd-controller scales up again at once.
    restored: &'static str,
}

impl Cluster {
    fn answer(&self, method: &Method, path: &str, body: &Value) -> Answer {
        let mut all = self.all.lock().unwrap();
        match *method {
            Method::PATCH => {
                let name = path.rsplit('/').nth(1).unwrap_or_default();
                let scaled = all.iter_mut().filter(|(known, _)| *known == name && name != self.restored);
                scaled.for_each(|(_, replicas)| *replicas = 0);
                Answer::Object(200, json!({}))
            }
            Method::GET if path.ends_with("/deployments") => {
                let items = all.iter().map(|(name, replicas)| {
                    let by = json!([{"manager": "argocd-controller", "operation": "Update", "time":
                        "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
                    json!({"metadata": {"name": name, "uid": name, "resourceVersion": "7", "managedFields": by},
                           "spec": {"replicas": replicas}})
                });
                Answer::Object(200, json!({"metadata": {}, "items": items.collect::<Vec<_>>()}))
            }
            // The reservation.
            _ => {
                let mut written = settings(&json!({}));
                written["status"] = body["status"].clone();
                written["metadata"]["resourceVersion"] = json!("4");
                Answer::Object(200, written)
            }
        }
    }
}

/// Scales Deployments down for a decision; what came of it, what was left unchanged, and the requests other than GETs.
async fn carry_out(
    decision: &Decided,
    on_patch: impl Fn() + Send + Sync + 'static,
) -> (Result<StepOutcome, &'static str>, Vec<String>, Vec<String>) {
    let all = Mutex::new(vec![("one", 1), ("none", 0), ("two", 2)]);
    let cluster = Cluster { all, restored: decision.restored };
    let (clients, sent) = scripted(move |method, path, body| {
        let answer = cluster.answer(method, path, body);
        if *method == Method::PATCH {
            on_patch();
        }
        answer
    });
    let carrier = Carrier::new(clients, &settings(&json!({})));
    let what = serde_json::from_value(json!({"selectors": [{"kind": "Deployment"}]})).unwrap();
    let (result, unchanged) = match scale_down(carrier.context(), decision, &what).await {
        Ok(end) => (Ok(end.outcome), end.unchanged),
        Err(Unfinished::Interrupted(why, run)) => (Err(why), run.unchanged().await),
        Err(Unfinished::Stopped(Stopped::Interrupted(why))) => (Err(why), BTreeSet::new()),
        Err(_) => (Err("stopped"), BTreeSet::new()),
    };
    let sent = sent.lock().unwrap();
    let writes = sent.iter().map(|sent| sent.method.to_string()).filter(|method| method != "GET");
    (result, unchanged.into_iter().collect(), writes.collect())
}

#[tokio::test(start_paused = true)]
async fn replicas_are_recorded_before_the_first_workload_is_touched() {
    let decision = Decided::default();
    let (result, unchanged, writes) = carry_out(&decision, || {}).await;
    assert_eq!(result, Ok(StepOutcome::ScaledDown { workloads: 2 }));
    assert!(unchanged.is_empty(), "{unchanged:?}");
    assert_eq!(writes, ["PUT", "PATCH", "PATCH"], "one reservation for all of them");
    let recorded = decision.recorded.lock().unwrap();
    let replicas: Vec<_> = recorded.iter().flatten().map(|w| (w.name.as_str(), w.replicas)).collect();
    assert_eq!(replicas, [("one", Some(1)), ("two", Some(2))], "once, and all of them");
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_does_not_stand_any_more_stops_the_rest_which_is_named() {
    let decision = Decided::default();
    let held = Arc::clone(&decision.held);
    let (result, unchanged, writes) = carry_out(&decision, move || held.store(true, Ordering::Relaxed)).await;
    assert_eq!((result, unchanged), (Err("held"), vec!["two".to_owned()]));
    assert_eq!(writes, ["PUT", "PATCH"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_from_the_first_costs_nothing() {
    let decision = Decided::default();
    decision.held.store(true, Ordering::Relaxed);
    let (result, _, writes) = carry_out(&decision, || {}).await;
    assert_eq!((result, writes.len()), (Err("held"), 0));
    assert!(decision.recorded.lock().unwrap().is_empty());
}

/// By its last record: how often something has scaled this Deployment up again, and in which firing it was scaled down.
fn reverted(decision: &Decided, name: &str) -> Option<(i32, Option<i64>)> {
    let recorded = decision.recorded.lock().unwrap();
    let found = recorded.last()?.iter().find(|w| w.name == name);
    found.map(|w| (w.reverted, w.firing))
}

fn left_alone(result: &Result<StepOutcome, &str>) -> bool {
    let Ok(StepOutcome::Reverted { message }) = result else { return false };
    message.contains("Deployment one (field manager \"argocd-controller\")") && !message.contains("two")
}

#[tokio::test(start_paused = true)]
async fn what_is_scaled_up_again_at_once_is_scaled_down_three_times_and_no_more() {
    let mut decision = Decided { restored: "one", ..Decided::default() };
    let (result, unchanged, writes) = carry_out(&decision, || {}).await;
    assert!(left_alone(&result), "{result:?}");
    assert!(unchanged.is_empty(), "what is removed would be counted from the beginning: {unchanged:?}");
    assert_eq!(writes, ["PUT", "PATCH", "PATCH", "PATCH", "PATCH"], "two is scaled down once");
    assert_eq!(
        (reverted(&decision, "one"), reverted(&decision, "two")),
        (Some((2, Some(0))), Some((0, Some(0))))
    );
    // The next firing does nothing, at no cost.
    decision.firings += 1;
    let (result, _, writes) = carry_out(&decision, || {}).await;
    assert!(left_alone(&result), "{result:?}");
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn each_firing_after_which_something_scales_up_counts_once() {
    let mut decision = Decided::default();
    for firing in 0..3 {
        decision.firings = firing;
        let (result, ..) = carry_out(&decision, || {}).await;
        assert_eq!(result, Ok(StepOutcome::ScaledDown { workloads: 2 }), "firing {firing}");
        // Its answer may be lost: another attempt is no reversion.
        let (result, ..) = carry_out(&decision, || {}).await;
        assert_eq!(result, Ok(StepOutcome::ScaledDown { workloads: 2 }), "firing {firing}");
        let times = i32::try_from(firing).unwrap();
        assert_eq!(reverted(&decision, "one"), Some((times, Some(firing))));
    }
    decision.firings = 3;
    let (result, _, writes) = carry_out(&decision, || {}).await;
    assert!(matches!(&result, Ok(StepOutcome::Reverted { .. })), "{result:?}");
    assert!(writes.is_empty(), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_of_an_earlier_version_tells_nothing_of_reversions() {
    let decision = Decided { firings: 7, ..Decided::default() };
    let entry =
        json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "one", "uid": "one", "replicas": 1}]);
    decision.recorded.lock().unwrap().push(serde_json::from_value(entry).unwrap());
    let (result, ..) = carry_out(&decision, || {}).await;
    assert_eq!(result, Ok(StepOutcome::ScaledDown { workloads: 2 }));
    assert_eq!(reverted(&decision, "one"), Some((0, Some(7))));
}
