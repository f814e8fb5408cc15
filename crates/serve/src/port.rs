//! HTTP for untrusted callers, who may open connections and send nothing; with TLS or without.
//!
//! A connection is served in bounded time and memory. The number of open connections is limited: a new one beyond the limit closes the
//! oldest of whoever has the most. So a caller that sends and reads at once gets an answer, however many others hang.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long requests in progress may take to end when the server stops, or their connection is too old.
const LINGER: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted, for example because the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);
/// The head of a request has to fit into it, in bytes; hyper's least.
const BUFFER: usize = 8192;

/// An answer.
pub type HttpResponse = Response<Full<Bytes>>;

/// What answers the requests on a port.
pub trait Handler: Clone + Send + Sync + 'static {
    /// The answer to a request that came from this address.
    fn respond(&self, peer: IpAddr, request: Request<Incoming>) -> impl Future<Output = HttpResponse> + Send;
}

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; choose another address with {flag}")]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// The flag that names it.
    pub flag: &'static str,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// The limits of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortLimits {
    /// Connections that are open at once, at least 1.
    pub connections: usize,
    /// How long a connection may take until TLS is agreed on, and until the head of its next request is complete.
    pub head: Duration,
    /// How long a connection may take until its answer is taken; where it serves several, how old it gets.
    pub whole: Duration,
    /// Whether a connection serves several requests.
    pub reuse: bool,
}

impl Default for PortLimits {
    /// For callers that ask now and then: a connection for each request.
    fn default() -> Self {
        Self { connections: 32, head: Duration::from_secs(5), whole: Duration::from_secs(10), reuse: false }
    }
}

/// The open port.
#[derive(Debug)]
pub struct Port {
    listener: TcpListener,
}

impl Port {
    /// Opens the port; port 0 takes a free one. `flag` is where the address comes from, for the error.
    pub async fn bind(flag: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| BindError { address, flag, source })?;
        Ok(Self { listener })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, which comes last: during a shutdown the port still answers that the operator is not ready.
    pub async fn serve(
        self,
        handler: impl Handler,
        tls: Option<Arc<ServerConfig>>,
        limits: PortLimits,
        stop: CancellationToken,
    ) {
        let tls = tls.map(TlsAcceptor::from);
        let mut open = Connections::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(id) = open.ended() => open.remove(id),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        open.make_room(limits.connections).await;
                        let peer = peer.ip().to_canonical();
                        open.add(peer, connection(stream, tls.clone(), peer, handler.clone(), limits));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
        // A client that keeps its request open does not keep the process.
        let _ = timeout(LINGER, async { while open.ended().await.is_some() {} }).await;
    }
}

/// The connections that are open.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    /// The oldest first.
    order: VecDeque<(IpAddr, AbortHandle)>,
}

impl Connections {
    fn add(&mut self, peer: IpAddr, connection: impl Future<Output = ()> + Send + 'static) {
        self.order.push_back((peer, self.tasks.spawn(connection)));
    }

    /// Closes the oldest of whoever has the most, until there is room for one more.
    async fn make_room(&mut self, limit: usize) {
        while self.tasks.len() >= limit.max(1) {
            let mut of_each: BTreeMap<IpAddr, usize> = BTreeMap::new();
            for (peer, _) in &self.order {
                *of_each.entry(*peer).or_default() += 1;
            }
            let most = of_each.into_iter().max_by_key(|(_, open)| *open).map(|(peer, _)| peer);
            if let Some(oldest) = self.order.iter().position(|(peer, _)| Some(*peer) == most)
                && let Some((_, task)) = self.order.remove(oldest)
            {
                task.abort();
            }
            if let Some(id) = self.ended().await {
                self.remove(id);
            }
        }
    }

    /// The next one that has ended; none if none is open.
    async fn ended(&mut self) -> Option<Id> {
        self.tasks.join_next_with_id().await.map(|ended| ended.map_or_else(|error| error.id(), |(id, ())| id))
    }

    fn remove(&mut self, id: Id) {
        self.order.retain(|(_, task)| task.id() != id);
    }
}

/// Serves a connection, whose caller may go away or be late at any moment, which is no error of ours.
async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    peer: IpAddr,
    handler: impl Handler,
    limits: PortLimits,
) {
    let Some(tls) = tls else { return requests(stream, peer, handler, limits).await };
    match timeout(limits.head, tls.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, peer, handler, limits).await,
        Ok(Err(error)) => tracing::debug!(%error, %peer, "TLS was not agreed on"),
        Err(_) => tracing::debug!(%peer, "TLS took too long"),
    }
}

