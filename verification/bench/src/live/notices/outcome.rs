//! What one program has shown, as figures and side by side.

use std::collections::HashMap;
use std::fmt::Write as _;

use coppice_tests::scale::process::Sample;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::fleet::{Fleet, announced_name, other_name};
use super::number_of;
use super::slack::{Posted, names};
use super::witness::Seen;
use crate::live::seconds;
use crate::stats::{count, percentile};

/// Everything about one program.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Whose.
    pub subject: &'static str,
    /// What is compared, in this order.
    pub figures: Vec<Figure>,
    /// Messages that came in each whole minute.
    pub per_minute: Vec<usize>,
    /// Requests of each kind.
    pub requests: Vec<(String, usize)>,
    /// Resident memory in MiB, every five seconds.
    pub memory: Vec<f64>,
}

/// One figure; none where there is nothing to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What it says, with its unit.
    pub what: &'static str,
    /// The value.
    pub value: Option<f64>,
}

impl Outcome {
    /// The figures of a program that owed the n-th message from that instant on.
    pub(super) fn of(
        subject: &'static str,
        fleet: &Fleet,
        owed: impl Fn(usize) -> Timestamp,
        begins: Timestamp,
        posted: &Posted,
        seen: &Seen,
        watched: &[(Timestamp, Sample)],
    ) -> Self {
        let told = first_told(posted);
        let told_at = |n: usize| told.get(&n).map(|(at, _)| *at);
        let since = |from: Timestamp, to: Timestamp| seconds(from, to);
        let announced = 0..fleet.namespaces;
        let reactions: Vec<f64> =
            announced.clone().filter_map(|n| Some(since(owed(n), told_at(n)?))).collect();
        let given = |n: usize| seen.given.get(&announced_name(n));
        let after_given: Vec<f64> =
            announced.clone().filter_map(|n| Some(since(given(n)?.at, told_at(n)?))).collect();
        let after_record: Vec<f64> =
            announced.clone().filter_map(|n| Some(since(given(n)?.recorded, told_at(n)?))).collect();
        let deleted = |name: String, due| seen.deleted.get(&name).map(|at| since(due, *at));
        let late: Vec<f64> = announced.filter_map(|n| deleted(announced_name(n), fleet.due(n))).collect();
        let late_others: Vec<f64> =
            (0..fleet.others).filter_map(|n| deleted(other_name(n), fleet.other_due(n))).collect();
        let ended = watched.last().map_or(begins, |(at, _)| *at);
        let per_minute = per_minute(posted, begins);
        let mut figures = Vec::new();
        let mut add = |what, value| figures.push(Figure { what, value });
        let messages = count(posted.messages.len());
        add("namespaces of which the owner was told", Some(count(told.len())));
        add("told more than once", Some(count(told.values().filter(|(_, times)| *times > 1).count())));
        add("messages", Some(messages));
        add("messages that the channel refused", Some(count(posted.refused)));
        let minutes: Vec<f64> = per_minute.iter().copied().map(count).collect();
        add("messages in a minute, least", percentile(&minutes, 0.0));
        add("messages in a minute, median", percentile(&minutes, 50.0));
        add("messages in a minute, most", percentile(&minutes, 100.0));
        add("reaction, from when it was owed to its arrival, p50, s", percentile(&reactions, 50.0));
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
        let memory: Vec<f64> = watched.iter().map(|(_, sample)| mib(sample.rss)).collect();
        add("resident memory at the start, MiB", memory.first().copied());
        add("resident memory in the middle, MiB", memory.get(memory.len() / 2).copied());
        add("resident memory at the end, MiB", memory.last().copied());
        add("resident memory, most of the samples, MiB", percentile(&memory, 100.0));
        add("peak since its start, MiB", watched.last().map(|(_, sample)| mib(sample.peak)));
        let cpu = |(first, last): (&(Timestamp, Sample), &(Timestamp, Sample))| last.1.cpu - first.1.cpu;
        add("processor time, s", watched.first().zip(watched.last()).map(cpu));
        let mut requests: Vec<(String, usize)> = seen.requests.clone().into_iter().collect();
        requests.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        Self { subject, figures, per_minute, requests, memory }
    }
}

#[expect(clippy::cast_precision_loss, reason = "memory of one process in KiB is far below 2^52")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// When the owner of each namespace was first told, and how often that was, by its number.
fn first_told(posted: &Posted) -> HashMap<usize, (Timestamp, usize)> {
    let mut told = HashMap::new();
    for message in &posted.messages {
        let mut about: Vec<usize> = names(&message.text).filter_map(number_of).collect();
        // A message may name its namespace in several places.
        about.sort_unstable();
        about.dedup();
        for n in about {
            told.entry(n).or_insert((message.at, 0)).1 += 1;
        }
    }
    told
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
pub fn table(outcomes: &[Outcome]) -> String {
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

    fn posted(messages: &[(i64, &str)]) -> Posted {
        let message = |(at, text): &(i64, &str)| Message {
            at: Timestamp::from_second(*at).unwrap(),
            text: (*text).to_owned(),
        };
        Posted { messages: messages.iter().map(message).collect(), refused: 0 }
    }

    #[test]
    fn a_message_tells_of_every_namespace_that_it_names_once() {
        let both = format!("{} and {}: {}", announced_name(1), announced_name(2), announced_name(1));
        let told = first_told(&posted(&[(7, &both), (9, &announced_name(2)), (9, "team-000-preview-00001")]));
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(told, HashMap::from([(1, (at(7), 1)), (2, (at(7), 2))]));
    }

    #[test]
    fn only_whole_minutes_are_counted() {
        let posted = posted(&[(9, "before"), (10, "a"), (69, "b"), (70, "c"), (129, "d"), (150, "after")]);
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(per_minute(&posted, at(10)), [2, 2]);
    }

    #[test]
    fn figures_stand_side_by_side_with_their_ratio() {
        let outcome = |subject, value| Outcome {
            subject,
            figures: vec![Figure { what: "requests", value: Some(value) }, Figure { what: "x", value: None }],
            per_minute: vec![1],
            requests: vec![("list namespaces".to_owned(), 3)],
            memory: Vec::new(),
        };
        let text = table(&[outcome("Coppice", 2.0), outcome("the peer", 5.0)]);
        assert!(text.contains("| requests | 2 | 5 | 2.5 |\n| x |  |  |  |\n"), "{text}");
        assert!(text.contains("3 list namespaces"), "{text}");
    }
}
