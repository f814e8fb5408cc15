//! The API server in memory over HTTP, on loopback, in real time: for kubectl, and for the operator as its own process.
//!
//! [`Service::serve`] answers requests, lets the [models](crate::server::models) do what is due as time passes, and streams
//! watches. There is no authentication: a bearer token is taken for the name of the user. Bodies are JSON; of protobuf only
//! what `kubectl create` sends for a few kinds is [read](protobuf).

mod protobuf;
mod watch_stream;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::IntoResponse;
use coppice_runtime::clock::Clock;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::server::models::Models;
use crate::server::{Body, Request, Response, Revision, Server, ServerReply};

/// The user of requests without a token.
const DEFAULT_USER: &str = "admin";

/// Why the server cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// There is no authentication, so that only this machine may ask.
    #[error("{0} is not an address of loopback: name one such as 127.0.0.1:0")]
    NotLoopback(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    /// Connections are no longer accepted.
    #[error("connections cannot be accepted")]
    Accept(#[source] std::io::Error),
}

/// An API server that listens, and does not serve yet.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    shared: Shared,
}

/// The server and its models, behind one lock. Clones are the same.
#[derive(Clone, Debug)]
struct Shared {
    inner: Arc<Mutex<Inner>>,
    clock: Clock,
    /// The revision of the last write: whoever waits for events waits for this.
    revised: Arc<watch::Sender<Revision>>,
}

#[derive(Debug)]
struct Inner {
    server: Server,
    models: Models,
}

impl Service {
    /// Listens on an address of loopback; port 0 takes a free one. The models take up what is in the server already.
    pub async fn bind(address: SocketAddr, server: Server, clock: Clock) -> Result<Self, HttpError> {
        if !matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback())
            && !matches!(address.ip(), IpAddr::V6(ip) if ip.is_loopback())
        {
            return Err(HttpError::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).await.map_err(|error| HttpError::Listen(address, error))?;
        let models = Models::new(&server);
        let revised = Arc::new(watch::Sender::new(server.revision()));
        let inner = Arc::new(Mutex::new(Inner { server, models }));
        Ok(Self { listener, shared: Shared { inner, clock, revised } })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr, HttpError> {
        self.listener.local_addr().map_err(HttpError::Accept)
    }

    /// Answers until this future is dropped: open watches end with it.
    pub async fn serve(self) -> Result<(), HttpError> {
        let router = Router::new().fallback(serve_request).with_state(self.shared.clone());
        let router = router.layer(axum::extract::DefaultBodyLimit::max(3 << 20));
        tokio::select! {
            served = async { axum::serve(self.listener, router).await } => served.map_err(HttpError::Accept),
            () = run_models(&self.shared) => Ok(()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on the server, and wakes those that wait for changes if it has written.
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let done = act(&mut inner);
        let revision = inner.server.revision();
        drop(inner);
        self.revised.send_if_modified(|known| {
            let changed = *known != revision;
            *known = revision;
            changed
        });
        done
    }
}

/// Does what the other controllers have to do, when it is due.
async fn run_models(shared: &Shared) {
    let mut revised = shared.revised.subscribe();
    loop {
        revised.mark_unchanged();
        let now = shared.clock.now();
        let next = shared.with(|inner| {
            inner.models.settle(&mut inner.server, now);
            inner.models.pending(&inner.server, now)
        });
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(shared.clock.instant(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The sender is part of what is shared, so that it is there.
            _ = revised.changed() => {}
            () = due => {}
        }
    }
}

async fn serve_request(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let user =
        text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).unwrap_or(DEFAULT_USER);
    let mut request = Request {
        method,
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        content_type: text(header::CONTENT_TYPE).map(str::to_owned),
        accept: text(header::ACCEPT).map(str::to_owned),
        body: body.to_vec(),
    };
    if let Some(json) = protobuf::to_json(&request) {
        request.content_type = Some("application/json".to_owned());
        request.body = json;
    }
    let now = shared.clock.now();
    match shared.with(|inner| inner.server.handle(now, user, &request)) {
        ServerReply::Done(response) => whole(&response),
        ServerReply::Watch(watch) => {
            let body = axum::body::Body::from_stream(watch_stream::stream(shared, *watch));
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
    }
}

fn whole(response: &Response) -> axum::response::Response {
    let code = StatusCode::from_u16(response.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut whole = (code, response.body.to_bytes()).into_response();
    let headers = whole.headers_mut();
    let media = match &response.body {
        // The API server says so, and clients that negotiate read it.
        Body::Discovery(_) => response.body.content_type(),
        body => body.content_type(),
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    for warning in &response.warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            headers.append(header::WARNING, value);
        }
    }
    whole
}
