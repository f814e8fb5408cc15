//! Waiting for the outcome of what was asked for. Only the state counts, so it is read again and again.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::time::Duration as Time;

use anyhow::Result;
use clap::Args;
use coppice_quantity::Duration;

use crate::args::positive_duration;

/// Between two reads.
pub(crate) const PAUSE: Time = Time::from_millis(300);

/// Whether a command waits.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Wait for the outcome, at most so long; 60s if no time is given
    #[arg(
        long = "wait",
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "60s",
        value_parser = positive_duration
    )]
    pub(crate) most: Option<Duration>,
}

/// Looks until there is an outcome; none if there was none in time.
pub(crate) async fn until<T>(
    most: Duration,
    look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    until_every(PAUSE, most, look).await
}

/// The same with such a pause between two looks.
pub(crate) async fn until_every<T>(
    pause: Time,
    most: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let looking = async {
        loop {
            if let Some(outcome) = look().await? {
                return Ok(outcome);
            }
            tokio::time::sleep(pause).await;
        }
    };
    tokio::time::timeout(most.into(), looking).await.map_or(Ok(None), |outcome| outcome.map(Some))
}

/// Looks until there is nothing any more: none. Otherwise it is still there, as it was seen last; not seen at all where the time was too
/// short for one look.
pub(crate) async fn until_gone<T>(
    most: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<Option<Option<T>>> {
    let mut last = None;
    let gone = until(most, async || {
        last = look().await?;
        Ok(last.is_none().then_some(()))
    });
    Ok(if gone.await?.is_some() { None } else { Some(last) })
}
