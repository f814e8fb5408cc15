//! What quotas admit and refuse: pods, claims, services and objects that are counted, within a limit and beyond it.

use serde_json::{Value, json};

use super::super::step::{Call, RequestSpec, State};
use super::SequenceGenerator;

const QUOTAS: &str = "/api/v1/namespaces/${ns}/resourcequotas";
const PODS: &str = "/api/v1/namespaces/${ns}/pods";
const CLAIMS: &str = "/api/v1/namespaces/${ns}/persistentvolumeclaims";
const SERVICES: &str = "/api/v1/namespaces/${ns}/services";

impl SequenceGenerator {
    /// Nothing is deleted before the end: what a quota controller counts then may miss what was admitted just before.
    pub(super) fn quotas(&mut self) {
        self.pods_by_quota();
        self.claims_by_quota();
        self.services_by_quota();
        self.changed_quota();
        for name in ["pods", "storage", "services"] {
            self.ask("DELETE", format!("{QUOTAS}/{name}"), Value::Null);
        }
        // Nobody takes the finalizers of claims away.
        for uri in [CLAIMS, SERVICES].iter().flat_map(|path| ["a", "b"].map(|name| format!("{path}/{name}")))
        {
            self.push(Call::Clear { uri });
        }
    }

    /// A quota that is in force: what it is to refuse is refused.
    fn quota(&mut self, name: &str, hard: &Value, path: &str, refused: &Value) {
        self.ask("POST", QUOTAS, json!({"metadata": {"name": name}, "spec": {"hard": hard}}));
        self.until(format!("{QUOTAS}/{name}"), State::Counted);
        self.answered(path, refused, 403);
    }

    /// Waits until an object would be admitted or refused.
    fn answered(&mut self, path: &str, object: &Value, code: u16) {
        let ask = RequestSpec::new("POST", format!("{path}?dryRun=All"), object.clone());
        self.push(Call::Answered { ask, code });
    }

    fn pods_by_quota(&mut self) {
        let hard = json!({"pods": "3", "count/pods": "9", "requests.cpu": "1", "limits.memory": "1Gi"});
        let silent = json!({
            "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "two", "image": "busybox"}, {"name": "one", "image": "busybox"}]},
        });
        self.quota("pods", &hard, PODS, &silent);
        let cpu = self.choices.of(&["600m", "700m"]);
        let mut with_init = pod("b", "100m", "64Mi");
        with_init["spec"]["initContainers"] = json!([container("init", "500m", "64Mi")]);
        let mut with_sidecar = pod("b", "100m", "64Mi");
        with_sidecar["spec"]["initContainers"] = json!([container("sidecar", "200m", "64Mi")]);
        with_sidecar["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        for object in [
            pod("a", cpu, "256Mi"),
            pod("b", "500m", "256Mi"),
            with_init,
            with_sidecar,
            pod("c", "0", "2Gi"),
            pod("c", "2", "2Gi"),
        ] {
            self.ask("POST", PODS, object);
        }
        self.ask("GET", format!("{QUOTAS}/pods"), Value::Null);
    }

    fn claims_by_quota(&mut self) {
        let hard = json!({
            "persistentvolumeclaims": "2", "requests.storage": "10Gi",
            "gold.storageclass.storage.k8s.io/requests.storage": "5Gi",
        });
        self.quota("storage", &hard, CLAIMS, &claim("a", "silver", "20Gi"));
        let size = self.choices.of(&["4Gi", "5Gi"]);
        for object in [
            claim("a", "gold", size),
            claim("b", "gold", "2Gi"),
            claim("b", "silver", "5Gi"),
            claim("c", "silver", "6Gi"),
        ] {
            self.ask("POST", CLAIMS, object);
        }
        self.ask("GET", format!("{QUOTAS}/storage"), Value::Null);
    }

    fn services_by_quota(&mut self) {
        let hard = json!({"services": "2", "services.loadbalancers": "0", "services.nodeports": "1"});
        let balanced = service("a", "LoadBalancer", &[80]);
        self.quota("services", &hard, SERVICES, &balanced);
        for object in [balanced, service("a", "NodePort", &[80, 81]), service("a", "NodePort", &[80])] {
            self.ask("POST", SERVICES, object);
        }
        self.ask("PATCH merge", format!("{SERVICES}/a"), json!({"spec": {"type": "LoadBalancer"}}));
        for name in ["b", "c"] {
            self.ask("POST", SERVICES, service(name, "ClusterIP", &[80]));
        }
        self.ask("GET", format!("{QUOTAS}/services"), Value::Null);
    }

    /// Less than is used, which stays, and more again.
    fn changed_quota(&mut self) {
        let one = format!("{QUOTAS}/pods");
        let maps = "/api/v1/namespaces/${ns}/configmaps";
        for (pods, code) in [("1", 403), ("3", 201)] {
            let hard = json!({"pods": pods, "count/configmaps": "2"});
            self.ask("PATCH merge", one.clone(), json!({"spec": {"hard": hard}}));
            self.until(one.clone(), State::Counted);
            self.answered(PODS, &pod("c", "0", "0"), code);
        }
        for name in ["counted", "beyond"] {
            self.ask("POST", maps, json!({"metadata": {"name": name}}));
        }
        self.ask("GET", one, Value::Null);
    }
}

fn container(name: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "name": name, "image": "busybox",
        "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}},
    })
}

/// A pod that no scheduler cares for.
fn pod(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "schedulerName": "nobody", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [container("main", cpu, memory)],
    }})
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }})
}

fn service(name: &str, kind: &str, ports: &[u16]) -> Value {
    let ports: Vec<Value> =
        ports.iter().map(|port| json!({"name": format!("port-{port}"), "port": port})).collect();
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
}
