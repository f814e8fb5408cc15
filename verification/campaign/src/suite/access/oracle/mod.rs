//! Judges credentials by what the two API servers had, instant by instant. Uses neither the crate that decides about credentials nor its
//! types.

mod certificates;
pub(super) mod held;
pub(super) mod recorded_state;
mod rights;
pub mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coppice_sim::Done;
use coppice_sim::run::RunRecord;
use coppice_sim::server::Change;
use coppice_sim::target::IssuedToken;
use coppice_sim::trace::Actor;

use self::held::{is_taken, output_of, token_in};
use self::recorded_state::{RecordedState, intent_named, intent_of, owner_of, owner_of_token};
use self::rule::{CREDENTIAL_RIGHTS, ONE_CREDENTIAL, OUTLIVES, SIGNING_REQUESTS, VALID};
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
        note(OUTLIVES, at, certificates::misdated(state));
        note(CREDENTIAL_RIGHTS, at, rights::beyond(state, &in_target, false));
        note(ONE_CREDENTIAL, at, too_many(state));
        note(ONE_CREDENTIAL, at, certificates::too_many(state, &at_home));
    });
    note(CREDENTIAL_RIGHTS, record.lasted, rights::beyond(&last, &in_target, true));
    note(ONE_CREDENTIAL, record.lasted, besides(&last));
    note(ONE_CREDENTIAL, record.lasted, certificates::unlisted(&last));
    note(SIGNING_REQUESTS, record.lasted, certificates::left_requests(&last, &in_target));
    for ((_, what), (rule, at)) in wrong {
        found.add(rule, &format!("{what} at {at:?}"));
    }
    let tokens = target.tokens().iter().map(|token| (intent_of(token), token.request.1));
    let signed = target.certificates().iter();
    let signed = signed.map(|signed| (intent_named(&signed.requested_by), signed.request.1));
    for (intent, _) in tokens.chain(signed).filter(|(intent, sent)| !is_intended(history, intent, *sent)) {
        found.add(INTENT_FIRST, &format!("{intent} was issued without an intent"));
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
    arrived_late(requests, change.revision)
}

/// The same of what made a revision.
fn arrived_late(requests: &Requests, revision: u64) -> bool {
    requests.get(&revision).is_some_and(|(sent, at)| at.saturating_sub(*sent) > DEADLINE)
}

/// Secrets that hold no valid credential, or are not there though a credential was written.
fn invalid(state: &RecordedState<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (uid, access) in state.kept() {
        match output_of(state, uid) {
            Some(secret) if is_taken(state, secret) => {}
            Some(secret) => {
                let token = token_in(secret).unwrap_or_else(|| "no token".to_owned());
                found.push(format!("the Secret holds {token:?}, which the target does not take"));
            }
            None if access["status"]["credential"].is_string() => {
                found.push("there is no Secret with the credential".to_owned());
            }
            None => {}
        }
    }
    found
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
        let held = output_of(state, uid).and_then(token_in);
        let held = state.tokens.iter().find(|token| Some(&token.token) == held.as_ref());
        let is_other = |token: &IssuedToken| held.is_none_or(|held| held.request != token.request);
        let tokens = state.tokens.iter().filter(|token| owner_of_token(token) == uid);
        let others = tokens.filter(|token| state.is_valid(token) && is_other(token));
        found.extend(others.map(|token| format!("{} is valid, and not in the Secret", token.token)));
    }
    found
}

/// Whether the status of a `ClusterAccess` had an intent when its credential was asked for.
fn is_intended(history: &History, intent: &str, sent: Duration) -> bool {
    let revision = history.revision_at(sent);
    history.all("clusteraccesses").any(|versions| {
        let then = versions.iter().rfind(|(from, _)| *from <= revision);
        let access = then.and_then(|(_, access)| access.as_deref());
        access.is_some_and(|access| access["status"]["intent"]["credential"] == intent)
    })
}
