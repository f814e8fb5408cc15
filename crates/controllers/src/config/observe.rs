//! The settings and the webhook key, straight from the API server.

use coppice_api::config::Breaker;
use coppice_api::names::{CONFIG_NAME, WEBHOOK_KEY_SECRET};
use coppice_kinds::{Config, Configs};
use coppice_notify::key::{KeyError, SigningKey};
use coppice_runtime::error::chain;
use coppice_runtime::read;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::SettingsError;
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
}

/// What there is.
pub(super) struct Observation {
    /// The settings; none if the object does not exist.
    pub(super) config: Option<Config>,
    /// The key; none if the Secret does not exist, an error if it holds no key.
    pub(super) key: Option<Result<SigningKey, KeyProblem>>,
    /// The breaker that this replica has noticed; none if it knows that the ledger has one.
    pub(super) noticed: Option<Breaker>,
}

pub(super) async fn observe(shared: &ControllerContext) -> Result<Observation, SettingsError> {
    let config = read::get::<Configs>(&shared.clients.reads, "", CONFIG_NAME)
        .await
        .map_err(|source| SettingsError::Read { what: format!("CoppiceConfig/{CONFIG_NAME}"), source })?;
    let place = format!("Secret {}/{WEBHOOK_KEY_SECRET}", shared.setup.own_namespace);
    let secrets: Api<Secret> = Api::namespaced(shared.clients.reads.clone(), &shared.setup.own_namespace);
    let secret = secrets
        .get_opt(WEBHOOK_KEY_SECRET)
        .await
        .map_err(|source| SettingsError::Read { what: place.clone(), source })?;
    let key = secret.map(|secret| {
        let field = secret.data.unwrap_or_default().remove(KEY_FIELD);
        let Some(bytes) = field else { return Err(KeyProblem::NoField { place }) };
        let Ok(text) = String::from_utf8(bytes.0) else { return Err(KeyProblem::NoText { place }) };
        SigningKey::from_secret(text.trim()).map_err(|source| KeyProblem::Invalid { place, source })
    });
    Ok(Observation { config, key, noticed: shared.noticed_breaker.get() })
}
