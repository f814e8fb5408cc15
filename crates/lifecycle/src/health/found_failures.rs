//! What was found to fail, one line for each object that users deal with and each reason.

use std::collections::BTreeMap;

use coppice_api::HealthReason;
use coppice_api::health::IgnoreRule;
use jiff::Timestamp;

use crate::glob;

/// Since when something fails, and the message.
pub(super) type Evidence = (Timestamp, String);

/// Something that fails.
#[derive(Debug)]
pub(super) struct FoundFailure {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) reason: HealthReason,
    pub(super) since: Timestamp,
    pub(super) message: String,
}

/// What was found, by kind, name and reason, in the order in which it is shown.
#[derive(Debug, Default)]
pub(super) struct FoundFailures(BTreeMap<(String, String), BTreeMap<HealthReason, Evidence>>);

impl FoundFailures {
    /// Something fails. Of several for one reason the earliest is kept, and of several at one time the first by its
    /// message, so that the order of objects does not matter.
    pub(super) fn add(&mut self, (kind, name): (&str, &str), reason: HealthReason, evidence: Evidence) {
        let reasons = self.0.entry((kind.to_owned(), name.to_owned())).or_default();
        let known = reasons.entry(reason).or_insert_with(|| evidence.clone());
        if evidence < *known {
            *known = evidence;
        }
    }

    /// Without what follows from something else of the same object, and without what these rules ignore. What is ignored
    /// explains what follows from it all the same.
    pub(super) fn reported(self, ignore: &[IgnoreRule]) -> Vec<FoundFailure> {
        let mut lines = Vec::new();
        for ((kind, name), reasons) in self.0 {
            let explained = reasons.keys().any(|reason| !follows(*reason));
            for (reason, (since, message)) in reasons {
                let ignored = ignore.iter().any(|rule| ignores(rule, &kind, &name, reason));
                if !(ignored || explained && follows(reason)) {
                    lines.push(FoundFailure {
                        kind: kind.clone(),
                        name: name.clone(),
                        reason,
                        since,
                        message,
                    });
                }
            }
        }
        lines
    }
}

/// Whether a reason follows from the others of the same object.
const fn follows(reason: HealthReason) -> bool {
    matches!(reason, HealthReason::ProgressDeadlineExceeded | HealthReason::PodsNotReady)
}

fn ignores(rule: &IgnoreRule, kind: &str, name: &str, reason: HealthReason) -> bool {
    let IgnoreRule { kind: of_kind, name: of_name, reason: of_reason } = rule;
    of_kind.as_ref().is_none_or(|wanted| wanted == kind)
        && of_name.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
        && of_reason.is_none_or(|wanted| wanted == reason)
}
