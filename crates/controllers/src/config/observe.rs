//! The settings and the webhook key, straight from the API server.

use coppice_api::config::Breaker;
use coppice_api::names::{CONFIG_NAME, WEBHOOK_KEY_SECRET};
use coppice_kinds::{Config, Configs};
use coppice_notify::key::{KeyError, SigningKey};
use coppice_runtime::error::chain;
use coppice_runtime::read;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::PlatformSettingsError;
use super::apply::KEY_FIELD;
use crate::context::ControllerContext;

/// Why a Secret holds no key.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyProblem {
    /// It does not have the field.
    #[error("{place} has no field {KEY_FIELD:?}")]
    NoField { place: String },
    /// The field is not text.
    #[error("{place}: {KEY_FIELD:?} is not text")]
    NoText { place: String },
    /// The text is no key.
    #[error("{place}: {}", chain(source))]
    Invalid { place: String, source: KeyError },
    /// The Secret cannot be read, so whether it holds one is not known.
    #[error("{place} cannot be read: {}", chain(source))]
    Unreadable { place: String, source: kube::Error },
}

/// What there is.
pub(super) struct Observation {
    /// The settings; none if the object does not exist.
    pub(super) config: Option<Config>,
    /// The key; none if the Secret does not exist, an error if it holds no key or cannot be read.
    pub(super) key: Option<Result<SigningKey, KeyProblem>>,
    /// The breakers that this replica knows, whatever the ledger has.
    pub(super) breakers: Vec<Breaker>,
    /// What is wrong with the templates of the settings.
    pub(super) template_problems: Vec<String>,
}

pub(super) async fn observe(shared: &ControllerContext) -> Result<Observation, PlatformSettingsError> {
    let config = read::get::<Configs>(&shared.clients.reads, "", CONFIG_NAME);
    let config = config.await.map_err(PlatformSettingsError::Read)?;
    if let Some(config) = &config {
        shared.observe_breaker(config);
    }
    let place = format!("Secret {}/{WEBHOOK_KEY_SECRET}", shared.setup.own_namespace);
    let secrets: Api<Secret> = Api::namespaced(shared.clients.reads.clone(), &shared.setup.own_namespace);
    let key = match secrets.get_opt(WEBHOOK_KEY_SECRET).await {
        Ok(secret) => secret.map(|secret| key_of(secret, place)),
        Err(source) => Some(Err(KeyProblem::Unreadable { place, source })),
    };
    let spec = config.as_ref().and_then(|config| config.spec.as_ref().ok());
    let template_problems = spec.map_or_else(Vec::new, |spec| shared.texts.problems(spec.messages.as_ref()));
    Ok(Observation { config, key, breakers: shared.known_breaker.get(), template_problems })
}

fn key_of(secret: Secret, place: String) -> Result<SigningKey, KeyProblem> {
    let field = secret.data.unwrap_or_default().remove(KEY_FIELD);
    let Some(bytes) = field else { return Err(KeyProblem::NoField { place }) };
    let Ok(text) = String::from_utf8(bytes.0) else { return Err(KeyProblem::NoText { place }) };
    SigningKey::from_secret(text.trim()).map_err(|source| KeyProblem::Invalid { place, source })
}
