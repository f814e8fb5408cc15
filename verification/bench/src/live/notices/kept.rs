//! A program that is measured and may end: it is started again, as a kubelet does, and its end is a part of what is measured.

use std::time::Duration;

use anyhow::ensure;
use coppice_tests::program::Program;
use coppice_tests::scale::process::Sample;
use jiff::Timestamp;
use serde::Serialize;

use crate::live::{Running, now};

/// One that ends more often is not measured any longer.
const MOST_ENDS: usize = 10;
/// A process whose memory is gone has so long to be reported as ended.
pub(super) const END_REPORTED: Duration = Duration::from_secs(5);

/// A process with memory.
pub(super) trait Process {
    /// Memory and processor time now; an error if it has ended.
    fn sample(&self) -> anyhow::Result<Sample>;
    /// How it ended, with the last lines of its log; none if it runs.
    async fn end(&mut self) -> anyhow::Result<Option<String>>;
}

impl Process for Running {
    fn sample(&self) -> anyhow::Result<Sample> {
        Self::sample(self)
    }

    async fn end(&mut self) -> anyhow::Result<Option<String>> {
        match tokio::time::timeout(END_REPORTED, self.ended()).await {
            Ok(status) => Ok(Some(format!("{}; its log ends with:\n{}", status?, self.last_lines()))),
            Err(_) => Ok(None),
        }
    }
}

impl Process for Program {
    fn sample(&self) -> anyhow::Result<Sample> {
        Self::sample(self)
    }

    async fn end(&mut self) -> anyhow::Result<Option<String>> {
        match tokio::time::timeout(END_REPORTED, self.ended()).await {
            Ok(status) => Ok(Some(format!("{}; {}", status?, self.last_lines()))),
            Err(_) => Ok(None),
        }
    }
}

/// An end of the program.
#[derive(Clone, Debug, Serialize)]
pub(super) struct End {
    /// When it was seen.
    pub(super) at: Timestamp,
    /// How it ended, with the last lines of its log.
    pub(super) how: String,
}

/// A program that is started again when it has ended.
pub(super) struct Kept<P, S> {
    process: P,
    start: S,
    /// Of those that have ended: the most memory, and all processor time that is known.
    before: Sample,
    last: Sample,
    ends: usize,
}

impl<P: Process, S: AsyncFnMut() -> anyhow::Result<P>> Kept<P, S> {
    /// Keeps this one, and what that starts when it has ended.
    pub(super) fn new(process: P, start: S) -> Self {
        Self { process, start, before: Sample::default(), last: Sample::default(), ends: 0 }
    }

    /// Memory now, the peak and the processor time of it and all before it; and its end if it had to be started again.
    pub(super) async fn sample(&mut self) -> anyhow::Result<(Sample, Option<End>)> {
        let (sample, end) = match self.process.sample() {
            Ok(sample) => (sample, None),
            Err(error) => {
                let Some(how) = self.process.end().await? else { return Err(error) };
                self.ends += 1;
                ensure!(self.ends <= MOST_ENDS, "it has ended {} times, at last with {how}", self.ends);
                self.before = self.last;
                self.process = (self.start)().await?;
                (self.process.sample()?, Some(End { at: now(), how }))
            }
        };
        let peak = sample.peak.max(self.before.peak);
        self.last = Sample { peak, cpu: sample.cpu + self.before.cpu, ..sample };
        Ok((self.last, end))
    }

    /// The one that runs.
    pub(super) fn into_inner(self) -> P {
        self.process
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    /// Ends after so many samples.
    struct Mortal {
        left: std::cell::Cell<u32>,
        sample: Sample,
    }

    impl Process for Mortal {
        fn sample(&self) -> anyhow::Result<Sample> {
            let left = self.left.get().checked_sub(1).ok_or_else(|| anyhow!("no memory any more"))?;
            self.left.set(left);
            Ok(self.sample)
        }

        async fn end(&mut self) -> anyhow::Result<Option<String>> {
            Ok((self.left.get() == 0).then(|| "exit status: 1".to_owned()))
        }
    }

    fn mortal(left: u32, peak: u64, cpu: f64) -> Mortal {
        Mortal { left: left.into(), sample: Sample { peak, cpu, ..Sample::default() } }
    }

    #[tokio::test]
    async fn one_that_ends_is_started_again_and_its_figures_go_on() {
        let mut kept = Kept::new(mortal(1, 9, 2.0), async || Ok(mortal(2, 4, 0.5)));
        assert!(kept.sample().await.unwrap().1.is_none());
        let (sample, end) = kept.sample().await.unwrap();
        assert_eq!(end.unwrap().how, "exit status: 1");
        assert_eq!(sample.peak, 9, "the most of all of them");
        assert!((sample.cpu - 2.5).abs() < f64::EPSILON, "{}", sample.cpu);
        let (sample, end) = kept.sample().await.unwrap();
        assert!(end.is_none() && (sample.cpu - 2.5).abs() < f64::EPSILON, "{}", sample.cpu);
    }

    #[tokio::test]
    async fn one_that_always_ends_is_an_error_that_says_how() {
        let mut kept = Kept::new(mortal(0, 1, 0.0), async || Ok(mortal(1, 1, 0.0)));
        let error = loop {
            if let Err(error) = kept.sample().await {
                break format!("{error:#}");
            }
        };
        assert!(error.contains("11 times, at last with exit status: 1"), "{error}");
    }
}
