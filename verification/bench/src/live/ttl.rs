//! How late deletions are that depend on time alone, and whether any is early.

use std::collections::HashMap;
use std::time::Duration;

use coppice_plane::{AuditEvent, OPERATOR};
use coppice_tests::scale::objects::namespace_name;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{Programs, Running, Sizes, Testbed, audit, now, progress, seconds};
use crate::report::{Goal, Part, ReportWriter, Subject};
use crate::stats::{count, percentile};

/// One is due after so many milliseconds: 50 a second.
const APART: i64 = 20;
/// An operator has so long for its start, and for the first look at a manager; if that was not enough, so long.
const START: Duration = Duration::from_secs(15);
const FIRST_RECONCILE: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(10)];
/// Between the last of those that are due one after the other and those that are due together.
const GAP: SignedDuration = SignedDuration::from_secs(10);
/// The share of those that are due one after the other that the peer has to do: it needs no less of them to be seen.
const PEER_SHARE: usize = 10;
/// After the last date an operator has so long. What is left then counts with the lateness that it has by then.
const DRAIN: Duration = Duration::from_mins(1);
/// Between two looks at the audit log.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The name of the part.
const TTL: &str = "ttl";

/// What is due when.
#[derive(Clone, Copy, Debug)]
struct DueDates {
    /// One after the other, from the first date on.
    row: usize,
    /// Together, afterwards.
    simultaneous: usize,
}

impl DueDates {
    const fn all(self) -> usize {
        self.row + self.simultaneous
    }

    /// The date of the n-th namespace.
    fn of(self, first: Timestamp, n: usize) -> Timestamp {
        let place = i64::try_from(n.min(self.row)).unwrap_or(i64::MAX);
        let date = first + SignedDuration::from_millis(APART.saturating_mul(place));
        if n < self.row { date } else { date + GAP }
    }
}

pub(super) async fn run(programs: &Programs, sizes: &Sizes, writer: &mut ReportWriter) -> anyhow::Result<()> {
    let due = sizes.due;
    writer.begin(Part {
        name: TTL,
        title: "Accuracy of dates",
        method: format!(
            "{due} namespaces whose manager deletes them at a date (`ttl.until`), 50 a second (the peer: {} of them), and ten \
             seconds after the last of them {due} more, all at the same instant. Lateness is from the date to the arrival of the \
             DELETE in the audit log; what is not deleted {} s after the last date counts with the lateness that it has by then. \
             Operators start in time to have looked at every manager before the first date.",
            due / PEER_SHARE,
            DRAIN.as_secs(),
        ),
        ..Part::default()
    });
    progress("ttl: starting a control plane ...");
    let testbed = Testbed::start().await?;
    testbed.keep(|event| audit::deletes(event) || conflicts(event));
    for &subject in programs.unstripped() {
        let row = if subject == Subject::Coppice { due } else { due / PEER_SHARE };
        match measure(&testbed, programs, DueDates { row, simultaneous: due }, subject).await {
            Ok(found) => report(writer.part(TTL), subject, &found, row),
            Err(error) => writer.part(TTL).fails(&format!("{}: {error:#}", subject.label())),
        }
        writer.save()?;
    }
    Ok(())
}

/// What one operator has shown.
#[derive(Clone, Debug, Default)]
struct Found {
    /// How late each deletion was, in milliseconds.
    late: Vec<f64>,
    /// Which of them had not come when the time was over.
    missing: Vec<bool>,
    /// Writes that the API server refused since somebody had been faster.
    conflicts: usize,
}

fn conflicts(event: &AuditEvent) -> bool {
    event.user == OPERATOR && event.is_write() && event.code == Some(409)
}

fn report(part: &mut Part, subject: Subject, found: &Found, row: usize) {
    let late = found.late.as_slice();
    for (how, late) in [("50 a second", &late[..row]), ("all at once", &late[row..])] {
        let at = |percent| percentile(late, percent).unwrap_or(f64::NAN);
        let early = count(late.iter().filter(|late| **late < 0.0).count());
        part.add(&format!("{how}: early"), "", subject, Some(Goal::NeverAbove(0.0)), early);
        part.add(&format!("{how}: p50 lateness"), "ms", subject, None, at(50.0));
        part.add(&format!("{how}: p99 lateness"), "ms", subject, Some(Goal::AtMost(250.0)), at(99.0));
        part.add(&format!("{how}: largest lateness"), "ms", subject, None, at(100.0));
        part.sample(&format!("lateness {how}"), "ms", subject, late);
    }
    let missing = |missing: &[bool]| count(missing.iter().filter(|missing| **missing).count());
    let (in_row, simultaneous) = found.missing.split_at(row);
    for (how, missing) in [("50 a second", missing(in_row)), ("all at once", missing(simultaneous))] {
        part.add(&format!("{how}: not deleted in time"), "", subject, Some(Goal::NeverAbove(0.0)), missing);
    }
    let done = count(simultaneous.len()) - missing(simultaneous);
    let rate = done * 1_000.0 / percentile(&late[row..], 100.0).unwrap_or(f64::NAN);
    part.add("all at once: deletions a second", "", subject, None, rate);
    let each = count(found.conflicts) / count(found.missing.iter().filter(|missing| !**missing).count());
    part.add("conflicts a deletion", "", subject, None, each);
}

