//! What is said about a dump as a whole.

use std::collections::BTreeSet;

use anyhow::Result;
use coppice_quantity::Duration;

use super::access::ImportedAccess;
use super::dump::Dump;
use super::{Options, objects};
use crate::import::Remarks;
use crate::print::count;

/// The label with who writes a Secret, and whom Infrastructure Manager writes there.
const MANAGED_BY: (&str, &str) = ("operator.kyma-project.io/managed-by", "infrastructure-manager");
/// The label with the object that a Secret was written for.
const CLUSTER_NAME: &str = "operator.kyma-project.io/cluster-name";

/// What holds for all of it.
pub(super) fn general(dump: &Dump, written: &[ImportedAccess], options: &Options) -> Remarks {
    let mut remarks = Remarks::default();
    if !written.is_empty() {
        accesses(dump, written, options, &mut remarks);
    }
    runtimes(dump, options, &mut remarks);
    kymas(dump, &mut remarks);
    left_secrets(dump, &mut remarks);
    if !dump.others.is_empty() {
        let kinds: Vec<String> = dump.others.iter().map(|(kind, number)| count(*number, kind)).collect();
        remarks.note(format!("left out, since nothing of them is read: {}", kinds.join(", ")));
    }
    remarks
}

fn accesses(dump: &Dump, written: &[ImportedAccess], options: &Options, remarks: &mut Remarks) {
    remarks.note(format!(
        "{} written with suspend: true: nothing is issued, and no Secret is touched, before you take that out",
        match written.len() {
            1 => "1 ClusterAccess is".to_owned(),
            number => format!("{number} ClusterAccesses are"),
        }
    ));
    let waiting = written.iter().filter(|one| one.has_secret).count();
    if waiting > 0 {
        remarks.differs(format!(
            "to be handed over: {}, since Coppice writes none that others have made (SecretNotOurs). Apply this, stop Infrastructure Manager, and import \
             again from a dump that has the ClusterAccesses: that says the command for each (docs/from-kim.md)",
            count(waiting, "Secret")
        ));
    }
    if dump.secrets.is_empty() {
        remarks.differs(
            "the dump has no Secrets, so that nothing is known of those that are there: import again with kubectl get secret -A -l \
             operator.kyma-project.io/managed-by=infrastructure-manager -o yaml beside it; nothing of what they hold is written anywhere",
        );
    }
    remarks.note(
        "issuer GardenerAdmin is what Infrastructure Manager does: a certificate of an administrator of the cluster, which cannot be revoked. \
         Afterwards give those who need less a ClusterAccess of their own, with issuer TokenRequest and rights",
    );
    if options.ttl.is_some_and(|ttl| ttl > Duration::from_secs(86_400)) {
        remarks.note("Gardener grants 24 hours at most, whatever --ttl says: what it granted counts");
    }
    if options.ttl.is_none() || options.rotate_at.is_none() {
        remarks.note(
            "ttl and rotateAt are the defaults of both systems, 24h and 60 %: where its flags kubeconfig-expiration-time and minimal-rotation-time \
             say otherwise, import again with --ttl and --rotate-at",
        );
    }
}

fn runtimes(dump: &Dump, options: &Options, remarks: &mut Remarks) {
    if dump.runtimes.is_empty() {
        return;
    }
    if options.managed_clusters {
        remarks.differs(
            "ManagedClusters: a Shoot is made where there is none of its name in the project of its ClusterProvider, and one that is there is left alone \
             (ClusterNotOurs) until you hand it over: compare each with its Shoot before you apply it (docs/from-kim.md). Delete no Runtime while \
             Infrastructure Manager runs, since it deletes the Shoot with it",
        );
    } else {
        remarks.note(format!(
            "{} read and not written: their Shoots stay as they are. With --managed-clusters each becomes a ManagedCluster",
            match dump.runtimes.len() {
                1 => "1 Runtime is".to_owned(),
                number => format!("{number} Runtimes are"),
            }
        ));
    }
}

/// Kymas are about modules: they become no objects, and one whose cluster is not known is reported.
fn kymas(dump: &Dump, remarks: &mut Remarks) {
    let known = dump.known();
    for kyma in dump.kymas.iter().filter(|kyma| !kyma.is_one_of(&known)) {
        remarks.differs(format!(
            "Kyma {}/{} has no GardenerCluster here, and neither its label kyma-project.io/shoot-name nor a Runtime says which Shoot is its own, so that it gets \
             no ClusterAccess: write one, if it has a cluster",
            kyma.namespace, kyma.name
        ));
    }
    if !dump.kymas.is_empty() {
        remarks.note(format!(
            "{} read for their clusters alone: they are about modules, which Coppice does not install",
            match dump.kymas.len() {
                1 => "1 Kyma is".to_owned(),
                number => format!("{number} Kymas are"),
            }
        ));
    }
}

/// Secrets that Infrastructure Manager has left behind, with the credential of an administrator in each.
fn left_secrets(dump: &Dump, remarks: &mut Remarks) {
    let names: BTreeSet<&str> = dump.clusters.iter().map(|cluster| &*cluster.name).collect();
    for ((namespace, name), facts) in &dump.secrets {
        let (label, manager) = MANAGED_BY;
        let cluster = facts.labels.get(CLUSTER_NAME).filter(|cluster| !names.contains(cluster.as_str()));
        if facts.labels.get(label).is_some_and(|by| by == manager)
            && let Some(cluster) = cluster
        {
            remarks.differs(format!(
                "Secret {namespace}/{name} was written for GardenerCluster {cluster}, which is not here: where that is gone, delete the Secret, which \
                 nobody else does; its credential is an administrator's, and is valid until it expires"
            ));
        }
    }
}

/// The comments that say which `ClusterProvider` the accesses name.
pub(super) fn provider(dump: &Dump, written: &[ImportedAccess], options: &Options) -> Result<Vec<String>> {
    let namespaces: BTreeSet<&str> = written.iter().map(|one| &*one.namespace).collect();
    if namespaces.is_empty() {
        return Ok(Vec::new());
    }
    let namespaces: Vec<&str> = namespaces.into_iter().collect();
    // Its flag gardener-project-name says it, where no Shoot does.
    let provider = objects::provider(options, dump.project().unwrap_or("YOUR-PROJECT"), &namespaces);
    let mut lines = vec![
        format!(
            "These name the ClusterProvider {}. Copy the Secret with the kubeconfig of the Gardener project into coppice-access-system, and create",
            options.provider
        ),
        "it, if there is none yet:".to_owned(),
    ];
    lines.extend(crate::yaml::to_string(&provider)?.lines().map(|line| format!("  {line}")));
    Ok(lines)
}
