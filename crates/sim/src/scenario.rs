//! What people and the cluster do in a run, while the operator works: the same in every run, whatever goes wrong besides.

mod chain;
mod library;
pub mod objects;

use std::sync::Arc;
use std::time::Duration;

pub use self::chain::wrong_input;
pub use self::library::{all, by_name, named, small};
use crate::receiver::Reaction;
use crate::server::{Request, Server};

/// A story.
#[derive(Clone)]
pub struct Scenario {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// What there is at the beginning.
    pub setup: Vec<Request>,
    /// What happens then, in order.
    pub script: Vec<Act>,
    /// What the receiver of webhooks does, attempt by attempt.
    pub receiver: Vec<Reaction>,
    /// How many replicas of the operator run.
    pub replicas: usize,
    /// What cannot be read, from when until when: the end of a path. Always answered with 503.
    pub unreadable: Option<(&'static str, Duration, Duration)>,
    /// How it ends, whatever goes wrong on the way: [`EndState::unlike`](crate::oracle::EndState::unlike).
    pub ends: Vec<&'static str>,
    /// When everything has happened, if nothing goes wrong.
    pub lasts: Duration,
}

/// Something that somebody does.
#[derive(Clone)]
pub struct Act {
    /// Not before this time, from the beginning.
    pub at: Duration,
    /// Not before this is so. It is looked at after every change.
    pub once: Option<fn(&Server) -> bool>,
    /// Who does it.
    pub who: &'static str,
    /// What they do, given what there is.
    pub does: Does,
    /// It may be refused.
    pub may_fail: bool,
}

/// What somebody does.
#[derive(Clone)]
pub enum Does {
    /// A request, made of what there is.
    Asks(Arc<dyn Fn(&Server) -> Request + Send + Sync>),
    /// The replica that holds the lease is killed.
    KillsTheLeader,
}

impl Act {
    /// A request at a time.
    pub(crate) fn at(seconds: u64, does: impl Fn(&Server) -> Request + Send + Sync + 'static) -> Self {
        let does = Does::Asks(Arc::new(does));
        Self { at: Duration::from_secs(seconds), once: None, who: "alice", does, may_fail: false }
    }

    /// The end of the replica that leads.
    pub(crate) fn kill_the_leader(seconds: u64) -> Self {
        let at = Duration::from_secs(seconds);
        Self { at, once: None, who: "alice", does: Does::KillsTheLeader, may_fail: false }
    }

    /// The same, but once something is so.
    pub(crate) fn once(self, once: fn(&Server) -> bool) -> Self {
        Self { once: Some(once), ..self }
    }

    /// The same, and it does not matter whether it is done.
    pub(crate) fn or_not(self) -> Self {
        Self { may_fail: true, ..self }
    }
}
