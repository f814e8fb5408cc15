//! The layer under both clients: deadlines, counters, and the server's clock.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, LengthLimitError, Limited};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::{Backpressure, Deadlines, USER_AGENT};
use crate::metrics::{ApiRequest, Metrics};
use crate::server_clock::ServerClock;

/// The API server did not answer, or not completely, within the deadline of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server did not answer within {} s ({verb} {resource}); it may be overloaded, or the network broken",
    within.as_secs_f32()
)]
pub struct NoResponse {
    /// The verb of the request.
    pub verb: &'static str,
    /// The resource of the request.
    pub resource: &'static str,
    /// How long it was given.
    pub within: Duration,
}

/// The client for reads was asked to write. A bug in Coppice: nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a bug in Coppice: the client for reads was asked to {verb} {resource}; nothing was sent")]
pub struct WriteRefused {
    /// The verb of the request.
    pub verb: &'static str,
    /// The resource of the request.
    pub resource: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Reads,
    Writes,
}

impl Role {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
        }
    }
}

#[derive(Debug)]
struct LayerSettings {
    role: Role,
    deadlines: Deadlines,
    server_clock: ServerClock,
    metrics: Metrics,
    backpressure: Backpressure,
    /// Bytes that one answer may have, watches apart.
    max_response: usize,
}

/// Bytes that one answer of our own API server may have, watches apart; the rest is not read. An object may have one and a half million, so that
/// otherwise what tenants write into theirs would decide how much memory a list takes.
pub(crate) const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Makes a service [`Instrumented`].
#[derive(Debug, Clone)]
pub(super) struct InstrumentLayer(Arc<LayerSettings>);

impl InstrumentLayer {
    pub(super) fn new(
        role: Role,
        deadlines: Deadlines,
        server_clock: &ServerClock,
        metrics: &Metrics,
        backpressure: &Backpressure,
        max_response: usize,
    ) -> Self {
        let (server_clock, metrics, backpressure) =
            (server_clock.clone(), metrics.clone(), backpressure.clone());
        Self(Arc::new(LayerSettings { role, deadlines, server_clock, metrics, backpressure, max_response }))
    }
}

impl<S> Layer<S> for InstrumentLayer {
    type Service = Instrumented<S>;

    fn layer(&self, inner: S) -> Instrumented<S> {
        Instrumented { inner, settings: Arc::clone(&self.0) }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Instrumented<S> {
    inner: S,
    settings: Arc<LayerSettings>,
}

/// Complete, or, for a watch, as it comes.
type LayerResponse<B> = Response<Either<Full<Bytes>, B>>;

impl<S, B> Service<Request<Body>> for Instrumented<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = LayerResponse<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<LayerResponse<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let info = RequestInfo::of(&request);
        if self.settings.role == Role::Reads && info.writes {
            let error = WriteRefused { verb: info.verb, resource: info.resource };
            return Box::pin(async move { Err(error.into()) });
        }
        let agent = request.headers_mut().entry(http::header::USER_AGENT);
        agent.or_insert(http::HeaderValue::from_static(USER_AGENT));
        let answer = self.inner.call(request);
        let settings = Arc::clone(&self.settings);
        Box::pin(async move { settings.answer(info, answer).await })
    }
}

