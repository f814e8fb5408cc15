//! The demo where there is no Go toolchain, as `make demo` runs it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
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
    // Six examples; then ten namespaces, what is due, and that it waits for approval.
    ensure!(said.matches("  as expected  ").count() == 18, "{said}");
    ensure!(said.contains("Every expected outcome was seen"), "{said}");
    Ok(())
}
