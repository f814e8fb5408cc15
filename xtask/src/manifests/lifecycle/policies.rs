//! Admission policies: what the API server itself refuses, whatever the operator's code does.
//!
//! - `coppice-guard` binds every account of Coppice, so that a bug or a stolen token of it cannot delete a namespace
//!   by name alone, touch a protected one, or give a workload any size but zero and, from zero, another.
//! - `coppice-guard-cronjobs` leaves those accounts nothing of a `CronJob` but `spec.suspend`.
//! - `coppice-guard-own` leaves the operator its own Events, one Secret and one Lease, where RBAC cannot name objects.
//! - `coppice-guard-settings` adds what `CoppiceConfig` protects, `paused`, and the breaker in its status.
//! - `coppice-status` keeps everybody else from writing status, which decisions rest on.
//! - `coppice-identity` keeps whoever may not create namespaces from changing what theirs were made for.
//! - `coppice-records` lets people hold and extend a namespace in their own name only, and keeps its record while it lives.

use coppice_api::names::{
    CONFIG_NAME, FIELD_MANAGER, GROUP, LABEL_PROTECTED, LEASE_NAME, SERVICE_ACCOUNT, SYSTEM_NAMESPACE,
    VERB_SET_REQUESTER, WEBHOOK_KEY_SECRET,
};
use serde_json::{Value, json};

use crate::manifests::Install;
use crate::manifests::component::{Policy, is_ours, validation, variable};

/// Every policy.
pub(super) fn policies(install: &Install) -> Vec<Policy> {
    let settings = json!({
        "name": CONFIG_NAME,
        "parameterNotFoundAction": "Allow"
    });
    let every_cluster_manager = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    vec![
        Policy { name: "coppice-guard", spec: guard(install), param: None },
        Policy { name: "coppice-guard-cronjobs", spec: guard_cron_jobs(install), param: None },
        Policy { name: "coppice-guard-own", spec: guard_own(install), param: None },
        Policy { name: "coppice-guard-settings", spec: guard_settings(install), param: Some(settings) },
        Policy { name: "coppice-status", spec: status(install), param: None },
        Policy { name: "coppice-identity", spec: identity(install), param: Some(every_cluster_manager) },
        Policy { name: "coppice-records", spec: records(install), param: None },
    ]
}

/// Deleting namespaces, scaling workloads, suspending `CronJobs`.
fn destructive() -> Value {
    json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["namespaces"]},
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*/scale"]},
        {"apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["cronjobs"]}
    ]})
}

fn by_us(install: &Install) -> Value {
    json!([{"name": "by-coppice", "expression": is_ours(install)}])
}

fn not_by_us(install: &Install) -> Value {
    json!([{"name": "not-by-coppice", "expression": format!("!{}", is_ours(install))}])
}

fn by_the_operator(install: &Install) -> Value {
    json!([{"name": "by-coppice", "expression": format!("request.userInfo.username == '{}'", install.user(SERVICE_ACCOUNT))}])
}

/// What expressions of both guards are made of.
fn variables() -> Vec<Value> {
    vec![
        variable("deletes", "request.operation == 'DELETE'"),
        variable(
            "shrinks",
            "request.operation == 'UPDATE' && (request.?subResource.orValue('') == 'scale'\n\
             ? object.?spec.?replicas.orValue(0) < oldObject.?spec.?replicas.orValue(0)\n\
             : object.?spec.?suspend.orValue(false) && !oldObject.?spec.?suspend.orValue(false))",
        ),
        variable("name", "variables.deletes ? oldObject.metadata.name : request.namespace"),
        variable(
            "labels",
            "variables.deletes ? oldObject.metadata.?labels.orValue({}) : namespaceObject.metadata.?labels.orValue({})",
        ),
    ]
}

/// A validation whose message names the namespace; the fixed one is for when that fails.
fn about(expression: &str, why: &str) -> Value {
    json!({
        "expression": expression,
        "message": format!("The namespace is protected: {why}."),
        "messageExpression": format!("'Namespace ' + variables.name + ' is protected: {why}.'"),
    })
}

