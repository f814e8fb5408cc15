//! The scale subresource, and actions on pods.

use http::Method;
use serde_json::{Value, json};

use super::Server;
use super::answer::{Body, Response};
use super::decode;
use super::decode::Unknown;
use super::delete::DeleteOptions;
use super::kinds::ServedKind;
use super::meta;
use super::patch::{PatchType, parse};
use super::rest::{RequestContext, success};
use super::selector::label_selector_matches;
use super::status::{StatusCause, StatusError};
use super::store::Verb;
use super::write::{Expected, Target};

/// Where the numbers are in an object.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

impl Paths {
    fn of(kind: &ServedKind) -> Self {
        let pointer = |path: &Value| path.as_str().map(|p| p.replace('.', "/"));
        match kind.custom.as_ref().and_then(|c| c.scale.as_ref()) {
            Some(scale) => Self {
                spec: pointer(&scale["specReplicasPath"]).unwrap_or_default(),
                status: pointer(&scale["statusReplicasPath"]).unwrap_or_default(),
                selector: pointer(&scale["labelSelectorPath"]),
            },
            None => Self {
                spec: "/spec/replicas".to_owned(),
                status: "/status/replicas".to_owned(),
                selector: Some("/spec/selector".to_owned()),
            },
        }
    }
}

/// An object as a `Scale`.
fn to_scale(kind: &ServedKind, object: &Value) -> Result<Value, StatusError> {
    let paths = Paths::of(kind);
    let replicas = object.pointer(&paths.spec).and_then(Value::as_i64);
    let replicas = match replicas {
        Some(replicas) => replicas,
        None if kind.custom.is_some() => {
            let path = paths.spec.replace('/', ".");
            return Err(StatusError::internal_error(&format!(
                "the spec replicas field {path:?} does not exist"
            )));
        }
        None => 0,
    };
    let metadata = &object["metadata"];
    let mut kept = serde_json::Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(field) {
            kept.insert(field.to_owned(), value.clone());
        }
    }
    let mut spec = json!({});
    if replicas != 0 {
        spec["replicas"] = replicas.into();
    }
    let current = object.pointer(&paths.status).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": current});
    let selector =
        paths.selector.and_then(|path| object.pointer(&path)).map(selector_text).unwrap_or_default();
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status}),
    )
}

/// A label selector as text; that of custom resources is text already.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|e| {
        let key = e["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            e["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match e["operator"].as_str() {
            Some("Exists") => key.to_owned(),
            Some("DoesNotExist") => format!("!{key}"),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            _ => format!("{key} in ({})", values.join(",")),
        }
    });
    equal.chain(expressions).collect::<Vec<_>>().join(",")
}

/// The `Scale` in a body.
fn decoded(media: Option<&str>, body: &[u8]) -> Result<Value, StatusError> {
    decode::check_media(media)?;
    let scale: Value = serde_json::from_slice(body)
        .map_err(|e| StatusError::bad_request(format!("couldn't get version/kind; json parse error: {e}")))?;
    match not_a_number(&scale) {
        Some(why) => {
            let message = format!("Scale in version \"v1\" cannot be handled as a Scale: {why}");
            Err(StatusError::bad_request(message))
        }
        None => Ok(scale),
    }
}

/// What is said of replicas that are no number.
fn not_a_number(scale: &Value) -> Option<String> {
    let replicas = &scale["spec"]["replicas"];
    if replicas.is_null() || replicas.is_i64() {
        return None;
    }
    let kind = decode::go_kind(replicas);
    Some(format!("json: cannot unmarshal {kind} into Go struct field ScaleSpec.spec.replicas of type int32"))
}

