//! Each rule finds the plan that breaks it. That no plan breaks one, every other test shows.

use coppice_api::lint::PlanViolation::{self, Forbidden, NoPrecondition, ReasonOutOfPlace};

use super::super::lint::lint;
use super::*;

/// What is found after one thing about what was observed, or about its plan, is another.
fn found(
    mut seen: Observation,
    change: impl FnOnce(&mut Observation, &mut PropagationPlan),
) -> Vec<PlanViolation> {
    let mut planned = plan(&seen);
    change(&mut seen, &mut planned);
    lint(&seen, &planned)
}

fn admin() -> Arc<Propagated> {
    source("a", "team", "admin", "alice")
}

/// A namespace that a RoleBinding is to be copied into.
fn lacking() -> Observation {
    observation([Vec::new(), vec![admin()]], Vec::new())
}

/// One with a copy whose source is gone.
fn with_copy() -> Observation {
    observation([Vec::new(), Vec::new()], vec![copy(&admin())])
}

#[test]
fn what_is_copied_comes_from_above_and_where_nothing_is_in_its_place() {
    assert_eq!(found(lacking(), |_, _| {}), []);
    assert_eq!(found(lacking(), |seen, _| seen.limited = false), [Forbidden]);
    let theirs = |seen: &mut Observation, _: &mut PropagationPlan| {
        seen.own = vec![source("a-b-c", "team", "own", "carol")];
    };
    assert_eq!(found(lacking(), theirs), [Forbidden]);
    let elsewhere = |_: &mut Observation, plan: &mut PropagationPlan| {
        plan.steps = vec![Step::Create(source("elsewhere", "team", "admin", "eve"))];
    };
    assert_eq!(found(lacking(), elsewhere), [Forbidden]);
    assert_eq!(found(lacking(), |_, plan| plan.steps = vec![plan.steps[0].clone(); 2]), [Forbidden]);
}

#[test]
fn nothing_is_done_in_a_namespace_that_is_not_known_or_is_gone() {
    let stale = |seen: &mut Observation, _: &mut PropagationPlan| {
        seen.stale = Some((Reason::Stale, "no update has been received".to_owned()));
    };
    let unknown = |seen: &mut Observation, _: &mut PropagationPlan| {
        seen.place = Place::Unknown("namespace a is missing".to_owned());
    };
    for seen in [lacking, with_copy] {
        assert_eq!(found(seen(), stale), [Forbidden]);
        assert_eq!(found(seen(), unknown), [Forbidden]);
        assert_eq!(found(seen(), |seen, _| seen.namespace = None), [Forbidden]);
    }
}

#[test]
fn only_copies_are_taken_away_as_they_were_read() {
    assert_eq!(found(with_copy(), |_, _| {}), []);
    let foreign = |seen: &mut Observation, plan: &mut PropagationPlan| {
        let theirs = source("a-b-c", "own", "admin", "carol");
        seen.own.push(Arc::clone(&theirs));
        plan.steps.push(Step::Delete(theirs));
    };
    assert_eq!(found(with_copy(), foreign), [Forbidden]);
    let unread = |seen: &mut Observation, plan: &mut PropagationPlan| {
        let copy = Arc::new(Propagated { resource_version: "".into(), ..(*copy(&admin())).clone() });
        seen.own = vec![Arc::clone(&copy)];
        plan.steps = vec![Step::Delete(copy)];
    };
    assert_eq!(found(with_copy(), unread), [NoPrecondition]);
    let released = |seen: &mut Observation, plan: &mut PropagationPlan| {
        plan.steps = vec![Step::Release(Arc::clone(&seen.own[0]))];
    };
    assert_eq!(found(with_copy(), released), [Forbidden], "the tree is not being detached");
}

#[test]
fn a_problem_has_a_reason_that_users_see_in_the_condition() {
    let odd = |_: &mut Observation, plan: &mut PropagationPlan| {
        plan.problems.push(MissingCopy { reason: Reason::QuotaRefused, message: "no".to_owned() });
    };
    assert_eq!(found(lacking(), odd), [ReasonOutOfPlace]);
    let silent = |_: &mut Observation, plan: &mut PropagationPlan| {
        plan.problems.push(MissingCopy { reason: Reason::CopyRefused, message: String::new() });
    };
    assert_eq!(found(lacking(), silent), [ReasonOutOfPlace]);
}
