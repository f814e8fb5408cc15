//! What owners read, and what templates of users may and may not do.

use std::collections::BTreeMap;

use std::collections::BTreeSet;

use coppice_api::Losses;
use coppice_api::health::{FailingObject, HealthSource};
use coppice_api::losses::{LostLoadBalancer, LostVolume};
use coppice_lifecycle::message::{DeletionContent, MessageLink};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-01-01T16:04:00Z")
}

fn content(about: MessageAbout) -> MessageContent {
    MessageContent {
        about,
        namespace: "ci-1".to_owned(),
        uid: "5f0c9a35".to_owned(),
        manager: "cleanup".to_owned(),
        owner: None,
        given_at: now(),
        why: "that is why".to_owned(),
        deletion: None,
        expires_at: None,
        failing: Vec::new(),
        advice: BTreeMap::new(),
        successor: None,
        observing: false,
        links: Vec::new(),
        keep: None,
        limit_reached: false,
    }
}

fn crash_loop(message: &str) -> FailingObject {
    FailingObject {
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        reason: "CrashLoopBackOff".to_owned(),
        message: message.to_owned(),
        source: HealthSource::Workloads,
        since: at("2026-01-01T14:04:00Z"),
    }
}

/// A deletion with all that there is to say.
fn deletion() -> MessageContent {
    let volume = LostVolume {
        claim: "data".to_owned(),
        volume: "pv-1".to_owned(),
        capacity: Some("20Gi".to_owned()),
        reclaim_policy: Some("Delete".to_owned()),
    };
    let web = LostLoadBalancer { service: "web".to_owned(), addresses: vec!["192.0.2.1".to_owned()] };
    let losses = Losses { volumes: vec![volume], load_balancers: vec![web], ..Losses::default() };
    let link = |name: &str, url: &str| MessageLink { name: name.to_owned(), url: url.to_owned() };
    MessageContent {
        owner: Some("team-shop".to_owned()),
        why: "it does not work as it should: Deployment web (CrashLoopBackOff)".to_owned(),
        deletion: Some(DeletionContent {
            policy: "delete what fails".to_owned(),
            at: at("2026-01-02T15:04:00Z"),
            reason: "Unhealthy".to_owned(),
            losses: Some(losses),
        }),
        failing: vec![crash_loop("back-off 5m0s restarting failed container")],
        advice: BTreeMap::from([(
            "CrashLoopBackOff".to_owned(),
            "Read the log of the last run: `kubectl logs POD -c CONTAINER --previous`.".to_owned(),
        )]),
        successor: Some("ci-2".to_owned()),
        links: vec![
            link("pipeline", "https://ci.example.org/pipelines/1?a=1&b=2"),
            link("plain", "http://plain.example.org/"),
            link("script", "javascript:alert(1)"),
        ],
        keep: Some("coppice hold ci-1 --for 24h --reason \"still needed\"".to_owned()),
        ..content(MessageAbout::DeletionAnnounced)
    }
}

fn render(content: &MessageContent) -> Rendered {
    Templates::default().render(content, now(), Some("prod-1")).unwrap()
}

fn refused(overrides: Overrides<'_>) -> TemplateError {
    Templates::new(overrides).unwrap_err()
}

fn text(source: &str) -> Overrides<'_> {
    Overrides { text: Some(source), ..Overrides::default() }
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn a_deletion_says_all_that_there_is_to_say_in_every_part() {
    let rendered = render(&deletion());
    assert_eq!(rendered.subject, "[prod-1] Namespace ci-1 will be deleted, not before 2026-01-02 15:04 UTC");
    for text in [&rendered.text, &rendered.html, &rendered.slack] {
        assert_has(
            text,
            &[
                "Namespace ci-1 will be deleted",
                "not before 2026-01-02 15:04 UTC, in 23 hours",
                "it does not work as it should: Deployment web (CrashLoopBackOff)",
                "Deployment web: CrashLoopBackOff for 2 hours: back-off 5m0s restarting failed container",
                "Read the log of the last run",
                "volume of claim data (20Gi): deleted with its data",
                "load balancer of Service web: removed with its addresses: 192.0.2.1",
                "namespace ci-2",
                "team-shop",
                "prod-1",
                "cleanup",
                "https://ci.example.org/pipelines/1?a=1&",
            ],
        );
        assert!(!text.contains("plain.example.org") && !text.contains("javascript"), "{text}");
        assert!(!text.contains("Nothing will be deleted"), "{text}");
    }
    let keep = "coppice hold ci-1 --for 24h --reason \"still needed\"";
    assert_has(&rendered.text, &[keep, "pipeline: https://ci.example.org/pipelines/1?a=1&b=2\n"]);
    assert_has(&rendered.slack, &[keep, "<https://ci.example.org/pipelines/1?a=1&amp;b=2|pipeline>\n"]);
    assert_has(
        &rendered.html,
        &[
            "coppice hold ci-1 --for 24h --reason &quot;still needed&quot;",
            "<a href=\"https://ci.example.org/pipelines/1?a=1&amp;b=2\">pipeline</a>",
        ],
    );
}

