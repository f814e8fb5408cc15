//! What the API server refuses about `ClusterAccess` and `ManagedCluster`, whatever the roles grant.
//!
//! - `coppice-access-own` leaves the account of the program the Secrets with its label, of type Opaque, the finalizer of its kinds, the Clusters with
//!   the label of those that it made, its own Events and one Lease. Those with that label as kubeconfigs of targets are only read. A Cluster it
//!   deletes as it was read, and only with an annotation that names the ManagedCluster: no single request of it deletes one.
//! - `coppice-access-authors`: who has credentials issued with a kubeconfig of their namespace may read that kubeconfig. Of one that the
//!   platform keeps a ClusterProvider says who may, and with which rights: `coppice-access` decides that, at each credential. Who makes a
//!   ManagedCluster is not known here, so that both hold for the author of a ClusterAccess that names one made by Gardener.
//! - `coppice-access-clusters`: who has a Cluster made may create one.
//! - `coppice-access-providers`: what was issued by a ClusterProvider is revoked by it, and what was made is deleted by it, so that it stays while
//!   a ClusterAccess or ManagedCluster names it.
//! - `coppice-access-finalizers`: what was issued for a ClusterAccess is revoked before that is gone, and what was made for a ManagedCluster is
//!   deleted.
//! - `coppice-access-status` keeps everybody else from writing status, by which it is known what has to be revoked.

use coppice_api::names::{FIELD_MANAGER, FINALIZER, GROUP};
use coppice_clusters_api::names::{
    ANNOTATION_CONFIRM_DELETION, KUBECONFIG, LABEL_ACCESS, LABEL_MANAGED_CLUSTER, PROGRAM,
};
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::component::{Policy, before_and_now, its_finalizer_alone, validation, variable};

/// Every policy.
pub(super) fn policies(install: &Install) -> Vec<Policy> {
    let policy = |name, spec| Policy { name, spec, param: None };
    vec![
        policy("coppice-access-own", own(install)),
        policy("coppice-access-authors", authors(install)),
        policy("coppice-access-clusters", clusters(install)),
        policy("coppice-access-providers", providers(install)),
        policy("coppice-access-finalizers", finalizers(install)),
        policy("coppice-access-status", status(install)),
    ]
}

fn resources(group: &str, operations: &[&str], resources: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources})
}

fn condition(install: &Install, is: bool) -> Value {
    let (name, operator) = if is { ("by-the-program", "==") } else { ("by-others", "!=") };
    json!([{
        "name": name, "expression": format!("request.userInfo.username {operator} '{}'", install.user(PROGRAM))
    }])
}

/// What RBAC grants by kind only, because names are not known.
fn own(install: &Install) -> Value {
    let not = |resource: &str| format!("request.resource.resource != '{resource}'");
    let labelled = |object: &str| {
        let label = format!("dyn({object}).metadata.?labels[?'{LABEL_ACCESS}'].orValue('{KUBECONFIG}')");
        format!("({object} == null || {label} != '{KUBECONFIG}')")
    };
    let reporter =
        |object: &str| format!("dyn({object}).?reportingController.orValue('') == '{FIELD_MANAGER}'");
    let made = |object: &str| {
        format!(
            "({object} == null || '{LABEL_MANAGED_CLUSTER}' in dyn({object}).metadata.?labels.orValue({{}}))"
        )
    };
    let changed = "request.resource.resource in ['clusteraccesses', 'managedclusters']";
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            resources("", &["CREATE", "UPDATE", "DELETE"], &["secrets"]),
            resources(GROUP, &["UPDATE"], &["clusteraccesses", "managedclusters"]),
            resources("cluster.x-k8s.io", &["CREATE", "UPDATE", "DELETE"], &["clusters"]),
            resources("events.k8s.io", &["CREATE", "UPDATE"], &["events"]),
            resources("coordination.k8s.io", &["CREATE"], &["leases"]),
        ]},
        "matchConditions": condition(install, true),
        "variables": before_and_now(changed),
        "validations": [
            validation(
                &format!("{} ||\n{} &&\n{}", not("secrets"), labelled("object"), labelled("oldObject")),
                &format!("Coppice writes and deletes no Secret but those with the label {LABEL_ACCESS}, and none of those with the value {KUBECONFIG}."),
            ),
            // The API server would put a token of any account into one of another type.
            validation(
                &format!("{} || object == null ||\ndyn(object).?type.orValue('Opaque') == 'Opaque'", not("secrets")),
                "Coppice writes no Secret of another type than Opaque.",
            ),
            its_finalizer_alone("a ClusterAccess or ManagedCluster"),
            validation(
                &format!("{} ||\n{} &&\n{}", not("clusters"), made("object"), made("oldObject")),
                &format!("Coppice writes and deletes no Cluster but those with the label {LABEL_MANAGED_CLUSTER}."),
            ),
            validation(
                &format!(
                    "{} || request.operation != 'DELETE' ||\n\
                     request.?options.?preconditions.?resourceVersion.orValue('') != '' &&\n\
                     request.?options.?preconditions.?uid.orValue('') == oldObject.metadata.uid &&\n\
                     dyn(oldObject).metadata.?annotations[?'{ANNOTATION_CONFIRM_DELETION}'].orValue('') ==\n\
                     dyn(oldObject).metadata.?labels[?'{LABEL_MANAGED_CLUSTER}'].orValue('none')",
                    not("clusters")
                ),
                &format!(
                    "Coppice deletes a Cluster only with the uid and the resourceVersion that it has read as preconditions, and once its annotation \
                     {ANNOTATION_CONFIRM_DELETION} names the ManagedCluster that it was made for, which is being deleted."
                ),
            ),
            validation(
                &format!("{} || object.metadata.name == '{PROGRAM}'", not("leases")),
                &format!("The account of {PROGRAM} creates no Lease but {PROGRAM}."),
            ),
            validation(
                &format!("{} ||\n{} && (oldObject == null ||\n{})", not("events"), reporter("object"), reporter("oldObject")),
                "Coppice writes Events in its own name only, and changes no others.",
            ),
        ]
    })
}

