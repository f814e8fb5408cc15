//! The demo where there is no Go toolchain, as `make demo` runs it; and with a mail server, which needs one, the scene in which an owner
//! is notified. What it shows of another cluster is tested in `access.rs`.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::demo::screen::Screen;
use coppice_tests::demo::superseded::{self, StandIns};
use coppice_tests::on_shared_plane;
use coppice_tests::test_cluster::binary;

/// A folder with nothing but what the demo's shell needs.
fn without_go(folder: &Path) -> anyhow::Result<()> {
    let path = std::env::var_os("PATH").context("no PATH")?;
    for tool in ["cat", "kill"] {
        let found = std::env::split_paths(&path).map(|dir| dir.join(tool)).find(|file| file.is_file());
        symlink(found.with_context(|| format!("no {tool}"))?, folder.join(tool))?;
    }
    Ok(())
}

#[test]
fn without_go_the_demo_says_so_and_sees_every_outcome_in_memory() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    without_go(folder.path())?;
    let demo = Command::new(binary("coppice-demo")?)
        .env("PATH", folder.path())
        .env_remove("COPPICE_PLANE_BIN")
        .stdin(Stdio::null())
        .output()?;
    let (said, complaint) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    ensure!(demo.status.success(), "{said}{complaint}");
    ensure!(said.contains("the demo runs on the API server in memory (coppice-sim) instead"), "{said}");
    // Six examples; four outcomes of what is superseded, without a mail; ten namespaces, what is due, and that it waits for approval;
    // six of the tree.
    ensure!(said.matches("  as expected  ").count() == 28, "{said}");
    ensure!(said.contains("The owner gets no mail"), "{said}");
    shows_in_order(&said, &[MESSAGE, END, TREE, LEFT_OUT])?;
    ensure!(said.contains("Every expected outcome was seen"), "{said}");
    Ok(())
}

/// What the demo shows of a mail.
const MAIL: &[&str] = &[
    "Superseded: review-2 is ready and has taken its place",
    "its owner has a mail",
    "The mail, as the mail server received it under TLS",
    "  | From: Coppice <coppice@example.org>",
    "  | To: mia@example.org",
    "  | Subject: Namespace review-1 will be deleted, not before ",
    "  | Why: namespace review-2 has taken its place",
    "  | - pipeline: https://ci.example.org/shop/pipelines/1",
    "  |     coppice hold review-1 --for 24h",
];
/// What it shows of a message in Slack.
const MESSAGE: &[&str] = &[
    "its owner has a message in Slack",
    "  | To: U024BE7LH",
    "  | *Namespace review-1 will be deleted*",
    "  | *Why:* namespace review-2 has taken its place",
    "  | *Links:* <https://ci.example.org/shop/pipelines/1|pipeline>",
    "  | ```coppice hold review-1 --for 24h",
];
/// What it shows after these.
const END: &[&str] = &[
    "$ coppice explain review-1",
    "Superseded: by namespace review-2",
    "DeletionAnnounced by review-slack to U02***: Delivered",
    "review-1       is gone",
    "deleted: it was superseded, and its owner's notice has run",
    "still there: nothing later has taken its place",
    "$ coppice explain review-1",
    "  |   Because:    Superseded",
];

/// What it shows of a tree.
const TREE: &[&str] = &[
    "Trees: a team",
    "$ coppice create shop/shop-web --quota pods=4 --wait",
    "  | subnamespace.coppice.dev/shop-web is Ready",
    "the API server refuses a fourth pod",
    "$ coppice quota shop-web",
    "  | pods       shop-api        6      coppice transfer shop-api --to shop-web --amount pods=6 --reason TEXT",
    "$ coppice transfer shop-api --to shop-web --amount pods=2",
    "-              killed",
    "coppice-trees, when the transfer is Moving",
    "-              started",
    "its fourth pod starts",
    "shop-web-test  is gone",
    "the pod that shop-web-test had is back",
    "$ coppice tree shop",
    "  | shop",
];

/// What it says where there is one API server, in memory.
const LEFT_OUT: &[&str] =
    &["Access: a team", "It is left out: the API server in memory neither issues tokens nor enforces rights"];

/// Whether all of these are there, each after the one before.
fn shows_in_order(said: &str, parts: &[&[&str]]) -> anyhow::Result<()> {
    let mut rest = said;
    for part in parts.concat() {
        rest = rest.split_once(part).with_context(|| format!("no {part:?} in its place in\n{said}"))?.1;
    }
    Ok(())
}

#[test]
fn the_demo_shows_a_mail_and_a_slack_message_as_received_before_what_is_superseded_goes() -> anyhow::Result<()>
{
    on_shared_plane(async |test_cluster, operator| {
        test_cluster.settings().await?;
        let (stand_ins, screen) = (StandIns::start().await?, Screen::default());
        let kubeconfig = test_cluster.plane.kubeconfig(ADMIN)?;
        // The shared plane may be busy: long enough for `coppice explain` to run meanwhile.
        let seen = superseded::run(&kubeconfig, operator, &stand_ins, "1m", &screen).await?;
        let said = screen.text();
        ensure!(seen && said.matches("  as expected  ").count() == 5, "{said}");
        shows_in_order(&said, &[MAIL, MESSAGE, END])?;
        let mail = "DeletionAnnounced by review-mail to m***@example.org: Delivered";
        ensure!(said.contains(mail), "{said}");
        Ok(())
    })
}
