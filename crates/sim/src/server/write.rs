//! Creating and updating, as far as they are the same for every kind.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Server;
use super::admission::{Operation, Review};
use super::builtin;
use super::convert;
use super::crd::{self, Checked};
use super::events;
use super::kinds::{Registry, ServedKind};
use super::meta;
use super::status::{StatusCause, StatusError};
use super::store::{ObjectKey, Origin, Verb};
use super::validate;

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) now: Timestamp,
    pub(super) user: &'a str,
    pub(super) verb: Verb,
    pub(super) subresource: &'static str,
    /// The name under which fields are owned.
    pub(super) manager: &'a str,
    pub(super) dry_run: bool,
}

impl Caller<'_> {
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin {
            now: self.now,
            user: self.user,
            manager: self.manager,
            verb: self.verb,
            subresource: self.subresource,
        }
    }
}

/// What an update must find.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    /// The uid, if it matters.
    pub(super) uid: Option<String>,
    /// It is written also if it stays as it is: who owns what of it has changed.
    pub(super) rewritten: bool,
}

/// One object of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) kind: &'a Arc<ServedKind>,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Server {
    /// Asks the call-outs.
    pub(super) fn call_admission(&self, review: &Review<'_>) -> Result<(), StatusError> {
        for admission in &self.admission {
            admission
                .review(review)
                .map_err(|refusal| StatusError::denied(review.kind, review.name, &refusal))?;
        }
        Ok(())
    }

    /// Whether something may be made in a namespace.
    fn check_namespace(&self, kind: &ServedKind, namespace: &str, name: &str) -> Result<(), StatusError> {
        let namespaces = self.kinds.namespaces();
        let Some(found) = self.store.get(namespaces.store, namespace) else {
            return Err(StatusError::not_found(namespaces, namespace));
        };
        if found["status"]["phase"] == "Terminating" {
            return Err(StatusError::terminating(kind, name, namespace));
        }
        Ok(())
    }

    /// Makes an object where an update was asked for. The revision of what is not there does not matter; it is shown where
    /// nothing is kept.
    pub(super) fn create_regardless(
        &mut self,
        caller: &Caller<'_>,
        target: Target<'_>,
        mut object: Value,
    ) -> Result<Arc<Value>, StatusError> {
        let revision = meta::of(&mut object).remove("resourceVersion");
        let mut created = self.create(caller, target, object)?;
        if let (true, Some(revision)) = (caller.dry_run, revision) {
            meta::set(Arc::make_mut(&mut created), "resourceVersion", revision);
        }
        Ok(created)
    }

    /// Makes an object; `target.name` is not used.
    pub(super) fn create(
        &mut self,
        caller: &Caller<'_>,
        target: Target<'_>,
        mut object: Value,
    ) -> Result<Arc<Value>, StatusError> {
        let kind = target.kind;
        check_given_namespace(&target, &object)?;
        if kind.namespaced {
            meta::set(&mut object, "namespace", target.namespace);
        }
        let prefix = meta::text(&object, "generateName").to_owned();
        if kind.namespaced {
            // The name is made later: until then the prefix stands for it.
            let known = if meta::name(&object).is_empty() { &prefix } else { meta::name(&object) };
            self.check_namespace(kind, target.namespace, known)?;
        }
        if meta::name(&object).is_empty() && !prefix.is_empty() {
            let suffix = self.suffix();
            let prefix = prefix.get(..58).unwrap_or(&prefix);
            meta::set(&mut object, "name", format!("{prefix}{suffix}"));
        }
        let name = meta::name(&object).to_owned();
        convert::from(kind, self.kinds.primary(kind.store), &mut object);
        let given_revision = meta::text(&object, "resourceVersion").to_owned();
        self.prepare_create(caller, kind, &mut object);
        let causes = Self::problems_of_new(kind, &object);
        if !causes.is_empty() {
            return Err(StatusError::invalid(kind, &object, &name, &causes));
        }
        self.call_admission(&Review {
            operation: Operation::Create,
            user: caller.user,
            kind,
            subresource: "",
            namespace: target.namespace,
            name: &name,
            object: Some(&object),
            old: None,
            dry_run: caller.dry_run,
            options: &Value::Null,
        })?;
        let key = ObjectKey::new(target.namespace, &name);
        // A revision that is not a number is ignored; in a dry run, every revision is.
        if !caller.dry_run && given_revision.parse::<u64>().is_ok_and(|revision| revision > 0) {
            return Err(StatusError::internal("resourceVersion should not be set on objects to be created"));
        }
        if let Some(there) = self.store.get(kind.store, key.as_str()) {
            return Err(StatusError::already_exists(kind, &name, meta::deleting(there)));
        }
        self.admit_by_quota(caller, Target { name: &name, ..target }, &object, None)?;
        if caller.dry_run {
            if !given_revision.is_empty() {
                meta::set(&mut object, "resourceVersion", given_revision);
            }
            return Ok(Arc::new(object));
        }
        Ok(self.keep(caller, kind, key, object))
    }

    /// Five characters that do not spell words.
    fn suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut number = self.store.issue_number();
        let mut suffix = String::with_capacity(5);
        for _ in 0..5 {
            suffix.push(char::from(LETTERS[usize::try_from(number % 27).unwrap_or_default()]));
            number /= 27;
        }
        suffix
    }

    fn prepare_create(&mut self, caller: &Caller<'_>, kind: &ServedKind, object: &mut Value) {
        for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            meta::unset(object, field);
        }
        let uid = self.store.issue_uid();
        meta::set(object, "uid", uid);
        meta::set(object, "creationTimestamp", meta::seconds(caller.now));
        if kind.generation {
            meta::set(object, "generation", 1);
        }
        if kind.has("status") {
            meta::map(object).remove("status");
        }
        if let Some(custom) = &kind.custom {
            custom.default(object);
        } else {
            builtin::default(kind, object);
            builtin::prepare_create(kind, object);
        }
        if is_definition(kind) {
            crd::default(object);
            object["status"] = crd::initial_status(object);
        }
    }

    /// All that is wrong with an object that is to be made.
    fn problems_of_new(kind: &ServedKind, object: &Value) -> Vec<StatusCause> {
        if events::is_event(kind) {
            return events::problems_of_new(kind, object);
        }
        let mut causes = validate::metadata(kind, object);
        causes.extend(Self::problems(kind, object, None, "", &causes));
        causes
    }

    /// What is wrong with an object besides its metadata, with which that much is wrong already.
    fn problems(
        kind: &ServedKind,
        object: &Value,
        old: Option<&Value>,
        subresource: &str,
        before: &[StatusCause],
    ) -> Vec<StatusCause> {
        if is_definition(kind) {
            return if subresource.is_empty() { crd::problems(object) } else { Vec::new() };
        }
        match &kind.custom {
            Some(custom) => {
                let mut causes = Vec::new();
                if object["kind"] != *kind.kind {
                    let why = format!("must be {}", kind.kind);
                    causes.push(StatusCause::invalid("kind", &object["kind"], &why));
                }
                causes.extend(custom.problems(object, old, subresource == "status", before));
                causes
            }
            None => builtin::problems(kind, object, old, subresource),
        }
    }

    /// Stores an object, and what follows from that.
    pub(super) fn keep(
        &mut self,
        caller: &Caller<'_>,
        kind: &Arc<ServedKind>,
        key: ObjectKey,
        object: Value,
    ) -> Arc<Value> {
        let object = self.store.put(kind, key, object, &caller.origin());
        if is_definition(kind) && !meta::deleting(&object) {
            self.definition_written(caller.now, &object);
        }
        object
    }

    /// Removes an object, and what follows from that; its last state, with the revision of the removal.
    pub(super) fn drop(
        &mut self,
        caller: &Caller<'_>,
        kind: &Arc<ServedKind>,
        key: &ObjectKey,
    ) -> Option<Arc<Value>> {
        let last = self.store.remove(kind, key, &caller.origin())?;
        self.managers.remove(meta::uid(&last));
        if is_definition(kind) {
            self.definition_removed(&last);
        }
        Some(last)
    }

    /// Changes an object: `change` makes the new one of the current one.
    pub(super) fn update(
        &mut self,
        caller: &Caller<'_>,
        target: Target<'_>,
        expected: &Expected,
        change: impl FnOnce(&Registry, &Arc<Value>) -> Result<Value, StatusError>,
    ) -> Result<Arc<Value>, StatusError> {
        let Target { kind, namespace, name } = target;
        let old = self.find(kind, namespace, name)?;
        let mut object = change(&self.kinds, &old)?;
        Self::check_expected(&target, expected, &old, &object)?;
        check_given_namespace(&target, &object)?;
        convert::from(kind, self.kinds.primary(kind.store), &mut object);
        Self::prepare_update(caller, kind, &mut object, &old);
        let mut causes = validate::metadata_update(kind, &object, &old, caller.subresource);
        causes.extend(Self::problems(kind, &object, Some(&old), caller.subresource, &causes));
        if !causes.is_empty() {
            return Err(StatusError::invalid(kind, &object, name, &causes));
        }
        self.call_admission(&Review {
            operation: Operation::Update,
            user: caller.user,
            kind,
            subresource: caller.subresource,
            namespace,
            name,
            object: Some(&object),
            old: Some(&old),
            dry_run: caller.dry_run,
            options: &Value::Null,
        })?;
        self.admit_by_quota(caller, target, &object, Some(&old))?;
        if object == *old && !expected.rewritten {
            return Ok(old);
        }
        if caller.dry_run {
            return Ok(Arc::new(object));
        }
        let key = ObjectKey::new(namespace, name);
        if ends(kind, &object, &old) {
            // The answer shows what was asked for, with the revision that it never got; watches show what was stored.
            self.drop(caller, kind, &key);
            return Ok(Arc::new(object));
        }
        Ok(self.keep(caller, kind, key, object))
    }

    /// Whether the caller has seen the object as it is.
    fn check_expected(
        target: &Target<'_>,
        expected: &Expected,
        old: &Value,
        object: &Value,
    ) -> Result<(), StatusError> {
        let Target { kind, namespace, name } = *target;
        if let Some(uid) = expected.uid.as_deref().filter(|uid| *uid != meta::uid(old)) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                meta::uid(old)
            );
            return Err(StatusError::storage_conflict(kind, namespace, name, &why));
        }
        let revision = meta::text(object, "resourceVersion");
        if matches!(revision, "" | "0") {
            if kind.conditional_update {
                let cause = StatusCause::invalid(
                    "metadata.resourceVersion",
                    &json!(0),
                    "must be specified for an update",
                );
                return Err(StatusError::invalid_resource(kind, name, &[cause]));
            }
            return Ok(());
        }
        if revision.parse::<u64>().is_err() {
            return Err(StatusError::internal(format!(
                "strconv.ParseUint: parsing {revision:?}: invalid syntax"
            )));
        }
        if revision == meta::text(old, "resourceVersion") {
            Ok(())
        } else {
            Err(StatusError::modified(kind, name))
        }
    }

    /// Brings a changed object into the form in which it is kept: what this request may not change is as it was.
    fn prepare_update(caller: &Caller<'_>, kind: &ServedKind, object: &mut Value, old: &Value) {
        keep_system_fields(object, old);
        match (caller.subresource, &kind.custom) {
            ("status", Some(_)) => {
                let status = meta::map(object).remove("status");
                *object = old.clone();
                replace(object, "status", status);
                if let Some(custom) = &kind.custom {
                    custom.default(object);
                }
            }
            ("status" | "approval", None) => {
                let status = meta::map(object).remove("status");
                let metadata = object["metadata"].take();
                *object = old.clone();
                object["metadata"] = metadata;
                replace(object, "status", status);
            }
            _ => {
                if kind.has("status") {
                    replace(object, "status", old.get("status").cloned());
                }
                if let Some(custom) = &kind.custom {
                    custom.default(object);
                }
            }
        }
        if kind.custom.is_none() {
            builtin::default(kind, object);
            builtin::prepare_update(kind, object, old, caller.subresource);
        }
        if is_definition(kind) {
            crd::default(object);
        }
        if kind.generation
            && !matches!(caller.subresource, "status" | "binding")
            && differs(kind, object, old)
        {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            meta::set(object, "generation", generation);
        }
    }
}

