//! A namespace comes to be below its grandparent, because its parent is going away, while another replica's writes are
//! late, its own allotment and that of a namespace beside are being changed, and it is perhaps deleted itself.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::moves::{BESIDE, Cluster, LEAF, Life, MOVED, Message, PARENT, TOP, TOTAL, Task};
use crate::support::{Amounts, added, amounts, at, resources};
use coppice_hierarchy::{Departure, DepartureDecision, HeldAmount, Quota, Record};
use proptest::prelude::*;

/// The server with what happened to it, and what it is to have been.
struct Test {
    cluster: Cluster,
    /// What namespaces had as their own when their quotas went: what was admitted by them is there until they are gone.
    last: [Amounts; 4],
}

impl Test {
    fn new() -> Self {
        Self { cluster: Cluster::new(), last: [[0, 0]; 4] }
    }

    /// What runs in a namespace at most.
    fn own(&self, namespace: usize) -> Amounts {
        match (self.cluster.quota(namespace), self.cluster.namespaces[namespace]) {
            (Some(quota), _) => amounts(&quota.own()),
            (None, Life::Gone) => [0, 0],
            (None, _) => self.last[namespace],
        }
    }

    fn drop_quota(&mut self, namespace: usize) {
        if self.cluster.namespaces[namespace] == Life::Ends {
            self.last[namespace] = self.own(namespace);
            self.cluster.quotas[namespace] = None;
        }
    }

    /// At every revision all of them are together within the total; and those below the grandparent within what that counts for them.
    fn check(&self) -> Result<(), String> {
        let below =
            [PARENT, LEAF, BESIDE].map(|namespace| self.own(namespace)).into_iter().fold([0, 0], added);
        let all = added(below, self.own(TOP));
        let ledger = &self.cluster.quota(TOP).unwrap().ledger;
        let counted = added(amounts(&ledger.given), amounts(&ledger.on_the_way()));
        let beyond = |one: Amounts, limit: Amounts| one[0] > limit[0] || one[1] > limit[1];
        if beyond(all, TOTAL) || beyond(below, counted) || beyond(counted, TOTAL) {
            return Err(format!("{all:?} in all, {below:?} below, counted {counted:?}: {:?}", self.cluster));
        }
        Ok(())
    }

    fn step(&mut self, task: Task) -> bool {
        let message = Cluster::next([&self.cluster; 3], task);
        message.is_some_and(|message| self.cluster.deliver(message))
    }

    const TASKS: [Task; 6] = [
        Task::Allot(PARENT),
        Task::Allot(LEAF),
        Task::Allot(BESIDE),
        Task::Allot(MOVED),
        Task::Leave,
        Task::Arrive,
    ];

    /// Without faults, until nothing happens any more.
    fn settle(&mut self) -> Result<(), String> {
        self.cluster.delete_parent();
        for _ in 0..300 {
            let mut quiet = true;
            self.cluster.delete_contents();
            for namespace in [PARENT, LEAF] {
                self.drop_quota(namespace);
                self.cluster.finish(namespace);
            }
            for task in Self::TASKS {
                (TOP..=BESIDE).for_each(|namespace| self.cluster.mirror(namespace));
                quiet &= !self.step(task);
                self.check()?;
            }
            if quiet && self.cluster.now > 40 {
                return self.check_settled();
            }
            self.cluster.now += i64::from(quiet);
        }
        Err(format!("it does not come to an end: {:?}", self.cluster))
    }

    /// The parent is gone, the one that moved is below the grandparent with all that it had, or gone; nothing is missing.
    fn check_settled(&self) -> Result<(), String> {
        let cluster = &self.cluster;
        let ledger = &cluster.quota(TOP).unwrap().ledger;
        let sum = [TOP, LEAF, BESIDE].map(|namespace| self.own(namespace)).into_iter().fold([0, 0], added);
        // That something is expected for one that is gone a late write may say: it is never more than nothing.
        let quiet = ledger.changes.is_empty() && amounts(&ledger.on_the_way()) == [0, 0];
        let gone = cluster.namespaces[PARENT] == Life::Gone && cluster.life(LEAF) == Some(Life::Gone);
        let moved = match cluster.namespaces[LEAF] {
            Life::There => {
                let (quota, record) = (cluster.quota(LEAF).unwrap(), &cluster.records[MOVED].object);
                cluster.label.object == MOVED && quota.ledger.allotment == record.allotment
            }
            _ => cluster.life(MOVED).is_none_or(|life| life == Life::Gone),
        };
        if sum == TOTAL && quiet && gone && moved {
            return Ok(());
        }
        Err(format!("{sum:?} in the end, quiet {quiet}, gone {gone}, moved {moved}: {cluster:?}"))
    }
}

#[test]
fn a_namespace_takes_all_that_it_has_to_its_grandparent() {
    let mut test = Test::new();
    test.settle().unwrap();
    let cluster = &test.cluster;
    let has = amounts(&cluster.quota(LEAF).unwrap().ledger.allotment);
    assert_eq!((has, amounts(&cluster.records[MOVED].object.allotment)), ([4, 8], [4, 8]));
    assert_eq!(amounts(&cluster.quota(TOP).unwrap().hard), [12, 32], "all of the rest is back");
}

