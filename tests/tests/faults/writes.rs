//! A fault at each write of each kind of work.

use anyhow::ensure;
use coppice_plane::proxy::{Answer, Fault, Rule};
use coppice_tests::alone;
use coppice_tests::faulty::{Replica, Work, World, bookings, writes_about};

use super::Test;

/// What can happen to a write on its way, with a word for names.
fn faults() -> [(&'static str, Fault); 5] {
    [
        ("unanswered", Fault::LoseAnswer),
        ("lost", Fault::LoseRequest),
        ("twice", Fault::Twice),
        ("busy", Fault::Answer(Answer::too_many_requests(1))),
        ("broken", Fault::Answer(Answer::internal_error())),
    ]
}

#[test]
fn a_write_that_is_lost_refused_repeated_or_not_answered_changes_nothing_in_the_end() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let replica = Replica::start(&world.stage).await?;
        // One namespace for each of the writes that a work takes, and for each fault that it can meet.
        let mut plans = Vec::new();
        for work in Work::ALL {
            for n in 1..=work.writes() {
                let plan = |(word, fault)| (format!("{}-{n}-{word}", work.as_str()), work, n, fault);
                plans.extend(faults().map(plan));
            }
        }
        let works: Vec<_> = plans.iter().map(|(name, work, ..)| (name.clone(), *work)).collect();
        world.prepare(&works).await?;
        let of = |waking: bool| works.iter().filter(move |(_, work)| (*work == Work::Wake) == waking);
        let sleepers = || of(true).map(|(name, _)| name.as_str());
        world.begin(sleepers()).await?;
        world.done(sleepers()).await?;
        world.quiet().await?;

        let rule = |(name, _, n, fault): &(String, Work, u64, Fault)| {
            let rule = Rule::new(writes_about(name), fault.clone()).from(*n).once();
            (name.clone(), replica.proxy.add(rule))
        };
        let mut rules: Vec<_> = plans.iter().map(rule).collect();
        // One after the other: each fault but one leads to the next booking, and several steps are in one.
        for (n, (word, fault)) in (1..).zip(faults()) {
            let rule = Rule::new(bookings(), fault).from(n).once();
            rules.push((format!("booking-{word}"), replica.proxy.add(rule)));
        }
        world.begin(of(false).map(|(name, _)| name.as_str())).await?;
        world.wake(sleepers()).await?;
        world.done(works.iter().map(|(name, _)| name.as_str())).await?;
        world.quiet().await?;
        for (name, rule) in &rules {
            ensure!(rule.count() == 1, "{name}: there was no such write");
        }
        world.verify_told_once(&replica.operator).await
    })
}