fn guard(install: &Install) -> Value {
    let account = format!("'system:serviceaccount:' + variables.name + ':{SERVICE_ACCOUNT}'");
    let in_it = format!(
        "request.userInfo.username == {account} || request.userInfo.username.startsWith({account} + '-')"
    );
    let untouched = "!variables.deletes && !variables.shrinks";
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": destructive(),
        "matchConditions": by_us(install),
        "variables": variables(),
        "validations": [
            validation(
                "!variables.deletes || request.?options.?preconditions.?resourceVersion.orValue('') != ''",
                "Coppice deletes a namespace only with the uid and the resourceVersion that it has read as \
                 preconditions: this request has no resourceVersion.",
            ),
            validation(
                "!variables.deletes || request.?options.?preconditions.?uid.orValue('') == oldObject.metadata.uid",
                "Coppice deletes a namespace only with the uid and the resourceVersion that it has read as \
                 preconditions: this request does not carry the uid of the namespace.",
            ),
            about(
                &format!(
                    "({untouched}) || !(variables.name == 'default' || variables.name.startsWith('kube-'))"
                ),
                "it belongs to Kubernetes",
            ),
            about(
                &format!(
                    "({untouched}) ||\n\
                     !(variables.name == '{SYSTEM_NAMESPACE}' || {in_it})"
                ),
                "it is the one that Coppice runs in",
            ),
            about(
                &format!("({untouched}) || !('{LABEL_PROTECTED}' in variables.labels)"),
                &format!("it has the label {LABEL_PROTECTED}"),
            ),
            validation(
                "request.?subResource.orValue('') != 'scale' ||\n\
                 object.?spec.?replicas.orValue(0) == 0 ||\n\
                 object.?spec.?replicas.orValue(0) == oldObject.?spec.?replicas.orValue(0) ||\n\
                 oldObject.?spec.?replicas.orValue(0) == 0",
                "Coppice scales a workload to zero, or from zero to the replicas that it had, and to no other size.",
            ),
        ]
    })
}

/// Metadata and spec are compared as maps, so that there is no list of fields that could miss one.
fn guard_cron_jobs(install: &Install) -> Value {
    let side = |name: &str, object: &str| {
        let expression =
            format!("request.operation == 'UPDATE' ? {object} : {{'metadata': {{}}, 'spec': {{}}}}");
        json!({"name": name, "expression": expression})
    };
    let same = |part: &str, free: &str| {
        format!(
            "variables.new.{part}.all(k, {free} ||\n\
             (k in variables.old.{part} && variables.new.{part}[k] == variables.old.{part}[k])) &&\n\
             variables.old.{part}.all(k, {free} || k in variables.new.{part})"
        )
    };
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["*"], "resources": ["cronjobs", "cronjobs/*"]
        }]},
        "matchConditions": by_us(install),
        "variables": [side("new", "object"), side("old", "oldObject")],
        "validations": [
            validation(
                "request.operation == 'UPDATE' && request.?subResource.orValue('') == ''",
                "Coppice neither creates nor deletes a CronJob, and writes none of its subresources.",
            ),
            validation(
                &same("metadata", "k in ['managedFields', 'resourceVersion', 'generation']"),
                "Coppice changes nothing of a CronJob but spec.suspend: this request changes its metadata.",
            ),
            validation(
                &same("spec", "k == 'suspend'"),
                "Coppice changes nothing of a CronJob but spec.suspend: this request changes another field of spec.",
            ),
        ]
    })
}

/// What RBAC grants by kind only, because the name is not known yet or the object is another's.
fn guard_own(install: &Install) -> Value {
    let rule = |group: &str, resource: &str, operations: &[&str]| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [resource]});
    json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            rule("events.k8s.io", "events", &["CREATE", "UPDATE"]),
            rule("", "secrets", &["CREATE"]),
            rule("coordination.k8s.io", "leases", &["CREATE"]),
        ]},
        "matchConditions": by_the_operator(install),
        "validations": [
            validation(
                &format!(
                    "request.resource.resource != 'events' ||\n\
                     (dyn(object).?reportingController.orValue('') == '{FIELD_MANAGER}' && (oldObject == null ||\n\
                     dyn(oldObject).?reportingController.orValue('') == '{FIELD_MANAGER}'))"
                ),
                "Coppice writes Events in its own name only, and changes no others.",
            ),
            validation(
                &format!(
                    "request.resource.resource != 'secrets' ||\n\
                     (object.metadata.name == '{WEBHOOK_KEY_SECRET}' && dyn(object).?type.orValue('Opaque') == 'Opaque')"
                ),
                &format!("Coppice creates no Secret but {WEBHOOK_KEY_SECRET}, of type Opaque."),
            ),
            validation(
                &format!("request.resource.resource != 'leases' || object.metadata.name == '{LEASE_NAME}'"),
                &format!("Coppice creates no Lease but {LEASE_NAME}."),
            ),
        ]
    })
}

