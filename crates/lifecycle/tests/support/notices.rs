//! Managers that have owners notified, and what comes of messages.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use coppice_api::channel::{Channel, EmailChannel, EmailTls, SlackChannel, WebhookChannel};
use coppice_api::notify::{MessageDelivery, MessageState};
use coppice_api::owner::FallbackRecipient;
use coppice_lifecycle::facts::{AnnotationKeys, Annotations};
use coppice_lifecycle::message::OwnerMessage;
use coppice_lifecycle::plan::Delivery;

use super::cluster::{Scene, at};

pub(crate) const MAIL: (&str, &str) = ("mail", "grace@example.org");
/// base64 of `Ada Lovelace::U024BE7LH`
pub(crate) const SKA: (&str, &str) = ("ska", "QWRhIExvdmVsYWNlOjpVMDI0QkU3TEg=");

/// A ttl of 100 s, a minute of notice, and these fields of `notify`.
pub(crate) fn spec(notify: &str) -> String {
    format!(
        "{{selector: {{names: ['ci-*']}}, mode: Enforce, settle: 10s, ttl: {{after: 100s}}, \
         owner: {{annotations: [{{key: ska, format: SKA}}, {{key: mail, format: Email}}]}}, notify: {{{notify}}}, \
         policies: [{{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: 60s}}}}}}]}}"
    )
}

pub(crate) fn channels() -> Vec<Channel> {
    let email = EmailChannel {
        recipient_domains: None,
        host: "smtp.example.org".to_owned(),
        port: 587,
        tls: EmailTls::StartTls,
        from: "coppice@example.org".to_owned(),
        username_file: None,
        password_file: None,
        ca_file: None,
    };
    let named = |name: &str| Channel { name: name.to_owned(), ..Channel::default() };
    let slack = SlackChannel { token_file: Some("token".to_owned()), ..SlackChannel::default() };
    let webhook =
        WebhookChannel { url: "https://ci.example.org/hook".to_owned(), ..WebhookChannel::default() };
    vec![
        Channel { email: Some(email), ..named("mail") },
        Channel { slack: Some(slack), ..named("slack") },
        Channel { webhook: Some(webhook), ..named("hook") },
    ]
}

pub(crate) fn scene(notify: &str, annotations: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::new(&spec(notify));
    let platform = FallbackRecipient { slack: None, email: Some("platform@example.org".to_owned()) };
    scene.managers[0].1.owner.as_mut().unwrap().fallback = Some(platform);
    scene.config.channels = channels();
    owned(&mut scene, annotations);
    scene.settled(1);
    scene
}

pub(crate) fn owned(scene: &mut Scene, annotations: &[(&str, &str)]) {
    scene.namespace.annotations = Annotations::of(&AnnotationKeys::All, annotations.iter().copied());
}

/// The only notice in the record.
pub(crate) fn only(scene: &Scene) -> MessageDelivery {
    let [notice] = &*scene.status().notices else { panic!("{:?}", scene.status().notices) };
    notice.clone()
}

/// Every message that is in the record now comes to this end, which is written down.
pub(crate) fn ends(scene: &mut Scene, end: &Delivery, seconds: i64) {
    let pending = scene.status().notices.iter().filter(|one| one.state == MessageState::Pending);
    scene.deliveries = pending.map(|one| (one.key.clone(), end.clone())).collect();
    let plan = scene.plan(at(seconds));
    if let coppice_lifecycle::cluster::NamespaceStep::WriteStatus(status) = plan.step {
        scene.record = Some(*status);
        scene.events.extend(plan.events.iter().map(|event| event.reason));
    }
    scene.deliveries.clear();
}

pub(crate) fn delivered() -> Delivery {
    Delivery::Delivered("200".to_owned())
}

pub(crate) fn refused(permanent: bool) -> Delivery {
    Delivery::Failed {
        error: "the server answered 451".to_owned(),
        permanent,
        retry_after: None,
        by_channel: false,
    }
}

pub(crate) fn messages(scene: &mut Scene, seconds: i64) -> Vec<OwnerMessage> {
    scene.settled(seconds).messages
}
