//! The namespace controller: contents first, pods before all others, then the finalizer.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kinds::{ServedKind, Verbs};
use super::super::{ObjectKey, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, find};

const USER: &str = "system:serviceaccount:kube-system:namespace-controller";
/// Seconds between the deletion and the first check of the contents: for creations that were under way.
pub(super) const GRACE: i64 = 5;
/// Seconds that finalizers of contents are thought to take.
const FINALIZERS: i64 = 15;

/// What is left of the contents.
#[derive(Default)]
struct Remaining {
    /// Seconds until it may be gone; 0 if that is not known.
    estimate: i64,
    /// Objects by resource, such as `configmaps.`.
    objects: BTreeMap<String, usize>,
    /// Objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// What went wrong.
    errors: Vec<String>,
}

/// One pass over a namespace that is being deleted.
pub(super) fn empty(server: &mut Server, now: Timestamp, name: &str) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some((kind, namespace)) = find(server, "", "namespaces", &ObjectKey::new("", name)) else {
        return Requeue::No;
    };
    if !meta::deleting(&namespace) || !held(&namespace) {
        return Requeue::No;
    }
    let remaining = sweep(server, who, &namespace);
    let conditions = conditions(&namespace, &remaining, now);
    let mut current = namespace.clone();
    if conditions != namespace["status"]["conditions"] {
        let written = who.status(server, &kind, &namespace, |status| {
            status.insert("conditions".to_owned(), conditions);
        });
        match written {
            Ok(written) => current = written,
            Err(_) => return Requeue::AfterFailure,
        }
    }
    if !remaining.errors.is_empty() {
        return Requeue::AfterFailure;
    }
    if remaining.estimate > 0 {
        return Requeue::At(meta::later(now, remaining.estimate / 2 + 1));
    }
    let done = who.write(server, &kind, &current, "finalize", |namespace| {
        let rest: Vec<Value> = spec_finalizers(namespace).filter(|f| *f != "kubernetes").cloned().collect();
        meta::field(namespace, "spec").insert("finalizers".to_owned(), rest.into());
    });
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}

fn spec_finalizers(namespace: &Value) -> impl Iterator<Item = &Value> {
    namespace["spec"]["finalizers"].as_array().into_iter().flatten()
}

/// Whether the controller still has to let the namespace go.
fn held(namespace: &Value) -> bool {
    spec_finalizers(namespace).any(|f| f == "kubernetes")
}

/// Deletes the contents; what is left afterwards.
fn sweep(server: &mut Server, who: ControllerUser, namespace: &Value) -> Remaining {
    let mut kinds: Vec<Arc<ServedKind>> = Vec::new();
    for kind in server.kinds.served().filter(|k| k.namespaced && k.verbs == Verbs::All) {
        if !kinds.iter().any(|k| k.store == kind.store) {
            kinds.push(kind.clone());
        }
    }
    let is_pods = |kind: &&Arc<ServedKind>| kind.group.is_empty() && kind.plural == "pods";
    let mut remaining = Remaining::default();
    for pods in kinds.iter().filter(is_pods) {
        sweep_kind(server, who, pods, namespace, &mut remaining);
    }
    if !remaining.objects.is_empty() {
        return remaining;
    }
    for kind in kinds.iter().filter(|k| !is_pods(k)) {
        sweep_kind(server, who, kind, namespace, &mut remaining);
    }
    remaining
}

fn contents(server: &Server, kind: &ServedKind, namespace: &str) -> Vec<Arc<Value>> {
    server.store.range(kind.store, namespace, None).map(|(_, object)| object.clone()).collect()
}

