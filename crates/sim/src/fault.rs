//! The faults of a run: planned, or by fault rates; both are recorded, so that a run can be repeated and made smaller.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use coppice_runtime::clock::SeededRng;
use jiff::SignedDuration;

/// What a fault hits. Everything is counted over the whole run and over all replicas, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultTarget {
    /// A write of a replica, those of Leases apart.
    Write(u64),
    /// A write of the Lease.
    Lease(u64),
    /// A read of a replica; the opening of a watch is one.
    Read(u64),
    /// An event of a watch, on its way to a replica.
    Event(u64),
    /// A question of the API server to an admission webhook.
    Review(u64),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The replica dies when its request arrives: it has no effect.
    KilledBefore,
    /// The replica dies when its request has been carried out: it never receives the answer.
    KilledAfter,
    /// The request is carried out, and the connection breaks before the answer is there.
    AnswerLost,
    /// The request is carried out, and no answer ever comes.
    NoAnswer,
    /// The request is not carried out; the answer is this status code.
    Refused(u16),
    /// The request is carried out, and yet the answer is this status code.
    RefusedAfter(u16),
    /// The request is carried out this much later, and so is its answer.
    Late(Duration),
    /// The request is carried out twice; the second answer is returned.
    Twice,
    /// The event never arrives.
    Dropped,
    /// The event, and all after it on that watch, arrive this much later.
    Delayed(Duration),
    /// The watch ends in order instead.
    Ended,
    /// The connection of the watch breaks instead.
    Broken,
    /// The watch says that its revision is gone (410) instead.
    Expired,
    /// The watch says nothing any more, and does not end.
    Silent,
    /// The API server compacts its history, and all watches of all replicas say that their revision is gone (410).
    AllExpired,
    /// Nothing gets from the replica to the API server, or back, for this long; then all of it does.
    CutOff(Duration),
    /// Nobody reaches the API server for this long, and every connection to it breaks.
    Away(Duration),
    /// The question to a webhook never arrives, and its connection stays open.
    Lost,
    /// No webhook listens for this long.
    Off(Duration),
}

/// What is wrong with the `Date` header of answers: the API server's clock, or that of one of several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateFault {
    /// By how much it is wrong; none if there is no such header.
    pub by: Option<SignedDuration>,
    /// From when until when, from the beginning of the run.
    pub during: (Duration, Duration),
    /// One answer in this many is wrong.
    pub every: u64,
}

impl DateFault {
    /// Whether the n-th answer is wrong, if it is given now.
    pub(crate) fn applies(self, n: u64, now: Duration) -> bool {
        self.during.0 <= now && now < self.during.1 && n.is_multiple_of(self.every)
    }
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlannedFault {
    /// What it hits.
    pub at: FaultTarget,
    /// What goes wrong.
    pub fault: Fault,
}

impl fmt::Display for PlannedFault {
    /// As it is written on a command line: `write:3=answer-lost`, `event:7=delayed:40s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, n) = match self.at {
            FaultTarget::Write(n) => ("write", n),
            FaultTarget::Lease(n) => ("lease", n),
            FaultTarget::Read(n) => ("read", n),
            FaultTarget::Event(n) => ("event", n),
            FaultTarget::Review(n) => ("review", n),
        };
        write!(f, "{what}:{n}=")?;
        match self.fault {
            Fault::Refused(code) => write!(f, "refused:{code}"),
            Fault::RefusedAfter(code) => write!(f, "refused-after:{code}"),
            Fault::Late(by) => write!(f, "late:{}ms", by.as_millis()),
            Fault::Delayed(by) => write!(f, "delayed:{}ms", by.as_millis()),
            Fault::CutOff(by) => write!(f, "cut-off:{}ms", by.as_millis()),
            Fault::Away(by) => write!(f, "away:{}ms", by.as_millis()),
            Fault::Off(by) => write!(f, "off:{}ms", by.as_millis()),
            plain => f.write_str(
                FAULT_NAMES.iter().find(|(fault, _)| *fault == plain).map_or("", |(_, name)| name),
            ),
        }
    }
}

/// Faults without a number, and their names.
const FAULT_NAMES: [(Fault, &str); 12] = [
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
    (Fault::Lost, "lost"),
];

impl FromStr for PlannedFault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wrong = || {
            anyhow::anyhow!("{text:?} is not a fault such as write:3=answer-lost or event:7=delayed:40000ms")
        };
        let (at, fault) = text.split_once('=').ok_or_else(wrong)?;
        let (what, n) = at.split_once(':').ok_or_else(wrong)?;
        let n = n.parse().map_err(|_| wrong())?;
        let at = match what {
            "write" => FaultTarget::Write(n),
            "lease" => FaultTarget::Lease(n),
            "read" => FaultTarget::Read(n),
            "event" => FaultTarget::Event(n),
            "review" => FaultTarget::Review(n),
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
            "off" => Fault::Off(millis()?),
            name => FAULT_NAMES.iter().find(|(_, plain)| *plain == name).ok_or_else(wrong)?.0,
        };
        Ok(Self { at, fault })
    }
}

/// Fault rates, until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRates {
    /// Faults per thousand requests; of webhooks, which are asked seldom, four times as many.
    pub requests: u64,
    /// Faults per thousand events.
    pub events: u64,
    /// How many replicas are killed at most.
    pub kills: u32,
    /// No fault later than this, from the beginning of the run.
    pub until: Duration,
}

