//! What becomes of messages to owners that cannot be delivered, and of the deletions that wait for them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::cluster;

use coppice_api::managed_namespace::Extension;
use coppice_api::notify::{MessageAbout, MessageDelivery, MessageState};
use coppice_api::{ManagedNamespaceStatus, Reason};

use coppice_lifecycle::cluster::NamespaceStep;
use coppice_lifecycle::message::OwnerMessage;

use crate::support::cluster::at;
use crate::support::notices::{MAIL, SKA, delivered, ends, messages, only, owned, refused, scene};

#[test]
fn what_is_refused_for_good_is_a_dead_letter_until_there_is_another_recipient() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    scene.managers[0].1.owner.as_mut().unwrap().fallback = None;
    messages(&mut scene, 41);
    ends(&mut scene, &refused(true), 43);
    assert_eq!(only(&scene).state, MessageState::Failed);
    assert!(scene.events.contains(&Reason::NoticeFailed), "{:?}", scene.events);
    assert_eq!(scene.reason(80_000), "NoticeUndelivered", "nobody was notified: it waits, for ever");
    assert_eq!(messages(&mut scene, 80_000), []);
    let key = only(&scene).key;
    owned(&mut scene, &[("mail", "ada@example.org")]);
    let sent = messages(&mut scene, 80_001);
    assert_eq!((sent[0].to.as_deref(), &*sent[0].key), (Some("ada@example.org"), &*key));
    // Its date is the one that its notice leads to.
    assert_eq!(sent[0].content.deletion.as_ref().unwrap().at, at(80_061));
    ends(&mut scene, &delivered(), 80_002);
    assert_eq!(
        (scene.reason(80_061), scene.reason(80_062)),
        ("NoticeRunning".to_owned(), "delete".to_owned())
    );
}

#[test]
fn what_is_refused_for_one_address_does_not_count_for_another_that_looks_the_same_in_records() {
    let (first, second) = (("mail", "jon@example.org"), ("mail", "john@example.org"));
    let refused_for_first = || {
        let mut scene = scene("channels: [mail]", &[first]);
        scene.managers[0].1.owner.as_mut().unwrap().fallback = None;
        messages(&mut scene, 41);
        ends(&mut scene, &refused(true), 43);
        scene
    };
    let mut scene = refused_for_first();
    let dead = only(&scene);
    assert_eq!(dead.to_digest.as_ref().unwrap().len(), 16, "{dead:?}");
    owned(&mut scene, &[second]);
    let sent = messages(&mut scene, 200);
    assert_eq!((sent.len(), sent[0].to.as_deref()), (1, Some(second.1)));
    let other = only(&scene);
    assert_eq!((&other.to, other.attempts), (&dead.to, 0));
    assert_ne!(other.to_digest, dead.to_digest);

    // Nothing is sent to the other one before that is written down.
    let mut scene = self::scene("channels: [mail]", &[first]);
    messages(&mut scene, 41);
    owned(&mut scene, &[second]);
    assert_eq!(scene.plan(at(41)).messages, []);
    assert_eq!(messages(&mut scene, 41)[0].to.as_deref(), Some(second.1));

    // What an earlier version has written is compared by what it shows, and has a digest when it is tried again.
    let mut scene = refused_for_first();
    scene.record.as_mut().unwrap().notices[0].to_digest = None;
    owned(&mut scene, &[second]);
    assert_eq!(messages(&mut scene, 200), []);
    assert_eq!(messages(&mut scene, 86_500)[0].to.as_deref(), Some(second.1));
    assert_eq!(only(&scene).to_digest, other.to_digest);

    // Without the signing key for a while, nothing is known to be another address, and what was known stays.
    let mut scene = self::scene("channels: [mail]", &[first]);
    messages(&mut scene, 41);
    let key = scene.address_key.take();
    assert_eq!(messages(&mut scene, 42).len(), 1);
    assert_eq!(only(&scene).to_digest, dead.to_digest);
    scene.address_key = key;
    owned(&mut scene, &[second]);
    assert_eq!((messages(&mut scene, 43).len(), only(&scene).to_digest), (1, other.to_digest));

    // Whoever reads the records of two namespaces does not see that they have one owner.
    let mut scene = self::scene("channels: [mail]", &[first]);
    scene.namespace.uid = "ns-2".to_owned();
    scene.record = Some(ManagedNamespaceStatus::default());
    scene.settled(1);
    messages(&mut scene, 41);
    assert!(only(&scene).to == dead.to && only(&scene).to_digest != dead.to_digest, "{:?}", only(&scene));
}

