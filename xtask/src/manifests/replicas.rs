//! Replicas of a program, of which one leads, with what watches over them and finds them: the same for each such program.

use serde_json::{Value, json};

use super::Install;
use super::pod::{allocator, container_security, field, pod_security};

/// The replicas of a component.
pub(crate) struct Replicas<'a> {
    pub(crate) install: &'a Install,
    /// The name of the Deployment, and of what belongs to it.
    pub(crate) name: &'static str,
    /// The service account of its pods.
    pub(crate) account: &'static str,
    /// Its label `component`, and the name of its container.
    pub(crate) component: &'static str,
}

impl Replicas<'_> {
    fn selector(&self) -> Value {
        json!({"app.kubernetes.io/name": "coppice", "app.kubernetes.io/component": self.component})
    }

    pub(crate) fn service(&self) -> Value {
        json!({
            "#": "For metrics: headless, so that each replica is found.",
            "apiVersion": "v1", "kind": "Service", "metadata": self.install.local(self.name),
            "spec": {
                "clusterIP": "None",
                "selector": self.selector(),
                "ports": [{"name": "metrics", "port": 8080, "protocol": "TCP", "targetPort": "metrics"}]
            }
        })
    }

    /// `going_out`: a sentence about connections to others.
    pub(crate) fn network_policy(&self, going_out: &str) -> Value {
        json!({
            "#": format!("What comes in. Probes come from the node's address, which a NetworkPolicy cannot name: their port is open.\n{going_out}"),
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": self.install.local(self.name),
            "spec": {
                "podSelector": {"matchLabels": self.selector()},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"ports": [{"port": "metrics", "protocol": "TCP"}]},
                    {"ports": [{"port": "probes", "protocol": "TCP"}]}
                ]
            }
        })
    }

    /// The same; from where something may come in is what the values of a chart say.
    pub(crate) fn network_policy_by_values(&self, going_out: &str) -> Value {
        let mut network = self.network_policy(going_out);
        for (number, values) in
            ["networkPolicy.metricsFrom", "networkPolicy.probesFrom"].into_iter().enumerate()
        {
            network["spec"]["ingress"][number]["from"] = self.install.value(values, json!([]));
        }
        network
    }

    pub(crate) fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.install.local(self.name),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": self.selector()}}
        })
    }

    /// With what the values of a chart choose for the operator's pods.
    pub(crate) fn deployment_by_values(&self, mut container: Value) -> Value {
        let value = |values: &str, otherwise: Value| self.install.value(values, otherwise);
        for (field, values) in [("imagePullPolicy", "image.pullPolicy"), ("resources", "resources")] {
            container[field] = value(values, container[field].clone());
        }
        let mut pod = self.pod(&container);
        pod["imagePullSecrets"] = value("imagePullSecrets", json!([]));
        pod["nodeSelector"] = value("nodeSelector", json!({}));
        pod["priorityClassName"] = value("priorityClassName", json!(""));
        pod["tolerations"] = value("tolerations", json!([]));
        let mut deployment = self.deployment(&pod);
        deployment["spec"]["replicas"] = value("replicas", deployment["spec"]["replicas"].clone());
        deployment
    }

    pub(crate) fn deployment(&self, pod: &Value) -> Value {
        let mut labels = self.selector();
        labels["app.kubernetes.io/part-of"] = json!("coppice");
        labels["app.kubernetes.io/version"] = json!(self.install.version);
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.install.local(self.name),
            "spec": {
                "#": "One replica leads; the other has everything in memory and takes over within seconds.",
                "replicas": 2,
                "selector": {"matchLabels": self.selector()},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {
                        "annotations": {"kubectl.kubernetes.io/default-container": self.component},
                        "labels": labels
                    },
                    "spec": pod
                }
            }
        })
    }

    pub(crate) fn pod(&self, container: &Value) -> Value {
        json!({
            "serviceAccountName": self.account,
            "automountServiceAccountToken": true,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 30,
            "securityContext": pod_security(),
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": self.selector()}
                }
            }]}},
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": self.selector()}
            }],
            "containers": [container]
        })
    }

    /// `env`: variables of the program, besides those that say which of them it is.
    pub(crate) fn container(&self, image: &str, env: impl IntoIterator<Item = Value>) -> Value {
        let probe = |path: &str, period: u32, failures: u32| {
            json!({
                "httpGet": {"path": path, "port": "probes"},
                "periodSeconds": period, "timeoutSeconds": 3, "failureThreshold": failures
            })
        };
        let mut startup = probe("/livez", 2, 60);
        startup["#"] = json!("Two minutes for a slow node; after that, liveness has the word.");
        let mut all = vec![
            field("COPPICE_NAMESPACE", "metadata.namespace"),
            field("POD_NAME", "metadata.name"),
            json!({"name": "COPPICE_LISTEN", "value": "0.0.0.0:8080"}),
            json!({"name": "COPPICE_LISTEN_PROBES", "value": "0.0.0.0:8081"}),
        ];
        all.extend(env);
        all.extend(allocator());
        json!({
            "name": self.component,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "env": all,
            "ports": [
                {"name": "metrics", "containerPort": 8080, "protocol": "TCP"},
                {"name": "probes", "containerPort": 8081, "protocol": "TCP"}
            ],
            "startupProbe": startup,
            "livenessProbe": probe("/livez", 10, 3),
            "readinessProbe": probe("/readyz", 5, 2),
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": container_security()
        })
    }
}
