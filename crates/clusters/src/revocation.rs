//! Credentials that were replaced: which is revoked next, and when so many wait for that that no other is issued.
//!
//! A token is in `status.superseded` until it is revoked. One that has expired lets nobody in: it is revoked after the others, keeps no other
//! from being issued, and makes room where as many are listed as may be. A certificate is listed until it expires.

use coppice_clusters_api::cluster_access::{LONGEST_TTL, MAX_CERTIFICATES, MAX_SUPERSEDED};
use coppice_clusters_api::{ClusterAccessStatus, PendingRevocation, SupersededCertificate};
use coppice_mutants::{Mutant, active};
use jiff::{SignedDuration, Timestamp};

use crate::observed::AccessObservation;
use crate::plan::AccessStep;
use crate::rotation::later;
use crate::status::validity;

/// The next one to be revoked: those that may be valid go first. One that cannot be keeps no other waiting: each has two attempts, since every
/// other one may be for something else, and then the next one has its turn.
pub(crate) fn revoke_superseded(observed: &AccessObservation, now: Timestamp) -> Option<AccessStep> {
    let status = &observed.status;
    let has_expired = |credential: &&String| has_expired(status, credential, now);
    let (expired, valid): (Vec<&String>, Vec<&String>) = status.superseded.iter().partition(has_expired);
    let next = if valid.is_empty() { expired } else { valid };
    let failed = status.last_error.as_ref().map_or(0, |error| error.attempts / 2);
    let turn = usize::try_from(failed).unwrap_or_default().checked_rem(next.len())?;
    Some(AccessStep::Revoke { credential: (*next.get(turn)?).clone() })
}

/// Whether so many of those that wait to be revoked may be valid that no other is issued.
pub(crate) fn are_too_many(status: &ClusterAccessStatus, now: Timestamp) -> bool {
    let valid = status.superseded.iter().filter(|credential| !has_expired(status, credential, now));
    valid.count() >= MAX_SUPERSEDED
}

/// The credential of a status is replaced.
pub(crate) fn supersede(observed: &AccessObservation, status: &mut ClusterAccessStatus, now: Timestamp) {
    let not_after = validity(status).map(|validity| validity.not_after);
    let Some(credential) = status.credential.take() else { return };
    if observed.spec.issuer.is_revocable() {
        let pending = PendingRevocation { credential: credential.clone(), since: now, not_after };
        status.pending_revocations.push(pending);
        status.superseded.push(credential);
        make_room(status, now);
        return;
    }
    let Some(not_after) = not_after.filter(|_| !active(Mutant::CertificateUnlisted)) else { return };
    let certificates = &mut status.superseded_certificates;
    certificates.push(SupersededCertificate { credential, not_after });
    if certificates.len() > MAX_CERTIFICATES {
        // None of them keeps another one from being issued: the one that expires first is listed no more.
        certificates.sort_by_key(|certificate| certificate.not_after);
        certificates.remove(0);
    }
}

/// Of more than may be listed one that has expired is listed no more: one more was issued because of it. What it was bound to stays in the
/// target until everything is revoked there.
fn make_room(status: &mut ClusterAccessStatus, now: Timestamp) {
    if status.superseded.len() <= MAX_SUPERSEDED {
        return;
    }
    let expired = status.superseded.iter().position(|credential| has_expired(status, credential, now));
    if let Some(expired) = expired {
        status.superseded.remove(expired);
    }
}

/// Since when each of them is to be revoked is known from now on, where an earlier version did not write it down.
pub(crate) fn note_pending(status: &mut ClusterAccessStatus, now: Timestamp) {
    for credential in &status.superseded {
        if pending(status, credential).is_none() {
            let undated = PendingRevocation { credential: credential.clone(), since: now, not_after: None };
            status.pending_revocations.push(undated);
        }
    }
}

/// Whether one is known to have expired. Of one whose end an earlier version did not write down it is known that none is asked for for longer.
fn has_expired(status: &ClusterAccessStatus, credential: &str, now: Timestamp) -> bool {
    pending(status, credential).is_some_and(|pending| {
        let longest = SignedDuration::from_secs(LONGEST_TTL.as_secs_i64());
        pending.not_after.unwrap_or_else(|| later(pending.since, longest)) <= now
    })
}

fn pending<'a>(status: &'a ClusterAccessStatus, credential: &str) -> Option<&'a PendingRevocation> {
    status.pending_revocations.iter().find(|pending| pending.credential == credential)
}

#[cfg(test)]
mod tests {
    use coppice_api::Reason;
    use coppice_clusters_api::Cause;

