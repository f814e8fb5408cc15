//! PATCH: merge, strategic merge, JSON; apply is in its own module.

use serde_json::{Value, json};

use super::Server;
use super::answer::Response;
use super::decode::{self, Unknown};
use super::jsonpatch;
use super::kinds::ServedKind;
use super::meta;
use super::rest::{RequestContext, check_name};
use super::status::{StatusCause, StatusError};
use super::store::Verb;
use super::strategic;
use super::write::{Expected, Target};

/// How patches of custom resources may be written.
const CUSTOM: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// How a patch is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub(super) fn of(content_type: Option<&str>, kind: &ServedKind) -> Result<Self, StatusError> {
        let media = content_type.and_then(|c| c.split(';').next()).map_or("", str::trim);
        match media {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if kind.custom.is_none() => Ok(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+json" => Ok(Self::Apply),
            _ if kind.custom.is_none() => Err(StatusError::unsupported_patch()),
            _ => Err(StatusError::unknown_format(CUSTOM)),
        }
    }

    /// What a patch makes of a value.
    pub(super) fn apply(
        self,
        kind: &ServedKind,
        target: &mut Value,
        patch: &Value,
    ) -> Result<(), StatusError> {
        match self {
            Self::Json => jsonpatch::apply(target, patch).map_err(|()| StatusError::unprocessable()),
            Self::Strategic => strategic::apply(kind, target, patch)
                .map_err(|error| StatusError::bad_request(error.to_string())),
            Self::Merge | Self::Apply => {
                merge(target, patch);
                Ok(())
            }
        }
    }
}

/// What the library for merge patches says of everything that is none.
const BAD_MERGE: &str = "Invalid JSON Patch";

/// The patch in a body. Unless unknown fields are ignored, the real server first decodes it strictly, with errors of another library;
/// to all of Go's decoders null is an empty list or map.
pub(super) fn parse(patch_type: PatchType, body: &[u8], unknown: Unknown) -> Result<Value, StatusError> {
    let decoding = |why: &str| StatusError::bad_request(format!("error decoding patch: {why}"));
    let patch: Value = serde_json::from_slice(body).map_err(|e| {
        let why = if e.is_eof() { "unexpected end of JSON input" } else { "invalid JSON" };
        match patch_type {
            PatchType::Merge if unknown == Unknown::Ignore => StatusError::bad_request(BAD_MERGE),
            PatchType::Merge => decoding(why),
            PatchType::Json if unknown != Unknown::Ignore => decoding(why),
            _ => StatusError::bad_request(why),
        }
    })?;
    match patch_type {
        PatchType::Json if patch.is_null() => Ok(json!([])),
        PatchType::Strategic if patch.is_null() => Ok(json!({})),
        PatchType::Merge if patch.is_null() => Err(StatusError::bad_request(BAD_MERGE)),
        // Then the list is the object, which it cannot be.
        PatchType::Merge if unknown == Unknown::Ignore && patch.is_array() => Ok(patch),
        PatchType::Merge if unknown == Unknown::Ignore && !patch.is_object() => {
            Err(StatusError::bad_request(BAD_MERGE))
        }
        PatchType::Json if !patch.is_array() => {
            let go = decode::go_kind(&patch);
            if unknown == Unknown::Ignore {
                let why = format!("json: cannot unmarshal {go} into Go value of type jsonpatch.Patch");
                return Err(StatusError::bad_request(why));
            }
            Err(decoding(&format!(
                "json: cannot unmarshal {go} into Go value of type []handlers.jsonPatchOp"
            )))
        }
        PatchType::Json => Ok(patch),
        PatchType::Strategic if !patch.is_object() => {
            let go = decode::go_kind(&patch);
            let why = format!("json: cannot unmarshal {go} into Go value of type map[string]interface {{}}");
            Err(StatusError::bad_request(why))
        }
        _ if !patch.is_object() => {
            let go = decode::go_kind(&patch);
            Err(decoding(&format!(
                "json: cannot unmarshal {go} into Go value of type map[string]interface {{}}"
            )))
        }
        _ => Ok(patch),
    }
}

/// JSON merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    let map = meta::map(target);
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

impl Server {
    pub(super) fn patch(
        &mut self,
        context: &RequestContext<'_>,
        target: Target<'_>,
        subresource: &'static str,
    ) -> Result<Response, StatusError> {
        let kind = target.kind;
        let patch_type = PatchType::of(context.request.content_type.as_deref(), kind)?;
        let options = Self::patch_options(context)?;
        if patch_type == PatchType::Apply {
            if context.query.get("fieldManager").is_none() {
                let cause = StatusCause::required("fieldManager", "is required for apply patch");
                return Err(StatusError::invalid_options("PatchOptions", &[cause]));
            }
            let caller = Self::patch_caller(context, Verb::Apply, subresource, &options);
            return self.apply(context, &caller, target);
        }
        if context.query.get("force").is_some() {
            let cause = StatusCause::forbidden("force", "may not be specified for non-apply patch");
            return Err(StatusError::invalid_options("PatchOptions", &[cause]));
        }
        let caller = Self::patch_caller(context, Verb::Patch, subresource, &options);
        let mut warnings = Vec::new();
        let result = self.update(&caller, target, &Expected::default(), |kinds, old| {
            let patch = parse(patch_type, &context.request.body, options.unknown)?;
            let mut object = super::convert::to(kind, old).as_ref().clone();
            patch_type.apply(kind, &mut object, &patch)?;
            if !object.is_object() {
                let why = format!("json: cannot unmarshal {} into Go value", decode::go_kind(&object));
                return Err(StatusError::invalid_patch(&[StatusCause::invalid(
                    "patch",
                    &json!(object.to_string()),
                    &why,
                )]));
            }
            let shown = object.to_string();
            let decoded = decode::patched(kinds, kind, object, options.unknown).map_err(|failure| {
                // What a patch makes that cannot be read is wrong as a patch.
                let message = failure.status()["message"].as_str().unwrap_or_default();
                match message.split_once(&format!(" cannot be handled as a {}: ", kind.kind)) {
                    Some((_, why)) => {
                        StatusError::invalid_patch(&[StatusCause::invalid("patch", &json!(shown), why)])
                    }
                    None => failure,
                }
            })?;
            warnings = decoded.warnings;
            check_name(&decoded.object, target.name)?;
            Ok(decoded.object)
        });
        Ok(self.written(context, kind, 200, result, warnings))
    }
}
