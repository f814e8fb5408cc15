//! What goes wrong in a run: planned beforehand, or by chance; either way noted, so that it can be played again and made smaller.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use coppice_runtime::clock::Dice;
use jiff::SignedDuration;

/// What a fault hits. Everything is counted over the whole run and over all replicas, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// A write of the operator, those of its Lease apart.
    Write(u64),
    /// A write of the Lease.
    Lease(u64),
    /// A read of the operator; the opening of a watch is one.
    Read(u64),
    /// An event of a watch, on its way to a replica.
    Event(u64),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The replica dies when its request arrives: it has no effect.
    KilledBefore,
    /// The replica dies when its request has been carried out: it never hears the answer.
    KilledAfter,
    /// The request is carried out, and the connection breaks before the answer is there.
    AnswerLost,
    /// The request is carried out, and no answer ever comes.
    NoAnswer,
    /// The request is not carried out; the answer is this status code.
    Refused(u16),
    /// The request is carried out, and yet the answer is this status code.
    RefusedAfter(u16),
    /// The request is carried out so much later, and so is its answer.
    Late(Duration),
    /// The request is carried out twice; the second answer is returned.
    Twice,
    /// The event never arrives.
    Dropped,
    /// The event, and all after it on that watch, arrive so much later.
    Delayed(Duration),
    /// The watch ends in order instead.
    Ended,
    /// The connection of the watch breaks instead.
    Broken,
    /// The watch says that its revision is gone (410) instead.
    Expired,
    /// The watch says nothing any more, and does not end.
    Silent,
    /// The API server forgets its past, and all watches of all replicas say that their revision is gone (410).
    AllExpired,
    /// Nothing gets from the replica to the API server, or back, for so long; then all of it does.
    CutOff(Duration),
    /// Nobody reaches the API server for so long, and every connection to it breaks.
    Away(Duration),
}

/// What is wrong with the `Date` header of answers: the API server's clock, or that of one of several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// By how much it is wrong; none if there is no such header.
    pub by: Option<SignedDuration>,
    /// From when until when, from the beginning of the run.
    pub during: (Duration, Duration),
    /// It is every answer of so many.
    pub every: u64,
}

impl Dates {
    /// Whether the n-th answer is wrong, if it is given now.
    pub(crate) fn strike(self, n: u64, now: Duration) -> bool {
        self.during.0 <= now && now < self.during.1 && n.is_multiple_of(self.every)
    }
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Planned {
    /// What it hits.
    pub at: At,
    /// What goes wrong.
    pub fault: Fault,
}

impl fmt::Display for Planned {
    /// As it is written on a command line: `write:3=answer-lost`, `event:7=delayed:40s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, n) = match self.at {
            At::Write(n) => ("write", n),
            At::Lease(n) => ("lease", n),
            At::Read(n) => ("read", n),
            At::Event(n) => ("event", n),
        };
        write!(f, "{what}:{n}=")?;
        match self.fault {
            Fault::Refused(code) => write!(f, "refused:{code}"),
            Fault::RefusedAfter(code) => write!(f, "refused-after:{code}"),
            Fault::Late(by) => write!(f, "late:{}ms", by.as_millis()),
            Fault::Delayed(by) => write!(f, "delayed:{}ms", by.as_millis()),
            Fault::CutOff(by) => write!(f, "cut-off:{}ms", by.as_millis()),
            Fault::Away(by) => write!(f, "away:{}ms", by.as_millis()),
            plain => {
                f.write_str(PLAIN.iter().find(|(fault, _)| *fault == plain).map_or("", |(_, name)| name))
            }
        }
    }
}

/// Faults without a number, and their names.
const PLAIN: [(Fault, &str); 11] = [
    (Fault::KilledBefore, "killed-before"),
    (Fault::KilledAfter, "killed-after"),
    (Fault::AnswerLost, "answer-lost"),
    (Fault::NoAnswer, "no-answer"),
    (Fault::Twice, "twice"),
    (Fault::Dropped, "dropped"),
    (Fault::Ended, "ended"),
    (Fault::Broken, "broken"),
    (Fault::Expired, "expired"),
    (Fault::Silent, "silent"),
    (Fault::AllExpired, "all-expired"),
];

impl FromStr for Planned {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong = || {
            anyhow::anyhow!("{text:?} is not a fault such as write:3=answer-lost or event:7=delayed:40000ms")
        };
        let (at, fault) = text.split_once('=').ok_or_else(wrong)?;
        let (what, n) = at.split_once(':').ok_or_else(wrong)?;
        let n = n.parse().map_err(|_| wrong())?;
        let at = match what {
            "write" => At::Write(n),
            "lease" => At::Lease(n),
            "read" => At::Read(n),
            "event" => At::Event(n),
            _ => return Err(wrong()),
        };
        let (name, number) = fault.split_once(':').unwrap_or((fault, ""));
        let code = || number.parse().map_err(|_| wrong());
        let millis = || number.trim_end_matches("ms").parse().map(Duration::from_millis).map_err(|_| wrong());
        let fault = match name {
            "refused" => Fault::Refused(code()?),
            "refused-after" => Fault::RefusedAfter(code()?),
            "late" => Fault::Late(millis()?),
            "delayed" => Fault::Delayed(millis()?),
            "cut-off" => Fault::CutOff(millis()?),
            "away" => Fault::Away(millis()?),
            name => PLAIN.iter().find(|(_, plain)| *plain == name).ok_or_else(wrong)?.0,
        };
        Ok(Self { at, fault })
    }
}

