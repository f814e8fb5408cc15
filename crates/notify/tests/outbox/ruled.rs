use super::*;

/// A rule under which the third message within five minutes is held.
fn rules() -> OutboxRules {
    let join = |several: &[DeliveryRequest]| {
        let DeliveryRequest::Slack(first) = &several[0] else { return None };
        let ids: Vec<_> = several.iter().map(DeliveryRequest::id).collect();
        Some(DeliveryRequest::Slack(Box::new(SlackRequest { id: ids.join("+"), ..(**first).clone() })))
    };
    let within = Duration::from_mins(5);
    let pause = GroupPauseRule { first: Duration::from_secs(1), longest: Duration::from_secs(4) };
    let remembered = Duration::from_hours(2);
    let digest = DigestRule { one_by_one: 2, within, at_most: 3, join, remembered };
    OutboxRules { group_pause: Some(pause), digest: Some(digest) }
}

impl TestOutbox {
    pub(super) fn with_rules() -> Self {
        let scripted = Scripted::new();
        let (enqueue, enqueued): (UnboundedSender<String>, _) = unbounded_channel();
        let enqueue = move |key| enqueue.send(key).unwrap();
        let outbox = Outbox::with_rules(scripted.clone(), OutboxLimits::default(), rules(), enqueue);
        Self { scripted, outbox, enqueued }
    }

    pub(super) fn message(&self, id: &str, to: &str) {
        let channel = SlackChannel::default();
        let (text, headline) = (String::new(), Headline::default());
        let request = SlackRequest { id: id.to_owned(), channel, to: Some(to.to_owned()), text, headline };
        let request = DeliveryRequest::Slack(Box::new(request));
        assert_eq!(self.outbox.submit("slack", format!("key of {id}"), 7, request), Ok(Submitted::Accepted));
    }

    pub(super) async fn deliver(&mut self, id: &str, result: DeliveryResult) {
        self.scripted.complete(id, result);
        self.enqueued.recv().await.unwrap();
    }

    /// The same for what joins these; their objects write down what came of it.
    async fn deliver_joined(&mut self, id: &str, parts: &[&str], result: DeliveryResult) {
        self.scripted.complete(id, result);
        for part in parts {
            assert_eq!(self.enqueued.recv().await.unwrap(), format!("key of {part}"));
            assert!(matches!(self.outbox.state(part), Some(AttemptState::Done(_))), "{part}");
            self.outbox.acknowledge(part);
        }
    }

    /// These are sent as one, once two were sent by themselves; its answer is lost.
    async fn lose_the_answer_to(&mut self, parts: [&str; 3]) {
        for id in parts {
            self.message(id, "#team");
        }
        self.scripted.under_way(1).await;
        self.deliver_joined(&parts.join("+"), &parts, answer_lost()).await;
    }

    /// Three messages are sent as one, whose answer is lost.
    async fn lose_the_answer_to_three(&mut self) {
        for id in ["m0", "m1", "m2", "m3", "m4"] {
            self.message(id, "#team");
        }
        self.scripted.under_way(3).await;
        for id in ["m0", "m1"] {
            self.deliver(id, Ok(OK)).await;
            self.outbox.acknowledge(id);
        }
        self.deliver_joined("m2+m3+m4", &["m2", "m3", "m4"], answer_lost()).await;
    }
}

/// The message may have arrived.
fn answer_lost() -> DeliveryResult {
    let after = Duration::from_secs(10);
    Err(DeliverError::Channel(ChannelError::Timeout { server: "slack.com".to_owned(), after }))
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_for_one_recipient_is_held_and_sent_as_one() {
    let mut bench = TestOutbox::with_rules();
    for n in 0..7 {
        bench.message(&format!("m{n}"), "#team");
    }
    bench.message("other", "#other");
    // Three are as many as one message has: they are sent at once.
    bench.scripted.under_way(4).await;
    assert!(bench.scripted.is_waiting("m0") && bench.scripted.is_waiting("m1"));
    assert!(bench.scripted.is_waiting("m2+m3+m4"));
    assert!(bench.scripted.is_waiting("other"), "another recipient does not wait");
    assert_eq!((bench.outbox.state("m6"), bench.outbox.in_flight()), (Some(AttemptState::InFlight), 6));
    for id in ["m0", "m1", "other"] {
        bench.deliver(id, Ok(OK)).await;
    }
    let gone = SendError::Status { code: 410, excerpt: String::new(), retry_after: None };
    bench.scripted.complete("m2+m3+m4", Err(DeliverError::Webhook(gone)));
    for id in ["m2", "m3", "m4"] {
        assert_eq!(bench.enqueued.recv().await.unwrap(), format!("key of {id}"));
        assert!(matches!(bench.outbox.state(id), Some(AttemptState::Done(Err(_)))), "{id}");
    }
    // Nobody waits for one of those that are held any more.
    bench.outbox.acknowledge("m6");
    tokio::time::advance(Duration::from_secs(299)).await;
    bench.scripted.under_way(0).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("m5"), "one by itself is sent as it is");
    assert_eq!((bench.outbox.attempt("m5"), bench.outbox.attempt("m6")), (Some(7), None));
    bench.deliver("m5", Ok(OK)).await;
    assert_eq!(bench.outbox.in_flight(), 0);
    bench.message("m7", "#team");
    bench.message("held", "#team");
    bench.scripted.under_way(1).await;
    assert_eq!(bench.outbox.shutdown(Duration::from_secs(1)).await, 1, "nothing that is held delays the end");
    assert_eq!(bench.outbox.state("held"), None);
}

