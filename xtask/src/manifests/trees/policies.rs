//! What the API server refuses about trees, whatever the roles grant and whether or not our program runs.
//!
//! - `coppice-tree-labels`: the labels and the path by which a namespace belongs to a tree are Coppice's.
//! - `coppice-tree-account` leaves the account of trees nothing of a namespace but these and, where a Subnamespace created it, labels and
//!   annotations that give nobody rights.
//! - `coppice-tree-own` leaves it its own quotas, the finalizer of our kinds, its own Events and one Lease.
//! - `coppice-tree-quotas` keeps everybody else from the quotas of trees.
//! - `coppice-tree-copies` keeps everybody else from the objects that are copied down a tree.
//! - `coppice-tree-account-copies` leaves the account of trees no objects of these kinds but its copies.
//! - `coppice-tree-objects` keeps what returns the quota of a Subnamespace or a QuotaTransfer, and a tree that has namespaces.
//! - `coppice-tree-parents` keeps a namespace while there are others below it.
//! - `coppice-tree-moved` leaves it to Coppice to say which Subnamespace takes over from another.
//! - `coppice-tree-transfers` has everybody ask and approve in their own name, and with rights where quota goes.

use coppice_api::names::{
    ANNOTATION_MOVED_FROM, ANNOTATION_PATH, FIELD_MANAGER, FINALIZER, GROUP, LABEL_CHILDREN,
    LABEL_DEPTH_SUFFIX, LABEL_NAMESPACE_NAME, LABEL_PARENT, LABEL_ROOT, LABEL_SUBNAMESPACE, LABEL_TREE,
    RESERVED_DOMAINS, SYSTEM_NAMESPACE, TREE_QUOTA_NAME, TREES_ACCOUNT, VERB_SET_TREE, reserved_keys,
};
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::component::{
    Policy, before_and_now, is_ours, its_finalizer_alone, validation, variable,
};

/// Deletes what is in a namespace that is being deleted, perhaps before an admission policy knows that it is.
pub(super) const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";

/// Every policy.
pub(super) fn policies(install: &Install) -> Vec<Policy> {
    let policy = |name, spec| Policy { name, spec, param: None };
    vec![
        policy("coppice-tree-labels", labels(install)),
        policy("coppice-tree-account", account(install)),
        policy("coppice-tree-own", own(install)),
        policy("coppice-tree-quotas", quotas(install)),
        policy("coppice-tree-copies", super::copies::copies(install)),
        policy("coppice-tree-account-copies", super::copies::account_copies(install)),
        policy("coppice-tree-objects", objects(install)),
        policy("coppice-tree-transfers", super::transfers::transfers(install)),
        policy("coppice-tree-parents", parents(install)),
        policy("coppice-tree-moved", moved(install)),
    ]
}

pub(super) fn by_trees(install: &Install) -> Value {
    json!({"name": "by-trees", "expression": format!("request.userInfo.username == '{}'", install.user(TREES_ACCOUNT))})
}

pub(super) fn by_others(install: &Install) -> Value {
    json!({"name": "by-others", "expression": format!("request.userInfo.username != '{}'", install.user(TREES_ACCOUNT))})
}

pub(super) fn resources(group: &str, operations: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources})
}

pub(super) fn spec(
    rules: &[Value],
    conditions: &[Value],
    variables: &[Value],
    validations: &[Value],
) -> Value {
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": conditions,
        "variables": variables,
        "validations": validations
    })
}

/// Whether the requester may write what Coppice alone writes of trees.
pub(super) fn may_set() -> String {
    format!("authorizer.group('{GROUP}').resource('namespacetrees').check('{VERB_SET_TREE}').allowed()")
}

/// Who that is.
pub(super) fn exempt() -> String {
    format!("Accounts that restore backups need the verb {VERB_SET_TREE} on namespacetrees.{GROUP}")
}

/// Whether `k` is the key of a label that we alone write.
fn is_label() -> String {
    format!(
        "(k in ['{LABEL_SUBNAMESPACE}', '{LABEL_PARENT}', '{LABEL_ROOT}', '{LABEL_CHILDREN}'] || \
         k.endsWith('{LABEL_DEPTH_SUFFIX}'))"
    )
}

