//! The settings and the webhook key, straight from the API server.

use coppice_api::names::{CONFIG_NAME, WEBHOOK_KEY_SECRET};
use coppice_notify::key::SigningKey;
use coppice_runtime::error::chain;
use coppice_runtime::kinds::Config;
use coppice_runtime::read;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::apply::KEY_FIELD;
use crate::shared::Shared;

/// What there is.
pub(super) struct Observation {
    /// The settings; none if the object does not exist.
    pub(super) config: Option<Config>,
    /// The key; none if the Secret does not exist, an error if it holds no key.
    pub(super) key: Option<Result<SigningKey, String>>,
}

pub(super) async fn observe(shared: &Shared) -> Result<Observation, String> {
    let config = read::get::<Config>(&shared.clients.reads, "", CONFIG_NAME)
        .await
        .map_err(|e| format!("CoppiceConfig/{CONFIG_NAME} cannot be read: {}", chain(&e)))?;
    let place = format!("Secret {}/{WEBHOOK_KEY_SECRET}", shared.setup.own_namespace);
    let secrets: Api<Secret> = Api::namespaced(shared.clients.reads.clone(), &shared.setup.own_namespace);
    let secret = secrets
        .get_opt(WEBHOOK_KEY_SECRET)
        .await
        .map_err(|e| format!("{place} cannot be read: {}", chain(&e)))?;
    let key = secret.map(|secret| {
        let field = secret.data.unwrap_or_default().remove(KEY_FIELD);
        let bytes = field.ok_or_else(|| format!("{place} has no field {KEY_FIELD:?}"))?.0;
        let text = String::from_utf8(bytes).map_err(|_| format!("{place}: {KEY_FIELD:?} is not text"))?;
        SigningKey::from_secret(text.trim()).map_err(|e| format!("{place}: {}", chain(&e)))
    });
    Ok(Observation { config, key })
}
