//! How soon the program of trees is ready again with the grown tree, and how much memory it has then.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::ensure;
use coppice_tests::Operator;
use coppice_tests::scale::process::{Sample, Series};

use super::{PROGRAM, TreesBench};
use crate::live::progress;
use crate::live::testbed::pause;
use crate::stats::mib;

/// How often the program is asked whether anything waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Its memory is read after so long.
const REST: Duration = Duration::from_secs(15);
/// Generous: a busy machine is not a broken program.
const TIMEOUT: Duration = Duration::from_mins(5);

/// One start.
pub(super) struct Start {
    /// Seconds until `/readyz` answered 200: everything has been read, and reconciled once.
    ready: f64,
    /// Seconds until it led as well, and nothing waited.
    settled: f64,
    sample: Sample,
}

impl TreesBench {
    /// Stops it in order and starts it again, as often as is asked for.
    pub(super) async fn starts(&mut self) -> anyhow::Result<Vec<Start>> {
        let mut starts = Vec::new();
        for number in 1..=self.args.starts {
            progress(&format!("start {number}"));
            let status = self.program.terminate().await?;
            ensure!(status.success(), "the program has ended with {status}: {}", self.program.last_lines());
            let began = Instant::now();
            self.program = Operator::spawn_by(&self.test_cluster, &self.account, &PROGRAM).await?;
            self.program.ready(&self.test_cluster).await?;
            let ready = began.elapsed().as_secs_f64();
            self.program.leads(&self.test_cluster).await?;
            while self.waiting().await? {
                ensure!(began.elapsed() < TIMEOUT, "it is not settled: {}", self.program.last_lines());
                pause(POLL_INTERVAL).await;
            }
            let settled = began.elapsed().as_secs_f64();
            pause(REST).await;
            starts.push(Start { ready, settled, sample: self.program.sample()? });
        }
        Ok(starts)
    }

    /// Whether any object is being worked on or waits for its turn.
    async fn waiting(&self) -> anyhow::Result<bool> {
        let series = Series(self.program.http("/metrics").await?);
        Ok(series.sum("coppice_queue_depth") + series.sum("coppice_queue_running") > 0.0)
    }
}

/// The figures, as Markdown.
pub(super) fn table(grown: &Sample, starts: &[Start], namespaces: usize) -> anyhow::Result<String> {
    let mut text = format!(
        "\n| The program with {namespaces} namespaces | ready s | settled s | memory MiB | peak MiB |\n"
    );
    writeln!(text, "| --- | ---: | ---: | ---: | ---: |")?;
    let (memory, peak) = (mib(grown.rss), mib(grown.peak));
    writeln!(text, "| since the tree was created | | | {memory:.1} | {peak:.1} |")?;
    for (number, Start { ready, settled, sample }) in starts.iter().enumerate() {
        let (memory, peak) = (mib(sample.rss), mib(sample.peak));
        writeln!(
            text,
            "| started again, {} | {ready:.2} | {settled:.2} | {memory:.1} | {peak:.1} |",
            number + 1
        )?;
    }
    Ok(text)
}
