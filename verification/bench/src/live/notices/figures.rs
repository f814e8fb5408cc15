//! What one program has shown, as figures and side by side.

use std::collections::HashMap;
use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::fleet::{announced_name, other_name};
use super::kept::End;
use super::measured::Measured;
use super::slack::Posted;
use crate::live::seconds;
use crate::stats::{count, mib, percentile};

/// Everything about one program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ProgramFigures {
    /// Whose.
    pub(super) subject: &'static str,
    /// What is compared, in this order.
    pub(super) figures: Vec<Figure>,
    /// Messages that came in each whole minute.
    pub(super) per_minute: Vec<usize>,
    /// Requests of each kind.
    pub(super) requests: Vec<(String, usize)>,
    /// Resident memory in MiB, every five seconds.
    pub(super) memory: Vec<f64>,
    /// Its ends, after each of which it was started again.
    pub(super) ends: Vec<End>,
    /// Where and why the first line of the audit log is that could not be read.
    pub(super) unreadable: Option<String>,
}

/// One figure; none where there is nothing to measure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// What it says, with its unit.
    pub(super) what: &'static str,
    /// The value.
    pub(super) value: Option<f64>,
}

impl ProgramFigures {
    /// The figures of what was measured so far.
    pub(super) fn of(measured: &Measured) -> Self {
        let Measured { subject, fleet, begins, looks, ends, .. } = measured;
        let (seen, posted, begins) = (&measured.witness.seen, measured.posted(), *begins);
        let expected = |n| fleet.due(n) - measured.lead;
        let notified = first_notified(&posted);
        let notified_at = |n: usize| notified.get(&n).map(|(at, _)| *at);
        let since = |from: Timestamp, to: Timestamp| seconds(from, to);
        let announced = 0..fleet.namespaces;
        let reactions: Vec<f64> =
            announced.clone().filter_map(|n| Some(since(expected(n), notified_at(n)?))).collect();
        let given = |n: usize| seen.given.get(&announced_name(n));
        let after_given: Vec<f64> =
            announced.clone().filter_map(|n| Some(since(given(n)?.at, notified_at(n)?))).collect();
        let after_record: Vec<f64> =
            announced.clone().filter_map(|n| Some(since(given(n)?.recorded, notified_at(n)?))).collect();
        let deleted = |name: String, due| seen.deleted.get(&name).map(|at| since(due, *at));
        let late: Vec<f64> = announced.filter_map(|n| deleted(announced_name(n), fleet.due(n))).collect();
        let late_others: Vec<f64> =
            (0..fleet.others).filter_map(|n| deleted(other_name(n), fleet.other_due(n))).collect();
        let ended = looks.last().map_or(begins, |look| look.at);
        let per_minute = per_minute(&posted, begins);
        let mut figures = Vec::new();
        let mut add = |what, value| figures.push(Figure { what, value });
        let messages = count(posted.messages.len());
        add("namespaces of which the owner was notified", Some(count(notified.len())));
        add("notified more than once", Some(count(notified.values().filter(|one| one.1 > 1).count())));
        add("messages", Some(messages));
        add("messages that the channel refused", Some(count(posted.refused)));
        let minutes: Vec<f64> = per_minute.iter().copied().map(count).collect();
        add("messages in a minute, least", percentile(&minutes, 0.0));
        add("messages in a minute, median", percentile(&minutes, 50.0));
        add("messages in a minute, most", percentile(&minutes, 100.0));
        add("reaction, from when it was expected to its arrival, p50, s", percentile(&reactions, 50.0));
        add("reaction, p99, s", percentile(&reactions, 99.0));
        add(
            "from `givenAt` (a whole second, rounded up) to its arrival, p50, s",
            percentile(&after_given, 50.0),
        );
        add(
            "from `givenAt` (a whole second, rounded up) to its arrival, p99, s",
            percentile(&after_given, 99.0),
        );
        add("from its record to its arrival, p50, s", percentile(&after_record, 50.0));
        add("from its record to its arrival, p99, s", percentile(&after_record, 99.0));
        add("deleted with a message", Some(count(late.len())));
        add("of these, lateness p50, s", percentile(&late, 50.0));
        add("of these, lateness p99, s", percentile(&late, 99.0));
        add("deleted without a message (other manager)", Some(count(late_others.len())));
        add("of these, early", Some(count(late_others.iter().filter(|late| **late < 0.0).count())));
        add("of these, lateness p50 (others), s", percentile(&late_others, 50.0));
        add("of these, lateness p99 (others), s", percentile(&late_others, 99.0));
        let time = since(begins, ended);
        let requests = count(seen.requests.values().sum());
        add("seconds until everything was done", Some(time));
        add("requests", Some(requests));
        add("requests a minute", Some(requests * 60.0 / time));
        add("requests for each deletion", Some(requests / count(seen.deleted.len().max(1))));
        let memory: Vec<f64> = looks.iter().map(|look| mib(look.program.rss)).collect();
        add("resident memory at the start, MiB", memory.first().copied());
        add("resident memory in the middle, MiB", memory.get(memory.len() / 2).copied());
        add("resident memory at the end, MiB", memory.last().copied());
        add("resident memory, most of the samples, MiB", percentile(&memory, 100.0));
        add("peak since its start, MiB", looks.last().map(|look| mib(look.program.peak)));
        let both = looks.first().zip(looks.last());
        add("processor time, s", both.map(|(first, last)| last.program.cpu - first.program.cpu));
        add("times that it ended and was started again", Some(count(ends.len())));
        add("lines of the audit log that could not be read", Some(count(seen.unreadable)));
        add(
            "resident memory of the benchmark itself at the start, MiB",
            looks.first().map(|look| mib(look.own)),
        );
        add(
            "resident memory of the benchmark itself at the end, MiB",
            looks.last().map(|look| mib(look.own)),
        );
        let mut requests: Vec<(String, usize)> = seen.requests.clone().into_iter().collect();
        requests.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let (ends, unreadable) = (ends.clone(), seen.first_unreadable.clone());
        Self { subject, figures, per_minute, requests, memory, ends, unreadable }
    }
}

