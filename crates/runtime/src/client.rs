//! The two clients: one that reads, one that writes.
//!
//! Nothing below this layer retries: kube's own retry layer, which repeats every verb up to 15 times (H10), is off in
//! both. The caller decides whether to read or write again. (A connection that turns out to be closed before any byte
//! of a request was sent is replaced by another one; that is no retry.)
//!
//! Every request has a deadline, in a layer under the client, so that none can be forgotten. It covers the whole answer, except for
//! watches, which have one until their answer begins and are then watched over by their loop.

mod config;
mod layer;
pub(crate) use layer::{MAX_RESPONSE_BYTES, ResourceName};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use tokio::time::Instant;
use tower::{BoxError, Layer as _, Service};

pub use http_body_util::LengthLimitError;

pub use self::config::{ConfigError, load_config};
use self::layer::{InstrumentLayer, Role};
pub use self::layer::{NoResponse, WriteRefused, code_label};
use crate::metrics::Metrics;
use crate::server_clock::ServerClock;

/// How long requests may take, from the call to the last byte of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Any request of [`Clients::writes`]. With the lease's renew deadline it must not exceed the lease's duration
    /// (`LeaseSettings::validate_writes`): then what a leader
    /// sent before it lost the lease has ended, one way or the other, before another replica can become leader.
    pub write: Duration,
    /// A request of [`Clients::reads`] for one object.
    pub read: Duration,
    /// A request of [`Clients::reads`] for a list, or until a watch begins.
    pub list: Duration,
}

impl Default for Deadlines {
    /// 5 s, 10 s and 30 s.
    fn default() -> Self {
        Self { write: Duration::from_secs(5), read: Duration::from_secs(10), list: Duration::from_secs(30) }
    }
}

/// Backpressure: the API server does not answer, or answers that it is overloaded. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Backpressure(Arc<Mutex<BackpressureState>>);

#[derive(Debug, Default)]
struct BackpressureState {
    /// When requests may be sent again.
    until: Option<Instant>,
    /// When it last did not answer a request of the client for writes.
    no_response_at: Option<Instant>,
}

/// The longest `Retry-After` that is respected.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_mins(2);

