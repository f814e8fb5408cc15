//! What the owner of a governed namespace is notified of, and what waits for that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use crate::support::health;
use crate::support::notices;

use coppice_api::NamespacePhase;
use coppice_api::managed_namespace::{Extension, RecordHold};
use coppice_api::notify::{MAX_NOTICES, MessageAbout, MessageDelivery, MessageState, Weekday};
use coppice_lifecycle::cluster::{ValidClusterManager, ValidHours};
use coppice_lifecycle::plan::Delivery;
use coppice_lifecycle::record::StepOutcome;

use crate::support::cluster::{Scene, at};
use crate::support::notices::{
    MAIL, SKA, channels, delivered, ends, messages, only, owned, refused, scene, spec,
};

#[test]
fn a_deletion_waits_for_its_announcement_and_then_for_the_whole_notice() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    assert_eq!(scene.status().notices, [], "nothing is announced yet");
    // 41 s before the end of the ttl notice is given, and written down with what the owner is to be notified of.
    let sent = messages(&mut scene, 41);
    let notice = only(&scene);
    assert_eq!(
        (notice.about, notice.state, &*notice.channel),
        (MessageAbout::DeletionAnnounced, MessageState::Pending, "mail")
    );
    assert_eq!(notice.to.as_deref(), Some("g***@example.org"), "records show no address");
    assert_eq!(Some(notice.given_at), scene.status().steps.notice.as_ref().map(|notice| notice.given_at));
    let [message] = &*sent else { panic!("{sent:?}") };
    assert_eq!((&*message.key, message.to.as_deref()), (&*notice.key, Some(MAIL.1)));
    assert_eq!(message.content.keep.as_deref(), Some("coppice extend ci-1 --by 24h"));
    assert_eq!(message.content.deletion.as_ref().unwrap().at, at(101));
    assert!(!message.content.observing);
    // Its date passes before anybody is notified.
    let says = scene.says(150);
    assert!(says.starts_with("NoticeUndelivered: the ttl ended at 2026-03-01T12:01:41Z; nobody has been notified yet (channel mail: under way)"), "{says}");
    // It is delivered at 200 s: notice runs from there, whatever was announced.
    ends(&mut scene, &delivered(), 200);
    assert_eq!(only(&scene).delivered_at, Some(at(200)));
    let says = scene.says(259);
    assert!(says.starts_with("NoticeRunning: ") && says.contains("2026-03-01T12:04:20Z"), "{says}");
    assert_eq!(scene.reason(260), "delete");
    assert_eq!(messages(&mut scene, 260), [], "nobody is notified twice");
}

#[test]
fn a_message_that_is_under_way_is_sent_once_and_a_failed_one_later() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    let sent = messages(&mut scene, 41);
    scene.deliveries = [(sent[0].key.clone(), Delivery::InFlight)].into();
    assert_eq!(messages(&mut scene, 42), []);
    ends(&mut scene, &refused(false), 43);
    let notice = only(&scene);
    assert_eq!((notice.attempts, notice.state), (1, MessageState::Pending));
    let next = notice.next_attempt.unwrap();
    assert!(at(48) <= next && next <= at(49), "{next}");
    let plan = scene.settled(44);
    assert_eq!((plan.messages, plan.next_check.unwrap()), (vec![], next));
    let says = scene.says(200);
    assert!(says.contains("(channel mail, attempt 1: the server answered 451)"), "{says}");
    let again = messages(&mut scene, 200);
    assert_eq!(again[0].key, sent[0].key, "under one key");
    assert_eq!(only(&scene).key, sent[0].key);
    // What a deletion waits for is tried for as long as it waits.
    ends(&mut scene, &refused(false), 200_000);
    assert_eq!(only(&scene).state, MessageState::Pending);
}

#[test]
fn one_recipient_who_was_notified_is_enough_and_one_bad_one_delays_nobody() {
    let mut scene = scene("channels: [slack, mail, hook]", &[SKA, MAIL]);
    let sent = messages(&mut scene, 41);
    let to: Vec<_> = sent.iter().map(|one| (&*one.channel, one.to.as_deref())).collect();
    assert_eq!(to, [("slack", Some("U024BE7LH")), ("mail", Some(MAIL.1)), ("hook", None)]);
    let keys: std::collections::BTreeSet<_> = sent.iter().map(|one| &one.key).collect();
    assert_eq!(keys.len(), 3);
    scene.deliveries = [(sent[0].key.clone(), refused(true)), (sent[2].key.clone(), delivered())].into();
    scene.settled(50);
    scene.deliveries.clear();
    let states: Vec<_> = scene.status().notices.iter().map(|one| one.state).collect();
    assert_eq!(states, [MessageState::Failed, MessageState::Pending, MessageState::Delivered]);
    assert_eq!((scene.reason(109), scene.reason(110)), ("NoticeRunning".to_owned(), "delete".to_owned()));
}

