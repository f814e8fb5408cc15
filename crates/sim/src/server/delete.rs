//! Deleting: at once, gracefully, or when the finalizers are gone.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use super::admission::{Operation, Review};
use super::answer::{Body, Response};
use super::builtin;
use super::crd::CLEANUP;
use super::kinds::ServedKind;
use super::meta;
use super::request::Query;
use super::status::{StatusCause, StatusError};
use super::store::ObjectKey;
use super::write::{Caller, Target, is_definition};

/// The finalizer that keeps an owner until its dependents are gone.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that keeps an owner until its dependents are let go.
pub(super) const ORPHAN: &str = "orphan";

/// `DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub(super) uid: Option<String>,
    pub(super) revision: Option<String>,
    pub(super) grace_seconds: Option<i64>,
    pub(super) propagation: Option<String>,
    pub(super) orphan_dependents: Option<bool>,
    pub(super) dry_run: bool,
    pub(super) given: Value,
}

impl DeleteOptions {
    /// The options of a deletion in the background.
    pub(super) fn background() -> Self {
        Self { propagation: Some("Background".to_owned()), ..Self::default() }
    }

    /// Those that an eviction carries.
    pub(super) fn of_eviction(eviction: &Value) -> Self {
        let given = eviction["deleteOptions"].clone();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Self {
            uid: text(&given["preconditions"]["uid"]),
            revision: text(&given["preconditions"]["resourceVersion"]),
            grace_seconds: given["gracePeriodSeconds"].as_i64(),
            given,
            ..Self::default()
        }
    }

    /// From the body if there is one, else from the query.
    pub(super) fn parse(query: &Query, body: &[u8]) -> Result<Self, StatusError> {
        let mut options = if body.is_empty() { Self::from_query(query)? } else { Self::from_body(body)? };
        // Beside a body, the query counts for nothing: not even `dryRun`.
        if body.is_empty() {
            options.dry_run = query.all("dryRun").any(|value| value == "All");
        }
        options.check()?;
        Ok(options)
    }

    fn from_query(query: &Query) -> Result<Self, StatusError> {
        let grace_seconds = match query.get("gracePeriodSeconds") {
            Some(text) => Some(text.parse().map_err(|_| {
                StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })?),
            None => None,
        };
        Ok(Self {
            grace_seconds,
            propagation: query.get("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.get("orphanDependents").map(|v| v == "true"),
            ..Self::default()
        })
    }

    fn from_body(body: &[u8]) -> Result<Self, StatusError> {
        let given: Value = serde_json::from_slice(body).map_err(|error| {
            let error =
                if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
            StatusError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
        })?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let preconditions = &given["preconditions"];
        Ok(Self {
            uid: text(&preconditions["uid"]),
            revision: text(&preconditions["resourceVersion"]),
            grace_seconds: given["gracePeriodSeconds"].as_i64(),
            propagation: text(&given["propagationPolicy"]),
            orphan_dependents: given["orphanDependents"].as_bool(),
            dry_run: given["dryRun"].as_array().is_some_and(|d| !d.is_empty()),
            given,
        })
    }

    fn check(&self) -> Result<(), StatusError> {
        let mut causes = Vec::new();
        if let Some(policy) = &self.propagation {
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(StatusCause::invalid("propagationPolicy", &json!(policy), why));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(StatusCause::unsupported("propagationPolicy", &json!(policy), &supported));
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(StatusError::invalid_options("DeleteOptions", &causes)) }
    }

    /// What the API server remarks on a deletion that says nothing of dependents.
    pub(super) fn warning(&self, kind: &ServedKind) -> Option<String> {
        let unsaid = self.orphan_dependents.is_none() && self.propagation.is_none();
        (unsaid && kind.group == "batch" && kind.plural == "jobs").then(|| {
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
             or set propagationPolicy=Orphan to suppress this warning"
                .to_owned()
        })
    }

    fn orphans(&self, kind: &ServedKind, object: &Value) -> bool {
        match (self.orphan_dependents, self.propagation.as_deref()) {
            (Some(orphan), _) => orphan,
            (_, Some(policy)) => policy == "Orphan",
            _ => match collector_finalizer(object) {
                Some(finalizer) => finalizer == ORPHAN,
                None => builtin::orphans_by_default(kind),
            },
        }
    }

    fn waits_for_dependents(&self, object: &Value) -> bool {
        match (self.orphan_dependents, self.propagation.as_deref()) {
            (Some(_), _) => false,
            (_, Some(policy)) => policy == "Foreground",
            _ => collector_finalizer(object) == Some(FOREGROUND),
        }
    }
}

fn collector_finalizer(object: &Value) -> Option<&str> {
    meta::finalizers(object).find(|f| matches!(*f, FOREGROUND | ORPHAN))
}

/// What a deletion did.
pub(super) struct DeletionAnswer {
    /// The object as it was last, or as it waits.
    pub(super) object: Arc<Value>,
    /// Whether it is gone.
    pub(super) gone: bool,
}

impl Server {
    /// DELETE of one object.
    pub(super) fn delete(
        &mut self,
        caller: &Caller<'_>,
        target: Target<'_>,
        options: &DeleteOptions,
    ) -> Result<DeletionAnswer, StatusError> {
        let Target { kind, namespace, name } = target;
        let object = self.find(kind, namespace, name)?;
        let of_core = kind.group.is_empty();
        if of_core && kind.plural == "namespaces" {
            return self.delete_namespace(caller, kind, &object, options);
        }
        check_preconditions(kind, &object, options)?;
        self.call_admission(&Review {
            operation: Operation::Delete,
            user: caller.user,
            kind,
            subresource: "",
            namespace,
            name,
            object: None,
            old: Some(&object),
            dry_run: options.dry_run,
            options: &options.given,
        })?;
        let key = ObjectKey::new(namespace, name);
        let mut next = object.as_ref().clone();
        let grace = if of_core && kind.plural == "pods" {
            match pod_grace(caller, &mut next, options) {
                Grace::Pending => return Ok(DeletionAnswer { object, gone: false }),
                grace => grace,
            }
        } else {
            Grace::None
        };
        let finalizers = finalizers_after(kind, &object, options);
        let held = !finalizers.is_empty();
        meta::set_finalizers(&mut next, finalizers);
        match grace {
            Grace::Started(_) => {}
            // Definitions go another way: neither grace period nor generation.
            _ if held && is_definition(kind) => {
                meta::of(&mut next)
                    .entry("deletionTimestamp")
                    .or_insert_with(|| meta::seconds(caller.now).into());
            }
            _ if held => mark(caller, &mut next),
            _ => return Ok(self.remove(caller, kind, &key, &object, options)),
        }
        if next == *object || options.dry_run {
            return Ok(DeletionAnswer { object: Arc::new(next), gone: false });
        }
        let next = self.keep(caller, kind, key.clone(), next);
        if !held && matches!(grace, Grace::Started(0)) {
            return Ok(self.remove(caller, kind, &key, &next, options));
        }
        Ok(DeletionAnswer { object: next, gone: false })
    }

