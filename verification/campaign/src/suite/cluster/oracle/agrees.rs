//! Whether the record of each namespace says, when all is quiet, what follows from the namespace, its cluster managers, its pods and what
//! its users ask for: judged more simply than the operator does.

use std::time::Duration;

use coppice_sim::fault::{Fault, FaultTarget};
use coppice_sim::run::RunRecord;
use coppice_sim::scenario::ReadAnswer;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::governed::{annotation, governing};
use super::rule::AGREES;
use super::superseded::{follows, is_ready};
use crate::oracle::notice::span;
use crate::oracle::{Findings, History, instant};

/// What has just changed may not be written yet.
const RECENT: SignedDuration = SignedDuration::from_secs(60);
/// A replica whose clock is wrong by more decides nothing.
const WRONG_CLOCK: SignedDuration = SignedDuration::from_secs(5);
/// An end is up to a second late, since the times of creation are whole seconds.
const CUT: SignedDuration = SignedDuration::from_secs(1);

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let clocks = record.replicas.iter().map(|replica| replica.clock_error_at(record.lasted));
    if clocks.into_iter().any(|error| error.abs() > WRONG_CLOCK) {
        return;
    }
    let end = EndState::at_the_end(record, history);
    for (place, said) in end.records() {
        let differs = match history.at("namespaces", "", &place, end.revision) {
            None => Some("there is no such namespace".to_owned()),
            Some(namespace) => end.differs(&place, namespace, said),
        };
        if let Some(why) = differs {
            found.add(AGREES, &format!("the record of {place} is wrong: {why}"));
        }
    }
    for namespace in history.list("namespaces", "", end.revision) {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        let is_there = history.at("managednamespaces", name, "coppice", end.revision).is_some();
        let goes = namespace["metadata"]["deletionTimestamp"].is_string();
        if !is_there && !goes && governing(history, name, end.revision).is_some() {
            found.add(AGREES, &format!("{name} is governed and has no record"));
        }
    }
}

/// What there is at the end.
struct EndState<'a> {
    record: &'a RunRecord<'a>,
    history: &'a History,
    revision: u64,
    now: Timestamp,
}

impl<'a> EndState<'a> {
    fn at_the_end(record: &'a RunRecord<'a>, history: &'a History) -> Self {
        let now = record.began + SignedDuration::try_from(record.lasted).unwrap_or_default();
        Self { record, history, revision: history.revision_at(record.lasted), now }
    }

