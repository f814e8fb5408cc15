//! Who may read metrics: those whose token the API server knows, and who may get that path.

use anyhow::{Context as _, ensure};
use coppice_plane::{ADMIN, OPERATOR};
use coppice_tests::program::Program;
use coppice_tests::test_cluster::binary;
use coppice_tests::{TestCluster, on_own_plane};
use reqwest::StatusCode;

type Test = anyhow::Result<()>;

const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coppice-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
";

#[test]
fn metrics_are_for_those_who_may_read_them() -> Test {
    on_own_plane(async {
        let test_cluster = TestCluster::start_without_pods().await?;
        test_cluster.namespace("monitoring").await?;
        for account in ["prometheus", "somebody"] {
            test_cluster.kubectl(ADMIN, &["create", "serviceaccount", account, "-n", "monitoring"]).await?;
        }
        test_cluster.kubectl_stdin(ADMIN, &["apply", "-f", "-"], READER).await?;
        let token = async |account: &str| {
            let create = ["create", "token", account, "-n", "monitoring"];
            test_cluster.kubectl(ADMIN, &create).await.map(|token| token.trim().to_owned())
        };
        let (prometheus, somebody) = (token("prometheus").await?, token("somebody").await?);

        let log = test_cluster.plane.dir().join("log/metrics-access.log");
        let kubeconfig = test_cluster.plane.kubeconfig(OPERATOR)?;
        let operator = binary("coppice-operator")?;
        let program = Program::start(&operator, &kubeconfig, log, |command| {
            command.args([
                "--listen",
                "127.0.0.1:0",
                "--listen-probes",
                "127.0.0.1:0",
                "--log-format",
                "json",
            ]);
        });
        let program = program.await?;
        let address = async || {
            let output = program.output();
            let line = output.lines().find(|line| line.contains("serving /metrics"))?.to_owned();
            let line: serde_json::Value = serde_json::from_str(&line).ok()?;
            line["address"].as_str().map(str::to_owned)
        };
        let address = test_cluster.until("it serves metrics", address).await?;
        // As Prometheus does with insecureSkipVerify: the certificate is nobody's.
        let client = reqwest::Client::builder().no_proxy().danger_accept_invalid_certs(true).build()?;
        let get = async |path: &str, token: Option<&str>| {
            let mut request = client.get(format!("https://{address}{path}"));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let answer = request.send().await?;
            anyhow::Ok((answer.status(), answer.text().await?))
        };
        let scenario = async {
            let (status, text) = get("/metrics", None).await?;
            ensure!(
                status == StatusCode::UNAUTHORIZED && text.contains("Authorization: Bearer"),
                "{status}: {text}"
            );
            let (status, text) = get("/metrics", Some("nonsense")).await?;
            ensure!(
                status == StatusCode::UNAUTHORIZED && text.contains("does not know this token"),
                "{status}: {text}"
            );
            let (status, text) = get("/metrics", Some(&somebody)).await?;
            let who = "system:serviceaccount:monitoring:somebody may not get /metrics";
            let how = "coppice-metrics-reader";
            ensure!(
                status == StatusCode::FORBIDDEN && text.contains(who) && text.contains(how),
                "{status}: {text}"
            );
            let (status, text) = get("/metrics", Some(&prometheus)).await?;
            ensure!(status == StatusCode::OK && text.contains("coppice_build_info"), "{status}: {text}");
            let (status, text) = get("/", None).await?;
            ensure!(status == StatusCode::OK && text.contains("/metrics"), "{status}: {text}");
            let plain = client.get(format!("http://{address}/metrics")).send().await;
            ensure!(plain.is_err(), "it is served without TLS: {plain:?}");
            Ok(())
        };
        scenario.await.with_context(|| program.last_lines())
    })
}
