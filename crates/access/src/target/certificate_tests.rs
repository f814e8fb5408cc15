use std::sync::{Arc, Mutex};

use coppice_clusters::kubeconfig::{Cluster, Kubeconfig};
use coppice_clusters_api::Issuer;
use coppice_runtime::leader::Gate;
use coppice_scripted::{Answer, Sent, scripted};
use rustls::pki_types::CertificateSigningRequestDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use super::*;

const OWNER: Owner<'_> =
    Owner { namespace: "team", name: "ci", uid: "1-2", issuer: Issuer::ClientCertificate, installation: "i" };

/// A target with one request of this status, and what was sent to it.
fn target(uid: &'static str, status: Value) -> (Target, Arc<Mutex<Vec<Sent>>>) {
    let (clients, sent) = scripted(move |method, _, _| match *method {
        Method::DELETE => Answer::Refused(404),
        Method::GET => Answer::Object(200, json!({"metadata": {"uid": uid}, "status": status})),
        _ => Answer::Object(200, json!({"metadata": {"uid": "r", "resourceVersion": "7"}})),
    });
    let cluster = Cluster { server: "https://target".to_owned(), authorities: None, server_name: None };
    (Target { kubeconfig: Kubeconfig { cluster, user: User::Token("t".to_owned()) }, clients }, sent)
}

async fn issued(target: &Target) -> Result<(User, Validity), Failure> {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let requested = target.request_certificate(&permit, OWNER, ("1-2-7", 3600), None).await?;
    target.issue_certificate(&permit, &requested).await
}

#[tokio::test(start_paused = true)]
async fn a_simulation_makes_the_key_and_every_run_of_it_asks_for_the_same() {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    let make_key: MakeKey = Arc::new(move || key.clone());
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    let mut asked = Vec::new();
    for make_key in [Some(&make_key), Some(&make_key), None] {
        let (target, sent) = target("r", json!({}));
        target.request_certificate(&permit, OWNER, ("1-2-7", 3600), make_key).await.unwrap();
        asked.push(sent.lock().unwrap()[1].body["spec"]["request"].clone());
    }
    assert_eq!(asked[0], asked[1]);
    assert_ne!(asked[0], asked[2], "with the system's randomness");
}

fn certificate() -> String {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2026, 1, 2));
    let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    BASE64_STANDARD.encode(pem)
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_asked_for_by_a_key_that_is_sent_nowhere() {
    let signed = certificate();
    let (target, sent) = target("r", json!({"conditions": [{"type": "Approved"}], "certificate": signed}));
    let (user, validity) = issued(&target).await.unwrap();
    let User::Certificate { certificate, key } = user else { panic!("no certificate") };
    assert_eq!(certificate, signed);
    let key = String::from_utf8(BASE64_STANDARD.decode(key).unwrap()).unwrap();
    assert!(key.contains("PRIVATE KEY"), "in PEM");
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let expected = Validity { not_before: at("2026-01-01T00:00:00Z"), not_after: at("2026-01-02T00:00:00Z") };
    assert_eq!(validity, expected);

    let sent = sent.lock().unwrap();
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let one = format!("{requests}/coppice-1-2-7");
    let lines: Vec<String> = sent.iter().map(|sent| format!("{} {}", sent.method, sent.path)).collect();
    let expected = [
        format!("DELETE {one}"),
        format!("POST {requests}"),
        format!("PUT {one}/approval"),
        format!("GET {one}"),
        format!("DELETE {one}"),
    ];
    assert_eq!(lines, expected);
    let request = BASE64_STANDARD.decode(sent[1].body["spec"]["request"].as_str().unwrap()).unwrap();
    assert!(!String::from_utf8(request.clone()).unwrap().contains("PRIVATE"));
    let der = CertificateSigningRequestDer::from_pem_slice(&request).unwrap();
    let (_, read) = X509CertificationRequest::from_der(&der).unwrap();
    // The user, and no group.
    assert_eq!(read.certification_request_info.subject.to_string(), "CN=coppice-access:1-2");
    // What was asked for is approved, as it was created.
    let approval = &sent[2].body;
    assert_eq!(approval["spec"], sent[1].body["spec"]);
    assert_eq!(
        (&approval["metadata"]["uid"], &approval["metadata"]["resourceVersion"]),
        (&json!("r"), &json!("7"))
    );
    let approved = &approval["status"]["conditions"][0];
    assert_eq!((&approved["type"], &approved["status"]), (&json!("Approved"), &json!("True")));
}

#[tokio::test(start_paused = true)]
async fn what_keeps_it_from_being_signed_is_said_in_words_of_our_own() {
    let said = json!("eyJhbGciOiJSUzI1NiJ9");
    let condition = |type_: &str| json!({"conditions": [{"type": type_, "reason": said, "message": said}]});
    for (uid, status, reason, says) in [
        ("r", condition("Denied"), Reason::TargetRefused, "was denied"),
        ("r", condition("Failed"), Reason::TargetRefused, "could not be signed"),
        ("r", condition("Approved"), Reason::TargetRefused, "not signed within 20 s"),
        ("another", json!({}), Reason::TargetRefused, "was replaced by another one"),
        ("r", json!({"certificate": "%"}), Reason::VerificationFailed, "no certificate"),
        ("r", json!({"certificate": said}), Reason::VerificationFailed, "no certificate"),
    ] {
        let (target, _) = target(uid, status);
        let failure = issued(&target).await.err().unwrap();
        assert!(failure.reason == reason && failure.message.contains(says), "{failure}");
        assert!(!failure.message.contains("eyJ"), "{failure}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_waited_for_while_it_is_not_signed() {
    let signed = certificate();
    let looks = Mutex::new(0);
    let (clients, _) = scripted(move |method, _, _| {
        if *method != Method::GET {
            return Answer::Object(200, json!({"metadata": {"uid": "r"}}));
        }
        let mut looks = looks.lock().unwrap();
        *looks += 1;
        let certificate = if *looks < 10 { "" } else { signed.as_str() };
        Answer::Object(200, json!({"metadata": {"uid": "r"}, "status": {"certificate": certificate}}))
    });
    let (target, _) = target("r", json!({}));
    let began = Instant::now();
    issued(&Target { clients, ..target }).await.unwrap();
    assert!(began.elapsed() < SIGNED_WITHIN, "{:?}", began.elapsed());
}
