//! kill -9 right before and right after a write takes effect.

use anyhow::Context as _;
use coppice_plane::proxy::{Active, FaultRule, Match, ProxyFault};
use coppice_tests::fault_injection::{
    FAST_LEASE, FaultTestbed, Replica, Work, reservations, with_timeout, writes_about,
};
use coppice_tests::on_own_plane;

use super::Test;

/// On which side of a write's effect the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

const SIDES: [Side; 2] = [Side::Before, Side::After];

/// One life of the operator: it is killed when each of these works waits for its write.
struct CrashCase {
    side: Side,
    deaths: Vec<Death>,
}

struct Death {
    name: String,
    work: Work,
    /// The write at which the process dies.
    write: Match,
    /// Which of those that match.
    n: u64,
}

impl CrashCase {
    /// The `n`-th write of each kind of work that takes so many.
    fn at_write(n: u64, side: Side) -> Self {
        let works = Work::ALL.into_iter().filter(|work| n <= work.writes());
        let death = |work: Work| {
            let name = format!("{}-{n}-{side:?}", work.as_str()).to_lowercase();
            Death { write: writes_about(&name), name, work, n }
        };
        Self { side, deaths: works.map(death).collect() }
    }

    /// The reservation of this work.
    fn at_reservation(work: Work, side: Side) -> Self {
        let name = format!("{}-reservation-{side:?}", work.as_str()).to_lowercase();
        Self { side, deaths: vec![Death { name, work, write: reservations(), n: 1 }] }
    }

    fn works(&self) -> impl Iterator<Item = (String, Work)> {
        self.deaths.iter().map(|death| (death.name.clone(), death.work))
    }

    async fn live(&self, testbed: &FaultTestbed, replica: &mut Replica) -> anyhow::Result<()> {
        let hold = |death: &Death| {
            replica
                .proxy
                .add(FaultRule::new(death.write.clone(), ProxyFault::HoldRequest).from(death.n).once())
        };
        let holds: Vec<Active> = self.deaths.iter().map(hold).collect();
        let (waking, others): (Vec<_>, Vec<_>) = self.deaths.iter().partition(|d| d.work == Work::Wake);
        if !others.is_empty() {
            testbed.begin(others.iter().map(|death| death.name.as_str())).await?;
        }
        if !waking.is_empty() {
            testbed.wake(waking.iter().map(|death| death.name.as_str())).await?;
        }
        for (hold, death) in holds.iter().zip(&self.deaths) {
            let what = format!("write {} of {} is held", death.n, death.name);
            with_timeout(&what, hold.held(1)).await.with_context(|| replica.operator.last_lines())?;
        }
        replica.operator.kill().await?;
        for (hold, death) in holds.iter().zip(&self.deaths) {
            if self.side == Side::Before {
                hold.discard();
                continue;
            }
            hold.release();
            let delayed = death.write.clone().when(|entry| entry.faults.contains(&"hold-request"));
            replica.wait_for_response(&format!("the held write of {}", death.name), &delayed).await?;
        }
        Ok(())
    }
}

#[test]
fn killed_right_before_and_right_after_each_write_takes_effect_it_goes_on_where_it_was() -> Test {
    on_own_plane(async {
        let mut testbed = FaultTestbed::start_without_pods().await?;
        let mut replica = Replica::start(&testbed.test_cluster).await?;
        let most = Work::ALL.map(Work::writes).into_iter().max().unwrap_or_default();
        let mut cases: Vec<CrashCase> =
            (1..=most).flat_map(|n| SIDES.map(|side| CrashCase::at_write(n, side))).collect();
        for work in [Work::Delete, Work::ScaleDown] {
            cases.extend(SIDES.map(|side| CrashCase::at_reservation(work, side)));
        }
        let works: Vec<_> = cases.iter().flat_map(CrashCase::works).collect();
        testbed.prepare(&works).await?;
        let sleepers = || works.iter().filter(|(_, work)| *work == Work::Wake).map(|(name, _)| name.as_str());
        testbed.begin(sleepers()).await?;
        testbed.done(sleepers()).await?;

        for life in &cases {
            life.live(&testbed, &mut replica).await?;
            replica.again(&testbed.test_cluster, &FAST_LEASE).await?;
        }
        testbed.done(works.iter().map(|(name, _)| name.as_str())).await?;
        testbed.quiet().await?;
        testbed.verify()
    })
}
