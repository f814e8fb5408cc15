//! `/livez` and `/readyz`. Ready means that everything registered with [`Readiness`] is ready, for example that every watch has synced;
//! not that a port is open.

use std::net::IpAddr;

use coppice_runtime::readiness::{CheckReport, Readiness};
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;

use crate::page;
use crate::port::{Handler, HttpResponse};

const INDEX: &str = "Coppice, a Kubernetes operator for namespaces.\n\
     \n\
     /livez    whether the process works (?verbose lists what was checked)\n\
     /readyz   whether it knows the cluster's state (?verbose lists what was checked)\n\
     /readyz/GROUP   the same of the checks that are called GROUP: ...\n";

/// What the port for probes answers; nobody has to show who they are.
#[derive(Debug, Clone)]
pub struct Probes(Readiness);

impl Probes {
    /// Of what is registered there.
    pub fn new(readiness: Readiness) -> Self {
        Self(readiness)
    }

    fn page(&self, method: &Method, uri: &Uri) -> HttpResponse {
        if let Some(refused) = page::refused_but_read(method) {
            return refused;
        }
        match uri.path() {
            "/livez" => of(self.0.live(), uri),
            "/readyz" => of(self.0.ready(), uri),
            "/" => page::text(StatusCode::OK, INDEX),
            path => {
                let group = path.strip_prefix("/readyz/").and_then(|group| self.0.ready_in(group));
                group.map_or_else(page::nothing, |report| of(report, uri))
            }
        }
    }
}

impl Handler for Probes {
    /// The body of a request is never read.
    async fn respond(&self, _: IpAddr, request: Request<Incoming>) -> HttpResponse {
        self.page(request.method(), request.uri())
    }
}

fn of(report: CheckReport, uri: &Uri) -> HttpResponse {
    let verbose = uri
        .query()
        .is_some_and(|query| query.split('&').any(|q| q == "verbose" || q.starts_with("verbose=")));
    let status = if report.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text = match (verbose, report.ok) {
        (true, true) => report.all + "ok\n",
        (true, false) => report.all + "not ok\n",
        (false, true) => "ok\n".to_owned(),
        (false, false) => report.failing,
    };
    page::text(status, text)
}

#[cfg(test)]
mod tests {
    use super::Probes;
    use coppice_runtime::readiness::Readiness;
    use http::{Method, StatusCode};
    use http_body_util::BodyExt as _;

    const NO: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

    async fn get(readiness: &Readiness, path: &str) -> (StatusCode, String) {
        let page = Probes::new(readiness.clone()).page(&Method::GET, &path.parse().unwrap());
        let status = page.status();
        let text = page.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn probes_say_what_is_not_ready_and_all_of_it_if_asked() {
        let readiness = Readiness::new();
        assert_eq!(get(&readiness, "/livez").await, (StatusCode::OK, "ok\n".to_owned()));
        assert_eq!(get(&readiness, "/readyz").await, (NO, "not started yet\n".to_owned()));
        readiness.register("first pass").ready();
        readiness.register("watch: pods").not_ready("the API server is unreachable");
        let failing = "watch: pods: the API server is unreachable\n";
        assert_eq!(get(&readiness, "/readyz").await, (NO, failing.to_owned()));
        let all = format!("[+] first pass: ok\n[-] {failing}not ok\n");
        assert_eq!(get(&readiness, "/readyz?verbose").await, (NO, all));
        assert_eq!(get(&readiness, "/readyz/watch").await, (NO, failing.to_owned()));
        assert_eq!(get(&readiness, "/readyz/other").await.0, StatusCode::NOT_FOUND);
        readiness.unregister("watch: pods");
        let all = "[+] first pass: ok\nok\n";
        assert_eq!(get(&readiness, "/readyz?verbose").await, (StatusCode::OK, all.to_owned()));
    }

    #[tokio::test]
    async fn nothing_else_is_answered() {
        let readiness = Readiness::new();
        assert!(get(&readiness, "/").await.1.contains("/readyz"));
        assert_eq!(get(&readiness, "/metrics").await.0, StatusCode::NOT_FOUND);
        let refused = Probes::new(readiness).page(&Method::POST, &"/livez".parse().unwrap());
        assert_eq!(
            (refused.status(), &refused.headers()["allow"]),
            (StatusCode::METHOD_NOT_ALLOWED, &"GET, HEAD".parse().unwrap())
        );
    }
}
