//! Where something was measured, and how busy it was meanwhile.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use serde::Serialize;

/// A machine, as far as it explains figures.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many processors this process may use.
    pub processors: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's version.
    pub kernel: String,
    /// Runnable processes, averaged over a minute, before anything was started: what others do.
    pub load_before: String,
    /// The same at the end. It has the benchmark's own work in it.
    pub load_after: String,
    /// How this program and the operator were built.
    pub build: String,
    /// The commit that they were built from, as far as git tells.
    pub commit: String,
    /// When it began.
    pub date: String,
    /// The command with its arguments.
    pub command: String,
    /// Variables of the operator's environment that matter.
    pub environment: BTreeSet<String>,
}

impl Machine {
    /// This machine, now.
    pub fn detect(build: String, repository: &Path, date: Timestamp) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let variables = std::env::vars().filter(|(name, _)| {
            ["MIMALLOC_", "GOGC", "GOMEMLIMIT", "GOMAXPROCS"].iter().any(|known| name.starts_with(known))
        });
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: field(&read("/proc/meminfo"), "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_before: load(),
            load_after: String::new(),
            build,
            commit: commit(repository).unwrap_or_else(|| "unknown".to_owned()),
            date: format!("{date:.0}"),
            command: command(std::env::args()),
            environment: variables.map(|(name, value)| format!("{name}={value}")).collect(),
        }
    }

    /// Notes how busy it is at the end.
    pub fn measure_load_after(&mut self) {
        self.load_after = load();
    }
}

/// The commit, and whether files differ from it.
fn commit(repository: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(repository).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // The report itself is written into the checkout.
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs/benchmarks"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

/// The command as one would type it: the program by its name, without the folder of the build.
fn command(mut args: impl Iterator<Item = String>) -> String {
    let program = args.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// The first value of `name: value`.
fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_no_folder() {
        let args = ["/somewhere/release/coppice-bench", "engine", "--quick"].map(str::to_owned);
        assert_eq!(command(args.into_iter()), "coppice-bench engine --quick");
    }

    #[test]
    fn a_field_is_read_without_its_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz: fast\nmodel name\t: another\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2 GHz: fast"));
        assert_eq!(field("MemTotal:       24 kB\n", "MemTotal").as_deref(), Some("24 kB"));
        assert_eq!(field(text, "flags"), None);
    }
}
