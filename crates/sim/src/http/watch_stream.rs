//! A watch as a stream of lines, as they happen.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch as latest;
use tokio::time::Instant;

use super::Shared;
use crate::server::{Revision, Watch};

/// How long a watch lasts if its client does not say.
const MAX_WATCH: Duration = Duration::from_mins(30);
/// Between two bookmarks.
const BOOKMARKS: Duration = Duration::from_mins(1);

struct WatchStream {
    shared: Shared,
    watch: Watch,
    revised: latest::Receiver<Revision>,
    ends: Instant,
    bookmark: Instant,
}

/// Lines as they happen, until the client's time is up or there was an error.
pub(super) fn stream(shared: Shared, watch: Watch) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let now = Instant::now();
    let ends = now + watch.timeout().unwrap_or(MAX_WATCH).min(MAX_WATCH);
    let revised = shared.revised.subscribe();
    let stream = WatchStream { shared, watch, revised, ends, bookmark: now + BOOKMARKS };
    futures::stream::unfold(stream, |mut stream| async {
        let lines = stream.lines().await?;
        Some((Ok(lines), stream))
    })
}

impl WatchStream {
    /// The lines to send, at least one; none at the end.
    async fn lines(&mut self) -> Option<Bytes> {
        loop {
            self.revised.mark_unchanged();
            let mut lines = Vec::new();
            {
                let inner = self.shared.lock();
                while let Some(event) = inner.server.next(&mut self.watch, Revision::MAX) {
                    lines.extend(event.to_bytes());
                }
                if self.watch.wants_bookmarks() && Instant::now() >= self.bookmark {
                    lines.extend(inner.server.bookmark(&self.watch).to_bytes());
                    self.bookmark = Instant::now() + BOOKMARKS;
                }
            }
            if !lines.is_empty() {
                return Some(lines.into());
            }
            if self.watch.ended() || Instant::now() >= self.ends {
                return None;
            }
            let next = if self.watch.wants_bookmarks() { self.bookmark.min(self.ends) } else { self.ends };
            tokio::select! {
                _ = self.revised.changed() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }
}
