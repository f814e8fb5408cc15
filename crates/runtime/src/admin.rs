//! The port for those who watch over the operator: `/livez`, `/readyz`, `/metrics`.
//!
//! Ready means that everything registered with [`Readiness`] says so, such as that every watch has synced; not that a port is open.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{MEDIA_TYPE, Metrics};

/// How long requests in progress may take to end when the server stops.
const LINGER: Duration = Duration::from_secs(1);

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; choose another address with --listen")]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// What has to be well for the operator to be ready, and to be alive. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<Checks>>);

#[derive(Debug, Default)]
struct Checks {
    /// Ready, or why not.
    ready: BTreeMap<String, Result<(), String>>,
    live: BTreeMap<String, Probe>,
    shutting_down: bool,
}

struct Probe(Arc<dyn Fn() -> Result<(), String> + Send + Sync>);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

/// One line of `/readyz`.
#[derive(Debug, Clone)]
pub struct Check {
    readiness: Readiness,
    name: Arc<str>,
}

impl Readiness {
    /// Nothing is registered, so nothing is ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// A further thing that has to be ready; it is not yet.
    pub fn register(&self, name: impl Into<String>) -> Check {
        let name = name.into();
        let check = Check { readiness: self.clone(), name: name.as_str().into() };
        self.checks().ready.insert(name, Err("not started yet".to_owned()));
        check
    }

    /// A further thing that has to work for the process to be worth keeping: asked at every request of `/livez`, it answers at once, with
    /// what is wrong if something is. What a restart does not mend does not belong here.
    pub fn register_liveness(
        &self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks().live.insert(name.into(), Probe(Arc::new(probe)));
    }

    /// From now on the answer is no, whatever the checks say.
    pub fn shut_down(&self) {
        self.checks().shutting_down = true;
    }

    /// Whether everything is ready.
    pub fn is_ready(&self) -> bool {
        self.ready().ok
    }

    /// What is not ready, as `name: why`.
    pub fn missing(&self) -> Vec<String> {
        let checks = self.checks();
        let missing = checks.ready.iter().filter_map(|(name, state)| Some((name, state.as_ref().err()?)));
        missing.map(|(name, why)| format!("{name}: {why}")).collect()
    }

    fn ready(&self) -> Report {
        let checks = self.checks();
        let mut report = Report::of(checks.ready.iter().map(|(name, state)| (name.clone(), state.clone())));
        if checks.shutting_down {
            report.fail("shutting down");
        } else if checks.ready.is_empty() {
            report.fail("not started yet");
        }
        report
    }

    fn live(&self) -> Report {
        // Not asked under the lock: a probe may take others, and a registration inside of one must not hang.
        let probes: Vec<_> =
            self.checks().live.iter().map(|(name, p)| (name.clone(), Arc::clone(&p.0))).collect();
        Report::of(probes.into_iter().map(|(name, probe)| (name, probe())))
    }

    fn checks(&self) -> MutexGuard<'_, Checks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// It is ready.
    pub fn ready(&self) {
        self.set(Ok(()));
    }

    /// It is not ready, or no longer: why, in a sentence.
    pub fn not_ready(&self, why: &str) {
        self.set(Err(why.to_owned()));
    }

    fn set(&self, state: Result<(), String>) {
        self.readiness.checks().ready.insert(self.name.to_string(), state);
    }
}

/// An answer of `/readyz` or `/livez`.
struct Report {
    ok: bool,
    failing: String,
    all: String,
}

impl Report {
    fn of(checks: impl Iterator<Item = (String, Result<(), String>)>) -> Self {
        let mut report = Self { ok: true, failing: String::new(), all: String::new() };
        for (name, state) in checks {
            match state {
                Ok(()) => {
                    let _ = writeln!(report.all, "[+] {name}: ok");
                }
                Err(why) => report.fail(&format!("{name}: {why}")),
            }
        }
        report
    }

    fn fail(&mut self, line: &str) {
        self.ok = false;
        let _ = writeln!(self.failing, "{line}");
        let _ = writeln!(self.all, "[-] {line}");
    }

    fn answer(self, uri: &Uri) -> Response {
        let verbose = uri
            .query()
            .is_some_and(|query| query.split('&').any(|q| q == "verbose" || q.starts_with("verbose=")));
        let status = if self.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let text = match (verbose, self.ok) {
            (true, true) => self.all + "ok\n",
            (true, false) => self.all + "not ok\n",
            (false, true) => "ok\n".to_owned(),
            (false, false) => self.failing,
        };
        (status, text).into_response()
    }
}

