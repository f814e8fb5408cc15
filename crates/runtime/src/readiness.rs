//! What has to be ready before a replica is: every watch that has to have synced, for example; and what shows that it works.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The checks behind readiness and liveness. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Checks>>);

/// Why a check fails.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// What it is about has not started.
    #[error("not started yet")]
    NotStarted,
    /// It is not ready, or no longer.
    #[error("{why}")]
    NotReady {
        /// A sentence.
        why: String,
    },
    /// Nothing has been taken from a queue for too long.
    #[error("the first in the queue has waited for {} s", lag.as_secs())]
    Stuck {
        /// How long.
        lag: Duration,
    },
}

#[derive(Debug, Default)]
struct Checks {
    /// Ready, or why not.
    ready: BTreeMap<String, Result<(), CheckError>>,
    live: BTreeMap<String, Probe>,
    shutting_down: bool,
}

struct Probe(Arc<dyn Fn() -> Result<(), CheckError> + Send + Sync>);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

/// One line of `/readyz`.
#[derive(Debug, Clone)]
pub struct Check {
    readiness: Readiness,
    name: Arc<str>,
}

impl Readiness {
    /// Nothing is registered, so nothing is ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers something that has to be ready; at first it is not.
    pub fn register(&self, name: impl Into<String>) -> Check {
        let name = name.into();
        let check = Check { readiness: self.clone(), name: name.as_str().into() };
        self.checks().ready.insert(name, Err(CheckError::NotStarted));
        check
    }

    /// Removes a check: what it stands for is not needed any more.
    pub fn unregister(&self, name: &str) {
        self.checks().ready.remove(name);
    }

    /// Registers a liveness check. Every request of `/livez` calls it; it answers at once, with what is wrong if
    /// something is. Do not register what a restart does not fix.
    pub fn register_liveness(
        &self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), CheckError> + Send + Sync + 'static,
    ) {
        self.checks().live.insert(name.into(), Probe(Arc::new(probe)));
    }

    /// From now on the operator is not ready, whatever the checks report.
    pub fn shut_down(&self) {
        self.checks().shutting_down = true;
    }

    /// Whether everything is ready.
    pub fn is_ready(&self) -> bool {
        self.ready().ok
    }

    /// What is not ready, as `name: why`.
    pub fn missing(&self) -> Vec<String> {
        let checks = self.checks();
        let missing = checks.ready.iter().filter_map(|(name, state)| Some((name, state.as_ref().err()?)));
        missing.map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// What `/readyz` answers.
    pub fn ready(&self) -> CheckReport {
        self.ready_of(|_| true)
    }

    /// What `/readyz/GROUP` answers: of the checks that are called `GROUP: ...`; none if there are none.
    pub fn ready_in(&self, group: &str) -> Option<CheckReport> {
        let belongs = |name: &str| name.strip_prefix(group).is_some_and(|rest| rest.starts_with(':'));
        let known = self.checks().ready.keys().any(|name| belongs(name));
        known.then(|| self.ready_of(belongs))
    }

    fn ready_of(&self, belongs: impl Fn(&str) -> bool) -> CheckReport {
        let checks = self.checks();
        let these = checks.ready.iter().filter(|(name, _)| belongs(name));
        let mut report = CheckReport::of(these.map(|(name, state)| (name.clone(), state.clone())));
        if checks.shutting_down {
            report.fail("shutting down");
        } else if checks.ready.is_empty() {
            report.fail("not started yet");
        }
        report
    }

    /// What `/livez` answers.
    pub fn live(&self) -> CheckReport {
        // Not called under the lock: a check may take other locks, and a registration inside of one must not hang.
        let probes: Vec<_> =
            self.checks().live.iter().map(|(name, p)| (name.clone(), Arc::clone(&p.0))).collect();
        CheckReport::of(probes.into_iter().map(|(name, probe)| (name, probe())))
    }

    fn checks(&self) -> MutexGuard<'_, Checks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// It is ready.
    pub fn ready(&self) {
        self.set(Ok(()));
    }

    /// It is not ready, or no longer: why, in a sentence.
    pub fn not_ready(&self, why: &str) {
        self.set(Err(CheckError::NotReady { why: why.to_owned() }));
    }

    fn set(&self, state: Result<(), CheckError>) {
        if let Some(known) = self.readiness.checks().ready.get_mut(&*self.name) {
            *known = state;
        }
    }
}

/// What was checked, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Whether nothing is wrong.
    pub ok: bool,
    /// A line for each check that fails: `name: why`.
    pub failing: String,
    /// A line for each check.
    pub all: String,
}

impl CheckReport {
    fn of(checks: impl Iterator<Item = (String, Result<(), CheckError>)>) -> Self {
        let mut report = Self { ok: true, failing: String::new(), all: String::new() };
        for (name, state) in checks {
            match state {
                Ok(()) => {
                    let _ = writeln!(report.all, "[+] {name}: ok");
                }
                Err(why) => report.fail(&format!("{name}: {why}")),
            }
        }
        report
    }

    fn fail(&mut self, line: &str) {
        self.ok = false;
        let _ = writeln!(self.failing, "{line}");
        let _ = writeln!(self.all, "[-] {line}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CheckError, Readiness};

    /// The lines of what is not ready; nothing if all is.
    fn failing(readiness: &Readiness) -> Option<String> {
        let report = readiness.ready();
        (!report.ok).then_some(report.failing)
    }

    #[test]
    fn ready_is_when_everything_that_was_registered_says_so() {
        let readiness = Readiness::new();
        assert_eq!(failing(&readiness).as_deref(), Some("not started yet\n"));
        let pods = readiness.register("watch: pods");
        let first = readiness.register("first pass");
        first.ready();
        assert_eq!(failing(&readiness).as_deref(), Some("watch: pods: not started yet\n"));
        pods.not_ready("the API server is unreachable");
        assert_eq!(readiness.missing(), ["watch: pods: the API server is unreachable"]);
        let all = "[+] first pass: ok\n[-] watch: pods: the API server is unreachable\n";
        assert_eq!(readiness.ready().all, all);
        pods.ready();
        assert_eq!(failing(&readiness), None);
        assert!(readiness.is_ready());
        readiness.shut_down();
        assert_eq!(failing(&readiness).as_deref(), Some("shutting down\n"));
    }

    #[test]
    fn a_group_is_ready_by_its_own_checks_and_a_shutdown_ends_all() {
        let readiness = Readiness::new();
        readiness.register("watch: pods").ready();
        readiness.register("admission: certificate").not_ready("there is none yet");
        let group = |name: &str| readiness.ready_in(name).map(|report| (report.ok, report.failing));
        assert_eq!(group("watch"), Some((true, String::new())));
        assert_eq!(
            group("admission"),
            Some((false, "admission: certificate: there is none yet\n".to_owned()))
        );
        assert_eq!((group("wat"), group(""), group("watch: pods")), (None, None, None));
        readiness.shut_down();
        assert_eq!(group("watch"), Some((false, "shutting down\n".to_owned())));
    }

    #[test]
    fn alive_is_unless_a_probe_fails() {
        let readiness = Readiness::new();
        assert!(readiness.live().ok);
        readiness.register_liveness("queue", || Err(CheckError::Stuck { lag: Duration::from_mins(10) }));
        let stuck = "queue: the first in the queue has waited for 600 s\n";
        assert_eq!(readiness.live().failing, stuck);
    }
}
