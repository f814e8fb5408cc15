//! The admission webhook: what the API server asks before it stores an object. What is answered, a [`Reviewer`] decides.
//!
//! It only helps: where it does not answer, the API server admits (`failurePolicy: Ignore`), and controllers and policies hold what
//! has to hold. So too many requests, too large ones and those that are not understood are errors, never verdicts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coppice_runtime::metrics::Metrics;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::page;
use crate::port::{Handler, HttpResponse, PortLimits};
use crate::rate::RateLimit;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The path that the API server calls.
pub const PATH: &str = "/validate";
/// Bytes that a request may have: our objects are much smaller, before and after a change together.
const MAX_BYTES: usize = 2 << 20;
/// Up to so many bytes a request is read beside all others: there is one at most for each connection ([`LIMITS`]).
const SMALL_BYTES: usize = 64 << 10;
/// As many larger ones are in memory at once,
const MAX_LARGE: usize = 16;
/// and as many requests are reviewed at once.
const MAX_AT_ONCE: usize = 16;
/// From each address.
const PER_SECOND: u32 = 2000;
/// The API server waits 2 s. What is not answered by then is not needed any more.
const DEADLINE: Duration = Duration::from_millis(1900);

/// The limits of the port: the API servers keep their connections for 90 s.
pub const LIMITS: PortLimits = PortLimits {
    connections: 128,
    head: Duration::from_secs(100),
    whole: Duration::from_mins(10),
    reuse: true,
};

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest<'a> {
    /// Names the request in the answer.
    pub uid: String,
    /// Of which kind the object is.
    pub resource: Resource,
    /// What is to be done.
    pub operation: String,
    /// As it would be stored; none if it is deleted.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// As it is stored; none if it is created.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
}

/// A kind, as URLs name it.
#[derive(Debug, Deserialize)]
pub struct Resource {
    /// Its API group.
    pub group: String,
    /// Its plural.
    pub resource: String,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// Nothing is known to be wrong with it.
    Allowed,
    /// Whether something is wrong is not known: it is admitted.
    Unknown,
    /// It would not be carried out.
    Denied {
        /// In one word, as in conditions.
        reason: String,
        /// A sentence: what is wrong, and what to do.
        message: String,
    },
}

/// Decides. It changes nothing, so that dry runs and repeated requests have no effect.
pub trait Reviewer: Send + Sync + 'static {
    /// What becomes of a request.
    fn review<'a>(
        &'a self,
        request: &'a AdmissionRequest<'a>,
    ) -> impl Future<Output = AdmissionVerdict> + Send + 'a;
}

#[derive(Clone, Debug, Default, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByOutcome {
    outcome: &'static str,
}

/// What is measured of it. Clones share it.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    requests: Family<ByOutcome, Counter>,
    seconds: Histogram,
}

impl AdmissionMetrics {
    /// Everything at zero, registered in `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let buckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0];
        let this = Self { requests: Family::default(), seconds: Histogram::new(buckets) };
        for outcome in ["allowed", "denied", "unknown", "error"] {
            drop(this.requests.get_or_create(&ByOutcome { outcome }));
        }
        metrics.register(|to| {
            to.register("admission_requests", "Requests of the API server to the admission webhook of this replica by outcome: `allowed`, `denied`, `unknown` (the caches are not there yet, or the API server could not be read: admitted) and `error` (not understood, too large, or too many)", this.requests.clone());
            to.register_with_unit("admission_duration", "How long the admission webhook took for a request", Unit::Seconds, this.seconds.clone());
        });
        this
    }
}

/// What the webhook's port answers. Clones share its limits.
pub struct Admission<R>(Arc<Inner<R>>);

struct Inner<R> {
    reviewer: R,
    rate: RateLimit,
    large: Semaphore,
    room: Semaphore,
    metrics: AdmissionMetrics,
}

impl<R> Clone for Admission<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Reviewer> Admission<R> {
    /// Nothing is asked yet.
    pub fn new(reviewer: R, metrics: AdmissionMetrics) -> Self {
        Self::with_rate(reviewer, metrics, PER_SECOND)
    }

    /// The same with so many requests a second from each address.
    pub fn with_rate(reviewer: R, metrics: AdmissionMetrics, per_second: u32) -> Self {
        let rate = RateLimit::new(per_second);
        let (large, room) = (Semaphore::new(MAX_LARGE), Semaphore::new(MAX_AT_ONCE));
        Self(Arc::new(Inner { reviewer, rate, large, room, metrics }))
    }

    /// The answer to a request with this body, for callers without a connection, such as simulations.
    pub async fn answer_to(&self, body: &[u8]) -> HttpResponse {
        self.in_time(self.review(body)).await
    }