/// Labels and annotations of a namespace, as they would be and as they were.
fn metadata() -> [Value; 4] {
    let of = |name: &str, before: &str, field: &str| {
        [
            variable(name, &format!("object.metadata.?{field}.orValue({{}})")),
            variable(
                before,
                &format!("oldObject == null ? {{}} : oldObject.metadata.?{field}.orValue({{}})"),
            ),
        ]
    };
    let [labels, labels_before] = of("labels", "labelsBefore", "labels");
    let [annotations, annotations_before] = of("annotations", "annotationsBefore", "annotations");
    [labels, labels_before, annotations, annotations_before]
}

/// The keys of one map that have another value in the other, or none.
fn changed(map: &str, other: &str, which: &str) -> String {
    format!(
        "variables.{map}.filter(k, {which} &&\n\
         !(k in variables.{other} && variables.{other}[k] == variables.{map}[k]))"
    )
}

/// The keys of labels or annotations that a request sets, changes or removes.
fn touched(map: &str, which: &str) -> String {
    let before = format!("{map}Before");
    format!("{} +\n{}", changed(map, &before, which), changed(&before, map, which))
}

/// Quotas, network policies and deletions rest on these labels.
fn labels(install: &Install) -> Value {
    let mut variables = metadata().to_vec();
    let path = format!("k == '{ANNOTATION_PATH}'");
    let touched = format!("{} +\n{}", touched("labels", &is_label()), touched("annotations", &path));
    variables.push(variable("touched", &touched));
    let why = format!(
        "says where the namespace is in a tree, and Coppice alone writes it: create or delete a Subnamespace instead. {}.",
        exempt()
    );
    spec(
        &[resources("", &["CREATE", "UPDATE"], &["namespaces", "namespaces/*"])],
        &[by_others(install)],
        &variables,
        &[json!({
            "expression": format!("size(variables.touched) == 0 ||\n{}", may_set()),
            "message": format!("This label or annotation {why}"),
            "messageExpression": format!("variables.touched[0] + ' {why}'"),
        })],
    )
}

/// Compared are whole maps, so that there is no list of fields that could miss one.
fn account(install: &Install) -> Value {
    let mut variables = metadata().to_vec();
    let list = |name: &str, object: &str| {
        let of = format!("{object}.metadata.?{name}.orValue([])");
        if object == "object" { of } else { format!("(oldObject == null ? [] : {of})") }
    };
    let same = |name: &str| format!("{} == {}", list(name, "object"), list(name, "oldObject"));
    let born = format!("(oldObject == null && k == '{LABEL_NAMESPACE_NAME}')");
    // What a tree allows is in its spec; whatever it says, never what gives rights.
    let settable =
        format!("('{LABEL_SUBNAMESPACE}' in variables.labels && !k.matches('{}'))", reserved_keys());
    let others = format!("!{} && !{born} && !{settable}", is_label());
    variables.push(variable("others", &touched("labels", &others)));
    let others = format!("k != '{ANNOTATION_PATH}' && !{settable}");
    variables.push(variable("otherAnnotations", &touched("annotations", &others)));
    variables.push(variable("name", "object.metadata.name"));
    spec(
        &[resources("", &["CREATE", "UPDATE"], &["namespaces", "namespaces/*"])],
        &[by_trees(install)],
        &variables,
        &[
            validation(
                "request.?subResource.orValue('') == ''",
                "Coppice writes no subresource of a namespace.",
            ),
            validation(
                "size(variables.others) == 0 && size(variables.otherAnnotations) == 0",
                &format!(
                    "Coppice changes nothing of a namespace but where it is in a tree and, if a Subnamespace created it, labels and \
                     annotations by which nobody gets rights: this request changes another one, perhaps of {}.",
                    RESERVED_DOMAINS.join(", ")
                ),
            ),
            validation(
                &format!("{} &&\n{}", same("finalizers"), same("ownerReferences")),
                "Coppice changes nothing of a namespace but where it is in a tree: this request changes its finalizers or its owners.",
            ),
            validation(
                "oldObject == null ? object.?spec.?finalizers.orValue(['kubernetes']) == ['kubernetes'] :\n\
                 object.?spec == oldObject.?spec",
                "Coppice changes nothing of a namespace but where it is in a tree: this request changes its spec.",
            ),
            validation(
                &format!("oldObject != null || '{LABEL_SUBNAMESPACE}' in variables.labels"),
                &format!(
                    "Coppice creates a namespace for a Subnamespace only: this one has no label {LABEL_SUBNAMESPACE}."
                ),
            ),
            validation(
                &format!(
                    "oldObject == null || !('{LABEL_SUBNAMESPACE}' in variables.labels) ||\n\
                     '{LABEL_SUBNAMESPACE}' in variables.labelsBefore"
                ),
                &format!(
                    "Coppice sets the label {LABEL_SUBNAMESPACE} when it creates a namespace, and changes it where there is one, but puts it \
                     on none that exists without: objects are copied into namespaces with it."
                ),
            ),
            validation(
                &format!(
                    "!(variables.name == 'default' || variables.name.startsWith('kube-') ||\n\
                     variables.name == '{SYSTEM_NAMESPACE}' ||\n\
                     request.userInfo.username.startsWith('system:serviceaccount:' + variables.name + ':'))"
                ),
                "The namespaces of Kubernetes and of Coppice are in no tree.",
            ),
        ],
    )
}

