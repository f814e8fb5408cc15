//! Instructions by callgrind: the same from run to run, however busy the machine is, so that a regression shows.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::{Shape, Work};
use crate::stats::count;

/// Passes of the shorter and of the longer call. What both do (start, building the fleet) is in neither's difference.
const SHORT: usize = 1;
const LONG: usize = 3;

/// Instructions for one namespace (or one change) of this work, by running this very program's driver under valgrind.
pub fn instructions(shape: Shape, work: Work) -> anyhow::Result<f64> {
    let program = std::env::current_exe().context("find this program")?;
    let short = under_callgrind(&program, shape, work, SHORT)?;
    let long = under_callgrind(&program, shape, work, LONG)?;
    let more = long.checked_sub(short).context("more work needed fewer instructions")?;
    Ok(count(usize::try_from(more)?) / count((LONG - SHORT) * shape.namespaces))
}

fn under_callgrind(program: &Path, shape: Shape, work: Work, times: usize) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(["--namespaces", &shape.namespaces.to_string(), "--pods", &shape.pods.to_string()])
        .args(["--drive", work.word(), "--times", &times.to_string()])
        .output()
        .context("run valgrind (install it)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "valgrind failed: {}", said.trim());
    let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    total(&text).context("callgrind's output has no total")
}

/// The total of a callgrind output file.
fn total(text: &str) -> Option<u64> {
    let of = |name: &str| text.lines().rev().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    of("totals:").or_else(|| of("summary:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        let text = "version: 1\nevents: Ir\nsummary: 12\n\nfn=(1) main\n3 5\n\ntotals: 1234567890123\n";
        assert_eq!(total(text), Some(1_234_567_890_123));
        assert_eq!(total("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(total("events: Ir\n"), None);
    }
}
