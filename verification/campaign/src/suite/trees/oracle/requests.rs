//! Whether people have, when all is done, what they asked for last, or cannot have it: by what native quotas are, and have unused.

use std::collections::BTreeSet;

use coppice_api::names::TREE_QUOTA_NAME;
use coppice_sim::run::RunRecord;
use serde_json::Value;

use super::limits::{Amounts, Trees, amounts, get, refused};
use super::rule::{AS_REQUESTED, REFUSED};
use crate::oracle::{Findings, History};

pub(super) fn check(record: &RunRecord<'_>, history: &History, trees: &Trees, found: &mut Findings) {
    let Some(last) = record.changes.last().map(|change| change.revision) else { return };
    let given = given(record);
    for versions in history.all("subnamespaces") {
        let Some(object) = versions.last().and_then(|(_, object)| object.as_deref()) else { continue };
        let metadata = &object["metadata"];
        if metadata["deletionTimestamp"].is_string() {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (parent, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let (asked, has) = (amounts(&object["spec"]["quota"]["hard"]), trees.has(&name));
        match object["status"]["phase"].as_str() {
            // What was transferred counts beside what was asked for.
            Some("Ready") if !given.contains(&name) => {
                found.judges(AS_REQUESTED);
                if !same(&asked, &has) {
                    let what =
                        format!("Subnamespace {parent}/{name} is Ready with {has:?}, and asks for {asked:?}");
                    found.add(AS_REQUESTED, &what);
                }
            }
            // Not what was begun, given up, and is tried again later.
            Some("Refused") if refused(object) && !object["status"]["refused"].is_object() => {
                found.judges(REFUSED);
                let unused = |namespace: &str| {
                    history.at("resourcequotas", namespace, TREE_QUOTA_NAME, last).map(|quota| unused(quota))
                };
                let (above, own) = (unused(&parent).unwrap_or_default(), unused(&name).unwrap_or_default());
                if asked.iter().all(|(resource, wanted)| {
                    let now = get(&has, resource);
                    let more = wanted.checked_sub(now).unwrap_or_default();
                    let less = now.checked_sub(*wanted).unwrap_or_default();
                    more <= get(&above, resource) && less <= get(&own, resource)
                }) {
                    let what = format!(
                        "Subnamespace {parent}/{name} is refused {asked:?}, and has {has:?}; unused are {above:?} above and \
                         {own:?} in it"
                    );
                    found.add(REFUSED, &what);
                }
            }
            _ => {}
        }
    }
}

/// The namespaces that transfers may have changed.
fn given(record: &RunRecord<'_>) -> BTreeSet<String> {
    let transfers = record.changes.iter().filter(|change| &*change.kind.plural == "quotatransfers");
    let mut given = BTreeSet::new();
    for change in transfers {
        let spec = change.after.as_deref().or(change.before.as_deref()).map(|object| &object["spec"]);
        let to = spec.and_then(|spec| spec["to"].as_str()).unwrap_or_default();
        // Each of their ways leads through namespaces whose names theirs begin with.
        for end in [change.namespace(), to] {
            let parts: Vec<&str> = end.split('-').collect();
            given.extend((1..=parts.len()).map(|n| parts[..n].join("-")));
        }
    }
    given
}

fn unused(quota: &Value) -> Amounts {
    let (own, used) = (amounts(&quota["spec"]["hard"]), amounts(&quota["status"]["used"]));
    let left = |(name, own): (String, coppice_quantity::Quantity)| {
        let left = own.checked_sub(get(&used, &name)).unwrap_or_default();
        (name, left)
    };
    own.into_iter().map(left).collect()
}

fn same(one: &Amounts, other: &Amounts) -> bool {
    one.keys().chain(other.keys()).all(|name| get(one, name) == get(other, name))
}
