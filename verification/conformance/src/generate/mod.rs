//! Sequences of requests, from a seed.

mod quotas;
mod writes;

use coppice_runtime::clock::SeededRng;
use serde_json::{Value, json};

use super::bodies::{RESOURCES, Resource, corrupt, corrupt_content};
use super::step::{Call, RequestSpec, SequenceStep, State};

/// Steps that belong together.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// What they were made from.
    pub seed: u64,
    /// They need the one object that there is of a kind in the cluster: not to be played beside another such sequence.
    pub exclusive: bool,
    /// In order.
    pub steps: Vec<SequenceStep>,
}

/// Choices from a seed.
#[derive(Debug)]
pub(super) struct Choices(SeededRng);

impl Choices {
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        // The remainder is smaller than the limit, so that it fits.
        usize::try_from(self.next_u64() % (limit.max(1) as u64)).unwrap_or_default()
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }
}

/// Of sixteen seeds this one is about quotas.
const QUOTAS: u64 = 5;

/// A sequence of about so many steps.
pub fn sequence(seed: u64, length: usize) -> Sequence {
    let mut maker = SequenceGenerator {
        choices: Choices(SeededRng::new(seed)),
        steps: Vec::new(),
        next: 0,
        earlier_requests: Vec::new(),
        config: seed.is_multiple_of(9),
        preferred: Vec::new(),
    };
    maker.begin();
    if seed % 16 == QUOTAS {
        maker.quotas();
    }
    while maker.steps.len() < length {
        maker.any();
    }
    if seed.is_multiple_of(4) {
        maker.wake();
    }
    maker.end();
    Sequence { seed, exclusive: maker.config, steps: maker.steps }
}

/// A request about an object, to which later ones refer.
struct EarlierRequest {
    resource: &'static Resource,
    name: String,
    step: usize,
}

struct SequenceGenerator {
    choices: Choices,
    steps: Vec<SequenceStep>,
    next: usize,
    earlier_requests: Vec<EarlierRequest>,
    config: bool,
    /// The few resources that this sequence is about, so that its requests meet.
    preferred: Vec<&'static Resource>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl SequenceGenerator {
    fn push(&mut self, call: Call) -> usize {
        self.next += 1;
        self.steps.push(SequenceStep { id: self.next, call });
        self.next
    }

    fn ask(&mut self, method: &str, uri: impl Into<String>, body: Value) -> usize {
        self.push(Call::RequestSpec(RequestSpec::new(method, uri, body)))
    }

    fn until(&mut self, uri: impl Into<String>, state: State) {
        self.push(Call::Until { uri: uri.into(), state });
    }

