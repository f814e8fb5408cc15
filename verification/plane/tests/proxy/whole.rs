//! Faults of the whole proxy, and its trace.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use coppice_plane::ADMIN;
use coppice_plane::proxy::{FaultRule, Match, Proxy, ProxyFault, TraceEntry};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error, api::PostParams};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

use super::support::{TestProxy, client, plane, proxy, secret, with_timeout};

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
    let rule =
        bench.proxy.add(FaultRule::new(Match::verb("create").resource("secrets"), ProxyFault::HoldRequest));
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

#[tokio::test]
async fn an_encrypted_proxy_forwards_in_the_name_of_a_token_or_of_a_certificate() {
    let plane = plane().await;
    let proxy = Proxy::start_encrypted(plane, None).await.unwrap();
    assert!(proxy.url().starts_with("https://127.0.0.1:"));
    let by_token = proxy.kubeconfig(&plane.admin_kubeconfig()).unwrap();
    assert_eq!(who(&client(&by_token).await).await["username"], ADMIN);

    let (certificate, key) = certificate(plane.dir());
    let token = format!("token: \"{}\"", plane.token(ADMIN).unwrap());
    let credential = format!("client-certificate-data: {certificate}\n    client-key-data: {key}");
    let text = fs::read_to_string(&by_token).unwrap().replace(&token, &credential);
    let dir = tempfile::tempdir().unwrap();
    let by_certificate = dir.path().join("certificate.yaml");
    fs::write(&by_certificate, text).unwrap();
    let someone = client(&by_certificate).await;
    let found = who(&someone).await;
    assert_eq!((&found["username"], &found["groups"][0]), (&json!("someone"), &json!("team")), "{found}");
    // With its own rights, of which it has none.
    let refused = Api::<Secret>::namespaced(someone, "default").get("any").await.unwrap_err();
    assert!(matches!(refused, Error::Api(status) if status.code == 403));
}

/// Who the API server takes a client for.
async fn who(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("content-type", "application/json").body(review.to_string().into_bytes());
    client.request::<Value>(request.unwrap()).await.unwrap()["status"]["userInfo"].take()
}

/// A certificate of `someone` in the group `team` that a plane's authority has signed, and its key, in base64.
fn certificate(plane: &Path) -> (String, String) {
    let authority = KeyPair::from_pem(&fs::read_to_string(plane.join("pki/ca.key")).unwrap()).unwrap();
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name.push(DnType::CommonName, "coppice plane");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "someone");
    params.distinguished_name.push(DnType::OrganizationName, "team");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &Issuer::new(issuer, authority)).unwrap();
    (STANDARD.encode(signed.pem()), STANDARD.encode(key.serialize_pem()))
}
