//! Judges credentials by what the two API servers had, instant by instant. Uses neither the crate that decides about credentials nor its
//! types.

pub(super) mod recorded_state;
mod rights;
pub mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_sim::Done;
use coppice_sim::run::RunRecord;
use coppice_sim::server::Change;
use coppice_sim::target::IssuedToken;
use coppice_sim::trace::Actor;
use serde_json::Value;

use self::recorded_state::{RecordedState, intent_of, owner_of, owner_of_token};
use self::rule::{CREDENTIAL_RIGHTS, ONE_CREDENTIAL, OUTLIVES, VALID};
use crate::oracle::rule::INTENT_FIRST;
use crate::oracle::{DestructiveStep, Findings, History, Rule, since};

/// Nobody waits longer for the answer to a write.
const DEADLINE: Duration = Duration::from_secs(5);

/// When the request was sent, and when it arrived, that made a revision.
type Requests = BTreeMap<u64, (Duration, Duration)>;

/// Notes what broke the rules of access.
pub(super) fn check(
    record: &RunRecord<'_>,
    history: &History,
    _: &[DestructiveStep<'_>],
    found: &mut Findings,
) {
    let Some(target) = record.target else { return };
    let (at_home, in_target) = (requests(record.done), requests(target.done()));
    // One thing that is wrong for some time is said once.
    let mut wrong: BTreeMap<(&str, String), (Rule, Duration)> = BTreeMap::new();
    let mut note = |rule: Rule, at: Duration, all: Vec<String>| {
        for what in all {
            wrong.entry((rule.0, what)).or_insert((rule, at));
        }
    };
    let last = recorded_state::replay(record, |state| {
        let at = since(record.began, state.now);
        note(VALID, at, invalid(state));
        note(OUTLIVES, at, left(record, state, (&at_home, &in_target)));
        note(CREDENTIAL_RIGHTS, at, rights::beyond(state, &in_target, false));
        note(ONE_CREDENTIAL, at, too_many(state));
    });
    note(CREDENTIAL_RIGHTS, record.lasted, rights::beyond(&last, &in_target, true));
    note(ONE_CREDENTIAL, record.lasted, besides(&last));
    for ((_, what), (rule, at)) in wrong {
        found.add(rule, &format!("{what} at {at:?}"));
    }
    for token in target.tokens().iter().filter(|token| !is_intended(history, token)) {
        found.add(INTENT_FIRST, &format!("{} was issued without an intent", intent_of(token)));
    }
}

/// The requests that made each revision of a server.
fn requests(all: &[Done]) -> Requests {
    let of_each = |done: &Done| {
        let (sent, at) = (done.sent, done.at);
        (done.revisions.0 + 1..=done.revisions.1).map(move |revision| (revision, (sent, at)))
    };
    all.iter().flat_map(of_each).collect()
}

/// Whether a change was made by a request when nobody waited for its answer any more.
fn is_late(requests: &Requests, change: &Change) -> bool {
    requests.get(&change.revision).is_some_and(|(sent, at)| at.saturating_sub(*sent) > DEADLINE)
}

/// Secrets that hold no valid credential, or are not there though a credential was written.
fn invalid(state: &RecordedState<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (uid, access) in state.kept() {
        match token_of(state, uid) {
            Some(token) if state.tokens.iter().any(|one| one.token == token && state.is_valid(one)) => {}
            Some(token) => found.push(format!("the Secret holds {token:?}, which the target does not take")),
            None if access["status"]["credential"].is_string() => {
                found.push("there is no Secret with the credential".to_owned());
            }
            None => {}
        }
    }
    found
}

/// The token in the Secret of a `ClusterAccess`, empty if none can be read there; none if there is no Secret.
fn token_of(state: &RecordedState<'_>, uid: &str) -> Option<String> {
    let mut secrets = state.outputs.values().filter_map(|change| change.after.as_deref());
    let secret = secrets.find(|secret| owner_of(secret) == Some(uid))?;
    Some(token_in(secret).unwrap_or_default())
}

/// The token in a Secret with a kubeconfig.
fn token_in(secret: &Value) -> Option<String> {
    let value = BASE64_STANDARD.decode(secret["data"]["kubeconfig"].as_str()?).ok()?;
    let text = String::from_utf8(value).ok()?;
    let (_, rest) = text.split_once("\"token\":\"")?;
    Some(rest.split_once('"')?.0.to_owned())
}

/// What is left of each `ClusterAccess` that is gone.
fn left(
    record: &RunRecord<'_>,
    state: &RecordedState<'_>,
    (at_home, in_target): (&Requests, &Requests),
) -> Vec<String> {
    let is_gone = |uid: &str| !state.accesses.contains_key(uid);
    let of_gone = state.tokens.iter().filter(|token| is_gone(owner_of_token(token)));
    let valid = of_gone.filter(|token| state.is_valid(token));
    let mut found: Vec<String> = valid.map(|token| format!("{} is valid", token.token)).collect();
    // What was on its way when it went arrives after that.
    let was_left = |change: &Change, requests: &Requests| {
        let owner = change.after.as_deref().and_then(owner_of);
        let Some(gone) = owner.and_then(|uid| state.gone.get(uid)) else { return false };
        let gone = since(record.began, *gone);
        let on_its_way =
            requests.get(&change.revision).is_some_and(|(sent, at)| *sent <= gone && gone <= *at);
        !on_its_way
    };
    let of_target = state.target.values().filter(|change| was_left(change, in_target));
    let outputs = state.outputs.values().filter(|change| was_left(change, at_home));
    found.extend(
        of_target
            .chain(outputs)
            .map(|change| format!("{} {}/{} is left", change.kind.plural, change.namespace(), change.name())),
    );
    found
}

/// Intents of which more than one credential is valid.
fn too_many(state: &RecordedState<'_>) -> Vec<String> {
    let mut requests: BTreeMap<&str, BTreeSet<(Actor, Duration)>> = BTreeMap::new();
    for token in state.tokens.iter().filter(|token| state.is_valid(token)) {
        requests.entry(intent_of(token)).or_default().insert(token.request);
    }
    let many = requests.into_iter().filter(|(_, requests)| requests.len() > 1);
    many.map(|(intent, requests)| format!("{} credentials of {intent} are valid", requests.len())).collect()
}

/// Credentials that are valid besides those in Secrets. A request that arrived twice has issued one.
fn besides(state: &RecordedState<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (uid, _) in state.kept() {
        let held = token_of(state, uid);
        let held = state.tokens.iter().find(|token| Some(&token.token) == held.as_ref());
        let is_other = |token: &IssuedToken| held.is_none_or(|held| held.request != token.request);
        let tokens = state.tokens.iter().filter(|token| owner_of_token(token) == uid);
        let others = tokens.filter(|token| state.is_valid(token) && is_other(token));
        found.extend(others.map(|token| format!("{} is valid, and not in the Secret", token.token)));
    }
    found
}

/// Whether the status of a `ClusterAccess` had the intent of a token when that was asked for.
fn is_intended(history: &History, token: &IssuedToken) -> bool {
    let revision = history.revision_at(token.request.1);
    history.all("clusteraccesses").any(|versions| {
        let then = versions.iter().rfind(|(from, _)| *from <= revision);
        let access = then.and_then(|(_, access)| access.as_deref());
        access.is_some_and(|access| access["status"]["intent"]["credential"] == intent_of(token))
    })
}
