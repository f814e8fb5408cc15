//! Many runs: every scenario with every fault at every place, and then by chance. A run that is not as it should be is made as small as
//! possible, and shown with the command that plays it again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coppice_sim::fault::{Fault, FaultTarget, PlannedFault};
use coppice_sim::scenario::Scenario;
use jiff::SignedDuration;

use crate::oracle::{EndState, STEPS};
use crate::run::{RunPlan, RunResult, run};
use crate::suite::Suite;

/// What each scenario of a suite ends like when nothing goes wrong: as it says, and in all that it does not say.
pub struct Campaign {
    suite: Suite,
    without_faults: BTreeMap<&'static str, Baseline>,
}

/// A scenario in which nothing goes wrong.
struct Baseline {
    end: EndState,
    writes: u64,
    events: u64,
    reviews: u64,
}

/// A run that was not as it should be.
#[derive(Clone, Debug)]
pub struct FailedRun {
    /// The scenario.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// The faults, as few as were found to be enough.
    pub faults: Vec<PlannedFault>,
    /// By how much the clock of the first replica was ahead.
    pub clock_error: SignedDuration,
    /// What was wrong, in sentences.
    pub wrong: Vec<String>,
    /// What happened, as a timeline.
    pub timeline: String,
}

impl FailedRun {
    /// What came of a run of a plan.
    pub fn of(plan: &RunPlan, wrong: Vec<String>, outcome: &RunResult) -> Self {
        Self {
            scenario: plan.scenario.name,
            seed: plan.seed,
            faults: outcome.fired.clone(),
            clock_error: plan.replicas.first().map_or(SignedDuration::ZERO, |first| first.clock_error),
            wrong,
            timeline: outcome.trace.timeline(false),
        }
    }

    /// Everything that is needed to understand it.
    pub fn report(&self) -> String {
        let wrong = self.wrong.join("\n  ");
        let faults: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        let option = |wanted: bool, text: String| if wanted { text } else { String::new() };
        let with_faults = option(!faults.is_empty(), format!(" --faults {:?}", faults.join(",")));
        let error = self.clock_error;
        let with_error = option(!error.is_zero(), format!(" --clock-error {}", error.as_millis()));
        format!(
            "{}, seed {}: {} faults\n  {wrong}\n\n{}\nPlay it again:\n  cargo run --profile sim -p coppice-campaign -- \
             replay {} --seed {}{with_faults}{with_error}\n",
            self.scenario,
            self.seed,
            self.faults.len(),
            self.timeline,
            self.scenario,
            self.seed,
        )
    }
}

impl Campaign {
    /// Runs every scenario that seeds choose from, and the small one, once without faults.
    pub fn prepare(suite: &Suite) -> anyhow::Result<Self> {
        Self::of(suite, (suite.scenarios)().into_iter().chain([(suite.small)()]))
    }

    /// The same for these scenarios alone.
    pub fn of(suite: &Suite, scenarios: impl IntoIterator<Item = Scenario>) -> anyhow::Result<Self> {
        let mut without_faults = BTreeMap::new();
        for scenario in scenarios {
            let (name, ends) = (scenario.name, scenario.ends.clone());
            let outcome = run(suite, &suite.without_faults(scenario, 0))?;
            let mut wrong = outcome.violations.clone();
            wrong.extend(outcome.unlike(&ends));
            let timeline = outcome.trace.timeline(false);
            anyhow::ensure!(
                wrong.is_empty(),
                "{name} goes wrong by itself: {}\n{timeline}",
                wrong.join("; ")
            );
            let RunResult { end, writes, events, asked, .. } = outcome;
            without_faults.insert(name, Baseline { end, writes, events, reviews: asked.len() as u64 });
        }
        Ok(Self { suite: *suite, without_faults })
    }

    /// What is wrong with a run of this plan.
    pub fn check(&self, plan: &RunPlan) -> anyhow::Result<(Vec<String>, RunResult)> {
        let outcome = run(&self.suite, plan)?;
        let mut wrong = outcome.violations.clone();
        // A reservation whose answer is lost is spent: where things go wrong there may be fewer steps, and what is more breaks a rule.
        let mut ends = plan.scenario.ends.clone();
        ends.retain(|line| !line.starts_with(STEPS));
        wrong.extend(outcome.unlike(&ends));
        // What a scenario leaves open may differ.
        let open = ends.iter().any(|line| line.ends_with('*'));
        if let Some(without_faults) = self.without_faults.get(plan.scenario.name).filter(|_| !open) {
            wrong.extend(without_faults.end.differences(&outcome.end));
        }
        Ok((wrong, outcome))
    }

    /// The same, and whether a second run of the plan is the same, line by line.
    pub fn check_twice(&self, plan: &RunPlan) -> anyhow::Result<(Vec<String>, RunResult)> {
        let (mut wrong, outcome) = self.check(plan)?;
        if let Some((one, two)) = outcome.trace.difference(&run(&self.suite, plan)?.trace) {
            wrong.push(format!("ONE SEED, ONE TRACE: a second run differs:\n    {one}\n    {two}"));
        }
        Ok((wrong, outcome))
    }

