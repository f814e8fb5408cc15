//! Admission policies: what the API server itself refuses, whatever the operator's code does.
//!
//! - `coppice-guard` binds the operator's own account, so that a bug or a stolen token of it cannot delete a namespace
//!   by name alone, touch a protected one, or put work of its own into a `CronJob`.
//! - `coppice-guard-settings` adds what `CoppiceConfig` protects.
//! - `coppice-status` keeps everybody else from writing status, which decisions rest on.

use coppice_api::names::{CONFIG_NAME, GROUP, LABEL_PROTECTED, SERVICE_ACCOUNT, SYSTEM_NAMESPACE};
use serde_json::{Value, json};

use super::Install;

const VERSION: &str = "admissionregistration.k8s.io/v1";

/// Every policy with its binding.
pub(crate) fn objects(install: &Install) -> Vec<Value> {
    let settings = json!({
        "name": CONFIG_NAME,
        "parameterNotFoundAction": "Allow"
    });
    vec![
        policy(install, "coppice-guard", &guard(install)),
        binding(install, "coppice-guard", None),
        policy(install, "coppice-guard-settings", &guard_settings(install)),
        binding(install, "coppice-guard-settings", Some(settings)),
        policy(install, "coppice-status", &status(install)),
        binding(install, "coppice-status", None),
    ]
}

fn policy(install: &Install, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": install.cluster(name), "spec": spec
    })
}

fn binding(install: &Install, policy: &str, param: Option<Value>) -> Value {
    let mut binding = json!({
        "apiVersion": VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": install.cluster(policy),
        "spec": {"policyName": policy, "validationActions": ["Deny"]}
    });
    if let Some(param) = param {
        binding["spec"]["paramRef"] = param;
    }
    binding
}

/// Deleting namespaces, scaling workloads, changing `CronJobs`.
fn destructive() -> Value {
    json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["namespaces"]},
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*/scale"]},
        {"apiGroups": ["batch"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["cronjobs"]}
    ]})
}

fn by_us(install: &Install) -> Value {
    json!([{"name": "by-coppice", "expression": format!("request.userInfo.username == '{}'", install.user())}])
}

/// What expressions of both guards are made of.
fn variables() -> Vec<Value> {
    let variable = |name: &str, expression: &str| json!({"name": name, "expression": expression});
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

fn validation(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "message": message})
}

/// A validation whose message names the namespace; the fixed one is what is told should that fail.
fn about(expression: &str, why: &str) -> Value {
    json!({
        "expression": expression,
        "message": format!("The namespace is protected: {why}."),
        "messageExpression": format!("'Namespace ' + variables.name + ' is protected: {why}.'"),
    })
}

fn guard(install: &Install) -> Value {
    let account = format!("'system:serviceaccount:' + variables.name + ':{SERVICE_ACCOUNT}'");
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
                     !(variables.name == '{SYSTEM_NAMESPACE}' || request.userInfo.username == {account})"
                ),
                "it is the one that Coppice runs in",
            ),
            about(
                &format!("({untouched}) || variables.labels[?'{LABEL_PROTECTED}'].orValue('') != 'true'"),
                &format!("it has the label {LABEL_PROTECTED}=true"),
            ),
            validation(
                "request.resource.resource != 'cronjobs' || request.operation != 'UPDATE' || (\n\
                 object.spec.jobTemplate == oldObject.spec.jobTemplate && object.spec.schedule == oldObject.spec.schedule)",
                "Coppice changes nothing of a CronJob but spec.suspend.",
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
        "#": "Ignore, because a policy whose parameters cannot be looked up (in the first seconds after the CRD was\n\
              installed, or when it was removed) would refuse everybody's deletions, not only Coppice's: match\n\
              conditions are asked later. The operator checks the same by itself, under the settings in which it books its step.",
        "failurePolicy": "Ignore",
        "paramKind": {"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "CoppiceConfig"},
        "matchConstraints": destructive(),
        "matchConditions": by_us(install),
        "variables": variables,
        "validations": [
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
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*/status"]
        }]},
        "matchConditions": [{
            "name": "not-by-coppice",
            "expression": format!("request.userInfo.username != '{}'", install.user())
        }],
        "validations": [validation(
            "false",
            "Only Coppice writes status: it says what was observed, decided and done, and decisions rest on it. \
             Change spec instead; in an emergency delete the ValidatingAdmissionPolicyBinding coppice-status first.",
        )]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each_policy(check: impl Fn(&str, &Value)) {
        for object in objects(&Install::kubectl()) {
            if object["kind"] == "ValidatingAdmissionPolicy" {
                check(object["metadata"]["name"].as_str().unwrap(), &object["spec"]);
            }
        }
    }

    #[test]
    fn every_message_is_a_sentence() {
        each_policy(|name, spec| {
            for validation in spec["validations"].as_array().unwrap() {
                let message = validation["message"].as_str().unwrap();
                assert!(
                    message.starts_with(char::is_uppercase) && message.ends_with('.'),
                    "{name}: {message}"
                );
                assert!(message.len() <= 1024, "{name}: {message}");
            }
        });
    }

    /// Its parameters are looked up before its match conditions: failing closed would fail everybody's requests.
    #[test]
    fn only_a_policy_without_parameters_fails_closed() {
        each_policy(|name, spec| {
            let expected = if spec.get("paramKind").is_some() { "Ignore" } else { "Fail" };
            assert_eq!(spec["failurePolicy"], expected, "{name}");
        });
    }

    #[test]
    fn every_policy_looks_at_one_account() {
        each_policy(|name, spec| {
            let condition = spec["matchConditions"][0]["expression"].as_str().unwrap();
            assert!(
                condition.contains("'system:serviceaccount:coppice-system:coppice'"),
                "{name}: {condition}"
            );
        });
    }
}
