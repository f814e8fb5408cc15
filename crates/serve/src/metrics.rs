//! `/metrics`, for Prometheus: with the token of somebody who may get that path, or for everybody.

use std::net::IpAddr;

use coppice_runtime::metrics::{MEDIA_TYPE, Metrics};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode};
use hyper::body::Incoming;

use crate::access::MetricsAccess;
use crate::page;
use crate::port::{Handler, HttpResponse};

/// The path, as RBAC names it in `nonResourceURLs`.
pub const PATH: &str = "/metrics";

const INDEX: &str = "Coppice, a Kubernetes operator for namespaces.\n\
     \n\
     /metrics  for Prometheus; /livez and /readyz are on a port of their own (--listen-probes)\n";

/// What the port for metrics answers.
#[derive(Debug, Clone)]
pub struct MetricsPage {
    metrics: Metrics,
    access: Option<MetricsAccess>,
}

impl MetricsPage {
    /// For those whom the API server lets in.
    pub fn new(metrics: Metrics, access: MetricsAccess) -> Self {
        Self { metrics, access: Some(access) }
    }

    /// For everybody who reaches the port.
    pub fn insecure(metrics: Metrics) -> Self {
        Self { metrics, access: None }
    }
}

impl Handler for MetricsPage {
    /// The body of a request is never read.
    async fn respond(&self, _: IpAddr, request: Request<Incoming>) -> HttpResponse {
        if let Some(refused) = page::refused_but_read(request.method()) {
            return refused;
        }
        match request.uri().path() {
            PATH => {}
            "/" => return page::text(StatusCode::OK, INDEX),
            _ => return page::nothing(),
        }
        if let Some(access) = &self.access
            && let Some(refused) = access.refused(request.headers(), PATH).await
        {
            return refused;
        }
        let mut page = page::text(StatusCode::OK, self.metrics.encode());
        page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        page
    }
}
