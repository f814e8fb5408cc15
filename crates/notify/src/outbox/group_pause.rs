//! Channels that do not work at present: one attempt at a time tries whether they do again, and all else waits.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a group waits after a failure that is not that of one message, such as a refused login, which is not to be repeated for each
/// of thousands of messages.
#[derive(Clone, Copy, Debug)]
pub struct GroupPauseRule {
    /// After the first failure, unless the receiver asks for more. Each further one in a row makes it twice as long.
    pub first: Duration,
    /// The longest.
    pub longest: Duration,
}

/// The groups that wait.
pub(super) struct GroupPauses {
    rule: Option<GroupPauseRule>,
    paused: HashMap<String, GroupPause>,
}

struct GroupPause {
    failures: u32,
    until: Instant,
}

impl GroupPauses {
    pub(super) fn new(rule: Option<GroupPauseRule>) -> Self {
        Self { rule, paused: HashMap::new() }
    }

    /// Whether an attempt may begin for a group of which so many are being made.
    pub(super) fn permits(&self, group: &str, running: usize, now: Instant) -> bool {
        self.paused.get(group).is_none_or(|pause| pause.until <= now && running == 0)
    }

    /// An attempt shows that it works.
    pub(super) fn works(&mut self, group: &str) {
        self.paused.remove(group);
    }

    /// An attempt shows that it does not work, and the receiver asks to wait so long. Returns until when the group waits, if that has
    /// just been decided.
    pub(super) fn fails(&mut self, group: &str, asked: Duration, now: Instant) -> Option<Instant> {
        let rule = self.rule?;
        let pause = self.paused.entry(group.to_owned()).or_insert(GroupPause { failures: 0, until: now });
        // Several that had begun before the first of them failed are one failure.
        if now < pause.until {
            return None;
        }
        let doubled = rule.first.saturating_mul(1 << pause.failures.min(16));
        pause.failures += 1;
        pause.until = now + doubled.max(asked).min(rule.longest);
        Some(pause.until)
    }
}
