//! An API server of a few objects, whose writes end as a test says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coppice_runtime::client::Clients;
use coppice_runtime::kind::Kind;
use coppice_runtime::read;
use coppice_runtime::server_clock::ServerClock;
use http::Method;
use serde_json::{Map, Value, json};

use crate::{Answer, Sent, connected};

/// How a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAnswer {
    /// It is done, unless the object is not as the write requires.
    Done,
    /// The same, and the answer says that it timed out.
    Lost,
    /// Somebody else has changed the object right before it.
    Conflict,
    /// Somebody else has deleted the object right before it.
    Gone,
    /// It is refused with this code.
    Refused(u16),
    /// It is refused, since its namespace is being deleted.
    NamespaceTerminating,
    /// There is no answer, and it is not done.
    Never,
}

/// An API server of a few objects. Clones share it.
#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By resource (with the path of its group), namespace and name.
    objects: BTreeMap<(String, String, String), Value>,
    answers: VecDeque<WriteAnswer>,
    requests: Option<Arc<Mutex<Vec<Sent>>>>,
    revision: u64,
}

/// What a path names.
struct Target {
    /// The resource, with the path of its group.
    resource: String,
    namespace: String,
    /// Empty for all of them.
    name: String,
    is_status: bool,
}

impl Target {
    fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let group = if parts.first() == Some(&"api") { 2 } else { 3 };
        let (group, rest) = parts.split_at(group.min(parts.len()));
        let (namespace, rest) = match rest {
            ["namespaces", namespace, resource, ..] if *resource != "status" => (*namespace, &rest[2..]),
            rest => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default().to_owned();
        Self {
            resource: format!("/{}/{}", group.join("/"), part(0)),
            namespace: namespace.to_owned(),
            name: part(1),
            is_status: part(2) == "status",
        }
    }

    fn key(&self) -> (String, String, String) {
        (self.resource.clone(), self.namespace.clone(), self.name.clone())
    }
}

impl Server {
    /// One that has nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clients of it, and its clock.
    pub fn clients(&self) -> (Clients, ServerClock) {
        let state = Arc::clone(&self.0);
        let (clients, server_clock, requests) = connected(move |method, path, body| {
            state.lock().unwrap_or_else(PoisonError::into_inner).answer(method, path, body)
        });
        self.state().requests = Some(requests);
        (clients, server_clock)
    }

    /// Has this object from now on. A uid, a revision and a time of creation are added to it.
    pub fn put<K: Kind>(&self, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let path = format!("{}/{}", read::path::<K>(&text("namespace")), text("name"));
        self.state().insert(&Target::of(&path), object);
    }

    /// Has this object of a kind that is not watched, at this path.
    pub fn put_at(&self, path: &str, object: Value) {
        self.state().insert(&Target::of(path), object);
    }

    /// Has no such object any more.
    pub fn remove<K: Kind>(&self, namespace: &str, name: &str) {
        let path = format!("{}/{name}", read::path::<K>(namespace));
        self.state().objects.remove(&Target::of(&path).key());
    }

    /// An object as it is; null if there is none.
    pub fn object<K: Kind>(&self, namespace: &str, name: &str) -> Value {
        let path = format!("{}/{name}", read::path::<K>(namespace));
        self.state().objects.get(&Target::of(&path).key()).cloned().unwrap_or_default()
    }

    /// The next writes end like this; all others are done, and so are Events, which are written beside them in no certain order.
    pub fn answer_writes(&self, answers: impl IntoIterator<Item = WriteAnswer>) {
        self.state().answers.extend(answers);
    }

