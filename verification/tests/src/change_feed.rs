//! Wakes those who wait whenever anything on a plane changes: one watch of all that etcd keeps, read in this process.
//!
//! What has changed is not looked at: who is woken reads the API server. So nothing depends on how it stores things, and a
//! kind that is not there yet is no special case.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

/// A plane that is busy wakes nobody more often than this.
const MIN_INTERVAL: Duration = Duration::from_millis(25);
/// What is not on the plane, such as an operator's metrics, is looked at this often.
const TICK: Duration = Duration::from_millis(200);

/// The watch of one plane; open as long as anybody waits.
#[derive(Default)]
pub struct ChangeFeed(Mutex<Weak<FeedState>>);

struct FeedState {
    changes: watch::Sender<()>,
    reading: JoinHandle<()>,
}

impl Drop for FeedState {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// One that waits for changes.
pub struct Changes {
    changes: watch::Receiver<()>,
    /// None if etcd cannot be watched, as when it has ended: then there are ticks only.
    _feed: Option<Arc<FeedState>>,
}

impl ChangeFeed {
    /// Every change from now on.
    pub async fn changes(&self, etcd: &str) -> Changes {
        let mut known = self.0.lock().await;
        let feed = match known.upgrade() {
            Some(feed) => Some(feed),
            None => FeedState::start(etcd).await.ok().map(Arc::new),
        };
        *known = feed.as_ref().map(Arc::downgrade).unwrap_or_default();
        let changes = feed.as_ref().map_or_else(|| watch::channel(()).1, |feed| feed.changes.subscribe());
        Changes { changes, _feed: feed }
    }
}

impl FeedState {
    async fn start(etcd: &str) -> anyhow::Result<Self> {
        let all = json!({"key": STANDARD.encode("/registry/"), "range_end": STANDARD.encode("/registry0")});
        let request = reqwest::Client::builder().no_proxy().build()?.post(format!("{etcd}/v3/watch"));
        // Answered when the watch is there.
        let mut answer = request.body(json!({"create_request": all}).to_string()).send().await?;
        let changes = watch::Sender::new(());
        let notify = changes.clone();
        let reading = tokio::spawn(async move {
            while let Ok(Some(_)) = answer.chunk().await {
                notify.send_replace(());
            }
        });
        Ok(Self { changes, reading })
    }
}

impl Changes {
    /// From here on a change counts.
    pub fn mark(&mut self) {
        self.changes.mark_unchanged();
    }

    /// Waits for a change since the [mark](Self::mark), or a tick.
    pub async fn next(&mut self) {
        tokio::time::sleep(MIN_INTERVAL).await;
        let _ = tokio::time::timeout(TICK, self.changes.changed()).await;
    }
}
