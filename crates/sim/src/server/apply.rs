//! Server-side apply: who owns which field.
//!
//! Owners are not kept with the objects, and never shown. They are worked out when somebody applies, from the log of
//! changes, which says in whose name each was made: so other writes pay nothing for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde_json::{Value, json};

use super::Server;
use super::answer::Response;
use super::convert;
use super::decode;
use super::kinds::ServedKind;
use super::meta;
use super::rest::{RequestContext, check_name};
use super::status::StatusError;
use super::store::{Change, ObjectKey, Revision};
use super::strategic;
use super::typed;
use super::write::{Caller, Expected, Target};

/// The owner of fields for which no owner is recorded.
const BEFORE: &str = "before-first-apply";

/// One step of the way to a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathElement {
    Field(String),
    /// The element of a list with these values of its keys, as JSON; of a set, with this value under an empty key.
    Element(Vec<(String, String)>),
}

/// The way to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct FieldPath(Vec<PathElement>);

impl FieldPath {
    fn with(&self, step: PathElement) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    fn is_of(&self, field: &str) -> bool {
        matches!(self.0.first(), Some(PathElement::Field(name)) if name == field)
    }

    fn is_metadata(&self) -> bool {
        self.0.len() == 1 && self.is_of("metadata")
    }

    fn begins_with(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            match step {
                PathElement::Field(name) => write!(f, ".{name}")?,
                PathElement::Element(keys) => {
                    let keys: Vec<String> = keys.iter().map(|(k, v)| format!("{k}={v}")).collect();
                    write!(f, "[{}]", keys.join(","))?;
                }
            }
        }
        Ok(())
    }
}

type Fields = BTreeMap<FieldPath, Value>;

/// Somebody who owns fields: by applying them, or by writing them otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    manager: String,
    applied: bool,
    subresource: &'static str,
    api_version: String,
    paths: BTreeSet<FieldPath>,
}

/// The owners of one object, as of a revision.
#[derive(Clone, Debug, Default)]
struct FieldOwners {
    as_of: Revision,
    list: Vec<Owner>,
    /// The object was made without a field that could be owned: then nobody is noted until somebody applies.
    untracked: bool,
}

/// The owners of all objects that were ever applied, by uid.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers(HashMap<String, FieldOwners>);

impl Managers {
    pub(super) fn remove(&mut self, uid: &str) {
        if !self.0.is_empty() {
            self.0.remove(uid);
        }
    }
}

/// How the elements of a list are distinguished; none if the list is one value.
enum ListType {
    Atomic,
    /// Every element is one value, and there once.
    Set,
    Map(Vec<String>),
}

/// What is known of a value's lists: by the schema of a custom resource, or by the names of built-in fields.
#[derive(Clone, Copy)]
enum Shape<'a> {
    BuiltIn(&'a str),
    Schema(&'a Value),
}

impl<'a> Shape<'a> {
    fn of(kind: &'a ServedKind) -> Self {
        match &kind.custom {
            Some(custom) => Self::Schema(&custom.open_api),
            None => Self::BuiltIn(""),
        }
    }

    fn field(self, name: &'a str) -> Self {
        match self {
            Self::BuiltIn(_) => Self::BuiltIn(name),
            Self::Schema(_) if name == "metadata" => Self::BuiltIn(name),
            Self::Schema(schema) => match schema["properties"].get(name) {
                Some(schema) => Self::Schema(schema),
                None => Self::Schema(&schema["additionalProperties"]),
            },
        }
    }

    fn element(self) -> Self {
        match self {
            Self::BuiltIn(_) => Self::BuiltIn(""),
            Self::Schema(schema) => Self::Schema(&schema["items"]),
        }
    }

    fn list(self, items: &[Value]) -> ListType {
        let is_set = match self {
            Self::BuiltIn(field) => field == "finalizers",
            Self::Schema(schema) => schema["x-kubernetes-list-type"] == "set",
        };
        if is_set {
            return ListType::Set;
        }
        let keys = match self {
            Self::BuiltIn(field) => strategic::apply_keys(field, items),
            Self::Schema(schema) if schema["x-kubernetes-list-type"] == "map" => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
                Some(keys.filter_map(Value::as_str).map(str::to_owned).collect())
            }
            Self::Schema(_) => None,
        };
        keys.map_or(ListType::Atomic, ListType::Map)
    }

    /// An object that is one value.
    fn is_atomic(self) -> bool {
        matches!(self, Self::Schema(schema) if schema["x-kubernetes-map-type"] == "atomic")
            || matches!(
                self,
                Self::BuiltIn("selector" | "nodeSelector" | "involvedObject" | "regarding" | "related")
            )
    }
}