#[test]
fn the_fallback_hears_where_the_owner_has_no_address_for_any_channel() {
    let notified = |annotations: &[(&str, &str)]| {
        let mut scene = scene("channels: [slack, mail]", annotations);
        let sent = messages(&mut scene, 41);
        sent.into_iter().map(|one| (one.channel, one.to.unwrap())).collect::<Vec<_>>()
    };
    let (slack, mail) =
        (|to: &str| ("slack".to_owned(), to.to_owned()), |to: &str| ("mail".to_owned(), to.to_owned()));
    assert_eq!(notified(&[]), [mail("platform@example.org")]);
    assert_eq!(notified(&[SKA]), [slack("U024BE7LH")], "the owner is notified: nobody else needs to be");
    assert_eq!(notified(&[SKA, MAIL]), [slack("U024BE7LH"), mail(MAIL.1)]);
    // What cannot be understood spoils nothing else.
    for bad in ["%%%", "QWRh", "OjpVMDI0IGE=", ""] {
        assert_eq!(notified(&[("ska", bad), MAIL]), [mail(MAIL.1)], "{bad}");
    }
    for bad in [
        "nobody",
        "a@b@c",
        "a b@example.org",
        "x@example.org,y@example.org",
        "<x@example.org>",
        "@example.org",
        "a@",
    ] {
        assert_eq!(notified(&[("mail", bad)]), [mail("platform@example.org")], "{bad}");
    }
}

#[test]
fn nobody_to_tell_is_undelivered() {
    // The fallback of these managers has no address in Slack either.
    let mut scene = scene("channels: [slack]", &[MAIL]);
    scene.settled(41);
    let says = scene.says(5000);
    assert!(
        says.contains("NoticeUndelivered: ")
            && says.contains("nobody can be notified: the namespace has no owner with an address"),
        "{says}"
    );
    let mut scene = self::scene("channels: [slack], undelivered: {after: 5m, then: Proceed}", &[MAIL]);
    scene.settled(41);
    assert_eq!(scene.settled(300).next_check, Some(at(341)));
    assert_eq!(
        (scene.reason(340), scene.reason(400)),
        ("NoticeUndelivered".to_owned(), "NoticeRunning".to_owned())
    );
    assert_eq!(scene.reason(401), "delete", "five minutes and the whole notice after it was given");
}

#[test]
fn a_channel_that_there_is_not_is_shown_as_what_fails() {
    let mut scene = scene("channels: [mial]", &[MAIL]);
    scene.settled(41);
    let says = scene.says(150);
    assert!(says.contains("channel mial, attempt"), "{says}");
    assert!(says.contains("CoppiceConfig/coppice has no such channel"), "{says}");
}

#[test]
fn whoever_was_notified_of_a_deletion_is_notified_that_it_does_not_happen() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    let announced = messages(&mut scene, 41);
    ends(&mut scene, &delivered(), 42);
    scene.spec.extend_until = Some(Extension { at: at(10_000), by: None });
    let sent = messages(&mut scene, 50);
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].content.about, sent[0].content.keep.as_deref()),
        (MessageAbout::NoticeWithdrawn, None)
    );
    assert_ne!(sent[0].key, announced[0].key);
    ends(&mut scene, &delivered(), 51);
    assert_eq!(messages(&mut scene, 60), []);
    // One who was not notified of it is notified of nothing.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    scene.spec.hold = Some(RecordHold { until: at(10_000), reason: None, by: None });
    assert_eq!(messages(&mut scene, 50), []);
    assert_eq!(scene.status().notices, []);
    // One that is under way may have been notified by the time that this is known.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    let announced = messages(&mut scene, 41);
    scene.deliveries = [(announced[0].key.clone(), Delivery::InFlight)].into();
    scene.spec.hold = Some(RecordHold { until: at(10_000), reason: None, by: None });
    assert_eq!(messages(&mut scene, 50), []);
    scene.deliveries = [(announced[0].key.clone(), delivered())].into();
    let sent = messages(&mut scene, 52);
    assert_eq!(sent.iter().map(|one| one.content.about).collect::<Vec<_>>(), [MessageAbout::NoticeWithdrawn]);
}

