//! From the success of a namespace's last pod to the DELETE of the namespace.

use coppice_plane::{AuditEvent, OPERATOR};
use coppice_tests::scale::objects::namespace_name;
use jiff::Timestamp;
use serde_json::json;

use super::{Programs, Running, Sizes, Testbed, audit, progress, seconds};
use crate::report::{Goal, Part, RatioGoal, ReportWriter, Subject};
use crate::stats::{count, percentile};

/// Pods of a namespace; all but the last have succeeded before.
const PODS: usize = 3;

/// The name of the part.
const REACTION: &str = "reaction";

pub(super) async fn run(programs: &Programs, sizes: &Sizes, writer: &mut ReportWriter) -> anyhow::Result<()> {
    writer.begin(part(sizes));
    progress("reaction: starting a control plane ...");
    let testbed = Testbed::start().await?;
    for run in 1..=sizes.runs {
        for &subject in programs.unstripped() {
            progress(&format!("reaction, run {run}: {} ...", subject.label()));
            match measure(&testbed, programs, sizes, subject).await {
                Ok(found) => report(writer.part(REACTION), subject, &found),
                Err(error) => {
                    writer.part(REACTION).fails(&format!("{}, run {run}: {error:#}", subject.label()));
                }
            }
            writer.save()?;
        }
    }
    Ok(())
}

fn part(sizes: &Sizes) -> Part {
    let (namespaces, trials) = (sizes.around, sizes.reactions);
    let mut part = Part {
        name: REACTION,
        title: "Reaction: the last pod succeeds, the namespace is deleted",
        method: format!(
            "{namespaces} namespaces with a manager that waits, and in {trials} of them {PODS} pods, of which all but the last \
             have succeeded. One after the other those last pods succeed (a PATCH of their status). Each time is taken from \
             the audit log: from the end of that PATCH to the arrival of the DELETE of the namespace. In between Coppice \
             writes its intent, reads everything again and reserves the deletion in the budget; the peer reads again, too, and has \
             neither an intent nor a stored budget. *In the API server*: the part of a reaction in which at least one request of the \
             operator was being answered; the rest is its own work, and the way between the two. etcd writes to the disk."
        ),
        bars: vec!["p50".to_owned(), "p99".to_owned()],
        ..Part::default()
    };
    for what in ["p50", "p99"] {
        part.ratio_goals.push(RatioGoal { what: what.to_owned(), peer: Subject::Peer, at_most: 1.2 });
    }
    part
}

fn report(part: &mut Part, subject: Subject, found: &Found) {
    let at = |values: &[f64], percent| percentile(values, percent).unwrap_or(f64::NAN);
    let all = found.milliseconds.as_slice();
    part.add("p50", "ms", subject, Some(Goal::AtMost(20.0)), at(all, 50.0));
    part.add("p99", "ms", subject, Some(Goal::AtMost(100.0)), at(all, 99.0));
    part.add("largest", "ms", subject, None, at(all, 100.0));
    part.add("p50 in the API server", "ms", subject, None, at(&found.answering, 50.0));
    part.add("requests before the DELETE", "", subject, None, found.requests_before);
    part.add("requests per deletion", "", subject, None, found.requests);
    part.add("deleted twice", "", subject, Some(Goal::NeverAbove(0.0)), found.doubled);
    part.sample("reaction", "ms", subject, all);
}

struct Found {
    milliseconds: Vec<f64>,
    /// Of each of these, those in which the API server was answering the operator.
    answering: Vec<f64>,
    requests_before: f64,
    requests: f64,
    doubled: f64,
}

