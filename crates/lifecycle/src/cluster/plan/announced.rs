//! What becomes of a notice that was given, when its policy is looked at again.

use coppice_api::steps::Notice;

use super::decide::Ruling;
use super::{Builder, Governed, Judged};
use crate::cluster::phase::{Due, DueCause};
use crate::plan::earlier;

impl Builder<'_> {
    /// A notice whose cause is gone is withdrawn, also where its policy is due for another one: that was not announced, nor how to
    /// prevent it.
    pub(super) fn withdraw_void_notice(&mut self, governed: &Governed<'_>) {
        let Some(notice) = &self.status.steps.notice else { return };
        let Some(reason) = &notice.reason else { return };
        let cause = [DueCause::Ttl, DueCause::Superseded, DueCause::Pods]
            .into_iter()
            .find(|cause| cause.reason().as_str() == reason);
        let cause = cause.unwrap_or(DueCause::Health);
        let policies = governed.manager.spec.policies();
        let Some(policy) = policies.iter().find(|policy| policy.name == notice.policy) else { return };
        let now = self.now;
        let stands = |due: &Due| earlier(due.at, policy.action.notice()) <= now;
        let causes = || governed.finding.due(policy).filter(stands);
        let announced = |due: &Due| due.cause == cause;
        // Where the ttl is over its end counts first: what was announced for the health stands as long as something fails.
        let (is_gone, why) = match cause {
            DueCause::Ttl => (true, "its time to live does not end then"),
            DueCause::Superseded => (true, "no other namespace takes its place any more"),
            DueCause::Health | DueCause::Pods => (governed.finding.is_well(), "nothing fails any more"),
        };
        if is_gone && causes().any(|due| !announced(&due)) && !causes().any(|due| announced(&due)) {
            self.withdraw_notice(why);
        }
    }

    /// What was announced and still stands keeps its place, so that its date is kept and nothing that goes back and forth begins
    /// notice again. Where its condition is not confirmed and its date has passed, what may be done now comes first.
    pub(super) fn announced_first(
        &self,
        governed: &Governed<'_>,
        notice: &Notice,
        ranked: &mut [Judged<'_>],
    ) {
        let is_it = |judged: &Judged<'_>| judged.policy.name == notice.policy;
        let Some(announced) = ranked.iter().find(|judged| is_it(judged)) else { return };
        let gives_way = match self.ruling(governed, announced) {
            // One that would be done later than announced does not stand.
            Ruling::Open(due) if due <= notice.not_before => false,
            Ruling::Unconfirmed(..) => notice.not_before <= self.now,
            Ruling::Open(_) | Ruling::Stopped(..) | Ruling::Waits(..) => return,
        };
        let instead =
            |judged: &Judged<'_>| gives_way && matches!(self.ruling(governed, judged), Ruling::Open(_));
        ranked.sort_by_cached_key(|judged| match judged {
            it if is_it(it) => 1,
            other if instead(other) => 0,
            _ => 2,
        });
    }
}