#[test]
fn a_second_announcement_is_delivered_again() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    let first = messages(&mut scene, 41);
    ends(&mut scene, &delivered(), 42);
    scene.spec.hold = Some(RecordHold { until: at(300), reason: None, by: None });
    scene.settled(50);
    ends(&mut scene, &delivered(), 51);
    assert_eq!(scene.reason(299), "Held");
    let second = messages(&mut scene, 300);
    assert_eq!(second[0].content.about, MessageAbout::DeletionAnnounced);
    assert_ne!(second[0].key, first[0].key);
    assert_eq!(scene.reason(1000), "NoticeUndelivered", "that the first was delivered does not count");
}

#[test]
fn a_decided_deletion_waits_if_its_owner_has_to_be_notified_since() {
    let mut scene = Scene::new(&spec("channels: [mail]").replace("notify: {channels: [mail]}, ", ""));
    scene.config.channels = channels();
    owned(&mut scene, &[MAIL]);
    scene.settled(1);
    scene.settled(41);
    assert_eq!(scene.reason(101), "delete");
    scene.managers[0].1 = serde_yaml::from_str(&spec("channels: [mail]")).unwrap();
    assert_eq!(scene.reason(102), "NoticeUndelivered");
    assert_eq!(messages(&mut scene, 102).len(), 1);
    ends(&mut scene, &delivered(), 110);
    assert_eq!((scene.reason(169), scene.reason(170)), ("NoticeRunning".to_owned(), "delete".to_owned()));
}

#[test]
fn owners_are_notified_of_phases_and_reminded_where_the_manager_says_so() {
    let mut scene = scene("channels: [mail], on: [Stale, Expiring], reminders: [50s, 20s, 500s]", &[MAIL]);
    assert_eq!(messages(&mut scene, 40), []);
    let about = |scene: &mut Scene, seconds| {
        let sent = messages(scene, seconds);
        let about: Vec<_> = sent.iter().map(|one| one.content.about).collect();
        ends(scene, &delivered(), seconds);
        about
    };
    assert_eq!(
        about(&mut scene, 51),
        [MessageAbout::DeletionAnnounced, MessageAbout::Expiring],
        "500 s is more than its ttl"
    );
    assert_eq!(about(&mut scene, 60), []);
    assert_eq!(about(&mut scene, 81), [MessageAbout::Expiring]);
    assert_eq!(about(&mut scene, 82), []);
    scene.spec.extend_until = Some(Extension { at: at(200), by: None });
    assert_eq!(about(&mut scene, 90), [MessageAbout::NoticeWithdrawn], "and it is reminded of the new end");
    assert_eq!(about(&mut scene, 150), [MessageAbout::DeletionAnnounced, MessageAbout::Expiring]);
    assert_eq!(about(&mut scene, 199), [MessageAbout::Expiring]);
    assert_eq!(about(&mut scene, 200), [MessageAbout::Stale]);
}

#[test]
fn what_is_delivered_of_one_phase_says_nothing_of_the_next() {
    let notify = "notify: {channels: [hook], on: [Unstable, Failing]}, policies:";
    let mut scene = health::Scene::new(&health::spec("{in: [Stale]}", "0s").replace("policies:", notify));
    scene.pass(20);
    scene.fails(true);
    let [unstable] = &*scene.status.notices else { panic!("{:?}", scene.status.notices) };
    let key = unstable.key.clone();
    scene.deliveries = [(key.clone(), Delivery::InFlight)].into();
    let states = |scene: &health::Scene| -> Vec<_> {
        scene.status.notices.iter().map(|one| (one.about, one.state)).collect()
    };
    // The phase changes while the message about the one before is under way.
    assert_eq!(scene.pass(125), [(120, NamespacePhase::Failing)]);
    let (pending, delivered) = (MessageState::Pending, MessageState::Delivered);
    assert_eq!(states(&scene), [(MessageAbout::Unstable, pending), (MessageAbout::Failing, pending)]);
    scene.deliveries = [(key, notices::delivered())].into();
    scene.look();
    assert_eq!(
        (scene.status.phase, scene.status.phase_since),
        (Some(NamespacePhase::Failing), Some(at(120)))
    );
    assert_eq!(states(&scene), [(MessageAbout::Unstable, delivered), (MessageAbout::Failing, pending)]);
    scene.deliveries.clear();
    let about: Vec<_> = scene.plan().messages.iter().map(|one| one.content.about).collect();
    assert_eq!(about, [MessageAbout::Failing], "the owner is still to be notified of it");
}

