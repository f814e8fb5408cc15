//! A definition that is deleted takes its objects along, and goes when they are gone.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::super::crd::CLEANUP;
use super::super::{ObjectKey, SYSTEM, Server, meta};
use super::Requeue;
use super::support::{ControllerUser, find};

/// How long to wait for objects that others hold.
const PAUSE: i64 = 5;

pub(super) fn clean_up(server: &mut Server, now: Timestamp, name: &str) -> Requeue {
    let who = ControllerUser::new(SYSTEM, now);
    let Some((kind, definition)) =
        find(server, "apiextensions.k8s.io", "customresourcedefinitions", &ObjectKey::new("", name))
    else {
        return Requeue::No;
    };
    if !meta::deleting(&definition) || !meta::finalizers(&definition).any(|f| f == CLEANUP) {
        return Requeue::No;
    }
    let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
    let custom = server.kinds.served().find(|k| *group == *k.group && *plural == *k.plural).cloned();
    if let Some(custom) = custom {
        let objects: Vec<Arc<Value>> =
            server.store.range(custom.store, "", None).map(|(_, o)| o.clone()).collect();
        for object in objects.iter().filter(|o| !meta::deleting(o)) {
            // One that is gone already is as good.
            let _gone = who.sweep(server, &custom, object);
        }
        if server.store.len(custom.store) > 0 {
            return Requeue::At(meta::later(now, PAUSE));
        }
    }
    let done = who.update(server, &kind, &definition, |definition| {
        let rest = meta::finalizers(definition).filter(|f| *f != CLEANUP).map(Value::from).collect();
        meta::set_finalizers(definition, rest);
    });
    if done.is_ok() { Requeue::No } else { Requeue::AfterFailure }
}
