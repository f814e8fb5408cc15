//! A fault at each write of each kind of work.

use anyhow::ensure;
use coppice_plane::proxy::{FakeResponse, FaultRule, Match, ProxyFault};
use coppice_tests::fault_injection::{FaultTestbed, Replica, Work, reservations, writes_about};
use coppice_tests::on_own_plane;

use super::Test;

/// What can happen to a write on its way, with a word for names.
fn faults() -> [(&'static str, ProxyFault); 5] {
    [
        ("unanswered", ProxyFault::LoseResponse),
        ("lost", ProxyFault::LoseRequest),
        ("twice", ProxyFault::Twice),
        ("busy", ProxyFault::FakeResponse(FakeResponse::too_many_requests(1))),
        ("broken", ProxyFault::FakeResponse(FakeResponse::internal_error())),
    ]
}

#[test]
fn a_write_that_is_lost_refused_repeated_or_not_answered_changes_nothing_in_the_end() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let replica = Replica::start(&testbed.test_cluster).await?;
        // One namespace for each of the writes that a work takes, and for each fault that it can meet.
        let mut plans = Vec::new();
        for work in Work::ALL {
            for n in 1..=work.writes() {
                let plan = |(word, fault)| (format!("{}-{n}-{word}", work.as_str()), work, n, fault);
                plans.extend(faults().map(plan));
            }
        }
        let works: Vec<_> = plans.iter().map(|(name, work, ..)| (name.clone(), *work)).collect();
        testbed.prepare(&works).await?;
        let of = |waking: bool| works.iter().filter(move |(_, work)| (*work == Work::Wake) == waking);
        let sleepers = || of(true).map(|(name, _)| name.as_str());
        testbed.begin(sleepers()).await?;
        testbed.done(sleepers()).await?;
        testbed.quiet().await?;

        let rule = |(name, _, n, fault): &(String, Work, u64, ProxyFault)| {
            let rule = FaultRule::new(writes_about(name), fault.clone()).from(*n).once();
            (name.clone(), replica.proxy.add(rule))
        };
        let mut rules: Vec<_> = plans.iter().map(rule).collect();
        // One after the other: each fault but one leads to the next reservation, and several steps are in one.
        for (n, (word, fault)) in (1..).zip(faults()) {
            let rule = FaultRule::new(reservations(), fault).from(n).once();
            rules.push((format!("reservation-{word}"), replica.proxy.add(rule)));
        }
        for (n, (word, fault)) in (1..).zip(faults()) {
            let record = Match::verb("create").resource("deletednamespaces");
            let rule = FaultRule::new(record, fault).from(n).once();
            rules.push((format!("record-{word}"), replica.proxy.add(rule)));
        }
        testbed.begin(of(false).map(|(name, _)| name.as_str())).await?;
        testbed.wake(sleepers()).await?;
        testbed.done(works.iter().map(|(name, _)| name.as_str())).await?;
        testbed.quiet().await?;
        for (name, rule) in &rules {
            ensure!(rule.count() == 1, "{name}: there was no such write");
        }
        testbed.verify_reported_once(&replica.operator).await
    })
}