    use super::*;
    use crate::plan::tests::{at, saved, secret, settled, validity};
    use crate::{OutputFact, adopted, failed, plan, revoked};

    #[test]
    fn what_has_expired_is_revoked_last_and_keeps_no_other_from_being_issued() {
        let mut observed = settled();
        // What they are bound to cannot be deleted in the target.
        observed.status.superseded = (0..16).map(|n| format!("old-{n}")).collect();
        let until = (600..).map(|second| Some(at(second)));
        let pending = observed.status.superseded.iter().cloned().zip(until);
        observed.status.pending_revocations = pending
            .map(|(credential, not_after)| PendingRevocation { credential, since: at(0), not_after })
            .collect();
        observed.spec.rotate = Some("now".to_owned());
        let revoke = |credential: &str| AccessStep::Revoke { credential: credential.to_owned() };
        assert_eq!(plan(&observed, at(599)), revoke("old-0"), "all of them may be valid");
        let full = failed(&observed, Reason::TargetRefused, "no", at(599));
        assert_eq!(full.last_error.unwrap().reason, "TooManySuperseded");
        observed.status = saved(plan(&observed, at(600)));
        let intent = observed.status.intent.clone().unwrap();
        assert_eq!((intent.credential.as_str(), intent.cause), ("u-2", Cause::Requested));
        let written = secret("u-2", "8");
        observed.status = adopted(&observed, &intent, (&written, validity()), "e", at(601));
        // One that has expired made room.
        let status = &observed.status;
        assert_eq!((status.superseded.len(), status.pending_revocations.len()), (16, 16));
        assert_eq!((status.superseded[0].as_str(), status.superseded[15].as_str()), ("old-1", "u-1"));
        let last = status.pending_revocations.last().unwrap();
        assert_eq!((last.since, last.not_after), (at(601), Some(at(86_400))));
        observed.output = OutputFact::Watched(Some(("s".to_owned(), "8".to_owned())));
        assert_eq!(plan(&observed, at(601)), revoke("old-2"));
        assert_eq!(plan(&observed, at(700)), revoke("u-1"));
        let refused = failed(&observed, Reason::TargetRefused, "no", at(700));
        assert_eq!(refused.last_error.unwrap().reason, "TargetRefused");
        observed.status = revoked(&observed, "u-1", at(700));
        assert_eq!(plan(&observed, at(700)), revoke("old-1"), "what has expired is cleaned up at last");
        assert_eq!(observed.status.pending_revocations.len(), 15);
    }

    #[test]
    fn one_that_cannot_be_revoked_keeps_no_other_waiting() {
        let mut observed = settled();
        observed.status.superseded = vec!["old-0".to_owned(), "old-1".to_owned()];
        let mut asked = Vec::new();
        for second in [5, 65, 185, 425, 905] {
            let AccessStep::Revoke { credential } = plan(&observed, at(second)) else { panic!("{second}") };
            asked.push(credential);
            observed.status = failed(&observed, Reason::TargetRefused, "no", at(second));
        }
        assert_eq!(asked, ["old-0", "old-0", "old-1", "old-1", "old-0"]);
        // Also where rights cannot be applied, which have every other attempt.
        observed.generation = 2;
        let mut asked = std::collections::BTreeSet::new();
        for second in (2_000..30_000).step_by(2_000) {
            match plan(&observed, at(second)) {
                AccessStep::Revoke { credential } => {
                    asked.insert(credential);
                }
                step => assert_eq!(step, AccessStep::ApplyRights),
            }
            observed.status = failed(&observed, Reason::TargetRefused, "no", at(second));
        }
        assert_eq!(asked.len(), 2);
    }

    #[test]
    fn what_an_earlier_version_superseded_has_a_date_once_it_could_not_be_revoked() {
        let mut observed = settled();
        observed.status.superseded = vec!["u-0".to_owned()];
        for second in [5, 65] {
            observed.status = failed(&observed, Reason::TargetRefused, "no", at(second));
            let dated = PendingRevocation { credential: "u-0".to_owned(), since: at(5), not_after: None };
            assert_eq!(observed.status.pending_revocations, [dated]);
        }
        assert!(revoked(&observed, "u-0", at(70)).pending_revocations.is_empty());
        // No other waits for ever for those that cannot be revoked.
        observed.status.superseded = (0..16).map(|n| format!("old-{n}")).collect();
        let status = failed(&observed, Reason::TargetRefused, "no", at(100));
        let month = 30 * 86_400;
        assert!(are_too_many(&status, at(99 + month)) && !are_too_many(&status, at(100 + month)));
    }
}