/// What identifies an element. A key that is absent has its default, which is Go's, but for protocols.
fn element_keys(keys: &[String], element: &Value) -> Vec<(String, String)> {
    keys.iter().map(|key| (key.clone(), key_of(key, element))).collect()
}

fn key_of(key: &str, element: &Value) -> String {
    match (element.get(key), key) {
        (Some(value), _) => value.to_string(),
        (None, "protocol") => json!("TCP").to_string(),
        (None, "port" | "containerPort") => json!(0).to_string(),
        (None, _) => json!("").to_string(),
    }
}

/// The element of a set.
fn member(item: &Value) -> Vec<(String, String)> {
    vec![(String::new(), item.to_string())]
}

/// The fields of a value that have no fields of their own, and the elements of its lists.
fn leaves(shape: Shape<'_>, value: &Value, path: &FieldPath, into: &mut Fields) {
    match value {
        Value::Object(map) if !map.is_empty() && !shape.is_atomic() => {
            for (name, value) in map {
                leaves(shape.field(name), value, &path.with(PathElement::Field(name.clone())), into);
            }
        }
        Value::Array(items) if !items.is_empty() => match shape.list(items) {
            ListType::Map(keys) => {
                for item in items {
                    let path = path.with(PathElement::Element(element_keys(&keys, item)));
                    into.insert(path.clone(), Value::Null);
                    leaves(shape.element(), item, &path, into);
                }
            }
            ListType::Set => {
                for item in items {
                    into.insert(path.with(PathElement::Element(member(item))), item.clone());
                }
            }
            ListType::Atomic => {
                into.insert(path.clone(), value.clone());
            }
        },
        _ => {
            into.insert(path.clone(), value.clone());
        }
    }
}

/// What of an object can be owned.
fn ownable(kind: &ServedKind, object: &Value) -> Fields {
    let mut object = object.clone();
    let map = meta::map(&mut object);
    map.remove("apiVersion");
    map.remove("kind");
    let metadata = meta::of(&mut object);
    metadata.retain(|field, _| {
        matches!(field.as_str(), "labels" | "annotations" | "finalizers" | "ownerReferences")
    });
    if metadata.is_empty() {
        meta::map(&mut object).remove("metadata");
    }
    let mut fields = Fields::new();
    if object.as_object().is_some_and(|map| !map.is_empty()) {
        leaves(Shape::of(kind), &object, &FieldPath::default(), &mut fields);
    }
    fields
}

/// Puts what was applied into a value.
fn merge(shape: Shape<'_>, target: &mut Value, applied: &Value) {
    match applied {
        Value::Object(map) if target.is_object() && !shape.is_atomic() => {
            for (name, value) in map {
                merge(
                    shape.field(name),
                    meta::map(target).entry(name.as_str()).or_insert(Value::Null),
                    value,
                );
            }
        }
        Value::Array(items) if target.is_array() => match (shape.list(items), target) {
            (ListType::Map(keys), Value::Array(list)) => {
                for item in items {
                    let wanted = element_keys(&keys, item);
                    match list.iter_mut().find(|e| element_keys(&keys, e) == wanted) {
                        Some(found) => merge(shape.element(), found, item),
                        None => list.push(item.clone()),
                    }
                }
            }
            (ListType::Set, Value::Array(list)) => {
                for item in items {
                    if !list.contains(item) {
                        list.push(item.clone());
                    }
                }
            }
            (_, target) => *target = applied.clone(),
        },
        // Null leaves a map or a list with keys as it is, unless it is empty; anything else becomes null.
        Value::Null if has_parts(shape, target) => {}
        _ => *target = applied.clone(),
    }
}