#[tokio::test(start_paused = true)]
async fn another_attempt_at_a_message_is_no_further_message() {
    let mut bench = TestOutbox::with_rules();
    let gone = || {
        Err(DeliverError::Webhook(SendError::Status { code: 410, excerpt: String::new(), retry_after: None }))
    };
    for _ in 0..4 {
        bench.message("m0", "#team");
        bench.scripted.under_way(1).await;
        bench.deliver("m0", gone()).await;
        bench.outbox.acknowledge("m0");
    }
    bench.message("m1", "#team");
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("m1"), "it is the second");
}

#[tokio::test(start_paused = true)]
async fn what_was_joined_is_sent_again_as_the_same_message() {
    let mut bench = TestOutbox::with_rules();
    bench.lose_the_answer_to_three().await;
    // Each comes when its own wait is over: in another order, and among what is new.
    for id in ["m4", "m2", "new"] {
        bench.message(id, "#team");
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    bench.scripted.under_way(0).await;
    bench.message("m3", "#team");
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("m2+m3+m4"), "nothing is missing, and nothing is added");
    assert_eq!(bench.outbox.in_flight(), 2, "it is one, and what is new is held");
    // The time until which its parts would have been waited for ends while it is under way.
    tokio::time::advance(Duration::from_mins(5)).await;
    bench.scripted.under_way(1).await;
    bench.deliver_joined("m2+m3+m4", &["m2", "m3", "m4"], answer_lost()).await;
    // The channel has failed twice.
    tokio::time::advance(Duration::from_secs(2)).await;
    bench.scripted.under_way(1).await;
    bench.deliver("new", Ok(OK)).await;
    // An hour later, and the parts are as much further apart.
    tokio::time::advance(Duration::from_hours(1)).await;
    bench.message("m3", "#team");
    bench.message("m4", "#team");
    tokio::time::advance(Duration::from_mins(12)).await;
    bench.scripted.under_way(0).await;
    bench.message("m2", "#team");
    bench.scripted.under_way(1).await;
    bench.deliver_joined("m2+m3+m4", &["m2", "m3", "m4"], Ok(OK)).await;
    assert_eq!(bench.outbox.in_flight(), 0);
}

