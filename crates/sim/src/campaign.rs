//! Many runs: every story with every fault at every place, and then by chance. A run that is not as it should be is made as small as
//! possible, and shown with the command that plays it again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;

use crate::fault::{At, Fault, Planned, Weather, dice};
use crate::oracle::EndState;
use crate::replica::ReplicaSettings;
use crate::run::{Outcome, Plan, run};
use crate::scenario::{self, Scenario};

/// What each story ends like when nothing goes wrong: as it says, and in all that it does not say.
pub struct Campaign {
    undisturbed: BTreeMap<&'static str, Undisturbed>,
}

/// A story in which nothing goes wrong.
struct Undisturbed {
    end: EndState,
    writes: u64,
    events: u64,
}

/// Finds what is wrong with a run of a plan.
pub type Judge = fn(&Campaign, &Plan) -> anyhow::Result<(Vec<String>, Outcome)>;

/// A run that was not as it should be.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The story.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// The faults, as few as were found to be enough.
    pub faults: Vec<Planned>,
    /// What was wrong, in sentences.
    pub wrong: Vec<String>,
    /// What happened, as a timeline.
    pub timeline: String,
}

impl Failure {
    /// What came of a run of a plan.
    pub fn of(plan: &Plan, wrong: Vec<String>, outcome: &Outcome) -> Self {
        Self {
            scenario: plan.scenario.name,
            seed: plan.seed,
            faults: outcome.fired.clone(),
            wrong,
            timeline: outcome.trace.timeline(false),
        }
    }

    /// Everything that is needed to understand it.
    pub fn report(&self) -> String {
        let wrong = self.wrong.join("\n  ");
        let faults: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        format!(
            "{}, seed {}: {} faults\n  {wrong}\n\n{}\nPlay it again:\n  cargo run -p coppice-sim --bin coppice-campaign -- \
             replay {} --seed {} --faults {:?}\n",
            self.scenario,
            self.seed,
            self.faults.len(),
            self.timeline,
            self.scenario,
            self.seed,
            faults.join(","),
        )
    }
}

impl Campaign {
    /// Runs every story that seeds choose from, and the small one, once without faults.
    pub fn prepare() -> anyhow::Result<Self> {
        Self::of(scenario::all().into_iter().chain([scenario::small()]))
    }

    /// The same for these stories alone.
    pub fn of(stories: impl IntoIterator<Item = Scenario>) -> anyhow::Result<Self> {
        let mut undisturbed = BTreeMap::new();
        for scenario in stories {
            let (name, ends) = (scenario.name, scenario.ends.clone());
            let outcome = run(&Plan::undisturbed(scenario, 0))?;
            let mut wrong = outcome.violations.clone();
            wrong.extend(outcome.end.unlike(&ends));
            let timeline = outcome.trace.timeline(false);
            anyhow::ensure!(
                wrong.is_empty(),
                "{name} goes wrong by itself: {}\n{timeline}",
                wrong.join("; ")
            );
            let Outcome { end, writes, events, .. } = outcome;
            undisturbed.insert(name, Undisturbed { end, writes, events });
        }
        Ok(Self { undisturbed })
    }

    /// What is wrong with a run of this plan.
    pub fn judge(&self, plan: &Plan) -> anyhow::Result<(Vec<String>, Outcome)> {
        let outcome = run(plan)?;
        let mut wrong = outcome.violations.clone();
        // A booking whose answer is lost is spent: where things go wrong there may be fewer steps, and what is more breaks a rule.
        let mut ends = plan.scenario.ends.clone();
        ends.retain(|line| !line.starts_with("steps: "));
        wrong.extend(outcome.end.unlike(&ends));
        // What a story leaves open may differ.
        let open = ends.iter().any(|line| line.ends_with('*'));
        if let Some(undisturbed) = self.undisturbed.get(plan.scenario.name).filter(|_| !open) {
            wrong.extend(undisturbed.end.differences(&outcome.end));
        }
        Ok((wrong, outcome))
    }

