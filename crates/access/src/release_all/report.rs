//! What is said about each object: a line for whoever uninstalls, an Event for whoever uses it.

use anyhow::bail;
use coppice_api::Reason;
use coppice_clusters::valid_until;
use coppice_clusters_api::names::LABEL_ACCESS;
use coppice_quantity::count;
use coppice_runtime::events::Events;
use coppice_runtime::object::{OwnKind, reference};
use jiff::Timestamp;

use super::{CredentialHandling, print_line};
use crate::cluster_access::Ending;
use crate::kinds::{Access, ClusterAccesses, ManagedClusterObject, ManagedClusters};

/// What Events say was being done.
const ACTION: &str = "Uninstall";

/// What was done, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    revoked: usize,
    not_revoked: usize,
    kept: usize,
    clusters: usize,
}

/// What becomes of a `ClusterAccess` whose finalizer is taken off, and what is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was being deleted, and not all that was issued for it is revoked.
    NotRevoked(String),
    /// It stays, and with it its credential.
    Kept(String),
    /// Nothing was issued for it.
    Empty,
}

impl Tally {
    /// One has ended.
    pub(super) fn ended(&mut self, ending: &Ending) {
        let line = line_of(ending);
        if ending.skipped.is_none() && ending.valid_until.is_none() {
            self.revoked += 1;
        } else {
            self.not_revoked += 1;
        }
        print_line(&line);
    }

    /// The finalizer is off a `ClusterAccess`, which was so before.
    pub(super) fn access(&mut self, events: &Events, access: &Access, now: Timestamp) {
        let at = format!("ClusterAccess {}/{}", access.namespace, access.name);
        match fate(access, now) {
            Fate::NotRevoked(why) => {
                self.not_revoked += 1;
                print_line(&format!("NOT REVOKED: {at}: {why}"));
                let note = format!("Coppice is uninstalled, and nothing is revoked any more: {why}");
                publish::<ClusterAccesses>(events, access, Reason::RevocationSkipped, &note);
            }
            Fate::Kept(what) => {
                self.kept += 1;
                print_line(&format!("kept: {at}: {what}"));
                let note = format!("Coppice is uninstalled: {what}");
                publish::<ClusterAccesses>(events, access, Reason::Uninstalled, &note);
            }
            Fate::Empty => print_line(&format!("finalizer taken off: {at}: nothing was issued for it")),
        }
    }

    /// The finalizer is off a `ManagedCluster`, which was so before.
    pub(super) fn managed(&mut self, events: &Events, managed: &ManagedClusterObject) {
        let at = format!("ManagedCluster {}/{}", managed.namespace, managed.name);
        let Some(what) = fate_of_cluster(managed) else {
            return print_line(&format!("finalizer taken off: {at}: nothing was made for it"));
        };
        self.clusters += 1;
        print_line(&format!("cluster kept: {at}: {what}"));
        let note = format!("Coppice is uninstalled: {what}");
        publish::<ManagedClusters>(events, managed, Reason::Uninstalled, &note);
    }

    /// Says what was done, and what is left.
    ///
    /// # Errors
    /// If anything is.
    pub(super) fn conclude(&self, left: &[String]) -> anyhow::Result<()> {
        for line in left {
            print_line(&format!("FINALIZER LEFT: {line}"));
        }
        let Self { revoked, not_revoked, kept, clusters } = self;
        let left = left.len();
        print_line(&format!(
            "{revoked} revoked, {not_revoked} not revoked, {kept} kept, {} kept, {left} with a finalizer",
            count(*clusters, "cluster")
        ));
        if left > 0 {
            let have = if left == 1 { "has" } else { "have" };
            bail!("{} {have} a finalizer still: see the list; coppice-access goes on", count(left, "object"));
        }
        Ok(())
    }
}

/// About one that has ended as it does otherwise.
pub(super) fn line_of(ending: &Ending) -> String {
    let at = format!("ClusterAccess {}/{}", ending.namespace, ending.name);
    let until = || match ending.valid_until {
        Some(until) => format!("what was issued for it is valid until {until}"),
        None => "until when what was issued for it is valid is not known".to_owned(),
    };
    match &ending.skipped {
        Some(why) => format!("NOT REVOKED: {at}: {why}; {}", until()),
        None if ending.valid_until.is_some() => {
            format!("NOT REVOKED: {at}: nobody can revoke certificates of Gardener; {}", until())
        }
        None => format!("revoked: {at}"),
    }
}

