use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Depths, Drained, Queue, QueueObserver, QueueSettings, ReconcileResult, RunOutcome};
use crate::clock::SeededRng;

type TestKey = &'static str;

/// What was seen of a queue: when each run began, in milliseconds since the start, and how each ended.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    began: Vec<(TestKey, u128)>,
    outcomes: Vec<RunOutcome>,
    depth_reports: usize,
}

impl Seen {
    fn began(&self) -> Vec<(TestKey, u128)> {
        self.0.lock().unwrap().began.clone()
    }

    fn times(&self) -> Vec<u128> {
        self.began().into_iter().map(|(_, at)| at).collect()
    }

    fn panics(&self) -> usize {
        self.0
            .lock()
            .unwrap()
            .outcomes
            .iter()
            .filter(|outcome| matches!(outcome, RunOutcome::Panicked(_)))
            .count()
    }
}

impl<K> QueueObserver<K> for Seen {
    fn finished(&self, _: &K, outcome: &RunOutcome, _: Duration) {
        self.0.lock().unwrap().outcomes.push(outcome.clone());
    }

    fn depths(&self, _: Depths) {
        self.0.lock().unwrap().depth_reports += 1;
    }
}

struct Running {
    queue: Queue<TestKey>,
    seen: Seen,
    start: Instant,
    stop: CancellationToken,
    task: JoinHandle<Drained<TestKey>>,
}

/// Runs a queue, each run of which takes `took`; `answer` gets the number of the run.
fn run(
    concurrency: usize,
    took: Duration,
    answer: impl Fn(usize) -> ReconcileResult + Send + Sync + 'static,
) -> Running {
    let settings =
        QueueSettings { concurrency: NonZeroUsize::new(concurrency).unwrap(), ..QueueSettings::default() };
    let (queue, seen, stop) = (Queue::new(settings), Seen::default(), CancellationToken::new());
    let start = Instant::now();
    let (worker, notes, token, answer) = (queue.clone(), seen.clone(), stop.clone(), Arc::new(answer));
    let task = tokio::spawn(async move {
        let observe = notes.clone();
        let process = move |key| {
            let (notes, answer) = (notes.clone(), Arc::clone(&answer));
            async move {
                let run = {
                    let mut notes = notes.0.lock().unwrap();
                    notes.began.push((key, start.elapsed().as_millis()));
                    notes.began.len()
                };
                sleep(took).await;
                answer(run)
            }
        };
        worker.run(process, observe, token).await
    });
    Running { queue, seen, start, stop, task }
}

