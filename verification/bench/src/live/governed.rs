//! Under a cluster manager: how late deletions by its ttl are, how many requests each takes, and how long it takes from a cause to
//! its phase in status. Beside it a bare client deletes the same namespaces at the same dates, with three requests each.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, AuditEvent, OPERATOR};
use coppice_tests::scale::objects::{EtcdEntry, namespace_name};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Programs, Running, Sizes, Testbed, now, progress, seconds};
use crate::report::{Goal, Part, RatioGoal, ReportWriter, Subject};
use crate::stats::{count, percentile};

/// So many are due in each second.
const A_SECOND: usize = 10;
/// A record is written so fast, and the bare client begins so early.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(15);
/// After the last date everybody has so long.
const DRAIN: SignedDuration = SignedDuration::from_secs(30);
/// Between two looks at the audit log.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// By which namespaces have their ttl.
const TTL: &str = "bench.example.org/ttl";

/// The name of the part.
const GOVERNED: &str = "governed";

const MANAGER: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: bench}, spec: {mode: Enforce, \
                       selector: {names: ['team-*']}, settle: 1s, ttl: {after: 300d, fromAnnotation: bench.example.org/ttl}, health: \
                       {}, policies: [{name: end, when: {phase: {in: [Stale]}}, then: {delete: {}}}]}}";

pub(super) async fn run(programs: &Programs, sizes: &Sizes, writer: &mut ReportWriter) -> anyhow::Result<()> {
    let (due, causes) = (sizes.governed, sizes.reactions);
    writer.begin(Part {
        name: GOVERNED,
        title: "Under a cluster manager",
        method: format!(
            "{due} namespaces with a ttl of their own by an annotation, {A_SECOND} due in each second, under one cluster manager that looks \
             at the health. Lateness is from the date to the arrival of the DELETE in the audit log; requests are all of the \
             operator but watches and those about its Lease, from the first date until the last deletion, with the records of \
             deletions and the Events. The bare client does the same before it, on the same control plane: at each date a GET of the \
             namespace, a PUT of it and a DELETE with uid and revision; it decides nothing, records nothing and keeps no budget. \
             Then the pod of {causes} other namespaces fails, one after the other (a PATCH of its status): from the end of that \
             PATCH to the end of the PUT by which the record says so.",
        ),
        ratio_goals: vec![RatioGoal {
            what: "p99 lateness".to_owned(),
            peer: Subject::Bare,
            at_most: 2.0,
        }],
        ..Part::default()
    });
    progress("governed: starting a control plane ...");
    let testbed = Testbed::start().await?;
    match bare(&testbed, due).await {
        Ok(late) => report_lateness(writer.part(GOVERNED), Subject::Bare, &late),
        Err(error) => writer.part(GOVERNED).fails(&format!("the bare client: {error:#}")),
    }
    match governed(&testbed, programs, due, causes).await {
        Ok(found) => {
            let part = writer.part(GOVERNED);
            report_lateness(part, Subject::Coppice, &found.late);
            part.add("requests per deletion", "", Subject::Coppice, Some(Goal::AtMost(9.0)), found.requests);
            let at = |percent| percentile(&found.causes, percent).unwrap_or(f64::NAN);
            part.add("p50 from a cause to its phase", "ms", Subject::Coppice, None, at(50.0));
            part.add(
                "p99 from a cause to its phase",
                "ms",
                Subject::Coppice,
                Some(Goal::AtMost(1_000.0)),
                at(99.0),
            );
            part.remarks.push(format!("Requests, for each deletion: {}.", found.by_kind.join(", ")));
        }
        Err(error) => writer.part(GOVERNED).fails(&format!("Coppice: {error:#}")),
    }
    writer.save()
}

fn report_lateness(part: &mut Part, subject: Subject, late: &[f64]) {
    let at = |percent| percentile(late, percent).unwrap_or(f64::NAN);
    let early = count(late.iter().filter(|late| **late < 0.0).count());
    part.add("early", "", subject, Some(Goal::NeverAbove(0.0)), early);
    part.add("p50 lateness", "ms", subject, None, at(50.0));
    part.add("p99 lateness", "ms", subject, None, at(99.0));
    part.sample("lateness at ten a second", "ms", subject, late);
}

/// The date of the n-th namespace.
fn date(first: Timestamp, n: usize) -> Timestamp {
    first + SignedDuration::from_secs(i64::try_from(n / A_SECOND).unwrap_or(i64::MAX))
}

/// How late the deletions by this user were, in milliseconds, in the order of their dates.
fn lateness(testbed: &Testbed, user: &str, due: usize, first: Timestamp) -> anyhow::Result<Vec<f64>> {
    let deletes = |event: &&AuditEvent| {
        event.user == user && event.verb == "delete" && event.resource == "namespaces" && event.succeeded()
    };
    let arrived: HashMap<String, Timestamp> = testbed.audit(|events| {
        events.iter().filter(deletes).map(|event| (event.name.clone(), event.received)).collect()
    })?;
    let late = |n| {
        let arrived = arrived.get(&namespace_name(n)).context("a namespace was not deleted in time")?;
        Ok(seconds(date(first, n), *arrived) * 1_000.0)
    };
    (0..due).map(late).collect()
}

