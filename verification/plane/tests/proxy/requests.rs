//! Faults of requests and their answers.

use std::time::Duration;

use super::support::{TestProxy, code, with_timeout};
use coppice_plane::{
    ALICE,
    proxy::{Corruption, Date, FakeResponse, FaultRule, Match, ProxyFault, TraceEntry},
};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use k8s_openapi::api::{authentication::v1::SelfSubjectReview, core::v1::Secret};
use kube::{
    Api, Error,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};

#[tokio::test]
async fn identity_and_rights_are_the_clients_own() {
    let bench = TestProxy::new("identity").await;
    let alice = bench.client(ALICE).await;
    let review = Api::all(alice.clone()).create(&PostParams::default(), &SelfSubjectReview::default()).await;
    assert_eq!(review.unwrap().status.unwrap().user_info.unwrap().username.unwrap(), ALICE);
    let refusal = Api::<Secret>::all(alice).list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&refusal), 403);

    let entries = bench.proxy.trace().entries();
    let verbs: Vec<_> = entries.iter().map(|e| (e.verb.as_str(), e.resource.as_str(), e.status)).collect();
    assert_eq!(verbs, [("create", "selfsubjectreviews", Some(201)), ("list", "secrets", Some(403))]);
    assert!(!entries[0].is_write());
}

#[tokio::test]
async fn a_write_is_refused_as_the_rule_says_and_accepted_afterwards() {
    let bench = TestProxy::new("refused").await;
    let answers = [
        (403, FakeResponse::forbidden()),
        (409, FakeResponse::conflict()),
        (410, FakeResponse::expired()),
        (429, FakeResponse::too_many_requests(7)),
        (500, FakeResponse::internal_error()),
        (503, FakeResponse::unavailable()),
        (504, FakeResponse::timeout()),
        (418, FakeResponse::status(418, "Teapot", "short and stout")),
    ];
    for (expected, answer) in answers {
        let rule = bench
            .proxy
            .add(FaultRule::new(Match::writes().resource("secrets"), ProxyFault::FakeResponse(answer)));
        let refusal = bench.create("a").await.unwrap_err();
        assert_eq!(code(&refusal), expected);
        let Error::Api(status) = &refusal else { panic!("{refusal:?}") };
        let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        assert_eq!(wait, if expected == 429 { 7 } else { 0 });
        // Reads do not match, and nothing reached the API server.
        assert!(bench.through.get_opt("a").await.unwrap().is_none());
        assert_eq!(rule.count(), 1);
    }
    bench.create("a").await.unwrap();

    let refused = bench.proxy.trace().wait_for(|entry| entry.status == Some(429)).await;
    assert_eq!(
        (refused.verb.as_str(), refused.name.as_str(), refused.faults),
        ("create", "a", vec!["answer"])
    );
}

#[tokio::test]
async fn a_rule_counts_its_matches() {
    let bench = TestProxy::new("counts").await;
    let conflict = |rule: FaultRule| bench.proxy.add(rule);
    let writes = || Match::writes().namespace(&bench.namespace);
    let second =
        conflict(FaultRule::new(writes(), ProxyFault::FakeResponse(FakeResponse::conflict())).from(2).once());
    let fourth = conflict(
        FaultRule::new(writes(), ProxyFault::FakeResponse(FakeResponse::timeout())).from(3).times(2),
    );
    let mut results = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        results.push(bench.create(name).await.err().as_ref().map(code));
    }
    assert_eq!(results, [None, Some(409), Some(504), Some(504), None]);
    assert_eq!((second.count(), fourth.count()), (1, 2));
    bench.proxy.clear();
    bench.create("b").await.unwrap();
}