    /// The same, and whether a second run of the plan is the same, line by line.
    pub fn judge_twice(&self, plan: &Plan) -> anyhow::Result<(Vec<String>, Outcome)> {
        let (mut wrong, outcome) = self.judge(plan)?;
        if let Some((one, two)) = outcome.trace.difference(&run(plan)?.trace) {
            wrong.push(format!("ONE SEED, ONE TRACE: a second run differs:\n    {one}\n    {two}"));
        }
        Ok((wrong, outcome))
    }

    /// A plan for each place of a story and each fault that can strike there.
    pub fn everywhere(&self, scenario: &Scenario) -> Vec<Plan> {
        let Some(undisturbed) = self.undisturbed.get(scenario.name) else { return Vec::new() };
        let writes = (0..undisturbed.writes).map(At::Write);
        let leases = (0..4).map(At::Lease);
        let reads = (0..30).map(At::Read);
        let events = (0..undisturbed.events).map(At::Event);
        let of_write = [
            Fault::KilledBefore,
            Fault::KilledAfter,
            Fault::AnswerLost,
            Fault::NoAnswer,
            Fault::RefusedAfter(504),
            Fault::Refused(500),
            Fault::Late(Duration::from_secs(20)),
            Fault::Twice,
            Fault::CutOff(Duration::from_secs(45)),
            Fault::Away(Duration::from_secs(25)),
        ];
        let of_read = [
            Fault::Refused(500),
            Fault::NoAnswer,
            Fault::Refused(429),
            Fault::KilledBefore,
            Fault::KilledAfter,
        ];
        let of_event = [
            Fault::Dropped,
            Fault::Delayed(Duration::from_secs(40)),
            Fault::Broken,
            Fault::Expired,
            Fault::AllExpired,
            Fault::Silent,
        ];
        // A replica that is cut off for seconds, and for minutes.
        let cut = (0..4).flat_map(|n| {
            [5, 150].map(|s| Planned { at: At::Lease(n), fault: Fault::CutOff(Duration::from_secs(s)) })
        });
        let both = |at: At, faults: &[Fault]| {
            faults.iter().map(move |&fault| Planned { at, fault }).collect::<Vec<_>>()
        };
        let all = writes.chain(leases).flat_map(|at| both(at, &of_write));
        let all = all.chain(reads.flat_map(|at| both(at, &of_read)));
        let all = all.chain(cut).chain(events.flat_map(|at| both(at, &of_event)));
        all.map(|planned| Plan { faults: vec![planned], ..Plan::undisturbed(scenario.clone(), 0) }).collect()
    }

    /// A plan for every two places of a story and all faults that can strike there: so much as can be tried of a small story.
    pub fn pairs(&self, scenario: &Scenario, only_writes: bool) -> Vec<Plan> {
        let Some(undisturbed) = self.undisturbed.get(scenario.name) else { return Vec::new() };
        let writes = (0..undisturbed.writes).map(At::Write);
        let of_write = [Fault::KilledBefore, Fault::KilledAfter, Fault::AnswerLost];
        let mut single: Vec<Planned> =
            writes.flat_map(|at| of_write.map(|fault| Planned { at, fault })).collect();
        if !only_writes {
            let late = Fault::Late(Duration::from_secs(20));
            let more = (0..undisturbed.writes).map(|n| Planned { at: At::Write(n), fault: late });
            let leases = (0..4).map(|n| Planned { at: At::Lease(n), fault: Fault::KilledAfter });
            let of_event = [Fault::Dropped, Fault::Expired, Fault::Silent];
            let events = (0..undisturbed.events)
                .flat_map(|n| of_event.map(|fault| Planned { at: At::Event(n), fault }));
            single.extend(more.chain(leases).chain(events));
        }
        let pairs = single.iter().enumerate().flat_map(|(n, one)| {
            single[n + 1..].iter().filter(|two| two.at != one.at).map(|two| vec![*one, *two])
        });
        pairs.map(|faults| Plan { faults, ..Plan::undisturbed(scenario.clone(), 0) }).collect()
    }

