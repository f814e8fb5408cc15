//! Reading: one object, lists with pages, and opening watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Server;
use super::answer::{List, Response, ServerReply};
use super::events;
use super::kinds::ServedKind;
use super::request::Query;
use super::selector::{Selector, exact_name};
use super::status::{StatusCause, StatusError};
use super::store::{ObjectKey, Revision};
use super::view::View;
use super::watch::{Watch, too_old};

/// What a list or watch asks for.
struct Options<'a> {
    revision: Option<&'a str>,
    matching: Option<&'a str>,
    continue_token: Option<&'a str>,
    limit: usize,
    initial_events: Option<bool>,
    watch: bool,
}

impl<'a> Options<'a> {
    fn parse(query: &'a Query, watch: bool) -> Result<Self, StatusError> {
        let limit = match query.get("limit") {
            Some(text) => text.parse::<i64>().map_err(|_| {
                StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })?,
            None => 0,
        };
        let options = Self {
            revision: query.get("resourceVersion"),
            matching: query.get("resourceVersionMatch"),
            continue_token: query.get("continue"),
            limit: usize::try_from(limit).unwrap_or(0),
            initial_events: query.get("sendInitialEvents").map(|v| !matches!(v, "false" | "0")),
            watch,
        };
        let causes = options.problems();
        if causes.is_empty() {
            Ok(options)
        } else {
            Err(StatusError::invalid_options("ListOptions", &causes))
        }
    }

    fn problems(&self) -> Vec<StatusCause> {
        const MATCH: &str = "resourceVersionMatch";
        const INITIAL: &str = "sendInitialEvents";
        let mut causes = Vec::new();
        if self.watch {
            match (self.initial_events, self.matching) {
                (Some(_), None) => causes.push(StatusCause::forbidden(
                    MATCH,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )),
                (None, Some(_)) => causes.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                )),
                _ => {}
            }
            if let Some(matching) = self.matching.filter(|m| *m != "NotOlderThan") {
                causes.push(StatusCause::unsupported(MATCH, &json!(matching), &["NotOlderThan"]));
            }
            if self.continue_token.is_some() {
                causes.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            return causes;
        }
        if let Some(matching) = self.matching {
            if self.revision.is_none() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(StatusCause::forbidden(MATCH, why));
            }
            if self.continue_token.is_some() {
                causes.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                causes.push(StatusCause::unsupported(
                    MATCH,
                    &json!(matching),
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if matching == "Exact" && self.revision == Some("0") {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(StatusCause::forbidden(MATCH, why));
            }
        }
        if self.initial_events.is_some() {
            causes.push(StatusCause::forbidden(INITIAL, "sendInitialEvents is forbidden for list"));
        }
        causes
    }
}

/// A text that is no revision.
#[derive(Debug, thiserror::Error)]
#[error("resourceVersion: Invalid value: {0:?}: strconv.ParseUint: parsing {0:?}: invalid syntax")]
struct NoRevision(String);

fn parse_revision(text: &str) -> Result<Revision, NoRevision> {
    text.parse().map_err(|_| NoRevision(text.to_owned()))
}

/// Where a page begins, and at which revision; none for the current one.
struct Page {
    revision: Option<Revision>,
    after: Option<String>,
}

impl Server {
    /// One object; `query` may ask for a revision that does not exist yet.
    pub(super) fn read(
        &self,
        kind: &Arc<ServedKind>,
        namespace: &str,
        name: &str,
        query: &Query,
    ) -> Result<Arc<Value>, StatusError> {
        if let Some(text) = query.get("resourceVersion") {
            let revision = parse_revision(text)
                .map_err(|e| StatusError::bad_request(format!("invalid resource version: {e}")))?;
            if revision > self.revision() {
                return Err(StatusError::too_large(revision, self.revision()));
            }
        }
        self.find(kind, namespace, name)
    }

