//! kill -9 right before and right after a write takes effect.

use anyhow::Context as _;
use coppice_plane::proxy::{Active, Fault, Match, Rule};
use coppice_tests::alone;
use coppice_tests::faulty::{LIVELY_LEASE, Replica, Work, World, bookings, soon, writes_about};

use super::Test;

/// On which side of a write's effect the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

const SIDES: [Side; 2] = [Side::Before, Side::After];

/// One life of the operator: it is killed when each of these works waits for its write.
struct Life {
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

impl Life {
    /// The `n`-th write of each kind of work that takes so many.
    fn at_write(n: u64, side: Side) -> Self {
        let works = Work::ALL.into_iter().filter(|work| n <= work.writes());
        let death = |work: Work| {
            let name = format!("{}-{n}-{side:?}", work.as_str()).to_lowercase();
            Death { write: writes_about(&name), name, work, n }
        };
        Self { side, deaths: works.map(death).collect() }
    }

    /// The booking of this work.
    fn at_booking(work: Work, side: Side) -> Self {
        let name = format!("{}-booking-{side:?}", work.as_str()).to_lowercase();
        Self { side, deaths: vec![Death { name, work, write: bookings(), n: 1 }] }
    }

    fn works(&self) -> impl Iterator<Item = (String, Work)> {
        self.deaths.iter().map(|death| (death.name.clone(), death.work))
    }

    async fn live(&self, world: &World, replica: &mut Replica) -> anyhow::Result<()> {
        let hold = |death: &Death| {
            replica.proxy.add(Rule::new(death.write.clone(), Fault::HoldRequest).from(death.n).once())
        };
        let holds: Vec<Active> = self.deaths.iter().map(hold).collect();
        let (waking, others): (Vec<_>, Vec<_>) = self.deaths.iter().partition(|d| d.work == Work::Wake);
        if !others.is_empty() {
            world.begin(others.iter().map(|death| death.name.as_str())).await?;
        }
        if !waking.is_empty() {
            world.wake(waking.iter().map(|death| death.name.as_str())).await?;
        }
        for (hold, death) in holds.iter().zip(&self.deaths) {
            let what = format!("write {} of {} is held", death.n, death.name);
            soon(&what, hold.held(1)).await.with_context(|| replica.operator.last_lines())?;
        }
        replica.operator.kill().await?;
        for (hold, death) in holds.iter().zip(&self.deaths) {
            if self.side == Side::Before {
                hold.discard();
                continue;
            }
            hold.release();
            let delayed = death.write.clone().when(|entry| entry.faults.contains(&"hold-request"));
            replica.answered(&format!("the held write of {}", death.name), &delayed).await?;
        }
        Ok(())
    }
}

#[test]
fn killed_right_before_and_right_after_each_write_takes_effect_it_goes_on_where_it_was() -> Test {
    alone(async {
        let mut world = World::start().await?;
        let mut replica = Replica::start(&world.stage).await?;
        let most = Work::ALL.map(Work::writes).into_iter().max().unwrap_or_default();
        let mut lives: Vec<Life> =
            (1..=most).flat_map(|n| SIDES.map(|side| Life::at_write(n, side))).collect();
        for work in [Work::Delete, Work::Sleep] {
            lives.extend(SIDES.map(|side| Life::at_booking(work, side)));
        }
        let works: Vec<_> = lives.iter().flat_map(Life::works).collect();
        world.prepare(&works).await?;
        let sleepers = || works.iter().filter(|(_, work)| *work == Work::Wake).map(|(name, _)| name.as_str());
        world.begin(sleepers()).await?;
        world.done(sleepers()).await?;

        for life in &lives {
            life.live(&world, &mut replica).await?;
            replica.again(&world.stage, &LIVELY_LEASE).await?;
        }
        world.done(works.iter().map(|(name, _)| name.as_str())).await?;
        world.quiet().await?;
        world.verify()
    })
}