/// Who has got all three under this id knows what is left of them, and nobody misses what comes later under its own.
#[tokio::test(start_paused = true)]
async fn a_part_that_does_not_come_again_delays_the_others_and_is_left_out() {
    let mut bench = TestOutbox::with_rules();
    bench.lose_the_answer_to_three().await;
    bench.message("m2", "#team");
    bench.message("m3", "#team");
    tokio::time::advance(Duration::from_secs(299)).await;
    bench.scripted.under_way(0).await;
    assert_eq!(bench.outbox.in_flight(), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("m2+m3+m4"), "what is left of a message has its id");
    bench.message("m4", "#team");
    bench.deliver_joined("m2+m3+m4", &["m2", "m3"], answer_lost()).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    bench.scripted.under_way(1).await;
    assert!(bench.scripted.is_waiting("m4"), "it is no part any more");
    bench.deliver("m4", Ok(OK)).await;
    // Nobody waits for one of them any more: the other is a message under that id still.
    bench.message("m3", "#team");
    bench.message("m2", "#team");
    bench.scripted.under_way(1).await;
    bench.deliver_joined("m2+m3+m4", &["m2", "m3"], answer_lost()).await;
    bench.message("m3", "#team");
    bench.outbox.withdraw("m3");
    bench.message("m2", "#team");
    tokio::time::advance(Duration::from_secs(1)).await;
    bench.scripted.under_way(1).await;
    assert_eq!(bench.outbox.state("m3"), None);
    bench.deliver_joined("m2+m3+m4", &["m2"], Ok(OK)).await;
    assert_eq!(bench.outbox.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_sent_again_is_given_up_at_the_end() {
    let mut bench = TestOutbox::with_rules();
    bench.lose_the_answer_to_three().await;
    bench.message("m2", "#team");
    assert_eq!(bench.outbox.in_flight(), 1);
    assert_eq!(bench.outbox.shutdown(Duration::from_secs(1)).await, 0, "nothing that is held delays the end");
    assert_eq!((bench.outbox.state("m2"), bench.outbox.in_flight()), (None, 0));
}

#[tokio::test(start_paused = true)]
async fn a_channel_waits_as_long_as_it_is_asked_to_but_not_for_ever() {
    let mut bench = TestOutbox::with_rules();
    let busy = |seconds| {
        let retry_after = Some(Duration::from_secs(seconds));
        Err(DeliverError::Webhook(SendError::Status { code: 429, excerpt: String::new(), retry_after }))
    };
    for (n, asked, waits) in [(0, 3, 3), (1, 3600, 4)] {
        bench.message(&format!("m{n}"), &format!("U{n}"));
        bench.scripted.under_way(1).await;
        bench.deliver(&format!("m{n}"), busy(asked)).await;
        let failed = bench.outbox.state(&format!("m{n}"));
        assert!(matches!(failed, Some(AttemptState::Done(Err(failure))) if failure.by_channel), "m{n}");
        bench.message(&format!("next{n}"), &format!("U{n}"));
        tokio::time::advance(Duration::from_millis(waits * 1000 - 10)).await;
        bench.scripted.under_way(0).await;
        tokio::time::advance(Duration::from_millis(10)).await;
        bench.scripted.under_way(1).await;
        let asks_more = waits < 4;
        bench.deliver(&format!("next{n}"), if asks_more { busy(0) } else { Ok(OK) }).await;
        tokio::time::advance(Duration::from_secs(if asks_more { 2 } else { 0 })).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_does_not_work_is_tried_by_one_message_at_a_time() {
    let mut bench = TestOutbox::with_rules();
    let fails = || {
        let why = NoConnection::Refused;
        Err(DeliverError::Webhook(SendError::Connect { why, cause: String::new() }))
    };
    for n in 0..8 {
        bench.message(&format!("m{n}"), &format!("U{n}"));
    }
    // Four at once, by the limit of its host. Those that were under way are one failure.
    bench.scripted.under_way(4).await;
    for n in 0..4 {
        bench.deliver(&format!("m{n}"), fails()).await;
    }
    bench.scripted.under_way(0).await;
    for (waits, id) in [(1, "m4"), (2, "m5"), (4, "m6")] {
        tokio::time::advance(Duration::from_millis(waits * 1000 - 10)).await;
        bench.scripted.under_way(0).await;
        tokio::time::advance(Duration::from_millis(10)).await;
        bench.scripted.under_way(1).await;
        assert!(bench.scripted.is_waiting(id), "{id}");
        if waits < 4 {
            bench.deliver(id, fails()).await;
        }
    }
    bench.message("m8", "U8");
    // A recipient who is refused shows that the channel works.
    let gone = SendError::Status { code: 410, excerpt: String::new(), retry_after: None };
    bench.deliver("m6", Err(DeliverError::Webhook(gone))).await;
    bench.scripted.under_way(2).await;
    assert!(bench.scripted.is_waiting("m7") && bench.scripted.is_waiting("m8"));
}

#[tokio::test(start_paused = true)]
async fn what_comes_again_for_one_recipient_keeps_nobody_else_out() {
    let mut bench = TestOutbox::with_rules();
    bench.lose_the_answer_to_three().await;
    bench.lose_the_answer_to(["n2", "n3", "n4"]).await;
    bench.lose_the_answer_to(["o2", "o3", "o4"]).await;
    for id in ["m2", "m3", "n2", "n3", "o2"] {
        bench.message(id, "#team");
    }
    bench.scripted.under_way(0).await;
    // The sixth of twice three: what it belongs to is sent without the one that is missing, under the same id.
    bench.message("o3", "#team");
    bench.scripted.under_way(1).await;
    bench.deliver_joined("o2+o3+o4", &["o2", "o3"], Ok(OK)).await;
    assert_eq!(bench.outbox.in_flight(), 4);
}