/// What the account of trees may write, but for namespaces and copies, which have policies of their own.
fn written_by_trees() -> [Value; 6] {
    [
        resources("", &["CREATE", "UPDATE", "DELETE"], &["resourcequotas", "resourcequotas/status"]),
        resources(GROUP, &["CREATE", "UPDATE", "DELETE"], &["quotatransfers", "subnamespaces"]),
        resources(GROUP, &["UPDATE"], &["namespacetrees"]),
        resources("coordination.k8s.io", &["CREATE"], &["leases"]),
        resources("", &["CREATE"], &["secrets"]),
        resources("events.k8s.io", &["CREATE", "UPDATE"], &["events"]),
    ]
}

/// Of the quotas those of trees alone, and of one that it takes out of its tree nothing else.
fn own_quotas() -> Value {
    let ours = |object: &str| {
        format!(
            "({object} == null || {object}.metadata.name == '{TREE_QUOTA_NAME}' &&\n\
             '{LABEL_TREE}' in {object}.metadata.?labels.orValue({{}}))"
        )
    };
    let released = format!(
        "request.operation == 'UPDATE' && object.metadata.name == '{TREE_QUOTA_NAME}' && dyn(object).?spec == dyn(oldObject).?spec"
    );
    let (now, before) = (ours("object"), ours("oldObject"));
    validation(
        &format!("request.resource.resource != 'resourcequotas' ||\n({now} ||\n{released}) &&\n{before}"),
        &format!(
            "Coppice writes no ResourceQuota but {TREE_QUOTA_NAME} with the label {LABEL_TREE}, and changes nothing of one whose label it \
             removes."
        ),
    )
}

