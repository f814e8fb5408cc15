//! Time and randomness, which are arguments everywhere else.
//!
//! [`Clock`] is the only place where the wall clock is read, [`SeededRng`] the only source of randomness; a simulator that passes both in
//! decides every run.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A wall clock and, beside it, a monotonic one.
///
/// Clones show the same time. Durations are measured on [`monotonic`](Self::monotonic): the wall clock may be set while one runs.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
    origin: Instant,
    shift: Arc<Mutex<SignedDuration>>,
}

#[derive(Debug, Clone)]
enum Source {
    /// The machine's wall clock; monotonic time from tokio.
    System,
    /// A start that advances with tokio's clock, which tests can pause.
    Tokio(Timestamp),
    /// A start that advances only when its handle says so.
    Manual(Timestamp, Arc<Mutex<Duration>>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::of(Source::System)
    }

    /// A clock that shows `start` now and advances with tokio's clock: paused, skipped and advanced as that is.
    pub fn following_tokio(start: Timestamp) -> Self {
        Self::of(Source::Tokio(start))
    }

    /// A clock that shows `start` and stands still until its handle moves it.
    pub fn manual(start: Timestamp) -> (Self, ClockHandle) {
        let elapsed = Arc::new(Mutex::new(Duration::ZERO));
        let clock = Self::of(Source::Manual(start, Arc::clone(&elapsed)));
        let handle = ClockHandle { clock: clock.clone(), elapsed };
        (clock, handle)
    }

    /// A clock whose wall time is `by` later than this one's (earlier if negative); monotonic time is the same.
    #[must_use]
    pub fn shifted(&self, by: SignedDuration) -> Self {
        let shift = read(&self.shift).saturating_add(by);
        Self { shift: Arc::new(Mutex::new(shift)), ..self.clone() }
    }

    /// Sets the wall time of this clock and of its clones, as an administrator or NTP would: no time passes.
    pub fn jump(&self, by: SignedDuration) {
        let mut shift = lock(&self.shift);
        *shift = shift.saturating_add(by);
    }

    /// The wall time: UTC, as far as this machine knows it.
    pub fn now(&self) -> Timestamp {
        let unshifted = match &self.source {
            Source::System => system_now(),
            Source::Tokio(start) => later(*start, self.origin.elapsed()),
            Source::Manual(start, elapsed) => later(*start, read(elapsed)),
        };
        add(unshifted, read(&self.shift))
    }

    /// The instant on tokio's clock at which this clock will show `at`, if nobody sets it; now, if `at` has passed. At most a hundred
    /// years ahead.
    pub fn instant(&self, at: Timestamp) -> Instant {
        const FAR: Duration = Duration::from_hours(24 * 365 * 100);
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO);
        Instant::now() + ahead.min(FAR)
    }

    /// The time since this clock was made (clones share the beginning). It never goes back and does not notice when the wall clock is
    /// set, or when the machine is suspended.
    pub fn monotonic(&self) -> Duration {
        match &self.source {
            Source::System | Source::Tokio(_) => self.origin.elapsed(),
            Source::Manual(_, elapsed) => read(elapsed),
        }
    }

    fn of(source: Source) -> Self {
        Self { source, origin: Instant::now(), shift: Arc::default() }
    }
}

/// Moves a clock made by [`Clock::manual`], and all its clones.
#[derive(Debug, Clone)]
pub struct ClockHandle {
    clock: Clock,
    elapsed: Arc<Mutex<Duration>>,
}

impl ClockHandle {
    /// Lets time pass: the wall clock and the monotonic one advance together.
    pub fn advance(&self, by: Duration) {
        let mut elapsed = lock(&self.elapsed);
        *elapsed = elapsed.saturating_add(by);
    }

    /// Lets time pass until `to`; when `to` is not later than now, [jumps](Self::jump) back to it.
    pub fn set(&self, to: Timestamp) {
        let distance = to.duration_since(self.clock.now());
        match Duration::try_from(distance) {
            Ok(forward) => self.advance(forward),
            Err(_) => self.jump(distance),
        }
    }

