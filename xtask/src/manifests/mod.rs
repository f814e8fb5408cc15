//! Everything that an installation consists of, as the one source of `deploy/` and of the chart.
//!
//! Objects are JSON with comments (see [`crate::yaml`]); the API server checks their fields strictly when they are
//! applied, which the tests on a real control plane do.

pub(crate) mod crds;
pub(crate) mod operator;
pub(crate) mod policies;
pub(crate) mod rbac;

use coppice_api::names;
use serde_json::{Value, json};

/// What differs between one installation and another.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    /// The namespace that the operator lives in.
    pub(crate) namespace: String,
    /// The version of the operator.
    pub(crate) version: String,
    /// The tool that installs.
    pub(crate) managed_by: String,
    /// `true` if who may edit a namespace may write managers there.
    pub(crate) aggregate_to_edit: String,
}

impl Install {
    /// By `kubectl apply`.
    pub(crate) fn kubectl() -> Self {
        Self {
            namespace: names::SYSTEM_NAMESPACE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            managed_by: "kubectl".to_owned(),
            aggregate_to_edit: "false".to_owned(),
        }
    }

    /// By Helm: what differs is left to the template.
    pub(crate) fn helm() -> Self {
        Self {
            namespace: "{{ .Release.Namespace }}".to_owned(),
            version: "{{ .Chart.AppVersion }}".to_owned(),
            managed_by: "{{ .Release.Service }}".to_owned(),
            aggregate_to_edit: "{{ .Values.rbac.aggregateToEdit }}".to_owned(),
        }
    }

    /// The name by which the API server knows the operator.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, names::SERVICE_ACCOUNT)
    }

    /// Metadata of a cluster-scoped object.
    pub(crate) fn cluster(&self, name: &str) -> Value {
        json!({"name": name, "labels": self.labels()})
    }

    /// Metadata of an object in the operator's namespace.
    pub(crate) fn local(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": self.labels()})
    }

    fn labels(&self) -> Value {
        json!({
            "app.kubernetes.io/name": "coppice",
            "app.kubernetes.io/part-of": "coppice",
            "app.kubernetes.io/version": self.version,
            "app.kubernetes.io/managed-by": self.managed_by,
        })
    }
}

/// What `deploy/install.yaml` installs, in the order in which it can be applied.
pub(crate) fn all(install: &Install) -> anyhow::Result<Vec<Value>> {
    let mut objects = crds::objects(install)?;
    objects.push(operator::namespace(install));
    objects.push(operator::service_account(install));
    objects.extend(rbac::objects(install));
    objects.extend(policies::objects(install));
    objects.extend(operator::workload(install));
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_object_is_named_once_and_labelled() {
        let mut seen = BTreeSet::new();
        for object in all(&Install::kubectl()).unwrap() {
            let of = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let labels = object.pointer("/metadata/labels").unwrap();
            for label in ["name", "part-of", "version", "managed-by"] {
                assert!(labels.get(format!("app.kubernetes.io/{label}")).is_some(), "{label} of {object}");
            }
            assert!(seen.insert((of("/kind"), of("/metadata/namespace"), of("/metadata/name"))), "{object}");
        }
    }

    #[test]
    fn what_is_needed_first_comes_first() {
        let kinds: Vec<String> = all(&Install::kubectl())
            .unwrap()
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect();
        let first = |kind: &str| kinds.iter().position(|k| k == kind).unwrap();
        assert_eq!(first("CustomResourceDefinition"), 0);
        assert!(first("Namespace") < first("ServiceAccount"));
        assert!(first("ClusterRole") < first("ValidatingAdmissionPolicy"));
        assert_eq!(first("Deployment"), kinds.len() - 1);
    }
}