    /// The records that there are, by namespace.
    fn records(&self) -> impl Iterator<Item = (String, &'a Value)> {
        let all = self.history.all("managednamespaces");
        let last = all.filter_map(|versions| versions.last()?.1.as_deref());
        last.map(|record| (record["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(), record))
    }

    /// In which way a record differs from what there is.
    fn differs(&self, name: &str, namespace: &Value, said: &Value) -> Option<String> {
        let status = &said["status"];
        if namespace["metadata"]["deletionTimestamp"].is_string() {
            return None;
        }
        let Some(manager) = governing(self.history, name, self.revision) else {
            let left = ["manager", "phase", "expiresAt", "notice", "intent"].into_iter();
            let left: Vec<&str> = left.filter(|field| !status[field].is_null()).collect();
            return (!left.is_empty()).then(|| format!("nobody governs it, and there is {left:?}"));
        };
        let wanted =
            [&manager["metadata"]["name"], &manager["metadata"]["uid"], &namespace["metadata"]["uid"]];
        let is = [&status["manager"]["name"], &status["manager"]["uid"], &status["namespaceUid"]];
        if wanted != is {
            return Some(format!("it says {is:?} instead of {wanted:?}"));
        }
        let expires = expiry(manager, namespace, &said["spec"]);
        if instant(&status["expiresAt"]) != expires {
            return Some(format!("it expires at {}, not at {expires:?}", status["expiresAt"]));
        }
        let phase = self.phase(manager, namespace, expires)?;
        (status["phase"] != phase).then(|| format!("its phase is {}, not {phase}", status["phase"]))
    }

    /// The phase of a namespace; none if it may have changed a moment ago, or not be known.
    fn phase(&self, manager: &Value, namespace: &Value, expires: Option<Timestamp>) -> Option<&'static str> {
        let left = expires.map_or(SignedDuration::MAX, |at| at.duration_since(self.now));
        if left.abs() <= RECENT {
            return None;
        }
        if left.is_negative() {
            return Some("Stale");
        }
        if self.is_superseded(manager, namespace) {
            return Some("Superseded");
        }
        let health = &manager["spec"]["health"];
        if health.is_null() {
            return Some("Ok");
        }
        let cannot_be_read = self.record.read_fault.is_some_and(|fault| {
            fault.answer == ReadAnswer::Unavailable && self.record.lasted < fault.during.1
        });
        if cannot_be_read {
            return Some("Unknown");
        }
        // Workloads are listed again so rarely that a lost event of a pod is not known before the run ends.
        let lost = |planned: &coppice_sim::fault::PlannedFault| {
            matches!(planned.at, FaultTarget::Event(_)) && planned.fault == Fault::Dropped
        };
        if self.record.fired.iter().any(lost) {
            return None;
        }
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        let period = |field| span(&health[field]);
        let lasts = |periods: SignedDuration, fails: bool| {
            let long = Duration::try_from(periods + RECENT).unwrap_or_default();
            let from = self.record.lasted.saturating_sub(long);
            let mut all = self.history.revisions_between(from, self.record.lasted);
            all.all(|revision| self.fails(name, revision) == fails)
        };
        let failed = lasts(period("settlingPeriod") + period("gracePeriod"), true);
        let well = lasts(period("recoveryPeriod"), false);
        failed.then_some("Failed").or(well.then_some("Ok"))
    }

    /// Whether something fails: in these scenarios a pod that no controller owns.
    fn fails(&self, namespace: &str, revision: u64) -> bool {
        self.history
            .list("pods", namespace, revision)
            .iter()
            .any(|pod| pod["status"]["phase"] == "Failed" && pod["metadata"]["ownerReferences"].is_null())
    }

    /// Whether a later namespace stands that has taken the place of one: all of its pods are ready, and none has taken its place.
    fn is_superseded(&self, manager: &Value, older: &Value) -> bool {
        if manager["spec"]["supersede"].is_null() {
            return false;
        }
        self.history.list("namespaces", "", self.revision).into_iter().any(|later| {
            let name = later["metadata"]["name"].as_str().unwrap_or_default();
            let pods = self.history.list("pods", name, self.revision);
            follows(later, older)
                && later["metadata"]["deletionTimestamp"].is_null()
                && !pods.is_empty()
                && pods.iter().all(|pod| is_ready(pod))
                && !self.is_superseded(manager, later)
        })
    }
}

/// When a namespace expires: after its time to live, or later if its users ask for that, within the limits of its manager.
fn expiry(manager: &Value, namespace: &Value, user: &Value) -> Option<Timestamp> {
    let spec = &manager["spec"];
    let after = Some(&spec["ttl"]["after"]).filter(|after| after.is_string()).map(span)?;
    let created = instant(&namespace["metadata"]["creationTimestamp"])?;
    let max = Some(&spec["limits"]["maxTTL"]).filter(|max| max.is_string()).map(|max| span(max).max(after));
    let limited = |ttl: SignedDuration| max.map_or(ttl, |max| ttl.min(max));
    let own = spec["ttl"]["fromAnnotation"].as_str().map(|key| annotation(namespace, key));
    let ttl = own.filter(|own| own.is_string()).map_or(after, |own| limited(span(own)));
    let end = |ttl: SignedDuration| created + ttl + CUT;
    let extended = instant(&user["extendUntil"]["at"]).map(|at| max.map_or(at, |max| at.min(end(max))));
    Some(extended.map_or(end(ttl), |extended| extended.max(end(ttl))))
}
