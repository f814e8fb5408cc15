//! Custom resources: from a `CustomResourceDefinition` to kinds that are served.

use std::sync::Arc;

use coppice_schema::Schema;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{KindText, ServedKind, StoreId, Verbs};
use super::status::StatusCause;
use super::store::{Origin, Verb};
use super::{SYSTEM, Server, meta};

/// The finalizer that keeps a definition until its objects are gone.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a definition says about one version of its kind.
#[derive(Clone, Debug)]
pub struct Custom {
    /// None keeps everything (`x-kubernetes-preserve-unknown-fields` at the root).
    pub(super) schema: Option<Arc<Schema>>,
    /// The schema as it was given, for `/openapi/v3`.
    pub(super) open_api: Arc<Value>,
    /// Fields for field selectors, such as `.spec.color`.
    pub(super) selectable_fields: Vec<String>,
    /// Columns for people, as in the definition.
    pub(super) columns: Arc<Vec<Value>>,
    /// Paths of the scale subresource, as in the definition.
    pub(super) scale: Option<Arc<Value>>,
}

/// What can be done with an object by its definition.
pub(super) trait Checked {
    /// Drops unknown fields; answers their paths.
    fn prune(&self, object: &mut Value) -> Vec<String>;
    /// Puts defaults in.
    fn default(&self, object: &mut Value);
    /// What is wrong; with `status` only that part has changed.
    /// `before`: what is wrong with the metadata, after some of which rules are not evaluated.
    fn problems(
        &self,
        new: &Value,
        old: Option<&Value>,
        status: bool,
        before: &[StatusCause],
    ) -> Vec<StatusCause>;
}

impl Checked for Custom {
    fn prune(&self, object: &mut Value) -> Vec<String> {
        self.schema.as_ref().map(|schema| schema.prune(object)).unwrap_or_default()
    }

    fn default(&self, object: &mut Value) {
        if let Some(schema) = &self.schema {
            schema.default(object);
        }
    }

    fn problems(
        &self,
        new: &Value,
        old: Option<&Value>,
        status: bool,
        before: &[StatusCause],
    ) -> Vec<StatusCause> {
        let Some(schema) = &self.schema else { return Vec::new() };
        let causes = match old {
            Some(old) if status => schema.validate_status(new, old),
            old => schema.validate_after(before.iter().any(StatusCause::blocks_rules), new, old),
        };
        causes
            .into_iter()
            .map(|c| StatusCause { reason: c.reason.as_str().to_owned(), field: c.field, message: c.message })
            .collect()
    }
}

/// Puts into a definition what may be left out.
pub(super) fn default(definition: &mut Value) {
    let spec = meta::field(definition, "spec");
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let names = meta::map(spec.entry("names").or_insert(Value::Null));
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !kind.is_empty() {
        names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
        names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    }
}

/// Everything that is wrong with a definition.
pub(super) fn problems(definition: &Value) -> Vec<StatusCause> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let mut causes = Vec::new();
    if meta::name(definition) != format!("{plural}.{group}") {
        let name = &definition["metadata"]["name"];
        causes.push(StatusCause::invalid(
            "metadata.name",
            name,
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    let required = |causes: &mut Vec<StatusCause>, field: &str, value: &Value| {
        if value.as_str().unwrap_or_default().is_empty() {
            causes.push(StatusCause::required(field, ""));
        }
    };
    required(&mut causes, "spec.group", &spec["group"]);
    required(&mut causes, "spec.scope", &spec["scope"]);
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(StatusCause::invalid("spec.versions", &spec["versions"], why));
    }
    for (at, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_null() {
            causes.push(StatusCause::required(field, "schemas are required"));
        } else if let Err(error) = Schema::compile(schema) {
            causes.push(StatusCause::invalid(field, &Value::Null, &error.to_string()));
        }
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        required(&mut causes, &format!("spec.names.{name}"), &spec["names"][name]);
    }
    if definition["status"]["storedVersions"].as_array().is_none_or(Vec::is_empty) {
        let stored = &definition["status"]["storedVersions"];
        causes.push(StatusCause::invalid(
            "status.storedVersions",
            stored,
            "must have at least one stored version",
        ));
    }
    causes
}

/// The status that a new definition has.
pub(super) fn initial_status(definition: &Value) -> Value {
    let stored: Vec<&Value> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
        .map(|v| &v["name"])
        .collect();
    json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": if stored.is_empty() { Value::Null } else { json!(stored) },
    })
}

