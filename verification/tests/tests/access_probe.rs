//! `coppice probe` with real clusters, as `examples/access/probe.yaml` has it run; and `coppice audit` on the log of an API server with its
//! own policy. Both are beside a test of `access_target.rs`, which has the planes for it and edits much.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_plane::{ADMIN, ALICE};
use coppice_tests::requests;
use coppice_tests::test_cluster::{binary, repository};
use serde_json::{Value, json};

use super::access::Clusters;
use super::cli::coppice;

type Test = anyhow::Result<()>;

/// The account that probes.
const PROBE: &str = "system:serviceaccount:coppice-probe:coppice-probe";

/// The policy, as users get it.
pub(crate) async fn audit_policy() -> anyhow::Result<String> {
    let output = tokio::process::Command::new(binary("coppice")?).args(["audit", "policy"]).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn example() -> anyhow::Result<String> {
    Ok(std::fs::read_to_string(repository().join("examples/access/probe.yaml"))?)
}

/// Applies the example, with the kubeconfig that it needs, and something that a probe left which was killed; the kubeconfig of the account
/// that probes.
pub(crate) async fn prepare(clusters: &Clusters) -> anyhow::Result<PathBuf> {
    let here = &clusters.here;
    let admin = here.admin().await?;
    here.until("the kind is served", async || admin.list("clprov", "").await.ok()).await?;
    let there = std::fs::read_to_string(clusters.there.plane.admin_kubeconfig())?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop", "namespace": "coppice-access-system"},
        "data": {"kubeconfig": BASE64_STANDARD.encode(there)}});
    admin.create(&secret).await?;
    here.kubectl_stdin(ADMIN, &["apply", "--server-side", "-f", "-"], &example()?).await?;
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["coppice-probe"], "verbs": ["get"]});
    let left = json!({"apiVersion": "coppice.dev/v1alpha1", "kind": "ClusterAccess",
        "metadata": {"name": "coppice-probe", "namespace": "coppice-probe", "labels": {"coppice.dev/probe": "true"},
            "annotations": {"coppice.dev/probe-until": "2026-01-01T00:00:00Z"}},
        "spec": {"cluster": {"provider": {"name": "shop-probe"}}, "ttl": "10m", "output": {"secret": "coppice-probe"},
            "rights": {"role": {"namespace": "default", "rules": [rule]}}}});
    admin.create(&left).await?;
    here.service_account("coppice-probe", "coppice-probe").await
}

/// Runs a probe with the arguments and the rights of the example.
pub(crate) async fn succeeds(clusters: &Clusters, account: &Path) -> Test {
    let objects = requests::documents(&example()?)?;
    let job = objects.iter().find(|object| object["kind"] == "CronJob").context("no CronJob")?;
    let container = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let mut args: Vec<&str> =
        container["args"].as_array().context("no args")?.iter().filter_map(Value::as_str).collect();
    args.extend(["--output=json", "--kubeconfig", account.to_str().context("the path is no text")?]);
    let (code, out, err) = coppice(&clusters.here, ADMIN, &args).await?;
    ensure!(code == 0, "{code}: {out}{err}");
    let report: Value = serde_json::from_str(&out)?;
    let steps = report["steps"].as_array().context("no steps")?;
    let names: Vec<&str> = steps.iter().filter_map(|one| one["step"].as_str()).collect();
    ensure!(
        names == ["sweep", "create", "issue", "use", "rotate", "replaced", "delete", "revoked"],
        "{report:#}"
    );
    ensure!(steps[0]["message"] == "deleted coppice-probe", "{report:#}");
    for kind in ["clacc", "secret"] {
        let left = clusters.here.get(kind, "coppice-probe", "coppice-probe").await?;
        ensure!(left.is_none(), "{left:#?}");
    }
    Ok(())
}

/// The log has who edited objects of Coppice, who edited and who read credentials, and who was refused, and of nobody else a request.
pub(crate) async fn is_audited(clusters: &Clusters) -> Test {
    let alice = clusters.here.requests(ALICE).await?;
    ensure!(alice.get("secret", "team", "target").await.is_err());
    let log = clusters.here.plane.dir().join("audit.log");
    let log = log.to_str().context("the path is no text")?;
    let (code, out, err) = coppice(&clusters.here, ADMIN, &["audit", "check", log, "-o", "json"]).await?;
    ensure!(code == 3, "{code}: {out}{err}");
    let found: Value = serde_json::from_str(&out)?;
    let findings = found["findings"].as_array().context("no findings")?;
    for (who, type_, resource, namespace, name) in [
        (ADMIN, "Edited", "clusteraccesses", "team", "ci"),
        (ADMIN, "Edited", "clusterproviders", "", "shop-probe"),
        (ADMIN, "CredentialEdited", "secrets", "team", "ci-kubeconfig"),
        (ADMIN, "CredentialEdited", "secrets", "coppice-access-system", "shop"),
        (ADMIN, "CredentialRead", "secrets", "team", "ci-kubeconfig"),
        (ADMIN, "TokenIssued", "serviceaccounts", "coppice-access-system", "coppice-access"),
        // Its ClusterAccess is gone: the log itself says that the Secret had a credential.
        (PROBE, "CredentialRead", "secrets", "coppice-probe", "coppice-probe"),
        (PROBE, "Edited", "clusteraccesses", "coppice-probe", "coppice-probe"),
        (ALICE, "Refused", "secrets", "team", "target"),
    ] {
        let is_it = |one: &Value| {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            one["who"] == who
                && one["type"] == type_
                && (text("resource"), text("namespace"), text("name")) == (resource, namespace, name)
        };
        ensure!(findings.iter().any(is_it), "{who} {type_} {resource} {namespace}/{name}: {out}");
    }
    let others = findings.iter().find(|one| [ADMIN, ALICE, PROBE].iter().all(|who| one["who"] != *who));
    ensure!(others.is_none(), "{others:#?}");
    ensure!(found["counts"]["byCoppice"].as_u64() > Some(0), "{found:#}");
    ensure!(!std::fs::read_to_string(log)?.contains("requestObject"), "a body is in the log");
    Ok(())
}
