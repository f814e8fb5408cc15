//! In which form objects are shown: as they are, their metadata only, or as a table.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use super::answer::{Body, List, Response};
use super::convert;
use super::kinds::ServedKind;
use super::status::StatusError;
use super::table;

/// What the client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Whole objects.
    Plain,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `Table`, with what its rows carry of each object.
    Table(table::Include),
}

impl View {
    /// Reads `Accept`: the first form in it that is served.
    pub(super) fn accepted(accept: Option<&str>, include: Option<&str>) -> Result<Self, StatusError> {
        let Some(accept) = accept.filter(|a| !a.trim().is_empty()) else { return Ok(Self::Plain) };
        for clause in accept.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                continue;
            }
            let parameter = |name: &str| {
                let mut parts = clause.split(';').skip(1).filter_map(|p| p.trim().split_once('='));
                parts.find(|(n, _)| *n == name).map(|(_, v)| v)
            };
            match (parameter("as"), parameter("g"), parameter("v")) {
                (None, ..) => return Ok(Self::Plain),
                (
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                    Some("meta.k8s.io"),
                    Some("v1"),
                ) => {
                    return Ok(Self::Metadata);
                }
                (Some("Table"), Some("meta.k8s.io"), Some("v1")) => {
                    return Ok(Self::Table(table::Include::parse(include)));
                }
                _ => {}
            }
        }
        Err(StatusError::not_acceptable())
    }

    /// One object in this form and in the version of the kind; shared if that is as it is stored.
    pub(super) fn object(self, server: &Server, kind: &ServedKind, object: &Arc<Value>) -> Arc<Value> {
        let object = convert::to(kind, object);
        match self {
            Self::Plain => object,
            Self::Metadata => Arc::new(partial(&object)),
            Self::Table(include) => {
                Arc::new(table::of_objects(server.shown_at(), kind, &[object], include, None))
            }
        }
    }

    /// A whole answer in this form.
    pub(super) fn response(
        self,
        server: &Server,
        kind: &ServedKind,
        code: u16,
        object: &Arc<Value>,
    ) -> Response {
        Response::new(code, Body::Object(self.object(server, kind, object)))
    }

    /// A list in this form.
    pub(super) fn list(self, server: &Server, kind: &ServedKind, mut list: List) -> Body {
        for item in &mut list.items {
            if let Some(converted) = convert::needed(kind, item) {
                *item = Arc::new(converted);
            }
        }
        match self {
            Self::Plain => Body::List(list),
            Self::Metadata => {
                list.items = list.items.iter().map(|item| Arc::new(partial(item))).collect();
                "PartialObjectMetadataList".clone_into(&mut list.kind);
                "meta.k8s.io/v1".clone_into(&mut list.api_version);
                list.typed_items = true;
                Body::List(list)
            }
            Self::Table(include) => {
                let metadata = list.metadata();
                Body::Value(table::of_objects(server.shown_at(), kind, &list.items, include, Some(metadata)))
            }
        }
    }

    /// A bookmark in this form.
    pub(super) fn bookmark(self, object: Value) -> Value {
        match self {
            Self::Plain => object,
            Self::Metadata => partial(&object),
            Self::Table(_) => table::of_bookmark(&object),
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
