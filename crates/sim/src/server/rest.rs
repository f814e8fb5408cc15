//! From a path and a method to what is to be done.

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Server;
use super::answer::{Body, Response, ServerReply};
use super::decode::{self, Unknown};
use super::delete::DeleteOptions;
use super::discovery;
use super::kinds::{ServedKind, Verbs};
use super::meta;
use super::request::{Query, Request, decode as percent_decode};
use super::status::{StatusCause, StatusError};
use super::store::Verb;
use super::view::View;
use super::write::{Caller, Expected, Target};

/// What a path names.
struct RequestPath {
    kind: Arc<ServedKind>,
    namespace: String,
    /// Empty for a collection.
    name: String,
    subresource: &'static str,
    /// The path is one of the old ones that always watch.
    watch: bool,
}

/// Options that every write has.
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) unknown: Unknown,
    pub(super) manager: String,
}

impl WriteOptions {
    /// `what` is such as `CreateOptions`.
    fn parse(query: &Query, what: &str) -> Result<Self, StatusError> {
        let mut causes = Vec::new();
        let dry_run: Vec<&str> = query.all("dryRun").filter(|v| !v.is_empty()).collect();
        if dry_run.iter().any(|v| *v != "All") {
            causes.push(StatusCause::unsupported("dryRun", &json!(dry_run), &["All"]));
        }
        let unknown = match query.get("fieldValidation") {
            None | Some("Warn") => Unknown::Warn,
            Some("Ignore") => Unknown::Ignore,
            Some("Strict") => Unknown::Strict,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                causes.push(StatusCause::unsupported("fieldValidation", &json!(other), &supported));
                Unknown::Warn
            }
        };
        if !causes.is_empty() {
            return Err(StatusError::invalid_options(what, &causes));
        }
        let manager = query.get("fieldManager").unwrap_or("unknown").to_owned();
        Ok(Self { dry_run: !dry_run.is_empty(), unknown, manager })
    }
}

/// Everything about a request that the parts of its answer need.
pub(super) struct RequestContext<'a> {
    pub(super) now: Timestamp,
    pub(super) user: &'a str,
    pub(super) request: &'a Request,
    pub(super) query: Query,
    pub(super) view: View,
}

impl<'a> RequestContext<'a> {
    fn caller(&'a self, verb: Verb, subresource: &'static str, options: &'a WriteOptions) -> Caller<'a> {
        Caller {
            now: self.now,
            user: self.user,
            verb,
            subresource,
            manager: &options.manager,
            dry_run: options.dry_run,
        }
    }
}

impl Server {
    pub(super) fn answer(
        &mut self,
        now: Timestamp,
        user: &str,
        request: &Request,
    ) -> Result<ServerReply, StatusError> {
        let segments: Vec<String> =
            request.path.split('/').filter(|s| !s.is_empty()).map(percent_decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let Some(response) = discovery::answer(self, &segments, request)? {
            return Ok(ServerReply::Done(response));
        }
        let path = self.resolve(&segments)?;
        let query = Query::parse(&request.query);
        let view = View::accepted(request.accept.as_deref(), query.get("includeObject"))?;
        let context = RequestContext { now, user, request, query, view };
        if path.kind.verbs == Verbs::Create {
            return self.review(&context, &path.kind).map(ServerReply::Done);
        }
        if path.name.is_empty() {
            self.on_collection(&context, &path)
        } else {
            self.on_object(&context, &path).map(ServerReply::Done)
        }
    }

    /// The kind and the object that a path names.
    fn resolve(&self, segments: &[&str]) -> Result<RequestPath, StatusError> {
        let (group, version, rest) = match segments {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Err(StatusError::no_page()),
        };
        if !self.kinds.has_version(group, version) {
            return Err(StatusError::no_page());
        }
        let (watch, rest) = match rest {
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let find = |plural: &str| self.kinds.at(group, version, plural).cloned();
        let (namespace, plural, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if find(plural).is_some_and(|k| k.namespaced) => {
                (*namespace, *plural, rest)
            }
            ["namespaces", _, plural, ..]
                if group.is_empty() && !matches!(*plural, "status" | "finalize") =>
            {
                return Err(StatusError::no_resource());
            }
            ["namespaces", _, _, ..] if !group.is_empty() => return Err(StatusError::no_resource()),
            [plural, rest @ ..] => ("", *plural, rest),
            [] => return Err(StatusError::no_page()),
        };
        let kind = find(plural).ok_or_else(StatusError::no_resource)?;
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, subresource] => (*name, *subresource),
            _ => return Err(StatusError::no_resource()),
        };
        let known = kind.subresources.iter().find(|s| **s == subresource).copied();
        let subresource = match known {
            Some(known) => known,
            None if subresource.is_empty() => "",
            // The API server looks for the object before it sees that a custom resource lacks the subresource.
            None if kind.custom.is_some() => return Err(StatusError::not_found(&kind, name)),
            None => return Err(StatusError::no_resource()),
        };
        if kind.namespaced && namespace.is_empty() && !name.is_empty() {
            return Err(StatusError::no_resource());
        }
        Ok(RequestPath { kind, namespace: namespace.to_owned(), name: name.to_owned(), subresource, watch })
    }

