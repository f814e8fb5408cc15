//! Reviews of access: answered and not kept. Everybody may do everything.

use serde_json::{Value, json};

use super::Server;
use super::answer::{Body, Response};
use super::kinds::ServedKind;
use super::rest::RequestContext;
use super::status::StatusError;

impl Server {
    pub(super) fn review(
        &self,
        context: &RequestContext<'_>,
        kind: &ServedKind,
    ) -> Result<Response, StatusError> {
        if context.request.method != http::Method::POST {
            return Err(StatusError::method_not_allowed());
        }
        let given =
            super::decode::object(&self.kinds, kind, &context.request.body, super::decode::Unknown::Ignore)?;
        let mut review = given.object;
        review["status"] = match kind.plural.as_ref() {
            "selfsubjectreviews" => {
                json!({"userInfo": {"username": context.user, "groups": ["system:masters", "system:authenticated"]}})
            }
            "selfsubjectrulesreviews" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            _ => json!({"allowed": true}),
        };
        review["metadata"] = json!({"creationTimestamp": Value::Null});
        Ok(Response::new(201, Body::Value(review)))
    }
}
