use coppice_lifecycle::lint::PlanViolation::{self, *};

use super::super::lint::lint;
use super::*;
use crate::context::Below;

const DELETED: &str = "2026-01-01T00:00:00Z";

/// A Subnamespace whose namespace is about to be deleted, and the plan that deletes it.
fn deletion() -> (Observation, SubnamespacePlan) {
    let mut seen = deleted();
    let decided = serde_json::to_value(&plan(&seen).status).unwrap();
    seen.object = object("4", &json!({"deletionTimestamp": DELETED}), &decided);
    let plan = plan(&seen);
    (seen, plan)
}

/// What is found after one thing about what was observed, or about the plan, is another.
fn found(change: impl FnOnce(&mut Observation, &mut SubnamespacePlan)) -> Vec<PlanViolation> {
    let (mut seen, mut plan) = deletion();
    assert!(matches!(plan.step, Step::DeleteNamespace(_)), "{:?}", plan.step);
    change(&mut seen, &mut plan);
    lint(&seen, &plan)
}

/// Changes what the API server has of the object.
fn stored(seen: &mut Observation, change: impl FnOnce(&mut SubnamespaceObject)) {
    let mut object = SubnamespaceObject::clone(&seen.object);
    change(&mut object);
    seen.object = Arc::new(object);
}

/// Changes the intent everywhere.
fn intent(change: impl FnOnce(&mut Intent)) -> impl FnOnce(&mut Observation, &mut SubnamespacePlan) {
    |seen, plan| {
        change(plan.status.steps.intent.as_mut().unwrap());
        plan.step = Step::DeleteNamespace(plan.status.steps.intent.clone().unwrap());
        let status = serde_json::to_value(&plan.status).unwrap();
        seen.object = object("4", &json!({"deletionTimestamp": DELETED}), &status);
    }
}

#[test]
fn a_plan_as_it_is_breaks_no_rule() {
    assert_eq!(found(|_, _| {}), []);
}

#[test]
fn a_deletion_is_that_of_an_intent_that_is_written_down_and_explains_it() {
    let unwritten = |seen: &mut Observation, _: &mut SubnamespacePlan| {
        let status =
            SubnamespaceStatus { steps: coppice_api::RareSteps::default(), ..(*seen.object.status).clone() };
        let status = serde_json::to_value(&status).unwrap();
        seen.object = object("4", &json!({"deletionTimestamp": DELETED}), &status);
    };
    assert_eq!(found(unwritten), [StepWithoutIntent]);
    assert_eq!(found(|_, plan| plan.status.steps.intent = None), [StepWithoutIntent]);
    assert_eq!(found(intent(|i| i.reason.clear())), [Unexplained]);
    assert_eq!(found(intent(|i| i.uid = "another".to_owned())), [NoPrecondition]);
    assert_eq!(found(|seen, _| seen.namespace = None), [NoPrecondition]);
    // The rules for what is decided only now are the same.
    let decided = |_: &mut Observation, plan: &mut SubnamespacePlan| {
        plan.step = Step::Nothing;
        let intent = plan.status.steps.intent.as_mut().unwrap();
        (intent.id, intent.uid) = ("a new one".to_owned(), "another".to_owned());
    };
    assert_eq!(found(decided), [NoPrecondition]);
}

#[test]
fn nothing_is_deleted_that_is_protected_or_while_something_says_no() {
    let namespace = |seen: &mut Observation, change: &dyn Fn(&mut NamespaceFacts)| {
        change(Arc::make_mut(seen.namespace.as_mut().unwrap()));
    };
    let label =
        |key: &'static str| move |n: &mut NamespaceFacts| n.labels = [(key, "")].into_iter().collect();
    assert_eq!(found(|seen, _| namespace(seen, &label(LABEL_PROTECTED))), [Protected]);
    assert_eq!(found(|seen, _| namespace(seen, &label("coppice.dev/has-children"))), [Protected]);
    assert_eq!(found(|seen, _| namespace(seen, &|n| n.name = "kube-system".to_owned())), [Protected]);
    assert_eq!(found(|seen, _| namespace(seen, &|n| n.terminating = true)), [Forbidden]);
    assert_eq!(found(|seen, _| stored(seen, |object| object.terminating = false)), [Forbidden]);
    assert_eq!(
        found(|seen, _| seen.children = vec![object("1", &json!({}), &json!({}))].into()),
        [Forbidden]
    );
    assert_eq!(found(|seen, _| seen.parent = None), [Forbidden]);
    let stale = |seen: &mut Observation, _: &mut SubnamespacePlan| {
        seen.stale = Some((Reason::Stale, "nothing was heard".to_owned()));
    };
    assert_eq!(found(stale), [Forbidden]);
    let missing = |seen: &mut Observation, _: &mut SubnamespacePlan| {
        seen.settings = Arc::new(PlatformSettings::missing("coppice-system", Vec::new()));
    };
    assert_eq!(found(missing), [Forbidden]);
}

#[test]
fn what_is_below_goes_only_with_consent_and_where_nothing_is_protected() {
    let one = |labels: &[(&str, &str)]| -> Below {
        let below = object("1", &json!({"name": "shop-web-a", "uid": "u-a"}), &json!({}));
        (below, Some(Arc::new(super::namespace("shop-web-a", labels))))
    };
    let seen = |until: Option<&str>, below: Vec<Below>| {
        let mut seen = deleted();
        let spec = json!({"quota": {"hard": {"pods": "4"}}, "cascadeUntil": until});
        let spec = Ok(Arc::new(serde_json::from_value(spec).unwrap()));
        stored(&mut seen, |object| object.spec = spec);
        Observation { below, ..seen }
    };
    let found = |seen: &Observation| {
        let mut plan = SubnamespacePlan::nothing((*seen.object.status).clone());
        plan.step = Step::DeleteBelow(Lowest(one(&[]).0));
        lint(seen, &plan)
    };
    let soon = Some("2026-01-01T01:00:00Z");
    assert_eq!(found(&seen(soon, vec![one(&[])])), []);
    assert_eq!(found(&seen(None, vec![one(&[])])), [Forbidden]);
    assert_eq!(found(&seen(Some(DELETED), vec![one(&[])])), [Forbidden]);
    assert_eq!(found(&seen(soon, Vec::new())), [Forbidden]);
    assert_eq!(found(&seen(soon, vec![one(&[(LABEL_PROTECTED, "")])])), [Protected]);
}