async fn bare(testbed: &Testbed, due: usize) -> anyhow::Result<Vec<f64>> {
    testbed.seed((0..due).map(|n| testbed.objects.namespace(n))).await?;
    testbed.skip_existing()?;
    let first = Timestamp::from_second(now().as_second() + 3)?;
    progress("governed: the bare client ...");
    let each = (0..due).map(|n| async move {
        let wait = date(first, n).duration_since(now()).max(SignedDuration::ZERO);
        super::testbed::pause(Duration::try_from(wait).unwrap_or_default()).await;
        let path = format!("/api/v1/namespaces/{}", namespace_name(n));
        let mut namespace = testbed.request("GET", &path, None).await?;
        namespace["metadata"]["annotations"]["bench.example.org/decided"] = json!(now().to_string());
        let namespace = testbed.request("PUT", &path, Some(&namespace)).await?;
        let metadata = &namespace["metadata"];
        let preconditions = json!({"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]});
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        testbed.request("DELETE", &path, Some(&options)).await.map(drop)
    });
    for done in futures::future::join_all(each).await {
        done?;
    }
    lateness(testbed, ADMIN, due, first)
}

/// What Coppice has shown.
struct Found {
    late: Vec<f64>,
    requests: f64,
    /// So many of each kind, in words.
    by_kind: Vec<String>,
    causes: Vec<f64>,
}

async fn governed(
    testbed: &Testbed,
    programs: &Programs,
    due: usize,
    causes: usize,
) -> anyhow::Result<Found> {
    let all = due + causes;
    progress("governed: seeding ...");
    // Those of the bare client again, as they were.
    testbed.seed((due..all).map(|n| testbed.objects.namespace(n))).await?;
    testbed.seed((due..all).map(|n| lonely_pod(testbed, n))).await?;
    let ahead = START + FIRST_LOOK * u32::try_from(all)?;
    let first = Timestamp::from_second(now().as_second() + i64::try_from(ahead.as_secs())?)?;
    let (_, default) = testbed.objects.namespace(0);
    let created: Timestamp = default["metadata"]["creationTimestamp"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .context("no creation time")?;
    testbed.seed((0..due).map(|n| expiring(testbed, n, created, date(first, n)))).await?;
    testbed.test_cluster.apply(MANAGER).await?;
    testbed.skip_existing()?;
    let mut operator = Running::spawn(testbed, programs, Subject::Coppice)?;
    operator.settled(all).await?;
    ensure!(now() < first, "the first records took too long: {all} of them");
    testbed.skip_existing()?;
    progress(&format!("governed: {due} namespaces are deleted ..."));
    let last = date(first, due) + DRAIN;
    testbed
        .until_every(POLL_INTERVAL, "every namespace is deleted", |events| {
            let deleted = events.iter().filter(|event| super::audit::deletes(event)).count();
            (deleted >= due || now() >= last).then_some(())
        })
        .await?;
    let late = lateness(testbed, OPERATOR, due, first)?;
    let kinds: HashMap<String, usize> = testbed.audit(|events| {
        let ours = |e: &&AuditEvent| e.user == OPERATOR && e.verb != "watch" && e.resource != "leases";
        let mut kinds = HashMap::new();
        for event in events.iter().filter(ours) {
            *kinds.entry(format!("{} {}", event.verb, event.resource)).or_default() += 1;
        }
        kinds
    })?;
    let requests = count(kinds.values().sum()) / count(due);
    let mut by_kind: Vec<String> =
        kinds.iter().map(|(kind, times)| format!("{:.2} {kind}", count(*times) / count(due))).collect();
    by_kind.sort_by(|a, b| b.cmp(a));
    progress(&format!("governed: {causes} pods fail ..."));
    let mut took = Vec::new();
    for n in due..all {
        took.push(cause(testbed, n).await?);
    }
    operator.stop().await?;
    Ok(Found { late, requests, by_kind, causes: took })
}

/// A namespace with the ttl that ends at this date.
fn expiring(testbed: &Testbed, n: usize, created: Timestamp, date: Timestamp) -> EtcdEntry {
    let (key, mut object) = testbed.objects.namespace(n);
    // Creation times are cut to whole seconds, so that a ttl counts one more.
    let ttl = date.duration_since(created).as_secs() - 1;
    object["metadata"]["annotations"] = json!({ TTL: format!("{ttl}s") });
    (key, object)
}

/// A pod that no controller makes again.
fn lonely_pod(testbed: &Testbed, n: usize) -> EtcdEntry {
    let (key, mut object) = testbed.pod(n, 0, "Running");
    object["metadata"]["ownerReferences"] = Value::Null;
    (key, object)
}

/// Milliseconds from the failure of a pod to the record that says so.
async fn cause(testbed: &Testbed, n: usize) -> anyhow::Result<f64> {
    testbed.skip_existing()?;
    let name = namespace_name(n);
    testbed.report_phase(n, 0, "Failed").await?;
    let (failed, said) = testbed
        .until("the record says that something fails", |events| {
            let of = |resource: &'static str, user: &'static str| {
                let matching = events.iter().filter(move |event| {
                    event.user == user && event.resource == resource && event.subresource == "status"
                });
                matching.filter(|event| event.namespace == name).map(|event| event.at).min()
            };
            Some((of("pods", ADMIN)?, of("managednamespaces", OPERATOR)?))
        })
        .await?;
    Ok(seconds(failed, said) * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_are_due_in_each_second() {
        let at: Vec<i64> = [0, 9, 10, 25].map(|n| date(Timestamp::UNIX_EPOCH, n).as_second()).to_vec();
        assert_eq!(at, [0, 0, 1, 2]);
    }
}
