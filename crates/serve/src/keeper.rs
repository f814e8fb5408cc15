//! Keeps the certificate authority of a webhook: in a Secret that all replicas read, and in the configuration by which the API server
//! trusts it. The leader alone writes; each replica issues its own certificate.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_api::names::FIELD_MANAGER;
use coppice_runtime::client::Clients;
use coppice_runtime::clock::Clock;
use coppice_runtime::error::chain;
use coppice_runtime::leader::Gate;
use coppice_runtime::readiness::Check;
use coppice_runtime::write::WriteError;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::authority::{Authority, AuthorityError, IssueError};
use crate::certificate::{Certificate, CertificateError};

/// How often everything is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// The same while something is missing.
const LOOK_SOON: Duration = Duration::from_secs(2);
/// As many writes in a row: more are not due at a time.
const MAX_WRITES: usize = 6;

/// What belongs to a webhook.
pub struct Keeper {
    /// The API server.
    pub clients: Clients,
    /// Whether this replica writes.
    pub gate: Gate,
    /// The time.
    pub clock: Clock,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The Secret.
    pub secret: &'static str,
    /// The `ValidatingWebhookConfiguration`.
    pub configuration: &'static str,
    /// The names and addresses by which the API server calls this replica.
    pub names: Vec<String>,
    /// What this replica shows.
    pub certificate: Certificate,
    /// Ready while there is a certificate to show.
    pub check: Check,
}

/// Why not everything is as it has to be.
#[derive(Debug, thiserror::Error)]
enum KeeperError {
    #[error("{what} cannot be read: {}", chain(source))]
    Read { what: String, source: kube::Error },
    #[error("Secret {place}: {source}: delete it, and another one is made")]
    Secret { place: String, source: AuthorityError },
    #[error("{what} cannot be written: {source}")]
    Write { what: String, source: WriteError },
    #[error("there is no Secret {0} yet: the replica that leads makes it")]
    NoSecret(String),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// What a replica shows at the moment.
struct Shown {
    signer: String,
    renew_at: Timestamp,
}

impl Keeper {
    /// Runs for ever.
    pub async fn keep(self) {
        let (mut shown, mut leads) = (None, self.gate.subscribe());
        loop {
            let wait = match self.look(&mut shown).await {
                Ok(()) => LOOK,
                Err(error) => {
                    let missing = shown.is_none();
                    if missing {
                        self.check.not_ready(&error.to_string());
                    }
                    // At the very first start it is not there for a moment.
                    if matches!(error, KeeperError::NoSecret(_)) {
                        tracing::info!(%error, "the certificate of the webhook");
                    } else {
                        tracing::warn!(%error, "the certificate of the webhook");
                    }
                    if missing { LOOK_SOON } else { LOOK }
                }
            };
            // Who begins to lead has what others left to do.
            let lead = async {
                if leads.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! { () = sleep(wait) => {}, () = lead => {} }
        }
    }

    async fn look(&self, shown: &mut Option<Shown>) -> Result<(), KeeperError> {
        for _ in 0..MAX_WRITES {
            let Some(secret) = self.secret().await? else {
                self.create().await?;
                continue;
            };
            let authority = self.authority(&secret)?;
            self.show(&authority, shown)?;
            if !self.gate.is_leader() {
                return Ok(());
            }
            let configuration = self.configuration().await?;
            let trusted = configuration.as_ref().map(published).unwrap_or_default();
            if let Some(change) = authority.due(&trusted, self.clock.now()) {
                tracing::info!(?change, "the authority of the webhook is renewed");
                let changed = authority.after(change, self.clock.now())?;
                self.replace(&secret, &changed).await?;
                continue;
            }
            let bundle = authority.bundle();
            let Some(configuration) = configuration.filter(|_| trusted != bundle) else { return Ok(()) };
            self.publish(&configuration, &bundle).await?;
        }
        Ok(())
    }

    /// Shows a certificate by this authority, if the one that is shown is by another, or old.
    fn show(&self, authority: &Authority, shown: &mut Option<Shown>) -> Result<(), KeeperError> {
        let now = self.clock.now();
        if shown.as_ref().is_some_and(|shown| shown.signer == authority.signer() && now < shown.renew_at) {
            return Ok(());
        }
        let issued = authority.issue(&self.names, now)?;
        self.certificate.set(issued.certificate.as_bytes(), issued.key.as_bytes())?;
        *shown = Some(Shown { signer: authority.signer().to_owned(), renew_at: issued.renew_at });
        self.check.ready();
        Ok(())
    }

    fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.secret)
    }