#[test]
fn each_kind_of_message_says_what_happens_and_when() {
    let expires = Some(at("2026-01-02T15:04:00Z"));
    let with = |about, successor: Option<&str>, expires_at| MessageContent {
        successor: successor.map(str::to_owned),
        expires_at,
        ..content(about)
    };
    for (content, what, when) in [
        (
            with(MessageAbout::NoticeWithdrawn, None, expires),
            "Namespace ci-1 will not be deleted as announced",
            None,
        ),
        (with(MessageAbout::Unstable, None, expires), "Namespace ci-1 has failing workloads", None),
        (with(MessageAbout::Failing, None, None), "Namespace ci-1 is failing", None),
        (with(MessageAbout::Failed, None, None), "Namespace ci-1 has failed", None),
        (
            with(MessageAbout::Stale, None, Some(at("2026-01-01T15:04:00Z"))),
            "Namespace ci-1 has expired",
            Some("When: 2026-01-01 15:04 UTC, 1 hour ago\n"),
        ),
        (
            with(MessageAbout::Superseded, Some("ci-2"), None),
            "Namespace ci-2 has taken the place of namespace ci-1",
            None,
        ),
        (
            with(MessageAbout::Superseded, None, None),
            "A later namespace has taken the place of namespace ci-1",
            None,
        ),
        (with(MessageAbout::Recovered, None, None), "Nothing fails in namespace ci-1 any more", None),
        (
            with(MessageAbout::Expiring, None, expires),
            "Namespace ci-1 expires soon",
            Some("When: 2026-01-02 15:04 UTC, in 23 hours\n"),
        ),
    ] {
        let rendered = Templates::default().render(&content, now(), None).unwrap();
        assert_eq!(rendered.subject, what);
        assert!(rendered.text.starts_with(&format!("{what}.\n\n")), "{}", rendered.text);
        assert_has(&rendered.text, &["Why: that is why\n"]);
        assert_has(&rendered.html, &[what, "that is why"]);
        assert!(rendered.slack.starts_with(&format!("*{what}*\n")), "{}", rendered.slack);
        match when {
            Some(when) => assert_has(&rendered.text, &[when]),
            None => assert!(!rendered.text.contains("When:"), "{}", rendered.text),
        }
    }
}

#[test]
fn what_only_observes_says_that_nothing_will_be_deleted() {
    let rendered = render(&MessageContent { observing: true, ..deletion() });
    for text in [&rendered.text, &rendered.html, &rendered.slack] {
        assert_has(
            text,
            &[
                "Namespace ci-1 would be deleted",
                "Nothing will be deleted: cluster manager cleanup deletes no namespaces at present",
            ],
        );
        assert!(!text.contains("Namespace ci-1 will be deleted"), "{text}");
    }
    assert_has(&rendered.subject, &["Namespace ci-1 would be deleted"]);
}

