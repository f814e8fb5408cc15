//! Objects of Kyma Infrastructure Manager as ours.
//!
//! ```text
//! a dump ─ dump ─▶ its objects, and of Secrets what is not secret ─ access ──▶ ClusterAccesses
//!                                                                 ─ cluster ─▶ ManagedClusters, if asked for
//!                                                                 ─ report ──▶ what is left for people
//! ```
//! A `ClusterAccess` is written with `suspend: true`, and what exists already is left out: a second run writes what is missing, and says
//! the next step for each that is there.

mod access;
mod cluster;
mod dump;
mod objects;
mod report;

use std::collections::BTreeSet;

use anyhow::Result;
use coppice_quantity::Duration;

use crate::files::Document;
use crate::import::{Remark, Remarks};
use access::Taken;
use dump::{Dump, KYMA};

/// What is asked for besides the dump.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The `ClusterProvider` with the kubeconfig of the Gardener project.
    pub(crate) provider: String,
    /// For how long credentials are asked for; none for the default, which is that of both systems.
    pub(crate) ttl: Option<Duration>,
    /// After how many percent of that they are replaced; none for the same.
    pub(crate) rotate_at: Option<u32>,
    /// Whether `ManagedClusters` are written, too.
    pub(crate) managed_clusters: bool,
}

/// What a dump becomes.
pub(crate) struct ImportedDump {
    /// Comments at the head.
    pub(crate) head: Vec<String>,
    /// Objects as YAML.
    pub(crate) objects: Vec<String>,
    /// Remarks, each with what it is about: empty for the dump as a whole.
    pub(crate) remarks: Vec<(String, Vec<Remark>)>,
}

/// Translates a dump.
pub(crate) fn import(documents: &[Document], options: &Options) -> Result<ImportedDump> {
    let dump = Dump::read(documents)?;
    let (mut objects, mut remarks) = (Vec::new(), Vec::new());
    let (mut taken, mut written) = (Taken::default(), Vec::new());
    for cluster in &dump.clusters {
        let mut about = Remarks::default();
        match access::import(cluster, &dump, options, &mut taken, &mut about) {
            Ok(access) => {
                if access.is_some() && cluster.kind == KYMA {
                    about.differs(
                        "it has no GardenerCluster, so that its ClusterAccess has the Secret and the key that the broker names: compare them with what is read",
                    );
                }
                written.extend(access);
            }
            Err(wrong) => about.differs(format!("nothing is written for it: {wrong}")),
        }
        remarks.push((cluster.about(), about.0));
    }
    for access in &written {
        objects.push(crate::yaml::to_string(&access.object)?);
    }
    let mut clusters = BTreeSet::new();
    for runtime in dump.runtimes.iter().filter(|_| options.managed_clusters) {
        let mut about = Remarks::default();
        match cluster::import(runtime, &dump, options, &mut clusters, &mut about) {
            Ok(Some(cluster)) => objects.push(crate::yaml::to_string(&cluster)?),
            Ok(None) => {}
            Err(wrong) => about.differs(format!("nothing is written for it: {wrong}")),
        }
        remarks.push((runtime.about(), about.0));
    }
    remarks.push((String::new(), report::general(&dump, &written, options).0));
    Ok(ImportedDump { head: report::provider(&dump, &written, options)?, objects, remarks })
}