impl Backpressure {
    /// How long still to wait (`Retry-After` of 429 and 503, H27); zero if it did not ask.
    pub fn remaining(&self) -> Duration {
        self.state().until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Whether a request of [`Clients::writes`] has got no answer, in time or at all, within that time.
    pub fn had_no_response_within(&self, time: Duration) -> bool {
        self.state().no_response_at.is_some_and(|at| at.elapsed() < time)
    }

    fn note_retry_after(&self, seconds: u64) {
        let until = Instant::now() + Duration::from_secs(seconds).min(MAX_RETRY_AFTER);
        let mut state = self.state();
        state.until = Some(state.until.map_or(until, |known| known.max(until)));
    }

    fn note_no_response(&self) {
        self.state().no_response_at = Some(Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, BackpressureState> {
        // Every change is one assignment: a panic leaves valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clients for the API server.
#[derive(Clone)]
pub struct Clients {
    /// For get, list and watch. It refuses to write, except for access reviews, which change nothing.
    pub reads: kube::Client,
    /// For writes, and for the reads that decide about one. Its connections are its own, so that a write does not wait behind a list.
    /// Others get it from a [`Permit`](crate::leader::Permit::client).
    pub(crate) writes: kube::Client,
    /// How long the API server asked to wait. Every retry waits at least that long; renewals of the lease do not, since
    /// giving up leadership relieves nothing.
    pub backpressure: Backpressure,
}

impl Clients {
    /// Clients for an API server. Nothing is sent yet. The server's time reaches `server_clock`; requests are counted
    /// in `metrics`. Must be called on a tokio runtime.
    pub fn new(
        config: kube::Config,
        server_clock: &ServerClock,
        metrics: &Metrics,
    ) -> Result<Self, kube::Error> {
        Self::with(config, server_clock, metrics, Backpressure::default(), MAX_RESPONSE_BYTES)
    }

    /// The same for an API server that others run: of an answer so many bytes are read, and a longer one is none
    /// ([`LengthLimitError`]).
    pub fn limited(
        config: kube::Config,
        server_clock: &ServerClock,
        metrics: &Metrics,
        max_response: usize,
    ) -> Result<Self, kube::Error> {
        Self::with(config, server_clock, metrics, Backpressure::default(), max_response)
    }

    /// The same with connections of their own, on the current runtime: a delay of the others does not delay these.
    pub fn with_own_connections(
        &self,
        config: kube::Config,
        server_clock: &ServerClock,
        metrics: &Metrics,
    ) -> Result<Self, kube::Error> {
        Self::with(config, server_clock, metrics, self.backpressure.clone(), MAX_RESPONSE_BYTES)
    }

    fn with(
        config: kube::Config,
        server_clock: &ServerClock,
        metrics: &Metrics,
        backpressure: Backpressure,
        max_response: usize,
    ) -> Result<Self, kube::Error> {
        let deadlines = Deadlines::default();
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails if another thread was faster, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = |mut config: kube::Config, role| -> Result<kube::Client, kube::Error> {
            config.default_retry = false;
            config.connect_timeout = Some(deadlines.write);
            let instrument =
                InstrumentLayer::new(role, deadlines, server_clock, metrics, &backpressure, max_response);
            Ok(ClientBuilder::try_from(config)?.with_layer(&instrument).build())
        };
        let (reads, writes) = (client(config.clone(), Role::Reads)?, client(config, Role::Writes)?);
        Ok(Self { reads, writes, backpressure })
    }

    /// Clients over another service than the network, such as an API server in memory, with the same deadlines and counters.
    pub fn over<S, B>(
        service: &S,
        deadlines: Deadlines,
        server_clock: &ServerClock,
        metrics: &Metrics,
    ) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let backpressure = Backpressure::default();
        let client = |role| {
            let instrument = InstrumentLayer::new(
                role,
                deadlines,
                server_clock,
                metrics,
                &backpressure,
                MAX_RESPONSE_BYTES,
            );
            kube::Client::new(instrument.layer(service.clone()), "default")
        };
        Self { reads: client(Role::Reads), writes: client(Role::Writes), backpressure }
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// How the operator introduces itself to the API server, where a request does not say more.
pub const USER_AGENT: &str = concat!("coppice-operator/", env!("CARGO_PKG_VERSION"));

/// Whether a write that ended in this error **may have happened** (H11). Then the object must be read before anything else is decided;
/// otherwise the write surely had no effect.
///
/// - `false`: the API server refused (any 4xx but 408: 400, 401, 403, 404, 409, 410, 413, 415, 422, 429 ...), the connection was
///   refused, or the request was never sent (it could not be built, credentials could not be had).
/// - `true`: everything else. No answer in time; a connection that broke; 500 and 504, with which the API server answers when etcd did
///   not confirm in time; 502, 503 and 408, which proxies and load balancers also answer after they had passed the request on; an
///   answer that was there but could not be read.
///
/// When in doubt it is `true`: a needless read costs little.
pub fn ambiguous(error: &kube::Error) -> bool {
    use kube::Error as E;
    match error {
        E::Api(status) => !(400..500).contains(&status.code) || status.code == 408,
        E::Service(error) => !never_sent(&**error),
        E::HttpError(_)
        | E::BuildRequest(_)
        | E::InferConfig(_)
        | E::InferKubeconfig(_)
        | E::Auth(_)
        | E::RustlsTls(_)
        | E::TlsRequired
        | E::ProxyProtocolUnsupported { .. }
        | E::ProxyProtocolDisabled { .. } => false,
        _ => true,
    }
}

fn never_sent(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let refused = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        if error.is::<WriteRefused>() || refused == Some(std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A deadline for anything but a request, with an error that names it.
pub async fn deadline<T>(
    what: &'static str,
    within: Duration,
    future: impl Future<Output = T>,
) -> Result<T, DeadlineExceeded> {
    tokio::time::timeout(within, future).await.map_err(|_| DeadlineExceeded { what, within })
}

/// Something took too long and was given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} took longer than {} s and was given up", within.as_secs_f32())]
pub struct DeadlineExceeded {
    /// What took too long.
    pub what: &'static str,
    /// How long it was given.
    pub within: Duration,
}

#[cfg(test)]
#[path = "client/tests.rs"]
mod tests;