async fn measure(
    testbed: &Testbed,
    programs: &Programs,
    dates: DueDates,
    subject: Subject,
) -> anyhow::Result<Found> {
    for look in FIRST_RECONCILE {
        if let Some(first) = initial_reconcile(testbed, programs, dates, subject, look).await? {
            return lateness(testbed, dates, first);
        }
        progress("ttl: its first looks took too long; once more with more time ...");
    }
    anyhow::bail!("it was not done with its first looks before the first date")
}

/// Seeds everything, lets the operator do its work and ends it; returns the first date, or nothing if it was not done with
/// its first looks by then.
async fn initial_reconcile(
    testbed: &Testbed,
    programs: &Programs,
    dates: DueDates,
    subject: Subject,
    look: Duration,
) -> anyhow::Result<Option<Timestamp>> {
    let all = dates.all();
    progress(&format!("ttl: seeding {all} namespaces for {} ...", subject.label()));
    let before = now();
    testbed.seed((0..all).map(|n| testbed.objects.namespace(n))).await?;
    // Managers are as many, and take as long.
    let seeding = now().duration_since(before) * 3 / 2;
    let ahead = START + look * u32::try_from(all)?;
    let first = now() + seeding + SignedDuration::try_from(ahead)?;
    let first = Timestamp::from_second(first.as_second())?;
    let manager = |n: usize| {
        let until = dates.of(first, n).to_string();
        let policy = json!({"name": "end", "when": {"ttl": {"until": until}}, "then": {"delete": {}}});
        testbed.manager(n, json!({"policies": [policy]}))
    };
    testbed.seed((0..all).map(manager)).await?;
    testbed.skip_existing()?;
    progress(&format!("ttl: the first looks of {} ...", subject.label()));
    let mut operator = Running::spawn(testbed, programs, subject)?;
    operator.wait_until_reconciled(all, first).await?;
    if now() >= first {
        operator.stop().await?;
        return Ok(None);
    }
    progress(&format!(
        "ttl: {} deletes {} one after the other, {} together ...",
        subject.label(),
        dates.row,
        dates.simultaneous
    ));
    let last = dates.of(first, all) + SignedDuration::try_from(DRAIN)?;
    testbed
        .until_every(POLL_INTERVAL, "every namespace is deleted", |events| {
            let deleted = events.iter().filter(|e| audit::deletes(e)).count();
            (deleted >= all || now() >= last).then_some(())
        })
        .await?;
    operator.stop().await?;
    Ok(Some(first))
}

fn lateness(testbed: &Testbed, dates: DueDates, first: Timestamp) -> anyhow::Result<Found> {
    let ended = now();
    let (arrived, conflicts): (HashMap<String, Timestamp>, usize) = testbed.audit(|events| {
        let deleted = events.iter().filter(|e| audit::deletes(e)).map(|e| (e.name.clone(), e.received));
        (deleted.collect(), events.iter().filter(|e| conflicts(e)).count())
    })?;
    anyhow::ensure!(!arrived.is_empty(), "nothing was deleted");
    let all = 0..dates.all();
    let at = |n| arrived.get(&namespace_name(n));
    let late = |n| seconds(dates.of(first, n), *at(n).unwrap_or(&ended)) * 1_000.0;
    let missing = all.clone().map(|n| at(n).is_none()).collect();
    Ok(Found { late: all.map(late).collect(), missing, conflicts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_in_a_row_and_then_together() {
        let dates = DueDates { row: 3, simultaneous: 2 };
        let at: Vec<i64> =
            (0..dates.all()).map(|n| dates.of(Timestamp::UNIX_EPOCH, n).as_millisecond()).collect();
        assert_eq!(at, [0, 20, 40, 10_060, 10_060]);
    }

    #[test]
    fn lateness_is_reported_for_each_kind() {
        let mut part = Part::default();
        let found = Found {
            late: vec![1.0, -1.0, 100.0, 500.0],
            missing: vec![false, false, false, true],
            conflicts: 6,
        };
        report(&mut part, Subject::Coppice, &found, 2);
        let value = |what| part.figure(what, Subject::Coppice).map(|f| f.values[0]);
        assert_eq!(value("50 a second: early"), Some(1.0));
        assert_eq!(value("all at once: early"), Some(0.0));
        assert_eq!(value("all at once: p99 lateness"), Some(500.0));
        assert_eq!(value("all at once: deletions a second"), Some(2.0));
        assert_eq!(value("all at once: not deleted in time"), Some(1.0));
        assert_eq!(value("50 a second: not deleted in time"), Some(0.0));
        assert_eq!(value("conflicts a deletion"), Some(2.0));
    }
}
