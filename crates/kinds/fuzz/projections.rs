//! What must hold of every projection, whatever an object is. Run over the corpus by `make test` (`tests/corpus.rs`), and
//! over what the fuzzer thinks of by `make fuzz`.

use coppice_kinds::{
    Claims, ClusterManagers, Configs, DaemonSets, DeletedNamespaces, Deployments, Jobs, LimitRanges,
    MAX_PROPAGATE_TO, ManagedNamespaces, Managers, NamespaceTrees, Namespaces, NetworkPolicies, Pods,
    Propagated, QuotaTransfers, ReplicaSets, RoleBindings, StatefulSets, Subnamespaces, TreeQuotas,
};
use coppice_lifecycle::health::facts::{FailureReport, WorkloadFacts};
use coppice_runtime::decode::{self, Event, Item, MAX_KEPT_BYTES};
use coppice_runtime::kind::Kind;
use serde_json::{Value, json};

/// Takes any bytes: as an answer, as an event and, where they are a JSON object, as an object among others.
pub(crate) fn hold(data: &[u8]) {
    let bytes = |labels: &coppice_api::Labels| labels.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    // Of annotations each is cut: as many are kept as are asked for.
    each::<Namespaces>(data, |namespace| bytes(&namespace.labels));
    each::<Pods>(data, |pod| bytes(&pod.labels) + pod.job.as_ref().map_or(0, |uid| uid.len()));
    each::<Jobs>(data, |job| bytes(&job.pod_labels));
    // What their health depends on is limited by itself.
    each::<Pods>(data, |pod| format!("{:?}", pod.health).chars().count());
    each::<Jobs>(data, |job| format!("{:?}", job.health).chars().count());
    let text =
        |report: &Option<FailureReport>| report.as_ref().map_or(0, |report| report.message.chars().count());
    let set = |set: &WorkloadFacts| text(&set.refused) + format!("{:?}", set.owner).chars().count();
    each::<Deployments>(data, set);
    each::<ReplicaSets>(data, set);
    each::<StatefulSets>(data, set);
    each::<DaemonSets>(data, set);
    each::<Claims>(data, |_| 0);
    each::<TreeQuotas>(data, |_| 0);
    let copied = |object: &Propagated| {
        assert!(object.propagate_to.as_ref().is_none_or(|to| to.len() <= MAX_PROPAGATE_TO + 4));
        object.content.as_ref().map_or(0, |content| content.len())
    };
    each::<LimitRanges>(data, copied);
    each::<NetworkPolicies>(data, copied);
    each::<RoleBindings>(data, copied);
    // Of these the size of spec is limited, and whatever they are, they are there.
    let own = [
        each::<ClusterManagers>(data, |_| 0),
        each::<Configs>(data, |_| 0),
        each::<DeletedNamespaces>(data, |_| 0),
        each::<ManagedNamespaces>(data, |_| 0),
        each::<Managers>(data, |_| 0),
        each::<NamespaceTrees>(data, |_| 0),
        each::<QuotaTransfers>(data, |_| 0),
        each::<Subnamespaces>(data, |_| 0),
    ];
    for object_ref in own.into_iter().flatten() {
        assert!(object_ref.name.is_empty(), "{object_ref:?} is not kept");
    }
}

/// Where the object is, if it is one and is not understood.
fn each<K: Kind>(data: &[u8], kept: impl Fn(&K::Object) -> usize) -> Option<decode::ObjectRef> {
    let context = K::Context::default();
    let (_, _) = (decode::page::<K>(data, &context).is_ok(), decode::event::<K>(data, &context).is_ok());
    let object: Value = serde_json::from_slice(data).ok().filter(Value::is_object)?;
    let neighbour = json!({"metadata": {"name": "coppice", "namespace": "n", "generation": 1}, "spec": {"replicas": 3},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 3}});
    let list = json!({"metadata": {"resourceVersion": "1"}, "items": [neighbour, object, neighbour]});
    let page =
        decode::page::<K>(list.to_string().as_bytes(), &context).expect("an object does not fail its page");
    let (before, found, after) = match page.items.as_slice() {
        [before, found, after] => (before, found, after),
        [before, after] if before.object.is_ok() && after.object.is_ok() => {
            let event = json!({"type": "ADDED", "object": object}).to_string();
            let event =
                decode::event::<K>(event.as_bytes(), &context).expect("an object does not fail its event");
            assert!(matches!(event, Event::Unwanted(_)), "{event:?} in an event, nothing in a page");
            return None;
        }
        items => panic!("{} objects", items.len()),
    };
    assert!(before.object.is_ok() && after.object.is_ok(), "an object hides its neighbours");
    for kind in ["ADDED", "MODIFIED"] {
        let event = json!({"type": kind, "object": object}).to_string();
        let event =
            decode::event::<K>(event.as_bytes(), &context).expect("an object does not fail its event");
        let Event::Changed(item) = event else { panic!("{event:?}") };
        assert!(item == *found, "{item:?} in an event, {found:?} in a page");
    }
    let event = json!({"type": "DELETED", "object": object}).to_string();
    let event = decode::event::<K>(event.as_bytes(), &context).expect("an object does not fail its end");
    let Event::Deleted(gone) = event else { panic!("{event:?}") };
    let Item { object_ref, object: read } = found;
    assert_eq!((&gone.name, &gone.revision), (&object_ref.name, &object_ref.revision));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    assert_eq!(&*object_ref.name, name, "what cannot be understood still has its name");
    match read {
        Ok(read) => {
            assert_eq!(K::name(read), name);
            assert!(kept(read) <= MAX_KEPT_BYTES, "too much is kept");
            None
        }
        Err(unreadable) => {
            assert!(*unreadable.name == *name && unreadable.detail.len() < 1000, "{unreadable}");
            Some(object_ref.clone())
        }
    }
}
