//! Requests that change what is there: updates, patches, deletions.

use serde_json::{Value, json};

use super::super::bodies::Resource;
use super::super::step::State;
use super::{NAMES, SequenceGenerator};

impl SequenceGenerator {
    pub(super) fn update(&mut self, resource: &'static Resource, name: &str) {
        let mut body = self.object(resource, name);
        let revision = match self.choices.below(6) {
            0 => None,
            1 => Some(self.earlier(resource, name, "resourceVersion", false)),
            _ => {
                let read = self.ask("GET", Self::one(resource, name), Value::Null);
                self.touch(resource, name, read);
                Some(self.earlier(resource, name, "resourceVersion", true))
            }
        };
        if let (Some(revision), Some(metadata)) = (revision, body["metadata"].as_object_mut()) {
            metadata.insert("resourceVersion".to_owned(), revision.into());
        }
        if self.choices.one_in(6) {
            let uid = self.earlier(resource, name, "uid", false);
            if body["metadata"].is_object() {
                body["metadata"]["uid"] = uid.into();
            }
        }
        let uri = format!("{}{}", Self::one(resource, name), self.options());
        let step = self.ask("PUT", uri, body);
        self.touch(resource, name, step);
    }

    pub(super) fn patch(&mut self, resource: &'static Resource, name: &str) {
        let (method, body) = match self.choices.below(9) {
            0 | 1 => ("PATCH merge", self.object(resource, name)),
            2 => ("PATCH merge", self.patch_of_metadata(resource, name)),
            3 => ("PATCH strategic", self.patch_of_metadata(resource, name)),
            4 | 5 => ("PATCH json", self.json_patch()),
            6 => ("PATCH strategic", resource.object(name, &mut self.choices)),
            7 => ("PATCH merge", json!({"metadata": {"finalizers": null}})),
            _ => (
                self.choices.of(&["PATCH merge", "PATCH json", "PATCH strategic", "PATCH other"]),
                self.choices.of(&[
                    json!("[]"),
                    json!("{}"),
                    json!("7"),
                    json!("{\"a\""),
                    json!("[{}]"),
                    json!("null"),
                ]),
            ),
        };
        let uri = format!("{}{}", Self::one(resource, name), self.options());
        let step = self.ask(method, uri, body);
        self.touch(resource, name, step);
    }

    fn patch_of_metadata(&mut self, resource: &'static Resource, name: &str) -> Value {
        let revision = self.earlier(resource, name, "resourceVersion", false);
        let values = [
            json!({"labels": {"color": "green", "of": "${ns}"}}),
            json!({"labels": {"color": null}}),
            json!({"labels": null}),
            json!({"annotations": {"x.io/note": "c"}}),
            json!({"resourceVersion": revision}),
            json!({"name": "other"}),
            json!({"finalizers": ["x.io/held", "x.io/more"]}),
            json!({"labels": {"$patch": "replace", "only": "this"}}),
            json!({"generation": 77}),
            json!({"creationTimestamp": null}),
            // Not `deletionTimestamp`: who patches that of an object that is being deleted changes nothing, and is noted in
            // `managedFields`, which is a new revision and is not kept in memory.
            json!({"uid": null}),
        ];
        json!({"metadata": self.choices.of(&values)})
    }

    fn json_patch(&mut self) -> Value {
        let operations = [
            json!({"op": "add", "path": "/metadata/labels/color", "value": "white"}),
            json!({"op": "replace", "path": "/metadata/labels/color", "value": "black"}),
            json!({"op": "remove", "path": "/metadata/labels/color"}),
            json!({"op": "test", "path": "/metadata/labels/color", "value": "red"}),
            json!({"op": "add", "path": "/metadata/annotations", "value": {"x.io~1y": "z"}}),
            json!({"op": "add", "path": "/metadata/annotations/x.io~1y", "value": "z"}),
            json!({"op": "move", "from": "/metadata/labels/color", "path": "/metadata/labels/shade"}),
            json!({"op": "copy", "from": "/metadata/labels/of", "path": "/metadata/labels/shade"}),
            json!({"op": "remove", "path": "/metadata/nothing"}),
            json!({"op": "add", "path": "/metadata/finalizers", "value": ["x.io/held"]}),
            json!({"op": "remove", "path": "/metadata/finalizers/0"}),
            json!({"op": "jump", "path": "/metadata"}),
        ];
        let count = 1 + self.choices.below(2);
        (0..count).map(|_| self.choices.of(&operations)).collect()
    }

    pub(super) fn apply(&mut self, resource: &'static Resource, name: &str) {
        let mut body = self.object(resource, name);
        if self.choices.one_in(3) {
            // Less than before: what this manager alone had set goes.
            for field in ["data", "spec"] {
                if let (Some(map), true) = (body.as_object_mut(), self.choices.one_in(2)) {
                    map.remove(field);
                }
            }
        }
        let manager = self.choices.of(&["one", "two"]);
        let more = self.choices.of(&[
            "",
            "",
            "&force=true",
            "&force=true",
            "&dryRun=All",
            "&fieldValidation=Strict",
        ]);
        let query = if self.choices.one_in(16) {
            "?force=true".to_owned()
        } else {
            format!("?fieldManager={manager}{more}")
        };
        let step = self.ask("PATCH apply", format!("{}{query}", Self::one(resource, name)), body);
        self.touch(resource, name, step);
    }

