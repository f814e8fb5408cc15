//! Bodies on their way to the client, and what is learnt from them.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::mpsc;

use super::{answer::Corruption, request::Known, server::Shared};

/// The connection is cut here.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cut by the proxy")]
pub(super) struct Cut;

/// The body of an answer, written by a task through its [`Pipe`].
#[derive(Debug)]
pub(super) struct Outgoing(mpsc::Receiver<Result<Bytes, Cut>>);

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.0.poll_recv(context).map(|next| next.map(|piece| piece.map(Frame::data)))
    }
}

/// The writing end; dropping it ends the body in due form.
#[derive(Debug)]
pub(super) struct Pipe(mpsc::Sender<Result<Bytes, Cut>>);

/// The client has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientGone;

pub(super) fn pipe() -> (Pipe, Outgoing) {
    // As little as possible in between: what is sent is with the client, or nearly so.
    let (sender, receiver) = mpsc::channel(1);
    (Pipe(sender), Outgoing(receiver))
}

impl Pipe {
    /// Sends a piece as soon as the proxy is not frozen.
    pub(super) async fn send(&self, shared: &Shared, piece: Bytes) -> Result<(), ClientGone> {
        shared.thawed().await;
        self.0.send(Ok(piece)).await.map_err(|_| ClientGone)
    }

    pub(super) async fn cut(&self) {
        // Who has left needs no cut.
        let _ = self.0.send(Err(Cut)).await;
    }

    /// Waits until the client has left.
    pub(super) async fn client_gone(&self) {
        self.0.closed().await;
    }

    /// Sends a whole body, or what `corruption` leaves of it.
    pub(super) async fn write(
        &self,
        shared: &Shared,
        body: Bytes,
        corruption: Option<Corruption>,
    ) -> Result<(), ClientGone> {
        match corruption {
            None => self.send(shared, body).await,
            Some(Corruption::Malformed) => self.send(shared, half(&body)).await,
            Some(Corruption::Truncated) => {
                self.send(shared, half(&body)).await?;
                self.cut().await;
                Ok(())
            }
            Some(Corruption::Slow(time)) => self.drip(shared, body, time).await,
        }
    }

    async fn drip(&self, shared: &Shared, mut body: Bytes, time: Duration) -> Result<(), ClientGone> {
        const PIECES: u32 = 16;
        let size = body.len().div_ceil(PIECES as usize).max(1);
        for _ in 0..PIECES {
            tokio::time::sleep(time / PIECES).await;
            let piece = body.split_to(size.min(body.len()));
            if !piece.is_empty() {
                self.send(shared, piece).await?;
            }
        }
        Ok(())
    }
}

/// What a spoilt body is cut down to.
pub(super) fn half(body: &Bytes) -> Bytes {
    body.slice(..body.len() / 2)
}

/// Reads along as a body passes, and keeps what tells of its object or list: of large ones the ends only.
#[derive(Debug, Default)]
pub(super) struct Reader {
    head: Vec<u8>,
    /// Not more than twice [`END`]; what was before it is dropped once the body is larger than [`WHOLE`].
    tail: Vec<u8>,
    length: usize,
}

/// Bodies up to this length are read as they are. Objects are smaller.
const WHOLE: usize = 2 << 20;
/// The metadata of a list is at either of its ends, and shorter than this.
const END: usize = 8 << 10;

impl Reader {
    pub(super) fn see(&mut self, piece: &[u8]) {
        self.length += piece.len();
        let room = WHOLE.saturating_sub(self.head.len());
        let (head, tail) = piece.split_at(room.min(piece.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(tail);
        if self.tail.len() > 2 * END {
            self.tail.drain(..self.tail.len() - END);
        }
    }

    pub(super) fn known(&self) -> Known {
        if self.length <= WHOLE {
            return Known::of(&self.head);
        }
        let known = from_head(&self.head[..END]).unwrap_or_default();
        if known.resource_version.is_empty() { from_tail(&self.tail).unwrap_or_default() } else { known }
    }
}

/// Lists of typed objects have their metadata first.
fn from_head(head: &[u8]) -> Option<Known> {
    let head = String::from_utf8_lossy(head);
    let (before, _) = head.split_once("\"items\":[")?;
    Some(Known::of(format!("{before}\"items\":[]}}").as_bytes()))
}

/// Lists of custom objects have theirs last, as their fields are in alphabetical order.
fn from_tail(tail: &[u8]) -> Option<Known> {
    let tail = String::from_utf8_lossy(tail);
    let (_, after) = tail.rsplit_once("],\"kind\":")?;
    Some(Known::of(format!("{{\"kind\":{after}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let mut reader = Reader::default();
        text.as_bytes().chunks(1000).for_each(|piece| reader.see(piece));
        reader.known().resource_version
    }

    #[test]
    fn the_revision_of_a_list_is_found_at_either_end() {
        let item = r#"{"metadata":{"name":"x","resourceVersion":"1","managedFields":[{"kind":"y"}]}}"#;
        for count in [1, 100_000] {
            let items = vec![item; count].join(",");
            let typed = format!(
                r#"{{"kind":"L","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#
            );
            let custom = format!(
                r#"{{"apiVersion":"v1","items":[{items}],"kind":"L","metadata":{{"resourceVersion":"7"}}}}"#
            );
            assert_eq!((read(&typed), read(&custom)), ("7".to_owned(), "7".to_owned()), "{count}");
        }
        assert_eq!(read(&" ".repeat(WHOLE + 1)), "");
    }
}
