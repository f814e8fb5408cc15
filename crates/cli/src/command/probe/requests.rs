//! What a probe asks of both clusters. Each function is a step: what came of it, and what was seen; or why it failed.

use anyhow::{Context as _, Result, anyhow, bail};
use coppice_clusters_api::names::ANNOTATION_CREDENTIAL;
use coppice_clusters_api::{ClusterAccess, ClusterAccessSpec, ClusterAccessStatus};
use coppice_quantity::Duration;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, ApiResource, Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::own::OwnObjects;
use crate::args::ConnectionArgs;
use crate::connect::{by_kubeconfig, code, failed};
use crate::probe::{ASKED_FOR, Access, Progress, progress, why};
use crate::wait;
use crate::write::FIELD_MANAGER;

/// For so long a target may not know a right yet that it has.
const SETTLES: Duration = Duration::from_secs(10);

/// A probe.
pub(super) struct Probe<'a> {
    pub(super) client: Client,
    pub(super) connection: &'a ConnectionArgs,
    pub(super) namespace: String,
    /// The `ClusterAccess`es of probes.
    pub(super) own: OwnObjects,
    /// Of the `ClusterAccess` and of its Secret.
    pub(super) name: String,
    pub(super) spec: ClusterAccessSpec,
    pub(super) target_namespace: String,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
    /// When it began, and until when it runs at most.
    pub(super) now: Timestamp,
    pub(super) until: Timestamp,
}

/// The `ClusterAccess`es that probes create in a namespace.
pub(super) fn own_accesses(client: &Client, namespace: &str) -> OwnObjects {
    OwnObjects::new(client, namespace, ApiResource::erase::<ClusterAccess>(&()), wait::PAUSE)
}

/// A credential that the Secret held.
pub(super) struct Issued {
    credential: String,
    client: Client,
    status: ClusterAccessStatus,
}

