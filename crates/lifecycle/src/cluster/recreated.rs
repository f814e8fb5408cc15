//! Namespaces that something makes again each time they are deleted, such as a GitOps controller: deleting them once more
//! changes nothing.

use std::collections::BTreeMap;

use coppice_mutants::{Mutant, active};
use coppice_quantity::Duration;
use jiff::Timestamp;

use crate::annotations::ARGO_CD_TRACKING;
use crate::condition::later;
use crate::facts::NamespaceFacts;

/// A name that was deleted so often in [`WINDOW`] is left alone.
const TOO_OFTEN: usize = 3;
/// One day.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// Labels by which known tools mark what they apply, besides [`ARGO_CD_TRACKING`]. They are named, since whoever reads that looks
/// for the cause.
const APPLIED_BY: [&str; 5] = [
    "argocd.argoproj.io/instance",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/instance",
];

/// A deletion by a cluster manager.
#[derive(Clone, Copy, Debug)]
pub struct PastDeletion<'a> {
    /// The name of the namespace.
    pub namespace: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// When.
    pub at: Timestamp,
}

/// The names that were deleted too often of late.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recreated {
    by_name: BTreeMap<String, Vec<(Timestamp, String)>>,
}

impl Recreated {
    /// Of all deletions that are known. Their order does not matter.
    pub fn of<'a>(deletions: impl IntoIterator<Item = PastDeletion<'a>>, now: Timestamp) -> Self {
        let mut by_name: BTreeMap<&str, Vec<PastDeletion<'_>>> = BTreeMap::new();
        for deletion in deletions.into_iter().filter(|deletion| now < later(deletion.at, WINDOW)) {
            by_name.entry(deletion.namespace).or_default().push(deletion);
        }
        let often = by_name.into_iter().filter(|(_, deletions)| deletions.len() >= TOO_OFTEN);
        let often = often.map(|(name, mut deletions)| {
            deletions.sort_unstable_by_key(|deletion| (deletion.at, deletion.uid));
            let deletions = deletions.into_iter().map(|deletion| (deletion.at, deletion.uid.to_owned()));
            (name.to_owned(), deletions.collect())
        });
        Self { by_name: often.collect() }
    }

    /// Until when a namespace is left alone, and why; none if it may be deleted. Its own deletion is none of an earlier one.
    pub fn left_alone(&self, namespace: &NamespaceFacts, now: Timestamp) -> Option<(Timestamp, String)> {
        let known = self.by_name.get(&namespace.name)?;
        let others = known.iter().filter(|(_, uid)| *uid != namespace.uid).rev();
        let nth = others.map(|(at, _)| *at).nth(TOO_OFTEN - 1)?;
        let until = later(nth, WINDOW);
        if until <= now || active(Mutant::RecreationIgnored) {
            return None;
        }
        let labels = APPLIED_BY.iter().filter_map(|label| Some((label, namespace.labels.get(label)?)));
        let tracked = namespace.annotations.tracked_by_argo_cd().then(|| ARGO_CD_TRACKING.to_owned());
        let marks: Vec<_> = labels.map(|(label, value)| format!("{label}={value}")).chain(tracked).collect();
        let by = if marks.is_empty() {
            "no label or annotation of a known tool says by what".to_owned()
        } else {
            format!("its labels and annotations say by what: {}", marks.join(", "))
        };
        let message = format!(
            "namespace {} was deleted {TOO_OFTEN} times within 24 hours and is made again each time ({by}): it is left alone \
             until {until:.0}; have it made no more, or exclude it from the cluster manager",
            namespace.name
        );
        Some((until, message))
    }
}
