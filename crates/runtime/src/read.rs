//! Reads straight from the API server, always consistent: no `resourceVersion` parameter, so that the answer is never
//! older than the question (H4).

use axum::body::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError};
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;

use crate::client::{MAX_RESPONSE_BYTES, ResourceName};
use crate::decode::{self, Page, Unreadable};
use crate::error::chain;
use crate::kind::Kind;

/// How many objects a list asks for at once, where they are not very large.
const PAGE: usize = 500;
/// Bytes that are kept ready for the events of a watch.
const LINE: usize = 64 << 10;

/// The path of a kind's objects, in one namespace or (empty) in all.
pub fn path<K: Kind>(namespace: &str) -> String {
    let namespace_path =
        if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("{}{namespace_path}/{}", K::GROUP_PATH, K::RESOURCE)
}

/// The label selector of a kind, as a further parameter of a query; empty if it has none.
pub(crate) fn selector_parameter<K: Kind>() -> String {
    if K::LABEL_SELECTOR.is_empty() {
        return String::new();
    }
    selected(K::LABEL_SELECTOR)
}

fn selected(selector: &str) -> String {
    let selector: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
    format!("&labelSelector={selector}")
}

/// How a kind is asked for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Form {
    /// The name of its resource.
    resource: Option<ResourceName>,
    /// The `Accept` header; none for whole objects. A server that does not know this form answers with whole objects.
    accept: Option<&'static str>,
}

/// How a list of a kind is asked for.
fn list_form<K: Kind>() -> Form {
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
    Form { resource: Some(ResourceName(K::RESOURCE)), accept: K::METADATA_ONLY.then_some(metadata) }
}

/// The same for one object, and for a watch.
pub(crate) fn object_form<K: Kind>() -> Form {
    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
    Form { resource: Some(ResourceName(K::RESOURCE)), accept: K::METADATA_ONLY.then_some(metadata) }
}

/// A GET of a path.
///
/// # Errors
/// If it is no path of a URL.
pub fn request(path: &str) -> Result<Request<Vec<u8>>, kube::Error> {
    Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}

/// Sends a request, and reads its answer. `Client::request` would log the whole of one that is not understood or is a refusal, and it may
/// hold a credential.
///
/// # Errors
/// If it is refused or not answered, or the answer is none that was asked for.
pub async fn answer<T: DeserializeOwned>(
    client: &kube::Client,
    request: Request<Vec<u8>>,
) -> Result<T, kube::Error> {
    let body = successful_body(client.send(request.map(Body::from)).await?).await?;
    serde_json::from_slice(&body).map_err(kube::Error::SerdeError)
}

/// A GET of a path of this kind.
pub(crate) fn request_of<K: Kind>(path: &str) -> Result<Request<Vec<u8>>, kube::Error> {
    let mut request = request(path)?;
    request.extensions_mut().insert(ResourceName(K::RESOURCE));
    Ok(request)
}

/// The position in a list that is being read.
pub struct Cursor {
    /// The continue token of the next page; none at the start, and at the end.
    token: Option<String>,
    /// How many objects the next page is asked for: [`PAGE`], fewer where they are so large that the client gives the answer
    /// up, and more again after that.
    limit: usize,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { token: None, limit: PAGE }
    }
}

impl Cursor {
    /// After a page: whether it was the last one.
    pub fn is_done(&self) -> bool {
        self.token.is_none()
    }
}

/// The next page.
pub(crate) async fn page<K: Kind>(
    client: &kube::Client,
    namespace: &str,
    cursor: &mut Cursor,
    context: &K::Context,
) -> Result<Page<K::Object>, kube::Error> {
    page_with::<K>(client, (&path::<K>(namespace), &selector_parameter::<K>()), cursor, context).await
}

