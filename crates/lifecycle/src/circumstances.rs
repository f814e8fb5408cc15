//! What stops a step at present, of whatever kind the object is that decides it.

use coppice_api::Reason;
use coppice_api::config::GovernorStatus;
use coppice_api::managed_namespace::RecordHold;
use coppice_api::manager::Hold;
use coppice_api::steps::Action;
use coppice_mutants::{Mutant, active};
use coppice_quantity::time::ServerTime;
use jiff::Timestamp;

use crate::governor::{self, Denied, Share, clock_skew};
use crate::other_deletion::OtherDeletion;
use crate::pending_webhook::PendingWebhook;
use crate::settings::PlatformSettings;

/// What a step depends on besides the condition of its policy.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// What the platform allows.
    pub settings: &'a PlatformSettings,
    /// The budget's ledger.
    pub budget: &'a GovernorStatus,
    /// What of the budget it takes from.
    pub share: Share<'a>,
    /// Why the facts cannot be trusted at present, if so.
    pub stale: Option<&'a (Reason, String)>,
    /// Who else deletes the namespace, if anybody does.
    pub other: Option<&'a OtherDeletion>,
    /// Which webhook of a manager in the namespace is under way, if one is.
    pub webhook: Option<&'a PendingWebhook>,
    /// Why it is not known what the platform permits in this namespace, if so.
    pub unknown_limits: Option<&'a (Reason, String)>,
    /// The time.
    pub time: ServerTime,
}

impl Circumstances<'_> {
    /// Why the time or the facts cannot be trusted at present, if so.
    pub fn unreliable_facts(&self) -> Option<(Reason, String)> {
        let uncertainty = self.time.uncertainty().map(clock_skew);
        uncertainty.or_else(|| self.stale.cloned())
    }

    /// Why this action may not be taken at present, if so.
    pub fn block(&self, action: Action) -> Option<Denied> {
        if action.is_destructive() { self.destructive_block() } else { self.total_block() }
    }

    /// What stops every destructive step at present.
    fn destructive_block(&self) -> Option<Denied> {
        let unknown = self.unreliable_facts().or_else(|| self.settings_missing());
        unknown.or_else(|| self.unknown_limits.cloned()).map(Denied::until_changed).or_else(|| {
            let governor = &self.settings.config.governor;
            governor::allow(governor, self.budget, self.share, self.time.now()).err()
        })
    }

    /// Why not even a webhook may be sent: by a wrong clock it would be early, and signed with a time that receivers
    /// refuse.
    fn total_block(&self) -> Option<Denied> {
        let why = self.settings_missing().or_else(|| self.time.uncertainty().map(clock_skew));
        why.or_else(|| self.unknown_limits.cloned()).map(Denied::until_changed)
    }

    /// Whether there are no settings: then nothing is allowed.
    fn settings_missing(&self) -> Option<(Reason, String)> {
        self.settings.missing.then(|| {
            let message = "CoppiceConfig/coppice does not exist, so nothing is allowed: an administrator has to create it \
                           again, with what is to be protected (an empty spec means the defaults)";
            (Reason::SettingsMissing, message.to_owned())
        })
    }
}

/// A hold, of whatever kind the object is that has it.
#[derive(Clone, Copy, Debug)]
pub struct HoldFacts<'a> {
    /// When it ends.
    until: Timestamp,
    /// Why, for people.
    reason: Option<&'a str>,
    /// Who holds, where that is recorded.
    by: Option<&'a str>,
}

impl<'a> From<&'a Hold> for HoldFacts<'a> {
    fn from(hold: &'a Hold) -> Self {
        Self { until: hold.until, reason: hold.reason.as_deref(), by: None }
    }
}

/// With when it ends, as far as it counts.
impl<'a> From<(&'a RecordHold, Timestamp)> for HoldFacts<'a> {
    fn from((hold, end): (&'a RecordHold, Timestamp)) -> Self {
        Self { until: end, reason: hold.reason.as_deref(), by: hold.by.as_deref() }
    }
}

/// Why the user's own spec lets nothing fire at present, and until when: `Suspended` or `Held`.
pub fn inhibition<'a>(
    suspend: bool,
    hold: Option<impl Into<HoldFacts<'a>>>,
    now: Timestamp,
) -> Option<Denied> {
    if suspend && !active(Mutant::SuspendIgnored) {
        let message = "spec.suspend is true: nothing is done until it is false".to_owned();
        return Some(Denied::until_changed((Reason::Suspended, message)));
    }
    let hold = hold.map(Into::into).filter(|hold| now < hold.until && !active(Mutant::HoldIgnored))?;
    let by = hold.by.map(|by| format!(" by {by}")).unwrap_or_default();
    let why = hold.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let message = format!("held{by} until {:.0}{why}", hold.until);
    Some(Denied { reason: Reason::Held, message, retry_at: Some(hold.until) })
}
