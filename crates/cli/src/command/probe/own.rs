//! What probes create of one kind in a namespace: it has a label, and beside that until when its probe runs, so that the next probe deletes
//! what one left that was killed.

use std::collections::BTreeMap;
use std::time::Duration as Time;

use anyhow::{Context as _, Result, anyhow, bail};
use coppice_quantity::Duration;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use serde_json::Value;

use crate::connect::{code, failed};
use crate::live;
use crate::probe::{ANNOTATION_UNTIL, LABEL, LABEL_VALUE, Leftover, leftover};
use crate::wait;
use crate::write::FIELD_MANAGER;

/// What probes create of one kind.
pub(super) struct OwnObjects {
    pub(super) api: Api<DynamicObject>,
    resource: ApiResource,
    namespace: String,
    /// Between two looks at what is waited for.
    pause: Time,
}

impl OwnObjects {
    /// Of that kind in that namespace.
    pub(super) fn new(client: &Client, namespace: &str, resource: ApiResource, pause: Time) -> Self {
        let api = Api::namespaced_with(client.clone(), namespace, &resource);
        Self { api, resource, namespace: namespace.to_owned(), pause }
    }

    /// The one of that name, as people read it.
    pub(super) fn named(&self, name: &str) -> String {
        format!("{} {}/{name}", self.resource.kind, self.namespace)
    }

    /// Deletes what probes left that have ended, and waits until it is gone, for so long at most; what it was.
    pub(super) async fn sweep(&self, name: &str, now: Timestamp, most: Duration) -> Result<Vec<String>> {
        let mut left = BTreeMap::new();
        for found in self.list().await? {
            let of = found.metadata.name.unwrap_or_default();
            // The name is free once it is gone: its probe has failed, or ends.
            let is_going = of == name && found.metadata.deletion_timestamp.is_some();
            match leftover(found.metadata.annotations.as_ref(), now) {
                Leftover::Running(until) if of == name && !is_going => bail!(
                    "another probe of the name {name} runs until {until}: wait for it, or give this one another name"
                ),
                Leftover::Running(_) if !is_going => {}
                Leftover::Running(_) | Leftover::Delete => {
                    let uid = found.metadata.uid.unwrap_or_default();
                    self.delete(&of, &uid).await?;
                    left.insert(uid, of);
                }
            }
        }
        let names: Vec<String> = left.values().cloned().collect();
        if names.is_empty() {
            return Ok(names);
        }
        let gone = wait::until_every(self.pause, most, async || {
            let found = self.list().await?;
            let is_left =
                |one: &DynamicObject| one.metadata.uid.as_ref().is_some_and(|uid| left.contains_key(uid));
            Ok((!found.iter().any(is_left)).then_some(()))
        });
        if gone.await?.is_none() {
            bail!("what earlier probes left is still there after {most}: {}", names.join(", "));
        }
        Ok(names)
    }

    /// Creates one, whose probe runs until then; its uid.
    pub(super) async fn create(&self, name: &str, object: Value, until: Timestamp) -> Result<String> {
        let mut object = DynamicObject::new(name, &self.resource).within(&self.namespace).data(object);
        object.metadata.labels = Some(BTreeMap::from([(LABEL.to_owned(), LABEL_VALUE.to_owned())]));
        object.metadata.annotations =
            Some(BTreeMap::from([(ANNOTATION_UNTIL.to_owned(), until.to_string())]));
        let params = PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) };
        let created = self.api.create(&params, &object).await.map_err(|error| match code(&error) {
            Some(409) => {
                anyhow!("there is {}, which no probe has left: give this one another name", self.named(name))
            }
            _ => failed(&format!("{} cannot be created", self.named(name)), &error),
        })?;
        created.metadata.uid.context("it has no uid")
    }

    /// Asks for a deletion of exactly that one, if it is still there.
    pub(super) async fn delete(&self, name: &str, uid: &str) -> Result<()> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api.delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
            Err(error) => Err(failed(&format!("{} cannot be deleted", self.named(name)), &error)),
        }
    }

    /// Deletes the one of a probe that failed, without waiting; what came of it.
    pub(super) async fn give_up(&self, name: &str, uid: &str) -> String {
        match self.delete(name, uid).await {
            Ok(()) => format!("{} is being deleted; the next probe deletes what is left", self.named(name)),
            Err(error) => format!("{error:#}; the next probe deletes it"),
        }
    }

    /// Those of all probes in the namespace.
    async fn list(&self) -> Result<Vec<DynamicObject>> {
        let found = live::list(&self.api, Some(&format!("{LABEL}={LABEL_VALUE}"))).await;
        let Self { resource, namespace, .. } = self;
        found.map_err(|error| {
            failed(&format!("the {} of namespace {namespace} cannot be listed", resource.plural), &error)
        })
    }
}