/// The next page of what is at a path with further parameters.
async fn page_with<K: Kind>(
    client: &kube::Client,
    (path, parameters): (&str, &str),
    cursor: &mut Cursor,
    context: &K::Context,
) -> Result<Page<K::Object>, kube::Error> {
    page_of(client, (path, parameters, list_form::<K>()), cursor, |body| {
        let mut page = decode::page::<K>(body, context)?;
        let token = page.token.take();
        Ok((page, token))
    })
    .await
}

/// The next page of what is at a path. `decode` also returns the continue token of the page after it.
pub async fn page_at<P>(
    client: &kube::Client,
    path: &str,
    cursor: &mut Cursor,
    decode: impl Fn(&[u8]) -> Result<(P, Option<String>), serde_json::Error>,
) -> Result<P, kube::Error> {
    page_of(client, (path, "", Form::default()), cursor, decode).await
}

/// The next page of what is at a path with further parameters, in that form.
async fn page_of<P>(
    client: &kube::Client,
    (path, parameters, form): (&str, &str, Form),
    cursor: &mut Cursor,
    decode: impl Fn(&[u8]) -> Result<(P, Option<String>), serde_json::Error>,
) -> Result<P, kube::Error> {
    loop {
        let limit = cursor.limit;
        let mut uri = format!("{path}?limit={limit}{parameters}");
        if let Some(token) = &cursor.token {
            uri.push_str("&continue=");
            uri.extend(form_urlencoded::byte_serialize(token.as_bytes()));
        }
        match body(client, &uri, form).await {
            Err(kube::Error::Service(error)) if error.is::<LengthLimitError>() && limit > 1 => {
                cursor.limit = (limit / 8).max(1);
                tracing::debug!(
                    path,
                    limit = cursor.limit,
                    "a page is too large: fewer objects are asked for"
                );
            }
            Err(error) => return Err(error),
            Ok(body) => {
                let (page, token) = decode(&body).map_err(kube::Error::SerdeError)?;
                cursor.limit = (limit * 2).min(PAGE);
                cursor.token = token.filter(|token| !token.is_empty());
                return Ok(page);
            }
        }
    }
}

/// The bytes of an answer as they came: `Client::request` makes two more copies of them, and logs all of it (the
/// environment variables of pods, too) where it cannot be decoded.
async fn body(client: &kube::Client, uri: &str, form: Form) -> Result<Bytes, kube::Error> {
    successful_body(client.send(get_request(uri, form)?).await?).await
}

fn get_request(uri: &str, form: Form) -> Result<Request<Body>, kube::Error> {
    let mut request = Request::get(uri);
    if let Some(resource) = form.resource {
        request = request.extension(resource);
    }
    if let Some(accept) = form.accept {
        request = request.header(header::ACCEPT, accept);
    }
    request.body(Body::empty()).map_err(kube::Error::HttpError)
}

/// The body of an answer, if with success.
async fn successful_body(response: Response<Body>) -> Result<Bytes, kube::Error> {
    let code = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if code.is_success() { Ok(body) } else { Err(refusal(code, &body)) }
}

fn refusal(code: StatusCode, body: &[u8]) -> kube::Error {
    let refusal = serde_json::from_slice(body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(body);
        Status::failure(&text, "the answer is no Status object").with_code(code.as_u16())
    });
    kube::Error::Api(Box::new(refusal))
}

/// Why the objects of a kind are not known.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The API server refused, or did not answer.
    #[error("{}", chain(.0))]
    Api(#[from] kube::Error),
    /// One of them cannot be understood.
    #[error(transparent)]
    Unreadable(Unreadable),
}

impl ListError {
    /// Whether the API server says that it is not allowed.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if matches!(status.code, 401 | 403))
    }
}

/// Every object of a kind in one namespace.
///
/// # Errors
/// If they cannot be listed, or one of them cannot be understood.
pub async fn list<K: Kind<Context = ()>>(
    client: &kube::Client,
    namespace: &str,
) -> Result<Vec<K::Object>, ListError> {
    all_of::<K>(client, &path::<K>(namespace), &selector_parameter::<K>()).await
}

