//! The ports for probes and monitoring: `/livez` and `/readyz` on one, `/metrics` on the other, so that a crowded
//! metrics port delays no probe.
//!
//! Ready means that everything registered with [`Readiness`] is ready, for example that every watch has synced; not
//! that a port is open.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Bytes;

use crate::metrics::{MEDIA_TYPE, Metrics};

mod server;

pub use server::{Admin, BindError, PortLimits};

/// The checks behind readiness and liveness. Clones share them.
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

    /// Registers something that has to be ready; at first it is not.
    pub fn register(&self, name: impl Into<String>) -> Check {
        let name = name.into();
        let check = Check { readiness: self.clone(), name: name.as_str().into() };
        self.checks().ready.insert(name, Err("not started yet".to_owned()));
        check
    }

    /// Forgets a check: what it stands for is not needed any more.
    pub fn unregister(&self, name: &str) {
        self.checks().ready.remove(name);
    }

    /// Registers a liveness check. Every request of `/livez` calls it; it answers at once, with what is wrong if
    /// something is. Do not register what a restart does not fix.
    pub fn register_liveness(
        &self,
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks().live.insert(name.into(), Probe(Arc::new(probe)));
    }

    /// From now on the operator is not ready, whatever the checks report.
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
        // Not called under the lock: a check may take other locks, and a registration inside of one must not hang.
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
        if let Some(known) = self.readiness.checks().ready.get_mut(&*self.name) {
            *known = state;
        }
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

    fn respond(self, uri: &Uri) -> Page {
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
        page(status, text)
    }
}

/// What a port serves.
#[derive(Debug, Clone)]
pub enum Pages {
    /// `/livez` and `/readyz`.
    Probes(Readiness),
    /// `/metrics`.
    Metrics(Arc<Metrics>),
}

type Page = Response<Full<Bytes>>;

const PROBES: &str = "Coppice, a Kubernetes operator for namespaces.\n\
     \n\
     /livez    whether the process works (?verbose lists what was checked)\n\
     /readyz   whether it knows the cluster's state (?verbose lists what was checked)\n";
const METRICS: &str = "Coppice, a Kubernetes operator for namespaces.\n\
     \n\
     /metrics  for Prometheus; /livez and /readyz are on a port of their own (--listen-probes)\n";

impl Pages {
    /// The answer to a request, whose body is never read.
    fn respond(&self, method: &Method, uri: &Uri) -> Page {
        if method != Method::GET && method != Method::HEAD {
            let mut page = page(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered\n");
            page.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return page;
        }
        match (self, uri.path()) {
            (Self::Probes(readiness), "/livez") => readiness.live().respond(uri),
            (Self::Probes(readiness), "/readyz") => readiness.ready().respond(uri),
            (Self::Metrics(metrics), "/metrics") => {
                let mut page = page(StatusCode::OK, metrics.encode());
                page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
                page
            }
            (Self::Probes(_), "/") => page(StatusCode::OK, PROBES),
            (Self::Metrics(_), "/") => page(StatusCode::OK, METRICS),
            _ => page(StatusCode::NOT_FOUND, "nothing is here; / lists what is\n"),
        }
    }
}

fn page(status: StatusCode, text: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::new(text.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    page
}

#[cfg(test)]
mod tests {
    use super::{Pages, Readiness};
    use crate::metrics::Metrics;
    use http::{Method, StatusCode};
    use http_body_util::BodyExt as _;

    async fn get(readiness: &Readiness, path: &str) -> (StatusCode, String) {
        from(&Pages::Probes(readiness.clone()), path).await
    }

    async fn from(pages: &Pages, path: &str) -> (StatusCode, String) {
        let respond = pages.respond(&Method::GET, &path.parse().unwrap());
        let status = respond.status();
        let text = respond.into_body().collect().await.unwrap().to_bytes();
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
    async fn each_port_lists_and_serves_its_own() {
        let (probes, metrics) =
            (Pages::Probes(Readiness::new()), Pages::Metrics(Metrics::new("test").into()));
        assert!(from(&probes, "/").await.1.contains("/readyz"));
        assert!(from(&metrics, "/").await.1.contains("/metrics"));
        assert!(from(&metrics, "/metrics").await.1.contains("coppice_build_info{version=\"test\"} 1"));
        for (pages, path) in [(&probes, "/metrics"), (&metrics, "/livez"), (&metrics, "/nothing")] {
            assert_eq!(from(pages, path).await.0, StatusCode::NOT_FOUND, "{path}");
        }
        let refused = metrics.respond(&Method::POST, &"/metrics".parse().unwrap());
        assert_eq!(
            (refused.status(), &refused.headers()["allow"]),
            (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
        );
    }
}
