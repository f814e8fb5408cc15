//! A program of Coppice with everything that it needs in a cluster.
//!
//! The generator knows no component by itself: `deploy/`, RBAC, admission policies and the parts of the chart follow from
//! values of [`Component`]. The tests below run for each of them, and for one that only they know.

use coppice_api::names::{FINALIZER, GROUP, SERVICE_ACCOUNT};
use serde_json::{Value, json};

use super::{Install, namespace};

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_VERSION: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION_VERSION: &str = "admissionregistration.k8s.io/v1";

/// One component, for one installation. Where a list is empty, nothing is generated for it.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    /// Its name in the chart's values and in the names of files, such as `lifecycle`.
    pub(crate) name: &'static str,
    /// The name of its roles and its Deployment; that of its program, too, unless it is another's that runs with an argument.
    pub(crate) program: &'static str,
    /// The program that its pods run: a crate, and the image of its name.
    pub(crate) binary: &'static str,
    /// The service account that it runs as: its own.
    pub(crate) account: &'static str,
    /// The namespace that it lives in, if that is not Coppice's: it is created with it.
    pub(crate) namespace: Option<&'static str>,
    /// The kinds that it alone has, complete objects.
    pub(crate) crds: Vec<Value>,
    /// `false`: every installation has it; it is in `deploy/install.yaml`, and its workload in the chart is written by hand.
    /// `true`: it has a file of its own, `deploy/NAME.yaml`, and in the chart the switch `NAME.enabled`, which is off.
    pub(crate) optional: bool,
    /// What its account may do in the whole cluster.
    pub(crate) cluster_rules: Vec<Value>,
    /// What its account may do in Coppice's namespace.
    pub(crate) local_rules: Vec<Value>,
    /// Roles for people, complete objects.
    pub(crate) user_roles: Vec<Value>,
    /// What the API server refuses, whatever the roles grant.
    pub(crate) policies: Vec<Policy>,
    /// What runs it, complete objects; the Deployment last.
    pub(crate) workload: Vec<Value>,
    /// Objects that are applied by hand when they are needed: the name of the file in `deploy/`, and the object.
    pub(crate) on_demand: Vec<(&'static str, Value)>,
}

/// A `ValidatingAdmissionPolicy` with its binding.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    /// The name of both.
    pub(crate) name: &'static str,
    /// The policy's spec.
    pub(crate) spec: Value,
    /// The object that its parameters are in, if it has some.
    pub(crate) param: Option<Value>,
}

impl Component {
    /// Everything but what is applied on demand, in the order in which it can be applied.
    pub(crate) fn objects(&self, install: &Install) -> Vec<Value> {
        let mut objects = self.crds.clone();
        objects.extend(self.namespace.map(|_| namespace(&self.place(install))));
        objects.extend(self.access(install));
        objects.extend(self.admission(install));
        objects.extend(self.workload.iter().cloned());
        objects
    }

    /// The installation as seen from the namespace of the component.
    fn place(&self, install: &Install) -> Install {
        self.namespace.map_or_else(|| install.clone(), |namespace| install.within(namespace))
    }

    /// The account, its roles, and the roles for people.
    pub(crate) fn access(&self, install: &Install) -> Vec<Value> {
        let install = &self.place(install);
        let mut objects = vec![json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": install.local(self.account),
            // Its token is mounted where a pod asks for it.
            "automountServiceAccountToken": false
        })];
        if !self.cluster_rules.is_empty() {
            let metadata = install.cluster(self.program);
            objects.extend(self.granted(install, "ClusterRole", &metadata, &self.cluster_rules));
        }
        if !self.local_rules.is_empty() {
            let metadata = install.local(self.program);
            objects.extend(self.granted(install, "Role", &metadata, &self.local_rules));
        }
        objects.extend(self.user_roles.iter().cloned());
        objects
    }

    /// A role, and its binding to the account.
    fn granted(&self, install: &Install, kind: &str, metadata: &Value, rules: &[Value]) -> [Value; 2] {
        [
            json!({"apiVersion": RBAC_VERSION, "kind": kind, "metadata": metadata, "rules": rules}),
            json!({
                "apiVersion": RBAC_VERSION, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": self.program},
                "subjects": [
                    {"kind": "ServiceAccount", "name": self.account, "namespace": install.namespace}
                ]
            }),
        ]
    }

    /// The admission policies, each with its binding.
    pub(crate) fn admission(&self, install: &Install) -> Vec<Value> {
        self.policies.iter().flat_map(|policy| policy.objects(install)).collect()
    }
}