fn guard_settings(install: &Install) -> Value {
    let mut variables = variables();
    let mut add =
        |name: &str, expression: &str| variables.push(json!({"name": name, "expression": expression}));
    add("names", "params.?spec.?protected.?names.orValue([])");
    // Absent selects nothing.
    add("selects", "params.?spec.?protected.?selector.hasValue()");
    add("matchLabels", "params.?spec.?protected.?selector.?matchLabels.orValue({})");
    add("matchExpressions", "params.?spec.?protected.?selector.?matchExpressions.orValue([])");
    let untouched = "!variables.deletes && !variables.shrinks";
    json!({
        "#": "Ignore, because a policy whose parameters cannot be looked up (for up to 30 seconds after an API server\n\
              starts or the CRD is installed, and when it was removed) would refuse everybody's deletions, not only\n\
              Coppice's: match conditions are asked later. The operator checks the same by itself, under the settings\n\
              in which it books its step; settings that are missing stop the operator, not the API server.",
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "CoppiceConfig"},
        "matchConstraints": destructive(),
        "matchConditions": by_us(install),
        "variables": variables,
        "validations": [
            validation(
                &format!("({untouched}) || !params.?spec.?governor.?paused.orValue(false)"),
                "Coppice is paused: spec.governor.paused of CoppiceConfig/coppice is true. Nothing is deleted or scaled \
                 down until it is false; waking goes on.",
            ),
            validation(
                &format!(
                    "({untouched}) || !params.?status.?governor.?breaker.hasValue() ||\n\
                     params.?spec.?governor.?acknowledge.orValue('') == params.status.governor.breaker.id"
                ),
                "The breaker is open: status.governor.breaker of CoppiceConfig/coppice says why. Nothing is deleted or \
                 scaled down until somebody has looked at it and runs `coppice acknowledge` with its id; waking goes on.",
            ),
            about(
                &format!(
                    "({untouched}) || !variables.names.exists(p, p.matches('^[a-z0-9*-]+$') &&\n\
                     variables.name.matches('^' + p.replace('*', '.*') + '$'))"
                ),
                "its name is among spec.protected.names of CoppiceConfig/coppice",
            ),
            about(
                &format!(
                    "({untouched}) || !variables.selects || !(\n\
                     variables.matchLabels.all(k, k in variables.labels && variables.labels[k] == variables.matchLabels[k]) &&\n\
                     variables.matchExpressions.all(e,\n\
                     e.operator == 'In' ? e.key in variables.labels && variables.labels[e.key] in e.?values.orValue([]) :\n\
                     e.operator == 'NotIn' ? !(e.key in variables.labels && variables.labels[e.key] in e.?values.orValue([])) :\n\
                     e.operator == 'Exists' ? e.key in variables.labels : !(e.key in variables.labels)))"
                ),
                "spec.protected.selector of CoppiceConfig/coppice selects it",
            ),
        ]
    })
}

fn status(install: &Install) -> Value {
    json!({
        "#": "To write status by hand in an emergency, delete the ValidatingAdmissionPolicyBinding coppice-status first.",
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [{
                "apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*/status"]
            }],
            // Its program lives in another namespace, and has a policy of its own.
            "excludeResourceRules": [{
                "apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["*"],
                "resources": ["clusteraccesses/status", "clusterproviders/status", "managedclusters/status"]
            }]
        },
        "matchConditions": not_by_us(install),
        "validations": [validation(
            "false",
            "Only Coppice writes status: it says what was observed, decided and done, and decisions rest on it. \
             Change spec instead; in an emergency delete the ValidatingAdmissionPolicyBinding coppice-status first.",
        )]
    })
}