#[test]
fn what_a_deletion_waits_for_is_tried_again_a_day_after_it_was_refused_for_good() {
    // A server that was wrong.
    let mut scene = scene("channels: [mail]", &[MAIL]);
    scene.managers[0].1.owner.as_mut().unwrap().fallback = None;
    let first = messages(&mut scene, 41);
    ends(&mut scene, &refused(true), 43);
    let next = only(&scene).next_attempt.unwrap();
    assert!(at(86_443) < next && next < at(86_500), "{next}");
    assert_eq!(scene.settled(200).next_check, Some(next));
    assert_eq!(messages(&mut scene, 86_440), []);
    let again = messages(&mut scene, 86_500);
    assert_eq!((again.len(), &again[0].key), (1, &first[0].key));
    assert_eq!((only(&scene).state, only(&scene).attempts), (MessageState::Pending, 0));
}

#[test]
fn the_fallback_hears_where_each_address_of_the_owner_is_refused_for_good() {
    let mut scene = scene("channels: [slack, mail]", &[SKA]);
    let sent = messages(&mut scene, 41);
    assert_eq!(sent.iter().map(|one| one.to.as_deref()).collect::<Vec<_>>(), [Some("U024BE7LH")]);
    ends(&mut scene, &refused(false), 43);
    assert_eq!(scene.status().notices.len(), 1, "not for good");
    ends(&mut scene, &refused(true), 60);
    let sent = messages(&mut scene, 61);
    let to: Vec<_> = sent.iter().map(|one| (&*one.channel, one.to.as_deref())).collect();
    assert_eq!(to, [("mail", Some("platform@example.org"))]);
    let fallback = &scene.status().notices[1];
    assert!(fallback.fallback && fallback.about == MessageAbout::DeletionAnnounced, "{fallback:?}");
    ends(&mut scene, &delivered(), 70);
    assert_eq!((scene.reason(129), scene.reason(130)), ("NoticeRunning".to_owned(), "delete".to_owned()));

    // Where that is refused, too, both are tried again a day later.
    let mut scene = self::scene("channels: [slack, mail]", &[SKA]);
    messages(&mut scene, 41);
    ends(&mut scene, &refused(true), 43);
    messages(&mut scene, 44);
    ends(&mut scene, &refused(true), 45);
    assert_eq!(messages(&mut scene, 1000), []);
    let to: Vec<_> = messages(&mut scene, 86_600).into_iter().map(|one| one.to.unwrap()).collect();
    assert_eq!(to, ["U024BE7LH", "platform@example.org"]);

    // By the same channel, and refused as well: nothing is sent before the next day, and then to the owner first.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    let own = messages(&mut scene, 41);
    ends(&mut scene, &refused(true), 43);
    let sent = messages(&mut scene, 44);
    assert_eq!((sent[0].to.as_deref(), &sent[0].key), (Some("platform@example.org"), &own[0].key));
    ends(&mut scene, &refused(true), 45);
    assert_eq!(messages(&mut scene, 1000), []);
    assert_eq!(messages(&mut scene, 86_600)[0].to.as_deref(), Some(MAIL.1));
}