    /// A plan for each place of a scenario and each fault that can strike there.
    pub fn every_fault(&self, scenario: &Scenario) -> Vec<RunPlan> {
        let Some(without_faults) = self.without_faults.get(scenario.name) else { return Vec::new() };
        let writes = (0..without_faults.writes).map(FaultTarget::Write);
        let leases = (0..4).map(FaultTarget::Lease);
        let reads = (0..30).map(FaultTarget::Read);
        let events = (0..without_faults.events).map(FaultTarget::Event);
        let reviews = (0..without_faults.reviews).map(FaultTarget::Review);
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
        // In time, and later than anybody waits for it.
        let of_review = [
            Fault::Lost,
            Fault::Refused(500),
            Fault::Late(Duration::from_millis(1500)),
            Fault::Late(Duration::from_secs(3)),
            Fault::Twice,
            Fault::Off(Duration::from_mins(2)),
        ];
        // A replica that is cut off for seconds, and for minutes.
        let cut = (0..4).flat_map(|n| {
            [5, 150].map(|s| PlannedFault {
                at: FaultTarget::Lease(n),
                fault: Fault::CutOff(Duration::from_secs(s)),
            })
        });
        let both = |at: FaultTarget, faults: &[Fault]| {
            faults.iter().map(move |&fault| PlannedFault { at, fault }).collect::<Vec<_>>()
        };
        let all = writes.chain(leases).flat_map(|at| both(at, &of_write));
        let all = all.chain(reads.flat_map(|at| both(at, &of_read)));
        let all = all.chain(cut).chain(events.flat_map(|at| both(at, &of_event)));
        let all = all.chain(reviews.flat_map(|at| both(at, &of_review)));
        all.map(|planned| RunPlan { faults: vec![planned], ..self.suite.without_faults(scenario.clone(), 0) })
            .collect()
    }

    /// A plan for every two places of a scenario and all faults that can strike there: so much as can be tried of a small scenario.
    pub fn pairs(&self, scenario: &Scenario, only_writes: bool) -> Vec<RunPlan> {
        let Some(without_faults) = self.without_faults.get(scenario.name) else { return Vec::new() };
        let writes = (0..without_faults.writes).map(FaultTarget::Write);
        let of_write = [Fault::KilledBefore, Fault::KilledAfter, Fault::AnswerLost];
        let mut single: Vec<PlannedFault> =
            writes.flat_map(|at| of_write.map(|fault| PlannedFault { at, fault })).collect();
        if !only_writes {
            let late = Fault::Late(Duration::from_secs(20));
            let more =
                (0..without_faults.writes).map(|n| PlannedFault { at: FaultTarget::Write(n), fault: late });
            let leases =
                (0..4).map(|n| PlannedFault { at: FaultTarget::Lease(n), fault: Fault::KilledAfter });
            let of_event = [Fault::Dropped, Fault::Expired, Fault::Silent];
            let events = (0..without_faults.events)
                .flat_map(|n| of_event.map(|fault| PlannedFault { at: FaultTarget::Event(n), fault }));
            single.extend(more.chain(leases).chain(events));
        }
        let pairs = single.iter().enumerate().flat_map(|(n, one)| {
            single[n + 1..].iter().filter(|two| two.at != one.at).map(|two| vec![*one, *two])
        });
        pairs.map(|faults| RunPlan { faults, ..self.suite.without_faults(scenario.clone(), 0) }).collect()
    }

    /// Judges plans on some threads, and answers the failures, the first few of them made small. `check` is [`Self::check`],
    /// [`Self::check_twice`], or asks for less.
    pub fn run_all(
        &self,
        plans: &[RunPlan],
        threads: usize,
        check: impl Fn(&Self, &RunPlan) -> anyhow::Result<(Vec<String>, RunResult)> + Sync,
        progress: impl Fn(usize) + Sync,
    ) -> anyhow::Result<Vec<FailedRun>> {
        let next = AtomicUsize::new(0);
        let failures = Mutex::new(Vec::new());
        let work = || -> anyhow::Result<()> {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let Some(plan) = plans.get(n) else { return Ok(()) };
                let (wrong, outcome) = check(self, plan)?;
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
                    self.shrink(plan, wrong, &outcome, &check)
                } else {
                    Ok(FailedRun::of(plan, wrong, &outcome))
                }
            })
            .collect()
    }

    /// Leaves out of a failure every fault that it does not need.
    fn shrink(
        &self,
        plan: &RunPlan,
        wrong: Vec<String>,
        outcome: &RunResult,
        check: &impl Fn(&Self, &RunPlan) -> anyhow::Result<(Vec<String>, RunResult)>,
    ) -> anyhow::Result<FailedRun> {
        let mut best = RunPlan { faults: outcome.fired.clone(), fault_rates: None, ..plan.clone() };
        let (mut best_wrong, mut best_outcome) = check(self, &best)?;
        if best_wrong.is_empty() {
            // It needs more than its faults, such as the length of the run.
            return Ok(FailedRun::of(plan, wrong, outcome));
        }
        let mut n = 0;
        while n < best.faults.len() {
            let mut fewer = best.clone();
            fewer.faults.remove(n);
            let (wrong, outcome) = check(self, &fewer)?;
            if wrong.is_empty() {
                n += 1;
            } else {
                (best, best_wrong, best_outcome) = (fewer, wrong, outcome);
            }
        }
        Ok(FailedRun::of(&best, best_wrong, &best_outcome))
    }
}
