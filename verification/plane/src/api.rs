//! The few requests that bring up a plane.

use serde_json::Value;

use crate::error::{Error, Result};

/// An HTTP client that trusts the plane's authority and speaks with one user's token.
#[derive(Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    token: String,
}

impl Api {
    pub(crate) fn new(ca_pem: &str, token: &str) -> Result<Self> {
        // The process may have chosen a provider already; any will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Certificate::from_pem(ca_pem.as_bytes()).and_then(|ca| {
            reqwest::Client::builder()
                .no_proxy()
                .tls_certs_only([ca])
                .timeout(std::time::Duration::from_secs(5))
                .build()
        });
        let client = client.map_err(|error| Error::Client(describe(&error)))?;
        Ok(Self { client, token: token.to_owned() })
    }

    /// The body of a success, or a sentence on what came instead.
    pub(crate) async fn get(&self, url: String) -> Result<String, String> {
        let response =
            self.client.get(url).bearer_auth(&self.token).send().await.map_err(|error| describe(&error))?;
        body(response).await
    }

    /// The same for an object, which may exist already.
    pub(crate) async fn create(&self, url: String, object: &Value) -> Result<(), String> {
        let request =
            self.client.post(url).bearer_auth(&self.token).header("content-type", "application/json");
        let response = request.body(object.to_string()).send().await.map_err(|error| describe(&error))?;
        match response.status().as_u16() {
            409 => Ok(()),
            _ => body(response).await.map(drop),
        }
    }
}

/// With the causes: the outermost text says little.
fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

async fn body(response: reqwest::Response) -> Result<String, String> {
    let status = response.status();
    let text = response.text().await.map_err(|error| describe(&error))?;
    if status.is_success() { Ok(text) } else { Err(format!("{status}: {}", text.trim())) }
}