    fn remove(
        &mut self,
        caller: &Caller<'_>,
        kind: &Arc<ServedKind>,
        key: &ObjectKey,
        object: &Arc<Value>,
        options: &DeleteOptions,
    ) -> DeletionAnswer {
        let mut shown = object.clone();
        if !options.dry_run
            && let Some(last) = self.drop(caller, kind, key)
        {
            shown = last;
        }
        DeletionAnswer { object: shown, gone: true }
    }

    /// The first deletion of a namespace marks it; when its finalizers are gone it can be removed.
    fn delete_namespace(
        &mut self,
        caller: &Caller<'_>,
        kind: &Arc<ServedKind>,
        object: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Result<DeletionAnswer, StatusError> {
        let name = meta::name(object);
        if matches!(name, "default" | "kube-system" | "kube-public") {
            return Err(StatusError::forbidden(kind, name, "this namespace may not be deleted"));
        }
        let (uid, revision) = (meta::uid(object), meta::text(object, "resourceVersion"));
        for (what, context, is) in
            [("UID", &options.uid, uid), ("ResourceVersion", &options.revision, revision)]
        {
            if let Some(context) = context.as_deref().filter(|context| *context != is) {
                let why = format!(
                    "Precondition failed: {what} in precondition: {context}, {what} in object meta: {is}"
                );
                return Err(StatusError::conflict_on(kind, name, &why));
            }
        }
        self.call_admission(&Review {
            operation: Operation::Delete,
            user: caller.user,
            kind,
            subresource: "",
            namespace: name,
            name,
            object: None,
            old: Some(object),
            dry_run: options.dry_run,
            options: &options.given,
        })?;
        let waits = object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if meta::deleting(object) {
            if waits || meta::has_finalizers(object) {
                return Ok(DeletionAnswer { object: object.clone(), gone: false });
            }
            return Ok(self.remove(caller, kind, &ObjectKey::new("", name), object, options));
        }
        let mut next = object.as_ref().clone();
        meta::set(&mut next, "deletionTimestamp", meta::seconds(caller.now));
        meta::field(&mut next, "status").insert("phase".to_owned(), "Terminating".into());
        meta::set_finalizers(&mut next, finalizers_after(kind, object, options));
        if options.dry_run {
            return Ok(DeletionAnswer { object: Arc::new(next), gone: false });
        }
        let next = self.keep(caller, kind, ObjectKey::new("", name), next);
        Ok(DeletionAnswer { object: next, gone: false })
    }

    /// DELETE of everything that a list shows; the answer is that list.
    pub(super) fn delete_listed(
        &mut self,
        caller: &Caller<'_>,
        kind: &Arc<ServedKind>,
        namespace: &str,
        query: &Query,
        options: &DeleteOptions,
    ) -> Result<Response, StatusError> {
        let listed = self.list_for_deletion(kind, namespace, query)?;
        for object in &listed.items {
            let target = Target { kind, namespace: meta::namespace(object), name: meta::name(object) };
            match self.delete(caller, target, options) {
                Ok(_) => {}
                Err(failure) if failure.code() == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        let mut response = Response::new(200, super::view::View::Plain.list(self, kind, listed));
        response.warnings.extend(options.warning(kind));
        Ok(response)
    }

    /// The answer to a deletion.
    pub(super) fn deletion_response(&self, kind: &ServedKind, deleted: &DeletionAnswer) -> Response {
        if !deleted.gone || kind.returns_deleted {
            return super::view::View::Plain.response(self, kind, 200, &deleted.object);
        }
        let mut details = json!({
            "name": meta::name(&deleted.object),
            "kind": kind.plural,
            "uid": meta::uid(&deleted.object),
        });
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
        Response::new(200, Body::Value(status))
    }
}

fn check_preconditions(
    kind: &ServedKind,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), StatusError> {
    let name = meta::name(object);
    let (uid, revision) = (meta::uid(object), meta::text(object, "resourceVersion"));
    if let Some(context) = options.uid.as_deref().filter(|context| *context != uid) {
        let why = format!(
            "the UID in the precondition ({context}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(StatusError::precondition(kind, name, &why));
    }
    if let Some(context) = options.revision.as_deref().filter(|context| *context != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({context}) does not match the ResourceVersion in record ({revision}). The object might have been modified"
        );
        return Err(StatusError::precondition(kind, name, &why));
    }
    Ok(())
}

/// The finalizers after a deletion: those of the garbage collector as the options ask for them.
fn finalizers_after(kind: &ServedKind, object: &Value, options: &DeleteOptions) -> Vec<Value> {
    let mut finalizers: Vec<Value> =
        meta::finalizers(object).filter(|f| !matches!(*f, FOREGROUND | ORPHAN)).map(Value::from).collect();
    if matches!(kind.group.as_ref(), "" | "events.k8s.io") && kind.plural == "events" {
        return finalizers;
    }
    if options.orphans(kind, object) {
        finalizers.push(ORPHAN.into());
    }
    if options.waits_for_dependents(object) {
        finalizers.push(FOREGROUND.into());
    }
    if is_definition(kind) && !finalizers.iter().any(|f| f == CLEANUP) && !meta::deleting(object) {
        finalizers.push(CLEANUP.into());
    }
    finalizers
}

/// Marks an object as being deleted, without a grace period.
fn mark(caller: &Caller<'_>, object: &mut Value) {
    if !meta::deleting(object) {
        bump(object);
        meta::set(object, "deletionTimestamp", meta::seconds(caller.now));
    }
    meta::set(object, "deletionGracePeriodSeconds", 0);
}

fn bump(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|g| *g > 0) {
        meta::set(object, "generation", generation + 1);
    }
}

/// What becomes of a pod that is deleted.
enum Grace {
    /// It has no time left, and is removed unless finalizers hold it.
    None,
    /// It has this many seconds.
    Started(i64),
    /// It is on its way already.
    Pending,
}

fn pod_grace(caller: &Caller<'_>, pod: &mut Value, options: &DeleteOptions) -> Grace {
    let context = options.grace_seconds.map(|s| if s < 0 { 1 } else { s });
    if meta::deleting(pod) {
        let left = pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        return match context {
            _ if left == 0 => Grace::None,
            Some(seconds) if seconds < left => {
                let end = meta::text(pod, "deletionTimestamp").parse().unwrap_or(caller.now);
                let sooner = meta::later(meta::later(end, -left), seconds);
                let (at, seconds) =
                    if sooner < caller.now { (caller.now, seconds.min(1)) } else { (sooner, seconds) };
                meta::set(pod, "deletionTimestamp", meta::seconds(at));
                meta::set(pod, "deletionGracePeriodSeconds", seconds);
                Grace::Started(seconds)
            }
            _ => Grace::Pending,
        };
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().map_or(30, |s| if s < 0 { 1 } else { s });
    let mut seconds = context.unwrap_or(own);
    let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() || ended {
        seconds = 0;
    }
    bump(pod);
    meta::set(pod, "deletionTimestamp", meta::seconds(meta::later(caller.now, seconds)));
    meta::set(pod, "deletionGracePeriodSeconds", seconds);
    Grace::Started(seconds)
}