/// Otherwise everybody who may write a `ClusterAccess` could use every kubeconfig of the namespace.
fn authors(install: &Install) -> Value {
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [resources(GROUP, &["CREATE", "UPDATE"], &["clusteraccesses"])]},
        "matchConditions": condition(install, false),
        "variables": [variable(
            "secret",
            "has(object.spec.cluster.kubeconfigSecret) ? object.spec.cluster.kubeconfigSecret.name :\n\
             (has(object.spec.cluster.clusterAPI) ? object.spec.cluster.clusterAPI.name :\n\
             object.spec.cluster.managedCluster.name) + '-kubeconfig'",
        )],
        "validations": [validation(
            "oldObject != null && object.spec == oldObject.spec ||\n\
             has(object.spec.cluster.provider) || has(object.spec.cluster.gardener) ||\n\
             authorizer.group('').resource('secrets').namespace(request.namespace)\
             .name(variables.secret).check('get').allowed()",
            "Who writes a ClusterAccess has to be permitted to get the Secret with the kubeconfig of spec.cluster, which kubeconfigSecret names, or which is \
             NAME-kubeconfig of clusterAPI or managedCluster: that kubeconfig is used in your name.",
        )]
    })
}

/// Otherwise everybody who may write a `ManagedCluster` could have Clusters made that they may not make.
fn clusters(install: &Install) -> Value {
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [resources(GROUP, &["CREATE", "UPDATE"], &["managedclusters"])]},
        "matchConditions": condition(install, false),
        "validations": [validation(
            "oldObject != null && object.spec == oldObject.spec ||\n\
             !has(object.spec.provider.clusterAPI) ||\n\
             authorizer.group('cluster.x-k8s.io').resource('clusters').namespace(request.namespace)\
             .check('create').allowed()",
            "Who writes a ManagedCluster has to be permitted to create clusters.cluster.x-k8s.io in its namespace: such a Cluster is made in your name.",
        )]
    })
}

