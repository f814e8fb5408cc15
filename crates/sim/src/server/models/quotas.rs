//! The quota controller: it copies `spec.hard` into `status.hard`, and counts what is used of it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::quota::is_scoped;
use super::super::quota::usage::{Amounts, add, usage, used_by};
use super::super::{ObjectKey, Server};
use super::Requeue;
use super::support::{ControllerUser, find, kind};

const USER: &str = "system:serviceaccount:kube-system:resourcequota-controller";

/// Writes what a quota allows and what is used of it.
pub(super) fn count(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some((quotas, quota)) = find(server, "", "resourcequotas", key) else { return Requeue::No };
    let hard = quota["spec"]["hard"].clone();
    let mut used = Map::new();
    if !is_scoped(&quota) {
        let names = || hard.as_object().into_iter().flatten().map(|(name, _)| name);
        let kinds: BTreeSet<(&str, &str)> = names().filter_map(|name| used_by(name)).collect();
        for of in kinds {
            let Some(sum) = sum(server, key.namespace(), of, now) else { continue };
            for name in names().filter(|name| used_by(name) == Some(of)) {
                used.insert(name.clone(), json!(sum.get(name).copied().unwrap_or_default()));
            }
        }
    }
    let done = who.status(server, &quotas, &quota, |status| {
        if hard.is_null() {
            status.remove("hard");
            status.remove("used");
            return;
        }
        status.insert("hard".to_owned(), hard);
        status.insert("used".to_owned(), Value::Object(used));
    });
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}

/// What the objects of a kind use in a namespace; none if there is no such kind.
fn sum(server: &Server, namespace: &str, (group, plural): (&str, &str), now: Timestamp) -> Option<Amounts> {
    let store = match kind(server, group, plural) {
        Some(kind) => kind.store,
        None => server.kinds.served().find(|k| k.group == group && k.plural == plural)?.store,
    };
    let mut sum = Amounts::new();
    for (_, object) in server.store.range(store, namespace, None) {
        add(&mut sum, &usage((group, plural), object, now));
    }
    Some(sum)
}