#[test]
fn what_it_was_about_to_get_stays_with_the_parent_and_returns_with_it() {
    let mut test = Test::new();
    test.cluster.wants[LEAF] = [6, 8];
    assert!(test.step(Task::Allot(LEAF)), "begun");
    test.settle().unwrap();
    assert_eq!(amounts(&test.cluster.quota(LEAF).unwrap().ledger.allotment), [4, 8]);
    // What was carried out goes with it.
    let mut test = Test::new();
    test.cluster.wants[LEAF] = [6, 8];
    for _ in 0..2 {
        assert!(test.step(Task::Allot(LEAF)));
        test.cluster.mirror(PARENT);
    }
    assert_eq!(amounts(&test.cluster.records[LEAF].object.allotment), [4, 8], "nobody has written that down");
    test.settle().unwrap();
    assert_eq!(amounts(&test.cluster.quota(LEAF).unwrap().ledger.allotment), [6, 8]);
}

#[test]
fn one_that_is_deleted_at_any_point_of_its_way_returns_all_that_it_had() {
    for steps in 0..40 {
        let mut test = Test::new();
        test.cluster.delete_parent();
        test.cluster.delete_contents();
        let mut done = 0;
        'all: for _ in 0..20 {
            for task in Test::TASKS {
                if done == steps {
                    break 'all;
                }
                done += usize::from(test.step(task));
                test.check().unwrap();
            }
        }
        test.cluster.delete_leaf();
        test.settle().unwrap_or_else(|error| panic!("after {steps}: {error}"));
        assert_eq!(amounts(&test.cluster.quota(TOP).unwrap().hard), [16, 40], "after {steps}");
    }
}

/// Something of a second replica: it reads at one time, reads on and decides at a later one, and its write arrives even later.
#[derive(Clone, Copy, Debug)]
struct Late {
    task: usize,
    reads: u32,
    reads_on: u32,
    decides: u32,
    arrives: u32,
}

/// What comes next for one that is itself above others and has this much to take along; something is arriving for those between.
fn departs(above: &Quota, ends: bool, between: &[String]) -> DepartureDecision {
    let mut quota = Cluster::new().quotas[LEAF].take().unwrap().object;
    quota.ledger.changed_by = Some("4".into());
    let record = Record { allotment: resources([9, 20]), decided: 0 };
    let departure = Departure {
        quota: Some(&quota).filter(|_| !ends),
        ends,
        record: &record,
        below: &resources([0, 0]),
        above,
        id: "4",
        leaving: "1",
        leaving_record: &record,
        between,
    };
    departure.decide(at(0))
}

#[test]
fn no_more_arrive_in_a_ledger_at_a_time_than_fit_into_it() {
    let mut above = Cluster::new().quotas[TOP].take().unwrap().object;
    for other in 0..coppice_hierarchy::MAX_CHANGES {
        assert!(matches!(departs(&above, false, &[]), DepartureDecision::Above(_)), "{other}");
        let nothing = HeldAmount { amount: resources([0, 0]), since: at(0) };
        above.ledger.arriving.insert(format!("other-{other}"), nothing);
    }
    assert_eq!(departs(&above, false, &[]), DepartureDecision::Wait);
}

#[test]
fn one_between_that_has_begun_to_move_comes_first() {
    let mut above = Cluster::new().quotas[TOP].take().unwrap().object;
    let arriving = |amount| HeldAmount { amount: resources(amount), since: at(0) };
    above.ledger.arriving.insert("4".to_owned(), arriving([0, 0]));
    above.ledger.arriving.insert("7".to_owned(), arriving([0, 0]));
    let between = ["7".to_owned()];
    let begun = departs(&above, false, &between);
    assert!(
        matches!(begun, DepartureDecision::Above(ref ledger) if ledger.changes.contains_key("1")),
        "{begun:?}"
    );
    above.ledger.arriving.insert("7".to_owned(), arriving([1, 1]));
    above.hard = above.ledger.own();
    assert_eq!(departs(&above, false, &between), DepartureDecision::Wait);
}

#[test]
fn one_that_ends_itself_moves_only_if_what_it_had_was_taken_out_before() {
    let mut above = Cluster::new().quotas[TOP].take().unwrap().object;
    assert_eq!(departs(&above, true, &[]), DepartureDecision::Stays);
    let arriving = |amount| HeldAmount { amount: resources(amount), since: at(0) };
    above.ledger.arriving.insert("4".to_owned(), arriving([0, 0]));
    assert_eq!(departs(&above, true, &[]), DepartureDecision::Stays);
    above.ledger.arriving.insert("4".to_owned(), arriving([4, 8]));
    above.hard = above.ledger.own();
    assert_eq!(departs(&above, true, &[]), DepartureDecision::Arrived);
}