/// What RBAC grants by kind only, because the name is not known yet or the object is another's.
fn own(install: &Install) -> Value {
    let not = |resource: &str| format!("request.resource.resource != '{resource}'");
    let changed = format!("request.resource.group == '{GROUP}' && request.operation == 'UPDATE'");
    let reporter =
        |object: &str| format!("dyn({object}).?reportingController.orValue('') == '{FIELD_MANAGER}'");
    spec(
        &written_by_trees(),
        &[by_trees(install)],
        &before_and_now(&changed),
        &[
            own_quotas(),
            validation(
                &format!("{} || request.operation == 'UPDATE'", not("quotatransfers")),
                "Coppice creates and deletes no QuotaTransfer: their users do.",
            ),
            validation(
                &format!(
                    "{} || request.operation != 'CREATE' ||\n\
                     '{ANNOTATION_MOVED_FROM}' in object.metadata.?annotations.orValue({{}}) &&\n\
                     object.metadata.?finalizers.orValue([]) == ['{FINALIZER}']",
                    not("subnamespaces")
                ),
                "Coppice creates no Subnamespace but one that takes over from another, whose own namespace is being deleted.",
            ),
            validation(
                &format!(
                    "{} || request.operation != 'DELETE' ||\n\
                     request.?options.?preconditions.?resourceVersion.orValue('') != '' &&\n\
                     request.?options.?preconditions.?uid.orValue('') == oldObject.metadata.uid",
                    not("subnamespaces")
                ),
                "Coppice deletes a Subnamespace only with the uid and the resourceVersion that it has read as preconditions.",
            ),
            its_finalizer_alone("a Subnamespace, a QuotaTransfer or a NamespaceTree"),
            validation(
                &format!("{} || object.metadata.name == '{TREES_ACCOUNT}'", not("leases")),
                &format!("The account of trees creates no Lease but {TREES_ACCOUNT}."),
            ),
            super::admission::own_secret(),
            validation(
                &format!(
                    "{} ||\n{} && (oldObject == null ||\n{})",
                    not("events"),
                    reporter("object"),
                    reporter("oldObject")
                ),
                "Coppice writes Events in its own name only, and changes no others.",
            ),
        ],
    )
}

/// Never status, which the API server itself writes, and nothing in a namespace that is being deleted.
fn quotas(install: &Install) -> Value {
    let of_tree = |object: &str| {
        format!("{object} != null && '{LABEL_TREE}' in {object}.metadata.?labels.orValue({{}})")
    };
    let unchanged = ["labels", "annotations"].map(|field| {
        format!("object.metadata.?{field}.orValue({{}}) == oldObject.metadata.?{field}.orValue({{}})")
    });
    let kept = ["finalizers", "ownerReferences"].map(|field| {
        format!("object.metadata.?{field}.orValue([]) == oldObject.metadata.?{field}.orValue([])")
    });
    let exactly = [unchanged, kept].concat().join(" &&\n");
    let name = format!("(object == null ? oldObject : object).metadata.name == '{TREE_QUOTA_NAME}'");
    let mut policy = spec(
        &[resources("", &["CREATE", "UPDATE", "DELETE"], &["resourcequotas"])],
        &[
            by_others(install),
            json!({"name": "of-this-name", "expression": name}),
            json!({"name": "by-nobody-who-clears-namespaces", "expression":
                format!("request.userInfo.username != '{NAMESPACE_CONTROLLER}'")}),
        ],
        // Match conditions do not see the namespace.
        &[variable("leaving", "namespaceObject.metadata.?deletionTimestamp.hasValue()")],
        &[
            json!({
                "expression": format!(
                    "variables.leaving || !({} ||\n{}) ||\n\
                     request.operation == 'UPDATE' && object.?spec == oldObject.?spec &&\n{exactly}",
                    of_tree("object"),
                    of_tree("oldObject")
                ),
                "message": format!(
                    "The ResourceQuota {TREE_QUOTA_NAME} of a tree is what its namespace was given, and Coppice alone writes it: \
                     change spec.quota of the Subnamespace, or of the NamespaceTree, instead."
                ),
            }),
            validation(
                &format!(
                    "variables.leaving || request.operation != 'CREATE' ||\n\
                     !('{LABEL_ROOT}' in namespaceObject.metadata.?labels.orValue({{}}))"
                ),
                &format!(
                    "In a namespace of a tree the name {TREE_QUOTA_NAME} is that of Coppice's own ResourceQuota: give yours \
                     another name."
                ),
            ),
        ],
    );
    policy["#"] = json!(
        "To change a quota of a tree by hand in an emergency, delete the ValidatingAdmissionPolicyBinding coppice-tree-quotas\n\
         first; its ledger may then promise what is not there."
    );
    policy
}