#[test]
fn while_observing_messages_say_that_nothing_will_be_deleted() {
    let observing = spec("channels: [mail], on: [Stale]").replace("mode: Enforce, ", "");
    let mut scene = Scene::new(&observing);
    scene.config.channels = channels();
    owned(&mut scene, &[MAIL]);
    scene.settled(1);
    scene.settled(50);
    let sent = messages(&mut scene, 101);
    assert_eq!(
        sent.iter().map(|one| (one.content.about, one.content.observing)).collect::<Vec<_>>(),
        [(MessageAbout::Stale, true)]
    );
    // Nobody is notified before it has settled, nor while the manager is suspended.
    let mut scene = Scene::new(&observing);
    scene.config.channels = channels();
    owned(&mut scene, &[MAIL]);
    scene.settled(95);
    assert_eq!(messages(&mut scene, 101), []);
}

#[test]
fn the_list_has_an_end_and_what_is_needed_stays_on_it() {
    let mut scene = scene("channels: [mail], on: [Stale]", &[MAIL]);
    for round in 0..40_i64 {
        let now = 1000 * (round + 1);
        scene.spec.extend_until = Some(Extension { at: at(now + 60), by: None });
        scene.settled(now);
        ends(&mut scene, &delivered(), now + 1);
        scene.settled(now + 2);
        scene.spec.extend_until = Some(Extension { at: at(now + 500), by: None });
        scene.settled(now + 3);
        ends(&mut scene, &delivered(), now + 4);
    }
    assert_eq!(scene.status().notices.len(), MAX_NOTICES);
    scene.spec.extend_until = None;
    let sent = messages(&mut scene, 100_000);
    assert!(sent.iter().any(|one| one.content.about == MessageAbout::DeletionAnnounced), "{sent:?}");
}

#[test]
fn a_full_list_delays_the_deletion_and_says_so() {
    let mut scene = scene("channels: [mail]", &[MAIL]);
    let mut record = scene.status().clone();
    record.notices = (0..MAX_NOTICES)
        .map(|n| MessageDelivery {
            key: format!("notice-{n}"),
            about: MessageAbout::NoticeWithdrawn,
            channel: "mail".to_owned(),
            to: Some("g***@example.org".to_owned()),
            to_digest: None,
            fallback: false,
            state: MessageState::Pending,
            attempts: 0,
            next_attempt: None,
            given_at: at(1),
            delivered_at: None,
            last_error: None,
        })
        .collect();
    scene.record = Some(record);
    messages(&mut scene, 41);
    assert_eq!(scene.reason(200), "NoticeUndelivered");
    let notices = &scene.status().notices;
    assert!(notices.iter().all(|one| one.about == MessageAbout::NoticeWithdrawn), "{notices:?}");
    let says = scene.status().next.as_ref().unwrap().message.clone();
    assert!(says.contains("20 messages about the namespace wait already"), "{says}");
    // One of them is delivered: there is room.
    let key = scene.status().notices[7].key.clone();
    scene.deliveries = [(key, delivered())].into();
    let sent = messages(&mut scene, 201);
    scene.deliveries.clear();
    assert_eq!(scene.status().notices.len(), MAX_NOTICES);
    let announced = sent.iter().find(|one| one.content.about == MessageAbout::DeletionAnnounced).unwrap();
    scene.deliveries = [(announced.key.clone(), delivered())].into();
    scene.settled(210);
    scene.deliveries.clear();
    assert_eq!(
        (scene.reason(269), scene.reason(270)),
        ("NoticeRunning".to_owned(), "delete".to_owned()),
        "the notice runs from its delivery"
    );
}

#[test]
fn notices_decide_nothing_else() {
    let digest = |spec: &str| serde_yaml::from_str::<ValidClusterManager>(spec).unwrap().digest().to_owned();
    assert_eq!(digest(&spec("channels: [mail]")), digest(&spec("channels: [slack], on: []")));
    // A namespace that nobody governs any more has nobody who says by which channel.
    let mut scene = scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    scene.managers.clear();
    assert_eq!(messages(&mut scene, 42), []);
    assert_eq!(only(&scene).state, MessageState::Failed);
    // Another namespace of the name is notified of nothing that was about this one.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    scene.namespace.uid = "another".to_owned();
    scene.namespace.created = at(41);
    assert_eq!(messages(&mut scene, 42), []);
    assert_eq!(scene.status().notices, []);
    // Nor is anybody notified of a deletion that has been accepted that it will not happen.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    ends(&mut scene, &delivered(), 42);
    assert_eq!(scene.reason(102), "delete");
    scene.ends(&StepOutcome::Deleted, 103);
    scene.namespace.terminating = true;
    assert_eq!(messages(&mut scene, 104), []);
}

