//! What happened in a run, in order: who did what, when, and what was answered. Two runs of one seed have equal traces, byte by byte.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// A replica of a program, in one of its lives: the first is 0, and each restart begins another.
    Replica {
        /// Which replica.
        replica: usize,
        /// Which life of it.
        incarnation: u32,
    },
    /// A person, or a program of theirs.
    User(&'static str),
    /// The rest of Kubernetes: its other controllers, and the fake node.
    Cluster,
    /// The receiver of webhooks.
    Receiver,
    /// The API server, which asks an admission webhook.
    Admission,
    /// The planner of the faults.
    Faults,
}

impl Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica { replica, incarnation } => f.pad(&format!("replica-{replica}.{incarnation}")),
            Self::User(name) => f.pad(name),
            Self::Cluster => f.pad("cluster"),
            Self::Receiver => f.pad("receiver"),
            Self::Admission => f.pad("admission"),
            Self::Faults => f.pad("FAULT"),
        }
    }
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// The virtual time since the run began.
    pub at: Duration,
    /// Who.
    pub who: Actor,
    /// What, and its outcome.
    pub what: String,
    /// The newest revision afterwards.
    pub revision: u64,
}

impl Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at.as_secs(), self.at.subsec_millis());
        write!(f, "{seconds:>6}.{millis:03}s  r{:<5} {:<12} {}", self.revision, self.who, self.what)
    }
}

/// The lines of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    lines: Vec<TraceLine>,
    muted: bool,
}

impl Trace {
    /// Notes something.
    pub(crate) fn note(&mut self, line: TraceLine) {
        if !self.muted {
            self.lines.push(line);
        }
    }

    /// Nothing is noted any more.
    pub(crate) fn stop_recording(&mut self) {
        self.muted = true;
    }

    /// Every line, in order.
    pub fn lines(&self) -> &[TraceLine] {
        &self.lines
    }

    /// The first line in which another trace differs, and the other's line.
    pub fn difference(&self, other: &Self) -> Option<(String, String)> {
        let show = |line: Option<&TraceLine>| line.map_or("the trace ends".to_owned(), ToString::to_string);
        let most = self.lines.len().max(other.lines.len());
        let at = (0..most).find(|&n| self.lines.get(n) != other.lines.get(n))?;
        Some((show(self.lines.get(at)), show(other.lines.get(at))))
    }

    /// As a timeline to read: without the renewals of the lease, of which there are many, unless asked for.
    pub fn timeline(&self, all: bool) -> String {
        let mut text = String::new();
        for line in self.lines.iter().filter(|line| all || !is_routine(&line.what)) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

fn is_routine(what: &str) -> bool {
    what.contains("/leases/") && what.contains("→ 200")
        || what.starts_with("WATCH")
        || what.starts_with("  ↳")
}
