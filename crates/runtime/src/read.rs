//! Reads straight from the API server, always consistent: no `resourceVersion` parameter, so that the answer is never
//! older than the question (H4).

use http::Request;
use http_body_util::{BodyExt as _, LengthLimitError};
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::kinds::Watched;

/// How many objects a list asks for at once, where they are not very large.
const PAGE: usize = 500;

/// One page of a list.
#[derive(Deserialize)]
#[serde(bound = "W: serde::de::DeserializeOwned")]
pub(crate) struct Page<W> {
    pub(crate) metadata: PageMeta,
    #[serde(default = "Vec::new")]
    pub(crate) items: Vec<W>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    pub(crate) r#continue: Option<String>,
}

/// The path of a kind's objects, in one namespace or (empty) in all.
pub(crate) fn path<T: Watched>(namespace: &str) -> String {
    let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("{}{place}/{}", T::GROUP_PATH, T::RESOURCE)
}

pub(crate) fn request(path: &str) -> Result<Request<Vec<u8>>, kube::Error> {
    Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)
}

/// Where the reading of a list is.
pub(crate) struct Cursor {
    /// Behind which object the next page begins; none at the start, and at the end.
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
    pub(crate) fn is_done(&self) -> bool {
        self.token.is_none()
    }
}

/// The next page.
pub(crate) async fn page<T: Watched>(
    client: &kube::Client,
    namespace: &str,
    cursor: &mut Cursor,
) -> Result<Page<T::Wire>, kube::Error> {
    page_at(client, &path::<T>(namespace), cursor).await
}

/// The next page of the objects of any kind at a path.
pub(crate) async fn page_at<W: DeserializeOwned>(
    client: &kube::Client,
    path: &str,
    cursor: &mut Cursor,
) -> Result<Page<W>, kube::Error> {
    loop {
        let limit = cursor.limit;
        let mut uri = format!("{path}?limit={limit}");
        if let Some(token) = &cursor.token {
            uri.push_str("&continue=");
            uri.extend(form_urlencoded::byte_serialize(token.as_bytes()));
        }
        match decode::<Page<W>>(client, &uri).await {
            Err(kube::Error::Service(error)) if error.is::<LengthLimitError>() && limit > 1 => {
                cursor.limit = (limit / 8).max(1);
                tracing::debug!(
                    path,
                    limit = cursor.limit,
                    "a page is too large: fewer objects are asked for"
                );
            }
            Err(error) => return Err(error),
            Ok(mut page) => {
                cursor.limit = (limit * 2).min(PAGE);
                cursor.token = page.metadata.r#continue.take().filter(|token| !token.is_empty());
                return Ok(page);
            }
        }
    }
}

/// Decodes from the bytes as they came: `Client::request` makes two more copies of them, and logs all of it (the
/// environment variables of pods, too) where it cannot be decoded.
async fn decode<W: DeserializeOwned>(client: &kube::Client, uri: &str) -> Result<W, kube::Error> {
    let request = Request::get(uri).body(Body::empty()).map_err(kube::Error::HttpError)?;
    let answer = client.send(request).await?;
    let code = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    if code.is_success() {
        return serde_json::from_slice(&body).map_err(kube::Error::SerdeError);
    }
    let refusal = serde_json::from_slice(&body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body);
        Status::failure(&text, "the answer is no Status object").with_code(code.as_u16())
    });
    Err(kube::Error::Api(Box::new(refusal)))
}

/// Every object of a kind in one namespace.
pub async fn list<T: Watched>(client: &kube::Client, namespace: &str) -> Result<Vec<T>, kube::Error> {
    let mut objects = Vec::new();
    let mut cursor = Cursor::default();
    loop {
        let page = page::<T>(client, namespace, &mut cursor).await?;
        objects.extend(page.items.into_iter().map(|wire| T::project(wire).1));
        if cursor.is_done() {
            objects.sort_by(|a, b| a.name().cmp(b.name()));
            return Ok(objects);
        }
    }
}

/// One object; none if there is no such object.
pub async fn get<T: Watched>(
    client: &kube::Client,
    namespace: &str,
    name: &str,
) -> Result<Option<T>, kube::Error> {
    let uri = format!("{}/{name}", path::<T>(namespace));
    match decode::<T::Wire>(client, &uri).await {
        Ok(wire) => Ok(Some(T::project(wire).1)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::body::Bytes;
    use coppice_lifecycle::facts::PodFacts;
    use futures::StreamExt as _;
    use http::Response;
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::client::{Clients, Deadlines, LARGEST};
    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::server_clock::ServerClock;

    /// As many pods as are asked for, of so many bytes each; the token is the number of the next one.
    fn pods(query: &str, all: usize, bytes: usize) -> Vec<u8> {
        let parameter = |name| {
            let found = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
            found.map_or(0, |(_, value)| value.parse::<usize>().unwrap())
        };
        let (from, limit) = (parameter("continue"), parameter("limit"));
        let until = all.min(from + limit);
        let note = "x".repeat(bytes);
        let pod = |n| json!({"metadata": {"name": format!("p{n:03}"), "namespace": "n", "annotations": {"a": note}}});
        let token = if until < all { until.to_string() } else { String::new() };
        let metadata = json!({"resourceVersion": "7", "continue": token});
        json!({"metadata": metadata, "items": (from..until).map(pod).collect::<Vec<_>>()})
            .to_string()
            .into_bytes()
    }

    /// What a list gives, what was asked for, and how many bytes were read of the longest answer.
    async fn listed(all: usize, bytes: usize) -> (Result<usize, kube::Error>, Vec<String>, usize) {
        const FRAME: usize = 1 << 20;
        let asked: Arc<Mutex<Vec<(String, usize)>>> = Arc::default();
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let answer = pods(&query, all, bytes);
            log.lock().unwrap().push((query, 0));
            let log = Arc::clone(&log);
            let frames: Vec<Bytes> = answer.chunks(FRAME).map(Bytes::copy_from_slice).collect();
            let read = futures::stream::iter(frames).map(move |frame| {
                log.lock().unwrap().last_mut().unwrap().1 += frame.len();
                Ok::<_, BoxError>(frame)
            });
            async move { Ok::<_, BoxError>(Response::new(axum::body::Body::from_stream(read))) }
        });
        let server_clock = ServerClock::new(Clock::following_tokio("2026-01-01T00:00:00Z".parse().unwrap()));
        let clients = Clients::over(&service, Deadlines::default(), &server_clock, &Metrics::new("test"));
        let found = list::<PodFacts>(&clients.reads, "n").await.map(|pods| pods.len());
        let (asked, read): (Vec<_>, Vec<_>) = asked.lock().unwrap().drain(..).unzip();
        let longest = read.into_iter().max().unwrap_or(0);
        assert!(longest <= LARGEST + FRAME, "{longest} bytes were read of one answer");
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
        assert!(longest > LARGEST, "the first answer was longer");
    }

    #[tokio::test]
    async fn one_object_that_is_too_large_is_an_error() {
        let (found, asked, _) = listed(1, LARGEST).await;
        assert!(found.unwrap_err().to_string().contains("length limit exceeded"));
        assert_eq!(asked.last().unwrap(), "limit=1");
    }
}
