//! Events as API servers log them (`audit.k8s.io/v1`): the fields that are on every level. Bodies are not read.

use jiff::Timestamp;
use serde::Deserialize;

/// One stage of one request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// The same in every stage of a request.
    #[serde(rename = "auditID")]
    pub(crate) audit_id: String,
    /// `RequestReceived`, `ResponseStarted`, `ResponseComplete` or `Panic`.
    pub(crate) stage: String,
    /// Path and query.
    #[serde(default, rename = "requestURI")]
    pub(crate) request_uri: String,
    pub(crate) verb: String,
    #[serde(default)]
    pub(crate) user: User,
    /// As whom the user acts.
    pub(crate) impersonated_user: Option<User>,
    #[serde(default, rename = "sourceIPs")]
    pub(crate) source_ips: Vec<String>,
    #[serde(default)]
    pub(crate) user_agent: String,
    /// None of what is no object, such as `/metrics`.
    pub(crate) object_ref: Option<ObjectRef>,
    pub(crate) response_status: Option<ResponseStatus>,
    pub(crate) request_received_timestamp: Timestamp,
}

/// Who asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    /// Empty of who was not authenticated.
    pub(crate) username: String,
}

/// What was asked for. Fields are empty where the request has none: lists have no name, what is of the whole cluster no namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ObjectRef {
    pub(crate) api_group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What was answered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseStatus {
    pub(crate) code: Option<u16>,
}

/// As an audit webhook sends them.
#[derive(Deserialize)]
struct EventList {
    kind: String,
    items: Vec<Event>,
}

impl Event {
    /// What was answered; none if nothing is known of it.
    pub(crate) fn code(&self) -> Option<u16> {
        self.response_status.as_ref().and_then(|status| status.code)
    }

    /// Whether it may change something.
    pub(crate) fn is_edit(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it only says what it would change. The parameter means nothing in a read; and a deletion takes it from its body if it has
    /// one, which is not in the log.
    pub(crate) fn is_dry_run(&self) -> bool {
        let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
        matches!(self.verb.as_str(), "create" | "update" | "patch")
            && query.split('&').any(|pair| pair.starts_with("dryRun="))
    }
}

/// The events of a line: one, or those of a list.
pub(crate) fn events(line: &[u8]) -> Result<Vec<Event>, serde_json::Error> {
    let error = match serde_json::from_slice::<Event>(line) {
        Ok(event) => return Ok(vec![event]),
        Err(error) => error,
    };
    match serde_json::from_slice::<EventList>(line) {
        Ok(list) if list.kind == "EventList" => Ok(list.items),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete",
        "requestURI":"/api/v1/namespaces/team/secrets/a?dryRun=All","verb":"patch","user":{"username":"alice","groups":["b"]},
        "sourceIPs":["10.0.0.1"],"userAgent":"kubectl","objectRef":{"resource":"secrets","namespace":"team","name":"a","apiVersion":"v1"},
        "responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z",
        "stageTimestamp":"2026-01-02T03:04:05.100006Z","annotations":{"authorization.k8s.io/decision":"allow"}}"#;

    #[test]
    fn a_line_is_an_event_or_a_list_of_them() {
        let [event] = &*events(EVENT.as_bytes()).unwrap() else { panic!() };
        assert_eq!((event.user.username.as_str(), event.code(), event.is_edit()), ("alice", Some(200), true));
        assert!(event.is_dry_run());
        let list =
            format!(r#"{{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{EVENT},{EVENT}]}}"#);
        assert_eq!(events(list.as_bytes()).unwrap().len(), 2);
        for other in
            ["", "{}", "[]", "{\"kind\":\"Event\"}", r#"{"kind":"PodList","items":[]}"#, &EVENT[..99]]
        {
            assert!(events(other.as_bytes()).is_err(), "{other}");
        }
    }
}