#[test]
fn what_others_wrote_is_only_shown() {
    let evil = "<script>alert(1)</script>\r\nBcc: all@example.org\u{1b}[31m <!channel> <https://evil.example|here> & \u{202e}";
    let mut content = deletion();
    content.failing[0].message = evil.to_owned();
    content.why = evil.to_owned();
    content.namespace = evil.to_owned();
    content.owner = Some(evil.to_owned());
    content.links = vec![MessageLink {
        name: evil.to_owned(),
        url: "https://ci.example.org/a|b\"onclick='c'>d".to_owned(),
    }];
    let rendered = render(&content);
    assert!(!rendered.subject.contains(['\n', '\r']), "{:?}", rendered.subject);
    for text in [&rendered.subject, &rendered.text, &rendered.html, &rendered.slack] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text:?}");
        assert!(!text.contains("\nBcc:"), "{text}");
    }
    assert!(
        !rendered.html.contains("<script>") && !rendered.html.contains("<!channel>"),
        "{}",
        rendered.html
    );
    assert_has(
        &rendered.html,
        &["&lt;script&gt;alert(1)&lt;/script&gt;", "href=\"https://ci.example.org/a%7Cb%22onclick="],
    );
    assert!(
        !rendered.slack.contains("<!") && !rendered.slack.contains("<https://evil"),
        "{}",
        rendered.slack
    );
    assert_has(
        &rendered.slack,
        &["&lt;!channel&gt; &lt;https://evil.example|here&gt; &amp;", "<https://ci.example.org/a%7Cb%22"],
    );
    assert_has(&rendered.text, &["<script>alert(1)</script>  Bcc: all@example.org[31m <!channel>"]);
}

#[test]
fn no_template_turns_escaping_off() {
    let source = "{% autoescape false %}{{ why }}{% set a %}{{ why }}{% endset %}{{ a }}{% endautoescape %}";
    let slack =
        "{% set a %}{{ why }}{% endset %}{{ a ~ why }}{{ [why, why]|join(a) }}{{ why|replace('x', a) }}";
    let templates =
        Templates::new(Overrides { html: Some(source), slack: Some(slack), ..Overrides::default() }).unwrap();
    let content = MessageContent { why: "<!here>".to_owned(), ..content(MessageAbout::Stale) };
    let rendered = templates.render(&content, now(), None).unwrap();
    for text in [&rendered.html, &rendered.slack] {
        assert!(!text.contains('<') && text.contains("&lt;!here&gt;"), "{text}");
    }
    for filter in ["safe", "escape", "e", "default"] {
        let source = format!("{{{{ why|{filter} }}}}");
        let error = refused(text(&source)).to_string();
        assert_has(&error, &[filter, "the filters are absolute, relative, first, join"]);
    }
}

#[test]
fn a_subject_is_one_short_line() {
    let subject = "{{ namespace }}\n\n  {{ why }}\n";
    let templates = Templates::new(Overrides { subject: Some(subject), ..Overrides::default() }).unwrap();
    let mut content = content(MessageAbout::Failed);
    assert_eq!(templates.render(&content, now(), None).unwrap().subject, "ci-1 that is why");
    content.why = "ä".repeat(500);
    let rendered = templates.render(&content, now(), None).unwrap();
    assert_eq!(rendered.subject.chars().count(), MAX_SUBJECT);
    assert!(rendered.subject.ends_with("ä…"), "{}", rendered.subject);
}

#[test]
fn a_template_of_users_is_used_and_the_others_stay() {
    let source = "{% if deletion %}\nUntil {{ deletion.at|absolute }} ({{ deletion.at|relative }}): {{ keep }}\n\
                  {% endif %}\n{{ about }} by {{ manager }}{% for one in failing %}, {{ one.kind }}{% endfor %}";
    let templates = Templates::new(text(source)).unwrap();
    let rendered = templates.render(&deletion(), now(), Some("prod-1")).unwrap();
    assert_eq!(
        rendered.text,
        "Until 2026-01-02 15:04 UTC (in 23 hours): coppice hold ci-1 --for 24h --reason \"still needed\"\n\
         DeletionAnnounced by cleanup, Deployment\n"
    );
    let built_in = render(&deletion());
    assert_eq!(
        (rendered.subject, rendered.html, rendered.slack),
        (built_in.subject, built_in.html, built_in.slack)
    );
}

