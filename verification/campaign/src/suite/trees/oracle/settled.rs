//! Whether all has come to an end when all is done: what people asked for is done or refused, and what is still being deleted has a reason
//! to stay that is seen outside of it.

use coppice_sim::run::RunRecord;
use jiff::Timestamp;
use serde_json::Value;

use super::budget::is_overrun;
use super::consent::consents;
use super::rule::SETTLED;
use crate::oracle::{Findings, History};

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let Some(last) = record.changes.last().map(|change| change.revision) else { return };
    let now = record.began.checked_add(record.lasted).unwrap_or(record.began);
    let end = TheEnd { history, revision: last, now };
    let subnamespaces =
        end.all("subnamespaces").map(|object| ("Subnamespace", object, end.unsettled(object)));
    let transfers = end.all("quotatransfers").map(|object| ("QuotaTransfer", object, under_way(object)));
    for (kind, object, wrong) in subnamespaces.chain(transfers) {
        found.judges(SETTLED);
        let (metadata, status) = (&object["metadata"], &object["status"]);
        if let Some(wrong) = wrong {
            let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
            let what =
                format!("{kind} {namespace}/{name} {wrong}: {} {}", status["phase"], status["conditions"]);
            found.add(SETTLED, &what);
        }
    }
}

/// What there is when all is done.
struct TheEnd<'a> {
    history: &'a History,
    revision: u64,
    now: Timestamp,
}

impl<'a> TheEnd<'a> {
    fn all(&self, kind: &str) -> impl Iterator<Item = &'a Value> {
        self.history.all(kind).filter_map(|versions| versions.last()?.1.as_deref())
    }

    /// Why a Subnamespace has not come to an end; none if it has.
    fn unsettled(&self, object: &Value) -> Option<&'static str> {
        if is_going(object) {
            return (!self.stays(object))
                .then_some("is being deleted, and nothing is left that it waits for");
        }
        let status = &object["status"];
        if status["observedGeneration"] != object["metadata"]["generation"] {
            return Some("says nothing of what was last asked for");
        }
        match status["phase"].as_str() {
            Some("Ready") if self.namespace(object).is_none_or(is_going) => {
                Some("is Ready without a namespace")
            }
            Some("Ready" | "Refused") => None,
            _ => Some("is neither Ready nor Refused"),
        }
    }

    /// The namespace that a Subnamespace created.
    fn namespace(&self, object: &Value) -> Option<&'a Value> {
        let name = text(&object["metadata"]["name"]);
        let own = self.history.at("namespaces", "", name, self.revision)?;
        (own["metadata"]["uid"] == object["status"]["namespaceUid"]).then_some(&**own)
    }

    /// Whether there is a reason that one stays that is being deleted: another one below it, to whose deletion nobody consents, or which
    /// stays itself; or people have deleted more in its tree than the budget of that has; or, once its namespace is being deleted, a pod
    /// that has not stopped.
    fn stays(&self, object: &Value) -> bool {
        let name = text(&object["metadata"]["name"]);
        let Some(own) = self.namespace(object) else { return false };
        if is_going(own) {
            return !self.history.list("pods", name, self.revision).is_empty();
        }
        let mut below = self.history.list("subnamespaces", name, self.revision).into_iter();
        below.any(|child| {
            if is_going(child) {
                self.stays(child)
            } else {
                !consents(self.history, name, self.now, self.revision)
            }
        }) || is_overrun(self.history, name, self.revision)
    }
}

/// Why a transfer has not come to an end; none if it has, or if it waits for somebody's approval.
fn under_way(transfer: &Value) -> Option<&'static str> {
    let (spec, source) = (&transfer["spec"], &transfer["metadata"]["namespace"]);
    let ended = transfer["status"]["endedAt"].is_string();
    if is_going(transfer) {
        return Some("is being deleted, and nothing is left that it waits for");
    }
    let awaits_approval =
        spec["approvedBy"].is_null() && spec["through"] != spec["to"] && spec["through"] != *source;
    (!ended && !awaits_approval).then_some("has not ended")
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
