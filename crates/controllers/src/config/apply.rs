//! Carries a step out. What exists already is left to the next reconcile.

use std::collections::BTreeMap;

use coppice_api::CoppiceConfigSpec;
use coppice_api::names::{CONFIG_NAME, FIELD_MANAGER, WEBHOOK_KEY_SECRET};
use coppice_kinds::Configs;
use coppice_notify::key::SigningKey;
use coppice_notify::key::SystemRandom;
use coppice_runtime::leader::Permit;
use coppice_runtime::write::{self, WriteError};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;

use super::PlatformSettingsError;
use super::observe::Observation;
use super::plan::ConfigStep;
use crate::context::ControllerContext;

/// The field of the Secret that holds the key.
pub(super) const KEY_FIELD: &str = "key";

pub(super) async fn apply(
    shared: &ControllerContext,
    permit: &Permit,
    observation: &Observation,
    step: ConfigStep,
) -> Result<(), PlatformSettingsError> {
    let result = match step {
        ConfigStep::CreateConfig => {
            let (labels, spec) = (BTreeMap::new(), CoppiceConfigSpec::default());
            write::create::<Configs>(&shared.clients, permit, ("", CONFIG_NAME), &labels, &spec).await
        }
        ConfigStep::CreateKey => {
            let api: Api<Secret> =
                Api::namespaced(permit.client(&shared.clients).clone(), &shared.setup.own_namespace);
            let key = SigningKey::generate(&SystemRandom::new())?;
            let parameters =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
            api.create(&parameters, &secret(&key)).await.map(|_| ()).map_err(WriteError::from)
        }
        ConfigStep::WriteStatus(status) => match &observation.config {
            Some(config) => {
                write::status::<Configs>(&shared.clients, permit, config, &*status).await.map(|_| ())
            }
            None => Ok(()),
        },
    };
    match result {
        // Another writer was faster, or the answer was lost: the next reconcile shows it.
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone | WriteError::Ambiguous(_)) => Ok(()),
        Err(error @ WriteError::Refused(_)) => Err(PlatformSettingsError::Write(error)),
    }
}

fn secret(key: &SigningKey) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(WEBHOOK_KEY_SECRET.to_owned()), ..ObjectMeta::default() },
        data: Some([(KEY_FIELD.to_owned(), ByteString(key.to_secret().into_bytes()))].into()),
        ..Secret::default()
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
