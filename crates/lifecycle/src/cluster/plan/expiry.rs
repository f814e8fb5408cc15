//! When the namespace expires, and how that date has changed.

use coppice_api::Reason;
use coppice_api::managed_namespace::ExpiryChange;
use coppice_mutants::{Mutant, active};
use jiff::Timestamp;

use super::Builder;
use crate::cluster::EffectiveTtl;
use crate::cluster::phase::RunningTtl;
use crate::cluster::selection::SelectingManager;
use crate::condition::whole_second_after;

/// So many changes are remembered.
const CHANGES: usize = 10;

impl Builder<'_> {
    /// Writes down when the namespace expires under its manager, and what makes that date.
    pub(super) fn say_expiry(
        &mut self,
        (expires_at, extended): (Option<Timestamp>, Option<Timestamp>),
        running: Option<(&EffectiveTtl, RunningTtl)>,
        manager: &SelectingManager<'_>,
    ) {
        let name = manager.name;
        if extended.is_some() && expires_at == extended {
            let extension = self.record.spec.ok().and_then(|spec| spec.extend_until.as_ref());
            let cut = extension.filter(|extension| Some(extension.at) != extended);
            let cut = cut.map_or_else(String::new, |extension| {
                format!(
                    ", which asks for {:.0}, cut by maxTTL of ClusterNamespaceManager {name}",
                    extension.at
                )
            });
            let message = format!("spec.extendUntil of the record{cut}");
            let by = extension.and_then(|extension| extension.by.clone());
            return self.expires(expires_at, (Reason::Extended, message), by);
        }
        let (reason, message) = match running.zip(manager.spec.ttl.as_ref()) {
            None => (Reason::NoTtl, format!("ClusterNamespaceManager {name} has no ttl")),
            Some(((ttl, running), _)) if running.after != ttl.after => {
                let message = format!("the ttl is {} until a shorter one has settled", running.after);
                (Reason::TtlByAnnotation, message)
            }
            Some(((ttl, _), written)) => ttl.source_text(written, name),
        };
        let extended_before = self.status.expiry_changes.first().is_some_and(|last| {
            last.reason == Reason::Extended.as_str() && last.to == self.status.expires_at
        });
        let message = match extended {
            None if extended_before => format!("the extension was removed: {message}"),
            Some(_) if extended_before => format!("the extension does not go beyond the ttl: {message}"),
            None | Some(_) => message,
        };
        self.expires(expires_at, (reason, message), None);
    }

    /// Writes down when the namespace expires; that it has changed, and why, if it has. The date that its manager gives it first is
    /// no change.
    pub(super) fn expires(
        &mut self,
        to: Option<Timestamp>,
        (reason, message): (Reason, String),
        by: Option<String>,
    ) {
        let from = self.status.expires_at;
        let to = if active(Mutant::ExpiryKept) { from.or(to) } else { to };
        let known = self.record.status;
        let begins = known.manager.is_none() || known.namespace_uid != self.status.namespace_uid;
        let first = from.is_none() && begins && reason != Reason::Extended;
        let changes = &mut self.status.expiry_changes;
        if from != to && !(first && changes.is_empty()) {
            let at = whole_second_after(self.now);
            changes.insert(0, ExpiryChange { at, from, to, reason: reason.to_string(), message, by });
            changes.truncate(CHANGES);
        }
        self.status.expires_at = to;
    }
}