const QUICK: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_key_that_is_added_while_in_progress_runs_again_afterwards() {
    let r = run(4, Duration::from_millis(100), |_| ReconcileResult::Done);
    r.queue.add("a");
    sleep(QUICK).await;
    r.queue.add("a");
    r.queue.add("a");
    sleep(HOUR).await;
    assert_eq!(r.seen.times(), [0, 100], "once more, not at the same time, not twice more");
    assert!(r.queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_run_answers_replaces_an_earlier_due_time() {
    let start = Instant::now();
    let r =
        run(
            4,
            QUICK,
            move |run| if run == 1 { ReconcileResult::At(start + 2 * HOUR) } else { ReconcileResult::Done },
        );
    r.queue.add_at("a", start + HOUR);
    r.queue.add("a");
    sleep(3 * HOUR).await;
    assert_eq!(r.seen.times(), [0, 2 * HOUR.as_millis()], "never after one hour");
}

#[tokio::test(start_paused = true)]
async fn of_two_due_times_the_earlier_counts_until_a_run() {
    let r = run(4, QUICK, |_| ReconcileResult::Done);
    for seconds in [30, 10, 20] {
        r.queue.add_at("a", r.start + Duration::from_secs(seconds));
    }
    sleep(HOUR).await;
    assert_eq!(r.seen.times(), [10_000]);
}

#[tokio::test(start_paused = true)]
async fn the_ready_are_served_in_order_and_only_so_many_at_once() {
    let r = run(2, Duration::from_secs(1), |_| ReconcileResult::Done);
    for key in ["a", "b", "c", "d", "a"] {
        r.queue.add(key);
    }
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(r.queue.depths(), Depths { ready: 0, due: 0, running: 2 });
    sleep(HOUR).await;
    assert_eq!(r.seen.began(), [("a", 0), ("b", 0), ("c", 1000), ("d", 1000)]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_with_growing_pauses_until_one_succeeds() {
    let r =
        run(
            1,
            Duration::ZERO,
            |run| if run == 4 { ReconcileResult::Done } else { ReconcileResult::retry("test") },
        );
    r.queue.add("a");
    sleep(HOUR).await;
    r.queue.add("a");
    sleep(HOUR).await;
    let times = r.seen.times();
    let pauses: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, range) in pauses.iter().zip([250..=500, 500..=1000, 1000..=2000]) {
        assert!(range.contains(pause), "{pauses:?}");
    }
    assert!((250..=500).contains(&pauses[4]), "a success starts over: {pauses:?}");
    assert!(*pauses.last().unwrap() > 29_000, "in the end one a minute: {pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_for_the_end_of_a_pause() {
    let r = run(1, Duration::ZERO, |run| match run {
        1 => ReconcileResult::retry("busy"),
        _ => ReconcileResult::Done,
    });
    r.queue.add("a");
    sleep(Duration::from_millis(10)).await;
    assert_eq!(r.queue.depths().due, 1);
    r.queue.add("a");
    sleep(HOUR).await;
    assert_eq!(r.seen.times(), [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_asked_for_is_kept_whatever_changes() {
    let r = run(1, Duration::ZERO, |run| match run {
        1 => ReconcileResult::Retry { category: "busy", at_least: Duration::from_mins(5) },
        _ => ReconcileResult::Done,
    });
    r.queue.add("a");
    sleep(Duration::from_secs(1)).await;
    r.queue.add("a");
    r.queue.add_at("a", Instant::now() + Duration::from_secs(1));
    sleep(HOUR).await;
    assert_eq!(r.seen.times(), [0, 300_000]);
    r.queue.add("a");
    sleep(HOUR).await;
    assert_eq!(r.seen.times().len(), 3, "only that once");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_contained_counted_and_tried_again() {
    let r = run(1, QUICK, |run| if run == 1 { panic!("run {run}") } else { ReconcileResult::Done });
    r.queue.add("a");
    r.queue.add("b");
    sleep(HOUR).await;
    let keys: Vec<TestKey> = r.seen.began().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "b", "a"]);
    assert_eq!(r.seen.panics(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_future_exists_and_one_while_it_is_dropped_are_contained_too() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let (queue, seen, stop) =
        (Queue::new(QueueSettings::default()), Seen::default(), CancellationToken::new());
    queue.add("early");
    queue.add("late");
    let observe = seen.clone();
    let process = move |key: TestKey| {
        assert!(key != "early" || seen.panics() > 0, "early");
        let bomb = (key == "late" && seen.panics() < 2).then(|| Bomb);
        async move {
            let _bomb = bomb;
            sleep(QUICK).await;
            ReconcileResult::Done
        }
    };
    let observed = observe.clone();
    let (worker, token) = (queue.clone(), stop.clone());
    let task = tokio::spawn(async move { worker.run(process, observe, token).await });
    sleep(HOUR).await;
    assert_eq!(observed.panics(), 2);
    assert!(queue.is_empty());
    stop.cancel();
    assert_eq!(task.await.unwrap().abandoned, Vec::<TestKey>::new());
}

#[tokio::test(start_paused = true)]
async fn when_stopped_those_in_progress_finish_and_no_other_begins() {
    let r = run(1, Duration::from_secs(3), |_| ReconcileResult::Done);
    r.queue.add("a");
    r.queue.add("b");
    sleep(QUICK).await;
    r.stop.cancel();
    assert_eq!(r.task.await.unwrap(), Drained { abandoned: vec![] });
    assert_eq!(r.start.elapsed(), Duration::from_secs(3));
    assert_eq!(r.seen.began(), [("a", 0)]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_finish_in_time_is_cut_off_and_named() {
    let r = run(2, HOUR, |_| ReconcileResult::Done);
    r.queue.add("b");
    r.queue.add("a");
    sleep(QUICK).await;
    r.stop.cancel();
    assert_eq!(r.task.await.unwrap(), Drained { abandoned: vec!["a", "b"] });
    assert_eq!(r.start.elapsed(), QUICK + QueueSettings::default().drain);
}

#[tokio::test(start_paused = true)]
async fn an_idle_queue_does_nothing_until_the_next_due_time() {
    let r = run(1, QUICK, |_| ReconcileResult::Done);
    r.queue.add_at("a", r.start + 24 * HOUR);
    sleep(QUICK).await;
    let depth_reports = r.seen.0.lock().unwrap().depth_reports;
    sleep(23 * HOUR).await;
    assert_eq!(r.seen.0.lock().unwrap().depth_reports, depth_reports);
    sleep(2 * HOUR).await;
    assert_eq!(r.seen.times(), [24 * HOUR.as_millis()]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_always_late_cannot_spin() {
    let start = Instant::now();
    let r = run(1, Duration::ZERO, move |_| ReconcileResult::At(start));
    r.queue.add("a");
    sleep(Duration::from_secs(1)).await;
    assert!(r.seen.times().len() <= 21, "{}", r.seen.times().len());
}

#[tokio::test(start_paused = true)]
async fn lag_grows_while_all_are_busy() {
    let r = run(1, HOUR, |_| ReconcileResult::Done);
    assert_eq!(r.queue.lag(), Duration::ZERO);
    r.queue.add("a");
    r.queue.add_at("b", r.start + Duration::from_secs(5));
    sleep(Duration::from_secs(65)).await;
    assert_eq!(r.queue.lag(), Duration::from_mins(1));
}

/// Random additions to a running queue: never one key twice at once, never too many, and every addition is followed by a run.
#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_nothing_runs_twice_at_once() {
    for seed in 0..20 {
        let settings =
            QueueSettings { concurrency: NonZeroUsize::new(3).unwrap(), seed, ..QueueSettings::default() };
        let queue: Queue<u64> = Queue::new(settings);
        // Per key: whether it runs, and the beginning of its last run.
        let runs: Arc<Mutex<BTreeMap<u64, (bool, Instant)>>> = Arc::default();
        let rng = Arc::new(Mutex::new(SeededRng::new(seed)));
        let (noted, rolled, stop) = (Arc::clone(&runs), Arc::clone(&rng), CancellationToken::new());
        let process = move |key| {
            let (noted, rolled) = (Arc::clone(&noted), Arc::clone(&rolled));
            async move {
                let (took, kind) = {
                    let mut runs = noted.lock().unwrap();
                    assert!(runs.values().filter(|(running, _)| *running).count() < 3, "too many at once");
                    let before = runs.insert(key, (true, Instant::now()));
                    assert!(before.is_none_or(|(running, _)| !running), "{key} twice at once");
                    let mut rng = rolled.lock().unwrap();
                    (rng.between(Duration::ZERO, Duration::from_millis(300)), rng.next_u64() % 8)
                };
                sleep(took).await;
                noted.lock().unwrap().entry(key).and_modify(|(running, _)| *running = false);
                match kind {
                    0 => ReconcileResult::retry("test"),
                    1 => panic!("now and then"),
                    2 => ReconcileResult::At(Instant::now() + took),
                    _ => ReconcileResult::Done,
                }
            }
        };
        let (worker, token) = (queue.clone(), stop.clone());
        let task = tokio::spawn(async move { worker.run(process, (), token).await });
        let mut added = BTreeMap::new();
        for _ in 0..200 {
            let (key, pause) = {
                let mut rng = rng.lock().unwrap();
                (rng.next_u64() % 7, rng.between(Duration::ZERO, Duration::from_millis(100)))
            };
            queue.add(key);
            added.insert(key, Instant::now());
            sleep(pause).await;
        }
        sleep(HOUR).await;
        stop.cancel();
        assert!(task.await.unwrap().abandoned.is_empty());
        let runs = runs.lock().unwrap();
        for (key, at) in added {
            assert!(runs[&key].1 >= at, "seed {seed}: {key} was added and did not run again");
        }
        assert!(queue.is_empty(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn tens_of_thousands_of_keys_with_a_due_time_each_are_cheap() {
    let queue: Queue<u32> = Queue::new(QueueSettings::default());
    let start = Instant::now();
    for key in 0..50_000 {
        queue.add_at(key, start + Duration::from_secs(1 + u64::from(key % 1000)));
    }
    assert_eq!(queue.depths(), Depths { ready: 0, due: 50_000, running: 0 });
    let (worker, stop) = (queue.clone(), CancellationToken::new());
    let token = stop.clone();
    let task = tokio::spawn(async move { worker.run(|_| async { ReconcileResult::Done }, (), token).await });
    sleep(HOUR).await;
    assert!(queue.is_empty());
    stop.cancel();
    task.await.unwrap();
}
