//! Carries a step out. What exists already is left to the next look.

use coppice_api::names::{CONFIG_NAME, FIELD_MANAGER, WEBHOOK_KEY_SECRET};
use coppice_api::{CoppiceConfig, CoppiceConfigSpec};
use coppice_notify::key::SigningKey;
use coppice_notify::key::SystemRandom;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, WriteError};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;

use super::observe::Observation;
use super::plan::Step;
use crate::shared::Shared;

/// The field of the Secret that holds the key.
pub(super) const KEY_FIELD: &str = "key";

pub(super) async fn apply(
    shared: &Shared,
    permit: &Permit,
    observation: &Observation,
    step: Step,
) -> Result<(), String> {
    let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let result = match step {
        Step::CreateConfig => {
            let api: Api<CoppiceConfig> = Api::all(shared.clients.writes.clone());
            let config = CoppiceConfig::new(CONFIG_NAME, CoppiceConfigSpec::default());
            api.create(&parameters, &config).await.map(|_| ()).map_err(WriteError::from)
        }
        Step::CreateKey => {
            let api: Api<Secret> =
                Api::namespaced(shared.clients.writes.clone(), &shared.setup.own_namespace);
            let key = SigningKey::generate(&SystemRandom::new()).map_err(|e| e.to_string())?;
            api.create(&parameters, &secret(&key)).await.map(|_| ()).map_err(WriteError::from)
        }
        Step::WriteStatus(status) => match &observation.config {
            Some(config) => {
                write::status(&shared.clients, permit, config, "CoppiceConfig", &*status).await.map(|_| ())
            }
            None => Ok(()),
        },
    };
    match result {
        // Somebody was faster, or the answer was lost: the next look tells.
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => Ok(()),
        Err(WriteError::Refused(error)) => Err(format!("CoppiceConfig/{CONFIG_NAME} and its key: {error}")),
    }
}

fn secret(key: &SigningKey) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(WEBHOOK_KEY_SECRET.to_owned()), ..ObjectMeta::default() },
        data: Some([(KEY_FIELD.to_owned(), ByteString(key.to_secret().into_bytes()))].into()),
        ..Secret::default()
    }
}
