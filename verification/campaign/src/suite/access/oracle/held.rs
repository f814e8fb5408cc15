//! What is in the Secret of a `ClusterAccess`, and whether the target takes it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::recorded_state::{RecordedState, owner_of};

/// The Secret that was made for a `ClusterAccess`.
pub(super) fn output_of<'a>(state: &RecordedState<'a>, uid: &str) -> Option<&'a Value> {
    let mut secrets = state.outputs.values().filter_map(|change| change.after.as_deref());
    secrets.find(|secret| owner_of(secret) == Some(uid))
}

/// Whether the target takes what a Secret holds.
pub(super) fn is_taken(state: &RecordedState<'_>, secret: &Value) -> bool {
    match token_in(secret) {
        Some(token) => state.tokens.iter().any(|one| one.token == token && state.is_valid(one)),
        None => holds_valid_certificate(state, secret),
    }
}

fn holds_valid_certificate(state: &RecordedState<'_>, secret: &Value) -> bool {
    let Some((certificate, key)) = certificate_in(secret) else { return false };
    let mut signed = state.certificates.iter();
    let signed = signed.find(|one| one.certificate == certificate);
    signed.is_some_and(|one| state.now < one.expires && one.is_of_key(&key))
}

/// How many Secrets hold a certificate that the target takes.
pub(in crate::suite::access) fn valid_certificates(state: &RecordedState<'_>) -> usize {
    let secrets = state.outputs.values().filter_map(|change| change.after.as_deref());
    secrets.filter(|secret| holds_valid_certificate(state, secret)).count()
}

/// The token in a Secret with a kubeconfig.
pub(super) fn token_in(secret: &Value) -> Option<String> {
    field_in(&kubeconfig_in(secret)?, "token")
}

/// The certificate in a Secret with a kubeconfig, and its key.
pub(super) fn certificate_in(secret: &Value) -> Option<(String, String)> {
    let text = kubeconfig_in(secret)?;
    Some((field_in(&text, "client-certificate-data")?, field_in(&text, "client-key-data")?))
}

fn kubeconfig_in(secret: &Value) -> Option<String> {
    let value = BASE64_STANDARD.decode(secret["data"]["kubeconfig"].as_str()?).ok()?;
    String::from_utf8(value).ok()
}

fn field_in(text: &str, field: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("\"{field}\":\""))?;
    Some(rest.split_once('"')?.0.to_owned())
}
