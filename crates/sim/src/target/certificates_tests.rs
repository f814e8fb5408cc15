use coppice_runtime::clock::{Clock, ClockHandle};
use rcgen::DistinguishedName;

use super::*;
use crate::server::{Body, Response, ServerReply};
use crate::target::{ADMIN_TOKEN, TargetServer, TargetSettings};

const HOUR: Duration = Duration::from_hours(1);
const LATENCY: Duration = Duration::from_secs(2);

/// A target whose certificates are valid for an hour at most, and a request for one that is called `r`.
struct Asked {
    target: TargetServer,
    clock: Clock,
    handle: ClockHandle,
    object: Value,
}

impl Asked {
    fn new(obstacle: Option<(Obstacle, Duration)>) -> Self {
        let (clock, handle) = Clock::manual("2026-01-01T00:00:00.5Z".parse().unwrap());
        let signer = SignerSettings { latency: LATENCY, obstacle };
        let settings = TargetSettings { setup: Vec::new(), longest: HOUR, latency: Duration::ZERO, signer };
        let target = TargetServer::new(clock.now(), &settings).unwrap();
        let mut asked = Self { target, clock, handle, object: Value::Null };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "someone");
        let pem = params.serialize_request(&KeyPair::from_pem(&key(7)).unwrap()).unwrap().pem().unwrap();
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "r" },
            "spec": { "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
                "request": BASE64_STANDARD.encode(pem), "expirationSeconds": 86_400 },
        });
        let (code, object) = asked.send(&Request::post(PATH.trim_end_matches('/'), &request));
        assert_eq!(code, 201, "{object}");
        asked.object = object;
        asked
    }

    fn send(&mut self, request: &Request) -> (u16, Value) {
        self.send_by(&Credential::Token(ADMIN_TOKEN.into()), request)
    }

    fn send_by(&mut self, credential: &Credential, request: &Request) -> (u16, Value) {
        let who = Actor::Replica { replica: 0, incarnation: 0 };
        let arrival = Arrival { credential, request, who, sent: Duration::from_secs(1) };
        let ServerReply::Done(Response { code, body, .. }) = self.target.handle(&self.clock, &arrival) else {
            panic!("a watch");
        };
        match body {
            Body::Object(object) => (code, Value::clone(&object)),
            Body::Value(value) => (code, value),
            _ => panic!("no object"),
        }
    }

    fn approve(&mut self) -> u16 {
        let mut approved = self.object.clone();
        approved["status"] = json!({ "conditions": [{ "type": "Approved", "status": "True" }] });
        self.send(&Request::put(&format!("{PATH}r/approval"), &approved)).0
    }

    fn status(&mut self) -> Value {
        self.send(&Request::get(&format!("{PATH}r"))).1["status"].take()
    }
}

fn conditions(status: &Value) -> Vec<&str> {
    let all = status["conditions"].as_array().into_iter().flatten();
    all.filter_map(|condition| condition["type"].as_str()).collect()
}

#[test]
fn what_is_approved_is_signed_a_moment_later_and_lets_in_whoever_has_the_key() {
    let mut asked = Asked::new(None);
    asked.handle.advance(HOUR);
    assert!(asked.status()["certificate"].is_null(), "nobody has approved it");
    assert_eq!(asked.approve(), 200);
    assert!(asked.status()["certificate"].is_null());
    asked.handle.advance(LATENCY);
    let status = asked.status();
    assert_eq!(conditions(&status), ["Approved"]);
    let [issued] = asked.target.certificates() else { panic!("one certificate") };
    assert_eq!(status["certificate"], *issued.certificate);
    assert_eq!((issued.user.as_str(), issued.requested_by.as_str()), ("someone", "r"));
    assert_eq!(issued.expires, "2026-01-01T02:00:02Z".parse::<Timestamp>().unwrap(), "an hour at most");
    let certificate = issued.certificate.clone();
    let key_of = |number| BASE64_STANDARD.encode(key(number));
    assert!(issued.is_of_key(&key_of(7)) && !issued.is_of_key(&key_of(8)));
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let review = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review);
    let held = Credential::of_certificate(&certificate, &key_of(7)).unwrap();
    let (_, who) = asked.send_by(&held, &review);
    assert_eq!(who["status"]["userInfo"]["username"], "someone");
    let other_key = Credential::of_certificate(&certificate, &key_of(8)).unwrap();
    assert_eq!(asked.send_by(&other_key, &review).0, 401);
    asked.handle.advance(HOUR);
    assert_eq!(asked.send_by(&held, &review).0, 401, "it has expired");
}

#[test]
fn the_same_key_gets_the_same_certificate_in_every_run() {
    let certificate = || {
        let mut asked = Asked::new(None);
        asked.approve();
        asked.handle.advance(LATENCY);
        asked.status()["certificate"].take()
    };
    let first = certificate();
    assert!(first.is_string());
    assert_eq!(first, certificate());
}

#[test]
fn what_is_in_the_way_of_a_request_ends() {
    let until = Duration::from_mins(1);
    for (obstacle, approved, expected, signed) in [
        (Obstacle::NotSigned, 200, ["Approved"].as_slice(), true),
        (Obstacle::Failed, 200, ["Approved", "Failed"].as_slice(), false),
        (Obstacle::Denied, 409, ["Denied"].as_slice(), false),
    ] {
        let mut asked = Asked::new(Some((obstacle, until)));
        assert_eq!(asked.approve(), approved, "{obstacle:?}");
        asked.handle.advance(LATENCY);
        let status = asked.status();
        assert_eq!(conditions(&status), expected, "{obstacle:?}");
        assert!(status["certificate"].is_null(), "{obstacle:?}");
        asked.handle.advance(until);
        assert_eq!(asked.status()["certificate"].is_string(), signed, "{obstacle:?}");
    }
}
