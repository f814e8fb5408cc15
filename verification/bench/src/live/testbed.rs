//! A control plane with nothing but etcd and the API server running, and objects seeded into it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use coppice_plane::{ADMIN, AuditEvent, Options};
use coppice_tests::TestCluster;
use coppice_tests::scale::objects::{EtcdEntry, Objects, namespace_name};
use coppice_tests::scale::process::end_controllers;
use coppice_tests::scale::seed::seed;
use coppice_tests::test_cluster::repository;
use serde_json::{Value, json};

use super::audit::Tail;

/// Generous: a busy machine is not a broken operator. The limit of a group ends what never comes.
const TIMEOUT: Duration = Duration::from_mins(10);
/// How often the audit log is looked at. It tells instants itself, so that this is no part of any figure.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a seeded pod is as JSON.
const POD_BYTES: usize = 4_000;

/// A plane that is measured on.
pub struct Testbed {
    pub(super) test_cluster: TestCluster,
    pub(super) objects: Objects,
    http: reqwest::Client,
    tail: Mutex<Tail>,
}

impl Testbed {
    /// Starts a plane, installs the product and what the peer needs beside it, and ends the cluster's own controllers.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let options = Options {
            // Otherwise writes are faster than on any real cluster.
            fsync: true,
            // As JSON objects can be seeded into etcd.
            apiserver_args: vec!["--storage-media-type=application/json".to_owned()],
            ..Options::default()
        };
        let test_cluster = TestCluster::bare(options).await?;
        test_cluster.install().await?;
        let rights = repository().join("verification/bench/peer-go/rbac.yaml");
        let rights = std::fs::read_to_string(&rights).with_context(|| rights.display().to_string())?;
        test_cluster.apply(&rights).await?;
        // The budget would end a benchmark of deletions; some of it is still reserved for each.
        let config = r"{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {name: coppice},
            spec: {governor: {perMinute: 100000, perHour: 100000, maxShare: 100%, atLeast: 100000}}}";
        test_cluster.apply(config).await?;
        end_controllers(&test_cluster).await?;
        let default = test_cluster.get("namespace", "", "default").await?.context("no namespace default")?;
        let created = default["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        let ca = reqwest::Certificate::from_pem(test_cluster.plane.ca_pem().as_bytes())?;
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build()?;
        let tail = Mutex::new(Tail::new(test_cluster.plane.dir().join("audit.log")));
        Ok(Self { objects: Objects::new(created, POD_BYTES), test_cluster, http, tail })
    }

    /// Writes objects into etcd, in the place of what is there under their names.
    pub(super) async fn seed(&self, entries: impl Iterator<Item = EtcdEntry>) -> anyhow::Result<()> {
        seed(self.test_cluster.plane.etcd_url(), entries).await.map(drop)
    }

    /// The n-th namespace's manager with this spec, never looked at by anybody.
    pub(super) fn manager(&self, n: usize, spec: Value) -> EtcdEntry {
        let (key, mut object) = self.objects.manager(n);
        object["spec"] = spec;
        (key, object)
    }

    /// A pod of the n-th namespace in this phase.
    pub(super) fn pod(&self, n: usize, which: usize, phase: &str) -> EtcdEntry {
        let (key, mut object) = self.objects.pod(n, which, 0);
        object["status"]["phase"] = json!(phase);
        (key, object)
    }

    /// Lets a pod succeed, as its kubelet would report it.
    pub(super) async fn succeed(&self, n: usize, which: usize) -> anyhow::Result<()> {
        self.report_phase(n, which, "Succeeded").await
    }

    /// Sends a request as the administrator, and returns the answer.
    pub(super) async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.test_cluster.plane.url());
        let request =
            self.http.request(method.parse()?, url).bearer_auth(self.test_cluster.plane.token(ADMIN)?);
        let request = request.header("content-type", "application/json");
        let request = match body {
            Some(body) => request.body(body.to_string()),
            None => request,
        };
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Gives a pod this phase, as its kubelet would report it.
    pub(super) async fn report_phase(&self, n: usize, which: usize, phase: &str) -> anyhow::Result<()> {
        let (key, _) = self.objects.pod(n, which, 0);
        let name = key.rsplit('/').next().unwrap_or_default();
        let url = format!(
            "{}/api/v1/namespaces/{}/pods/{name}/status",
            self.test_cluster.plane.url(),
            namespace_name(n)
        );
        let request = self.http.patch(url).bearer_auth(self.test_cluster.plane.token(ADMIN)?);
        let request = request.header("content-type", "application/merge-patch+json");
        let body = json!({"status": {"phase": phase}}).to_string();
        let answer = request.body(body).send().await?;
        let status = answer.status();
        ensure!(status.is_success(), "a pod could not be {phase}: {status} {}", answer.text().await?);
        Ok(())
    }

    /// Asks the audit log, of which everything before the last [`Testbed::skip_existing`] is left out.
    pub(super) fn audit<T>(&self, ask: impl FnOnce(&[AuditEvent]) -> T) -> anyhow::Result<T> {
        // A panic while the lock is held would leave a reader that reads on.
        Ok(ask(self.tail.lock().unwrap_or_else(PoisonError::into_inner).events()?))
    }

    /// Leaves out of the audit log what is in it by now.
    pub(super) fn skip_existing(&self) -> anyhow::Result<()> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).skip_existing()
    }

    /// From now on keeps only these requests, where they are many.
    pub(super) fn keep(&self, keep: fn(&AuditEvent) -> bool) {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).keep(keep);
    }

    /// Waits until the audit log has something.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        found: impl FnMut(&[AuditEvent]) -> Option<T>,
    ) -> anyhow::Result<T> {
        self.until_every(POLL_INTERVAL, what, found).await
    }

    /// The same, with rarer looks: reading a log that grows fast takes processor time from what is measured.
    pub(super) async fn until_every<T>(
        &self,
        look: Duration,
        what: &str,
        mut found: impl FnMut(&[AuditEvent]) -> Option<T>,
    ) -> anyhow::Result<T> {
        let since = Instant::now();
        while since.elapsed() < TIMEOUT {
            if let Some(found) = self.audit(&mut found)? {
                return Ok(found);
            }
            pause(look).await;
        }
        bail!("waited {} s in vain: {what}", TIMEOUT.as_secs())
    }
}

/// Between two looks at something.
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
