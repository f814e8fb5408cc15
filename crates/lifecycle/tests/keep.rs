//! The command that a message shows works under the limits of the cluster manager.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use coppice_api::managed_namespace::RecordHold;
use coppice_lifecycle::message::MessageContent;

use crate::support::cluster::{Scene, at};
use crate::support::notices::{MAIL, channels, messages, owned, spec};

/// What is announced 41 s after the creation of a namespace that expires after 100 s, under these limits.
fn announced(limits: &str, span: Option<(i64, i64)>) -> MessageContent {
    let mut scene = Scene::new(&spec("channels: [mail]").replace("ttl:", &format!("limits: {limits}, ttl:")));
    scene.config.channels = channels();
    owned(&mut scene, &[MAIL]);
    scene.settled(1);
    if let Some((since, until)) = span {
        let hold = RecordHold { until: at(until), reason: None, by: Some("ann".to_owned()) };
        scene.spec.hold = Some(hold);
        scene.settled(since);
        scene.spec.hold = None;
        scene.settled(until);
    }
    let message = messages(&mut scene, 41);
    message.first().unwrap_or_else(|| panic!("{:?}", scene.status())).content.clone()
}

fn keep(limits: &str, span: Option<(i64, i64)>) -> (Option<String>, bool) {
    let content = announced(limits, span);
    (content.keep, content.limit_reached)
}

fn command(text: &str) -> (Option<String>, bool) {
    (Some(text.to_owned()), false)
}

#[test]
fn an_extension_goes_no_further_than_the_longest_ttl() {
    assert_eq!(keep("{}", None), command("coppice extend ci-1 --by 24h"));
    assert_eq!(keep("{maxTTL: 3d}", None), command("coppice extend ci-1 --by 24h"));
    // It expires 101 s after its creation, and at the latest 7,201 s after it.
    assert_eq!(keep("{maxTTL: 2h}", None), command("coppice extend ci-1 --by 1h58m"));
}

#[test]
fn where_it_cannot_be_extended_it_is_held_as_long_as_holds_count() {
    let hold = |time| command(&format!("coppice hold ci-1 --for {time} --reason \"still needed\""));
    assert_eq!(keep("{maxTTL: 100s}", None), hold("24h"));
    assert_eq!(keep("{maxTTL: 100s, maxHold: 1h}", None), hold("1h"));
    // It was held already, and holds count from the first one.
    assert_eq!(keep("{maxTTL: 100s, maxHold: 1h}", Some((5, 20))), hold("59m"));
}

#[test]
fn where_nothing_keeps_it_the_message_says_so() {
    assert_eq!(keep("{maxTTL: 100s, maxHold: 0s}", None), (None, true));
}