    /// One object as it is stored.
    pub(super) fn find(
        &self,
        kind: &ServedKind,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Value>, StatusError> {
        let key = ObjectKey::new(namespace, name);
        let found = self.store.get(kind.store, key.as_str());
        found.cloned().ok_or_else(|| StatusError::not_found(kind, name))
    }

    pub(super) fn list(
        &self,
        kind: &Arc<ServedKind>,
        namespace: &str,
        query: &Query,
        view: View,
    ) -> Result<Response, StatusError> {
        let options = Options::parse(query, false)?;
        let selector = Selector::parse(kind, query.get("labelSelector"), query.get("fieldSelector"))
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let list = self.list_objects(kind, namespace, &selector, &options)?;
        Ok(Response::new(200, view.list(self, kind, list)))
    }

    /// What a deletion of a collection is about.
    pub(super) fn list_for_deletion(
        &self,
        kind: &Arc<ServedKind>,
        namespace: &str,
        query: &Query,
    ) -> Result<List, StatusError> {
        let options = Options::parse(query, false)?;
        let selector = Selector::parse(kind, query.get("labelSelector"), query.get("fieldSelector"))
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        self.list_objects(kind, namespace, &selector, &options)
    }

    fn list_objects(
        &self,
        kind: &ServedKind,
        namespace: &str,
        selector: &Selector,
        options: &Options<'_>,
    ) -> Result<List, StatusError> {
        let page = self.page(options)?;
        let current = self.revision();
        let revision = page.revision.unwrap_or(current);
        if revision > current {
            return Err(StatusError::too_large(revision, current));
        }
        if revision < self.store.compacted() && revision < current {
            return Err(match options.continue_token {
                Some(_) => {
                    let after = page.after.as_deref().unwrap_or_default();
                    StatusError::expired_continue(&token(-1, is_cached(kind), after))
                }
                None => StatusError::expired("The resourceVersion for the provided list is too old."),
            });
        }
        let mut list = List {
            api_version: kind.api_version(),
            kind: kind.list_kind.to_string(),
            revision,
            continue_token: None,
            remaining: None,
            typed_items: kind.custom.is_some(),
            items: Vec::new(),
        };
        if kind.custom.is_some() {
            // The API server says of custom resources that there is no next page, of others nothing.
            list.continue_token = Some(String::new());
        }
        // A list at "any" revision is answered from the cache, which does not cut it into pages.
        let cached = options.revision == Some("0") && is_cached(kind);
        let limit = if cached { 0 } else { options.limit };
        let after = page.after.map(|after| ObjectKey::new(namespace, &after));
        let after = after.as_ref().map(ObjectKey::as_str);
        if page.revision.is_none() || revision == current {
            if let (Some(name), None) = (exact_name(selector), after)
                && (!namespace.is_empty() || !kind.namespaced)
            {
                let key = ObjectKey::new(namespace, name);
                list.items.extend(
                    self.store.get(kind.store, key.as_str()).filter(|o| selector.matches(o)).cloned(),
                );
                return Ok(list);
            }
            fill(
                &mut list,
                self.store.range(kind.store, namespace, after),
                (kind, namespace),
                selector,
                limit,
            );
        } else {
            let then = self.store.range_at(kind.store, namespace, after, revision);
            fill(
                &mut list,
                then.iter().map(|(key, object)| (key, object)),
                (kind, namespace),
                selector,
                limit,
            );
        }
        Ok(list)
    }

    fn page(&self, options: &Options<'_>) -> Result<Page, StatusError> {
        if let Some(text) = options.continue_token {
            let (revision, after) = parse_token(text)?;
            if options.revision.is_some_and(|r| r != "0") {
                return Err(StatusError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            // A token that was given out with 410 continues at the current revision.
            return Ok(Page { revision: Revision::try_from(revision).ok(), after: Some(after) });
        }
        let Some(text) = options.revision else { return Ok(Page { revision: None, after: None }) };
        let revision = parse_revision(text)
            .map_err(|e| StatusError::bad_request(format!("invalid resource version: {e}")))?;
        let exact = match options.matching {
            Some(matching) => matching == "Exact",
            // Without a word on it, a list with a limit is exact.
            None => options.limit > 0 && revision > 0,
        };
        if revision > self.revision() {
            return Err(StatusError::too_large(revision, self.revision()));
        }
        Ok(Page { revision: exact.then_some(revision), after: None })
    }

    /// Opens a watch.
    pub(super) fn watch(
        &self,
        kind: &Arc<ServedKind>,
        namespace: &str,
        query: &Query,
        view: View,
    ) -> Result<ServerReply, StatusError> {
        let options = Options::parse(query, true)?;
        let selector = Selector::parse(kind, query.get("labelSelector"), query.get("fieldSelector"))
            .map_err(|error| StatusError::bad_request(error.to_string()))?;
        let revision = match options.revision {
            Some(text) => parse_revision(text).map_err(|error| StatusError::internal(error.to_string()))?,
            None => 0,
        };
        let bookmarks = query.flag("allowWatchBookmarks");
        let existing = options.initial_events.unwrap_or(revision == 0);
        let initial = if existing {
            let objects = self.store.range(kind.store, namespace, None);
            objects.filter(|(_, o)| selector.matches(o)).map(|(_, o)| o.clone()).collect()
        } else {
            VecDeque::new()
        };
        let position = if existing || revision == 0 { self.revision() } else { revision };
        let failure = if existing && revision > self.revision() {
            Some(StatusError::too_large(revision, self.revision()))
        } else if position < self.store.compacted() {
            Some(too_old(position, self.store.compacted()))
        } else {
            None
        };
        let watch = Watch {
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            selector,
            view,
            position,
            initial,
            initial_end: options.initial_events == Some(true),
            bookmarks,
            timeout: query.get("timeoutSeconds").and_then(|t| t.parse().ok()).map(Duration::from_secs),
            ended: false,
            failure,
        };
        Ok(ServerReply::Watch(Box::new(watch)))
    }
}

/// Puts what is selected into a list, up to its limit.
fn fill<'a>(
    list: &mut List,
    mut objects: impl Iterator<Item = (&'a ObjectKey, &'a Arc<Value>)>,
    (kind, namespace): (&ServedKind, &str),
    selector: &Selector,
    limit: usize,
) {
    let mut end = None;
    while limit == 0 || list.items.len() < limit {
        let Some((key, object)) = objects.next() else { return };
        if selector.matches(object) {
            list.items.push(object.clone());
            end = Some(key);
        }
    }
    // Whether more is selected is not checked: there may be a next page with nothing on it.
    let remaining = objects.count();
    if let (Some(last), true) = (end, remaining > 0) {
        // Relative to the namespace that is listed.
        let in_namespace = if namespace.is_empty() { last.as_str() } else { last.name() };
        let revision = i64::try_from(list.revision).unwrap_or(i64::MAX);
        list.continue_token = Some(token(revision, is_cached(kind), in_namespace));
        list.remaining = selector.is_everything().then_some(remaining);
    }
}

/// Whether the real server has a cache for the objects of a kind. For Events it has none.
fn is_cached(kind: &ServedKind) -> bool {
    !events::is_event(kind)
}

/// The token that continues behind a key, in the form of the real one's cache or of its storage.
fn token(revision: i64, cached: bool, after: &str) -> String {
    let root = if cached { "/" } else { "" };
    let start = format!("{root}{after}\0");
    let text = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string();
    base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text)
}

/// Revision (-1 for the current one) and key.
fn parse_token(token: &str) -> Result<(i64, String), StatusError> {
    let bad = |why: &str| StatusError::bad_request(format!("invalid continue token: {why}"));
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, token)
        .map_err(|_| bad("continue key is not valid: illegal base64 data"))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let first = match bytes.first() {
            Some(byte @ 0x80..=0x9f) => format!("\\u{byte:04x}"),
            Some(byte) if byte.is_ascii_control() => format!("\\x{byte:02x}"),
            byte => char::from(*byte.unwrap_or(&b' ')).to_string(),
        };
        bad(&format!("continue key is not valid: invalid character '{first}' looking for beginning of value"))
    })?;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(bad("continue key is not valid: server does not recognize this encoded version"));
    }
    let start = value["start"].as_str().unwrap_or_default();
    let key = start.trim_start_matches('/').trim_end_matches('\0');
    match value["rv"].as_i64() {
        Some(0) | None => Err(bad(
            "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        )),
        Some(revision) => Ok((revision, key.to_owned())),
    }
}