impl Server {
    /// What follows from a write of a definition: its kinds are served from now on, in the versions that it names.
    pub(super) fn definition_written(&mut self, now: Timestamp, definition: &Arc<Value>) {
        let (group, plural) =
            (definition["spec"]["group"].clone(), definition["spec"]["names"]["plural"].clone());
        let (Some(group), Some(plural)) = (group.as_str(), plural.as_str()) else { return };
        let known = self.kinds.served().find(|k| k.group == group && k.plural == plural).map(|k| k.store);
        let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let store = known.unwrap_or_else(|| {
            let store = self.kinds.add(|store| kind_of(store, definition, &json!({"name": "v1"})));
            self.store.grow(self.kinds.stores());
            store
        });
        self.kinds.withdraw(store);
        for version in &versions {
            let kind = Arc::new(kind_of(store, definition, version));
            if version["served"] == true {
                self.kinds.serve(&kind);
            }
            if version["storage"] == true {
                self.kinds.set_primary(kind);
            }
        }
        self.establish(now, definition);
    }

    /// What follows from the removal of a definition.
    pub(super) fn definition_removed(&mut self, definition: &Value) {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let store = self.kinds.served().find(|k| *group == *k.group && *plural == *k.plural).map(|k| k.store);
        if let Some(store) = store {
            self.kinds.withdraw(store);
        }
    }

    /// Says in the definition's status that its kinds are served.
    fn establish(&mut self, now: Timestamp, definition: &Arc<Value>) {
        if definition["status"]["conditions"].as_array().is_some_and(|c| !c.is_empty()) {
            return;
        }
        let Some(kind) = self.kinds.at("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned()
        else {
            return;
        };
        let at = meta::seconds(now);
        let condition = |name: &str, reason: &str, message: &str| json!({"type": name, "status": "True", "lastTransitionTime": at, "reason": reason, "message": message});
        let mut established = definition.as_ref().clone();
        established["status"]["acceptedNames"] = established["spec"]["names"].clone();
        established["status"]["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
        let key = super::ObjectKey::new("", meta::name(definition));
        let origin = Origin { now, user: SYSTEM, manager: SYSTEM, verb: Verb::Update, subresource: "status" };
        self.store.put(&kind, key, established, &origin);
    }
}

/// The kind of one version of a definition.
fn kind_of(store: StoreId, definition: &Value, version: &Value) -> ServedKind {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| KindText::Owned(value.as_str().unwrap_or_default().to_owned());
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
    let open_api = version["schema"]["openAPIV3Schema"].clone();
    let mut subresources = Vec::new();
    for subresource in ["status", "scale"] {
        if version["subresources"][subresource].is_object() {
            subresources.push(subresource);
        }
    }
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    ServedKind {
        store,
        group: text(&spec["group"]),
        version: text(&version["name"]),
        plural: text(&names["plural"]),
        singular: text(&names["singular"]),
        kind: text(&names["kind"]),
        list_kind: text(&names["listKind"]),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        verbs: Verbs::All,
        generation: true,
        create_on_update: false,
        conditional_update: true,
        returns_deleted: false,
        custom: Some(Custom {
            // What does not compile was refused when the definition was written.
            schema: Schema::compile(&open_api).ok().map(Arc::new),
            open_api: Arc::new(open_api),
            selectable_fields: selectable.filter_map(|f| f["jsonPath"].as_str().map(str::to_owned)).collect(),
            columns: Arc::new(version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default()),
            scale: subresources
                .contains(&"scale")
                .then(|| Arc::new(version["subresources"]["scale"].clone())),
        }),
        subresources,
    }
}
