//! Requests as an attacker would send them: by a token, without kubectl in between.

use anyhow::Context as _;
use coppice_plane::{ADMIN, OPERATOR};
use coppice_tests::TestCluster;
use serde_json::{Value, json};

/// The kinds of bodies.
pub(crate) const PLAIN: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A `CronJob` that is never due.
pub(crate) fn cron_job(namespace: &str, name: &str, suspend: bool) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]});
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "a"}},
        "spec": {"schedule": "0 0 1 1 *", "suspend": suspend, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    })
}

/// A Deployment of that size.
pub(crate) fn deployment(namespace: &str, name: &str, replicas: u32) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
        }
    })
}

/// An Event about a `ConfigMap`, in the name of this reporter.
pub(crate) fn event(namespace: &str, name: &str, reporter: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": reporter, "reportingInstance": "i",
        "action": "a", "reason": "R", "type": "Normal", "regarding": {"kind": "ConfigMap", "namespace": namespace, "name": "x"}
    })
}

/// The holder of a token.
pub(crate) struct Wire {
    client: reqwest::Client,
    url: String,
    token: String,
    /// Whom the holder of the token impersonates, with which groups: user and groups, by header.
    impersonated: Vec<(&'static str, String)>,
}

/// What the API server answers.
#[derive(Debug)]
pub(crate) struct WireResponse {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl WireResponse {
    pub(crate) fn refused(&self, sentence: &str) -> bool {
        self.code >= 400 && self.text.contains(sentence)
    }

    pub(crate) fn accepted(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl Wire {
    pub(crate) fn new(test_cluster: &TestCluster, user: &str) -> anyhow::Result<Self> {
        let authority = reqwest::Certificate::from_pem(test_cluster.plane.ca_pem().as_bytes())?;
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build()?;
        Ok(Self {
            client,
            url: test_cluster.plane.url().to_owned(),
            token: test_cluster.plane.token(user)?.to_owned(),
            impersonated: Vec::new(),
        })
    }

    /// In the name of any user, with these groups besides those that the API server adds.
    pub(crate) fn impersonating(
        test_cluster: &TestCluster,
        user: &str,
        groups: &[&str],
    ) -> anyhow::Result<Self> {
        let mut impersonated = vec![("impersonate-user", user.to_owned())];
        impersonated.extend(groups.iter().map(|&group| ("impersonate-group", group.to_owned())));
        Ok(Self { impersonated, ..Self::new(test_cluster, ADMIN)? })
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        let headers = self.impersonated.iter();
        headers.fold(request, |request, (header, value)| request.header(*header, value))
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Value,
    ) -> anyhow::Result<WireResponse> {
        let request = self.request(method.parse()?, path).header("content-type", media);
        let answer = request.body(body.to_string()).send().await?;
        Ok(WireResponse { code: answer.status().as_u16(), text: answer.text().await? })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.request(reqwest::Method::GET, path).send().await?;
        let text = answer.text().await?;
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }

    /// Replaces an object by itself with a change; again if its controller was faster.
    async fn put(&self, path: &str, change: &Value) -> anyhow::Result<WireResponse> {
        loop {
            let mut object = self.get(path).await?;
            // Kinds of CRDs cannot be replaced unconditionally, others can: their controllers write status all the time.
            let ours = object["apiVersion"] == "coppice.dev/v1alpha1";
            if let Some(metadata) = object["metadata"].as_object_mut().filter(|_| !ours) {
                metadata.remove("resourceVersion");
            }
            merge(&mut object, change);
            let answer = self.send("PUT", path, PLAIN, object).await?;
            if answer.code != 409 {
                return Ok(answer);
            }
        }
    }

    /// The same change by a merge patch, a JSON patch, server-side apply and PUT.
    pub(crate) async fn every_write(&self, path: &str, change: &Value) -> anyhow::Result<Vec<WireResponse>> {
        let mut answers = vec![self.send("PATCH", path, MERGE, change.clone()).await?];
        let mut steps = Vec::new();
        for part in ["metadata", "spec"] {
            for (field, value) in change[part].as_object().into_iter().flatten() {
                steps.push(json!({"op": "add", "path": format!("/{part}/{field}"), "value": value}));
            }
        }
        // A JSON patch replaces a template as a whole, which would not be valid: its parts are changed by the others.
        if change["spec"]["jobTemplate"].is_null() {
            answers.push(self.send("PATCH", path, JSON, json!(steps)).await?);
        }
        let found = self.get(path).await?;
        let name = found["metadata"]["name"].clone();
        let mut apply =
            json!({"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": {"name": name}});
        merge(&mut apply, change);
        answers
            .push(self.send("PATCH", &format!("{path}?fieldManager=thief&force=true"), APPLY, apply).await?);
        answers.push(self.put(path, change).await?);
        Ok(answers)
    }
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

/// Grants the operator's account everything, so that what is refused is refused by policy; waits until that is in force.
pub(crate) async fn grant_everything(test_cluster: &TestCluster) -> anyhow::Result<Wire> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "stolen"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "coppice", "namespace": "coppice-system"}]
    });
    // Server-side, because two tests may do so at once.
    test_cluster.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &binding.to_string()).await?;
    let wire = Wire::new(test_cluster, OPERATOR)?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "probe"}});
    let probes = [
        ("/api/v1/namespaces/default/secrets?dryRun=All", secret),
        ("/apis/batch/v1/namespaces/default/cronjobs?dryRun=All", cron_job("default", "probe", true)),
    ];
    for (path, body) in probes {
        test_cluster
            .until("the grant and the policy are in force", async || {
                let answer = wire.send("POST", path, PLAIN, body.clone()).await.ok()?;
                answer.refused("ValidatingAdmissionPolicy").then_some(())
            })
            .await?;
    }
    Ok(wire)
}