/// By what a namespace was made for, its cluster manager compares it with those of others, and deletes these.
fn identity(install: &Install) -> Value {
    const FIELDS: [&str; 8] =
        ["project", "environment", "job", "mergeRequest", "branch", "commit", "pipeline", "run"];
    let keys = FIELDS.map(|field| format!("params.?spec.?identity.?{field}.orValue('')")).join(",\n");
    let unchanged = |now: &str, before: &str| {
        format!(
            "(k in variables.{now}) == (k in variables.{before}) &&\n\
             (!(k in variables.{now}) || variables.{now}[k] == variables.{before}[k])"
        )
    };
    json!({
        "#": "Ignore, because a policy whose parameters cannot be looked up (for up to 30 seconds after an API server\n\
              starts or the CRD is installed, and when it was removed) would refuse everybody's changes of namespaces.",
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ClusterNamespaceManager"},
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["namespaces", "namespaces/*"]
        }]},
        "matchConditions": not_by_us(install),
        "variables": [
            variable("keys", &format!("[{keys}].filter(k, k != '')")),
            variable("labels", "object.metadata.?labels.orValue({})"),
            variable("labelsBefore", "oldObject.metadata.?labels.orValue({})"),
            variable("annotations", "object.metadata.?annotations.orValue({})"),
            variable("annotationsBefore", "oldObject.metadata.?annotations.orValue({})"),
            variable(
                "changed",
                &format!(
                    "variables.keys.filter(k, !({} &&\n{}))",
                    unchanged("labels", "labelsBefore"),
                    unchanged("annotations", "annotationsBefore")
                ),
            ),
        ],
        "validations": [{
            "expression": "size(variables.changed) == 0 ||\n\
                           authorizer.group('').resource('namespaces').check('create').allowed()",
            "message": "A ClusterNamespaceManager reads this label or annotation (spec.identity), by which it may decide about \
                        namespaces of others: only those who may create namespaces may change it.",
            "messageExpression": "'ClusterNamespaceManager ' + params.metadata.name + ' reads ' + variables.changed[0] +\n' (spec.identity), by which it may decide about namespaces of others: only those \
                                  who may create namespaces may change it.'",
        }]
    })
}

/// What is compared are whole parts of spec, so that nobody changes what stands under another's name.
fn records(install: &Install) -> Value {
    const NAMESPACE_CONTROLLER: &str = "system:serviceaccount:kube-system:namespace-controller";
    let now = |part: &str| format!("variables.deletes ? {{}} : dyn(object).?spec.?{part}.orValue({{}})");
    let before =
        |part: &str| format!("oldObject == null ? {{}} : dyn(oldObject).?spec.?{part}.orValue({{}})");
    let own_name = |part: &str| {
        let exempt = format!(
            "Accounts that write what others asked for, such as those that restore backups, need the verb \
             {VERB_SET_REQUESTER} on managednamespaces.{GROUP}."
        );
        json!({
            "expression": format!(
                "variables.{part} == variables.{part}Before || variables.{part} == {{}} ||\n\
                 variables.{part}.?by.orValue('') == request.userInfo.username || variables.mayNameOthers"
            ),
            "message": format!("Whoever changes spec.{part} has to write their own user name into spec.{part}.by. {exempt}"),
            "messageExpression": format!(
                "'Whoever changes spec.{part} has to write their own user name into it: set spec.{part}.by to \"' +\n\
                 request.userInfo.username + '\". {exempt}'"
            ),
        })
    };
    let kept = "begins settle and notice again, and loses what its users hold and extend. It goes with its namespace. To \
                keep the namespace, set spec.hold; to have it governed no more, change the selector of the \
                ClusterNamespaceManager.";
    json!({
        "#": "To delete a record all the same, delete the ValidatingAdmissionPolicyBinding coppice-records first.",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["managednamespaces"]
        }]},
        "matchConditions": not_by_us(install),
        "variables": [
            variable("deletes", "request.operation == 'DELETE'"),
            variable("hold", &now("hold")),
            variable("holdBefore", &before("hold")),
            variable("extendUntil", &now("extendUntil")),
            variable("extendUntilBefore", &before("extendUntil")),
            variable(
                "mayNameOthers",
                &format!(
                    "authorizer.group('{GROUP}').resource('managednamespaces').namespace(request.namespace)\n\
                     .check('{VERB_SET_REQUESTER}').allowed()"
                ),
            ),
        ],
        "validations": [
            own_name("hold"),
            own_name("extendUntil"),
            {
                "expression": format!(
                    "!variables.deletes || !dyn(oldObject).?status.?manager.hasValue() ||\n\
                     namespaceObject.metadata.?deletionTimestamp.hasValue() ||\n\
                     request.userInfo.username == '{NAMESPACE_CONTROLLER}'"
                ),
                "message": format!("A cluster manager governs the namespace: deleting its record {kept}"),
                "messageExpression": format!(
                    "'ClusterNamespaceManager ' + dyn(oldObject).status.manager.name + ' governs namespace ' + \
                     request.namespace +\n': deleting its record {kept}'"
                ),
            },
            validation(
                &format!(
                    "!variables.deletes || size(dyn(oldObject).?status.?scaledDown.orValue([])) == 0 ||\n\
                     namespaceObject.metadata.?deletionTimestamp.hasValue() ||\n\
                     request.userInfo.username == '{NAMESPACE_CONTROLLER}'"
                ),
                "Workloads of the namespace are scaled down, and this record alone knows their replicas: wake them first, \
                 with `coppice wake NAMESPACE`.",
            ),
        ]
    })
}