    /// Sets the wall clock: [`Clock::jump`].
    pub fn jump(&self, by: SignedDuration) {
        self.clock.jump(by);
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the ambient clock is read")]
fn system_now() -> Timestamp {
    Timestamp::now()
}

fn later(start: Timestamp, by: Duration) -> Timestamp {
    add(start, SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX))
}

fn add(start: Timestamp, by: SignedDuration) -> Timestamp {
    // Fails for calendar units only, of which there are none in a signed duration.
    start.saturating_add(by).unwrap_or(Timestamp::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<T: Copy>(mutex: &Mutex<T>) -> T {
    *lock(mutex)
}

/// What the state of [`SeededRng`] grows by with each number.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Pseudorandom numbers from a seed (`SplitMix64`). For spreading retries, not for secrets.
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed that differs from process to process and from call to call.
    pub fn entropy() -> Self {
        // The standard library seeds its hash maps from the operating system's randomness.
        Self(RandomState::new().build_hasher().finish())
    }

    /// The number that comes after so many others; for each count another one.
    pub fn nth(&self, count: u64) -> u64 {
        Self(self.0.wrapping_add(count.wrapping_mul(STEP))).next_u64()
    }

    /// The next number; every value is as likely as any other.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A duration from `least` to `most`, to the microsecond; `least` if it is not below `most`.
    pub fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let steps = u64::try_from(most.saturating_sub(least).as_micros()).unwrap_or(u64::MAX);
        let step = self.next_u64() % steps.saturating_add(1);
        least.saturating_add(Duration::from_micros(step))
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, SeededRng};
    use jiff::{SignedDuration, Timestamp};
    use std::time::Duration;

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_number_is_found_without_those_before_it_and_stays_the_same_for_ever() {
        let mut rng = SeededRng::new(7);
        let first: Vec<u64> = (0..4).map(|n| SeededRng::new(7).nth(n)).collect();
        assert_eq!(first, [(); 4].map(|()| rng.next_u64()));
        // The first numbers of SplitMix64 for the seed 0, as its author published them.
        let numbers = [0_u64, 1].map(|n| SeededRng::new(0).nth(n));
        assert_eq!(numbers, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }

    #[tokio::test(start_paused = true)]
    async fn following_tokio_shows_the_time_that_tokio_lets_pass() {
        let clock = Clock::following_tokio(start());
        let early = clock.shifted(SignedDuration::from_mins(-10));
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T01:00:00Z");
        assert_eq!(clock.clone().monotonic(), Duration::from_hours(1));
        assert_eq!(early.now().to_string(), "2026-01-01T00:50:00Z");
        assert_eq!(early.monotonic(), Duration::from_hours(1));
        let now = tokio::time::Instant::now();
        assert_eq!(clock.instant(start()), now, "what has passed is due now");
        assert_eq!(clock.instant("2026-01-01T01:00:30Z".parse().unwrap()), now + Duration::from_secs(30));
        assert!(clock.instant(Timestamp::MAX) > now);
    }

    #[test]
    fn a_manual_clock_passes_jumps_and_is_set() {
        let (clock, handle) = Clock::manual(start());
        handle.advance(Duration::from_secs(5));
        handle.jump(SignedDuration::from_mins(10));
        assert_eq!(clock.now().to_string(), "2026-01-01T00:10:05Z");
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
        handle.set("2026-01-01T00:11:00Z".parse().unwrap());
        assert_eq!(clock.monotonic(), Duration::from_mins(1));
        handle.set(start());
        assert_eq!(clock.now(), start());
        assert_eq!(clock.monotonic(), Duration::from_mins(1), "time never runs backwards");
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        let clock = Clock::system().shifted(SignedDuration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
        assert_eq!(clock.shifted(SignedDuration::MAX).now(), Timestamp::MAX);
    }

    #[test]
    fn random_numbers_follow_from_their_seed_and_stay_in_bounds() {
        let mut rng = SeededRng::new(0);
        assert_eq!([rng.next_u64(), rng.next_u64()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        let (least, most) = (Duration::from_millis(250), Duration::from_millis(500));
        for _ in 0..1000 {
            let rolled = rng.between(least, most);
            assert!(least <= rolled && rolled <= most, "{rolled:?}");
        }
        assert_eq!(rng.between(most, least), most);
        assert!(rng.between(Duration::ZERO, Duration::MAX) > Duration::ZERO);
        assert_ne!(SeededRng::entropy().next_u64(), SeededRng::entropy().next_u64());
    }
}
