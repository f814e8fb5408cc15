//! Connections from clients, the way to the API server, and the state of the proxy as a whole.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{
    HeaderMap, HeaderValue, Request, Response,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, HOST},
    request::Parts,
};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{oneshot, watch},
};

use super::{
    forward,
    rules::{Break, FaultRules, Match},
    tls::{Name, Tls},
    trace::{Trace, TraceEntry},
};
use crate::error::{Error, Result, causes};

/// Rest after a connection could not be accepted, for want of something that may come back.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ForwardError {
    /// It cannot be sent.
    #[error("{0}")]
    Request(http::Error),
    /// The API server did not answer.
    #[error("{}", causes(.0))]
    Unanswered(hyper_util::client::legacy::Error),
}

/// How the proxy as a whole behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// As the rules say.
    Open,
    /// Takes requests and answers nothing.
    Frozen,
    /// Takes no connection.
    Cut,
    /// Its end.
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    /// How often connections have been cut: a connection notices also a cut that is healed at once.
    cuts: u64,
}

/// What all tasks of a proxy share.
#[derive(Debug)]
pub(super) struct Shared {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// The API server's.
    url: String,
    /// Of a user who may do everything, for views of the past and for clients with certificates.
    pub(super) reader: HeaderValue,
    /// How clients' connections are encrypted, if they are.
    tls: Option<Tls>,
    pub(super) trace: Trace,
    pub(super) rules: FaultRules,
    state: watch::Sender<State>,
    watches: Mutex<BTreeMap<u64, (TraceEntry, oneshot::Sender<Break>)>>,
}

impl Shared {
    pub(super) fn new(url: &str, ca_pem: &str, token: &str, trace: Trace, tls: Option<Tls>) -> Result<Self> {
        let reader = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|error| Error::Client(error.to_string()))?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trusting(ca_pem)?)
            .https_only()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: url.trim_end_matches('/').to_owned(),
            reader,
            tls,
            trace,
            rules: FaultRules::default(),
            state: watch::Sender::new(State { mode: Mode::Open, cuts: 0 }),
            watches: Mutex::default(),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.state.send_modify(|state| state.mode = mode);
    }

    pub(super) fn cut_connections(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Waits until the proxy is not frozen.
    pub(super) async fn thawed(&self) {
        let _ = self.state.subscribe().wait_for(|state| state.mode != Mode::Frozen).await;
    }

    async fn stopped(&self) {
        let _ = self.state.subscribe().wait_for(|state| state.mode == Mode::Stopped).await;
    }

    /// Waits until connections are cut that were made before the cut with this number.
    async fn cut_after(&self, cuts: u64) {
        let _ = self.state.subscribe().wait_for(|state| state.mode == Mode::Cut || state.cuts > cuts).await;
    }

    /// Runs until the proxy stops.
    pub(super) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = shared.stopped() => {}
                () = work => {}
            }
        });
    }

    /// Sends a request to the API server, with another target.
    pub(super) async fn forward(
        &self,
        head: &Parts,
        target: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ForwardError> {
        let mut request = Request::builder().method(&head.method).uri(format!("{}{target}", self.url));
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&head.headers);
            strip(headers);
            for name in [HOST, CONTENT_LENGTH, ACCEPT_ENCODING] {
                headers.remove(name);
            }
            // What the proxy cannot read, it cannot trace.
            if headers.get_all(ACCEPT).iter().any(is_binary) {
                headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            }
        }
        let request = request.body(Full::new(body)).map_err(ForwardError::Request)?;
        self.client.request(request).await.map_err(ForwardError::Unanswered)
    }

    fn watches(&self) -> MutexGuard<'_, BTreeMap<u64, (TraceEntry, oneshot::Sender<Break>)>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a watch into the list of those that can be broken.
    pub(super) fn watch_begins(&self, watch: &TraceEntry) -> oneshot::Receiver<Break> {
        let (sender, receiver) = oneshot::channel();
        self.watches().insert(watch.seq, (watch.clone(), sender));
        receiver
    }

    pub(super) fn watch_ended(&self, seq: u64) {
        self.watches().remove(&seq);
    }

    /// Breaks the watches that are open now, and tells how many.
    pub(super) fn break_watches(&self, matches: &Match, how: Break) -> usize {
        let mut watches = self.watches();
        let chosen: Vec<u64> =
            watches.iter().filter(|(_, (entry, _))| matches.selects(entry)).map(|(seq, _)| *seq).collect();
        chosen
            .into_iter()
            .filter_map(|seq| watches.remove(&seq))
            .map(|(_, watch)| usize::from(watch.send(how).is_ok()))
            .sum()
    }
}

/// Takes connections until the proxy stops.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            continue;
        };
        let State { mode, cuts } = *shared.state.borrow();
        if mode == Mode::Cut {
            reset(&stream);
        } else {
            shared.spawn(serve(Arc::clone(&shared), stream, cuts));
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, cuts: u64) {
    let Ok((stream, handle)) = doubled(stream) else { return };
    // Without it small pieces would only be slower.
    let _ = stream.set_nodelay(true);
    let cut = tokio::select! {
        biased;
        () = shared.cut_after(cuts) => true,
        ended = connection(&shared, stream) => ended.is_none(),
    };
    if cut {
        reset(&handle);
    }
}

/// Answers the requests of a connection until it ends in due form. None is a cut, a client that left, or one whose
/// certificate is not taken.
async fn connection(shared: &Arc<Shared>, stream: TcpStream) -> Option<()> {
    let Some(tls) = &shared.tls else { return requests(shared, stream, None).await };
    let (stream, name) = tls.accept(stream).await?;
    requests(shared, stream, name).await
}

/// Answers the requests that come through a stream, in a name if there is one.
async fn requests(
    shared: &Arc<Shared>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    name: Option<Name>,
) -> Option<()> {
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(name) = &name {
            name.put_into(request.headers_mut(), &shared.reader);
        }
        forward::exchange(Arc::clone(shared), request)
    });
    // The time of an answer is the API server's, or nobody's.
    let connection =
        http1::Builder::new().auto_date_header(false).serve_connection(TokioIo::new(stream), service);
    connection.await.ok()
}

/// The stream, and a handle that keeps it open when hyper has dropped it.
fn doubled(stream: TcpStream) -> std::io::Result<(TcpStream, TcpStream)> {
    let stream = stream.into_std()?;
    let handle = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, TcpStream::from_std(handle)?))
}

/// Lets the client see a reset when the stream is dropped: some take a mere end for an end in due form.
fn reset(stream: &TcpStream) {
    // Else it is an end without notice.
    let _ = stream.set_zero_linger();
}

fn trusting(ca_pem: &str) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(Error::Client)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Client(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Removes the headers that are about one connection and not about the message.
pub(super) fn strip(headers: &mut HeaderMap) {
    for name in
        ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
    {
        headers.remove(name);
    }
}

fn is_binary(accept: &HeaderValue) -> bool {
    accept.to_str().is_ok_and(|text| text.contains("protobuf") || text.contains("cbor"))
}
