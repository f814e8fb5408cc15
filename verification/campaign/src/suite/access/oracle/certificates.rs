//! What holds of certificates, which nobody can revoke. Those that were never in a Secret are no credentials: nobody has their keys.

use std::collections::BTreeMap;

use coppice_sim::target::IssuedCertificate;
use jiff::Timestamp;
use serde_json::Value;

use super::held::{certificate_in, output_of};
use super::recorded_state::{RecordedState, intent_named, owner_of, user_of};
use super::{Requests, arrived_late, is_late};

/// Certificates that were in a Secret and have not expired, with the revisions by which they came there.
fn handed_out<'a>(state: &RecordedState<'a>) -> Vec<(&'a IssuedCertificate, Vec<u64>)> {
    let valid = state.certificates.iter().filter(|certificate| state.now < certificate.expires);
    let of_each = valid.filter_map(|certificate| {
        let revisions = state.handed_out.get(&certificate.certificate)?;
        Some((*certificate, revisions.iter().copied().collect()))
    });
    of_each.collect()
}

/// Secrets that say another end of the certificate in them than it has.
pub(super) fn misdated(state: &RecordedState<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for secret in state.outputs.values().filter_map(|change| change.after.as_deref()) {
        let Some((held, _)) = certificate_in(secret) else { continue };
        let said = timestamp(&secret["metadata"]["annotations"]["coppice.dev/not-after"]);
        let signed = state.certificates.iter().find(|certificate| certificate.certificate == held);
        if let Some(signed) = signed.filter(|signed| said != Some(signed.expires)) {
            found.push(format!(
                "{} is valid until {}, and its Secret says {said:?}",
                named(signed),
                signed.expires
            ));
        }
    }
    found
}

/// Intents of which more than one certificate was written into a Secret by somebody who waited for the answer.
pub(super) fn too_many(state: &RecordedState<'_>, at_home: &Requests) -> Vec<String> {
    let mut certificates: BTreeMap<&str, usize> = BTreeMap::new();
    for (certificate, revisions) in handed_out(state) {
        if revisions.iter().any(|revision| !arrived_late(at_home, *revision)) {
            *certificates.entry(intent_named(&certificate.requested_by)).or_default() += 1;
        }
    }
    let many = certificates.into_iter().filter(|(_, count)| *count > 1);
    many.map(|(intent, count)| format!("{count} certificates of {intent} are valid")).collect()
}

/// Certificates that are valid, and for longer than status says, or that it does not list.
pub(super) fn unlisted(state: &RecordedState<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (uid, access) in state.kept() {
        let user = user_of(uid);
        let of_access = handed_out(state).into_iter().filter(|(certificate, _)| certificate.user == user);
        for (certificate, _) in of_access {
            let said = said_until(&access["status"], intent_named(&certificate.requested_by));
            if said.is_none_or(|said| said < certificate.expires) {
                found.push(format!(
                    "{} is valid until {}, and status says {said:?}",
                    named(certificate),
                    certificate.expires
                ));
            }
        }
        // What the Secret holds is the credential of status.
        let held = output_of(state, uid).and_then(certificate_in);
        let signed = held.and_then(|(held, _)| state.certificates.iter().find(|one| one.certificate == held));
        let of_status = access["status"]["credential"].as_str();
        if let Some(signed) = signed.filter(|signed| of_status != Some(intent_named(&signed.requested_by))) {
            found.push(format!("the Secret holds {}, and status names {of_status:?}", named(signed)));
        }
    }
    found
}

/// Until when a credential is valid, as status says; none if that does not list it.
fn said_until(status: &Value, credential: &str) -> Option<Timestamp> {
    if status["credential"] == credential {
        return timestamp(&status["notAfter"]);
    }
    let mut superseded = status["supersededCertificates"].as_array().into_iter().flatten();
    timestamp(&superseded.find(|one| one["credential"] == credential)?["notAfter"])
}

/// What asks the target for certificates of no intent.
pub(super) fn left_requests(state: &RecordedState<'_>, in_target: &Requests) -> Vec<String> {
    let asks = state.target.iter().filter(|((plural, ..), _)| *plural == "certificatesigningrequests");
    let is_left = |name: &str, object: &Value| {
        let mut kept = state.kept();
        kept.any(|(uid, access)| {
            owner_of(object) == Some(uid) && access["status"]["intent"]["credential"] != intent_named(name)
        })
    };
    let left = asks.filter(|((.., name), change)| {
        !is_late(in_target, change) && change.after.as_deref().is_some_and(|object| is_left(name, object))
    });
    left.map(|((.., name), _)| format!("the CertificateSigningRequest {name} is left")).collect()
}

fn timestamp(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A certificate in words.
fn named(certificate: &IssuedCertificate) -> String {
    format!("the certificate of {} from {}", intent_named(&certificate.requested_by), certificate.issued)
}
