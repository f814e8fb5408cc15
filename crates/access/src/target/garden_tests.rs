use std::sync::{Arc, Mutex};
use std::time::Duration;

use coppice_clusters::kubeconfig::Cluster;
use coppice_runtime::leader::Gate;
use coppice_scripted::{Answer, Sent, scripted};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use super::super::user_of;
use super::*;

/// A garden with a project whose namespace has another name, which answers like this to who asks for a kubeconfig; and what was sent to it.
fn garden(issued: Answer) -> (Target, Arc<Mutex<Vec<Sent>>>) {
    let (clients, sent) = scripted(move |method, path, _| match *method {
        Method::GET if path.ends_with("/projects/dev") => {
            Answer::Object(200, json!({"spec": {"namespace": "garden-of-dev"}}))
        }
        Method::GET if path.ends_with("/projects/odd") => {
            Answer::Object(200, json!({"spec": {"namespace": "a/shoots/../b"}}))
        }
        Method::POST => issued.clone(),
        _ => Answer::Refused(404),
    });
    let cluster = Cluster { server: "https://garden".to_owned(), authorities: None, server_name: None };
    (Target { kubeconfig: Kubeconfig { cluster, user: User::Token("t".to_owned()) }, clients }, sent)
}

async fn issued(garden: &Target, project: &str, issuer: Issuer) -> Result<(Kubeconfig, Validity), Failure> {
    let permit = Gate::always(Duration::ZERO).permit().unwrap();
    garden.kubeconfig_of_shoot(&permit, &Shoot::new(project, "shop", issuer), 172_800).await
}

/// What a garden answers: a kubeconfig with this user.
fn answer(user: &str) -> Answer {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: u}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://api.shop', certificate-authority-data: Y2E=}}}}, {{name: b, cluster: {{server: 'https://b'}}}}]\n\
         users: [{{name: u, user: {user}}}]\n"
    );
    Answer::Object(201, json!({"status": {"kubeconfig": BASE64_STANDARD.encode(text)}}))
}

fn by_certificate() -> Answer {
    let mut params = CertificateParams::default();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2026, 1, 2));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "x1y2:robot");
    let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    answer(&format!("{{client-certificate-data: {}, client-key-data: aw==}}", BASE64_STANDARD.encode(pem)))
}

#[tokio::test(start_paused = true)]
async fn a_shoot_is_asked_for_in_the_namespace_of_its_project_and_what_was_granted_counts() {
    for (issuer, resource, kind) in [
        (Issuer::GardenerAdmin, "adminkubeconfig", "AdminKubeconfigRequest"),
        (Issuer::TokenRequest, "adminkubeconfig", "AdminKubeconfigRequest"),
        (Issuer::GardenerViewer, "viewerkubeconfig", "ViewerKubeconfigRequest"),
    ] {
        let (garden, sent) = garden(by_certificate());
        let (kubeconfig, validity) = issued(&garden, "dev", issuer).await.unwrap();
        assert_eq!(kubeconfig.cluster.server, "https://api.shop");
        assert_eq!(user_of(&kubeconfig.user).as_deref(), Some("x1y2:robot"));
        // A day, where two were asked for.
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        let day = Validity { not_before: at("2026-01-01T00:00:00Z"), not_after: at("2026-01-02T00:00:00Z") };
        assert_eq!(validity, day);
        let sent = sent.lock().unwrap();
        let request = sent.last().unwrap();
        let shoots = "/apis/core.gardener.cloud/v1beta1/namespaces/garden-of-dev/shoots";
        assert_eq!(request.path, format!("{shoots}/shop/{resource}"));
        let body = json!({
            "apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": kind, "spec": {"expirationSeconds": 172_800}
        });
        assert_eq!(request.body, body);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_garden_refuses_is_said_in_words_of_our_own() {
    let text = |text: &str| Answer::Object(201, json!({"status": {"kubeconfig": text}}));
    for (project, answer, reason, says) in [
        ("dev", Answer::Refused(404), Reason::TargetRefused, "the project dev has no Shoot shop"),
        (
            "dev",
            Answer::Refused(403),
            Reason::TargetRefused,
            "the garden refuses to create shoots/adminkubeconfig",
        ),
        (
            "dev",
            Answer::Refused(422),
            Reason::TargetRefused,
            "whether the control plane of the Shoot is there",
        ),
        (
            "dev",
            Answer::Refused(500),
            Reason::TargetRefused,
            "whether the control plane of the Shoot is there",
        ),
        (
            "dev",
            Answer::Refused(503),
            Reason::TargetUnreachable,
            "the garden did not create shoots/adminkubeconfig",
        ),
        ("other", by_certificate(), Reason::TargetRefused, "the garden has no project other"),
        ("odd", by_certificate(), Reason::TargetRefused, "the garden has no project odd with a namespace"),
        ("dev", text("eyJ%"), Reason::TargetRefused, "no base64"),
        ("dev", text("ZXlK"), Reason::TargetRefused, "not used"),
        ("dev", answer("{exec: {command: eyJ}}"), Reason::TargetRefused, "is not run"),
        ("dev", answer("{token: eyJ}"), Reason::TargetRefused, "has no certificate"),
    ] {
        let (garden, _) = garden(answer);
        let failure = issued(&garden, project, Issuer::GardenerAdmin).await.err().unwrap();
        assert!(failure.reason == reason && failure.message.contains(says), "{failure}");
        assert!(!failure.message.contains("eyJ"), "{failure}");
    }
}