/// The open port.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
}

impl Admin {
    /// Opens the port; port 0 takes a free one.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let listener = TcpListener::bind(address).await.map_err(|source| BindError { address, source })?;
        Ok(Self { listener })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. That is for the very end: during a shutdown the port still answers, that the operator is not ready.
    pub async fn serve(
        self,
        readiness: Readiness,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let stopped = stop.clone();
        let server = axum::serve(self.listener, router(readiness, metrics));
        let server = server.with_graceful_shutdown(async move { stopped.cancelled().await });
        tokio::select! {
            biased;
            result = server => result,
            // A client that keeps its request open does not keep the process.
            () = async { stop.cancelled().await; tokio::time::sleep(LINGER).await } => Ok(()),
        }
    }
}

fn router(readiness: Readiness, metrics: Metrics) -> Router {
    Router::new()
        .route("/", get(index))
        .route(
            "/livez",
            get(|State(readiness): State<Readiness>, uri: Uri| async move { readiness.live().answer(&uri) }),
        )
        .route(
            "/readyz",
            get(|State(readiness): State<Readiness>, uri: Uri| async move { readiness.ready().answer(&uri) }),
        )
        .with_state(readiness)
        .route("/metrics", get(move || async move { ([(CONTENT_TYPE, MEDIA_TYPE)], metrics.encode()) }))
}

async fn index() -> &'static str {
    "Coppice, a Kubernetes operator for namespaces.\n\
     \n\
     /livez    whether the process works (?verbose lists what was checked)\n\
     /readyz   whether it knows the cluster's state (?verbose lists what was checked)\n\
     /metrics  for Prometheus\n"
}

#[cfg(test)]
mod tests {
    use super::{Admin, Readiness, router};
    use crate::metrics::Metrics;
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt as _;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    async fn get(readiness: &Readiness, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router(readiness.clone(), Metrics::new("test")).oneshot(request).await.unwrap();
        let status = answer.status();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    const NO: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

    #[tokio::test]
    async fn ready_is_when_everything_that_was_registered_says_so() {
        let readiness = Readiness::new();
        assert_eq!(get(&readiness, "/readyz").await, (NO, "not started yet\n".to_owned()));
        let pods = readiness.register("watch: pods");
        let first = readiness.register("first pass");
        first.ready();
        assert_eq!(get(&readiness, "/readyz").await, (NO, "watch: pods: not started yet\n".to_owned()));
        pods.not_ready("the API server is unreachable");
        assert_eq!(readiness.missing(), ["watch: pods: the API server is unreachable"]);
        assert_eq!(
            get(&readiness, "/readyz?verbose").await,
            (NO, "[+] first pass: ok\n[-] watch: pods: the API server is unreachable\nnot ok\n".to_owned())
        );
        pods.ready();
        assert_eq!(get(&readiness, "/readyz").await, (StatusCode::OK, "ok\n".to_owned()));
        assert!(readiness.is_ready());
        readiness.shut_down();
        assert_eq!(get(&readiness, "/readyz").await, (NO, "shutting down\n".to_owned()));
    }

    #[tokio::test]
    async fn alive_is_unless_a_probe_fails() {
        let readiness = Readiness::new();
        assert_eq!(get(&readiness, "/livez").await, (StatusCode::OK, "ok\n".to_owned()));
        readiness.register_liveness("queue", || Err("stuck for 600 s".to_owned()));
        assert_eq!(get(&readiness, "/livez").await, (NO, "queue: stuck for 600 s\n".to_owned()));
    }

    #[tokio::test]
    async fn the_rest_is_listed_and_served() {
        let readiness = Readiness::new();
        assert!(get(&readiness, "/").await.1.contains("/readyz"));
        assert!(get(&readiness, "/metrics").await.1.contains("coppice_build_info{version=\"test\"} 1"));
        assert_eq!(get(&readiness, "/nothing").await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it_and_the_flag() {
        let first = Admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let taken = first.address().unwrap();
        let error = Admin::bind(taken).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot listen on {taken}; choose another address with --listen")
        );

        let stop = CancellationToken::new();
        let served = tokio::spawn(first.serve(Readiness::new(), Metrics::new("test"), stop.clone()));
        stop.cancel();
        served.await.unwrap().unwrap();
    }
}
