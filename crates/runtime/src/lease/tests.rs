use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use proptest::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Fault};
use super::{
    Election, ElectionEnd, LeaseDecision, LeaseLost, LeaseObservation, LeaseSettings, LeaseSettingsError,
    LeaseView, SeizeError, decide, identity, keep, take_over,
};
use crate::clock::SeededRng;
use crate::leader::{Gate, LeaderState};

struct Replica {
    gate: Gate,
    release: CancellationToken,
    task: JoinHandle<Result<ElectionEnd, LeaseLost>>,
}

fn start((election, gate): (Election, Gate)) -> Replica {
    let release = CancellationToken::new();
    let task = tokio::spawn(election.run(release.clone()));
    Replica { gate, release, task }
}

fn well(_: &Method, _: bool) -> Fault {
    Fault::None
}

/// Who has to be alone in these tests.
fn peer(holder: &str) -> bool {
    holder.starts_with('w')
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Waits until `gate` is open, and answers how long that took.
async fn until_open(gate: &Gate) -> Duration {
    let start = Instant::now();
    while !gate.is_leader() {
        assert!(start.elapsed() < seconds(120), "nobody leads: {:?}", gate.state());
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_sentence() {
    let good = LeaseSettings::new("ns", "name", "me");
    assert_eq!(good.validate(), Ok(()));
    let bad = |change: fn(&mut LeaseSettings)| {
        let mut settings = good.clone();
        change(&mut settings);
        settings.validate().unwrap_err().to_string()
    };
    assert_eq!(bad(|s| s.identity.clear()), "the lease's identity is empty");
    assert_eq!(
        bad(|s| s.duration = seconds(10)),
        "the lease's renew deadline (10s) must be shorter than its duration (10s), or two replicas could write at once"
    );
    assert!(bad(|s| s.retry = seconds(9)).contains("must be shorter than its renew deadline (10s)"));
    assert_eq!(good.validate_writes(seconds(5)), Ok(()));
    assert_eq!(
        good.validate_writes(seconds(6)).unwrap_err().to_string(),
        "the lease's renew deadline (10s) and the 6s that a write may take must not be longer than its duration (15s): \
         lengthen the duration or shorten the renew deadline"
    );
    let none = LeaseSettings { retry: Duration::ZERO, ..good.clone() };
    assert_eq!(none.validate(), Err(LeaseSettingsError::NoPause));
    let mut rng = SeededRng::new(1);
    assert_ne!(identity("pod", &mut rng), identity("pod", &mut rng));
}

#[test]
fn what_was_sent_before_the_lease_was_lost_has_ended_before_another_leads() {
    let (settings, deadlines) = (LeaseSettings::new("ns", "name", "me"), crate::client::Deadlines::default());
    assert!(settings.renew_deadline + deadlines.write <= settings.duration);
}

fn view(holder: Option<&str>, transitions: i32) -> LeaseView {
    let holder = holder.map(str::to_owned);
    LeaseView { holder, duration: seconds(15), transitions, acquired: None, renewed: None }
}

#[tokio::test(start_paused = true)]
async fn decisions() {
    let start = Instant::now();
    let mut seen = LeaseObservation::default();
    assert_eq!(decide(&seen, "me", false, start), LeaseDecision::Create { transitions: 0 });
    seen.note(Some(view(Some("other"), 4)), start);
    let until = start + seconds(15);
    let wait = LeaseDecision::Wait { until, holder: "other".to_owned() };
    assert_eq!(decide(&seen, "me", false, until - Duration::from_nanos(1)), wait);
    assert_eq!(decide(&seen, "me", false, until), LeaseDecision::Take { transitions: 5 });
    assert_eq!(decide(&seen, "me", true, start), LeaseDecision::Lost { holder: Some("other".to_owned()) });
    assert_eq!(decide(&seen, "other", false, start), LeaseDecision::Renew);

    seen.note(None, start + seconds(1));
    assert_eq!(decide(&seen, "me", false, start + seconds(1)), wait, "its holder may not know yet");
    assert_eq!(decide(&seen, "me", false, until), LeaseDecision::Create { transitions: 5 });
    assert_eq!(decide(&seen, "other", true, start), LeaseDecision::Create { transitions: 4 });

    seen.note(Some(view(None, 4)), start + seconds(2));
    assert_eq!(decide(&seen, "me", false, start + seconds(2)), LeaseDecision::Take { transitions: 5 });
    assert_eq!(decide(&seen, "me", true, start), LeaseDecision::Lost { holder: None });
}

proptest! {
    /// Whatever is read and when: nobody takes what another was seen to change less than its duration ago.
    #[test]
    fn a_lease_is_not_taken_for_its_duration_after_each_change(
        reads in proptest::collection::vec((0u64..12_000, 0u8..4, any::<bool>()), 1..40)
    ) {
        let start = Instant::now();
        let (mut seen, mut now, mut changed) = (LeaseObservation::default(), start, None);
        let mut last = None;
        for (passed, what, vanished) in reads {
            now += Duration::from_millis(passed);
            let renewed = jiff::Timestamp::from_second(i64::from(what)).unwrap();
            let read = LeaseView { renewed: Some(renewed), ..view(Some("other"), 0) };
            if vanished {
                seen.note(None, now);
            } else {
                if last.as_ref() != Some(&read) {
                    changed = Some(now);
                }
                seen.note(Some(read.clone()), now);
                last = Some(read);
            }
            let takes = matches!(decide(&seen, "me", false, now), LeaseDecision::Take { .. } | LeaseDecision::Create { .. });
            prop_assert_eq!(takes, changed.is_none_or(|changed| now >= changed + seconds(15)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_the_second_follows_and_both_are_quiet() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    assert!(until_open(&a.gate).await < seconds(1));
    let b = start(fake.candidate("b", 2, well));
    sleep(seconds(5)).await;
    let since = Instant::now();
    sleep(seconds(600)).await;
    assert!(a.gate.is_leader() && !b.gate.is_leader());
    assert!(matches!(a.gate.state(), LeaderState::Leader { transitions: 0, .. }));
    assert_eq!(b.gate.state(), LeaderState::Follower { holder: Some("a".to_owned()) });
    assert!(fake.requests("a", since) <= 301, "one renewal every two seconds: {}", fake.requests("a", since));
    assert!(fake.requests("b", since) <= 25, "a watch and a read a minute: {}", fake.requests("b", since));
    assert_eq!(fake.stored()["spec"]["leaseDurationSeconds"], 15);
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_over_at_once() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let b = start(fake.candidate("b", 2, well));
    for wait in [0, 700, 1_300, 1_999, 61_000] {
        sleep(seconds(3) + Duration::from_millis(wait)).await;
    }
    a.release.cancel();
    let took = until_open(&b.gate).await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert!(!a.gate.is_leader());
    assert_eq!(a.task.await.unwrap(), Ok(ElectionEnd::Released));
    assert!(matches!(b.gate.state(), LeaderState::Leader { transitions: 1, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_looks_as_client_go_leaves_it() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), Ok(ElectionEnd::Released));
    let spec = &fake.stored()["spec"];
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&"".into(), &1.into()));
    assert_eq!(spec["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_held_until_the_last_write_has_ended() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let b = start(fake.candidate("b", 2, well));
    let permit = a.gate.permit().unwrap();
    a.release.cancel();
    sleep(seconds(8)).await;
    assert!(!b.gate.is_leader(), "a write is in progress");
    assert!(a.gate.permit().is_err(), "and no other one begins");
    assert_eq!(permit.check(), Ok(()), "for it the lease is renewed");
    drop(permit);
    assert!(until_open(&b.gate).await < Duration::from_millis(500));
    assert_eq!(a.task.await.unwrap(), Ok(ElectionEnd::Released));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_end_leaves_the_lease_to_expire() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let _permit = a.gate.permit().unwrap();
    let released = Instant::now();
    a.release.cancel();
    assert!(matches!(a.task.await.unwrap(), Ok(ElectionEnd::LeftToExpire { .. })));
    assert!(released.elapsed() <= seconds(12), "{:?}", released.elapsed());
    assert_eq!(fake.view().unwrap().holder.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_over_stops_its_leader_and_is_exclusive_a_duration_later() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let b = start(fake.candidate("b", 2, well));
    sleep(seconds(31)).await;
    let (clients, settings, clock) = fake.parts("w", 3, well);
    let since = Instant::now();
    take_over(&clients, &settings, &clock, peer).await.unwrap();
    let took = since.elapsed();
    assert!(seconds(15) <= took && took <= seconds(16), "{took:?}");
    let lost = a.task.await.unwrap().unwrap_err();
    assert!(matches!(lost, LeaseLost::Taken { .. }), "{lost}");
    assert!(!a.gate.is_leader() && !b.gate.is_leader());
    let metrics = crate::metrics::Metrics::new("test");
    let election = Election::new(clients.clone(), settings.clone(), clock.clone(), metrics).unwrap();
    let w = start(election);
    assert!(until_open(&w.gate).await < seconds(1));
    sleep(seconds(60)).await;
    assert!(w.gate.is_leader() && !b.gate.is_leader());

    w.task.abort();
    assert!(w.task.await.unwrap_err().is_cancelled());
    assert!(!w.gate.is_leader());
    keep(&clients, &settings, &clock, seconds(300)).await.unwrap();
    sleep(seconds(299)).await;
    assert!(!b.gate.is_leader(), "kept for so long without a renewal");
    until_open(&b.gate).await;
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_over_at_once_also_from_a_standby() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    a.release.cancel();
    assert_eq!(a.task.await.unwrap(), Ok(ElectionEnd::Released));
    let (clients, settings, clock) = fake.parts("w", 3, well);
    let since = Instant::now();
    take_over(&clients, &settings, &clock, peer).await.unwrap();
    assert!(since.elapsed() < seconds(1));
    assert_eq!(fake.view().unwrap().holder.as_deref(), Some("w"));
    let (others, other, clock) = fake.parts("v", 4, well);
    let kept = keep(&others, &other, &clock, seconds(300)).await;
    assert!(matches!(kept, Err(super::KeepError::OtherHands { .. })), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn seizing_goes_on_without_the_api_server_and_ends_where_it_refuses() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let (clients, settings, clock) = fake.parts("x", 5, |_, _| Fault::Answer(403));
    assert!(
        take_over(&clients, &settings, &clock, peer)
            .await
            .unwrap_err()
            .to_string()
            .contains("cannot be taken")
    );
    let cut = Arc::new(AtomicBool::new(true));
    let wire = Arc::clone(&cut);
    // The write arrives, and its answer is lost: who held it before is not known any more, so the whole time is waited for.
    let faulty = move |method: &Method, _| {
        if method == Method::PUT && wire.swap(false, Ordering::Relaxed) {
            Fault::Unanswered
        } else {
            Fault::None
        }
    };
    let (clients, settings, clock) = fake.parts("w", 3, faulty);
    let since = Instant::now();
    take_over(&clients, &settings, &clock, peer).await.unwrap();
    let took = since.elapsed();
    assert!(seconds(15) <= took, "{took:?}");
    assert!(a.task.await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn of_two_that_seize_a_lease_one_gets_it_and_the_other_names_it() {
    // At the same moment, and one while the other waits or leads already.
    for head_start in [0, 3, 20] {
        let fake = Fake::default();
        let a = start(fake.candidate("a", 1, well));
        until_open(&a.gate).await;
        let first = {
            let (clients, settings, clock) = fake.parts("w1", 3, well);
            async move {
                take_over(&clients, &settings, &clock, peer).await?;
                let metrics = crate::metrics::Metrics::new("test");
                let replica = start(Election::new(clients, settings, clock, metrics).unwrap());
                until_open(&replica.gate).await;
                sleep(seconds(60)).await;
                Ok::<_, SeizeError>(replica.gate.is_leader())
            }
        };
        let second = async {
            sleep(seconds(head_start)).await;
            let (clients, settings, clock) = fake.parts("w2", 4, well);
            let since = Instant::now();
            (take_over(&clients, &settings, &clock, peer).await.unwrap_err(), since.elapsed())
        };
        // Two that took it from each other would never come to an end.
        let both = timeout(seconds(600), futures::future::join(first, second)).await;
        let (first, (error, took)) = both.unwrap();
        assert_eq!(first, Ok(true), "it is not disturbed");
        let held = SeizeError::Peer { lease: "system/coppice".to_owned(), holder: "w1".to_owned() };
        assert_eq!(error, held);
        assert!(took <= seconds(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_that_seized_a_lease_left_behind_is_taken_when_it_has_expired() {
    for kept in [None, Some(300)] {
        let fake = Fake::default();
        let (clients, settings, clock) = fake.parts("w1", 3, well);
        take_over(&clients, &settings, &clock, peer).await.unwrap();
        if let Some(kept) = kept {
            keep(&clients, &settings, &clock, seconds(kept)).await.unwrap();
        }
        let (clients, settings, clock) = fake.parts("w2", 4, well);
        let since = Instant::now();
        take_over(&clients, &settings, &clock, peer).await.unwrap();
        let (took, expired) = (since.elapsed(), seconds(kept.unwrap_or(15)));
        assert!(expired <= took && took <= expired + seconds(1), "{took:?}");
        assert_eq!(fake.view().unwrap().holder.as_deref(), Some("w2"));
    }
}

#[tokio::test(start_paused = true)]
async fn keeping_a_lease_is_tried_again_for_as_long_as_it_lasts() {
    let troubles = [Fault::Answer(500), Fault::Swallowed, Fault::Answer(429), Fault::Refused];
    for (most, kept) in [(troubles.len(), true), (usize::MAX, false)] {
        let (fake, left) = (Fake::default(), Arc::new(AtomicUsize::new(0)));
        let wire = Arc::clone(&left);
        let faulty = move |method: &Method, _| {
            if *method != Method::PUT || wire.load(Ordering::Relaxed) == 0 {
                return Fault::None;
            }
            troubles[wire.fetch_sub(1, Ordering::Relaxed) % troubles.len()]
        };
        let (clients, settings, clock) = fake.parts("w1", 3, faulty);
        take_over(&clients, &settings, &clock, peer).await.unwrap();
        left.store(most, Ordering::Relaxed);
        let since = Instant::now();
        let result = keep(&clients, &settings, &clock, seconds(300)).await;
        assert_eq!(result.is_ok(), kept, "{result:?}");
        assert_eq!(fake.view().unwrap().duration, seconds(if kept { 300 } else { 15 }));
        assert!(since.elapsed() <= seconds(15), "{:?}", since.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_is_lost_in_time_and_another_leads_after_it() {
    for fault in [Fault::Refused, Fault::Swallowed, Fault::Answer(500), Fault::Answer(403)] {
        let fake = Fake::default();
        let cut = Arc::new(AtomicBool::new(false));
        let wire = Arc::clone(&cut);
        let faulty = move |_: &Method, _| if wire.load(Ordering::Relaxed) { fault } else { Fault::None };
        let a = start(fake.candidate("a", 1, faulty));
        until_open(&a.gate).await;
        let b = start(fake.candidate("b", 2, well));
        sleep(seconds(31)).await;
        cut.store(true, Ordering::Relaxed);
        let since = Instant::now();
        let lost = a.task.await.unwrap().unwrap_err();
        assert!(matches!(lost, LeaseLost::NotRenewed { .. }), "{lost}");
        let took = since.elapsed();
        assert!(seconds(8) <= took && took <= seconds(10), "{fault:?}: {took:?}");
        assert!(!a.gate.is_leader() && !b.gate.is_leader());
        let until = until_open(&b.gate).await;
        assert!(seconds(4) <= until && until <= seconds(8), "{fault:?}: {until:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_a_follower_says_so_waits_and_recovers() {
    for (fault, says) in [
        (Fault::Refused, "cannot read the lease system/coppice: "),
        (Fault::Answer(403), "; apply the Role of deploy/install.yaml"),
        (Fault::Swallowed, "did not answer"),
    ] {
        let (fake, cut) = (Fake::default(), Arc::new(AtomicBool::new(true)));
        let wire = Arc::clone(&cut);
        let a = start(fake.candidate(
            "a",
            1,
            move |_, _| if wire.load(Ordering::Relaxed) { fault } else { Fault::None },
        ));
        sleep(seconds(600)).await;
        let LeaderState::Unknown { problem: Some(problem) } = a.gate.state() else {
            panic!("{:?}", a.gate.state())
        };
        assert!(problem.contains(says), "{problem}");
        assert!(
            fake.requests("a", Instant::now().checked_sub(seconds(60)).unwrap()) <= 31,
            "it does not hammer"
        );
        cut.store(false, Ordering::Relaxed);
        assert!(until_open(&a.gate).await < seconds(8));
        // Asked to end while it waits, a follower ends at once.
        let b = start(fake.candidate("b", 2, well));
        sleep(seconds(1)).await;
        b.release.cancel();
        assert_eq!(b.task.await.unwrap(), Ok(ElectionEnd::Followed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_namespace_is_reported() {
    let a = start(Fake::default().candidate("a", 1, |method, _| {
        if method == Method::POST { Fault::Answer(404) } else { Fault::None }
    }));
    sleep(seconds(10)).await;
    let LeaderState::Unknown { problem: Some(problem) } = a.gate.state() else {
        panic!("{:?}", a.gate.state())
    };
    assert!(problem.ends_with("; does its namespace exist?"), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_found_out_about() {
    let fake = Fake::default();
    let lost = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&lost);
    let once_a_verb = move |method: &Method, _| {
        let bit = if method == Method::POST { 1 } else { 2 };
        let first = method != Method::GET && count.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        if first { Fault::Unanswered } else { Fault::None }
    };
    let a = start(fake.candidate("a", 1, once_a_verb));
    let took = until_open(&a.gate).await;
    assert!(took < seconds(16), "{took:?}");
    sleep(seconds(60)).await;
    assert_eq!(lost.load(Ordering::Relaxed), 3, "both a create and a renewal were not answered");
    assert!(a.gate.is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_by_its_holder() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let b = start(fake.candidate("b", 2, well));
    for _ in 0..5 {
        sleep(Duration::from_millis(7_777)).await;
        fake.delete();
        for _ in 0..400 {
            sleep(Duration::from_millis(10)).await;
            assert!(a.gate.is_leader() && !b.gate.is_leader());
        }
        assert_eq!(fake.view().unwrap().holder.as_deref(), Some("a"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_watch_the_lease_is_read_now_and_then() {
    let fake = Fake::default();
    let a = start(fake.candidate("a", 1, well));
    until_open(&a.gate).await;
    let b = start(fake.candidate("b", 2, |_, watch| if watch { Fault::Answer(403) } else { Fault::None }));
    sleep(seconds(30)).await;
    let since = Instant::now();
    sleep(seconds(60)).await;
    assert!(fake.requests("b", since) <= 62, "{}", fake.requests("b", since));
    a.release.cancel();
    assert!(until_open(&b.gate).await < Duration::from_millis(2_500));
}

/// A network that is good, rough, or out for a while.
struct Network {
    rng: SeededRng,
    until: Instant,
    /// Of a hundred requests, this many go wrong, and in which way.
    bad: u64,
    kind: u64,
}

impl Network {
    fn new(seed: u64) -> Self {
        Self { rng: SeededRng::new(seed), until: Instant::now(), bad: 0, kind: 0 }
    }

    fn fault(&mut self) -> Fault {
        if self.until <= Instant::now() {
            self.until = Instant::now() + self.rng.between(seconds(2), seconds(30));
            self.bad = [0, 30, 100][usize::try_from(self.rng.next_u64() % 3).unwrap()];
            self.kind = self.rng.next_u64();
        }
        let kind = if self.bad == 100 { self.kind } else { self.rng.next_u64() };
        match kind % 6 {
            _ if self.rng.next_u64() % 100 >= self.bad => Fault::None,
            0 => Fault::Refused,
            1 => Fault::Unanswered,
            2 => Fault::Swallowed,
            3 => Fault::Answer(500),
            _ => Fault::Late(self.rng.between(Duration::ZERO, seconds(25))),
        }
    }
}

/// Two replicas, each started again when it loses the lease or is asked to end, on networks with faults until all is
/// `quiet`.
fn chaos(seed: u64, quiet: &Arc<AtomicBool>) -> Arc<Mutex<Vec<Gate>>> {
    let fake = Fake::default();
    let gates: Arc<Mutex<Vec<Gate>>> = Arc::default();
    for replica in 0..2 {
        let (fake, gates, quiet) = (fake.clone(), Arc::clone(&gates), Arc::clone(quiet));
        tokio::spawn(async move {
            let mut life = SeededRng::new(seed.wrapping_add(replica));
            for run in 0.. {
                let network = Mutex::new(Network::new(life.next_u64()));
                let (calm, still) = (Arc::clone(&quiet), Arc::clone(&quiet));
                let faults = move |_: &Method, _| {
                    if calm.load(Ordering::Relaxed) { Fault::None } else { network.lock().unwrap().fault() }
                };
                let (election, gate) = fake.candidate(&format!("{replica}-{run}"), life.next_u64(), faults);
                gates.lock().unwrap().push(gate);
                let release = CancellationToken::new();
                let end = release.clone();
                let age = life.between(seconds(5), seconds(300));
                tokio::spawn(async move {
                    sleep(age).await;
                    if !still.load(Ordering::Relaxed) {
                        end.cancel();
                    }
                });
                let _ = election.run(release).await;
                sleep(life.between(Duration::ZERO, seconds(5))).await;
            }
        });
    }
    gates
}

fn open(gates: &Mutex<Vec<Gate>>) -> usize {
    gates.lock().unwrap().iter().filter(|gate| gate.is_leader()).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Late, lost and repeated messages, restarts, wrong wall clocks: never two leaders; and one soon after the faults have ended.
    #[test]
    fn never_two_leaders(seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let quiet = Arc::new(AtomicBool::new(false));
            let gates = chaos(seed, &quiet);
            let mut led = 0;
            for _ in 0..6_000 {
                sleep(Duration::from_millis(100)).await;
                let leaders = open(&gates);
                assert!(leaders <= 1, "{leaders} leaders at once");
                led += leaders;
            }
            assert!(led > 100, "faults leave room for a leader now and then");
            quiet.store(true, Ordering::Relaxed);
            sleep(seconds(60)).await;
            for _ in 0..1_200 {
                sleep(Duration::from_millis(50)).await;
                assert_eq!(open(&gates), 1, "one leader, and it stays");
            }
        });
    }
}