    fn begin(&mut self) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${ns}"}});
        self.ask("POST", "/api/v1/namespaces", namespace);
        self.until("/api/v1/namespaces/${ns}/serviceaccounts/default", State::There);
        self.until("/api/v1/namespaces/${ns}/configmaps/kube-root-ca.crt", State::There);
        let all: Vec<&Resource> = RESOURCES.iter().flat_map(|r| std::iter::repeat_n(r, r.weight)).collect();
        self.preferred = (0..3).map(|_| self.choices.of(&all)).collect();
        if self.config {
            let config = RESOURCES.iter().filter(|r| !r.namespaced);
            self.preferred = config.chain(self.preferred.iter().copied().take(1)).collect();
            self.push(Call::Clear { uri: "/apis/coppice.dev/v1alpha1/coppiceconfigs/coppice".to_owned() });
        }
    }

    fn end(&mut self) {
        if self.choices.one_in(5) {
            self.terminate();
        }
    }

    /// The namespace goes, and what is in it; and is made again.
    fn terminate(&mut self) {
        let namespace = "/api/v1/namespaces/${ns}";
        let mut met: Vec<String> =
            self.earlier_requests.iter().map(|t| Self::one(t.resource, &t.name)).collect();
        met.sort();
        met.dedup();
        for uri in met {
            self.ask("PATCH merge", uri, json!({"metadata": {"finalizers": null}}));
        }
        let held = self.choices.one_in(4);
        if held {
            let object = json!({"metadata": {"name": "held", "finalizers": ["x.io/held"]}});
            self.ask("POST", format!("{namespace}/configmaps"), object);
        }
        self.delete_as_read(namespace);
        self.ask("DELETE", namespace, Value::Null);
        for _ in 0..2 {
            // Nothing that could add a finalizer: the namespace would stay.
            let (resource, name) = (self.choices.of(&self.preferred.clone()), self.choices.of(&NAMES));
            self.create(resource, name);
            self.get(resource, name);
            self.list(resource);
        }
        self.ask("GET", namespace, Value::Null);
        if held {
            self.until(namespace, State::Condition("NamespaceFinalizersRemaining"));
            let patch = json!({"metadata": {"finalizers": null}});
            self.ask("PATCH merge", format!("{namespace}/configmaps/held"), patch);
        }
        self.until(namespace, State::Gone);
        self.any_request();
        self.ask("GET", format!("{namespace}/configmaps"), Value::Null);
        let again = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${ns}"}});
        self.ask("POST", "/api/v1/namespaces", again);
    }

    /// One request, or some that belong together.
    fn any(&mut self) {
        match self.choices.below(20) {
            0 => self.watch(),
            1 => self.pages(),
            2 => self.namespace(),
            _ => self.any_request(),
        }
    }

    fn any_request(&mut self) {
        let resource = self.choices.of(&self.preferred.clone());
        let name = if !resource.namespaced && !self.choices.one_in(8) {
            "coppice".to_owned()
        } else {
            let name = self.choices.of(&NAMES);
            // Of Events that are written through both groups, the real server notes which it was: that makes a revision
            // also where nothing is different. The server in memory does not; here each group has names of its own.
            if resource.api_version == "events.k8s.io/v1" { format!("new-{name}") } else { name.to_owned() }
        };
        match self.choices.below(26) {
            0..6 => self.create(resource, &name),
            6..8 => self.get(resource, &name),
            8..10 => self.list(resource),
            10..14 => self.update(resource, &name),
            14..18 => self.patch(resource, &name),
            18..21 => self.apply(resource, &name),
            21..23 => self.subresource(resource, &name),
            23 if self.choices.one_in(2) => self.delete_all(resource),
            _ => self.delete(resource, &name),
        }
        self.settle(resource, &name);
    }

    /// Where other controllers write too, it is waited until they are done: the next request meets the same on both
    /// sides.
    fn settle(&mut self, resource: &'static Resource, name: &str) {
        let state = match resource.kind {
            "Deployment" => State::Settled,
            "Job" => State::Suspended,
            "ResourceQuota" => State::Counted,
            _ => return,
        };
        self.until(format!("{}/{name}", resource.path()), state);
    }

    fn one(resource: &Resource, name: &str) -> String {
        format!("{}/{name}", resource.path())
    }

    fn touch(&mut self, resource: &'static Resource, name: &str, step: usize) {
        self.earlier_requests.push(EarlierRequest { resource, name: name.to_owned(), step });
    }

    /// A field of what an earlier request about an object answered; the latest one, or any.
    fn earlier(&mut self, resource: &Resource, name: &str, field: &str, latest: bool) -> String {
        let steps: Vec<usize> = self
            .earlier_requests
            .iter()
            .filter(|t| t.name == name && std::ptr::eq(t.resource, resource))
            .map(|t| t.step)
            .collect();
        let step =
            if latest { steps.last().copied() } else { Some(self.choices.of(&[&steps[..], &[0]].concat())) };
        step.map_or("1".to_owned(), |step| format!("${{{step}/metadata/{field}}}"))
    }

    /// An object: right mostly.
    fn object(&mut self, resource: &Resource, name: &str) -> Value {
        if resource.is_custom() && self.choices.one_in(2) {
            return resource.mutant(name, &mut self.choices);
        }
        let mut object = resource.object(name, &mut self.choices);
        match self.choices.below(12) {
            0 => corrupt(&mut object, &mut self.choices),
            1 => corrupt_content(&mut object, &mut self.choices),
            2 => object["metadata"]["finalizers"] = json!(["x.io/held"]),
            _ => {}
        }
        object
    }

    /// The query of a write.
    fn options(&mut self) -> &'static str {
        match self.choices.below(16) {
            0 => "?dryRun=All",
            1 => "?fieldValidation=Strict",
            2 => "?fieldValidation=Ignore",
            3 => "?fieldManager=one",
            4 => self.choices.of(&["?dryRun=Some", "?fieldValidation=Perhaps", "?pretty=false"]),
            _ => "",
        }
    }

    fn create(&mut self, resource: &'static Resource, name: &str) {
        let mut body = self.object(resource, name);
        match self.choices.below(24) {
            // Others wait for objects by their names.
            0 if resource.namespaced && !resource.is_controlled() => {
                if let Some(metadata) = body["metadata"].as_object_mut() {
                    metadata.remove("name");
                    metadata.remove("finalizers");
                    metadata.insert("generateName".to_owned(), json!("gen-"));
                }
            }
            1 => {
                body =
                    self.choices.of(&[json!("{\"a\": "), json!("[]"), json!(" "), json!("{}"), json!("7")]);
            }
            _ => {}
        }
        let uri = format!("{}{}", resource.path(), self.options());
        let step = self.ask("POST", uri, body);
        self.touch(resource, name, step);
    }

    fn get(&mut self, resource: &'static Resource, name: &str) {
        let query = self.choices.of(&["", "", "?resourceVersion=0", "/status", "/nothing", "/scale"]);
        let step = self.ask("GET", format!("{}{query}", Self::one(resource, name)), Value::Null);
        if query.is_empty() {
            self.touch(resource, name, step);
        }
    }

    fn list(&mut self, resource: &'static Resource) {
        let earlier = self.earlier_list_revision(resource);
        // A cluster has more than one sequence is about.
        let own = "labelSelector=of%3D${ns}";
        let query = match self.choices.below(12) {
            0 => format!("{own}&limit=1"),
            1 => format!("{own}&resourceVersion={earlier}&resourceVersionMatch=Exact"),
            2 => format!("{own}&resourceVersion={earlier}&resourceVersionMatch=NotOlderThan"),
            3 => format!("{own}&resourceVersion={earlier}&limit=2"),
            4 => "labelSelector=color%3Dred,of%3D${ns}".to_owned(),
            5 => "labelSelector=color+notin+(red),of%3D${ns}".to_owned(),
            6 => format!("{own}&fieldSelector=metadata.name%3Da"),
            7 => format!("{own}&fieldSelector=metadata.name!%3Da,metadata.namespace%3D${{ns}}"),
            8 => self
                .choices
                .of(&[
                    "labelSelector=a+b",
                    "labelSelector=a+in+()",
                    "fieldSelector=spec.nothing%3D1",
                    "fieldSelector=metadata.name",
                    "limit=few",
                    "resourceVersion=soon",
                    "resourceVersionMatch=Exact",
                    "resourceVersion=1&resourceVersionMatch=Perhaps",
                    "continue=nonsense",
                    "resourceVersion=0&resourceVersionMatch=Exact",
                    "sendInitialEvents=true",
                ])
                .to_owned(),
            _ => own.to_owned(),
        };
        self.ask("GET", format!("{}?{query}", resource.path()), Value::Null);
    }

    fn earlier_list_revision(&mut self, resource: &'static Resource) -> String {
        let name = if resource.namespaced { self.choices.of(&NAMES) } else { "coppice" };
        self.earlier(resource, name, "resourceVersion", false)
    }

    /// Creates three of a kind, and reads them page by page; something is written in between.
    fn pages(&mut self) {
        let resource = &RESOURCES[0];
        for name in NAMES {
            let body = resource.object(name, &mut self.choices);
            self.ask("POST", resource.path(), body);
        }
        let uri = format!("{}?labelSelector=of%3D${{ns}}&limit=1", resource.path());
        let mut page = self.ask("GET", uri.clone(), Value::Null);
        for _ in 0..2 {
            if self.choices.one_in(2) {
                let name = self.choices.of(&NAMES);
                self.delete(resource, name);
            }
            page = self.ask("GET", format!("{uri}&continue=${{{page}/metadata/continue}}"), Value::Null);
        }
    }

    fn watch(&mut self) {
        let resource = self.choices.of(&self.preferred.clone());
        // Other controllers write as often as they like.
        if !resource.namespaced || resource.is_controlled() {
            return;
        }
        let path = match self.choices.below(3) {
            0 => resource.path().replace("/namespaces/${ns}", ""),
            _ => resource.path(),
        };
        let selector = self.choices.of(&["of%3D${ns}", "of%3D${ns},color%3Dred"]);
        // The last of all by name, too: whether it is still a part of the initial events is a race in the real server.
        let mut last = resource.object(&format!("zz-{:03}", self.next), &mut self.choices);
        last["metadata"]["labels"]["color"] = json!("red");
        let uri = format!("{path}?watch=true&labelSelector={selector}");
        let revision = self.earlier_list_revision(resource);
        let call = match self.choices.below(6) {
            0 => Call::Watch {
                uri: format!(
                    "{uri}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                ),
                last: None,
            },
            1 => Call::RequestSpec(RequestSpec::new(
                "GET",
                format!(
                    "{path}?watch=true&{}",
                    self.choices.of(&[
                        "resourceVersion=soon",
                        "sendInitialEvents=true",
                        "resourceVersionMatch=NotOlderThan",
                        "labelSelector=a+b",
                        "fieldSelector=spec.nothing%3D1",
                    ])
                ),
                Value::Null,
            )),
            _ => Call::Watch {
                uri: format!("{uri}&resourceVersion={revision}"),
                last: Some(RequestSpec::new("POST", resource.path(), last)),
            },
        };
        self.push(call);
    }

    /// Requests about the namespace itself.
    fn namespace(&mut self) {
        let one = "/api/v1/namespaces/${ns}";
        match self.choices.below(6) {
            0 => {
                self.ask("GET", one, Value::Null);
            }
            1 => {
                let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "${ns}"}});
                self.ask("POST", "/api/v1/namespaces", body);
            }
            2 => {
                let patch =
                    json!({"metadata": {"labels": {"of": "${ns}", "x": self.choices.of(&["1", "2"])}}});
                self.ask("PATCH merge", one, patch);
                self.ask("GET", "/api/v1/namespaces?labelSelector=of%3D${ns}", Value::Null);
            }
            3 => {
                let patch = json!({"spec": {"finalizers": []}, "status": {"phase": "Terminating"}});
                self.ask("PATCH merge", one, patch);
            }
            4 => {
                let read = self.ask("GET", one, Value::Null);
                let body = json!({"preconditions": {"uid": format!("${{{read}/metadata/uid}}"), "resourceVersion": "1"}});
                self.ask("DELETE", one, body);
            }
            _ => {
                let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                    "name": self.choices.of(&["Not-A-Name", "a.b", "", "default"]),
                }});
                self.ask("POST", "/api/v1/namespaces", body);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_sequence() {
        assert_eq!(sequence(7, 30).steps, sequence(7, 30).steps);
        assert_ne!(sequence(7, 30).steps, sequence(8, 30).steps);
    }

    #[test]
    fn sequences_ask_in_every_way() {
        let mut methods: Vec<String> = (0..60)
            .flat_map(|seed| sequence(seed, 30).steps)
            .filter_map(|step| match step.call {
                Call::RequestSpec(ask) => Some(ask.method),
                Call::Watch { .. } => Some("WATCH".to_owned()),
                _ => None,
            })
            .collect();
        methods.sort();
        methods.dedup();
        let all = [
            "DELETE",
            "GET",
            "PATCH apply",
            "PATCH json",
            "PATCH merge",
            "PATCH other",
            "PATCH strategic",
            "POST",
            "PUT",
            "WATCH",
        ];
        assert_eq!(methods, all);
    }
}