#[test]
fn the_built_in_template_is_used_in_place_of_what_cannot_be() {
    let overrides = Overrides {
        subject: Some("{{ nmespace }}"),
        text: Some("{{ what }}!"),
        html: Some("{% if what %}"),
        slack: None,
    };
    let (templates, errors) = Templates::or_built_in(overrides);
    let parts: Vec<_> = errors.iter().map(|error| error.part).collect();
    assert_eq!(parts, [Part::Subject, Part::Html]);
    let rendered = templates.render(&deletion(), now(), Some("prod-1")).unwrap();
    let text = "Namespace ci-1 will be deleted!\n".to_owned();
    assert_eq!(rendered, Rendered { text, ..render(&deletion()) });
    assert_eq!(Templates::new(overrides).unwrap_err(), errors[0]);
}

#[test]
fn the_built_in_templates_can_be_written_as_those_of_users() {
    let [subject, text, html, slack] = Part::ALL.map(|part| Some(part.built_in()));
    let templates = Templates::new(Overrides { subject, text, html, slack }).unwrap();
    assert_eq!(templates.render(&deletion(), now(), Some("prod-1")), Ok(render(&deletion())));
}

#[test]
fn the_built_in_templates_are_far_from_every_limit() {
    let mut templates = Templates::default();
    templates.engine.set_fuel(Some(engine::FUEL / 4));
    for (about, sample) in samples::all() {
        let rendered = templates.render_context(about, &sample).unwrap();
        assert!(rendered.html.len() < MAX_OUTPUT / 2, "{about}: {}", rendered.html.len());
        assert!(rendered.slack.chars().count() < 40_000, "{about}: {}", rendered.slack.len());
    }
}

#[test]
fn an_unknown_name_is_refused_where_it_is() {
    let error = refused(text("{{ what }}\n\n{{ nmespace }}"));
    assert_eq!((error.part, error.line), (Part::Text, Some(3)));
    assert_has(
        &error.to_string(),
        &["template text, line 3", "`nmespace` is undefined", "the names are about, what"],
    );

    for (source, line, says) in [
        ("{% if nmespace %}a{% endif %}b", 1, "`nmespace` is undefined"),
        ("a\n{{ deletion.policy }}", 2, "deletion is none there: write {% if deletion %}"),
        (
            "{% if deletion %}\n{{ deletion.polcy }}{% endif %}b",
            2,
            "the names of deletion are policy, at, reason, losses",
        ),
        (
            "{{ what }}{% for one in failing %}\n{{ one.raeson }}{% endfor %}",
            2,
            "of failing: line, advice, kind",
        ),
        ("{{ losses.volumes }}", 1, "losses has no names below it"),
        ("a\n{{ failing.kind }}", 2, "failing is a list, whose items have line, advice, kind"),
        ("a\n{{ failing[0].kind }}", 2, "undefined"),
        // No sample gets there.
        (
            "a\n{% if cluster == 'test-7' %}\n{{ nmespace }}{% endif %}",
            3,
            "`nmespace` is undefined; the names are",
        ),
        (
            "a{% if cluster == 'test-7' %}{{ deletion.polcy }}{% endif %}",
            1,
            "the names of deletion are policy",
        ),
        ("a\n{{ expiresAt|absolute }}", 2, "there is no instant there"),
        ("a\n{{ why|relative }}", 2, "is no instant"),
        ("a\n{% if why %}", 2, "syntax error"),
        ("a\n{% include 'text' %}", 2, "syntax error"),
        ("a\n{{ range(3) }}", 2, "range is unknown; there are no functions"),
        ("a\n{{ why is defined }}", 2, "there are no tests"),
    ] {
        let error = refused(text(source));
        assert_eq!((error.part, error.line), (Part::Text, Some(line)), "{source}: {error}");
        assert_has(&error.to_string(), &[says]);
    }
}

#[test]
fn a_name_of_the_templates_own_is_no_unknown_one() {
    let source =
        "{% if owner %}{% set who = owner %}{% else %}{% set who = 'nobody' %}{% endif %}For {{ who }}";
    let templates = Templates::new(text(source)).unwrap();
    let rendered = templates.render(&content(MessageAbout::Stale), now(), None).unwrap();
    assert_eq!(rendered.text, "For nobody\n");
}