/// When the owner of each namespace was first notified, and how often that was, by its number.
fn first_notified(posted: &Posted) -> HashMap<usize, (Timestamp, usize)> {
    let mut notified = HashMap::new();
    for message in &posted.messages {
        for n in &message.about {
            notified.entry(*n).or_insert((message.at, 0)).1 += 1;
        }
    }
    notified
}

/// How many messages came in each whole minute until the last one. One that comes in the last second of a minute ends it.
fn per_minute(posted: &Posted, begins: Timestamp) -> Vec<usize> {
    let minute = |at: Timestamp| usize::try_from(at.duration_since(begins).as_secs().div_euclid(60)).ok();
    let ends = posted.messages.last().map_or(begins, |last| last.at + SignedDuration::from_secs(1));
    let mut minutes = vec![0; minute(ends).unwrap_or(0)];
    for at in posted.messages.iter().filter_map(|message| minute(message.at)) {
        if let Some(minute) = minutes.get_mut(at) {
            *minute += 1;
        }
    }
    minutes
}

/// The figures of all programs side by side, and of two the second by the first.
pub(super) fn table(outcomes: &[ProgramFigures]) -> String {
    let mut text = String::from("|");
    let Some(first) = outcomes.first() else { return String::new() };
    for outcome in outcomes {
        let _ = write!(text, " | {}", outcome.subject);
    }
    let both = outcomes.len() == 2;
    text.push_str(if both { " | by Coppice's |\n| ---" } else { " |\n| ---" });
    text.push_str(&" | ---:".repeat(outcomes.len() + usize::from(both)));
    text.push_str(" |\n");
    for (row, figure) in first.figures.iter().enumerate() {
        let values: Vec<Option<f64>> =
            outcomes.iter().map(|outcome| outcome.figures.get(row).and_then(|figure| figure.value)).collect();
        let _ = write!(text, "| {}", figure.what);
        for value in &values {
            let _ = write!(text, " | {}", value.map(shown).unwrap_or_default());
        }
        if let [ours, theirs] = *values {
            let ratio = ours.zip(theirs).filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0);
            let ratio = ratio.map(|(ours, theirs)| format!("{:.1}", theirs / ours));
            let _ = write!(text, " | {}", ratio.unwrap_or_default());
        }
        text.push_str(" |\n");
    }
    for outcome in outcomes {
        let kinds: Vec<String> = outcome.requests.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let _ = writeln!(text, "\nRequests of {}: {}.", outcome.subject, kinds.join(", "));
        let _ = writeln!(text, "Messages in each minute: {:?}.", outcome.per_minute);
        for End { at, how } in &outcome.ends {
            let _ = writeln!(text, "\nAt {at} {} ended: {how}", outcome.subject);
        }
        if let Some(why) = &outcome.unreadable {
            let _ = writeln!(text, "\nThe first line that could not be read: {why}");
        }
    }
    text
}

/// Counts without a fraction, anything small with two digits.
fn shown(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::super::slack::Message;
    use super::*;

    fn posted(messages: &[(i64, &[usize])]) -> Posted {
        let message = |(at, about): &(i64, &[usize])| Message {
            at: Timestamp::from_second(*at).unwrap(),
            about: about.to_vec(),
        };
        Posted { messages: messages.iter().map(message).collect(), refused: 0 }
    }

    #[test]
    fn a_message_tells_of_every_namespace_that_it_names() {
        let notified = first_notified(&posted(&[(7, &[1, 2]), (9, &[2]), (9, &[])]));
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(notified, HashMap::from([(1, (at(7), 1)), (2, (at(7), 2))]));
    }

    #[test]
    fn only_whole_minutes_are_counted() {
        let posted = posted(&[9, 10, 69, 70, 129, 150].map(|at| (at, &[][..])));
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(per_minute(&posted, at(10)), [2, 2]);
    }

    #[test]
    fn figures_stand_side_by_side_with_their_ratio() {
        let outcome = |subject, value| ProgramFigures {
            subject,
            figures: vec![Figure { what: "requests", value: Some(value) }, Figure { what: "x", value: None }],
            per_minute: vec![1],
            requests: vec![("list namespaces".to_owned(), 3)],
            memory: Vec::new(),
            ends: vec![End { at: Timestamp::UNIX_EPOCH, how: "exit status: 1".to_owned() }],
            unreadable: None,
        };
        let text = table(&[outcome("Coppice", 2.0), outcome("the peer", 5.0)]);
        assert!(text.contains("| requests | 2 | 5 | 2.5 |\n| x |  |  |  |\n"), "{text}");
        assert!(text.contains("3 list namespaces"), "{text}");
        assert!(text.contains("At 1970-01-01T00:00:00Z the peer ended: exit status: 1\n"), "{text}");
    }
}
