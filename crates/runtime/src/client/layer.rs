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

use super::{Deadlines, Patience};
use crate::metrics::{ApiRequest, Metrics};
use crate::server_clock::ServerClock;

/// The API server did not answer, or not completely, within the deadline of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server did not answer within {} s ({verb} {resource}); it may be overloaded, or the network broken",
    within.as_secs_f32()
)]
pub struct NoAnswer {
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
pub struct Refused {
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
struct Settings {
    role: Role,
    deadlines: Deadlines,
    server_clock: ServerClock,
    metrics: Metrics,
    patience: Patience,
}

/// Bytes that one answer may have, watches apart; the rest is not read. An object may have one and a half million, so that
/// otherwise what tenants write into theirs would decide how much memory a list takes.
pub(crate) const LARGEST: usize = 16 << 20;

/// Makes a service [`Observed`].
#[derive(Debug, Clone)]
pub(super) struct Observing(Arc<Settings>);

impl Observing {
    pub(super) fn new(
        role: Role,
        deadlines: Deadlines,
        server_clock: &ServerClock,
        metrics: &Metrics,
        patience: &Patience,
    ) -> Self {
        let (server_clock, metrics, patience) = (server_clock.clone(), metrics.clone(), patience.clone());
        Self(Arc::new(Settings { role, deadlines, server_clock, metrics, patience }))
    }
}

impl<S> Layer<S> for Observing {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, settings: Arc::clone(&self.0) }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Observed<S> {
    inner: S,
    settings: Arc<Settings>,
}

/// Complete, or, for a watch, as it comes.
type Answer<B> = Response<Either<Full<Bytes>, B>>;

impl<S, B> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asked = Asked::of(&request);
        if self.settings.role == Role::Reads && asked.writes {
            let error = Refused { verb: asked.verb, resource: asked.resource };
            return Box::pin(async move { Err(error.into()) });
        }
        let answer = self.inner.call(request);
        let settings = Arc::clone(&self.settings);
        Box::pin(async move { settings.answer(asked, answer).await })
    }
}

impl Settings {
    async fn answer<B>(
        &self,
        asked: Asked,
        answer: impl Future<Output = Result<Response<B>, BoxError>>,
    ) -> Result<Answer<B>, BoxError>
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
            self.note_patience(&answer);
            let (head, body) = answer.into_parts();
            let body = if asked.watch && head.status.is_success() {
                Either::Right(body)
            } else {
                Either::Left(Full::new(Limited::new(body, LARGEST).collect().await?.to_bytes()))
            };
            Ok(Response::from_parts(head, body))
        };
        let within = self.deadline(asked);
        let result: Result<_, BoxError> = match tokio::time::timeout(within, complete).await {
            Ok(result) => result,
            Err(_) => Err(NoAnswer { verb: asked.verb, resource: asked.resource, within }.into()),
        };
        // Renewals of the lease go out all the time. Reads alone may hang while the API server is well.
        if result.is_err() && self.role == Role::Writes {
            self.patience.unanswered();
        }
        let code = match (&result, status) {
            (Ok(_), Some(status)) => code_label(status),
            (Err(error), _) if error.is::<NoAnswer>() => "timeout",
            (Err(error), _) if error.is::<LengthLimitError>() => "too-large",
            _ => "error",
        };
        let labels =
            ApiRequest { client: self.role.as_str(), verb: asked.verb, resource: asked.resource, code };
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

    fn note_patience<B>(&self, answer: &Response<B>) {
        let asks = matches!(answer.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let header = answer.headers().get(http::header::RETRY_AFTER).filter(|_| asks);
        if let Some(seconds) = header.and_then(|h| h.to_str().ok()?.trim().parse().ok()) {
            self.patience.ask(seconds);
        }
    }

    fn deadline(&self, asked: Asked) -> Duration {
        match self.role {
            Role::Writes => self.deadlines.write,
            Role::Reads if asked.verb == "list" || asked.watch => self.deadlines.list,
            Role::Reads => self.deadlines.read,
        }
    }
}

/// What a request asks for, in the words of the Kubernetes API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) verb: &'static str,
    pub(super) resource: &'static str,
    pub(super) watch: bool,
    pub(super) writes: bool,
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        let (resource, named) = resource_of(uri.path());
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

const NONE: &str = "none";

/// The resources that have a label of their own; requests for others are counted together, so that the number of series is bounded.
const RESOURCES: &[&str] = &[
    "clusternamespacemanagers",
    "configmaps",
    "coppiceconfigs",
    "cronjobs",
    "customresourcedefinitions",
    "daemonsets",
    "deployments",
    "events",
    "jobs",
    "leases",
    "managednamespaces",
    "namespacemanagers",
    "namespaces",
    "pods",
    "replicasets",
    "resourcequotas",
    "secrets",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectrulesreviews",
    "statefulsets",
    "subjectaccessreviews",
    "subnamespaces",
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
    (RESOURCES.iter().find(|known| **known == resource).copied().unwrap_or("other"), named)
}

/// The status codes that the API server uses have a label of their own.
fn code_label(status: StatusCode) -> &'static str {
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