/// Faults by chance, until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// Of a thousand requests so many go wrong.
    pub requests: u64,
    /// Of a thousand events so many go wrong.
    pub events: u64,
    /// So many replicas are killed at most.
    pub kills: u32,
    /// No fault later than this, from the beginning of the run.
    pub until: Duration,
}

/// Decides what goes wrong, and remembers what did.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    seed: u64,
    planned: Vec<Planned>,
    weather: Option<Weather>,
    kills: u32,
    fired: Vec<Planned>,
    writes: u64,
    leases: u64,
    reads: u64,
    events: u64,
}

/// What kind of request it is, to faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Write,
    Lease,
    Read,
}

impl Faults {
    pub(crate) fn new(seed: u64, planned: Vec<Planned>, weather: Option<Weather>) -> Self {
        let kills = weather.map_or(0, |weather| weather.kills);
        Self { seed, planned, weather, kills, fired: Vec::new(), writes: 0, leases: 0, reads: 0, events: 0 }
    }

    /// Nothing goes wrong.
    pub(crate) fn none() -> Self {
        Self::new(0, Vec::new(), None)
    }

    /// What went wrong so far.
    pub(crate) fn fired(&self) -> &[Planned] {
        &self.fired
    }

    /// How many writes there were, those of the Lease apart.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// How many events were on their way.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The fault of the next request.
    pub(crate) fn of_request(&mut self, sort: Sort, now: Duration) -> Option<Fault> {
        let counter = match sort {
            Sort::Write => &mut self.writes,
            Sort::Lease => &mut self.leases,
            Sort::Read => &mut self.reads,
        };
        let n = *counter;
        *counter += 1;
        let at = match sort {
            Sort::Write => At::Write(n),
            Sort::Lease => At::Lease(n),
            Sort::Read => At::Read(n),
        };
        let fault = self.planned(at).or_else(|| self.request_by_chance(sort, n, now));
        self.fire(at, fault)
    }

    /// The fault of the next event.
    pub(crate) fn of_event(&mut self, now: Duration) -> Option<Fault> {
        let n = self.events;
        self.events += 1;
        let at = At::Event(n);
        let fault = self.planned(at).or_else(|| self.event_by_chance(n, now));
        self.fire(at, fault)
    }

    fn fire(&mut self, at: At, fault: Option<Fault>) -> Option<Fault> {
        self.fired.extend(fault.map(|fault| Planned { at, fault }));
        fault
    }

    fn planned(&self, at: At) -> Option<Fault> {
        self.planned.iter().find(|planned| planned.at == at).map(|planned| planned.fault)
    }

    fn request_by_chance(&mut self, sort: Sort, n: u64, now: Duration) -> Option<Fault> {
        let weather = self.weather.filter(|weather| now < weather.until)?;
        let stream = match sort {
            Sort::Write => 11,
            Sort::Lease => 12,
            Sort::Read => 13,
        };
        let mut dice = dice(self.seed, stream, n);
        if dice.roll() % 1000 >= weather.requests {
            return None;
        }
        let late = dice.between(Duration::from_millis(100), Duration::from_secs(20));
        Some(match dice.roll() % 10 {
            0 | 1 if self.kills > 0 && sort != Sort::Read => {
                self.kills -= 1;
                if dice.roll().is_multiple_of(2) { Fault::KilledBefore } else { Fault::KilledAfter }
            }
            0..=2 => Fault::AnswerLost,
            3 => Fault::NoAnswer,
            4 => Fault::Refused(429),
            5 => Fault::Refused(500),
            6 => Fault::Refused(503),
            7 => Fault::RefusedAfter(504),
            8 => Fault::Twice,
            _ => Fault::Late(late),
        })
    }

    fn event_by_chance(&self, n: u64, now: Duration) -> Option<Fault> {
        let weather = self.weather.filter(|weather| now < weather.until)?;
        let mut dice = dice(self.seed, 14, n);
        if dice.roll() % 1000 >= weather.events {
            return None;
        }
        let long = dice.between(Duration::from_millis(100), Duration::from_secs(40));
        Some(match dice.roll() % 12 {
            0 => Fault::Dropped,
            1..=3 => Fault::Ended,
            4 | 5 => Fault::Broken,
            6 | 7 => Fault::Expired,
            8 => Fault::Silent,
            _ => Fault::Delayed(long),
        })
    }
}

/// Dice for the n-th choice of a kind: choices do not depend on how many others were made before, so that leaving one fault out of a
/// plan disturbs the rest of the run as little as may be.
pub(crate) fn dice(seed: u64, stream: u64, n: u64) -> Dice {
    let mut mixed = Dice::new(seed ^ stream.wrapping_mul(0x9FB2_1C65_1E98_DF25));
    Dice::new(mixed.roll() ^ n.wrapping_mul(0xD6E8_FEB8_6659_FD93))
}
