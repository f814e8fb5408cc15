//! The state of a queue against a naive model: per key, the instants at which something asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::{KeyState, RetryPauses, State};
use crate::clock::SeededRng;
use crate::queue::{MIN_PAUSE, ReconcileResult};

type TestKey = u8;

const PAUSES: RetryPauses = RetryPauses { first: Duration::from_millis(500), max: Duration::from_mins(1) };

#[derive(Debug, Clone)]
enum Op {
    Add(TestKey),
    AddAt(TestKey, u64),
    Start,
    /// Of the running keys, the one at this index.
    Finish(usize, ModelResult),
    Pass(u64),
}

#[derive(Debug, Clone, Copy)]
enum ModelResult {
    Done,
    In(u64),
    Failed(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let answer = prop_oneof![
        Just(ModelResult::Done),
        (0u64..5_000).prop_map(ModelResult::In),
        (60_000u64..90_000).prop_map(ModelResult::Failed)
    ];
    let op = prop_oneof![
        3 => (0u8..6).prop_map(Op::Add),
        3 => (0u8..6, 0u64..5_000).prop_map(|(key, ms)| Op::AddAt(key, ms)),
        5 => Just(Op::Start),
        4 => (0usize..6, answer).prop_map(|(index, answer)| Op::Finish(index, answer)),
        4 => (0u64..3_000).prop_map(Op::Pass),
    ];
    proptest::collection::vec(op, 1..120)
}

#[derive(Default)]
struct Model {
    queued: BTreeMap<TestKey, BTreeSet<Instant>>,
    running: BTreeMap<TestKey, BTreeSet<Instant>>,
    backoff_until: BTreeMap<TestKey, Instant>,
}

impl Model {
    fn enqueue(&mut self, key: TestKey, at: Instant) {
        let backoff_until =
            self.backoff_until.get(&key).copied().filter(|_| !self.running.contains_key(&key));
        let at = backoff_until.map_or(at, |backoff_until| at.max(backoff_until));
        self.running.get_mut(&key).unwrap_or_else(|| self.queued.entry(key).or_default()).insert(at);
    }

    fn ready(&self, now: Instant) -> BTreeMap<TestKey, Instant> {
        let first = self.queued.iter().filter_map(|(key, at)| Some((*key, *at.first()?)));
        first.filter(|(_, at)| *at <= now).collect()
    }
}

fn check(state: &State<TestKey>, model: &Model) {
    for (key, entry) in &state.entries {
        let in_ready = state.ready.iter().filter(|(_, k)| k == key).count();
        let in_due: Vec<Instant> = state.due.iter().filter(|(_, k)| k == key).map(|(at, _)| *at).collect();
        match entry.state {
            KeyState::Ready => assert_eq!((in_ready, in_due.len()), (1, 0), "{key}"),
            KeyState::Due(at) => assert_eq!((in_ready, in_due), (0, vec![at]), "{key}"),
            KeyState::Running { .. } => assert_eq!((in_ready, in_due.len()), (0, 0), "{key}"),
        }
        assert_eq!(matches!(entry.state, KeyState::Running { .. }), model.running.contains_key(key), "{key}");
    }
    let known: BTreeSet<TestKey> = state.entries.keys().copied().collect();
    let queued: BTreeSet<TestKey> = model.queued.keys().chain(model.running.keys()).copied().collect();
    assert_eq!(known, queued, "nothing is lost, nothing invented");
    assert_eq!(state.depths().running, model.running.len());
}

fn start(state: &mut State<TestKey>, model: &mut Model, now: Instant) {
    let ready = model.ready(now);
    let started = state.start(now);
    let Some(key) = started else {
        assert!(ready.is_empty(), "{ready:?} are ready and none was started");
        return;
    };
    let first = ready.get(&key).unwrap_or_else(|| panic!("{key} was started and is not ready"));
    assert!(ready.values().all(|other| first <= other), "{key} was started before its turn: {ready:?}");
    model.queued.remove(&key);
    model.running.insert(key, BTreeSet::new());
}

fn finish(state: &mut State<TestKey>, model: &mut Model, index: usize, answer: ModelResult, now: Instant) {
    let Some((&key, _)) = model.running.iter().nth(index) else { return };
    let added = model.running.remove(&key).unwrap_or_default();
    let mut queued: BTreeSet<Instant> = added.into_iter().map(|at| at.max(now)).collect();
    model.backoff_until.remove(&key);
    let next = match answer {
        ModelResult::Done => ReconcileResult::Done,
        ModelResult::In(ms) => {
            let at = now + Duration::from_millis(ms);
            queued.insert(at.max(now + MIN_PAUSE));
            ReconcileResult::At(at)
        }
        ModelResult::Failed(ms) => {
            // It is not processed for this long, whatever was requested meanwhile.
            let backoff_until = now + Duration::from_millis(ms);
            queued = [backoff_until].into();
            model.backoff_until.insert(key, backoff_until);
            ReconcileResult::Retry { category: "test", at_least: Duration::from_millis(ms) }
        }
    };
    if !queued.is_empty() {
        model.queued.insert(key, queued);
    }
    state.finish(&key, &next, now);
}

proptest! {
    #[test]
    fn behaves_like_the_model(ops in ops()) {
        let mut now = Instant::now();
        let mut state = State::new(PAUSES, 1);
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Add(key) => {
                    state.add(key, now);
                    model.enqueue(key, now);
                }
                Op::AddAt(key, ms) => {
                    let due = now + Duration::from_millis(ms);
                    state.add_at(key, due, now);
                    model.enqueue(key, due);
                }
                Op::Start => start(&mut state, &mut model, now),
                Op::Finish(index, answer) => finish(&mut state, &mut model, index, answer, now),
                Op::Pass(ms) => now += Duration::from_millis(ms),
            }
            check(&state, &model);
        }
        // In the end everything that was asked for is done.
        while !(model.queued.is_empty() && model.running.is_empty()) {
            now += Duration::from_secs(100);
            start(&mut state, &mut model, now);
            finish(&mut state, &mut model, 0, ModelResult::Done, now);
            check(&state, &model);
        }
        prop_assert_eq!(state.len(), 0);
    }

    #[test]
    fn pauses_double_to_their_bound_and_stay_in_the_upper_half(failures in 1u32..100, seed: u64) {
        let full = Duration::from_millis(500 << (failures - 1).min(7)).min(Duration::from_mins(1));
        let pause = PAUSES.after(failures, &mut SeededRng::new(seed));
        prop_assert!(full / 2 <= pause && pause <= full, "{:?}", pause);
    }
}