#[test]
fn what_came_of_one_attempt_is_not_taken_for_what_comes_of_the_next() {
    // The outbox drops the refusal of the owner's address when that is in the record, and not before.
    let mut scene = scene("channels: [mail]", &[MAIL]);
    let sent = messages(&mut scene, 41);
    scene.deliveries = [(sent[0].key.clone(), refused(true))].into();
    scene.settled(43);
    assert_eq!(
        (only(&scene).state, only(&scene).attempts, only(&scene).fallback),
        (MessageState::Failed, 1, false)
    );
    scene.deliveries.clear();
    let sent = messages(&mut scene, 43);
    assert_eq!(sent[0].to.as_deref(), Some("platform@example.org"));

    // The same for another recipient, while an attempt with the number of the first is to be written down.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    ends(&mut scene, &refused(false), 43);
    owned(&mut scene, &[("mail", "ada@example.org")]);
    let first = scene.plan(at(44));
    assert_eq!(first.messages, [], "the number of the attempt is not in the record yet");
    assert_eq!(messages(&mut scene, 44)[0].to.as_deref(), Some("ada@example.org"));
}

#[test]
fn a_message_to_nobody_does_not_keep_the_fallback_from_hearing() {
    let mut scene = scene("channels: [slack, mail]", &[SKA, MAIL]);
    messages(&mut scene, 41);
    let keys: Vec<_> = scene.status().notices.iter().map(|one| one.key.clone()).collect();
    scene.deliveries = [(keys[0].clone(), refused(false)), (keys[1].clone(), refused(true))].into();
    if let coppice_lifecycle::cluster::NamespaceStep::WriteStatus(status) = scene.plan(at(43)).step {
        scene.record = Some(*status);
    }
    scene.deliveries.clear();
    // The owner is in Slack no more.
    owned(&mut scene, &[MAIL]);
    let sent = messages(&mut scene, 100);
    assert_eq!(sent.last().unwrap().to.as_deref(), Some("platform@example.org"));
}

#[test]
fn whoever_was_still_to_hear_of_a_namespace_hears_that_it_is_gone() {
    let deletes = |scene: &mut cluster::Scene, seconds| {
        let plan = scene.settled(seconds);
        assert!(matches!(plan.step, NamespaceStep::Delete(_)), "{plan:?}");
        let to = |one: &OwnerMessage| (one.channel.clone(), one.to.clone(), one.content.about);
        let messages: Vec<_> = plan.notification.messages.iter().map(to).collect();
        (messages, plan.notification.superseded)
    };
    // Nobody could be reached, and nobody asked for the message that it is gone. By the webhook nothing is open.
    let notify = "channels: [slack, mail, hook], on: [Stale], undelivered: {after: 30s, then: Proceed}";
    let mut scene = scene(notify, &[SKA, MAIL]);
    messages(&mut scene, 41);
    let keys: Vec<_> = scene.status().notices.iter().map(|one| one.key.clone()).collect();
    let ends = [refused(false), refused(true), delivered()];
    scene.deliveries = keys.iter().cloned().zip(ends).collect();
    let NamespaceStep::WriteStatus(status) = scene.plan(at(43)).step else { panic!("{:?}", scene.record) };
    scene.record = Some(*status);
    scene.deliveries.clear();
    let (messages, superseded) = deletes(&mut scene, 200);
    let gone = MessageAbout::Deleted;
    let to = |channel: &str, to: &str| (channel.to_owned(), Some(to.to_owned()), gone);
    assert_eq!(messages[..2], [to("slack", "U024BE7LH"), to("mail", MAIL.1)]);
    assert_eq!(messages[2], ("hook".to_owned(), None, gone), "that it has expired was not said");
    let listed: Vec<_> = superseded.iter().map(|one| (&*one.channel, one.about)).collect();
    let (announced, stale) = (MessageAbout::DeletionAnnounced, MessageAbout::Stale);
    assert_eq!(
        listed,
        [("slack", announced), ("slack", stale), ("mail", announced), ("mail", stale), ("hook", stale)]
    );
    let because: Vec<_> = superseded.iter().map(|one| one.last_error.as_deref()).collect();
    let error = Some("the server answered 451");
    assert_eq!(because, [error, None, error, None, None]);
    assert_eq!(superseded[0].key, keys[0]);

    // What everybody has heard needs no answer.
    for one in &mut scene.record.as_mut().unwrap().notices {
        (one.state, one.next_attempt, one.delivered_at) = (MessageState::Delivered, None, Some(at(44)));
    }
    assert_eq!(deletes(&mut scene, 200), (Vec::new(), Vec::new()));

    // There is no address any more, and no such channel: both have to be dead letters that say so.
    let channels = "channels: [slack, mail], undelivered: {after: 30s, then: Proceed}";
    let mut scene = self::scene(channels, &[SKA, MAIL]);
    self::messages(&mut scene, 41);
    owned(&mut scene, &[MAIL]);
    scene.config.channels.retain(|channel| channel.name != "mail");
    let (messages, superseded) = deletes(&mut scene, 200);
    let nobody = |channel: &str| (channel.to_owned(), None, gone);
    assert_eq!(messages, [nobody("slack"), nobody("mail")]);
    assert!(superseded.iter().all(|one| one.last_error.is_some()), "{superseded:?}");
}