    pub(super) fn subresource(&mut self, resource: &'static Resource, name: &str) {
        let one = Self::one(resource, name);
        if resource.scale && self.choices.one_in(2) {
            let replicas = self.choices.of(&[json!(0), json!(-1), json!("many"), Value::Null]);
            match self.choices.below(3) {
                0 => self.ask("GET", format!("{one}/scale"), Value::Null),
                1 => {
                    let patch = json!({"spec": {"replicas": replicas}});
                    self.ask("PATCH merge", format!("{one}/scale"), patch)
                }
                _ => {
                    let revision = self.earlier(resource, name, "resourceVersion", true);
                    let scale = json!({
                        "apiVersion": "autoscaling/v1", "kind": "Scale",
                        "metadata": {"name": name, "namespace": "${ns}", "resourceVersion": revision},
                        "spec": {"replicas": replicas},
                    });
                    self.ask("PUT", format!("{one}/scale"), scale)
                }
            };
            return;
        }
        // What controllers keep writing is theirs.
        if resource.is_controlled() {
            self.ask("GET", format!("{one}/status"), Value::Null);
            return;
        }
        let status = resource.status(&mut self.choices);
        let step = match self.choices.below(3) {
            0 => {
                let mut body = resource.object(name, &mut self.choices);
                body["metadata"]["resourceVersion"] =
                    self.earlier(resource, name, "resourceVersion", true).into();
                body["status"] = status;
                self.ask("PUT", format!("{one}/status"), body)
            }
            1 => {
                let mut patch = json!({"status": status, "metadata": {"labels": {"color": "seen"}}});
                if resource.is_custom() {
                    patch["spec"] = json!({"x": 1});
                }
                self.ask("PATCH merge", format!("{one}/status"), patch)
            }
            _ => {
                let body = json!({
                    "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name},
                    "status": status,
                });
                self.ask("PATCH apply", format!("{one}/status?fieldManager=status&force=true"), body)
            }
        };
        self.touch(resource, name, step);
    }

    pub(super) fn delete(&mut self, resource: &'static Resource, name: &str) {
        let body = match self.choices.below(8) {
            0 => json!({"preconditions": {"uid": self.earlier(resource, name, "uid", false)}}),
            1 => {
                json!({"preconditions": {"resourceVersion": self.earlier(resource, name, "resourceVersion", false)}})
            }
            2 => json!({"preconditions": {
                "uid": self.earlier(resource, name, "uid", true),
                "resourceVersion": self.earlier(resource, name, "resourceVersion", true),
            }}),
            3 => json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}),
            4 => self.choices.of(&[
                json!({"propagationPolicy": "Sideways"}),
                json!({"gracePeriodSeconds": 0}),
                json!({"dryRun": ["All"]}),
                json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
                json!("{"),
            ]),
            5 => {
                let body = json!({"propagationPolicy": self.choices.of(&["Foreground", "Orphan"])});
                self.ask("PATCH merge", Self::one(resource, name), json!({"metadata": {"finalizers": null}}));
                self.ask("DELETE", Self::one(resource, name), body);
                self.until(Self::one(resource, name), State::Gone);
                return;
            }
            _ => Value::Null,
        };
        let query = if self.choices.one_in(10) { "?dryRun=All" } else { "" };
        self.ask("DELETE", format!("{}{query}", Self::one(resource, name)), body);
    }

    /// Deletes a namespace as the operator does: the one that was read, in the revision that was read; and before that with
    /// preconditions that are those of another.
    pub(super) fn delete_as_read(&mut self, namespace: &str) {
        let read = self.ask("GET", namespace, Value::Null);
        let (uid, revision) =
            (format!("${{{read}/metadata/uid}}"), format!("${{{read}/metadata/resourceVersion}}"));
        for (uid, revision) in [(uid.as_str(), "1"), ("another", revision.as_str()), (&uid, &revision)] {
            let preconditions = json!({"uid": uid, "resourceVersion": revision});
            let body = json!({"preconditions": preconditions, "propagationPolicy": "Background"});
            self.ask("DELETE", namespace, body);
        }
    }

    /// Gives a workload replicas as the operator does when it wakes it: through its scale, in the revision that was read; and after
    /// that in a revision that is over. It is paused, so that no controller makes pods.
    pub(super) fn wake(&mut self) {
        let deployments = "/apis/apps/v1/namespaces/${ns}/deployments";
        let (one, scale) = (format!("{deployments}/idle"), format!("{deployments}/idle/scale"));
        let container = json!({"name": "main", "image": "busybox"});
        let idle = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "idle", "labels": {"of": "${ns}"}},
            "spec": {
                "replicas": 0, "paused": true, "selector": {"matchLabels": {"app": "idle"}},
                "template": {"metadata": {"labels": {"app": "idle"}}, "spec": {"containers": [container]}},
            },
        });
        self.ask("POST", deployments, idle);
        self.until(one.clone(), State::Settled);
        let read = self.ask("GET", scale.clone(), Value::Null);
        let metadata = json!({
            "uid": format!("${{{read}/metadata/uid}}"), "resourceVersion": format!("${{{read}/metadata/resourceVersion}}"),
        });
        for replicas in [3, 2] {
            let body = json!({"metadata": metadata, "spec": {"replicas": replicas}});
            self.ask("PATCH merge", format!("{scale}?fieldManager=coppice"), body);
        }
        self.until(one, State::Settled);
        self.ask("GET", scale, Value::Null);
    }

    pub(super) fn delete_all(&mut self, resource: &'static Resource) {
        if resource.namespaced {
            let query =
                self.choices.of(&["labelSelector=color%3Dred,of%3D${ns}", "labelSelector=of%3D${ns}"]);
            self.ask("DELETE", format!("{}?{query}", resource.path()), Value::Null);
            for name in NAMES {
                self.settle(resource, name);
            }
        }
    }
}