#[tokio::test]
async fn responses_are_corrupted() {
    let bench = TestProxy::new("spoilt").await;
    bench.create("a").await.unwrap();
    let get = || Match::verb("get").resource("secrets").name("a");

    let malformed = bench.proxy.add(FaultRule::new(get(), ProxyFault::Corruption(Corruption::Malformed)));
    assert!(matches!(bench.through.get("a").await, Err(Error::SerdeError(_))));
    drop(malformed);

    let truncated = bench.proxy.add(FaultRule::new(get(), ProxyFault::Corruption(Corruption::Truncated)));
    let error = bench.through.get("a").await.unwrap_err();
    assert!(!matches!(error, Error::SerdeError(_) | Error::Api(_)), "{error:?}");
    drop(truncated);

    let slow = bench
        .proxy
        .add(FaultRule::new(get(), ProxyFault::Corruption(Corruption::Slow(Duration::from_millis(320)))));
    bench.through.get("a").await.unwrap();
    // Where the machine is busy, others may take as long by themselves.
    let slowed = |entry: &TraceEntry| {
        entry.faults == ["spoil"] && entry.took().is_some_and(|took| took >= Duration::from_millis(320))
    };
    let entry = with_timeout("the slow answer", bench.proxy.trace().wait_for(slowed)).await;
    assert_eq!((entry.verb.as_str(), entry.status), ("get", Some(200)));
    drop(slow);

    let made_up =
        FakeResponse::json(200, &serde_json::json!({"kind": "Secret"})).corrupted(Corruption::Malformed);
    let rule = bench.proxy.add(FaultRule::new(get(), ProxyFault::FakeResponse(made_up)));
    assert!(matches!(bench.through.get("a").await, Err(Error::SerdeError(_))));
    drop(rule);
    bench.through.get("a").await.unwrap();
}

#[tokio::test]
async fn a_lost_request_has_no_effect_and_a_lost_answer_has_one() {
    let bench = TestProxy::new("lost").await;
    let create = || Match::verb("create").resource("secrets");
    let rule = bench.proxy.add(FaultRule::new(create(), ProxyFault::LoseRequest));
    assert!(!matches!(bench.create("a").await, Ok(_) | Err(Error::Api(_))));
    assert!(bench.direct.get_opt("a").await.unwrap().is_none());
    drop(rule);

    let _rule = bench.proxy.add(FaultRule::new(create(), ProxyFault::LoseResponse));
    assert!(!matches!(bench.create("a").await, Ok(_) | Err(Error::Api(_))));
    let made = bench.direct.get("a").await.unwrap();
    let trace = bench.proxy.trace();
    let entry = trace.wait_for(|entry| entry.faults == ["lose-answer"] && entry.status == Some(201)).await;
    assert_eq!(Some(&entry.uid), made.metadata.uid.as_ref());
    assert_eq!(Some(&entry.resource_version), made.metadata.resource_version.as_ref());
    assert_eq!(entry.done, None);
}

#[tokio::test]
async fn a_held_request_is_late_and_reaches_the_server_without_its_client() {
    let bench = TestProxy::new("held").await;
    let made = bench.create("a").await.unwrap();
    let rule =
        bench.proxy.add(FaultRule::new(Match::verb("patch").resource("secrets"), ProxyFault::HoldRequest));

    // What is discarded never happens.
    let lost = bench.patch("a", serde_json::json!({"stringData": {"by": "nobody"}}));
    with_timeout("the request is held", rule.held(1)).await;
    rule.discard();
    assert!(!matches!(lost.await.unwrap(), Ok(_) | Err(Error::Api(_))));

    // A late write of a client that has left, after somebody else wrote: the precondition decides.
    let version = made.metadata.resource_version.clone().unwrap();
    let body = serde_json::json!({"metadata": {"resourceVersion": version}, "stringData": {"by": "late"}});
    let late = bench.patch("a", body);
    with_timeout("the request is held", rule.held(2)).await;
    late.abort();
    assert!(late.await.unwrap_err().is_cancelled());
    let patch = Patch::Merge(serde_json::json!({"stringData": {"by": "other"}}));
    bench.direct.patch("a", &PatchParams::default(), &patch).await.unwrap();
    rule.release();
    let refused = |entry: &TraceEntry| entry.verb == "patch" && entry.status == Some(409);
    let entry = with_timeout("the late write is refused", bench.proxy.trace().wait_for(refused)).await;
    assert_eq!(entry.faults, ["hold-request"]);
    assert_eq!(bench.value("a", "by").await, "other");

    // Dropping the rule lets it go.
    let waiting = bench.patch("a", serde_json::json!({"stringData": {"by": "me"}}));
    with_timeout("the request is held", rule.held(3)).await;
    drop(rule);
    with_timeout("the request is answered", waiting).await.unwrap().unwrap();
    assert_eq!(bench.value("a", "by").await, "me");
}