    fn on_collection(
        &mut self,
        context: &RequestContext<'_>,
        path: &RequestPath,
    ) -> Result<ServerReply, StatusError> {
        let RequestPath { kind, namespace, .. } = path;
        match context.request.method {
            Method::GET if path.watch || context.query.flag("watch") => {
                self.watch(kind, namespace, &context.query, context.view)
            }
            Method::GET => self.list(kind, namespace, &context.query, context.view).map(ServerReply::Done),
            Method::POST if !kind.namespaced || !namespace.is_empty() => {
                let options = WriteOptions::parse(&context.query, "CreateOptions")?;
                decode::check_media(context.request.content_type.as_deref())?;
                let decoded = decode::object(&self.kinds, kind, &context.request.body, options.unknown)?;
                let caller = context.caller(Verb::Create, "", &options);
                let created = self.create(&caller, Target { kind, namespace, name: "" }, decoded.object);
                Ok(ServerReply::Done(self.written(context, kind, 201, created, decoded.warnings)))
            }
            Method::DELETE if kind.verb_names().contains(&"deletecollection") => {
                let options = DeleteOptions::parse(&context.query, &context.request.body)?;
                let write = WriteOptions {
                    dry_run: options.dry_run,
                    unknown: Unknown::Ignore,
                    manager: String::new(),
                };
                let caller = context.caller(Verb::DeleteCollection, "", &write);
                self.delete_listed(&caller, kind, namespace, &context.query, &options).map(ServerReply::Done)
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    fn on_object(
        &mut self,
        context: &RequestContext<'_>,
        path: &RequestPath,
    ) -> Result<Response, StatusError> {
        let RequestPath { kind, namespace, name, subresource, .. } = path;
        let target = Target { kind, namespace, name };
        match (&context.request.method, *subresource) {
            (_, "scale") => self.scale(context, target),
            (&Method::POST, "binding" | "eviction") => self.pod_action(context, target, subresource),
            (_, "binding" | "eviction") => Err(StatusError::method_not_allowed()),
            (&Method::GET, "" | "status") => {
                let object = self.read(kind, namespace, name, &context.query)?;
                Ok(context.view.response(self, kind, 200, &object))
            }
            (&Method::PUT, _) => self.put(context, target, subresource),
            (&Method::PATCH, "" | "status") => self.patch(context, target, subresource),
            (&Method::DELETE, "") => {
                let options = DeleteOptions::parse(&context.query, &context.request.body)?;
                let write = WriteOptions {
                    dry_run: options.dry_run,
                    unknown: Unknown::Ignore,
                    manager: String::new(),
                };
                let mut response =
                    match self.delete(&context.caller(Verb::Delete, "", &write), target, &options) {
                        Ok(deleted) => self.deletion_response(kind, &deleted),
                        Err(failure) => failure.into_response(),
                    };
                response.warnings.extend(options.warning(kind));
                Ok(response)
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    /// The answer to a write, with its warnings, which are given also if it failed.
    pub(super) fn written(
        &self,
        context: &RequestContext<'_>,
        kind: &ServedKind,
        code: u16,
        result: Result<Arc<Value>, StatusError>,
        warnings: Vec<String>,
    ) -> Response {
        let mut response = match result {
            Ok(object) => context.view.response(self, kind, code, &object),
            Err(failure) => failure.into_response(),
        };
        response.warnings = warnings;
        response
    }

    fn put(
        &mut self,
        context: &RequestContext<'_>,
        target: Target<'_>,
        subresource: &'static str,
    ) -> Result<Response, StatusError> {
        let Target { kind, namespace, name } = target;
        let options = WriteOptions::parse(&context.query, "UpdateOptions")?;
        decode::check_media(context.request.content_type.as_deref())?;
        let decoded = decode::object(&self.kinds, kind, &context.request.body, options.unknown)?;
        let object = decoded.object;
        check_name(&object, name)?;
        let given = meta::namespace(&object);
        if !given.is_empty() && given != namespace {
            return Err(StatusError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        let caller = context.caller(Verb::Update, subresource, &options);
        if kind.create_on_update && subresource.is_empty() && self.find(kind, namespace, name).is_err() {
            let uid = meta::uid(&object);
            if !uid.is_empty() {
                let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
                return Err(StatusError::storage_conflict(kind, namespace, name, &why));
            }
            let created = self.create_regardless(&caller, target, object);
            return Ok(self.written(context, kind, 201, created, decoded.warnings));
        }
        let uid = meta::uid(&object);
        let expected = Expected { uid: (!uid.is_empty()).then(|| uid.to_owned()), rewritten: false };
        let result = self.update(&caller, target, &expected, |_, _| Ok(object));
        Ok(self.written(context, kind, 200, result, decoded.warnings))
    }

    /// Options of a patch, and who asks.
    pub(super) fn patch_options(context: &RequestContext<'_>) -> Result<WriteOptions, StatusError> {
        WriteOptions::parse(&context.query, "PatchOptions")
    }

    /// Who asks for a patch.
    pub(super) fn patch_caller<'a>(
        context: &'a RequestContext<'_>,
        verb: Verb,
        subresource: &'static str,
        options: &'a WriteOptions,
    ) -> Caller<'a> {
        context.caller(verb, subresource, options)
    }
}

/// The object has the name that the path names.
pub(super) fn check_name(object: &Value, name: &str) -> Result<(), StatusError> {
    match meta::name(object) {
        "" => Err(StatusError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given != name => Err(StatusError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// A `Status` of success.
pub(super) fn success(code: u16) -> Response {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
    Response::new(code, Body::Value(status))
}