async fn measure(
    testbed: &Testbed,
    programs: &Programs,
    sizes: &Sizes,
    subject: Subject,
) -> anyhow::Result<Found> {
    let (namespaces, trials) = (sizes.around, sizes.reactions.min(sizes.around));
    let spec = json!({"policies": [{
        "name": "passed", "when": {"podsSucceed": {"initialDelay": "0s"}}, "then": {"delete": {}},
    }]});
    // What the last subject has deleted is there again, and no status is from anybody else.
    testbed.seed((0..namespaces).map(|n| testbed.objects.namespace(n))).await?;
    let phase = |which| if which + 1 < PODS { "Succeeded" } else { "Running" };
    let pods = (0..trials).flat_map(|n| (0..PODS).map(move |which| (n, which)));
    testbed.seed(pods.map(|(n, which)| testbed.pod(n, which, phase(which)))).await?;
    testbed.seed((0..namespaces).map(|n| testbed.manager(n, spec.clone()))).await?;
    testbed.skip_existing()?;
    let mut operator = Running::spawn(testbed, programs, subject)?;
    operator.settled(namespaces).await?;
    let deleted = |events: &[AuditEvent], name: &str| {
        events.iter().filter(|e| audit::deletes(e) && e.name == name).map(|e| e.received).min()
    };
    let early = testbed.audit(|events| events.iter().any(audit::deletes))?;
    anyhow::ensure!(!early, "{} deletes a namespace whose last pod runs", subject.label());
    testbed.skip_existing()?;
    let (mut milliseconds, mut answering, mut before) = (Vec::new(), Vec::new(), 0);
    for n in 0..trials {
        let name = namespace_name(n);
        testbed.succeed(n, PODS - 1).await?;
        let times = testbed.until("the namespace is deleted", |events| {
            let succeeded = events
                .iter()
                .filter(|e| e.resource == "pods" && e.namespace == name && e.subresource == "status");
            Some((succeeded.map(|e| e.at).min()?, deleted(events, &name)?))
        });
        let (succeeded, deleted) = times.await?;
        milliseconds.push(seconds(succeeded, deleted) * 1_000.0);
        let asked = testbed.audit(|events| request_times(events, succeeded, deleted))?;
        before += asked.len();
        answering.push(covered(asked) * 1_000.0);
    }
    operator.stop().await?;
    let (all, requests) = testbed.audit(|events| {
        let ours = events.iter().filter(|e| e.user == OPERATOR && e.resource != "leases");
        (events.iter().filter(|e| audit::deletes(e)).count(), ours.filter(|e| e.verb != "watch").count())
    })?;
    let requests_before = count(before) / count(trials);
    Ok(Found {
        milliseconds,
        answering,
        requests_before,
        requests: count(requests) / count(trials),
        doubled: count(all) - count(trials),
    })
}

/// When each request of the operator arrived and was answered, of those that arrived in between; not those about its Lease.
fn request_times(events: &[AuditEvent], from: Timestamp, to: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let ours = |e: &&AuditEvent| e.user == OPERATOR && e.verb != "watch" && e.resource != "leases";
    let within = events.iter().filter(ours).filter(|e| from <= e.received && e.received < to);
    within.map(|e| (e.received, e.at.min(to))).collect()
}

/// Seconds that at least one of the intervals covers.
fn covered(mut intervals: Vec<(Timestamp, Timestamp)>) -> f64 {
    intervals.sort();
    let (mut sum, mut until) = (0.0, Timestamp::MIN);
    for (from, to) in intervals {
        let from = from.max(until);
        if from < to {
            sum += seconds(from, to);
            until = to;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let at = |ms| Timestamp::UNIX_EPOCH + SignedDuration::from_millis(ms);
        let intervals = |all: &[(i64, i64)]| all.iter().map(|(a, b)| (at(*a), at(*b))).collect();
        for (all, milliseconds) in [
            (&[][..], 0.0),
            (&[(0, 10), (20, 30)], 20.0),
            (&[(20, 30), (0, 10), (5, 25), (6, 7)], 30.0),
            (&[(0, 10), (10, 20), (0, 20)], 20.0),
        ] {
            assert!((covered(intervals(all)) * 1_000.0 - milliseconds).abs() < 1e-6, "{all:?}");
        }
    }
}
