//! Certificates: a controller of the target signs each `CertificateSigningRequest` that is approved, some time later, unless something is in its
//! way. They are real ones, since programs read them. Every key is made from a number: the same run has the same certificates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coppice_runtime::clock::SeededRng;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DnType, DnValue, Issuer, KeyPair, PublicKeyData as _,
};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{Arrival, Credential};
use crate::server::{Request, Server};
use crate::trace::Actor;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests/";
/// Who signs them.
const SIGNER: &str = "system:kube-controller-manager";
/// As the signer of Kubernetes does, the beginning is written so much earlier.
const BACKDATED: SignedDuration = SignedDuration::from_mins(5);
/// What a PKCS #8 file with an Ed25519 key begins with; the 32 bytes of the key follow.
const KEY_START: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// How a target signs certificates.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignerSettings {
    /// A certificate is there so long after its request was approved.
    pub latency: Duration,
    /// What is in the way, and until when, from the beginning of the run.
    pub obstacle: Option<(Obstacle, Duration)>,
}

/// What keeps requests for certificates from being signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing signs them. Those that are still there when it ends are signed.
    NotSigned,
    /// Somebody denies each as soon as it is there.
    Denied,
    /// The signer says that it cannot sign them.
    Failed,
}

/// A certificate that was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The certificate, in PEM, in base64.
    pub certificate: String,
    /// The user that it is of.
    pub user: String,
    /// The public part of its key.
    pub public_key: Vec<u8>,
    /// The name of the `CertificateSigningRequest` that asked for it.
    pub requested_by: String,
    /// When it was signed.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
    /// Who approved the request, and when that was sent.
    pub request: (Actor, Duration),
}

impl IssuedCertificate {
    /// Whether a key, in PEM, in base64, is that of the certificate.
    pub fn is_of_key(&self, key: &str) -> bool {
        public_key(key).is_some_and(|public_key| *public_key == *self.public_key)
    }
}

impl Credential {
    /// That of whoever has a certificate and a key, both in PEM, in base64; none if that is no key.
    pub(crate) fn of_certificate(certificate: &str, key: &str) -> Option<Self> {
        Some(Self::Certificate { certificate: certificate.into(), public_key: public_key(key)? })
    }
}

/// A key in PEM, the same for the same number.
pub fn key(number: u64) -> String {
    let (mut rng, mut der) = (SeededRng::new(number), KEY_START.to_vec());
    for _ in 0..4 {
        der.extend(rng.next_u64().to_be_bytes());
    }
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64_STANDARD.encode(der))
}

/// The public part of a key in PEM, in base64.
fn public_key(key: &str) -> Option<Arc<[u8]>> {
    let pem = String::from_utf8(BASE64_STANDARD.decode(key).ok()?).ok()?;
    Some(KeyPair::from_pem(&pem).ok()?.public_key_raw().into())
}

/// When a request was approved, and by what.
#[derive(Clone, Copy, Debug)]
struct Approval {
    at: Timestamp,
    request: (Actor, Duration),
}

/// What signs the certificates of a target.
#[derive(Debug)]
pub(super) struct Signer {
    began: Timestamp,
    settings: SignerSettings,
    /// By the uid of the request.
    approvals: BTreeMap<String, Approval>,
    issued: Vec<IssuedCertificate>,
}

impl Signer {
    pub(super) fn new(began: Timestamp, settings: SignerSettings) -> Self {
        Self { began, settings, approvals: BTreeMap::new(), issued: Vec::new() }
    }

    pub(super) fn issued(&self) -> &[IssuedCertificate] {
        &self.issued
    }

    /// The user of a certificate, if it is taken at that instant from somebody who has this key.
    pub(super) fn user(&self, now: Timestamp, certificate: &str, public_key: &[u8]) -> Option<&str> {
        let mut issued = self.issued.iter();
        let issued = issued.find(|one| one.certificate == certificate && one.public_key == public_key)?;
        (now < issued.expires).then_some(issued.user.as_str())
    }

