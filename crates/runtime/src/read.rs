//! Reads straight from the API server, always consistent: no `resourceVersion` parameter, so that the answer is never
//! older than the question (H4).

use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::core::Status;
use serde::Deserialize;

use crate::kinds::Watched;

/// How many objects a list asks for at once: bounds the memory of a list.
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

/// One page, from the start or from where the last one ended.
pub(crate) async fn page<T: Watched>(
    client: &kube::Client,
    namespace: &str,
    from: Option<&str>,
) -> Result<Page<T::Wire>, kube::Error> {
    let mut uri = format!("{}?limit={PAGE}", path::<T>(namespace));
    if let Some(token) = from {
        uri.push_str("&continue=");
        uri.extend(form_urlencoded::byte_serialize(token.as_bytes()));
    }
    decode(client, &uri).await
}

/// Decodes from the bytes as they came: `Client::request` makes two more copies of them, and logs all of it (the
/// environment variables of pods, too) where it cannot be decoded.
async fn decode<W: serde::de::DeserializeOwned>(client: &kube::Client, uri: &str) -> Result<W, kube::Error> {
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
    let mut token: Option<String> = None;
    loop {
        let page = page::<T>(client, namespace, token.as_deref()).await?;
        objects.extend(page.items.into_iter().map(|wire| T::project(wire).1));
        token = page.metadata.r#continue.filter(|t| !t.is_empty());
        if token.is_none() {
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