async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    peer: IpAddr,
    handler: impl Handler,
    limits: PortLimits,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.respond(peer, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(limits.reuse)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    match timeout(limits.whole, served.as_mut()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, %peer, "a connection ended early"),
        // The request that is being answered is answered.
        Err(_) if limits.reuse => {
            served.as_mut().graceful_shutdown();
            let _ = timeout(LINGER, served).await;
        }
        Err(_) => tracing::debug!(%peer, "a connection took too long"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Port, PortLimits};
    use crate::probes::Probes;
    use coppice_runtime::readiness::Readiness;
    use std::io::ErrorKind;
    use std::net::SocketAddr;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_util::sync::{CancellationToken, DropGuard};

    const LONG: Duration = Duration::from_mins(10);

    async fn serve(limits: PortLimits) -> (SocketAddr, DropGuard) {
        let port = Port::bind("--listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = port.address().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(port.serve(Probes::new(Readiness::new()), None, limits, stop.clone()));
        (address, stop.drop_guard())
    }

    /// A connection over which this much of a request comes, and nothing after it.
    async fn begin(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Everything until the server closes the connection, which it has to do in time.
    async fn read(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut text)).await;
        // What is closed with something unread is reset.
        let _ = read.expect("the connection stays open");
        String::from_utf8(text).unwrap()
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        read(begin(address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await).await
    }

    #[tokio::test]
    async fn a_head_that_never_ends_closes_the_connection_and_holds_up_nobody() {
        let short = Duration::from_millis(300);
        for limits in [
            PortLimits { connections: 100, head: short, whole: LONG, reuse: false },
            PortLimits { connections: 100, head: LONG, whole: short, reuse: false },
        ] {
            let (address, _stop) = serve(limits).await;
            let mut slow = Vec::new();
            for n in 0..50 {
                slow.push(begin(address, ["", "G", "GET /livez HTTP/1.1\r\nhost: a\r\n"][n % 3]).await);
            }
            assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 OK"));
            for stream in slow {
                // Nothing, or that it took too long.
                assert!(!read(stream).await.contains("200"));
            }
        }
    }

    #[tokio::test]
    async fn one_connection_too_many_closes_the_oldest_and_is_answered() {
        let limit = 8;
        let (address, _stop) =
            serve(PortLimits { connections: limit, head: LONG, whole: LONG, reuse: false }).await;
        let mut slow = Vec::new();
        for _ in 0..300 {
            slow.push(begin(address, "GET /livez HTTP/1.1\r\nhost: a\r\n").await);
        }
        assert!(get(address, "/livez").await.starts_with("HTTP/1.1 200 OK"));
        // The request that was answered took the place of one more.
        let held = slow.split_off(slow.len() - (limit - 1));
        for stream in slow {
            assert_eq!(read(stream).await, "");
        }
        for stream in held {
            let open = stream.try_read(&mut [0]).unwrap_err();
            assert_eq!(open.kind(), ErrorKind::WouldBlock);
        }
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_and_waits_for_no_body() {
        let (address, _stop) = serve(PortLimits { head: LONG, whole: LONG, ..PortLimits::default() }).await;
        let twice = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2);
        assert_eq!(read(begin(address, &twice).await).await.matches("HTTP/1.1").count(), 1);
        let body = "POST /livez HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\nx";
        let respond = read(begin(address, body).await).await;
        assert!(respond.is_empty() || respond.starts_with("HTTP/1.1 405"), "{respond}");
    }

    #[tokio::test]
    async fn a_head_larger_than_the_buffer_is_refused() {
        let (address, _stop) = serve(PortLimits { head: LONG, whole: LONG, ..PortLimits::default() }).await;
        let large = format!("GET /livez HTTP/1.1\r\nhost: {}", "a".repeat(3 * super::BUFFER));
        assert!(!read(begin(address, &large).await).await.contains("200"));
        assert!(get(address, "/livez").await.ends_with("ok\n"));
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it_and_the_flag() {
        let first = Port::bind("--listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = first.address().unwrap();
        let error = Port::bind("--listen-probes", taken).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot listen on {taken}; choose another address with --listen-probes")
        );

        let stop = CancellationToken::new();
        let probes = Probes::new(Readiness::new());
        let served = tokio::spawn(first.serve(probes, None, PortLimits::default(), stop.clone()));
        stop.cancel();
        served.await.unwrap();
    }
}