/// Whether this is identified by its fields or elements, and has some.
fn has_parts(shape: Shape<'_>, value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty() && !shape.is_atomic(),
        Value::Array(items) => !items.is_empty() && !matches!(shape.list(items), ListType::Atomic),
        _ => false,
    }
}

/// Removes the field at a path.
fn remove(target: &mut Value, steps: &[PathElement]) {
    let Some((first, rest)) = steps.split_first() else { return };
    match (first, target) {
        (PathElement::Field(name), Value::Object(map)) => {
            if rest.is_empty() {
                map.remove(name);
            } else if let Some(inner) = map.get_mut(name) {
                remove(inner, rest);
                if matches!(inner, Value::Array(list) if list.is_empty()) {
                    map.remove(name);
                } else if matches!(inner, Value::Object(map) if map.is_empty()) {
                    *inner = Value::Null;
                }
            }
        }
        (PathElement::Element(keys), Value::Array(list)) => {
            let is = |e: &Value| {
                *keys == member(e)
                    || e.is_object() && keys.iter().all(|(key, value)| key_of(key, e) == *value)
            };
            if rest.is_empty() {
                list.retain(|e| !is(e));
            } else if let Some(inner) = list.iter_mut().find(|e| is(e)) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

impl FieldOwners {
    /// Takes in what was written since without applying.
    fn replay(&mut self, change: &Change) {
        self.as_of = change.revision;
        let (kind, version) = (&change.kind, change.kind.api_version());
        let Some(after) = &change.after else { return };
        let after = ownable(kind, &convert::to(kind, after));
        let before = change.before.as_ref().map(|b| ownable(kind, &convert::to(kind, b))).unwrap_or_default();
        self.untracked |= change.before.is_none() && after.is_empty();
        if self.untracked {
            return;
        }
        let changed: BTreeSet<FieldPath> = after
            .iter()
            .filter(|(path, value)| before.get(path) != Some(value))
            .map(|(p, _)| p.clone())
            .collect();
        // Fields have other names in another group.
        for owner in self.list.iter_mut().filter(|owner| owner.api_version == version) {
            owner.paths.retain(|path| after.contains_key(path) && !changed.contains(path));
        }
        let mine = |o: &&mut Owner| {
            !o.applied
                && *o.manager == *change.manager
                && o.subresource == change.subresource
                && o.api_version == version
        };
        match self.list.iter_mut().find(mine) {
            Some(owner) => owner.paths.extend(changed),
            None => self.list.push(Owner {
                manager: change.manager.to_string(),
                applied: false,
                subresource: change.subresource,
                api_version: kind.api_version(),
                paths: changed,
            }),
        }
        self.list.retain(|owner| !owner.paths.is_empty());
    }

    /// The owners in an order that does not depend on who came first.
    fn sorted(&self) -> Vec<Owner> {
        let mut list = self.list.clone();
        list.sort();
        list
    }

    /// The fields that somebody else owns and that are to have another value, with their owners.
    fn conflicts<'a>(
        &'a self,
        (caller, kind): (&Caller<'_>, &ServedKind),
        wanted: &Fields,
        live: &Fields,
    ) -> Vec<(&'a Owner, FieldPath)> {
        let version = kind.api_version();
        let mine =
            |o: &&Owner| o.applied && o.manager == caller.manager && o.subresource == caller.subresource;
        let others = self.list.iter().filter(|o| !mine(o) && o.api_version == version);
        let mut conflicts = Vec::new();
        for owner in others {
            let differs = |path: &&FieldPath| wanted.get(path).is_some_and(|v| live.get(path) != Some(v));
            conflicts.extend(owner.paths.iter().filter(differs).map(|path| (owner, path.clone())));
        }
        conflicts
    }

    /// Gives fields to who applied them, and takes them from others whose value was overruled; answers what who applied
    /// no longer names and nobody else owns.
    fn take(
        &mut self,
        caller: &Caller<'_>,
        kind: &ServedKind,
        wanted: &Fields,
        live: &Fields,
    ) -> Vec<FieldPath> {
        let mine =
            |o: &Owner| o.applied && o.manager == caller.manager && o.subresource == caller.subresource;
        let before = self.list.iter().find(|o| mine(o)).map(|o| o.paths.clone()).unwrap_or_default();
        for owner in self.list.iter_mut().filter(|o| !mine(o)) {
            owner.paths.retain(|path| wanted.get(path).is_none_or(|v| live.get(path) == Some(v)));
        }
        self.list.retain(|o| !mine(o) && !o.paths.is_empty());
        let owned_within =
            |path: &FieldPath| self.list.iter().any(|o| o.paths.iter().any(|p| p.begins_with(path)));
        // With a field goes what it is in, defaults and all, as far as nobody owns something there.
        let kept = |path: &FieldPath| owned_within(path) || wanted.keys().any(|p| p.begins_with(path));
        let outermost = |path: FieldPath| {
            let parts = (1..path.0.len()).map(|length| FieldPath(path.0[..length].to_vec()));
            let mut fields =
                parts.filter(|p| matches!(p.0.last(), Some(PathElement::Field(_))) && !p.is_metadata());
            fields.find(|p| !kept(p)).unwrap_or(path)
        };
        let gone = before.into_iter().filter(|p| !wanted.contains_key(p) && !owned_within(p));
        let gone = gone.map(outermost).collect();
        self.list.push(Owner {
            manager: caller.manager.to_owned(),
            applied: true,
            subresource: caller.subresource,
            api_version: kind.api_version(),
            paths: wanted.keys().cloned().collect(),
        });
        gone
    }
}

/// The refusal that lists conflicts.
fn refuse(conflicts: &[(&Owner, FieldPath)]) -> StatusError {
    let who = |owner: &Owner| {
        let mut text = format!("{:?}", owner.manager);
        if !owner.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", owner.subresource);
        }
        if !owner.applied {
            text = format!("{text} using {}", owner.api_version);
        }
        text
    };
    let causes = conflicts.iter().map(|(owner, path)| {
        json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", who(owner)), "field": path.to_string()})
    });
    let message = if let [(owner, path)] = conflicts {
        format!("Apply failed with 1 conflict: conflict with {}: {path}", who(owner))
    } else {
        let mut by_owner: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (owner, path) in conflicts {
            by_owner.entry(who(owner)).or_default().push(format!("- {path}"));
        }
        let lists =
            by_owner.iter().map(|(who, paths)| format!("conflicts with {who}:\n{}", paths.join("\n")));
        format!("Apply failed with {} conflicts: {}", conflicts.len(), lists.collect::<Vec<_>>().join("\n"))
    };
    StatusError::apply_conflict(&message, &causes.collect::<Value>())
}

impl Server {
    /// The owners of an object as they are now.
    fn owners(&self, kind: &ServedKind, key: &ObjectKey, live: &Value) -> FieldOwners {
        let uid = meta::uid(live);
        let mut owners = self.managers.0.get(uid).cloned().unwrap_or_default();
        for change in self.store.changes_of(kind.store, owners.as_of) {
            if change.key == *key && *change.uid == *uid {
                owners.replay(change);
            }
        }
        owners.as_of = self.revision();
        if std::mem::take(&mut owners.untracked) {
            owners.list.push(Owner {
                manager: BEFORE.to_owned(),
                applied: false,
                subresource: "",
                api_version: kind.api_version(),
                paths: ownable(kind, live).into_keys().filter(|path| !path.is_of("status")).collect(),
            });
        }
        owners
    }

    pub(super) fn apply(
        &mut self,
        context: &RequestContext<'_>,
        caller: &Caller<'_>,
        target: Target<'_>,
    ) -> Result<Response, StatusError> {
        let Target { kind, namespace, name } = target;
        let mut patch = parse(kind, &context.request.body)?;
        typed::check(kind, &patch)?;
        decode::tidy(kind, &mut patch);
        let key = ObjectKey::new(namespace, name);
        let Some(live) = self.store.get(kind.store, key.as_str()).cloned() else {
            if !caller.subresource.is_empty() {
                return Err(StatusError::not_found(kind, name));
            }
            let revision = meta::text(&patch, "resourceVersion");
            if !revision.is_empty() && revision.parse::<Revision>().is_err() {
                return Err(StatusError::internal(format!(
                    "strconv.ParseUint: parsing {revision:?}: invalid syntax"
                )));
            }
            typed::encoded(kind, &patch)?;
            check_name(&patch, name)?;
            let uid = meta::uid(&patch);
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(StatusError::conflict_on(kind, name, &why));
            }
            let wanted = ownable(kind, &patch);
            let created = self.create_regardless(caller, target, patch)?;
            let mut owners = FieldOwners { as_of: self.revision(), ..FieldOwners::default() };
            owners.take(caller, kind, &wanted, &Fields::new());
            self.keep_owners(caller, meta::uid(&created), owners);
            return Ok(self.written(context, kind, 201, Ok(created), Vec::new()));
        };
        let wanted = ownable(kind, &patch);
        let shown = convert::to(kind, &live);
        let fields = ownable(kind, &shown);
        let mut owners = self.owners(kind, &key, &shown);
        if !context.query.flag("force") {
            let conflicts = owners.conflicts((caller, kind), &wanted, &fields);
            if !conflicts.is_empty() {
                return Err(refuse(&conflicts));
            }
        }
        typed::encoded(kind, &patch)?;
        check_name(&patch, name)?;
        let before = owners.sorted();
        let gone = owners.take(caller, kind, &wanted, &fields);
        let expected = Expected { uid: None, rewritten: owners.sorted() != before };
        let mut object = shown.as_ref().clone();
        merge(Shape::of(kind), &mut object, &patch);
        for path in gone.iter().rev() {
            remove(&mut object, &path.0);
        }
        // Go leaves out what has become empty, except in custom resources.
        let has_types = kind.custom.is_none();
        meta::of(&mut object).retain(|_, value| !value.is_null());
        meta::map(&mut object).retain(|_, value| !has_types || !value.is_null());
        let result = self.update(caller, target, &expected, |_, _| Ok(object))?;
        owners.as_of = self.revision();
        self.keep_owners(caller, meta::uid(&result), owners);
        Ok(self.written(context, kind, 200, Ok(result), Vec::new()))
    }

    fn keep_owners(&mut self, caller: &Caller<'_>, uid: &str, owners: FieldOwners) {
        if !caller.dry_run {
            self.managers.0.insert(uid.to_owned(), owners);
        }
    }
}

/// The applied object in a body: it has to say what it is.
fn parse(kind: &ServedKind, body: &[u8]) -> Result<Value, StatusError> {
    let mut patch: Value = serde_json::from_slice(body)
        .map_err(|error| StatusError::bad_request(format!("error decoding YAML: {error}")))?;
    without_negative_zero(&mut patch);
    // YAML makes no difference between 1 and 1.0.
    decode::whole_numbers(&mut patch);
    let (version, given) =
        (patch["apiVersion"].as_str().unwrap_or_default(), patch["kind"].as_str().unwrap_or_default());
    if version != kind.api_version() || given != kind.kind {
        let (group, short) = version.rsplit_once('/').unwrap_or(("", version));
        return Err(StatusError::bad_request(format!("invalid object type: {group}/{short}, Kind={given}")));
    }
    if !patch["metadata"]["managedFields"].is_null() {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(patch)
}

/// In YAML there is one zero.
fn without_negative_zero(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64().is_some_and(|n| n == 0.0 && n.is_sign_negative()) => {
            *value = json!(0);
        }
        Value::Array(list) => list.iter_mut().for_each(without_negative_zero),
        Value::Object(map) => map.values_mut().for_each(without_negative_zero),
        _ => {}
    }
}