    /// Notes that a request for a certificate was approved.
    pub(super) fn note(&mut self, server: &Server, at: Timestamp, arrival: &Arrival<'_>, code: u16) {
        let Arrival { request, who, sent, .. } = *arrival;
        let name = request.path.strip_prefix(PATH).and_then(|rest| rest.strip_suffix("/approval"));
        let Some(name) = name.filter(|_| request.method == Method::PUT && code < 300) else { return };
        let object = server.object(GROUP, PLURAL, "", name);
        if let Some(uid) = object.and_then(|object| object["metadata"]["uid"].as_str()) {
            let approval = Approval { at, request: (who, sent) };
            self.approvals.entry(uid.to_owned()).or_insert(approval);
        }
    }

    /// Does with every request for a certificate what is due.
    pub(super) fn work(&mut self, server: &mut Server, now: Timestamp, longest: Duration) {
        let all: Vec<Arc<Value>> = server.objects(GROUP, PLURAL, "").cloned().collect();
        for object in all {
            let Some(status) = self.next_status(&object, now, longest) else { continue };
            let mut object = Value::clone(&object);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{PATH}{name}/status");
            object["status"] = status;
            server.handle(now, SIGNER, &Request::put(&path, &object));
        }
    }

    /// What the status of a request becomes; none if it stays as it is.
    fn next_status(&mut self, object: &Value, now: Timestamp, longest: Duration) -> Option<Value> {
        let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is = |type_: &str| conditions.iter().any(|condition| condition["type"] == type_);
        if is("Denied") || is("Failed") || object["status"]["certificate"].is_string() {
            return None;
        }
        let elapsed = now.duration_since(self.began);
        let in_the_way = self.settings.obstacle.filter(|(_, until)| elapsed < signed(*until));
        let obstacle = in_the_way.map(|(obstacle, _)| obstacle);
        let with = |type_: &str| {
            let condition = json!({ "type": type_, "status": "True", "reason": "Simulated" });
            let conditions: Vec<&Value> = conditions.iter().chain([&condition]).collect();
            Some(json!({ "conditions": conditions }))
        };
        if !is("Approved") {
            return if obstacle == Some(Obstacle::Denied) { with("Denied") } else { None };
        }
        let approval = *self.approvals.get(object["metadata"]["uid"].as_str()?)?;
        if now.duration_since(approval.at) < signed(self.settings.latency) {
            return None;
        }
        match obstacle {
            Some(Obstacle::NotSigned) => None,
            Some(Obstacle::Failed) => with("Failed"),
            Some(Obstacle::Denied) | None => match self.sign(object, now, longest, approval) {
                Some(certificate) => Some(json!({ "conditions": conditions, "certificate": certificate })),
                None => with("Failed"),
            },
        }
    }

    /// Signs what a request asks for, for as long as it asks for, and no longer than may be; none if that cannot be understood.
    fn sign(
        &mut self,
        object: &Value,
        now: Timestamp,
        longest: Duration,
        approval: Approval,
    ) -> Option<String> {
        let pem = BASE64_STANDARD.decode(object["spec"]["request"].as_str()?).ok()?;
        let mut asked = CertificateSigningRequestParams::from_pem(&String::from_utf8(pem).ok()?).ok()?;
        let seconds = object["spec"]["expirationSeconds"].as_u64().unwrap_or(u64::MAX);
        let seconds = i64::try_from(seconds.min(longest.as_secs())).ok()?;
        // Certificates have whole seconds.
        let expires = Timestamp::from_second(now.as_second().saturating_add(seconds)).ok()?;
        let at = |second: i64| OffsetDateTime::from_unix_timestamp(second).ok();
        asked.params.not_before = at(now.as_second() - BACKDATED.as_secs())?;
        asked.params.not_after = at(expires.as_second())?;
        let DnValue::Utf8String(user) = asked.params.distinguished_name.get(&DnType::CommonName)? else {
            return None;
        };
        let user = user.clone();
        let certificate = BASE64_STANDARD.encode(asked.signed_by(&authority()?).ok()?.pem());
        self.issued.push(IssuedCertificate {
            certificate: certificate.clone(),
            user,
            public_key: asked.public_key.der_bytes().to_vec(),
            requested_by: object["metadata"]["name"].as_str()?.to_owned(),
            issued: now,
            expires,
            request: approval.request,
        });
        Some(certificate)
    }
}

/// What certificates are signed with.
fn authority() -> Option<Issuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "target");
    Some(Issuer::new(params, KeyPair::from_pem(&key(0)).ok()?))
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
