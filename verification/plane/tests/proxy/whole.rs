//! Faults of the whole proxy, and its trace.

use coppice_plane::proxy::{Fault, FaultRule, Match, TraceEntry};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Error, api::PostParams};

use crate::support::{TestProxy, proxy, secret, with_timeout};

#[tokio::test]
async fn a_frozen_proxy_takes_requests_and_answers_when_healed() {
    let bench = TestProxy::new("frozen").await;
    bench.proxy.freeze();
    let creating = bench.create_task("a");
    let taken = |entry: &TraceEntry| entry.verb == "create";
    let entry = with_timeout("the request is taken", bench.proxy.trace().wait_for(taken)).await;
    assert!(entry.status.is_none() && !creating.is_finished());
    assert!(bench.direct.get_opt("a").await.unwrap().is_none());
    bench.proxy.heal();
    with_timeout("the request is answered", creating).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_cut_proxy_refuses_until_it_is_healed() {
    let bench = TestProxy::new("cut").await;
    bench.create("a").await.unwrap();
    bench.proxy.cut();
    assert!(!matches!(bench.through.get("a").await, Ok(_) | Err(Error::Api(_))));
    bench.proxy.heal();
    bench.through.get("a").await.unwrap();

    // A held request loses its connection, and is forwarded nevertheless.
    let rule = bench.proxy.add(FaultRule::new(Match::verb("create").resource("secrets"), Fault::HoldRequest));
    let creating = bench.create_task("b");
    with_timeout("the request is held", rule.held(1)).await;
    bench.proxy.cut_connections();
    assert!(!matches!(
        with_timeout("the connection is cut", creating).await.unwrap(),
        Ok(_) | Err(Error::Api(_))
    ));
    rule.release();
    with_timeout(
        "the request was forwarded",
        bench.proxy.trace().wait_for(|e| e.name == "b" && e.status == Some(201)),
    )
    .await;
    bench.through.get("b").await.unwrap();
}

#[tokio::test]
async fn two_clients_at_once_leave_one_trace_in_order() {
    let bench = TestProxy::new("two").await;
    let file = bench.dir.path().join("trace.jsonl");
    let bench = TestProxy { proxy: proxy(Some(&file)).await, ..bench };
    let (one, two) = (bench.again().await, bench.again().await);
    let create_ten = async |client: &Api<Secret>, prefix: &str| {
        for index in 0..10 {
            client.create(&PostParams::default(), &secret(&format!("{prefix}-{index}"))).await.unwrap();
        }
    };
    tokio::join!(create_ten(&one, "one"), create_ten(&two, "two"));

    let finished = |entries: &[TraceEntry]| {
        let done = entries.len() == 20 && entries.iter().all(|entry| entry.done.is_some());
        done.then(|| entries.to_vec())
    };
    let entries = with_timeout("all is passed on", bench.proxy.trace().wait_until(finished)).await;
    assert!(entries.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
    assert!(entries.is_sorted_by_key(|entry| entry.at));
    for prefix in ["one", "two"] {
        let names = entries.iter().map(|entry| entry.name.as_str()).filter(|name| name.starts_with(prefix));
        assert!(names.eq((0..10).map(|index| format!("{prefix}-{index}"))));
    }
    for entry in &entries {
        let made = bench.direct.get(&entry.name).await.unwrap().metadata;
        assert_eq!(
            (Some(&entry.uid), Some(&entry.resource_version)),
            (made.uid.as_ref(), made.resource_version.as_ref())
        );
    }

    bench.proxy.trace().flush().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["seq"].as_u64());
    let expected: Vec<_> = entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect();
    assert_eq!(lines, expected);
}