impl Server {
    pub(super) fn scale(
        &mut self,
        context: &RequestContext<'_>,
        target: Target<'_>,
    ) -> Result<Response, StatusError> {
        let Target { kind, namespace, name } = target;
        let media = context.request.content_type.as_deref();
        // The body is read before the object is searched for.
        let put = match context.request.method {
            Method::PUT => Some(decoded(media, &context.request.body)?),
            _ => None,
        };
        let object = self.find(kind, namespace, name)?;
        let wanted = match context.request.method {
            Method::GET => return Ok(Response::new(200, Body::Value(to_scale(kind, &object)?))),
            Method::PUT => put.unwrap_or_default(),
            Method::PATCH => {
                // A Scale can be made of an object that says nothing of replicas yet.
                let mut scale = to_scale(kind, &object)
                    .unwrap_or_else(|_| json!({"metadata": {"name": name}, "spec": {}}));
                let patch_type = PatchType::of(media, kind)?;
                let patch = parse(patch_type, &context.request.body, Unknown::Warn)?;
                patch_type.apply(kind, &mut scale, &patch)?;
                if let Some(why) = not_a_number(&scale) {
                    let cause = StatusCause::invalid("patch", &json!(scale.to_string()), &why);
                    return Err(StatusError::invalid_patch(&[cause]));
                }
                scale
            }
            _ => return Err(StatusError::method_not_allowed()),
        };
        self.rescale(context, target, &wanted)
    }

    fn rescale(
        &mut self,
        context: &RequestContext<'_>,
        target: Target<'_>,
        wanted: &Value,
    ) -> Result<Response, StatusError> {
        let Target { kind, namespace, name } = target;
        let given = meta::name(wanted);
        if !given.is_empty() && given != name {
            return Err(StatusError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let cause =
                StatusCause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
            return Err(StatusError::invalid_scale(name, &[cause]));
        }
        let options = Self::patch_options(context)?;
        let verb = if context.request.method == Method::PUT { Verb::Update } else { Verb::Patch };
        let caller = Self::patch_caller(context, verb, "scale", &options);
        let revision = meta::text(wanted, "resourceVersion").to_owned();
        let uid = Some(meta::uid(wanted).to_owned()).filter(|uid| !uid.is_empty());
        let pointer = Paths::of(kind).spec;
        let object = self.update(
            &caller,
            Target { kind, namespace, name },
            &Expected { uid, rewritten: false },
            |_, old| {
                let mut object = old.as_ref().clone();
                set_pointer(&mut object, &pointer, replicas.into());
                if !revision.is_empty() {
                    meta::set(&mut object, "resourceVersion", revision);
                }
                Ok(object)
            },
        )?;
        Ok(Response::new(200, Body::Value(to_scale(kind, &object)?)))
    }

    /// Binding and eviction.
    pub(super) fn pod_action(
        &mut self,
        context: &RequestContext<'_>,
        target: Target<'_>,
        action: &str,
    ) -> Result<Response, StatusError> {
        let Target { kind, namespace, name } = target;
        let pod = self.find(kind, namespace, name)?;
        let body: Value = serde_json::from_slice(&context.request.body).unwrap_or_default();
        let options = Self::patch_options(context)?;
        if action == "binding" {
            let node = body["target"]["name"].clone();
            let caller = Self::patch_caller(context, Verb::Create, "binding", &options);
            self.update(&caller, target, &Expected::default(), |_, old| {
                let mut pod = old.as_ref().clone();
                meta::field(&mut pod, "spec").insert("nodeName".to_owned(), node);
                Ok(pod)
            })?;
            return Ok(success(201));
        }
        if !self.may_evict(&pod) {
            return Err(StatusError::too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
            ));
        }
        let caller = Self::patch_caller(context, Verb::Create, "", &options);
        self.delete(&caller, target, &DeleteOptions::of_eviction(&body))?;
        Ok(success(201))
    }

    /// Whether every disruption budget of a pod has room, as its status says.
    fn may_evict(&self, pod: &Value) -> bool {
        let budgets = self.objects("policy", "poddisruptionbudgets", meta::namespace(pod));
        let labels = &pod["metadata"]["labels"];
        budgets
            .filter(|b| label_selector_matches(&b["spec"]["selector"], labels))
            .all(|b| b["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) > 0)
    }
}

/// Sets the value at a pointer; objects on the way are made.
fn set_pointer(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.split('/').filter(|p| !p.is_empty()) {
        at = meta::map(at).entry(part).or_insert(Value::Null);
    }
    *at = value;
}