impl LayerSettings {
    async fn answer<B>(
        &self,
        info: RequestInfo,
        answer: impl Future<Output = Result<Response<B>, BoxError>>,
    ) -> Result<LayerResponse<B>, BoxError>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let started = Instant::now();
        let mut status = None;
        let complete = async {
            let sent = self.server_clock.clock().monotonic();
            let answer = answer.await?;
            status = Some(answer.status());
            self.note_date(&answer, sent);
            self.note_backpressure(&answer);
            let (head, body) = answer.into_parts();
            let body = if info.watch && head.status.is_success() {
                Either::Right(body)
            } else {
                Either::Left(Full::new(Limited::new(body, self.max_response).collect().await?.to_bytes()))
            };
            Ok(Response::from_parts(head, body))
        };
        let within = self.deadline(info);
        let result: Result<_, BoxError> = match tokio::time::timeout(within, complete).await {
            Ok(result) => result,
            Err(_) => Err(NoResponse { verb: info.verb, resource: info.resource, within }.into()),
        };
        // Renewals of the lease go out all the time. Reads alone may hang while the API server is well.
        if result.is_err() && self.role == Role::Writes {
            self.backpressure.note_no_response();
        }
        let code = match (&result, status) {
            (Ok(_), Some(status)) => code_label(status),
            (Err(error), _) if error.is::<NoResponse>() => "timeout",
            (Err(error), _) if error.is::<LengthLimitError>() => "too-large",
            _ => "error",
        };
        let labels =
            ApiRequest { client: self.role.as_str(), verb: info.verb, resource: info.resource, code };
        self.metrics.api_request(&labels, started.elapsed());
        result
    }

    fn note_date<B>(&self, answer: &Response<B>, sent: Duration) {
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date else { return };
        self.server_clock.observe(date, sent, self.server_clock.clock().monotonic());
        if let Some(skew) = self.server_clock.skew() {
            self.metrics.clock_skew(skew);
        }
    }

    fn note_backpressure<B>(&self, answer: &Response<B>) {
        let asks = matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let header = answer.headers().get(http::header::RETRY_AFTER).filter(|_| asks);
        if let Some(seconds) = header.and_then(|h| h.to_str().ok()?.trim().parse().ok()) {
            self.backpressure.note_retry_after(seconds);
        }
    }

    fn deadline(&self, info: RequestInfo) -> Duration {
        match self.role {
            Role::Writes => self.deadlines.write,
            Role::Reads if info.verb == "list" || info.watch => self.deadlines.list,
            Role::Reads => self.deadlines.read,
        }
    }
}

/// What a request asks for, in the words of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestInfo {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    pub(super) watch: bool,
    pub(super) writes: bool,
}

impl RequestInfo {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let (found, named) = resource_of(uri.path());
        let of_kind = request.extensions().get::<ResourceName>().filter(|_| found == OTHER);
        let resource = of_kind.map_or(found, |ResourceName(resource)| resource);
        let query = uri.query().unwrap_or_default();
        let watch =
            request.method() == Method::GET && query.split('&').any(|q| q == "watch=true" || q == "watch=1");
        let verb = match *request.method() {
            Method::GET if watch => "watch",
            Method::GET if named || resource == NONE => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if named => "delete",
            Method::DELETE => "deletecollection",
            _ => "other",
        };
        let writes = !request.method().is_safe() && !resource.ends_with("reviews");
        Self { verb, resource, watch, writes }
    }
}

/// The resource of a request by the name that its [`Kind`](crate::kind::Kind) has, as an extension of the request. The layer itself
/// knows the resources of Kubernetes alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceName(pub(crate) &'static str);

const NONE: &str = "none";
/// The label of requests that name no resource that is known.
const OTHER: &str = "other";

/// The resources of Kubernetes that have a label of their own; requests for others that bring no [`ResourceName`] are counted
/// together, so that the number of series is bounded.
const RESOURCES: &[&str] = &[
    "configmaps",
    "cronjobs",
    "customresourcedefinitions",
    "daemonsets",
    "deployments",
    "events",
    "jobs",
    "leases",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "replicasets",
    "resourcequotas",
    "secrets",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectrulesreviews",
    "services",
    "statefulsets",
    "subjectaccessreviews",
    "tokenreviews",
];

/// The resource of a path, and whether the path names one object of it.
fn resource_of(path: &str) -> (&'static str, bool) {
    let mut parts = path.trim_matches('/').split('/');
    let rest: Vec<&str> = match parts.next() {
        Some("api") => parts.skip(1).collect(),
        Some("apis") => parts.skip(2).collect(),
        _ => return (NONE, false),
    };
    let (resource, named) = match rest[..] {
        [] => return (NONE, false),
        // `namespaces/x/status` is a part of the namespace, `namespaces/x/pods` a resource in it.
        ["namespaces", _, "status" | "finalize"] => ("namespaces", true),
        ["namespaces", _, resource, ref name @ ..] | [resource, ref name @ ..] => {
            (resource, !name.is_empty())
        }
    };
    (RESOURCES.iter().find(|known| **known == resource).copied().unwrap_or(OTHER), named)
}

/// The label of a status code in metrics: those that the API server uses have one of their own, all others that of their class.
pub fn code_label(status: StatusCode) -> &'static str {
    const CODES: &[(u16, &str)] = &[
        (200, "200"),
        (201, "201"),
        (202, "202"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        (404, "404"),
        (405, "405"),
        (406, "406"),
        (408, "408"),
        (409, "409"),
        (410, "410"),
        (413, "413"),
        (415, "415"),
        (422, "422"),
        (429, "429"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
    ];
    let known = CODES.iter().find(|(code, _)| *code == status.as_u16());
    known.map_or_else(
        || match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        },
        |(_, label)| label,
    )
}
