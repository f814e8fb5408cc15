//! Whether more is used in a namespace than its quota, as status says it. Pure.

use coppice_api::Reason;
use coppice_api::condition::{self, Condition, ConditionState, WITHIN_QUOTA};
use coppice_hierarchy::{Quota, ResourceName};
use coppice_lifecycle::plan::PlannedEvent;
use jiff::{SignedDuration, Timestamp};

/// So long at least an overdraft is said to stand. Under churn the API server lets what is used go beyond a quota again and again for a
/// moment, which is one overdraft.
const STANDS_FOR: SignedDuration = SignedDuration::from_mins(1);
/// What follows the numbers and their time in a message.
const CONSEQUENCES: &str = "; nothing is deleted for it, and nothing more of it is admitted there until less is used or the namespace gets \
                            more";

/// Says in the conditions of a status whether what is used in a namespace is within its quota, of this generation and as of now. Returns the
/// Event if that began or ended, and when time alone can end it.
pub(crate) fn describe(
    conditions: &mut Vec<Condition>,
    namespace: &str,
    quota: &Quota,
    (generation, now): (i64, Timestamp),
) -> (Option<PlannedEvent>, Option<Timestamp>) {
    let before = condition::find(conditions, WITHIN_QUOTA);
    let Some(Said { state, event, next_check }) = state(before, namespace, quota, now) else {
        return (None, None);
    };
    condition::set(conditions, WITHIN_QUOTA, state, generation, now);
    (event, next_check)
}

/// What the condition says now.
struct Said {
    state: ConditionState,
    /// If that began or ended.
    event: Option<PlannedEvent>,
    /// When it can end.
    next_check: Option<Timestamp>,
}

impl Said {
    fn new(status: &'static str, reason: Reason, message: String, changed: bool) -> Self {
        let event =
            changed.then(|| PlannedEvent { warning: status == "False", reason, message: message.clone() });
        let state = ConditionState { status, reason: reason.to_string(), message };
        Self { state, event, next_check: None }
    }
}

/// None while it is not certain, and where it always was within.
///
/// What is used changes all the time, and each change would be a write: the message of `before` stays until another resource joins those
/// that it is about, or one of them is within the quota again; that is seen a minute after the message was written at the earliest.
fn state(before: Option<&Condition>, namespace: &str, quota: &Quota, now: Timestamp) -> Option<Said> {
    let overdraft = quota.overdraft()?;
    let over: Vec<&ResourceName> =
        overdraft.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, _)| name).collect();
    let begun = before.filter(|before| before.status == "False");
    if !over.is_empty() {
        let known = begun.map(|begun| resources_of(&begun.message, namespace)).unwrap_or_default();
        let fewer = over.len() < known.len();
        let stands_until = begun
            .and_then(|begun| written_at(&begun.message)?.checked_add(STANDS_FOR).ok())
            .filter(|at| fewer && now < *at);
        let said = match begun {
            Some(begun)
                if over.iter().all(|name| known.contains(&name.as_str()))
                    && (!fewer || stands_until.is_some()) =>
            {
                let said = Said::new("False", Reason::Overdraft, begun.message.clone(), false);
                Said { next_check: stands_until, ..said }
            }
            _ => {
                let message = with_numbers(namespace, &over, quota, now);
                Said::new("False", Reason::Overdraft, message, begun.is_none())
            }
        };
        return Some(said);
    }
    // Of one that never was beyond it nothing has to be said.
    before?;
    if let Some(begun) = begun
        && let Ok(at) = begun.last_transition_time.0.checked_add(STANDS_FOR)
        && now < at
    {
        let said = Said::new("False", Reason::Overdraft, begun.message.clone(), false);
        return Some(Said { next_check: Some(at), ..said });
    }
    let message = format!("namespace {namespace} is within its quota again");
    Some(Said::new("True", Reason::OverdraftEnded, message, begun.is_some()))
}

/// The beginning of the message, up to the names of resources, which end with a colon. No name has a colon or a comma.
fn beginning(namespace: &str) -> String {
    format!("namespace {namespace} uses more than its quota of ")
}

/// The resources that a message is about.
fn resources_of<'a>(message: &'a str, namespace: &str) -> Vec<&'a str> {
    let names = message.strip_prefix(&*beginning(namespace)).and_then(|rest| rest.split(": ").next());
    names.map(|names| names.split(", ").collect()).unwrap_or_default()
}

/// When a message was written.
fn written_at(message: &str) -> Option<Timestamp> {
    let (numbers, _) = message.split_once(CONSEQUENCES)?;
    numbers.rsplit_once(" at ")?.1.parse().ok()
}