/// An object that names a namespace names that of the request.
fn check_given_namespace(target: &Target<'_>, object: &Value) -> Result<(), StatusError> {
    let given = meta::namespace(object);
    if given.is_empty() || given == target.namespace {
        return Ok(());
    }
    Err(StatusError::bad_request(if target.kind.namespaced {
        "the namespace of the provided object does not match the namespace sent on the request"
    } else {
        "namespace may not be set on cluster-scoped resources"
    }))
}

/// Whether this is the kind of definitions.
pub(super) fn is_definition(kind: &ServedKind) -> bool {
    kind.group == "apiextensions.k8s.io" && kind.plural == "customresourcedefinitions"
}

/// Sets a field, or removes it.
fn replace(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => meta::map(object).insert(field.to_owned(), value),
        None => meta::map(object).remove(field),
    };
}

/// Metadata that callers may leave out, and some that they cannot change.
fn keep_system_fields(object: &mut Value, old: &Value) {
    let old = &old["metadata"];
    let metadata = meta::of(object);
    for field in ["uid", "creationTimestamp", "name", "namespace"] {
        if metadata.get(field).is_none_or(|v| v.is_null() || v == "") {
            match old.get(field) {
                Some(value) => metadata.insert(field.to_owned(), value.clone()),
                None => metadata.remove(field),
            };
        }
    }
    for field in ["generation", "resourceVersion"] {
        match old.get(field) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if let Some(value) = old.get(field) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
}

/// Whether what `generation` counts has changed.
fn differs(kind: &ServedKind, object: &Value, old: &Value) -> bool {
    if kind.group == "apps"
        && kind.plural == "deployments"
        && object["metadata"]["annotations"] != old["metadata"]["annotations"]
    {
        return true;
    }
    if kind.custom.is_none() {
        return object["spec"] != old["spec"];
    }
    let counted = |field: &str| field != "metadata" && !(field == "status" && kind.has("status"));
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (new, old) = (fields(object), fields(old));
    let same = new.iter().filter(|(f, _)| counted(f)).all(|(f, v)| old.get(f) == Some(v));
    !same || old.keys().any(|f| counted(f) && !new.contains_key(f))
}

/// Whether this update takes away the last thing that kept an object which is being deleted.
fn ends(kind: &ServedKind, object: &Value, old: &Value) -> bool {
    let grace = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let held = kind.plural == "namespaces"
        && kind.group.is_empty()
        && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    meta::deleting(old) && grace == 0 && !meta::has_finalizers(object) && !held
}