/// Every object of a kind, in all namespaces, on which a label has this value.
///
/// # Errors
/// As of [`list`].
pub async fn list_labeled<K: Kind>(
    client: &kube::Client,
    label: &str,
    value: &str,
) -> Result<Vec<K::Object>, ListError> {
    all_of::<K>(client, &path::<K>(""), &selected(&format!("{label}={value}"))).await
}

/// All pages of what is at a path with further parameters, in the order of names.
async fn all_of<K: Kind>(
    client: &kube::Client,
    path: &str,
    parameters: &str,
) -> Result<Vec<K::Object>, ListError> {
    let mut objects = Vec::new();
    let (mut cursor, context) = (Cursor::default(), K::Context::default());
    loop {
        let page = page_with::<K>(client, (path, parameters), &mut cursor, &context).await?;
        for item in page.items {
            match item.object {
                Ok(object) => objects.push(object),
                Err(unreadable) => return Err(ListError::Unreadable(unreadable)),
            }
        }
        if cursor.is_done() {
            objects.sort_by(|a, b| K::name(a).cmp(K::name(b)));
            return Ok(objects);
        }
    }
}

/// One object; none if there is no such object. One that cannot be understood is an error.
pub async fn get<K: Kind>(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> Result<Option<K::Object>, kube::Error> {
    get_with::<K>(client, namespace, name, &K::Context::default()).await
}

/// The same, of which as much is read as this context keeps.
pub async fn get_with<K: Kind>(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    context: &K::Context,
) -> Result<Option<K::Object>, kube::Error> {
    let uri = format!("{}/{name}", path::<K>(namespace));
    match body(client, &uri, object_form::<K>()).await {
        Ok(body) => decoded::<K>(&body, context).map(Some),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// One object from an answer.
pub fn decoded<K: Kind>(body: &[u8], context: &K::Context) -> Result<K::Object, kube::Error> {
    let json = std::str::from_utf8(body).map_err(|error| kube::Error::Service(error.into()))?;
    let item = decode::item::<K>(json, context);
    let item = item.map_err(|_| kube::Error::Service("such an object is not kept".into()))?;
    item.object.map_err(|unreadable| kube::Error::Service(unreadable.into()))
}

/// The lines of a watch, one event each.
pub(crate) struct Lines {
    body: Body,
    read: Vec<u8>,
    /// Where the next line begins in what was read.
    start: usize,
    /// From where on no end of a line has been searched for.
    searched: usize,
}

/// Opens a watch of objects in this form.
pub(crate) async fn lines(client: &kube::Client, uri: &str, form: Form) -> Result<Lines, kube::Error> {
    let mut request = get_request(uri, form)?;
    // Kubernetes 1.37 and later compress each event by itself, of which tower-http decodes the first alone.
    let identity = http::HeaderValue::from_static("identity");
    request.headers_mut().insert(header::ACCEPT_ENCODING, identity);
    let response = client.send(request).await?;
    let (code, body) = (response.status(), response.into_body());
    if !code.is_success() {
        return Err(refusal(code, &body.collect().await?.to_bytes()));
    }
    Ok(Lines { body, read: Vec::new(), start: 0, searched: 0 })
}

impl Lines {
    /// The next line; none at the end of the watch, also where the connection just ended: a watch can be resumed.
    pub(crate) async fn next(&mut self) -> Option<Result<&[u8], kube::Error>> {
        loop {
            if let Some(at) = self.read[self.searched..].iter().position(|byte| *byte == b'\n') {
                let (start, end) = (self.start, self.searched + at);
                (self.start, self.searched) = (end + 1, end + 1);
                return Some(Ok(&self.read[start..end]));
            }
            self.read.drain(..self.start);
            // What one large object needed is not kept for all the small ones.
            self.read.shrink_to(self.read.len().max(LINE));
            (self.start, self.searched) = (0, self.read.len());
            if self.read.len() > MAX_RESPONSE_BYTES {
                let error = format!("an event of more than {MAX_RESPONSE_BYTES} bytes");
                return Some(Err(kube::Error::ReadEvents(std::io::Error::other(error))));
            }
            match self.body.frame().await? {
                Ok(frame) => self.read.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(error) if ended_early(&error) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn ended_early(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        matches!(kind, Some(std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::TimedOut))
            || error.to_string().contains("unexpected EOF during chunk")
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::body::Bytes;
    use futures::StreamExt as _;
    use http::Response;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::client::{Clients, Deadlines, MAX_RESPONSE_BYTES};
    use crate::clock::Clock;
    use crate::kind::testing::Widgets;
    use crate::metrics::Metrics;
    use crate::server_clock::ServerClock;

    /// As many widgets as are asked for, of so many bytes each; the token is the number of the next one.
    fn widgets(query: &str, all: usize, bytes: usize) -> Vec<u8> {
        let parameter = |name| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
            found.map_or(0, |(_, value)| value.parse::<usize>().unwrap())
        };
        let (from, limit) = (parameter("continue"), parameter("limit"));
        let until = all.min(from + limit);
        let note = "x".repeat(bytes);
        let widget = |n| json!({"metadata": {"name": format!("w{n:03}"), "namespace": "n", "annotations": {"a": note}}});
        let token = if until < all { until.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": "7", "continue": token});
        json!({"metadata": metadata, "items": (from..until).map(widget).collect::<Vec<_>>()})
            .to_string()
            .into_bytes()
    }

    /// What a list gives, what was asked for, and how many bytes were read of the longest answer.
    async fn listed(all: usize, bytes: usize) -> (Result<usize, ListError>, Vec<String>, usize) {
        const FRAME: usize = 1 << 20;
        let asked: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let response = widgets(&query, all, bytes);
            log.lock().unwrap().push((query, 0));
            let log = Arc::clone(&log);
            let frames: Vec<Bytes> = response.chunks(FRAME).map(Bytes::copy_from_slice).collect();
            let read = futures::stream::iter(frames).map(move |frame| {
                log.lock().unwrap().last_mut().unwrap().1 += frame.len();
                Ok::<_, BoxError>(frame)
            });
            async move { Ok::<_, BoxError>(Response::new(axum::body::Body::from_stream(read))) }
        });
        let server_clock = ServerClock::new(Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()));
        let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
        let found = list::<Widgets>(&clients.reads, "n").await.map(|widgets| widgets.len());
        let (asked, read): (Vec<_>, Vec<_>) = asked.lock().unwrap().drain(..).unzip();
        let longest = read.into_iter().max().unwrap_or(0);
        assert!(longest <= MAX_RESPONSE_BYTES + FRAME, "{longest} bytes were read of one answer");
        (found, asked, longest)
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page() {
        let (found, asked, _) = listed(1100, 100).await;
        assert_eq!(found.unwrap(), 1100);
        assert_eq!(asked, ["limit=500", "limit=500&continue=500", "limit=500&continue=1000"]);
    }

    #[tokio::test]
    async fn pages_of_large_objects_are_smaller_and_grow_again() {
        let (found, asked, longest) = listed(15, 1_500_000).await;
        assert_eq!(found.unwrap(), 15);
        assert_eq!(asked, ["limit=500", "limit=62", "limit=7", "limit=14&continue=7"]);
        assert!(longest > MAX_RESPONSE_BYTES, "the first answer was longer");
    }

    #[tokio::test]
    async fn one_object_that_is_too_large_is_an_error() {
        let (found, asked, _) = listed(1, MAX_RESPONSE_BYTES).await;
        assert!(found.unwrap_err().to_string().contains("length limit exceeded"));
        assert_eq!(asked.last().unwrap(), "limit=1");
    }
}
