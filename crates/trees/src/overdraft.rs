//! Whether more is used in a namespace than its quota, as status says it. Pure.

use coppice_api::Reason;
use coppice_api::condition::{self, Condition, ConditionState, WITHIN_QUOTA};
use coppice_hierarchy::{Quota, ResourceName};
use coppice_lifecycle::plan::PlannedEvent;
use jiff::Timestamp;

/// Says in the conditions of a status whether what is used in a namespace is within its quota, of this generation and as of now; the Event if
/// that began or ended.
pub(crate) fn describe(
    conditions: &mut Vec<Condition>,
    namespace: &str,
    quota: &Quota,
    (generation, now): (i64, Timestamp),
) -> Option<PlannedEvent> {
    let before = condition::find(conditions, WITHIN_QUOTA);
    let before = before.map(|before| (before.status.as_str(), before.message.as_str()));
    let (state, event) = state(before, namespace, quota)?;
    condition::set(conditions, WITHIN_QUOTA, state, generation, now);
    event
}

/// What the condition says now, with the Event if that began or ended. None while that is not certain, and where it always was within.
///
/// What is used changes all the time, and each change would be a write: what was said `before`, by status and message, stays as long as it is
/// about the same resources.
fn state(
    before: Option<(&str, &str)>,
    namespace: &str,
    quota: &Quota,
) -> Option<(ConditionState, Option<PlannedEvent>)> {
    let overdraft = quota.overdraft()?;
    let over: Vec<&ResourceName> =
        overdraft.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, _)| name).collect();
    let begun = before.filter(|(status, _)| *status == "False").map(|(_, message)| message);
    let (status, reason, message) = if over.is_empty() {
        // Of one that never was beyond it nothing has to be said.
        before?;
        ("True", Reason::OverdraftEnded, format!("namespace {namespace} is within its quota again"))
    } else {
        let about = about(namespace, &over);
        let same = begun.filter(|message| message.split(": ").next() == Some(&*about));
        let message = same.map_or_else(|| with_numbers(&about, &over, quota), str::to_owned);
        ("False", Reason::Overdraft, message)
    };
    let changed = over.is_empty() == begun.is_some();
    let event =
        changed.then(|| PlannedEvent { warning: status == "False", reason, message: message.clone() });
    Some((ConditionState { status, reason: reason.to_string(), message }, event))
}

/// The beginning of the message, up to its colon: by it alone two of them are about the same. No name of a resource has a colon.
fn about(namespace: &str, over: &[&ResourceName]) -> String {
    let names: Vec<&str> = over.iter().map(|name| name.as_str()).collect();
    format!("namespace {namespace} uses more than its quota of {}", names.join(", "))
}

fn with_numbers(about: &str, over: &[&ResourceName], quota: &Quota) -> String {
    let own = quota.own();
    let numbers: Vec<String> =
        over.iter().map(|name| format!("{} of {} {name}", quota.used.get(name), own.get(name))).collect();
    format!(
        "{about}: {} when this was seen; nothing is deleted for it, and nothing more of it is admitted there until less is used or the \
         namespace gets more",
        numbers.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use coppice_hierarchy::{Ledger, Lowering, Resources};
    use coppice_quantity::Quantity;

    use super::*;

    fn resources(written: &[(&str, &str)]) -> Resources {
        let parse = |amount: &str| amount.parse::<Quantity>().unwrap();
        Resources::parse(written.iter().map(|(name, amount)| (*name, parse(amount)))).unwrap()
    }

    fn quota(used: &[(&str, &str)]) -> Quota {
        let hard = resources(&[("cpu", "1"), ("pods", "2")]);
        Quota { enforced: hard.clone(), hard, used: resources(used), ledger: Ledger::default() }
    }

    const BEGUN: &str = "namespace shop uses more than its quota of pods: 5 of 2 pods when this was seen; nothing is deleted for it, and \
                         nothing more of it is admitted there until less is used or the namespace gets more";

    #[test]
    fn it_begins_with_a_warning_and_the_numbers() {
        let (state, event) = state(None, "shop", &quota(&[("cpu", "1"), ("pods", "5")])).unwrap();
        assert_eq!((state.status, &*state.reason, &*state.message), ("False", "Overdraft", BEGUN));
        let event = event.unwrap();
        assert_eq!((event.warning, event.reason, &*event.message), (true, Reason::Overdraft, BEGUN));
    }

    #[test]
    fn it_is_said_again_for_other_resources_and_not_for_other_numbers() {
        let before = Some(("False", BEGUN));
        let (same, event) = state(before, "shop", &quota(&[("pods", "3")])).unwrap();
        assert_eq!((&*same.message, event), (BEGUN, None));
        let (other, event) = state(before, "shop", &quota(&[("cpu", "1500m"), ("pods", "3")])).unwrap();
        assert!(
            other.message.contains("quota of cpu, pods: 1500m of 1 cpu, 3 of 2 pods when"),
            "{}",
            other.message
        );
        assert_eq!(event, None);
    }

    #[test]
    fn it_ends_once_and_begins_again() {
        let (ended, event) = state(Some(("False", BEGUN)), "shop", &quota(&[("pods", "2")])).unwrap();
        assert_eq!((ended.status, &*ended.reason), ("True", "OverdraftEnded"));
        assert_eq!(event.map(|event| (event.warning, event.reason)), Some((false, Reason::OverdraftEnded)));
        let before = Some(("True", &*ended.message));
        assert_eq!(state(before, "shop", &quota(&[("pods", "1")])).unwrap(), (ended.clone(), None));
        let (again, event) = state(before, "shop", &quota(&[("pods", "5")])).unwrap();
        assert_eq!((&*again.message, event.is_some_and(|event| event.warning)), (BEGUN, true));
    }

    #[test]
    fn nothing_is_said_of_what_always_was_within_and_while_something_is_under_way() {
        assert_eq!(state(None, "shop", &quota(&[("cpu", "1"), ("pods", "2")])), None);
        // What the API server still admitted is no overdraft before the smaller quota is given up.
        let mut lowered = quota(&[("pods", "5")]);
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        lowered.ledger.lowering = Some(Box::new(Lowering { to: resources(&[("pods", "2")]), since }));
        assert_eq!(state(None, "shop", &lowered), None);
        assert_eq!(state(Some(("False", BEGUN)), "shop", &lowered), None);
        // Nor is what is beyond a quota that becomes larger before that is in force.
        let grows = Quota { hard: resources(&[("cpu", "1"), ("pods", "5")]), ..quota(&[("pods", "5")]) };
        assert_eq!(state(None, "shop", &grows), None);
    }
}
