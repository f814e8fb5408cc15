use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{ServerName, UnixTime};

use super::*;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn start() -> Timestamp {
    "2026-09-01T00:00:00Z".parse().unwrap()
}

fn days(count: i32) -> Timestamp {
    after(start(), DAY * count)
}

fn names() -> Vec<String> {
    ["coppice-trees.coppice-system.svc", "127.0.0.1"].map(str::to_owned).to_vec()
}

/// Whether who trusts this bundle trusts this certificate then, for this name.
fn trusts(bundle: &str, issued: &Issued, name: &str, at: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let leaf = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at.as_second().unsigned_abs()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok()
}

#[test]
fn what_it_issues_is_trusted_for_its_names_and_time_alone() {
    let authority = Authority::new(start()).unwrap();
    let (bundle, issued) = (authority.bundle(), authority.issue(&names(), start()).unwrap());
    for name in names() {
        assert!(trusts(&bundle, &issued, &name, start()), "{name}");
        // A clock that is behind.
        assert!(trusts(&bundle, &issued, &name, ago(start(), SignedDuration::from_mins(59))));
        assert!(!trusts(&bundle, &issued, &name, days(31)));
    }
    assert!(!trusts(&bundle, &issued, "kubernetes.default.svc", start()));
    assert!(!trusts(&Authority::new(start()).unwrap().bundle(), &issued, "127.0.0.1", start()));
    assert_eq!(issued.renew_at, days(20));
    assert!(authority.issue(&["a name".to_owned(), "\u{e4}".to_owned()], start()).is_err());
}

#[test]
fn its_secret_says_all_of_it_and_what_is_wrong() {
    let authority = Authority::new(start()).unwrap().after(AuthorityChange::AddNext, days(250)).unwrap();
    let fields = authority.fields();
    let read = Authority::read(&fields).unwrap();
    assert_eq!((read.fields(), read.bundle()), (fields.clone(), authority.bundle()));
    let issued = read.issue(&names(), days(251)).unwrap();
    assert!(trusts(&authority.bundle(), &issued, "127.0.0.1", days(251)));

    let without = |field: &str| {
        let mut fields = fields.clone();
        fields.remove(field);
        Authority::read(&fields).unwrap_err().to_string()
    };
    assert_eq!(without("ca.crt"), "there is no field \"ca.crt\"");
    assert_eq!(without("ca.key"), "there is no field \"ca.key\"");
    assert_eq!(without("next.key"), "there is no field \"next.key\"");
    for field in ["ca.crt", "ca.key", "next.crt"] {
        for bad in [&b"nonsense"[..], b"\xff", b""] {
            let fields = fields.clone().into_iter().chain([(field.to_owned(), bad.to_vec())]).collect();
            let error = Authority::read(&fields).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the field {field:?} cannot be understood: ")), "{error}");
        }
    }
}

/// Day by day for three years, with an API server that has what was published the day before: whoever serves is trusted, all the time.
#[test]
fn it_is_renewed_and_nobody_stops_trusting_it() {
    let mut authority = Authority::new(start()).unwrap();
    let (mut trusted, mut changes) = (authority.bundle(), Vec::new());
    // Replicas read the Secret at any time: one of them has just issued for itself what it was in the beginning of the day.
    for day in 0..1100 {
        let now = days(day);
        let issued = authority.issue(&names(), now).unwrap();
        while let Some(change) = authority.due(&trusted, now) {
            authority = authority.after(change, now).unwrap();
            changes.push((day, change));
        }
        assert!(trusts(&trusted, &issued, "127.0.0.1", now), "day {day}");
        assert!(authority.bundle().matches("BEGIN CERTIFICATE").count() <= 3);
        trusted = authority.bundle();
        assert!(trusts(&trusted, &issued, "127.0.0.1", now), "day {day}");
    }
    let first: Vec<(i32, AuthorityChange)> = changes.iter().copied().take(3).collect();
    // Two thirds of 365 days and an hour are over on the 244th.
    assert_eq!(
        first,
        [
            (244, AuthorityChange::AddNext),
            (245, AuthorityChange::Promote),
            (366, AuthorityChange::DropPrevious)
        ]
    );
    assert!(!changes.iter().any(|(_, change)| *change == AuthorityChange::Replace), "{changes:?}");
}

#[test]
fn the_next_one_signs_once_it_is_trusted_and_not_before() {
    let authority = Authority::new(start()).unwrap();
    let before = authority.bundle();
    let next = authority.after(AuthorityChange::AddNext, days(250)).unwrap();
    assert_eq!(next.due(&next.bundle(), after(days(250), SignedDuration::from_mins(59))), None);
    // Nobody has published it.
    assert_eq!(next.due(&before, days(300)), None);
    assert_eq!(next.due(&next.bundle(), days(251)), Some(AuthorityChange::Promote));
    let signer = next.signer().to_owned();
    assert_ne!(next.after(AuthorityChange::Promote, days(251)).unwrap().signer(), signer);
}

#[test]
fn one_that_has_expired_while_nothing_ran_is_replaced_at_once() {
    let authority = Authority::new(start()).unwrap();
    assert_eq!(authority.due("", days(363)), Some(AuthorityChange::AddNext));
    assert_eq!(
        authority.due("", after(days(364), SignedDuration::from_secs(1))),
        Some(AuthorityChange::Replace)
    );
    let replaced = authority.after(AuthorityChange::Replace, days(500)).unwrap();
    assert_eq!(replaced.bundle().matches("BEGIN CERTIFICATE").count(), 1);
    let issued = replaced.issue(&names(), days(500)).unwrap();
    assert!(trusts(&replaced.bundle(), &issued, "127.0.0.1", days(500)));
}
