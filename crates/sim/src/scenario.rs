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
    /// What cannot be read until when: the end of a path. Always answered with 503.
    pub unreadable: Option<(&'static str, Duration)>,
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
}

/// A request, made of what there is.
pub type Does = Arc<dyn Fn(&Server) -> Request + Send + Sync>;

impl Act {
    /// A request at a time.
    pub(crate) fn at(seconds: u64, does: impl Fn(&Server) -> Request + Send + Sync + 'static) -> Self {
        Self { at: Duration::from_secs(seconds), once: None, who: "alice", does: Arc::new(does) }
    }

    /// The same, but once something is so.
    pub(crate) fn once(self, once: fn(&Server) -> bool) -> Self {
        Self { once: Some(once), ..self }
    }
}
