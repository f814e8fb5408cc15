//! What a record says of the limits of its cluster manager.

use coppice_api::Reason;
use coppice_api::condition::{self, ConditionState, WITHIN_LIMITS};
use jiff::Timestamp;

use super::{Builder, Governed};
use crate::cluster::EffectiveTtl;
use crate::cluster::limits::{dropped_at, extension_end, held, hold_end, remembered};
use crate::cluster::selection::SelectingManager;
use crate::facts::NamespaceFacts;

impl Builder<'_> {
    /// Writes down how far the users of the namespace may go, and for how long it has been held, if that is limited.
    pub(super) fn say_limits(&mut self, manager: &SelectingManager<'_>, namespace: &NamespaceFacts) {
        self.status.limits = manager.spec.limits.of_record(namespace.created);
        let Some(limits) = self.status.limits else { return self.no_limits() };
        let hold = self.record.spec.ok().and_then(|spec| spec.hold.as_ref());
        let so_far = remembered(self.status.held.as_ref(), manager.spec, self.now);
        self.status.held = limits.max_hold.and_then(|_| held(so_far, hold, self.now));
        self.check_no_later_than(self.status.held.map(|held| dropped_at(&held, manager.spec)));
    }

    /// When the hold ends, as far as it counts.
    pub(super) fn hold_end(&self) -> Option<Timestamp> {
        let hold = self.record.spec.ok()?.hold.as_ref()?;
        Some(hold_end(self.status.limits.as_ref(), self.status.held.as_ref(), hold))
    }

    /// Until when the ttl is extended, as far as that counts.
    pub(super) fn extended(&self) -> Option<Timestamp> {
        let extension = self.record.spec.ok()?.extend_until.as_ref()?;
        Some(extension_end(self.status.limits.as_ref(), extension))
    }

    /// Writes down whether what the users of the namespace ask for counts as they ask for it, if that is limited.
    pub(super) fn say_within_limits(&mut self, governed: &Governed<'_>, ttl: Option<&EffectiveTtl>) {
        if self.status.limits.is_none() {
            return;
        }
        let exceeded = self.exceeded(governed, ttl);
        let by = format!("spec.limits of ClusterNamespaceManager {}", governed.manager.name);
        let state = if exceeded.is_empty() {
            let message = format!("nothing goes beyond {by}");
            ConditionState { status: "True", reason: Reason::WithinLimits.to_string(), message }
        } else {
            let message = format!("{} ({by})", exceeded.join("; "));
            let known = condition::find(&self.status.conditions, WITHIN_LIMITS);
            if known.is_none_or(|known| known.message != message) {
                self.note(true, Reason::LimitExceeded, message.clone());
            }
            ConditionState { status: "False", reason: Reason::LimitExceeded.to_string(), message }
        };
        let (generation, now) = (self.record.generation, self.now);
        condition::set(&mut self.status.conditions, WITHIN_LIMITS, state, generation, now);
    }

    /// Nothing is limited, or no cluster manager governs the namespace.
    pub(super) fn no_limits(&mut self) {
        (self.status.limits, self.status.held) = (None, None);
        self.status.conditions.retain(|known| known.type_ != WITHIN_LIMITS);
    }

    /// What goes beyond the limits, and how it counts.
    fn exceeded(&self, governed: &Governed<'_>, ttl: Option<&EffectiveTtl>) -> Vec<String> {
        let Governed { manager, spec, now, .. } = governed;
        let limits = &manager.spec.limits;
        let mut exceeded = Vec::new();
        if let Some((max, asked)) = limits.max_ttl.zip(ttl.and_then(|ttl| ttl.asked)) {
            exceeded
                .push(format!("its annotation asks for a ttl of {asked}, and at most {max} counts (maxTTL)"));
        }
        let extension = spec.extend_until.as_ref().map(|extension| extension.at);
        let cut = extension.zip(self.extended()).filter(|(asked, counts)| counts < asked);
        if let Some((max, (asked, counts))) = limits.max_ttl.zip(cut) {
            exceeded.push(format!(
                "spec.extendUntil asks for {asked:.0}, and counts until {counts:.0}: at most {max} after its creation (maxTTL)"
            ));
        }
        let hold = spec.hold.as_ref().map(|hold| hold.until).filter(|until| now < until);
        let cut = hold.zip(self.hold_end()).filter(|(asked, counts)| counts < asked);
        if let (Some(max), Some(held), Some((asked, counts))) = (limits.max_hold, self.status.held, cut) {
            exceeded.push(if max.is_zero() {
                format!("spec.hold asks for {asked:.0}, and no hold counts (maxHold)")
            } else {
                let since = held.since;
                format!(
                    "spec.hold asks for {asked:.0}, and counts until {counts:.0}: at most {max} after the first hold, of \
                     {since:.0} (maxHold)"
                )
            });
        }
        exceeded
    }
}