/// When something happens, while one replica does all that there is to do, one step after another.
#[derive(Clone, Debug)]
struct Schedule {
    /// What the one replica does, again and again.
    tasks: Vec<usize>,
    late: Vec<Late>,
    /// What is asked for the namespace that moves, and for the one beside its parent.
    wants: Vec<(u32, usize, Amounts)>,
    used: Vec<(u32, usize, Amounts)>,
    parent_deleted: u32,
    /// So much later what is in it is deleted,
    contents_deleted: [u32; 2],
    /// The namespace that moves is deleted, and so much later its quota, and then it is gone.
    leaf_deleted: Option<[u32; 3]>,
    /// How much time passes at a step.
    seconds: i64,
}

/// The steps in which something is late.
const STEPS: u32 = 70;

fn schedule() -> impl Strategy<Value = Schedule> {
    let some = [0..7_i64, 0..14_i64];
    let late =
        (0..6_usize, 0..STEPS, 0..8_u32, 0..25_u32, 0..30_u32).prop_map(|(task, reads, more, then, late)| {
            let (reads_on, decides) = (reads + more, reads + more + then);
            Late { task, reads, reads_on, decides, arrives: decides + late }
        });
    (
        proptest::collection::vec(0..6_usize, 1..40),
        proptest::collection::vec(late, 1..6),
        proptest::collection::vec((0..STEPS / 2, 2..4_usize, some.clone()), 0..4),
        proptest::collection::vec((0..STEPS, 0..4_usize, some), 0..3),
        0..20_u32,
        [0..10_u32, 0..10_u32],
        proptest::option::of([0..STEPS, 0..20_u32, 0..20_u32]),
        prop_oneof![4 => Just(0_i64), 1 => Just(2_i64)],
    )
        .prop_map(
            |(tasks, late, wants, used, parent_deleted, contents_deleted, leaf_deleted, seconds)| Schedule {
                tasks,
                late,
                wants,
                used,
                parent_deleted,
                contents_deleted,
                leaf_deleted,
                seconds,
            },
        )
}

impl Test {
    /// What happens at a step besides what replicas do.
    fn apply(&mut self, schedule: &Schedule, step: u32) {
        for (_, namespace, wanted) in schedule.wants.iter().filter(|(when, ..)| *when == step) {
            self.cluster.wants[*namespace] = *wanted;
        }
        for (_, namespace, used) in schedule.used.iter().filter(|(when, ..)| *when == step) {
            let used = *used;
            self.cluster.update(*namespace, |quota| {
                let limit = amounts(&quota.enforced);
                quota.used = resources([used[0].min(limit[0]), used[1].min(limit[1])]);
            });
        }
        if step == schedule.parent_deleted {
            self.cluster.delete_parent();
        }
        let contents = schedule.parent_deleted + schedule.contents_deleted[0];
        if step == contents {
            self.cluster.delete_contents();
        }
        if step >= contents + schedule.contents_deleted[1] {
            self.drop_quota(PARENT);
            self.cluster.finish(PARENT);
        }
        let Some([deleted, quota, gone]) = schedule.leaf_deleted else { return };
        if step == deleted {
            self.cluster.delete_leaf();
        }
        if step == deleted + quota {
            self.drop_quota(LEAF);
        }
        if step == deleted + quota + gone {
            self.cluster.finish(LEAF);
        }
    }

    fn run(&mut self, schedule: &Schedule) -> Result<(), String> {
        let mut late: Vec<(Late, Vec<Cluster>, Option<Message>)> =
            schedule.late.iter().map(|late| (*late, Vec::new(), None)).collect();
        for step in 0..2 * STEPS {
            self.apply(schedule, step);
            self.check()?;
            for (Late { task, reads, reads_on, decides, arrives }, read, message) in &mut late {
                if step == *reads || step == *reads_on {
                    let times = usize::from(step == *reads) + usize::from(step == *reads_on);
                    read.extend(std::iter::repeat_n(self.cluster.clone(), times));
                }
                if step == *decides
                    && let [first, then] = &read[..]
                {
                    *message = Cluster::next([first, then, &self.cluster], Self::TASKS[*task]);
                }
                if step == *arrives
                    && let Some(message) = message.take()
                {
                    self.cluster.deliver(message);
                    self.check()?;
                }
            }
            self.cluster.mirror(usize::try_from(step % 4).unwrap());
            self.step(Self::TASKS[schedule.tasks[usize::try_from(step).unwrap() % schedule.tasks.len()]]);
            self.check()?;
            self.cluster.now += schedule.seconds;
        }
        // What was used is not any more.
        (TOP..=BESIDE)
            .for_each(|namespace| self.cluster.update(namespace, |quota| quota.used = resources([0, 0])));
        self.settle()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_given_twice_and_nothing_is_lost(schedule in schedule()) {
        let mut test = Test::new();
        test.run(&schedule).map_err(TestCaseError::fail)?;
        prop_assert!(schedule.leaf_deleted.is_some() || test.cluster.namespaces[LEAF] == Life::There);
    }
}
