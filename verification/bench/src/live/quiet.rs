//! When a machine has little else to do: what is measured right after much work is measured together with what that work left to do.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::progress;
use super::testbed::pause;

/// Looked at over so long.
const WINDOW: Duration = Duration::from_secs(5);
/// Quiet: this share of the time of all processors is used, at most.
const QUIET: f64 = 0.15;
/// So long it is waited for; what is measured then has less of the machine, and the report says how much.
const LONGEST: Duration = Duration::from_mins(5);

/// Waits until the machine is quiet; the share of the time of its processors that was used in the end.
///
/// # Errors
/// If the kernel does not say how busy it is.
pub(super) async fn quiet() -> anyhow::Result<f64> {
    let began = Instant::now();
    loop {
        let before = times()?;
        pause(WINDOW).await;
        let used = used(before, times()?);
        if used <= QUIET || began.elapsed() > LONGEST {
            return Ok(used);
        }
        progress(&format!("waits for a quiet machine: {:.0} % of its processors are in use", 100.0 * used));
    }
}

/// What all processors have done since the machine was started, in ticks: everything, and nothing.
fn times() -> anyhow::Result<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    parsed(&stat).context("/proc/stat has no line of all processors")
}

/// As proc(5) has it: user, nice, system, idle, iowait, irq, softirq, steal; what follows is in these already.
fn parsed(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
    let (idle, waiting) = (ticks.get(3)?, ticks.get(4)?);
    Some((ticks.iter().sum(), idle + waiting))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of some seconds")]
fn used((all, idle): (u64, u64), (all_now, idle_now): (u64, u64)) -> f64 {
    let (all, idle) = (all_now.saturating_sub(all), idle_now.saturating_sub(idle));
    if all == 0 { 1.0 } else { 1.0 - idle as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_all_but_idle_and_waiting_for_disks() {
        let before = parsed("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n").unwrap();
        assert_eq!(before, (1000, 850));
        let after = parsed("cpu  130 0 70 940 60 0 0 0 12 0\n").unwrap();
        assert!((used(before, after) - 0.25).abs() < 1e-9, "50 of 200");
        assert!((used(before, before) - 1.0).abs() < 1e-9, "nothing is known of no time");
        assert_eq!(parsed("intr 1 2 3\n"), None);
    }
}