#[test]
fn what_costs_too_much_is_refused() {
    let many = "{% for a in [0,1,2,3,4,5,6,7,8,9] %}".repeat(8) + "x" + &"{% endfor %}".repeat(8);
    assert_has(&refused(text(&many)).to_string(), &["it takes more than 50000 steps"]);
    assert_has(&refused(text("{{ 'x' * 1000000000 }}")).to_string(), &["it takes more than 50000 steps"]);
    let endless = "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}";
    assert_has(&refused(text(endless)).to_string(), &["template text, line 1", "recursion"]);
    assert_has(&refused(text("{{ 'x' * 300000 }}")).to_string(), &["it makes 300001 bytes"]);
    assert_has(
        &refused(text(&"x".repeat(MAX_SOURCE + 1))).to_string(),
        &["16385 characters: write at most 16384"],
    );
    for nothing in ["", " \n", "{% if deletion %}a{% endif %}"] {
        assert_has(&refused(text(nothing)).to_string(), &["it makes an empty text"]);
    }
}

/// In half of the stack that threads of the operator have.
#[test]
fn nesting_is_refused_and_does_not_end_the_process() {
    let tries = std::thread::Builder::new().stack_size(1 << 20).spawn(nest).unwrap();
    tries.join().unwrap();
}

/// A source that is so deep; how deep it may be; and how deep it may not.
type Case<'a> = (&'a dyn Fn(usize) -> String, usize, usize);

fn nest() {
    let within = |times: usize, open: &str, close: &str| open.repeat(times) + "1" + &close.repeat(times);
    let tag = |expression: &str| format!("{{{{ {expression} }}}}");
    // As deep as can be, and what has to be refused before the engine sees it.
    let cases: [Case<'_>; 14] = [
        (&|times| tag(&within(times, "not ", "")), 149, 4_000),
        (&|times| tag(&within(times, "- ", "")), 149, 8_000),
        (&|times| tag(&within(times, "1 + ", "")), 74, 4_000),
        (&|times| tag(&within(times, "1 ** ", "")), 49, 3_000),
        (&|times| tag(&within(times, "1 ~ ", "")), 74, 4_000),
        (&|times| tag(&within(times, "1 if 1 else ", "")), 37, 1_300),
        (&|times| tag(&within(times, "", ".a")), 74, 8_000),
        (&|times| tag(&within(times, "", "|trim")), 74, 3_000),
        (&|times| tag(&within(times, "(", ")")), 16, 8_000),
        (&|times| tag(&within(times, "[", "]")), 16, 8_000),
        (&|times| within(times, "{% if 1 %}", "{% endif %}"), 16, 700),
        (&|times| within(times, "{% set a %}", "{% endset %}"), 16, 600),
        (&|times| "{% if 0 %}".to_owned() + &within(times, "{% elif 1 %}", "") + "{% endif %}", 32, 1_300),
        (
            &|times| {
                let inner = tag(&format!("{}{}", "not ".repeat(100), within(times, "(", ")")));
                "{% if 1 %}".repeat(times) + &inner + &"{% endif %}".repeat(times)
            },
            16,
            300,
        ),
    ];
    for (source, most, too_many) in cases {
        for times in [most, too_many] {
            let source = source(times);
            let refused = Templates::new(text(&source)).err().map(|error| error.problem);
            let too_deep = refused.as_ref().is_some_and(|problem| problem.starts_with("more than"));
            assert_eq!(too_deep, times == too_many, "{}: {refused:?}", &source[..40]);
        }
    }
}

/// Every path of a JSON document, with `[]` for items.
fn paths(value: &serde_json::Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                paths(value, &path, found);
                found.insert(path);
            }
        }
        serde_json::Value::Array(items) => {
            for item in items {
                paths(item, &format!("{at}[]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_names_are_those_of_the_context_and_have_all_of_the_json_document() {
    let full = samples::full(MessageAbout::DeletionAnnounced);
    let mut context = BTreeSet::new();
    let value = serde_json::to_value(Context::new(&full, now(), Some("prod-1"))).unwrap();
    paths(&value, "", &mut context);
    let names: BTreeSet<_> = NAMES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names, context);

    let mut document = BTreeSet::new();
    paths(&serde_json::to_value(&full).unwrap(), "", &mut document);
    assert!(document.remove("for"));
    // Each is beside what fails: `failing[].advice`.
    document.retain(|path| !path.starts_with("advice"));
    let missing: Vec<_> = document.difference(&names).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
