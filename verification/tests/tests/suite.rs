//! Every test on a real control plane, in one program: they run beside each other, most of them waiting, and those that can
//! share one plane.
//!
//! A new file here is a module of this program, or it does not run.

mod access;
mod access_bind;
mod access_certificates;
mod access_cluster_api;
mod access_control;
mod access_gardener;
mod access_input;
mod access_killed;
mod access_probe;
mod access_provider;
mod access_rotation;
mod access_target;
mod access_uninstall;
mod alerts;
mod breaker;
mod cli;
mod clock;
mod cluster_approval;
mod cluster_channels;
mod cluster_health;
mod cluster_input;
mod cluster_limits;
mod cluster_managers;
mod cluster_messages;
mod cluster_notices;
mod cluster_pods;
mod cluster_records;
mod cluster_recreated;
mod cluster_sleep;
mod cluster_superseded;
mod conformance;
mod crash;
mod demo;
mod example_ci;
mod faults;
mod from_kim;
mod from_ska;
mod gitops;
mod input;
mod large_namespaces;
mod lifecycle;
mod losses;
mod managed_cluster;
mod managed_killed;
mod managed_shoot;
mod metrics_access;
mod records;
mod restore;
mod sample;
mod service_accounts;
mod settings;
mod sim;
mod stopped_scale_down;
mod trees;
mod trees_access;
mod trees_admission;
mod trees_adopt;
mod trees_cascade;
mod trees_copies;
mod trees_detach;
mod trees_expiry;
mod trees_input;
mod trees_metadata;
mod trees_parent;
mod trees_propagation;
mod trees_quotas;
mod trees_race;
mod trees_resources;
mod trees_root;
mod trees_tenants;
mod trees_transfers;
mod trees_transfers_access;
mod uninstall;
mod unreadable_objects;
mod user_controls;

#[test]
fn every_file_here_is_a_module() -> anyhow::Result<()> {
    let folder = coppice_tests::test_cluster::repository().join("verification/tests/tests");
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let is_module = include_str!("suite.rs").lines().any(|line| line == format!("mod {name};"));
        // What belongs to a module alone is in a folder of its name.
        anyhow::ensure!(is_module || name == "suite", "{} is not in suite.rs", path.display());
    }
    Ok(())
}