    /// The writes that were asked for since the last call.
    pub fn writes(&self) -> Vec<Sent> {
        let state = self.state();
        let Some(requests) = &state.requests else { return Vec::new() };
        let mut all = std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner));
        all.retain(|sent| sent.method != Method::GET);
        all
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> Answer {
        let mut target = Target::of(path);
        if *method == Method::GET {
            return self.read(&target);
        }
        if *method == Method::POST {
            body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut target.name);
        }
        let next = if path.contains("/events.k8s.io/") { None } else { self.answers.pop_front() };
        let answer = next.unwrap_or(WriteAnswer::Done);
        match answer {
            WriteAnswer::Done => self.write(method, &target, body),
            WriteAnswer::Lost => match self.write(method, &target, body) {
                Answer::Object(..) => Answer::Refused(504),
                other => other,
            },
            WriteAnswer::Conflict => {
                let newer = self.next_revision();
                if let Some(object) = self.objects.get_mut(&target.key()) {
                    object["metadata"]["resourceVersion"] = newer;
                }
                Answer::Refused(409)
            }
            WriteAnswer::Gone => {
                self.objects.remove(&target.key());
                Answer::Refused(404)
            }
            WriteAnswer::Refused(code) => Answer::Refused(code),
            WriteAnswer::NamespaceTerminating => terminating(&target.namespace),
            WriteAnswer::Never => Answer::Never,
        }
    }

    fn read(&self, target: &Target) -> Answer {
        if !target.name.is_empty() {
            let found = self.objects.get(&target.key());
            return found.map_or(Answer::Refused(404), |object| Answer::Object(200, object.clone()));
        }
        let wanted = |(resource, namespace, _): &(String, String, String)| {
            *resource == target.resource && (target.namespace.is_empty() || *namespace == target.namespace)
        };
        let items: Vec<_> =
            self.objects.iter().filter(|(key, _)| wanted(key)).map(|(_, object)| object).collect();
        let metadata = json!({"resourceVersion": self.revision.to_string()});
        Answer::Object(200, json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}))
    }

    fn write(&mut self, method: &Method, target: &Target, body: &Value) -> Answer {
        let known = self.objects.get(&target.key()).cloned();
        if *method == Method::POST {
            if known.is_some() {
                return Answer::Refused(409);
            }
            return Answer::Object(201, self.insert(target, body.clone()));
        }
        let Some(mut object) = known else { return Answer::Refused(404) };
        let required = if *method == Method::DELETE { &body["preconditions"] } else { &body["metadata"] };
        for field in ["uid", "resourceVersion"] {
            if !required[field].is_null() && required[field] != object["metadata"][field] {
                return Answer::Refused(409);
            }
        }
        let newer = self.next_revision();
        match *method {
            Method::DELETE if target.resource == "/api/v1/namespaces" => {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                object["status"]["phase"] = "Terminating".into();
            }
            Method::DELETE => {
                self.objects.remove(&target.key());
                return Answer::Object(
                    200,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
                );
            }
            Method::PUT if target.is_status => object["status"] = body["status"].clone(),
            Method::PUT => {
                object["spec"] = body["spec"].clone();
                object["metadata"]["labels"] = body["metadata"]["labels"].clone();
            }
            _ => merge(&mut object, body),
        }
        object["metadata"]["resourceVersion"] = newer;
        self.objects.insert(target.key(), object.clone());
        Answer::Object(200, object)
    }

    fn insert(&mut self, target: &Target, mut object: Value) -> Value {
        let revision = self.next_revision();
        let uid = format!("uid-of-{}", target.name);
        let mut default = |field: &str, value: Value| {
            if object["metadata"][field].is_null() {
                object["metadata"][field] = value;
            }
        };
        default("uid", uid.into());
        default("resourceVersion", revision);
        default("creationTimestamp", "2025-12-31T00:00:00Z".into());
        default("generation", 1.into());
        self.objects.insert(target.key(), object.clone());
        object
    }

    fn next_revision(&mut self) -> Value {
        self.revision += 1;
        (100 + self.revision).to_string().into()
    }
}

/// As the API server refuses what is created in a namespace that is being deleted.
fn terminating(namespace: &str) -> Answer {
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = json!({
        "reason": "NamespaceTerminating", "field": "metadata.namespace",
        "message": format!("namespace {namespace} is being terminated")
    });
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": why, "details": {"causes": [cause]}
    });
    Answer::Object(403, status)
}

/// A JSON merge patch: null removes.
fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else { return patch.clone_into(into) };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            into.as_object_mut().into_iter().for_each(|object| drop(object.remove(name)));
        } else {
            merge(&mut into[name.as_str()], value);
        }
    }
}