fn sweep_kind(
    server: &mut Server,
    who: ControllerUser,
    kind: &Arc<ServedKind>,
    namespace: &Value,
    remaining: &mut Remaining,
) {
    let name = meta::name(namespace);
    let objects = contents(server, kind, name);
    if objects.is_empty() {
        return;
    }
    let estimate = estimate(kind, &objects, namespace, who.now);
    remaining.estimate = remaining.estimate.max(estimate);
    for object in &objects {
        match who.sweep(server, kind, object) {
            Ok(()) => {}
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => {
                let message = failure.status()["message"].as_str().unwrap_or_default().to_owned();
                remaining.errors.push(message);
            }
        }
    }
    let left = contents(server, kind, name);
    if left.is_empty() {
        return;
    }
    remaining.objects.insert(format!("{}.{}", kind.plural, kind.group), left.len());
    let mut finalizers = 0;
    for finalizer in left.iter().flat_map(|object| meta::finalizers(object)) {
        *remaining.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        finalizers += 1;
    }
    if estimate == 0 && finalizers > 0 {
        remaining.estimate = remaining.estimate.max(FINALIZERS);
    } else if estimate == 0 {
        remaining.errors.push(format!(
            "unexpected items still remain in namespace: {name} for gvr: {}/{}, Resource={}",
            kind.group, kind.version, kind.plural
        ));
    }
}

/// How long pods may still take: the longest grace period, unless it is over.
fn estimate(kind: &ServedKind, objects: &[Arc<Value>], namespace: &Value, now: Timestamp) -> i64 {
    if !kind.group.is_empty() || kind.plural != "pods" {
        return 0;
    }
    let running =
        objects.iter().filter(|p| !matches!(p["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
    let longest =
        running.filter_map(|p| p["spec"]["terminationGracePeriodSeconds"].as_i64()).max().unwrap_or(0);
    let deleted: Timestamp = meta::text(namespace, "deletionTimestamp").parse().unwrap_or(now);
    if now >= meta::later(deleted, longest) { 0 } else { longest }
}

/// The conditions of the namespace after a pass.
fn conditions(namespace: &Value, remaining: &Remaining, now: Timestamp) -> Value {
    let counted = |map: &BTreeMap<String, usize>, word: &str| {
        let parts: Vec<String> =
            map.iter().map(|(what, count)| format!("{what} {word} {count} resource instances")).collect();
        parts.join(", ")
    };
    let mut failing: BTreeMap<&str, (&str, String)> = BTreeMap::new();
    if !remaining.errors.is_empty() {
        let mut errors = remaining.errors.clone();
        errors.sort();
        let message =
            format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "));
        failing.insert("NamespaceDeletionContentFailure", ("ContentDeletionFailed", message));
    }
    // While pods remain the others are not checked, and the API says nothing of what remains.
    let only_pods = remaining.objects.keys().any(|k| k == "pods.");
    if !remaining.objects.is_empty() && !only_pods {
        let message = format!("Some resources are remaining: {}", counted(&remaining.objects, "has"));
        failing.insert("NamespaceContentRemaining", ("SomeResourcesRemain", message));
    }
    if !remaining.finalizers.is_empty() && !only_pods {
        let message = format!(
            "Some content in the namespace has finalizers remaining: {}",
            counted(&remaining.finalizers, "in")
        );
        failing.insert("NamespaceFinalizersRemaining", ("SomeFinalizersRemain", message));
    }
    let mut conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for (condition, reason, message) in FINE {
        let (status, reason, message) = match failing.get(condition) {
            Some((reason, message)) => ("True", *reason, message.as_str()),
            None => ("False", reason, message),
        };
        let at = meta::seconds(now);
        match conditions.iter_mut().find(|c| c["type"] == condition) {
            None => conditions.push(json!({
                "type": condition,
                "status": status,
                "lastTransitionTime": at,
                "reason": reason,
                "message": message,
            })),
            Some(known) => {
                if known["status"] != status {
                    known["lastTransitionTime"] = at.into();
                }
                known["status"] = status.into();
                known["reason"] = reason.into();
                known["message"] = message.into();
            }
        }
    }
    conditions.into()
}

/// The conditions when nothing is in the way.
const FINE: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];