#[test]
fn what_has_to_wait_for_others_has_failed_as_often_as_before() {
    let now = Instant::now();
    let (retry, later) = (ReconcileResult::retry("test"), now + Duration::from_mins(1));
    for (between, expected) in
        [(ReconcileResult::Waits(later), 1000..=2000_u128), (ReconcileResult::At(later), 250..=500_u128)]
    {
        let mut state = State::new(PAUSES, 1);
        for next in [&retry, &retry, &between, &retry] {
            state.add(1_u8, now);
            assert_eq!(state.start(now), Some(1));
            state.finish(&1, next, now);
        }
        let pause = (state.next_due().unwrap() - now).as_millis();
        assert!(expected.contains(&pause), "{pause} ms after {between:?}");
    }
}

#[test]
fn thousands_of_keys_that_came_at_once_leave_little_room_behind() {
    let now = Instant::now();
    let mut state = State::new(PAUSES, 1);
    let room = |state: &State<u32>| (state.entries.capacity(), state.ready.capacity());
    for round in 0..2 {
        for key in 0..5_000 {
            state.add(key, now);
        }
        let (entries, ready) = room(&state);
        assert!(entries >= 5_000 && ready >= 5_000);
        for expected in 0..5_000 {
            let key = state.start(now).unwrap();
            assert_eq!(key, expected, "in the order in which they came, in round {round}");
            state.finish(&key, &ReconcileResult::Done, now);
        }
        let (entries, ready) = room(&state);
        assert!(entries <= 1_024 && ready <= 1_024, "{entries}, {ready}");
        assert_eq!((state.len(), state.start(now)), (0, None));
    }
}

#[test]
fn few_keys_keep_their_room() {
    let now = Instant::now();
    let mut state = State::new(PAUSES, 1);
    for key in 0..200_u32 {
        state.add(key, now);
    }
    let room = state.entries.capacity();
    while let Some(key) = state.start(now) {
        state.finish(&key, &ReconcileResult::Done, now);
    }
    assert_eq!((state.len(), state.ready.capacity() >= 200), (0, true));
    // What was removed may leave marks that count as taken, by the seed of the map, until it is cleared, which an empty one is not.
    state.add(0, now);
    state.entries.clear();
    assert_eq!(state.entries.capacity(), room);
}
