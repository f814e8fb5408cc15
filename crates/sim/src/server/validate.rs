//! The rules for `metadata` that hold for every kind.

use serde_json::{Value, json};

use super::kinds::ServedKind;
use super::meta;
use super::names;
use super::status::StatusCause;
use super::write::is_definition;

/// The annotations of one object may take this many bytes.
const ANNOTATIONS: usize = 256 * 1024;

/// What is wrong with the metadata of a new object.
pub(super) fn metadata(kind: &ServedKind, object: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let name = meta::name(object);
    if name.is_empty() {
        causes.push(StatusCause::required("metadata.name", "name or generateName is required"));
    } else {
        let shown = json!(name);
        causes.extend(
            name_problems(kind, name).iter().map(|why| StatusCause::invalid("metadata.name", &shown, why)),
        );
    }
    common(kind, object, &mut causes);
    causes
}

fn name_problems(kind: &ServedKind, name: &str) -> Vec<String> {
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("", "namespaces") => names::label_problems(name),
        // Events of the old group are hardly checked.
        ("rbac.authorization.k8s.io", _) | ("", "events") => names::path_segment_problems(name),
        _ => names::subdomain_problems(name),
    }
}

/// Labels, annotations, owners and finalizers.
fn common(kind: &ServedKind, object: &Value, causes: &mut Vec<StatusCause>) {
    labelled(object, causes);
    finalizers(kind, &object["metadata"], causes);
}

/// Labels, annotations and owners.
fn labelled(object: &Value, causes: &mut Vec<StatusCause>) {
    let metadata = &object["metadata"];
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        for why in names::label_key_problems(key) {
            causes.push(StatusCause::invalid("metadata.labels", &json!(key), &why));
        }
        for why in value.as_str().map(names::label_value_problems).into_iter().flatten() {
            causes.push(StatusCause::invalid("metadata.labels", value, &why));
        }
    }
    let mut bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        // The case of an annotation's key does not matter.
        for why in names::label_key_problems(&key.to_lowercase()) {
            causes.push(StatusCause::invalid("metadata.annotations", &json!(key), &why));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS {
        causes.push(StatusCause::too_long("metadata.annotations", ANNOTATIONS));
    }
    owners(metadata, causes);
}

fn owners(metadata: &Value, causes: &mut Vec<StatusCause>) {
    const FIELD: &str = "metadata.ownerReferences";
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    for owner in owners {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                causes.push(StatusCause::invalid(format!("{FIELD}.{field}"), &json!(""), why));
            }
        }
    }
    let controllers: Vec<&Value> = owners.iter().filter(|o| o["controller"] == true).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let name = |owner: &Value| {
            owner["kind"].as_str().unwrap_or_default().to_owned()
                + "/"
                + owner["name"].as_str().unwrap_or_default()
        };
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            name(first),
            name(second)
        );
        causes.push(StatusCause::invalid(FIELD, &Value::Null, &why));
    }
}

fn finalizers(kind: &ServedKind, metadata: &Value, causes: &mut Vec<StatusCause>) {
    const FIELD: &str = "metadata.finalizers";
    let list = &metadata["finalizers"];
    let finalizers: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        causes.push(StatusCause::invalid(
            FIELD,
            list,
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
    for finalizer in &finalizers {
        for why in names::label_key_problems(finalizer) {
            causes.push(StatusCause::invalid(FIELD, &json!(finalizer), &why));
        }
    }
    let which = (kind.group.as_ref(), kind.plural.as_ref());
    let lenient = matches!(which, ("", "events") | ("coordination.k8s.io", "leases"));
    if kind.custom.is_some() || is_definition(kind) || lenient {
        return;
    }
    // Built-in kinds are stricter: only some names need no domain.
    for (at, finalizer) in finalizers.iter().enumerate() {
        if !finalizer.contains('/') && !matches!(*finalizer, "orphan" | "foregroundDeletion" | "kubernetes") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(StatusCause::invalid(format!("{FIELD}[{at}]"), &json!(finalizer), why));
        }
    }
}

/// What is wrong with the metadata of a changed object. The API server checks several times, so that a cause can be
/// there several times: for all kinds alike, then for the kind, and for some of them as if the object were new.
pub(super) fn metadata_update(
    kind: &ServedKind,
    object: &Value,
    old: &Value,
    subresource: &str,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    common(kind, object, &mut causes);
    causes.extend(change(object, old));
    match (kind.group.as_ref(), kind.plural.as_ref()) {
        ("" | "events.k8s.io", "events") => {}
        // What is wrong with the change comes after a first check of the spec.
        ("batch", "jobs") if subresource.is_empty() => common(kind, object, &mut causes),
        ("", "configmaps" | "secrets" | "pods") if subresource.is_empty() => {
            causes.extend(change(object, old));
            common(kind, object, &mut causes);
        }
        _ => causes.extend(change(object, old)),
    }
    causes
}

/// One check of what a change makes of the metadata (`ValidateObjectMetaAccessorUpdate`).
pub(super) fn change(object: &Value, old: &Value) -> Vec<StatusCause> {
    let mut causes = immutable(object, old);
    labelled(object, &mut causes);
    causes
}

fn immutable(object: &Value, old: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let known: Vec<&str> = meta::finalizers(old).collect();
    let new: Vec<String> =
        meta::finalizers(object).filter(|f| !known.contains(f)).map(|f| format!("{f:?}")).collect();
    if meta::deleting(old) && !new.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.join(", ")
        );
        causes.push(StatusCause::forbidden("metadata.finalizers", &why));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (new, old) = (&object["metadata"][field], &old["metadata"][field]);
        if new != old {
            causes.push(StatusCause::invalid(format!("metadata.{field}"), new, "field is immutable"));
        }
    }
    causes
}
