//! Jobs that are run before a program is uninstalled, as its own account: by hand, or by the chart.

use serde_json::{Value, json};

use super::Install;
use super::pod::{allocator, container_security, field, pod_security};

/// Such a Job.
pub(crate) struct Job<'a> {
    pub(crate) install: &'a Install,
    /// Its name.
    pub(crate) name: &'static str,
    /// The label `component` of its pod, and the name of the container.
    pub(crate) component: &'static str,
    /// The service account of the program.
    pub(crate) account: &'static str,
    /// The image of the program.
    pub(crate) image: String,
    /// What the program is started with.
    pub(crate) args: Value,
    /// How long it may exist without an end, in seconds.
    pub(crate) deadline: u32,
}

impl Job<'_> {
    /// The whole object.
    pub(crate) fn object(&self) -> Value {
        let mut env = vec![
            field("COPPICE_NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
            json!({"name": "COPPICE_LOG_FORMAT", "value": "json"}),
        ];
        env.extend(allocator());
        let container = json!({
            "name": self.component,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": self.args,
            "env": env,
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": container_security()
        });
        json!({
            "#": "Apply it and wait for it before Coppice is uninstalled: see docs/operations.md.",
            "apiVersion": "batch/v1", "kind": "Job", "metadata": self.install.local(self.name),
            "spec": {
                "backoffLimit": 0,
                "activeDeadlineSeconds": self.deadline,
                "template": {
                    "metadata": {"labels": {
                        "app.kubernetes.io/name": "coppice", "app.kubernetes.io/component": self.component,
                        "app.kubernetes.io/part-of": "coppice", "app.kubernetes.io/version": self.install.version
                    }},
                    "spec": {
                        "restartPolicy": "Never",
                        "serviceAccountName": self.account,
                        "automountServiceAccountToken": true,
                        "enableServiceLinks": false,
                        "securityContext": pod_security(),
                        "containers": [container]
                    }
                }
            }
        })
    }
}