/// Decides what goes wrong, and records what did.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    seed: u64,
    planned: Vec<PlannedFault>,
    fault_rates: Option<FaultRates>,
    kills: u32,
    fired: Vec<PlannedFault>,
    writes: u64,
    leases: u64,
    reads: u64,
    events: u64,
    reviews: u64,
}

/// What kind of request it is, to faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Write,
    Lease,
    Read,
}

impl Faults {
    pub(crate) fn new(seed: u64, planned: Vec<PlannedFault>, fault_rates: Option<FaultRates>) -> Self {
        let kills = fault_rates.map_or(0, |fault_rates| fault_rates.kills);
        Self {
            seed,
            planned,
            fault_rates,
            kills,
            fired: Vec::new(),
            writes: 0,
            leases: 0,
            reads: 0,
            events: 0,
            reviews: 0,
        }
    }

    /// Nothing goes wrong.
    pub(crate) fn none() -> Self {
        Self::new(0, Vec::new(), None)
    }

    /// What went wrong so far.
    pub(crate) fn fired(&self) -> &[PlannedFault] {
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
    pub(crate) fn of_request(&mut self, sort: RequestKind, now: Duration) -> Option<Fault> {
        let counter = match sort {
            RequestKind::Write => &mut self.writes,
            RequestKind::Lease => &mut self.leases,
            RequestKind::Read => &mut self.reads,
        };
        let n = *counter;
        *counter += 1;
        let at = match sort {
            RequestKind::Write => FaultTarget::Write(n),
            RequestKind::Lease => FaultTarget::Lease(n),
            RequestKind::Read => FaultTarget::Read(n),
        };
        let fault = self.planned(at).or_else(|| self.random_request_fault(sort, n, now));
        self.fire(at, fault)
    }

    /// The fault of the next event.
    pub(crate) fn of_event(&mut self, now: Duration) -> Option<Fault> {
        let n = self.events;
        self.events += 1;
        let at = FaultTarget::Event(n);
        let fault = self.planned(at).or_else(|| self.random_event_fault(n, now));
        self.fire(at, fault)
    }

    /// The number of the next question to a webhook, and its fault.
    pub(crate) fn of_review(&mut self, now: Duration) -> (u64, Option<Fault>) {
        let n = self.reviews;
        self.reviews += 1;
        let at = FaultTarget::Review(n);
        let fault = self.planned(at).or_else(|| self.random_review_fault(n, now));
        (n, self.fire(at, fault))
    }

    fn fire(&mut self, at: FaultTarget, fault: Option<Fault>) -> Option<Fault> {
        self.fired.extend(fault.map(|fault| PlannedFault { at, fault }));
        fault
    }

    fn planned(&self, at: FaultTarget) -> Option<Fault> {
        self.planned.iter().find(|planned| planned.at == at).map(|planned| planned.fault)
    }

    fn random_request_fault(&mut self, sort: RequestKind, n: u64, now: Duration) -> Option<Fault> {
        let fault_rates = self.fault_rates.filter(|fault_rates| now < fault_rates.until)?;
        let stream = match sort {
            RequestKind::Write => 11,
            RequestKind::Lease => 12,
            RequestKind::Read => 13,
        };
        let mut rng = rng(self.seed, stream, n);
        if rng.next_u64() % 1000 >= fault_rates.requests {
            return None;
        }
        let late = rng.between(Duration::from_millis(100), Duration::from_secs(20));
        Some(match rng.next_u64() % 10 {
            0 | 1 if self.kills > 0 && sort != RequestKind::Read => {
                self.kills -= 1;
                if rng.next_u64().is_multiple_of(2) { Fault::KilledBefore } else { Fault::KilledAfter }
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

    fn random_event_fault(&self, n: u64, now: Duration) -> Option<Fault> {
        let fault_rates = self.fault_rates.filter(|fault_rates| now < fault_rates.until)?;
        let mut rng = rng(self.seed, 14, n);
        if rng.next_u64() % 1000 >= fault_rates.events {
            return None;
        }
        let long = rng.between(Duration::from_millis(100), Duration::from_secs(40));
        Some(match rng.next_u64() % 12 {
            0 => Fault::Dropped,
            1..=3 => Fault::Ended,
            4 | 5 => Fault::Broken,
            6 | 7 => Fault::Expired,
            8 => Fault::Silent,
            _ => Fault::Delayed(long),
        })
    }

    fn random_review_fault(&self, n: u64, now: Duration) -> Option<Fault> {
        let fault_rates = self.fault_rates.filter(|fault_rates| now < fault_rates.until)?;
        let mut rng = rng(self.seed, 15, n);
        if rng.next_u64() % 1000 >= fault_rates.requests * 4 {
            return None;
        }
        // The API server waits 2 s.
        let late = rng.between(Duration::from_millis(100), Duration::from_secs(4));
        let off = rng.between(Duration::from_secs(1), Duration::from_mins(1));
        Some(match rng.next_u64() % 6 {
            0 => Fault::Lost,
            1 => Fault::Twice,
            2 => Fault::Off(off),
            3 => Fault::Refused(500),
            _ => Fault::Late(late),
        })
    }
}

/// The seeded RNG for the n-th choice of a kind: choices do not depend on how many others were made before, so that
/// leaving one fault out of a plan disturbs the rest of the run as little as possible.
pub fn rng(seed: u64, stream: u64, n: u64) -> SeededRng {
    let mut mixed = SeededRng::new(seed ^ stream.wrapping_mul(0x9FB2_1C65_1E98_DF25));
    SeededRng::new(mixed.next_u64() ^ n.wrapping_mul(0xD6E8_FEB8_6659_FD93))
}
