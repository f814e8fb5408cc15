//! The quota controller, for numbers of objects: `pods`, `configmaps`, `count/jobs.batch`. Amounts such as
//! `requests.cpu` are not summed up, and nothing is said of them.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::super::{ObjectKey, Server};
use super::Requeue;
use super::support::{ControllerUser, alive, find, kind};

const USER: &str = "system:serviceaccount:kube-system:resourcequota-controller";

/// Core resources that are counted under their own name.
const PLAIN: [&str; 8] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
];

/// Writes what a quota allows and what is used of it.
pub(super) fn count(server: &mut Server, now: Timestamp, key: &ObjectKey) -> Requeue {
    let who = ControllerUser::new(USER, now);
    let Some((quotas, quota)) = find(server, "", "resourcequotas", key) else { return Requeue::No };
    let hard = quota["spec"]["hard"].clone();
    let mut used = Map::new();
    for resource in hard.as_object().into_iter().flatten().map(|(resource, _)| resource) {
        if let Some(number) = number(server, key.namespace(), resource) {
            used.insert(resource.clone(), Value::String(number.to_string()));
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

/// Objects that a resource of a quota is the number of.
pub(in super::super) struct Counted<'a> {
    /// The group of their kind.
    pub(in super::super) group: &'a str,
    /// The plural of their kind.
    pub(in super::super) plural: &'a str,
    /// Whether pods that have ended count.
    ended: bool,
}

impl<'a> Counted<'a> {
    /// By the name of the resource; none if it is not a number of objects.
    pub(in super::super) fn of(resource: &'a str) -> Option<Self> {
        match resource.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                Some(Self { group, plural, ended: true })
            }
            None if PLAIN.contains(&resource) => Some(Self { group: "", plural: resource, ended: false }),
            None => None,
        }
    }
}

/// How many objects of a resource there are in a namespace; none if the resource is not a number of objects.
fn number(server: &Server, namespace: &str, resource: &str) -> Option<usize> {
    let Counted { group, plural, ended } = Counted::of(resource)?;
    let store = match kind(server, group, plural) {
        Some(kind) => kind.store,
        None => server.kinds.served().find(|k| k.group == group && k.plural == plural)?.store,
    };
    let objects = server.store.range(store, namespace, None);
    // A pod that has ended uses nothing, except as an object.
    Some(objects.filter(|(_, o)| ended || plural != "pods" || alive(o)).count())
}