    /// A plan by chance: a story, a weather, a replica that is cut off, and clocks that may be wrong.
    pub fn by_chance(seed: u64) -> Plan {
        let stories = scenario::all();
        let one = usize::try_from(dice(seed, 3, 1).roll() % stories.len() as u64).unwrap_or(0);
        let scenario = stories.into_iter().nth(one).unwrap_or_else(scenario::small);
        Self::by_chance_of(scenario, seed)
    }

    /// The same for a story.
    pub fn by_chance_of(scenario: Scenario, seed: u64) -> Plan {
        let mut dice = dice(seed, 3, 0);
        let weather = Weather {
            requests: [0, 20, 50, 150][usize::try_from(dice.roll() % 4).unwrap_or(0)],
            events: [0, 20, 100, 300][usize::try_from(dice.roll() % 4).unwrap_or(0)],
            kills: u32::try_from(dice.roll() % 4).unwrap_or(0),
            until: Duration::from_secs(60 + dice.roll() % 120),
        };
        let mut replicas = vec![ReplicaSettings::default(); scenario.replicas];
        if dice.roll().is_multiple_of(8) {
            // Up to two seconds: beyond five nothing destructive may happen, which is another story.
            let error = i64::try_from(dice.roll() % 4000).unwrap_or(0) - 2000;
            replicas[0].clock_error = SignedDuration::from_millis(error);
        }
        let mut faults = Vec::new();
        match dice.roll() % 8 {
            // Cut off for seconds to minutes, at a write or a renewal of the lease.
            0 | 1 => {
                let by = dice.between(Duration::from_secs(2), Duration::from_mins(3));
                let at = if dice.roll().is_multiple_of(2) { At::Write } else { At::Lease };
                let fault = if dice.roll().is_multiple_of(3) { Fault::Away(by) } else { Fault::CutOff(by) };
                faults.push(Planned { at: at(dice.roll() % 12), fault });
            }
            // Killed between two reads.
            2 | 3 => faults.push(Planned { at: At::Read(dice.roll() % 60), fault: Fault::KilledAfter }),
            _ => {}
        }
        Plan { weather: Some(weather), replicas, faults, ..Plan::undisturbed(scenario, seed) }
    }

    /// Judges plans on some threads, and answers the failures, the first few of them made small. `judge` is [`Self::judge`] or
    /// [`Self::judge_twice`].
    pub fn run_all(
        &self,
        plans: &[Plan],
        threads: usize,
        judge: Judge,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<Vec<Failure>> {
        let next = AtomicUsize::new(0);
        let failures = Mutex::new(Vec::new());
        let work = || -> anyhow::Result<()> {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(plan) = plans.get(n) else { return Ok(()) };
                let (wrong, outcome) = judge(self, plan)?;
                progress(n);
                if !wrong.is_empty() {
                    failures.lock().unwrap_or_else(PoisonError::into_inner).push((n, plan, wrong, outcome));
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| anyhow::bail!("a run panicked")))
        })?;
        let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        failures.sort_by_key(|(n, ..)| *n);
        failures
            .into_iter()
            .enumerate()
            .map(|(n, (_, plan, wrong, outcome))| {
                if n < 3 {
                    self.smallest(plan, wrong, &outcome)
                } else {
                    Ok(Failure::of(plan, wrong, &outcome))
                }
            })
            .collect()
    }

    /// Leaves out of a failure every fault that it does not need.
    fn smallest(&self, plan: &Plan, wrong: Vec<String>, outcome: &Outcome) -> anyhow::Result<Failure> {
        let mut best = Plan { faults: outcome.fired.clone(), weather: None, ..plan.clone() };
        let (mut best_wrong, mut best_outcome) = self.judge(&best)?;
        if best_wrong.is_empty() {
            // It needs more than its faults, such as the length of the run.
            return Ok(Failure::of(plan, wrong, outcome));
        }
        let mut n = 0;
        while n < best.faults.len() {
            let mut fewer = best.clone();
            fewer.faults.remove(n);
            let (wrong, outcome) = self.judge(&fewer)?;
            if wrong.is_empty() {
                n += 1;
            } else {
                (best, best_wrong, best_outcome) = (fewer, wrong, outcome);
            }
        }
        Ok(Failure::of(&best, best_wrong, &best_outcome))
    }
}
