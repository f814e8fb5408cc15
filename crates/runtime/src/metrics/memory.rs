//! What the process needs of memory and may need, read when metrics are. Linux alone says so; elsewhere nothing is shown.

use std::fmt;
use std::fs;
use std::path::Path;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// What the kernel says of this process.
const STATUS: &str = "/proc/self/status";
/// The limit of the control group that a container is the root of.
const LIMIT: &str = "/sys/fs/cgroup/memory.max";

/// The memory of this process and its limit.
#[derive(Debug)]
pub(super) struct Memory {
    described: bool,
}

impl Memory {
    /// If `described`, each metric is there, whatever the machine says.
    pub(super) fn new(described: bool) -> Self {
        Self { described }
    }

    fn read(&self, path: &str, parse: fn(&str) -> Option<i64>) -> Option<i64> {
        if self.described {
            return Some(0);
        }
        parse(&fs::read_to_string(Path::new(path)).ok()?)
    }
}

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut show = |name, help, bytes: Option<i64>| {
            let Some(bytes) = bytes else { return Ok(()) };
            let gauge = ConstGauge::new(bytes);
            gauge.encode(encoder.encode_descriptor(name, help, Some(&Unit::Bytes), gauge.metric_type())?)
        };
        let help = "Memory of the process that is in RAM.";
        show("process_resident_memory", help, self.read(STATUS, resident))?;
        let help = "Memory that the container may have. Absent without a limit, and without control groups of version 2.";
        show("process_memory_limit", help, self.read(LIMIT, limit))
    }
}

/// `VmRSS:     1234 kB`, in bytes.
fn resident(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

/// A number of bytes, or `max`.
fn limit(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn what_the_kernel_writes_is_read_as_bytes() {
        let status = "Name:\tcoppice-operator\nVmHWM:\t   26000 kB\nVmRSS:\t   25000 kB\nThreads:\t4\n";
        assert_eq!(resident(status), Some(25_600_000));
        assert_eq!(resident("Name:\tkthreadd\n"), None, "a thread of the kernel has no memory");
        assert_eq!(resident("VmRSS:\t 25000 MB\n"), None);
        assert_eq!(limit("268435456\n"), Some(268_435_456));
        assert_eq!(limit("max\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_shows_its_own_memory() {
        let text = Metrics::new("test").encode();
        let shown = text.lines().find_map(|line| line.strip_prefix("coppice_process_resident_memory_bytes "));
        let bytes: i64 = shown.unwrap().parse().unwrap();
        // A test program that has started needs more than a megabyte, and far less than a terabyte.
        assert!((1 << 20..1 << 40).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_described_registry_shows_both() {
        let text = Metrics::described().encode();
        for line in ["coppice_process_resident_memory_bytes 0", "coppice_process_memory_limit_bytes 0"] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }
}
