//! What the API server refuses about the objects that are copied down a tree.

use coppice_api::names::{
    ANNOTATION_PROPAGATED_UID, LABEL_DEPTH_SUFFIX, LABEL_PROPAGATED_FROM, LABEL_SUBNAMESPACE,
};
use serde_json::{Value, json};

use super::policies::{NAMESPACE_CONTROLLER, by_others, by_trees, exempt, may_set, resources, spec};
use crate::manifests::Install;
use crate::manifests::component::{validation, variable};

/// Deletes what its owners are gone of.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

const RBAC: &str = "rbac.authorization.k8s.io";

/// The kinds that are copied.
fn copied_kinds() -> [Value; 3] {
    let of = |group: &str, resource: &str| resources(group, &["CREATE", "UPDATE", "DELETE"], &[resource]);
    [of("", "limitranges"), of("networking.k8s.io", "networkpolicies"), of(RBAC, "rolebindings")]
}

/// Whether an object, or what was there before it, is a copy.
fn is_copy(object: &str) -> String {
    format!("{object} != null && '{LABEL_PROPAGATED_FROM}' in {object}.metadata.?labels.orValue({{}})")
}

/// Whoever has rights in a namespace because of a copy, or is limited by one, has it so by what it is a copy of.
pub(super) fn copies(install: &Install) -> Value {
    let same = ["labels", "annotations"]
        .map(|of| format!("object.metadata.?{of}.orValue({{}}) == oldObject.metadata.?{of}.orValue({{}})"));
    let kept = ["finalizers", "ownerReferences"]
        .map(|of| format!("object.metadata.?{of}.orValue([]) == oldObject.metadata.?{of}.orValue([])"));
    let exactly = [same, kept].concat().join(" &&\n");
    let (object, before) = (is_copy("object"), is_copy("oldObject"));
    let why =
        format!("a namespace further up, and Coppice alone writes it: change the one there. {}.", exempt());
    spec(
        &copied_kinds(),
        &[
            by_others(install),
            json!({"name": "a-copy", "expression": format!("({object}) || ({before})")}),
            json!({"name": "by-nobody-who-clears-up", "expression": format!(
                "!(request.userInfo.username in ['{NAMESPACE_CONTROLLER}', '{GARBAGE_COLLECTOR}'])"
            )}),
        ],
        // Match conditions do not see the namespace.
        &[
            variable("leaving", "namespaceObject.metadata.?deletionTimestamp.hasValue()"),
            variable("copy", &format!("({before}) ? oldObject : object")),
            // No kind has both of these, and each kind is checked for all of them: hence dyn.
            variable(
                "sameContent",
                "oldObject != null && object != null && dyn(object).?subjects == dyn(oldObject).?subjects &&\n\
                 dyn(object).?spec == dyn(oldObject).?spec",
            ),
        ],
        &[json!({
            "expression": format!(
                "variables.leaving && request.operation != 'CREATE' ||\n\
                 request.operation == 'UPDATE' && variables.sameContent &&\n{exactly} ||\n{}",
                may_set()
            ),
            "message": format!("This is the copy of an object of {why}"),
            "messageExpression": format!(
                "request.kind.kind + ' ' + variables.copy.metadata.name + ' is that of namespace ' +\n\
                 variables.copy.metadata.labels['{LABEL_PROPAGATED_FROM}'] + ', {why}'"
            ),
        })],
    )
}

/// So that its token binds and limits nobody in a namespace that was not created in a tree.
pub(super) fn account_copies(install: &Install) -> Value {
    let above = format!("variables.labels[?'{LABEL_PROPAGATED_FROM}'].orValue('') + '{LABEL_DEPTH_SUFFIX}'");
    // What somebody else has put there does not keep a copy from being put right.
    let before = |field: &str, none: &str| {
        format!("(oldObject == null ? {none} : oldObject.metadata.?{field}.orValue({none}))")
    };
    let only = |field: &str, key: &str| {
        format!("object.metadata.?{field}.orValue({{}}).all(k, k == '{key}' || k in {})", before(field, "{}"))
    };
    let same = |field: &str| format!("object.metadata.?{field}.orValue([]) == {}", before(field, "[]"));
    spec(
        &copied_kinds(),
        &[by_trees(install)],
        &[
            variable("labels", "object == null ? {} : object.metadata.?labels.orValue({})"),
            variable("namespaceLabels", "namespaceObject.metadata.?labels.orValue({})"),
            // An object as any other from then on, with what it has.
            variable(
                "released",
                &format!(
                    "request.operation == 'UPDATE' && {} && !({}) &&\n{}",
                    is_copy("oldObject"),
                    is_copy("object"),
                    ["spec", "subjects", "roleRef"]
                        .map(|field| format!("dyn(object).?{field} == dyn(oldObject).?{field}"))
                        .join(" && ")
                ),
            ),
        ],
        &[
            validation(
                &format!(
                    "variables.released || (object == null || {}) && (oldObject == null || {})",
                    is_copy("object"),
                    is_copy("oldObject")
                ),
                &format!(
                    "Coppice writes no LimitRange, NetworkPolicy or RoleBinding without the label {LABEL_PROPAGATED_FROM}."
                ),
            ),
            validation(
                &format!(
                    "variables.released || request.operation == 'DELETE' || '{LABEL_SUBNAMESPACE}' in variables.namespaceLabels &&\n\
                     variables.labels[?'{LABEL_PROPAGATED_FROM}'].orValue('') != request.namespace &&\n\
                     {above} in variables.namespaceLabels"
                ),
                "Coppice copies objects from a namespace of a tree into those that were created below it, and into no others.",
            ),
            validation(
                "request.operation == 'DELETE' || request.resource.resource != 'rolebindings' ||\n\
                 dyn(object).roleRef.kind == 'ClusterRole'",
                "Coppice copies no RoleBindings to Roles.",
            ),
            validation(
                &format!(
                    "request.operation == 'DELETE' ||\n{} &&\n{} &&\n{} &&\n{}",
                    only("labels", LABEL_PROPAGATED_FROM),
                    only("annotations", ANNOTATION_PROPAGATED_UID),
                    same("finalizers"),
                    same("ownerReferences")
                ),
                "Coppice writes nothing of the metadata of a copy but what it is a copy of.",
            ),
            validation(
                "request.operation != 'DELETE' ||\n\
                 request.?options.?preconditions.?resourceVersion.orValue('') != '' &&\n\
                 request.?options.?preconditions.?uid.orValue('') == oldObject.metadata.uid",
                "Coppice deletes a copy only with the uid and the resourceVersion that it has read as preconditions.",
            ),
        ],
    )
}
