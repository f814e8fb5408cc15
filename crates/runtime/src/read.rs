//! Reads straight from the API server, always consistent: no `resourceVersion` parameter, so that the answer is never
//! older than the question (H4).

use http::Request;
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
    client.request(request(&uri)?).await
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
    match client.request::<T::Wire>(request(&uri)?).await {
        Ok(wire) => Ok(Some(T::project(wire).1)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