/// What of our own kinds others may not do, though roles grant it.
fn objects(install: &Install) -> Value {
    let with = |object: &str| format!("'{FINALIZER}' in {object}.metadata.?finalizers.orValue([])");
    let namespaces = "dyn(oldObject).?status.?namespaces.orValue(0)";
    let detaches = "dyn(oldObject).spec.?deletionPolicy.orValue('Refuse') == 'Detach'";
    let tree = "NamespaceTree cannot be deleted while there are namespaces below its root: delete their Subnamespaces first";
    spec(
        &[
            resources(GROUP, &["UPDATE"], &["quotatransfers", "subnamespaces"]),
            resources(GROUP, &["DELETE"], &["namespacetrees"]),
        ],
        &[by_others(install)],
        &[],
        &[
            validation(
                &format!(
                    "request.resource.resource != 'subnamespaces' || !({}) ||\n{} ||\n{}",
                    with("oldObject"),
                    with("object"),
                    may_set()
                ),
                &format!(
                    "The finalizer {FINALIZER} returns the quota of the Subnamespace, and Coppice removes it once its namespace is \
                     gone: `coppice doctor` says what keeps the namespace. {}.",
                    exempt()
                ),
            ),
            validation(
                &format!(
                    "request.resource.resource != 'quotatransfers' || !({}) ||\n{} ||\n{}",
                    with("oldObject"),
                    with("object"),
                    may_set()
                ),
                &format!(
                    "The finalizer {FINALIZER} keeps the QuotaTransfer until its quota has arrived or returned, and Coppice removes it \
                     then: the condition Ready says what it waits for. {}.",
                    exempt()
                ),
            ),
            json!({
                "expression": format!("request.resource.resource != 'namespacetrees' || {namespaces} <= 1 ||\n{detaches}"),
                "message": format!("This {tree} (kubectl get subnamespaces -A), or keep them without it (coppice tree detach)."),
                "messageExpression": format!(
                    "'This {tree} (kubectl get subnamespaces -n ' + dyn(oldObject).spec.root +\n\
                     '), or keep them without it (coppice tree detach ' + oldObject.metadata.name + '): it has ' +\n\
                     string({namespaces}) + ' namespaces.'"
                ),
            }),
        ],
    )
}

/// By anybody, our own programs included.
fn parents(install: &Install) -> Value {
    let has_children =
        format!("oldObject != null && '{LABEL_CHILDREN}' in oldObject.metadata.?labels.orValue({{}})");
    let may = format!("authorizer.group('{GROUP}').resource('namespacetrees').check('update').allowed()");
    let what = "has subnamespaces: delete these Subnamespaces first (kubectl get subnamespaces -n";
    spec(
        &[resources("", &["DELETE"], &["namespaces"])],
        &[json!({"name": "has-children", "expression": has_children})],
        &[],
        &[json!({
            "expression": format!("!{} &&\n{may}", is_ours(install)),
            "message": format!("The namespace {what} NAMESPACE)."),
            "messageExpression":
                format!("'Namespace ' + oldObject.metadata.name + ' {what} ' + oldObject.metadata.name + ').'"),
        })],
    )
}

/// A Subnamespace that takes over from another one creates no namespace, and gets the quota of that one.
fn moved(install: &Install) -> Value {
    let from =
        |object: &str| format!("{object}.metadata.?annotations[?'{ANNOTATION_MOVED_FROM}'].orValue('')");
    spec(
        &[resources(GROUP, &["CREATE", "UPDATE"], &["subnamespaces"])],
        &[by_others(install)],
        &[],
        &[validation(
            &format!(
                "{} == (oldObject == null ? '' : {}) ||\n{}",
                from("object"),
                from("oldObject"),
                may_set()
            ),
            &format!(
                "The annotation {ANNOTATION_MOVED_FROM} says that a Subnamespace takes over from another one, and Coppice alone writes it. {}.",
                exempt()
            ),
        )],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both the policy that keeps others away and the one that binds us have to know every key.
    #[test]
    fn the_labels_that_others_may_not_write_are_those_that_we_may() {
        let install = Install::kubectl();
        let (guard, account) = (labels(&install).to_string(), account(&install).to_string());
        for key in [
            LABEL_SUBNAMESPACE,
            LABEL_PARENT,
            LABEL_ROOT,
            LABEL_CHILDREN,
            LABEL_DEPTH_SUFFIX,
            ANNOTATION_PATH,
        ] {
            assert!(guard.contains(&format!("'{key}'")) && account.contains(&format!("'{key}'")), "{key}");
        }
    }
}