    async fn secret(&self) -> Result<Option<Secret>, KeeperError> {
        let api: Api<Secret> = Api::namespaced(self.clients.reads.clone(), &self.namespace);
        let what = || format!("Secret {}", self.place());
        api.get_opt(self.secret).await.map_err(|source| KeeperError::Read { what: what(), source })
    }

    async fn configuration(&self) -> Result<Option<ValidatingWebhookConfiguration>, KeeperError> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.clients.reads.clone());
        let what = || format!("ValidatingWebhookConfiguration {}", self.configuration);
        api.get_opt(self.configuration).await.map_err(|source| KeeperError::Read { what: what(), source })
    }

    fn authority(&self, secret: &Secret) -> Result<Authority, KeeperError> {
        let fields = secret.data.iter().flatten().map(|(name, bytes)| (name.clone(), bytes.0.clone()));
        let fields: BTreeMap<String, Vec<u8>> = fields.collect();
        Authority::read(&fields).map_err(|source| KeeperError::Secret { place: self.place(), source })
    }

    async fn create(&self) -> Result<(), KeeperError> {
        let Ok(permit) = self.gate.permit() else { return Err(KeeperError::NoSecret(self.place())) };
        let api: Api<Secret> = Api::namespaced(permit.client(&self.clients).clone(), &self.namespace);
        let metadata = ObjectMeta { name: Some(self.secret.to_owned()), ..ObjectMeta::default() };
        let fields = Authority::new(self.clock.now())?.fields();
        let data = fields.into_iter().map(|(name, text)| (name, ByteString(text))).collect();
        let new =
            Secret { metadata, data: Some(data), type_: Some("Opaque".to_owned()), ..Secret::default() };
        let parameters =
            PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let answer = api.create(&parameters, &new).await;
        written(answer, || format!("Secret {}", self.place()))
    }

    /// Of what was read alone.
    async fn replace(&self, secret: &Secret, authority: &Authority) -> Result<(), KeeperError> {
        let Ok(permit) = self.gate.permit() else { return Ok(()) };
        let api: Api<Secret> = Api::namespaced(permit.client(&self.clients).clone(), &self.namespace);
        // What it has no more is removed.
        let gone = secret.data.iter().flatten().map(|(name, _)| (name.clone(), Value::Null));
        let kept = authority.fields().into_iter().map(|(name, text)| (name, json!(STANDARD.encode(text))));
        let data: serde_json::Map<String, Value> = gone.chain(kept).collect();
        let patch = Patch::Merge(json!({"metadata": revision(&secret.metadata), "data": data}));
        let answer = api.patch(self.secret, &patched_by_us(), &patch).await;
        written(answer, || format!("Secret {}", self.place()))
    }

    /// Of what was read alone. Webhooks are merged by their names.
    async fn publish(&self, known: &ValidatingWebhookConfiguration, bundle: &str) -> Result<(), KeeperError> {
        let Ok(permit) = self.gate.permit() else { return Ok(()) };
        let api: Api<ValidatingWebhookConfiguration> = Api::all(permit.client(&self.clients).clone());
        let bundle = STANDARD.encode(bundle);
        let webhooks = known.webhooks.iter().flatten();
        let webhooks: Vec<Value> = webhooks
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        let patch = Patch::Strategic(json!({"metadata": revision(&known.metadata), "webhooks": webhooks}));
        let answer = api.patch(self.configuration, &patched_by_us(), &patch).await;
        written(answer, || format!("ValidatingWebhookConfiguration {}", self.configuration))?;
        tracing::info!(configuration = self.configuration, "the API server trusts the webhook");
        Ok(())
    }
}

/// That nothing has changed since this was read.
fn revision(metadata: &ObjectMeta) -> Value {
    json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version})
}

fn patched_by_us() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// What others have changed meanwhile, and what may have been written, the next look shows.
fn written<T>(answer: Result<T, kube::Error>, what: impl Fn() -> String) -> Result<(), KeeperError> {
    match answer.map(drop).map_err(WriteError::from) {
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => Ok(()),
        Err(source) => Err(KeeperError::Write { what: what(), source }),
    }
}

/// What the API server trusts of all the webhooks, as PEM; nothing if they differ.
fn published(configuration: &ValidatingWebhookConfiguration) -> String {
    let mut bundles = configuration.webhooks.iter().flatten().map(|webhook| &webhook.client_config.ca_bundle);
    let Some(Some(first)) = bundles.next() else { return String::new() };
    if bundles.any(|other| other.as_ref() != Some(first)) {
        return String::new();
    }
    String::from_utf8_lossy(&first.0).into_owned()
}