#[test]
fn outside_working_hours_nothing_is_sent_and_the_deletion_waits() {
    // It is a Sunday.
    let mut scene = scene("channels: [mail], workingHours: {timeZone: Europe/Berlin}", &[MAIL]);
    assert_eq!(messages(&mut scene, 41), []);
    let notice = only(&scene);
    let monday = "2026-03-02T07:00:00Z".parse().unwrap();
    assert_eq!(
        (notice.state, notice.attempts, notice.next_attempt),
        (MessageState::Pending, 0, Some(monday))
    );
    let says = scene.says(150);
    assert!(says.starts_with("NoticeUndelivered: "), "{says}");
    assert!(says.contains("(channel mail: held back until working hours)"), "{says}");
    // Hours that begin earlier count at once.
    let mut hours = scene.managers[0].1.notify.as_ref().unwrap().working_hours.clone().unwrap();
    hours.days = vec![Weekday::Sunday];
    scene.managers[0].1.hours = Some(ValidHours::try_from(&hours).unwrap());
    assert_eq!(messages(&mut scene, 160).len(), 1);
    ends(&mut scene, &delivered(), 170);
    assert_eq!(scene.reason(230), "delete");
}

#[test]
fn what_is_held_back_for_working_hours_does_not_proceed_before_they_begin() {
    let notify = "channels: [mail], workingHours: {timeZone: UTC}, undelivered: {after: 30m, then: Proceed}";
    let mut scene = scene(notify, &[MAIL]);
    messages(&mut scene, 41);
    // Hours later it is still Sunday.
    assert!(scene.says(4 * 3600).starts_with("NoticeUndelivered: "));
    // 30 minutes after 08:00 on Monday, and not before, notice begins.
    let begin = "2026-03-02T08:00:00Z".parse::<jiff::Timestamp>().unwrap().as_second() - at(0).as_second();
    assert!(scene.says(begin + 29 * 60).starts_with("NoticeUndelivered: "));
    assert!(scene.says(begin + 30 * 60 + 30).starts_with("NoticeRunning: "));
}

#[test]
fn messages_once_it_is_gone_go_to_whom_it_was_announced() {
    let notify = "channels: [slack, mail, hook], on: [Deleted]";
    let mut scene = scene(notify, &[MAIL]);
    messages(&mut scene, 41);
    scene.deliveries = scene.status().notices.iter().map(|one| (one.key.clone(), delivered())).collect();
    scene.settled(42);
    scene.deliveries.clear();
    let plan = scene.settled(102);
    let coppice_lifecycle::cluster::NamespaceStep::Delete(intent) = &plan.step else { panic!("{plan:?}") };
    let notification: Vec<_> = plan
        .notification
        .messages
        .iter()
        .map(|one| (&*one.channel, one.to.as_deref(), one.content.about))
        .collect();
    let gone = MessageAbout::Deleted;
    assert_eq!(notification, [("mail", Some(MAIL.1), gone), ("hook", None, gone)]);
    let content = &plan.notification.messages[0].content;
    assert_eq!(
        (&*content.why, content.keep.as_deref()),
        ("its time to live ends at 2026-03-01T12:01:41Z", None)
    );
    assert_eq!(intent.reason, "TtlElapsed");
    assert_eq!(plan.notification.working_hours, None);
    // Nobody asked for it.
    let mut scene = self::scene("channels: [mail]", &[MAIL]);
    messages(&mut scene, 41);
    ends(&mut scene, &delivered(), 42);
    let plan = scene.settled(102);
    assert!(matches!(plan.step, coppice_lifecycle::cluster::NamespaceStep::Delete(_)), "{plan:?}");
    assert_eq!(plan.notification.messages, []);
    // The fallback, where that was notified.
    let mut scene = self::scene("channels: [mail], on: [Deleted]", &[MAIL]);
    messages(&mut scene, 41);
    ends(&mut scene, &refused(true), 43);
    messages(&mut scene, 44);
    ends(&mut scene, &delivered(), 45);
    let plan = scene.settled(200);
    assert_eq!(plan.notification.messages[0].to.as_deref(), Some("platform@example.org"));
}