impl Policy {
    fn objects(&self, install: &Install) -> [Value; 2] {
        let metadata = install.cluster(self.name);
        let mut binding = json!({
            "apiVersion": ADMISSION_VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
            "spec": {"policyName": self.name, "validationActions": ["Deny"]}
        });
        if let Some(param) = &self.param {
            binding["spec"]["paramRef"] = param.clone();
        }
        [
            json!({
                "apiVersion": ADMISSION_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
                "spec": self.spec
            }),
            binding,
        ]
    }
}

/// Whether a request comes from the operator's account, or from that of another component, which is called `coppice-NAME`.
pub(crate) fn is_ours(install: &Install) -> String {
    let user = install.user(SERVICE_ACCOUNT);
    format!("(request.userInfo.username == '{user}' || request.userInfo.username.startsWith('{user}-'))")
}

/// A variable of a policy.
pub(crate) fn variable(name: &str, expression: &str) -> Value {
    json!({"name": name, "expression": expression})
}

/// What a policy demands, and what it says otherwise.
pub(crate) fn validation(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "message": message})
}

/// Metadata and spec of an object before and after a write, where this holds; for [`its_finalizer_alone`].
pub(crate) fn before_and_now(changed: &str) -> [Value; 4] {
    let metadata = |object: &str| format!("{changed} ? dyn({object}).metadata : {{}}");
    let spec = |object: &str| format!("{changed} ? dyn({object}).?spec.orValue({{}}) : {{}}");
    [
        variable("now", &metadata("object")),
        variable("before", &metadata("oldObject")),
        variable("spec", &spec("object")),
        variable("specBefore", &spec("oldObject")),
    ]
}

/// Of what [`before_and_now`] names nothing is changed but our finalizer.
pub(crate) fn its_finalizer_alone(what: &str) -> Value {
    let free = "k in ['managedFields', 'resourceVersion', 'generation', 'finalizers']";
    let finalizers =
        |side: &str| format!("variables.{side}.?finalizers.orValue([]).filter(f, f != '{FINALIZER}')");
    validation(
        &format!(
            "variables.spec == variables.specBefore &&\n\
             variables.now.all(k, {free} || (k in variables.before && variables.now[k] == variables.before[k])) &&\n\
             variables.before.all(k, {free} || k in variables.now) &&\n\
             {} == {}",
            finalizers("now"),
            finalizers("before")
        ),
        &format!("Coppice changes nothing of {what} but its finalizer {FINALIZER}."),
    )
}

/// A rule of a role. `why` is written above it.
pub(crate) fn rule(why: &str, group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"#": why, "apiGroups": [group], "resources": resources, "verbs": verbs})
}

/// What a program needs beside the right to delete namespaces: it deletes them by the one budget, and with a record.
pub(crate) fn deletions() -> [Value; 3] {
    [
        rule(
            "The settings: what is protected, and the budget.",
            GROUP,
            &["coppiceconfigs"],
            &["get", "list", "watch"],
        ),
        rule(
            "Each deletion is reserved in the budget's ledger.",
            GROUP,
            &["coppiceconfigs/status"],
            &["update"],
        ),
        rule(
            "The records of deletions, stored before a namespace is deleted. What becomes of them is the operator's work.",
            GROUP,
            &["deletednamespaces"],
            &["create", "get", "update"],
        ),
    ]
}

/// The Lease of this name in the program's own namespace.
pub(crate) fn lease(name: &str) -> [Value; 2] {
    [
        rule(
            "The Lease by which replicas agree on who writes. Creation cannot be limited to a name.",
            "coordination.k8s.io",
            &["leases"],
            &["create"],
        ),
        json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name],
            "verbs": ["get", "update", "watch"]
        }),
    ]
}

/// What every program asks the API server about those who read its metrics.
pub(crate) fn reviews() -> [Value; 2] {
    [
        rule(
            "Who reads /metrics shows a token: whose it is, the API server says.",
            "authentication.k8s.io",
            &["tokenreviews"],
            &["create"],
        ),
        rule(
            "And whether they may get that path.",
            "authorization.k8s.io",
            &["subjectaccessreviews"],
            &["create"],
        ),
    ]
}

/// A role for people. `into`: the roles of Kubernetes that this one is a part of, if the text is `true`.
pub(crate) fn user_role(install: &Install, name: &str, into: &[(&str, &str)], rules: &[Value]) -> Value {
    let mut metadata = install.cluster(name);
    for (role, whether) in into {
        metadata["labels"][format!("{RBAC}/aggregate-to-{role}")] = json!(whether);
    }
    json!({"apiVersion": RBAC_VERSION, "kind": "ClusterRole", "metadata": metadata, "rules": rules})
}

#[cfg(test)]
#[path = "component_tests.rs"]
mod tests;
