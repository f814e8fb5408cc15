//! What people and the cluster do in a run, while the programs work: the same in every run, whatever the faults.

pub mod objects;

use std::sync::Arc;
use std::time::Duration;

use crate::receiver::ReceiverBehavior;
use crate::server::{Request, Server};
use crate::target::TargetSettings;

/// A scenario.
#[derive(Clone)]
pub struct Scenario {
    /// Its name, as on the command line.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The objects at the beginning.
    pub setup: Vec<Request>,
    /// What happens then, in order.
    pub script: Vec<ScriptStep>,
    /// What the receiver of webhooks does, attempt by attempt.
    pub receiver: Vec<ReceiverBehavior>,
    /// How many replicas of each program run.
    pub replicas: usize,
    /// What is wrong with reads, whatever other faults there are.
    pub read_fault: Option<ReadFault>,
    /// Whether the admission webhooks of the programs are installed: whether the API server asks them what people do in the script.
    pub webhooks: bool,
    /// Another cluster, for programs that work in others.
    pub target: Option<TargetSettings>,
    /// How it ends, whatever goes wrong on the way, in lines that the judge of the runs compares.
    pub ends: Vec<&'static str>,
    /// When everything has happened, if nothing goes wrong.
    pub lasts: Duration,
}

/// Reads that go wrong for a time.
#[derive(Clone, Copy, Debug)]
pub struct ReadFault {
    /// The end of the path that is read.
    pub path: &'static str,
    /// From when until when, from the beginning.
    pub during: (Duration, Duration),
    /// What is answered instead.
    pub answer: ReadAnswer,
}

/// What is answered in the place of what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    /// 503, to reads and watches.
    Unavailable,
    /// To lists: that there is nothing. Watches go on.
    Nothing,
}

/// Something that somebody does.
#[derive(Clone)]
pub struct ScriptStep {
    /// Not before this time, from the beginning.
    pub at: Duration,
    /// Not before this is so. Checked after every change.
    pub once: Option<fn(&Server) -> bool>,
    /// Who does it.
    pub who: &'static str,
    /// What they do, given the state of the cluster.
    pub action: ScriptAction,
    /// It may be refused.
    pub may_fail: bool,
}

/// What somebody does.
#[derive(Clone)]
pub enum ScriptAction {
    /// A request, made from the state of the cluster.
    Request(Arc<dyn Fn(&Server) -> Request + Send + Sync>),
    /// The replica that holds the lease is killed, of each program.
    KillLeader,
    /// The API server compacts its history: every watch of every replica ends, and none can go on from where it was.
    CompactHistory,
    /// Nobody reaches the target for this long.
    TargetAway(Duration),
}

impl ScriptStep {
    /// A request at a time.
    pub fn at(seconds: u64, action: impl Fn(&Server) -> Request + Send + Sync + 'static) -> Self {
        let action = ScriptAction::Request(Arc::new(action));
        Self { at: Duration::from_secs(seconds), once: None, who: "alice", action, may_fail: false }
    }

    /// The end of the replica that leads.
    pub fn kill_leader(seconds: u64) -> Self {
        let at = Duration::from_secs(seconds);
        Self { at, once: None, who: "alice", action: ScriptAction::KillLeader, may_fail: false }
    }

    /// The end of all watches.
    pub fn compact_history(seconds: u64) -> Self {
        let at = Duration::from_secs(seconds);
        Self { at, once: None, who: "alice", action: ScriptAction::CompactHistory, may_fail: false }
    }

    /// Nobody reaches the target for so many seconds.
    pub fn target_away(seconds: u64, lasts: u64) -> Self {
        let at = Duration::from_secs(seconds);
        let action = ScriptAction::TargetAway(Duration::from_secs(lasts));
        Self { at, once: None, who: "alice", action, may_fail: false }
    }

    /// The same, but once the condition holds.
    #[must_use]
    pub fn once(self, once: fn(&Server) -> bool) -> Self {
        Self { once: Some(once), ..self }
    }

    /// The same, and it does not matter whether it is done.
    #[must_use]
    pub fn or_not(self) -> Self {
        Self { may_fail: true, ..self }
    }
}
