//! What probes create of one kind in a namespace: it has a label, and beside that until when its probe runs, so that the next probe deletes
//! what one left that was killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// For so long a deletion may take that nobody waits for: of two a probe in a Pod that is stopped has 30 seconds.
const GIVES_UP: Time = Time::from_secs(10);

/// What probes create of one kind.
pub(super) struct OwnObjects {
    pub(super) api: Api<DynamicObject>,
    resource: ApiResource,
    namespace: String,
    /// Between two looks at what is waited for.
    pause: Time,
    /// Whether one may have been created, since the API server did not say whether it was.
    may_exist: AtomicBool,
}

impl OwnObjects {
    /// Of that kind in that namespace.
    pub(super) fn new(client: &Client, namespace: &str, resource: ApiResource, pause: Time) -> Self {
        let api = Api::namespaced_with(client.clone(), namespace, &resource);
        Self { api, resource, namespace: namespace.to_owned(), pause, may_exist: AtomicBool::new(false) }
    }

    /// The one of that name, as people read it.
    pub(super) fn named(&self, name: &str) -> String {
        format!("{} {}/{name}", self.resource.kind, self.namespace)
    }

    /// Asks for the deletion of what probes left that have ended: their names by uid.
    pub(super) async fn delete_left(&self, name: &str, now: Timestamp) -> Result<BTreeMap<String, String>> {
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
                // Somebody has copied the label.
                Leftover::OfOthers => {}
                Leftover::Running(_) | Leftover::Delete => {
                    let uid = found.metadata.uid.unwrap_or_default();
                    self.delete(&of, &uid).await?;
                    left.insert(uid, of);
                }
            }
        }
        Ok(left)
    }

    /// The same, and waits until it is gone, for so long at most; what it was.
    pub(super) async fn sweep(&self, name: &str, now: Timestamp, most: Duration) -> Result<Vec<String>> {
        let left = self.delete_left(name, now).await?;
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
        self.may_exist.store(true, Ordering::Relaxed);
        let created = self.api.create(&params, &object).await;
        let is_known = created.as_ref().err().is_none_or(|error| code(error).is_some_and(|code| code < 500));
        self.may_exist.store(!is_known, Ordering::Relaxed);
        let created = created.map_err(|error| match code(&error) {
            Some(409) => {
                anyhow!("there is {}, which no probe has left: give this one another name", self.named(name))
            }
            _ => failed(&format!("{} cannot be created", self.named(name)), &error),
        })?;
        created.metadata.uid.context("it has no uid")
    }

    /// Asks for a deletion of exactly that one; whether it was still there.
    pub(super) async fn delete(&self, name: &str, uid: &str) -> Result<bool> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api.delete(name, &params).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(failed(&format!("{} cannot be deleted", self.named(name)), &error)),
        }
    }

    /// Deletes the one of a probe that failed or was stopped, which runs until then, without waiting; what came of it, none if there is none.
    /// Without a uid it is looked for where the API server did not say whether it was created.
    pub(super) async fn give_up(&self, name: &str, uid: Option<&str>, until: Timestamp) -> Option<String> {
        if uid.is_none() && !self.may_exist.load(Ordering::Relaxed) {
            return None;
        }
        let named = self.named(name);
        let deleting = tokio::time::timeout(GIVES_UP, async {
            let found = if uid.is_some() { None } else { self.created_until(name, until).await? };
            let Some(uid) = uid.or(found.as_deref()) else { return anyhow::Ok(None) };
            self.delete(name, uid).await.map(Some)
        });
        let why = match deleting.await {
            Ok(Ok(Some(true))) => {
                return Some(format!("{named} is being deleted; the next probe deletes what is left"));
            }
            Ok(Ok(Some(false))) => return None,
            Ok(Ok(None)) => format!("{named} is not there, and may be created still"),
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => {
                format!("{named} may be there still: the API server does not answer within {GIVES_UP:?}")
            }
        };
        Some(format!("{why}; a probe deletes it after {until}, or delete it yourself"))
    }

    /// The uid of the one that the probe has created which runs until then.
    async fn created_until(&self, name: &str, until: Timestamp) -> Result<Option<String>> {
        let found = self.api.get_opt(name).await;
        let found = found.map_err(|error| failed(&format!("{} cannot be read", self.named(name)), &error))?;
        let is_own = |one: &DynamicObject| {
            let has_label = one.metadata.labels.as_ref().is_some_and(|all| all.contains_key(LABEL));
            let of = one.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_UNTIL));
            has_label && of == Some(&until.to_string())
        };
        Ok(found.filter(is_own).and_then(|one| one.metadata.uid))
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
