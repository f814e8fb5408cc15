//! Who may read what a port shows: the API server says whose token it is, and what that user may do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coppice_runtime::client::Clients;
use coppice_runtime::error::chain;
use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::page;
use crate::port::HttpResponse;

/// So long what the API server has said holds.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
const DENIED_FOR: Duration = Duration::from_secs(10);
/// So many answers are remembered.
const MAX_KNOWN: usize = 256;
/// So many questions are asked at once, so that callers with ever other tokens do not become the API server's load.
const MAX_QUESTIONS: usize = 2;

/// Asks the API server. Clones share what was answered.
#[derive(Clone)]
pub struct MetricsAccess(Arc<Inner>);

struct Inner {
    clients: Clients,
    known: Mutex<HashMap<Question, (AccessDecision, Instant)>>,
    questions: Semaphore,
}

/// Digest of the token, and the path.
type Question = ([u8; 32], &'static str);

#[derive(Clone, Debug, PartialEq, Eq)]
enum AccessDecision {
    Allowed,
    /// The token is nobody's.
    Nobody,
    /// This user may not.
    Denied(String),
}

impl MetricsAccess {
    /// Nothing is asked yet.
    pub fn new(clients: Clients) -> Self {
        let questions = Semaphore::new(MAX_QUESTIONS);
        Self(Arc::new(Inner { clients, known: Mutex::default(), questions }))
    }

    /// Nothing if the caller may get `path`; otherwise the answer that says why not.
    pub(crate) async fn refused(&self, headers: &HeaderMap, path: &'static str) -> Option<HttpResponse> {
        let Some(token) = bearer(headers) else {
            return Some(unauthorized("a token is needed: send the header Authorization: Bearer TOKEN\n"));
        };
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let known = self.known((key, path));
        let answer = match known {
            Some(answer) => Ok(answer),
            None => self.ask(token, (key, path)).await,
        };
        match answer {
            Ok(AccessDecision::Allowed) => None,
            Ok(AccessDecision::Nobody) => Some(unauthorized("the API server does not know this token\n")),
            Ok(AccessDecision::Denied(user)) => {
                let text = format!(
                    "{user} may not get {path}: bind a ClusterRole to them that allows it, such as coppice-metrics-reader\n"
                );
                Some(page::text(StatusCode::FORBIDDEN, text))
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), path, "whether a caller may read this is not known");
                let text = "the API server could not be asked who you are: try again\n";
                Some(page::text(StatusCode::SERVICE_UNAVAILABLE, text))
            }
        }
    }

    fn known(&self, question: Question) -> Option<AccessDecision> {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&question).filter(|(_, until)| Instant::now() < *until).map(|(answer, _)| answer.clone())
    }

    async fn ask(&self, token: &str, question: Question) -> Result<AccessDecision, kube::Error> {
        // Never closed.
        let _turn = self.0.questions.acquire().await;
        if let Some(answer) = self.known(question) {
            return Ok(answer);
        }
        let answer = self.answer(token, question.1).await?;
        let holds = if answer == AccessDecision::Allowed { ALLOWED_FOR } else { DENIED_FOR };
        let now = Instant::now();
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() >= MAX_KNOWN {
            // Those that are let in are worth more.
            known.retain(|_, (answer, _)| *answer == AccessDecision::Allowed);
        }
        if known.len() < MAX_KNOWN {
            known.insert(question, (answer.clone(), now + holds));
        }
        Ok(answer)
    }

    async fn answer(&self, token: &str, path: &str) -> Result<AccessDecision, kube::Error> {
        let client = &self.0.clients.reads;
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(AccessDecision::Nobody);
        };
        let name = user.username.clone().unwrap_or_default();
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api = Api::<SubjectAccessReview>::all(client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status;
        Ok(if status.is_some_and(|status| status.allowed) {
            AccessDecision::Allowed
        } else {
            AccessDecision::Denied(name)
        })
    }
}

impl std::fmt::Debug for MetricsAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsAccess").finish_non_exhaustive()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(text: &'static str) -> HttpResponse {
    let mut page = page::text(StatusCode::UNAUTHORIZED, text);
    page.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    page
}