impl Probe<'_> {
    /// Deletes what probes left that have ended; what it was.
    pub(super) async fn sweep(&self) -> Result<Vec<String>> {
        self.own.sweep(&self.name, self.now, self.left()).await
    }

    /// Creates the `ClusterAccess`; its uid.
    pub(super) async fn create(&self) -> Result<(String, String)> {
        let uid = self.own.create(&self.name, json!({ "spec": self.spec }), self.until).await?;
        Ok((uid, self.to_string()))
    }

    /// What was done since then has a time of its own.
    pub(super) fn not_counted_since(&mut self, since: Instant) {
        self.deadline += since.elapsed();
    }

    /// Waits for a credential, and takes it from the Secret.
    pub(super) async fn issued(&self, rotate: Option<&str>) -> Result<(Issued, String)> {
        let mut last = String::new();
        let done = wait::until(self.left(), async || {
            let access = self.read().await?.with_context(|| format!("{self} is gone"))?;
            match progress(&access, rotate) {
                Progress::Done(credential) => Ok(Some((credential, access.status))),
                Progress::Refused(why) => Err(anyhow!(why)),
                Progress::Waits(why) => {
                    last = why;
                    Ok(None)
                }
            }
        });
        let Some((credential, status)) = done.await? else {
            bail!("there is none after {}: {last}", self.timeout);
        };
        let secret = self.secrets().get(&self.name).await;
        let secret = secret.map_err(|error| failed("its Secret cannot be read", &error))?;
        let held = secret.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_CREDENTIAL));
        if held != Some(&credential) {
            bail!("its Secret does not hold the credential {credential} that its status names");
        }
        let key = self.spec.output.data_key();
        let value = secret.data.and_then(|mut data| data.remove(key));
        let value = value.with_context(|| format!("its Secret has no key {key}"))?;
        let client = by_kubeconfig(&value.0, self.connection).await?;
        let until = status.not_after.map_or_else(String::new, |until| format!(", valid until {until:.0}"));
        let said = format!("{}{until}", status.identity.as_deref().unwrap_or_default());
        Ok((Issued { credential, client, status }, said))
    }

    /// Uses a credential for what it permits, and for what it does not.
    pub(super) async fn used(&self, issued: &Issued) -> Result<((), String)> {
        self.permitted(issued).await?;
        let place = &self.target_namespace;
        let secrets = Api::<Secret>::namespaced(issued.client.clone(), place);
        match secrets.get_opt(ASKED_FOR).await {
            Err(error) if code(&error) == Some(403) => {}
            Err(error) => return Err(failed("the target did not say that it refuses a Secret", &error)),
            Ok(_) => bail!("it may read Secrets in namespace {place} of the target, which nobody asked for"),
        }
        Ok(((), format!("in namespace {place} a ConfigMap is permitted, a Secret refused")))
    }

    /// Has the credential replaced, and uses the other one.
    pub(super) async fn rotated(&self, first: &Issued, uid: &str) -> Result<(Issued, String)> {
        let rotate = format!("probe-{}", self.now.as_second());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": { "uid": uid }, "spec": { "rotate": rotate } }));
        let patched = self.own.api.patch(&self.name, &params, &patch).await;
        patched.map_err(|error| failed(&format!("{self} cannot be changed"), &error))?;
        let (second, said) = self.issued(Some(&rotate)).await?;
        if second.credential == first.credential {
            bail!("the credential is the same as before");
        }
        self.permitted(&second).await?;
        Ok((second, said))
    }

    /// Waits until a credential that was replaced is not valid. A certificate is, until it expires: then its status has to say so.
    pub(super) async fn replaced(&self, first: &Issued, second: &Issued) -> Result<((), String)> {
        if self.spec.issuer.is_revocable() {
            return self.dead(first, &[401]).await;
        }
        let mut listed = second.status.superseded_certificates.iter();
        let found = listed.find(|certificate| certificate.credential == first.credential);
        let until = found.context("its status does not list the certificate that was replaced")?.not_after;
        Ok(((), format!("a certificate cannot be revoked: that one is valid until {until:.0}")))
    }

    /// Deletes the `ClusterAccess`, and waits until it and the Secret are gone.
    pub(super) async fn deleted(&self, uid: &str) -> Result<((), String)> {
        self.own.delete(&self.name, uid).await?;
        let mut last = String::new();
        let gone = wait::until(self.left(), async || {
            let found = self.read().await?.filter(|found| found.meta.uid.as_deref() == Some(uid));
            if let Some(access) = found {
                last = why(&access.status);
                return Ok(None);
            }
            let secret = self.secrets().get_opt(&self.name).await;
            let secret = secret.map_err(|error| failed("its Secret cannot be read", &error))?;
            "its Secret is still there".clone_into(&mut last);
            Ok(secret.is_none().then_some(()))
        });
        if gone.await?.is_none() {
            bail!("it is still there after {}: {last}", self.timeout);
        }
        Ok(((), "ClusterAccess and Secret are gone".to_owned()))
    }

    /// Waits until the last credential is worth nothing: a token is not valid, a certificate has no right.
    pub(super) async fn revoked(&self, second: &Issued) -> Result<((), String)> {
        let codes: &[u16] = if self.spec.issuer.is_revocable() { &[401] } else { &[401, 403] };
        self.dead(second, codes).await
    }

    /// Deletes the `ClusterAccess` of a probe that failed, without waiting; what came of it, none if there is none.
    pub(super) async fn give_up(&self, uid: Option<&str>) -> Option<String> {
        self.own.give_up(&self.name, uid, self.until).await
    }

    async fn permitted(&self, issued: &Issued) -> Result<()> {
        let mut last = None;
        let seen = wait::until(SETTLES, async || {
            last = self.ask(issued).await.err();
            Ok(last.is_none().then_some(()))
        });
        let done = seen.await?.is_some();
        match last {
            Some(error) if !done => Err(failed("the target does not permit what was asked for", &error)),
            None if !done => bail!("the target does not answer within {SETTLES}"),
            _ => Ok(()),
        }
    }

    async fn dead(&self, issued: &Issued, codes: &[u16]) -> Result<((), String)> {
        let mut last = "the target does not answer".to_owned();
        let refused = wait::until(self.left(), async || {
            last = match self.ask(issued).await {
                Err(error) if code(&error).is_some_and(|code| codes.contains(&code)) => return Ok(Some(())),
                Err(error) => format!("{:#}", failed("it is not known", &error)),
                Ok(()) => "it is still accepted".to_owned(),
            };
            Ok(None)
        });
        if refused.await?.is_none() {
            bail!("after {}: {last}; the credential is {}", self.timeout, issued.credential);
        }
        Ok(((), "the target refuses it".to_owned()))
    }

    /// The request that is permitted: the `ConfigMap` need not be there.
    async fn ask(&self, issued: &Issued) -> Result<(), kube::Error> {
        let maps = Api::<ConfigMap>::namespaced(issued.client.clone(), &self.target_namespace);
        maps.get_opt(ASKED_FOR).await.map(drop)
    }

    /// How much of the time is left; a moment even if none is.
    fn left(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        Duration::from_secs(left.as_secs().max(1))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn read(&self) -> Result<Option<Access>> {
        let found = self.own.api.get_opt(&self.name).await;
        let found = found.map_err(|error| failed(&format!("{self} cannot be read"), &error))?;
        found.map(|object| Ok(Access::from_json(serde_json::to_value(object)?)?)).transpose()
    }
}

impl std::fmt::Display for Probe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.own.named(&self.name))
    }
}
