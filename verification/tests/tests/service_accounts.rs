//! A program can run as any service account: it may do what that account may, and ends with its test.

use anyhow::ensure;
use coppice_plane::ADMIN;
use coppice_tests::on_shared_plane;
use coppice_tests::program::Program;
use coppice_tests::test_cluster::until;

type Test = anyhow::Result<()>;

#[test]
fn a_program_has_the_rights_of_the_service_account_that_it_runs_as() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.namespace("accounts").await?;
        let kubectl =
            async |args: &[&str]| test_cluster.kubectl(ADMIN, &[args, &["-n", "accounts"]].concat()).await;
        kubectl(&["create", "serviceaccount", "reader"]).await?;
        kubectl(&["create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps"]).await?;
        kubectl(&["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=accounts:reader"])
            .await?;
        let kubeconfig = test_cluster.service_account("accounts", "reader").await?;
        let dir = test_cluster.plane.dir();
        let start = async |log: &str, args: &[&str]| {
            Program::start(test_cluster.plane.kubectl(), &kubeconfig, dir.join("log").join(log), |command| {
                command.env("KUBECACHEDIR", dir.join("kubectl-cache")).args(args).args(["-n", "accounts"]);
            })
            .await
        };
        let mut refused = start("secrets.log", &["get", "secrets"]).await?;
        ensure!(!refused.ended().await?.success(), "{}", refused.last_lines());
        let user = "system:serviceaccount:accounts:reader";
        ensure!(
            refused.output().contains("Forbidden") && refused.output().contains(user),
            "{}",
            refused.last_lines()
        );
        let watching = start("watch.log", &["get", "configmaps", "--watch", "-o", "name"]).await?;
        kubectl(&["create", "configmap", "seen"]).await?;
        let seen = async || watching.output().contains("configmap/seen").then_some(());
        until("the program sees what its account may read", seen).await?;
        let process = format!("/proc/{}", watching.pid());
        ensure!(std::path::Path::new(&process).exists(), "it watches on");
        drop(watching);
        until("the program has ended", async || (!std::path::Path::new(&process).exists()).then_some(()))
            .await
    })
}