#[test]
fn nothing_waits_for_ever_once_nobody_is_notified() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    assert_eq!(only(&scene).state, MessageState::Pending);
    scene.managers[0].1.notify = None;
    scene.settled(50);
    assert_eq!(only(&scene).state, MessageState::Failed);
    assert_eq!(scene.reason(102), "delete", "nobody has to be");
}

#[test]
fn a_new_recipient_does_not_wait_for_what_went_wrong_with_another() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    for second in [43, 60, 90] {
        ends(&mut scene, &refused(false), second);
    }
    assert!(only(&scene).attempts == 3 && only(&scene).next_attempt > Some(at(100)));
    // The fourth attempt is under way when the owner changes; its refusal is not that of the new one.
    owned(&mut scene, &[("mail", "ada@example.org")]);
    ends(&mut scene, &refused(true), 95);
    scene.settled(95);
    assert_eq!((only(&scene).attempts, only(&scene).state), (0, MessageState::Pending));
    assert_eq!(messages(&mut scene, 96)[0].to.as_deref(), Some("ada@example.org"));
}

#[test]
fn what_nothing_rests_on_is_tried_for_a_day_of_attempts_and_dropped_when_it_is_not_true_any_more() {
    let notify = "channels: [mail], on: [Stale, Expiring], reminders: [50s]";
    let fails = |one: &&MessageDelivery| one.about == MessageAbout::Stale;
    let mut scene = scene(notify, &[MAIL]);
    scene.settled(60);
    let about: Vec<_> = scene.status().notices.iter().map(|one| one.about).collect();
    assert_eq!(about, [MessageAbout::DeletionAnnounced, MessageAbout::Expiring]);
    scene.settled(101);
    let about: Vec<_> = scene.status().notices.iter().map(|one| one.about).collect();
    assert_eq!(about, [MessageAbout::DeletionAnnounced, MessageAbout::Stale], "it has expired");
    let (mut now, mut attempts) = (110, 0);
    while scene.status().notices.iter().find(fails).unwrap().state == MessageState::Pending {
        ends(&mut scene, &refused(false), now);
        (now, attempts) = (now + 4400, attempts + 1);
    }
    assert_eq!(attempts, 34);
    // Not true any more: nobody is notified of it.
    let mut scene = self::scene(notify, &[MAIL]);
    scene.settled(101);
    assert_eq!(scene.status().notices.iter().filter(fails).count(), 1);
    scene.spec.extend_until = Some(Extension { at: at(10_000), by: None });
    scene.settled(110);
    assert_eq!(scene.status().notices.iter().filter(fails).count(), 0);
}