fn with_numbers(namespace: &str, over: &[&ResourceName], quota: &Quota, now: Timestamp) -> String {
    let own = quota.own();
    let names: Vec<&str> = over.iter().map(|name| name.as_str()).collect();
    let numbers: Vec<String> =
        over.iter().map(|name| format!("{} of {} {name}", quota.used.get(name), own.get(name))).collect();
    format!("{}{}: {} at {now:.0}{CONSEQUENCES}", beginning(namespace), names.join(", "), numbers.join(", "))
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

    const BEGUN: &str = "namespace shop uses more than its quota of pods: 5 of 2 pods at 1970-01-01T00:00:00Z; nothing is deleted for it, \
                         and nothing more of it is admitted there until less is used or the namespace gets more";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A namespace of which this is said, about which nothing was said before.
    #[derive(Default)]
    struct Shop(Vec<Condition>);

    impl Shop {
        /// The Event once this is used at that second, by reason, and when it is looked at again.
        fn uses(&mut self, used: &[(&str, &str)], second: i64) -> (Option<Reason>, Option<Timestamp>) {
            let before = self.0.clone();
            let (event, next_check) = describe(&mut self.0, "shop", &quota(used), (1, at(second)));
            if let Some(event) = &event {
                assert_eq!(event.warning, event.reason == Reason::Overdraft);
                assert_eq!((event.message.as_str(), self.0 == before), (self.said().1, false));
            }
            (event.map(|event| event.reason), next_check)
        }

        /// Status and message.
        fn said(&self) -> (&str, &str) {
            let [condition] = &self.0[..] else { panic!("{:?}", self.0) };
            (&condition.status, &condition.message)
        }
    }

    #[test]
    fn it_begins_at_once_with_a_warning_and_the_numbers() {
        let mut shop = Shop::default();
        assert_eq!(shop.uses(&[("cpu", "1"), ("pods", "5")], 0), (Some(Reason::Overdraft), None));
        assert_eq!(shop.said(), ("False", BEGUN));
        assert_eq!(shop.0[0].reason, "Overdraft");
    }

    #[test]
    fn it_is_said_again_for_further_resources_and_for_fewer_after_a_minute_and_not_for_other_numbers() {
        let mut shop = Shop::default();
        shop.uses(&[("pods", "5")], 0);
        assert_eq!(shop.uses(&[("pods", "3")], 1), (None, None));
        assert_eq!(shop.said(), ("False", BEGUN));
        assert_eq!(shop.uses(&[("cpu", "1500m"), ("pods", "3")], 2), (None, None));
        let both = shop.said().1.to_owned();
        let words = "quota of cpu, pods: 1500m of 1 cpu, 3 of 2 pods at 1970-01-01T00:00:02Z; nothing";
        assert!(both.contains(words), "{both}");
        // What goes back and forth is not written each time.
        for second in [3, 61] {
            assert_eq!(shop.uses(&[("pods", "4")], second), (None, Some(at(62))));
            assert_eq!(shop.uses(&[("cpu", "2"), ("pods", "4")], second), (None, None));
            assert_eq!(shop.said(), ("False", &*both));
        }
        assert_eq!(shop.uses(&[("pods", "4")], 62), (None, None));
        let fewer = shop.said().1.to_owned();
        assert!(fewer.contains("quota of pods: 4 of 2 pods at 1970-01-01T00:01:02Z; nothing"), "{fewer}");
        shop.uses(&[("pods", "3")], 200);
        assert_eq!(shop.said(), ("False", &*fewer));
        // As an earlier version wrote it: without a time, it is written again at once.
        shop.0[0].message = both.replace("at 1970-01-01T00:00:02Z", "when this was seen");
        assert_eq!(shop.uses(&[("pods", "3")], 201), (None, None));
        assert!(shop.said().1.contains("quota of pods: 3 of 2 pods at 1970-01-01T00:03:21Z"));
    }

    #[test]
    fn it_ends_a_minute_after_it_began_at_the_earliest_and_begins_again_at_once() {
        let mut shop = Shop::default();
        shop.uses(&[("pods", "5")], 0);
        // What goes back and forth is one overdraft.
        for second in [1, 59] {
            assert_eq!(shop.uses(&[("pods", "2")], second), (None, Some(at(60))));
            assert_eq!(shop.uses(&[("pods", "3")], second), (None, None));
            assert_eq!(shop.said(), ("False", BEGUN));
        }
        assert_eq!(shop.uses(&[("pods", "2")], 60), (Some(Reason::OverdraftEnded), None));
        assert_eq!(shop.said(), ("True", "namespace shop is within its quota again"));
        assert_eq!(shop.uses(&[("pods", "1")], 61), (None, None));
        assert_eq!(shop.uses(&[("pods", "5")], 62), (Some(Reason::Overdraft), None));
        assert_eq!(shop.said(), ("False", &*BEGUN.replace("00:00:00Z", "00:01:02Z")));
        assert_eq!(shop.uses(&[("pods", "2")], 121), (None, Some(at(122))));
    }

    #[test]
    fn nothing_is_said_of_what_always_was_within_and_while_something_is_under_way() {
        let mut shop = Shop::default();
        assert_eq!(shop.uses(&[("cpu", "1"), ("pods", "2")], 0), (None, None));
        assert_eq!(shop.0, []);
        // What the API server still admitted is no overdraft before the smaller quota is given up.
        let mut lowered = quota(&[("pods", "5")]);
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        lowered.ledger.lowering = Some(Box::new(Lowering { to: resources(&[("pods", "2")]), since }));
        // Nor is what is beyond a quota that becomes larger before that is in force.
        let grows = Quota { hard: resources(&[("cpu", "1"), ("pods", "5")]), ..quota(&[("pods", "5")]) };
        for changing in [&lowered, &grows] {
            assert_eq!(describe(&mut shop.0, "shop", changing, (1, at(0))), (None, None));
            assert_eq!(shop.0, []);
        }
        shop.uses(&[("pods", "5")], 0);
        assert_eq!(describe(&mut shop.0, "shop", &lowered, (1, at(90))), (None, None));
        assert_eq!(shop.said(), ("False", BEGUN));
    }
}