#[tokio::test]
async fn held_requests_go_one_by_one() {
    let bench = TestProxy::new("one-by-one").await;
    let rule =
        bench.proxy.add(FaultRule::new(Match::verb("create").resource("secrets"), ProxyFault::HoldRequest));
    let first = bench.create_task("first");
    with_timeout("the first is held", rule.held(1)).await;
    let second = bench.create_task("second");
    with_timeout("the second is held", rule.held(2)).await;
    rule.release_one();
    with_timeout("the first is answered", first).await.unwrap().unwrap();
    assert!(bench.direct.get_opt("second").await.unwrap().is_none() && !second.is_finished());
    rule.release_one();
    with_timeout("the second is answered", second).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_held_answer_hides_what_has_happened() {
    let bench = TestProxy::new("hidden").await;
    let rule = bench.proxy.add(FaultRule::new(Match::writes().resource("secrets"), ProxyFault::HoldResponse));
    let creating = bench.create_task("a");
    with_timeout("the answer is held", rule.held(1)).await;
    bench.direct.get("a").await.unwrap();
    assert!(!creating.is_finished());
    rule.release();
    let made = with_timeout("the answer is passed on", creating).await.unwrap().unwrap();
    assert_eq!(made.metadata.name.as_deref(), Some("a"));

    let deleting = tokio::spawn({
        let secrets = bench.through.clone();
        async move { secrets.delete("a", &DeleteParams::default()).await }
    });
    with_timeout("the answer is held", rule.held(2)).await;
    rule.discard();
    assert!(!matches!(deleting.await.unwrap(), Ok(_) | Err(Error::Api(_))));
    assert!(bench.direct.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_request_delivered_twice_is_answered_the_second_time() {
    let bench = TestProxy::new("twice").await;
    let _rule = bench.proxy.add(FaultRule::new(Match::writes().resource("secrets"), ProxyFault::Twice));
    assert_eq!(code(&bench.create("a").await.unwrap_err()), 409);
    bench.direct.get("a").await.unwrap();
    assert_eq!(code(&bench.through.delete("a", &DeleteParams::default()).await.unwrap_err()), 404);
}

#[tokio::test]
async fn a_delayed_request_takes_its_time() {
    let bench = TestProxy::new("delayed").await;
    let delay = Duration::from_millis(200);
    let _rule =
        bench.proxy.add(FaultRule::new(Match::verb("create").resource("secrets"), ProxyFault::Delay(delay)));
    bench.create("a").await.unwrap();
    let made = |entry: &TraceEntry| entry.verb == "create" && entry.done.is_some();
    let entry = with_timeout("the answer is passed on", bench.proxy.trace().wait_for(made)).await;
    assert!(entry.took().unwrap() >= delay, "{entry:?}");
}

#[tokio::test]
async fn the_second_page_of_a_list_has_expired() {
    let bench = TestProxy::new("pages").await;
    for name in ["a", "b", "c"] {
        bench.create(name).await.unwrap();
    }
    let expired = ProxyFault::FakeResponse(FakeResponse::expired());
    let rule = bench.proxy.add(FaultRule::new(Match::continued_lists().resource("secrets"), expired));
    let first = bench.through.list(&ListParams::default().limit(2)).await.unwrap();
    let next = ListParams::default().limit(2).continue_token(first.metadata.continue_.as_ref().unwrap());
    assert_eq!(code(&bench.through.list(&next).await.unwrap_err()), 410);
    drop(rule);
    assert_eq!(bench.through.list(&next).await.unwrap().items.len(), 1);
}

/// The `Date` header of an answer.
async fn date(bench: &TestProxy) -> Option<Timestamp> {
    let answer = reqwest::get(format!("{}/version", bench.proxy.url())).await.unwrap();
    let date = answer.headers().get("date")?.to_str().unwrap();
    Some(DateTimeParser::new().parse_timestamp(date).unwrap())
}

#[tokio::test]
async fn responses_have_another_date_or_none() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bench = TestProxy::new("dates").await;
    let right = date(&bench).await.unwrap();
    let hour = SignedDuration::from_hours(1);
    let shifted =
        bench.proxy.add(FaultRule::new(Match::any(), ProxyFault::Date(Date::Shifted(hour))).times(2));
    for ahead in [true, true, false] {
        let by = date(&bench).await.unwrap().duration_since(right);
        assert_eq!(by >= hour, ahead, "{by}");
    }
    drop(shifted);
    let _removed = bench.proxy.add(FaultRule::new(Match::any(), ProxyFault::Date(Date::Removed)).once());
    assert_eq!(date(&bench).await, None);
    assert!(date(&bench).await.is_some());
}
