//! A cluster that is made for a probe, as a `ManagedCluster`, and deleted after it.

use std::path::Path;
use std::time::Duration as Time;

use anyhow::{Context as _, Result, bail};
use coppice_clusters_api::ManagedCluster;
use coppice_quantity::Duration;
use jiff::Timestamp;
use kube::Client;
use kube::api::ApiResource;
use serde_json::{Value, json};

use super::own::OwnObjects;
use crate::Io;
use crate::connect::{code, failed};
use crate::files::{self, Document};
use crate::probe::{Cluster, Progress, cluster_progress, cluster_why};
use crate::validate;
use crate::wait;

/// Between two looks at a cluster, which takes minutes.
const PAUSE: Time = Time::from_secs(2);

/// What a file asks for.
pub(super) struct Template {
    pub(super) name: String,
    spec: Value,
}

/// Reads the one `ManagedCluster` that a file has. Its name and its spec are used.
pub(super) fn template(file: &Path, namespace: &str, io: &mut Io<'_>) -> Result<Template> {
    let documents = files::read(&[file.to_owned()], false, io.stdin)?;
    let objects: Vec<(String, Value)> = documents.iter().flat_map(Document::objects).collect();
    let [(place, object)] = objects.as_slice() else {
        bail!(
            "{} has {} objects: write one ManagedCluster into it, and nothing else",
            file.display(),
            objects.len()
        );
    };
    if object["kind"] != "ManagedCluster" {
        bail!("{place}: write a ManagedCluster: it is another kind");
    }
    if let Some(problem) = validate::check(object).first() {
        bail!("{place}: {problem}");
    }
    let of = object["metadata"]["namespace"].as_str();
    if let Some(of) = of.filter(|of| *of != namespace) {
        bail!(
            "{place}: it is for namespace {of}, and the probe for {namespace}: leave metadata.namespace out"
        );
    }
    let name = object["metadata"]["name"].as_str();
    let name = name.with_context(|| format!("{place}: write metadata.name"))?.to_owned();
    Ok(Template { name, spec: object["spec"].clone() })
}

/// A cluster that is made for a probe.
pub(super) struct NewCluster {
    own: OwnObjects,
    template: Template,
    /// For so long it may be made, and be deleted.
    timeout: Duration,
    /// When the probe began, and until when it runs.
    now: Timestamp,
    until: Timestamp,
}

impl NewCluster {
    /// As a file asks for it.
    pub(super) fn new(
        (client, namespace): (&Client, &str),
        template: Template,
        timeout: Duration,
        (now, until): (Timestamp, Timestamp),
    ) -> Self {
        let resource = ApiResource::erase::<ManagedCluster>(&());
        let own = OwnObjects::new(client, namespace, resource, PAUSE);
        Self { own, template, timeout, now, until }
    }

    /// Deletes those of probes that have ended, with their clusters.
    pub(super) async fn sweep(&self) -> Result<Vec<String>> {
        self.own.sweep(&self.template.name, self.now, self.timeout).await
    }

    /// The same, and does not wait until they are gone.
    pub(super) async fn delete_left(&self) -> Result<()> {
        self.own.delete_left(&self.template.name, self.now).await.map(drop)
    }

    /// Creates the `ManagedCluster`; its uid.
    pub(super) async fn make(&self) -> Result<(String, String)> {
        let Template { name, spec } = &self.template;
        let uid = self.own.create(name, json!({ "spec": spec }), self.until).await?;
        Ok((uid, self.own.named(name)))
    }

    /// Waits until the cluster is as its spec says; what was made.
    pub(super) async fn ready(&self, uid: &str) -> Result<((), String)> {
        let mut last = String::new();
        let made = wait::until_every(PAUSE, self.timeout, async || {
            let found = match self.read(uid).await? {
                Look::Unknown(why) => Err(why),
                Look::Gone => {
                    bail!("{} is gone: somebody has deleted it", self.own.named(&self.template.name))
                }
                Look::There(cluster) => Ok(cluster_progress(&cluster)),
            };
            match found {
                Ok(Progress::Done(what)) => return Ok(Some(what)),
                Ok(Progress::Refused(why)) => bail!(why),
                Ok(Progress::Waits(why)) | Err(why) => last = why,
            }
            Ok(None)
        });
        let Some(what) = made.await? else { bail!("it is not ready after {}: {last}", self.timeout) };
        Ok(((), what))
    }

    /// Deletes the `ManagedCluster`, and waits until it and so its cluster are gone.
    pub(super) async fn removed(&self, uid: &str) -> Result<((), String)> {
        self.own.delete(&self.template.name, uid).await?;
        let mut last = String::new();
        let gone = wait::until_every(PAUSE, self.timeout, async || {
            match self.read(uid).await? {
                Look::Gone => return Ok(Some(())),
                Look::There(cluster) => last = cluster_why(&cluster.status),
                Look::Unknown(why) => last = why,
            }
            Ok(None)
        });
        if gone.await?.is_none() {
            bail!("it is still there after {}: {last}", self.timeout);
        }
        Ok(((), "ManagedCluster and cluster are gone".to_owned()))
    }

    /// Deletes it without waiting; what came of it, none if there is none.
    pub(super) async fn give_up(&self, uid: Option<&str>) -> Option<String> {
        self.own.give_up(&self.template.name, uid, self.until).await
    }

    /// The `ManagedCluster` of this uid. That the API server does not answer for a while in an hour is no failure of the cluster.
    async fn read(&self, uid: &str) -> Result<Look> {
        let name = &self.template.name;
        let found = match self.own.api.get_opt(name).await {
            Ok(found) => found.filter(|found| found.metadata.uid.as_deref() == Some(uid)),
            Err(error) => {
                let is_refused =
                    code(&error).is_some_and(|code| (400..500).contains(&code) && code != 408 && code != 429);
                let error = failed(&format!("{} cannot be read", self.own.named(name)), &error);
                return if is_refused { Err(error) } else { Ok(Look::Unknown(format!("{error:#}"))) };
            }
        };
        let Some(found) = found else { return Ok(Look::Gone) };
        Ok(Look::There(Box::new(Cluster::from_json(serde_json::to_value(found)?)?)))
    }
}

/// How a `ManagedCluster` is found.
enum Look {
    There(Box<Cluster>),
    Gone,
    /// The API server did not say.
    Unknown(String),
}
