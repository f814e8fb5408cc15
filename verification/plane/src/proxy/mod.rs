//! An HTTP proxy before the API server that injects faults and keeps a trace.
//!
//! A client gets a kubeconfig that names the proxy: plain HTTP on loopback, with the client's own token, which passes
//! through, so that identity and rights stay real. One that is [started encrypted](Proxy::start_encrypted) takes
//! certificates, too, and forwards in the names that are in them. Faults are [`FaultRule`]s, in force as long as their [`Active`] lives;
//! [`Proxy::cut`] and [`Proxy::freeze`] concern all connections. Every request and every event of a watch is an
//! [`TraceEntry`] of the [`Trace`].
//!
//! A request meets at most one fault, that of the oldest rule that applies, and beside it at most one view of the past
//! ([`ProxyFault::Stale`]) and one wrong time ([`ProxyFault::Date`]). An event meets at most one fault.
//!
//! Two limits: connections are not upgraded (`exec`, `port-forward`), and clients made with client-go, as kubectl, send
//! no token over plain HTTP.

mod answer;
mod body;
mod forward;
mod request;
mod rules;
mod server;
mod stale;
mod tls;
mod trace;
mod watch_stream;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::net::TcpListener;

pub use self::{
    answer::{Corruption, FakeResponse},
    rules::{Active, Break, Date, FaultRule, Match, ProxyFault, Stale, Watches},
    trace::{Trace, TraceEntry, WatchEvent},
};
use self::{
    server::{Mode, Shared, accept},
    tls::Tls,
};
use crate::{
    config::ADMIN,
    error::{Error, Result, io},
    plane::Plane,
};

/// A running proxy. It ends with this value.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Proxy {
    /// A proxy before the plane's API server, on a free port. With `trace_file` each entry of the trace is also a line of
    /// JSON in that file, written when the entry is complete.
    pub async fn start(plane: &Plane, trace_file: Option<&Path>) -> Result<Self> {
        Self::start_with(plane, trace_file, None).await
    }

    /// The same by HTTPS, with the certificate of the API server: so clients may come with a certificate that the plane's
    /// authority has signed. What they ask is forwarded by the administrator in the name that is in it.
    pub async fn start_encrypted(plane: &Plane, trace_file: Option<&Path>) -> Result<Self> {
        Self::start_with(plane, trace_file, Some(Tls::of(plane)?)).await
    }

    async fn start_with(plane: &Plane, trace_file: Option<&Path>, tls: Option<Tls>) -> Result<Self> {
        let trace = Trace::create(trace_file)?;
        let shared = Shared::new(plane.url(), plane.ca_pem(), plane.token(ADMIN)?, trace, tls)?;
        let shared = Arc::new(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(io("bind a port for the proxy"))?;
        let address = listener.local_addr().map_err(io("find the port of the proxy"))?;
        shared.spawn(accept(Arc::clone(&shared), listener));
        Ok(Self { shared, address })
    }

    /// Where it listens: `http://127.0.0.1:` and the port, or `https://` if it was started encrypted.
    pub fn url(&self) -> String {
        let scheme = if self.shared.is_encrypted() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Writes a copy of one of the plane's kubeconfigs, next to it, that goes through the proxy.
    pub fn kubeconfig(&self, original: &Path) -> Result<PathBuf> {
        let text = fs::read_to_string(original).map_err(io(format!("read {}", original.display())))?;
        let through = text.replace(self.shared.url(), &self.url());
        if through == text {
            let problem = format!("{} does not name {}", original.display(), self.shared.url());
            return Err(Error::Client(problem));
        }
        let path = original.with_extension(format!("{}.yaml", self.address.port()));
        fs::write(&path, through).map_err(io(format!("write {}", path.display())))?;
        Ok(path)
    }

    /// What passed so far, and what will.
    pub fn trace(&self) -> &Trace {
        &self.shared.trace
    }

    /// Puts a rule in force, after those that are.
    pub fn add(&self, rule: FaultRule) -> Active {
        self.shared.rules.add(rule)
    }

    /// Removes all rules, and lets everything go that they hold.
    pub fn clear(&self) {
        self.shared.rules.clear();
    }

    /// Breaks the watches that are open now and whose requests match. Returns how many.
    pub fn break_watches(&self, matches: &Match, how: Break) -> usize {
        self.shared.break_watches(matches, how)
    }

    /// Cuts all connections of now; new ones can be made.
    pub fn cut_connections(&self) {
        self.shared.cut_connections();
    }

    /// Cuts all connections, and closes new ones at once, until [`Proxy::heal`].
    pub fn cut(&self) {
        self.shared.set_mode(Mode::Cut);
    }

    /// Goes on taking connections and requests, but forwards, answers and passes on nothing, until [`Proxy::heal`]. What
    /// was taken is forwarded then, also if its client has left.
    pub fn freeze(&self) {
        self.shared.set_mode(Mode::Frozen);
    }

    /// Ends a cut or a freeze. Rules stay.
    pub fn heal(&self) {
        self.shared.set_mode(Mode::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.set_mode(Mode::Stopped);
        // Who wants to know about failures flushes before.
        let _ = self.shared.trace.flush();
    }
}
