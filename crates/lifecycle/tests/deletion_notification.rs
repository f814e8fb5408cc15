//! What the record of a deletion keeps of its message says the same as the message did while the namespace was there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::cluster;
use crate::support::notices;

use coppice_api::Losses;
use coppice_api::notify::{MessageLink, NotificationMessage};
use coppice_lifecycle::cluster::NamespaceStep;
use coppice_lifecycle::deletion_notification::{CompletedDeletion, content, kept};

use crate::support::cluster::at;
use crate::support::notices::{MAIL, delivered, ends, messages, owned, spec};

#[test]
fn the_message_that_a_namespace_is_gone_says_where_to_read_more_and_what_is_lost() {
    let notify = "channels: [mail], on: [Deleted]";
    let links = "identity: {project: example.org/project, links: {job: example.org/job-url}}, notify: {";
    let mut scene = cluster::Scene::new(&spec(notify).replace("notify: {", links));
    scene.config.channels = notices::channels();
    let job = "https://ci.example.org/jobs/7";
    owned(&mut scene, &[MAIL, ("example.org/project", "shop"), ("example.org/job-url", job)]);
    scene.settled(1);
    messages(&mut scene, 41);
    let losses: Losses = serde_json::from_value(
        serde_json::json!({"volumes": [{"claim": "data", "volume": "pv-1", "capacity": "1Gi", "reclaimPolicy": "Delete"}]}),
    )
    .unwrap();
    let record = scene.record.as_mut().unwrap();
    record.steps.notice.as_mut().unwrap().losses = Some(losses.clone());
    ends(&mut scene, &delivered(), 42);
    let plan = scene.settled(102);
    let NamespaceStep::Delete(intent) = &plan.step else { panic!("{plan:?}") };
    let mut before = plan.notification.messages[0].content.clone();
    // What is stored, and read again when the namespace is gone.
    let hidden = |message: &coppice_lifecycle::message::OwnerMessage| NotificationMessage {
        key: message.key.clone(),
        channel: message.channel.clone(),
        to: None,
        sealed_to: None,
    };
    let stored = serde_json::to_value(kept(&plan.notification, hidden).unwrap()).unwrap();
    let gone = CompletedDeletion {
        namespace: &before.namespace.clone(),
        uid: &before.uid.clone(),
        manager: &before.manager.clone(),
        policy: &intent.policy,
        reason: &intent.reason,
        losses: Some(&losses),
        at: at(130),
    };
    let after = content(gone, &serde_json::from_value(stored).unwrap());
    assert_eq!(after.links, [MessageLink { name: "job".to_owned(), url: job.to_owned() }]);
    assert_eq!(after.deletion.as_ref().unwrap().losses, Some(losses));
    assert_eq!(after.expires_at, Some(at(101)));
    // It says when the namespace was gone, and is the same in everything else.
    before.given_at = at(130);
    before.deletion.as_mut().unwrap().at = at(130);
    assert_eq!(after, before);
}
