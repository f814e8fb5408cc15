//! Whether the admission webhook turns nobody away who could have what they ask for.

use coppice_api::names::{ANNOTATION_LEDGER, TREE_QUOTA_NAME};
use coppice_quantity::Quantity;
use coppice_sim::run::RunRecord;
use coppice_sim::{AskedWebhook, WebhookAnswer};
use serde_json::Value;

use super::limits::{amounts, get};
use super::rule::DENIED;
use crate::oracle::{Findings, History};

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    for asked in record.asked.iter().filter(|asked| asked.write.resource == "subnamespaces") {
        let WebhookAnswer::Denied(replica, message) = &asked.answer else { continue };
        // What else is denied follows from what is written alone.
        if !message.starts_with("QuotaRefused: ") {
            continue;
        }
        found.judges(DENIED);
        if !cannot_be_given(history, asked) {
            let (parent, name) = (&asked.write.namespace, &asked.write.name);
            let what = format!("replica {replica} denies {parent}/{name} what it could have: {message}");
            found.add(DENIED, &what);
        }
    }
}

/// Whether, as long as the webhook was asked, there was a moment at which the namespace above did not have as much to give, or more was
/// used. What is read one after another may be of different moments.
fn cannot_be_given(history: &History, asked: &AskedWebhook) -> bool {
    let (parent, name) = (&*asked.write.namespace, &*asked.write.name);
    let revisions = history.revisions_between(asked.during.0, asked.during.1);
    let moments: Vec<[Option<NativeQuota<'_>>; 2]> =
        revisions.map(|revision| [parent, name].map(|of| NativeQuota::at(history, of, revision))).collect();
    amounts(&asked.write.object["spec"]["quota"]["hard"]).into_iter().any(|(resource, wanted)| {
        let above = moments.iter().map(|[above, _]| above.map(|quota| quota.unused(&resource)));
        let own = moments.iter().map(|[_, own]| own.map(|quota| quota.allotted(&resource)));
        let used = moments.iter().filter_map(|[_, own]| own.map(|quota| quota.least(&resource)));
        let most = above.min().flatten().unwrap_or_default();
        let has = own.min().flatten().unwrap_or_default();
        most.checked_add(has).is_none_or(|most| wanted > most) || used.max().is_some_and(|used| wanted < used)
    })
}

/// A quota of a tree.
#[derive(Clone, Copy)]
struct NativeQuota<'a>(&'a Value);

impl<'a> NativeQuota<'a> {
    fn at(history: &'a History, namespace: &str, revision: u64) -> Option<Self> {
        history.at("resourcequotas", namespace, TREE_QUOTA_NAME, revision).map(|quota| Self(quota))
    }

    fn used(self, name: &str) -> Quantity {
        get(&amounts(&self.0["status"]["used"]), name)
    }

    /// What of the own quota is in force and not used.
    fn unused(self, name: &str) -> Quantity {
        let [wanted, in_force] = ["spec", "status"].map(|part| get(&amounts(&self.0[part]["hard"]), name));
        wanted.min(in_force).checked_sub(self.used(name)).unwrap_or_default().max(Quantity::default())
    }

    fn allotted(self, name: &str) -> Quantity {
        let ledger = self.0["metadata"]["annotations"][ANNOTATION_LEDGER].as_str().unwrap_or_default();
        let ledger: Value = serde_json::from_str(ledger).unwrap_or_default();
        get(&amounts(&ledger["allotment"]), name)
    }

    /// What pods use, and what others below have.
    fn least(self, name: &str) -> Quantity {
        let own = get(&amounts(&self.0["spec"]["hard"]), name);
        let below = self.allotted(name).checked_sub(own).unwrap_or_default();
        below.checked_add(self.used(name)).unwrap_or_default()
    }
}