/// Without its kubeconfig nothing is revoked, and no Shoot is deleted. No finalizer keeps it, which would be left when the component is removed.
fn providers(install: &Install) -> Value {
    let of_status =
        |field: &str, default: &str| format!("dyn(oldObject).?status.?{field}.orValue({default})");
    let (accesses, clusters) = (of_status("accesses", "0"), of_status("managedClusters", "0"));
    // So many of a kind name it, the first three among them.
    let named = |count: &str, kind: &str, field: &str| {
        let first = of_status(field, "[]");
        format!(
            "({count} == 0 ? [] : [string({count}) + ' {kind} name it (such as ' +\n\
             {first}.filter(name, {first}.indexOf(name) < 3).join(', ') + ')'])"
        )
    };
    let named = format!(
        "({} +\n{}).join(' and ')",
        named(&accesses, "ClusterAccesses", "usedBy"),
        named(&clusters, "ManagedClusters", "usedByClusters")
    );
    let why = "with its kubeconfig their credentials are revoked and their Shoots deleted. Delete these first (the first 10 are in status.usedBy and \
               status.usedByClusters), and wait a minute, since they are counted once a minute; in an emergency delete the \
               ValidatingAdmissionPolicyBinding coppice-access-providers first.";
    json!({
        "#": "To delete one by hand in an emergency, delete the ValidatingAdmissionPolicyBinding coppice-access-providers first.",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [resources(GROUP, &["DELETE"], &["clusterproviders"])]},
        "matchConditions": condition(install, false),
        "validations": [{
            "expression": format!("oldObject == null || {accesses} == 0 && {clusters} == 0"),
            "message": format!("A ClusterProvider cannot be deleted while ClusterAccesses or ManagedClusters name it: {why}"),
            "messageExpression":
                format!("'ClusterProvider ' + oldObject.metadata.name + ' cannot be deleted: ' +\n{named} +\n': {why}'"),
        }]
    })
}

/// Otherwise whoever may patch a `ClusterAccess` could keep the credential of one that is gone, and of a `ManagedCluster` the cluster, at the
/// cost of the platform.
fn finalizers(install: &Install) -> Value {
    let with = |object: &str| format!("'{FINALIZER}' in {object}.metadata.?finalizers.orValue([])");
    // Unless status says that there is nothing to end.
    let kept = |resource: &str, has_nothing: &str, message: &str| {
        let expression = format!(
            "request.resource.resource != '{resource}' || !({}) ||\n{} ||\n{has_nothing}",
            with("oldObject"),
            with("object")
        );
        let way_out =
            "in an emergency delete the ValidatingAdmissionPolicyBinding coppice-access-finalizers first.";
        validation(
            &expression,
            &format!("{message} Use kubectl apply or patch instead of replace; {way_out}"),
        )
    };
    json!({
        "#": "To take a finalizer off by hand in an emergency, delete the ValidatingAdmissionPolicyBinding coppice-access-finalizers first.",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [resources(GROUP, &["UPDATE"], &["clusteraccesses", "managedclusters"])]},
        "matchConditions": condition(install, false),
        "validations": [
            kept(
                "clusteraccesses",
                "dyn(oldObject).?status.?sequence.orValue(0) == 0",
                &format!(
                    "The finalizer {FINALIZER} keeps the ClusterAccess until its credential is revoked, and Coppice removes it then: the condition Ready says what that \
                     waits for, and spec.forgetAfter how long."
                ),
            ),
            kept(
                "managedclusters",
                "!dyn(oldObject).?status.?hash.hasValue() && !dyn(oldObject).?status.?cluster.hasValue()",
                &format!(
                    "The finalizer {FINALIZER} keeps the ManagedCluster until its cluster is deleted, and Coppice removes it then: the condition Ready says what that waits \
                     for. To keep the cluster, take the label {LABEL_MANAGED_CLUSTER} off its Cluster or Shoot."
                ),
            ),
        ]
    })
}

fn status(install: &Install) -> Value {
    json!({
        "#": "To write status by hand in an emergency, delete the ValidatingAdmissionPolicyBinding coppice-access-status first.",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [resources(GROUP, &["CREATE", "UPDATE"], &["clusteraccesses/status", "clusterproviders/status", "managedclusters/status"])]},
        "matchConditions": condition(install, false),
        "validations": [validation(
            "false",
            "Only Coppice writes status: it says which credentials were issued and have to be revoked, and which clusters were made. Change spec instead; in an \
             emergency delete the ValidatingAdmissionPolicyBinding coppice-access-status first.",
        )]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_has_our_finalizer_keeps_it_until_its_end() {
        let policy = finalizers(&Install::kubectl());
        let kept = policy["matchConstraints"]["resourceRules"][0]["resources"].as_array().unwrap();
        let patched: Vec<Value> = super::super::rules::cluster()
            .into_iter()
            .filter(|rule| rule["apiGroups"] == json!([GROUP]) && rule["verbs"].to_string().contains("patch"))
            .flat_map(|rule| rule["resources"].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(*kept, patched);
        // Each has a rule of its own, which says what there is to end.
        for resource in kept {
            let of = format!("request.resource.resource != '{}' ||", resource.as_str().unwrap());
            let rules = policy["validations"].as_array().unwrap().iter();
            let of_it = rules.filter(|rule| rule["expression"].as_str().unwrap().starts_with(&of));
            assert_eq!(of_it.count(), 1, "{resource}");
        }
    }
}
