//! `examples/ci` on a real API server: what the platform applies is taken, and CI's account may do what a pipeline does, and no more.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::on_shared_plane;
use coppice_tests::test_cluster::repository;
use serde_json::Value;

use super::cluster_managers::record;

type Test = anyhow::Result<()>;

const CI: &str = "system:serviceaccount:gitlab-runner:deployer";
const NAMESPACE: &str = "ci-shop-1234-5678";

/// The path of one of the files.
fn file(name: &str) -> anyhow::Result<String> {
    let path = repository().join("examples/ci").join(name);
    Ok(path.to_str().context("the path of the sources is no text")?.to_owned())
}

#[test]
fn ci_creates_what_its_example_says_and_changes_and_deletes_no_namespace() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let admin = async |args: &[&str]| test_cluster.kubectl(ADMIN, args).await;
        admin(&["create", "namespace", "gitlab-runner"]).await?;
        admin(&["create", "serviceaccount", "deployer", "-n", "gitlab-runner"]).await?;
        // These are about every namespace of the plane, which is that of other tests, too: they are taken, and not kept.
        for name in ["01-settings.yaml", "04-everything-else.yaml"] {
            let path = file(name)?;
            let apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", &path];
            let said = admin(&apply).await?;
            ensure!(said.contains("serverside-applied (server dry run)"), "{said}");
        }
        for name in ["02-merge-requests.yaml", "03-branches.yaml", "05-access.yaml"] {
            admin(&["apply", "--server-side", "-f", &file(name)?]).await?;
        }
        let kubeconfig = test_cluster.service_account("gitlab-runner", "deployer").await?;
        let kubeconfig = kubeconfig.to_str().context("the path of the plane is no text")?;
        // The administrator's kubectl with the kubeconfig of CI.
        let ci = async |args: &[&str]| admin(&[&["--kubeconfig", kubeconfig][..], args].concat()).await;
        let may = ["auth", "can-i", "patch", "managednamespaces.coppice.dev", "-n", NAMESPACE];
        test_cluster.until("CI has its rights", async || ci(&may).await.ok()).await?;

        ci(&["create", "-f", &file("06-namespace.yaml")?]).await?;
        ci(&["apply", "--server-side", "-f", &file("07-record.yaml")?]).await?;
        let governed = |status: &Value| status["manager"]["name"] == "merge-requests";
        let record = record(test_cluster, NAMESPACE, "that merge-requests governs it", governed).await?;
        ensure!(
            record["spec"]["hold"]["by"] == CI && record["spec"]["extendUntil"]["by"] == CI,
            "{record:#}"
        );

        let forbidden: [(&[&str], &str); 4] = [
            (&["label", "namespace", NAMESPACE, "ci.example.org/kind=branch", "--overwrite"], "cannot patch"),
            (&["delete", "namespace", NAMESPACE, "--wait=false"], "cannot delete"),
            (&["delete", "mns", "coppice", "-n", NAMESPACE], "cannot delete"),
            (
                &["patch", "cnsman", "merge-requests", "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#],
                "cannot",
            ),
        ];
        for (args, sentence) in forbidden {
            let error = ci(args).await.err().with_context(|| format!("CI may {args:?}"))?.to_string();
            ensure!(error.contains(&format!("User \"{CI}\" {sentence}")), "{error}");
        }
        // Nor in the name of anybody else.
        let other = r#"{"spec":{"hold":{"until":"2099-01-01T00:00:00Z","by":"alice"}}}"#;
        let patch = ["patch", "mns", "coppice", "-n", NAMESPACE, "--type=merge", "-p", other];
        let error = ci(&patch).await.err().context("it writes the name of alice")?.to_string();
        let own = format!("set spec.hold.by to \"{CI}\"");
        ensure!(error.contains(&own), "{error}");
        let record = test_cluster.get("mns", NAMESPACE, "coppice").await?.context("it has no record")?;
        ensure!(record["spec"]["hold"]["by"] == CI, "{record:#}");
        let namespace = test_cluster.get("namespace", "", NAMESPACE).await?.context("it is gone")?;
        ensure!(
            namespace["metadata"]["labels"]["ci.example.org/kind"] == "merge-request"
                && namespace["metadata"]["deletionTimestamp"].is_null(),
            "{namespace:#}"
        );
        Ok(())
    })
}