/// What becomes of one, as it is before its finalizer is taken off.
pub(super) fn fate(access: &Access, now: Timestamp) -> Fate {
    let status = &access.status;
    if access.status_error.is_none() && !status.has_touched_target() {
        return Fate::Empty;
    }
    let remains = remains(access, now);
    if !access.terminating {
        return Fate::Kept(format!("{remains}; it is neither replaced nor revoked any more"));
    }
    let why = match (access.decoded(), &status.last_error) {
        (Err(error), _) => error.to_string(),
        (Ok(_), Some(error)) => error.message.clone(),
        (Ok(_), None) => "its target did not do all of it in time".to_owned(),
    };
    let cluster = status.target.as_ref().map_or("its target".to_owned(), |target| {
        format!("the cluster whose kube-system has the uid {}", target.uid)
    });
    Fate::NotRevoked(format!(
        "{why}; {remains}; what has the label {LABEL_ACCESS}={} in {cluster} stays",
        access.uid
    ))
}

/// Until when what was issued for it is valid, in words.
fn remains(access: &Access, now: Timestamp) -> String {
    let status = &access.status;
    let pending = status.pending_revocations.iter().filter_map(|pending| pending.not_after);
    let secret =
        access.spec.as_ref().map_or(String::new(), |spec| format!(" (Secret {})", spec.output.secret));
    match pending.chain(valid_until(status)).max() {
        Some(until) if until <= now => format!("its credential{secret} has expired"),
        Some(until) => format!("its credential{secret} is valid until {until}"),
        None => format!("until when its credential{secret} is valid is not known"),
    }
}

/// What becomes of the cluster of one; none if nothing was made for it.
pub(super) fn fate_of_cluster(managed: &ManagedClusterObject) -> Option<String> {
    let status = &managed.status;
    let what = match &status.cluster {
        Some(made) => format!("the {} {}/{}", made.kind, made.namespace, made.name),
        None if status.hash.is_some() || managed.status_error.is_some() => {
            "its cluster, if it was made,".to_owned()
        }
        None => return None,
    };
    Some(if managed.terminating {
        format!(
            "{what} is not deleted by Coppice, though the ManagedCluster was: delete it if its deletion has not begun and nobody needs it"
        )
    } else {
        format!("{what} stays as it is, and is neither changed nor deleted any more")
    })
}

/// What would become of a `ClusterAccess`; none if nothing would be done.
pub(super) fn planned(access: &Access, credentials: CredentialHandling, now: Timestamp) -> Option<String> {
    let at = format!("ClusterAccess {}/{}", access.namespace, access.name);
    let is_empty = fate(access, now) == Fate::Empty;
    let remains = if is_empty { "nothing was issued for it".to_owned() } else { remains(access, now) };
    match (access.terminating, credentials) {
        (true, _) if access.has_finalizer => {
            Some(format!("would be revoked, since it is being deleted: {at}: {remains}"))
        }
        (false, CredentialHandling::Revoke) => Some(format!("would be deleted and revoked: {at}: {remains}")),
        (false, CredentialHandling::Keep) if access.has_finalizer => {
            Some(format!("would be kept: {at}: {remains}"))
        }
        _ => None,
    }
}

/// What would become of a `ManagedCluster`; none if nothing would be done.
pub(super) fn planned_of_cluster(managed: &ManagedClusterObject) -> Option<String> {
    let what = fate_of_cluster(managed).unwrap_or_else(|| "nothing was made for it".to_owned());
    let line =
        format!("its finalizer would be taken off: ManagedCluster {}/{}", managed.namespace, managed.name);
    managed.has_finalizer.then(|| format!("{line}: {what}"))
}

fn publish<K: OwnKind>(events: &Events, object: &K::Object, reason: Reason, note: &str) {
    events.publish(reference::<K>(object), true, reason.as_str(), ACTION, note);
}
