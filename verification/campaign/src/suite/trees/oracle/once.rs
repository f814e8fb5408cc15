//! Whether what was transferred is transferred again.

use std::collections::BTreeMap;

use coppice_sim::run::RunRecord;

use super::super::ACCOUNT;
use super::rule::MOVED_ONCE;
use crate::oracle::{Findings, History};

pub(super) fn check(record: &RunRecord<'_>, history: &History, found: &mut Findings) {
    let mut moved: BTreeMap<String, &str> = BTreeMap::new();
    for change in record.changes {
        let written = &*change.kind.plural == "quotatransfers" && &*change.user == ACCOUNT;
        let Some(after) = change.after.as_deref().filter(|_| written) else { continue };
        let conditions = after["status"]["conditions"].as_array();
        if !conditions.into_iter().flatten().any(|condition| condition["reason"] == "QuotaMoved") {
            continue;
        }
        found.judges(MOVED_ONCE);
        let (source, name, spec) = (change.namespace(), change.name(), &after["spec"]);
        let uid = |namespace| history.uid_of(namespace, change.revision);
        let ends = (uid(source), spec["to"].as_str().and_then(uid));
        let what = format!("{name} from {source} {ends:?}: {} to {}", spec["amount"], spec["to"]);
        let first = *moved.entry(what).or_insert(&change.uid);
        if first != &*change.uid {
            found.add(
                MOVED_ONCE,
                &format!("QuotaTransfer {source}/{name} has moved what one of its name had moved"),
            );
        }
    }
}