    async fn answer<B>(
        &self,
        peer: IpAddr,
        request: Request<B>,
    ) -> Result<(HttpResponse, &'static str), HttpResponse>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        if request.uri().path() != PATH {
            return Err(page::nothing());
        }
        if request.method() != Method::POST {
            let mut page = page::text(StatusCode::METHOD_NOT_ALLOWED, "only POST is answered\n");
            page.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return Err(page);
        }
        if !self.0.rate.allows(peer, Instant::now()) {
            let text = format!("more than {} requests a second from {peer}\n", self.0.rate.per_second());
            return Err(page::text(StatusCode::TOO_MANY_REQUESTS, text));
        }
        let (body, _large) = self.read(request.into_body()).await?;
        // Never closed.
        let _room = self.0.room.acquire().await;
        self.review(&body).await
    }

    /// The body of a request, which may come slowly: only a large one takes a place meanwhile, of those for large ones.
    async fn read<B>(&self, body: B) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), HttpResponse>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let mut body = Limited::new(body, MAX_BYTES);
        let (mut read, mut large) = (Vec::new(), None);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    page::text(StatusCode::PAYLOAD_TOO_LARGE, format!("more than {MAX_BYTES} bytes\n"))
                } else {
                    page::text(StatusCode::BAD_REQUEST, "the request has broken off\n")
                }
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if large.is_none() && read.len() + data.len() > SMALL_BYTES {
                large = self.0.large.acquire().await.ok();
            }
            read.extend_from_slice(&data);
        }
        Ok((read, large))
    }

    async fn review(&self, body: &[u8]) -> Result<(HttpResponse, &'static str), HttpResponse> {
        let review: Review<'_> = serde_json::from_slice(body).map_err(|error| {
            let text = format!("this is no AdmissionReview of admission.k8s.io/v1: {error}\n");
            page::text(StatusCode::BAD_REQUEST, text)
        })?;
        if review.api_version != API_VERSION {
            let text = format!("apiVersion is {:?}: only {API_VERSION} is answered\n", review.api_version);
            return Err(page::text(StatusCode::BAD_REQUEST, text));
        }
        let verdict = self.0.reviewer.review(&review.request).await;
        let outcome = match &verdict {
            AdmissionVerdict::Allowed => "allowed",
            AdmissionVerdict::Unknown => "unknown",
            AdmissionVerdict::Denied { .. } => "denied",
        };
        Ok((answer(&review.request.uid, &verdict), outcome))
    }

    /// An answer as long as somebody waits for it, measured.
    async fn in_time(
        &self,
        answer: impl Future<Output = Result<(HttpResponse, &'static str), HttpResponse>>,
    ) -> HttpResponse {
        let started = Instant::now();
        let (page, outcome) = match timeout(DEADLINE, answer).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(page)) => (page, "error"),
            Err(_) => {
                let text = "there was no time left for an answer\n";
                (page::text(StatusCode::SERVICE_UNAVAILABLE, text), "error")
            }
        };
        self.0.metrics.requests.get_or_create(&ByOutcome { outcome }).inc();
        self.0.metrics.seconds.observe(started.elapsed().as_secs_f64());
        page
    }
}

const API_VERSION: &str = "admission.k8s.io/v1";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(borrow)]
    request: AdmissionRequest<'a>,
}

fn answer(uid: &str, verdict: &AdmissionVerdict) -> HttpResponse {
    let response = match verdict {
        AdmissionVerdict::Allowed | AdmissionVerdict::Unknown => json!({"uid": uid, "allowed": true}),
        AdmissionVerdict::Denied { reason, message } => json!({
            "uid": uid, "allowed": false,
            "status": {"code": 403, "reason": "Forbidden", "message": format!("{reason}: {message}")}
        }),
    };
    let review = json!({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response});
    let mut page = page::text(StatusCode::OK, review.to_string());
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    page
}

impl<R: Reviewer> Handler for Admission<R> {
    async fn respond(&self, peer: IpAddr, request: Request<Incoming>) -> HttpResponse {
        self.in_time(self.answer(peer, request)).await
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;
    use futures::future::join_all;
    use futures::stream::{self, StreamExt as _};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    struct AllowsAll;

    impl Reviewer for AllowsAll {
        async fn review(&self, _: &AdmissionRequest<'_>) -> AdmissionVerdict {
            AdmissionVerdict::Allowed
        }
    }

    async fn answered<B>(admission: &Admission<AllowsAll>, body: B) -> StatusCode
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let request = Request::post(PATH).body(body).unwrap();
        admission.in_time(admission.answer(Ipv4Addr::LOCALHOST.into(), request)).await.status()
    }

    /// A body of which so many bytes come, and never its end.
    fn unfinished(bytes: usize) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
        let first = Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b' '; bytes])));
        StreamBody::new(stream::iter([first]).chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_slowly_takes_no_place_from_others_but_from_those_as_large() {
        let admission = Admission::new(AllowsAll, AdmissionMetrics::new(&Metrics::new("test")));
        let resource = json!({"group": "g", "resource": "things"});
        let request = json!({"uid": "u", "operation": "CREATE", "resource": resource});
        let review = json!({"apiVersion": API_VERSION, "request": request}).to_string();
        let complete = |at_least: usize| {
            let padding = " ".repeat(at_least.saturating_sub(review.len()));
            Full::new(Bytes::from(format!("{review}{padding}")))
        };
        let slow = [1, SMALL_BYTES + 1].into_iter().flat_map(|bytes| [bytes; MAX_LARGE]);
        let mut slow = Box::pin(join_all(slow.map(|bytes| answered(&admission, unfinished(bytes)))));
        assert!(slow.as_mut().now_or_never().is_none(), "all of them wait for more");
        assert_eq!(answered(&admission, complete(0)).await, StatusCode::OK);
        assert_eq!(answered(&admission, complete(SMALL_BYTES)).await, StatusCode::OK);
        assert_eq!(answered(&admission, complete(SMALL_BYTES + 1)).await, StatusCode::SERVICE_UNAVAILABLE);
        // As long as the API server waits, and no longer.
        assert_eq!(slow.await, [StatusCode::SERVICE_UNAVAILABLE; 2 * MAX_LARGE]);
        assert_eq!(answered(&admission, complete(SMALL_BYTES + 1)).await, StatusCode::OK);
    }
}
