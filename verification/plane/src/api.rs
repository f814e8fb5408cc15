//! The few requests that bring up a plane.

use serde_json::Value;

use crate::error::{Error, ProbeError, Result, causes};

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
        let client = client.map_err(|error| Error::Client(causes(&error)))?;
        Ok(Self { client, token: token.to_owned() })
    }

    /// The body of a success.
    pub(crate) async fn get(&self, url: String) -> Result<String, ProbeError> {
        let request = self.client.get(url).bearer_auth(&self.token);
        body(request.send().await.map_err(ProbeError::Unanswered)?).await
    }

    /// The same for an object, which may exist already.
    pub(crate) async fn create(&self, url: String, object: &Value) -> Result<(), ProbeError> {
        let request =
            self.client.post(url).bearer_auth(&self.token).header("content-type", "application/json");
        let response = request.body(object.to_string()).send().await.map_err(ProbeError::Unanswered)?;
        match response.status().as_u16() {
            409 => Ok(()),
            _ => body(response).await.map(drop),
        }
    }
}

async fn body(response: reqwest::Response) -> Result<String, ProbeError> {
    let status = response.status();
    let text = response.text().await.map_err(ProbeError::Unanswered)?;
    if status.is_success() { Ok(text) } else { Err(ProbeError::Status { status, text }) }
}
