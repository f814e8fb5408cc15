//! `coppice message`: what owners are notified of, from files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use crate::support::{Ran, governed, run, run_at};
use serde_json::Value;

/// What a cluster manager has that notifies owners.
const NOTIFY: &str = "    owner: {annotations: [{key: mail, format: Email}, {key: slack, format: Slack}]}\n    notify: {channels: [mail, slack], on: \
                      [Stale, Expiring, Failed]}\n";
const CHANNELS: &str = "channels: [{name: mail, email: {host: smtp.example.org, from: a@example.org}}, {name: slack, slack: {tokenFile: token}}]";
/// An announcement that the owner of `ci-1` got, with the key that the operator gives it.
const DELIVERED: &str = "    notices:\n    - {key: notice-825aa103ff2866bbe89d, for: DeletionAnnounced, channel: mail, to: 'a***@example.org', \
                         state: Delivered, attempts: 0, givenAt: '2026-03-01T12:00:00Z', deliveredAt: '2026-03-01T12:00:05Z'}\n";

/// The small cluster, where the manager `ci` notifies those who have these addresses.
fn notifying(addresses: &str) -> String {
    let text = governed().replacen("    settle: 5m\n", &format!("    settle: 5m\n{NOTIFY}"), 1);
    let text = text.replace(
        "spec: {governor: {perHour: 40}}",
        &format!("spec: {{governor: {{perHour: 40}}, {CHANNELS}}}"),
    );
    // One owner owns all of them.
    text.replace("creationTimestamp:", &format!("annotations: {addresses}, creationTimestamp:"))
}

const BY_MAIL: &str = "{mail: alice@example.org}";

/// The same with an announcement that was delivered.
fn announced() -> String {
    notifying(BY_MAIL).replacen("    firings: 0", &format!("{DELIVERED}    firings: 0"), 1)
}

fn message(line: &str, text: &str) -> Ran {
    run(&format!("coppice message {line} -f -"), text)
}

/// The message, for programs.
fn report(line: &str, text: &str) -> (Ran, Value) {
    let ran = message(&format!("{line} --part json"), text);
    let report = serde_json::from_str(&ran.out).unwrap_or(Value::Null);
    (ran, report)
}

#[test]
fn the_announcement_of_a_deletion_is_shown_as_it_was_sent() {
    let ran = message("ci-1", &announced());
    assert_eq!(ran.code, 0, "{}", ran.err);
    for part in [
        "Subject: Namespace ci-1 will be deleted, not before 2026-03-01 12:45 UTC\n",
        "Why: its time to live ends at 2026-03-01T12:15:00Z\n",
        "\n    coppice hold ci-1 --for 24h --reason \"still needed\"\n",
    ] {
        assert!(ran.out.contains(part), "{part:?} is not in {}", ran.out);
    }
    assert!(
        ran.err.contains("note: sent by mail to a***@example.org, 2026-03-01T12:00:05Z (29m ago)\n"),
        "{}",
        ran.err
    );
    let html = message("ci-1 --part html", &announced());
    assert!(html.out.contains("still needed&quot;"), "{}", html.out);
    let (_, all) = report("ci-1", &announced());
    assert_eq!(all["content"]["for"], "DeletionAnnounced", "{all:#}");
    assert!(all.get("notDeliveredBecause").is_none(), "{all:#}");
    let (_, expiring) = report("ci-2 --for expiring", &notifying(BY_MAIL));
    assert_eq!(
        (&expiring["content"]["for"], &expiring["content"]["keep"]),
        (&"Expiring".into(), &"coppice extend ci-2 --by 24h".into())
    );
}

#[test]
fn what_is_due_next_is_found_before_it_is_written_down() {
    // Created at 12:20, it expires at 14:20:01; its deletion is announced 45 minutes before, and a reminder an hour before.
    let text = notifying(BY_MAIL).replace("on: [Stale, Expiring, Failed]", "on: []");
    let (ran, all) = report("ci-2", &text);
    assert_eq!((ran.code, &all["content"]["for"]), (0, &"DeletionAnnounced".into()), "{}", ran.all());
    assert_eq!(all["sentAt"], "2026-03-01T13:35:01Z", "45 minutes before the end of its ttl");
    assert_eq!(all["content"]["deletion"]["at"], "2026-03-01T14:20:01Z");
    assert!(
        ran.err.contains("note: to be sent by mail to a***@example.org, 2026-03-01T13:35:01Z (in 1h5m)\n"),
        "{}",
        ran.err
    );
    let mail = message("ci-2", &text);
    assert!(mail.out.contains("When: not before 2026-03-01 14:20 UTC, in 45 minutes\n"), "{}", mail.out);
    let (_, reminder) = report("ci-2", &notifying(BY_MAIL));
    assert_eq!(
        (&reminder["content"]["for"], &reminder["sentAt"]),
        (&"Expiring".into(), &"2026-03-01T13:20:01Z".into())
    );
    let (_, later) = report("ci-2 --at +110m", &notifying(BY_MAIL));
    assert_eq!(later["content"]["for"], "DeletionAnnounced", "it is two hours old then");
}

#[test]
fn texts_of_kinds_that_nothing_leads_to_do_not_contradict_themselves() {
    let text = notifying(BY_MAIL).replace("    ttl: {after: 2h}\n", "    ttl: {after: 2h}\n    health: {}\n");
    let (ran, failed) = report("ci-2 --for Failed", &text);
    assert_eq!(ran.code, 0, "{}", ran.all());
    let content = &failed["content"];
    assert_eq!(content["failing"][0]["name"], "example");
    assert_eq!(content["why"], "it does not work as it should: Deployment example (CrashLoopBackOff)");
    assert!(content["advice"]["CrashLoopBackOff"].is_string(), "{content:#}");
    assert!(ran.err.contains("note: an example, since nothing leads to a message about Failed as things stand; made up: what fails, the phase Failed\n"));
    for (kind, without, with) in [
        ("Recovered", "failing", "why"),
        ("Superseded", "failing", "successor"),
        ("NoticeWithdrawn", "deletion", "why"),
    ] {
        let (_, all) = report(&format!("ci-2 --for {kind}"), &text);
        assert!(all["content"][without].is_null() && !all["content"][with].is_null(), "{kind}: {all:#}");
        assert!(!all["madeUp"].as_array().unwrap().is_empty(), "{kind}");
    }
    // What time leads to is shown as of then, and what has been so as of now.
    for (line, sent, expires) in [
        ("ci-2 --for Deleted", "2026-03-01T14:20:01Z", "2026-03-01T14:20:01Z"),
        ("ci-2 --for Stale", "2026-03-01T14:20:01Z", "2026-03-01T14:20:01Z"),
        ("ci-2 --for Expiring", "2026-03-01T13:20:01Z", "2026-03-01T14:20:01Z"),
        ("ci-1 --for Stale", "2026-03-01T12:30:00Z", "2026-03-01T12:15:00Z"),
    ] {
        let (_, all) = report(line, &text);
        assert_eq!(
            (&all["sentAt"], &all["content"]["expiresAt"]),
            (&sent.into(), &expires.into()),
            "{line}: {all:#}"
        );
        assert_eq!(all["madeUp"], Value::Array(Vec::new()), "{line}");
    }
    // It has expired: that it expires soon needs another end.
    let (_, all) = report("ci-1 --for Expiring", &text);
    assert_eq!(all["content"]["expiresAt"], "2026-03-01T13:30:00Z", "{all:#}");
    assert_eq!(all["madeUp"][0], "the end of its time to live");
    // Without a ttl nothing ends by itself.
    let without = text
        .replacen("    ttl: {after: 2h}\n", "", 1)
        .replace("{in: [Stale]}}, then: {delete: {notice", "{in: [Failed]}}, then: {delete: {notice");
    let without = without.replace("    - {name: look at the old, mode: Observe, when: {phase: {in: [Stale], for: 1h}}, then: {delete: {}}}\n", "");
    let (ran, all) = report("ci-2 --for DeletionAnnounced", &without);
    let (when, why) = (&all["content"]["deletion"]["at"], &all["content"]["why"]);
    let expected = (
        "2026-03-01T13:15:00Z".into(),
        "it does not work as it should: Deployment example (CrashLoopBackOff)".into(),
    );
    assert_eq!((when, why), (&expected.0, &expected.1), "{}", ran.all());
}

#[test]
fn what_nobody_would_get_is_not_shown_unless_it_is_asked_for_and_then_with_a_warning() {
    for (text, why) in [
        (governed(), "ClusterNamespaceManager ci has no spec.notify"),
        (
            notifying("{other: x}"),
            "channel mail: neither the namespace nor owner.fallback has an address for it; channel slack: neither",
        ),
        (
            notifying(BY_MAIL)
                .replace(CHANNELS, "paused: false")
                .replace("perHour: 40}, paused: false", "perHour: 40}"),
            "channel mail: CoppiceConfig/coppice has no such channel",
        ),
    ] {
        let ran = message("ci-1", &text);
        assert_eq!((ran.code, &*ran.out), (1, ""), "{}", ran.all());
        assert!(
            ran.err.contains("nobody is notified of anything about namespace ci-1: ")
                && ran.err.contains(why),
            "{}",
            ran.err
        );
        let asked = message("ci-1 --for DeletionAnnounced", &text);
        assert!(
            asked.code == 3 && asked.out.starts_with("Subject: Namespace ci-1 will be deleted"),
            "{}",
            asked.all()
        );
        assert!(
            asked.err.contains("warning: nobody would get this message: ") && asked.err.contains(why),
            "{}",
            asked.err
        );
    }
}

#[test]
fn a_kind_or_a_form_in_which_nobody_would_get_it_is_shown_with_a_warning() {
    let text = notifying(BY_MAIL);
    let observed = text.replace("mode: Enforce", "mode: Observe");
    let silent = text.replace("notice: 45m", "notice: 0s");
    for (line, text, why) in [
        ("ci-1 --for Unstable", &text, "spec.notify.on of ClusterNamespaceManager ci does not name Unstable"),
        (
            "ci-1 --for Stale --part slack",
            &text,
            "nobody gets it in this form; messages go by mail to a***@example.org",
        ),
        (
            "ci-1 --for DeletionAnnounced",
            &observed,
            "ClusterNamespaceManager ci observes: nothing is announced or deleted before",
        ),
        (
            "ci-1 --for DeletionAnnounced",
            &silent,
            "no policy of ClusterNamespaceManager ci that deletes gives notice",
        ),
    ] {
        let ran = message(line, text);
        assert!(
            ran.code == 3 && ran.err.contains(&format!("warning: nobody would get this message: {why}")),
            "{line}: {}",
            ran.all()
        );
    }
    let (ran, all) = report("ci-1 --for Unstable", &text);
    let why = "spec.notify.on of ClusterNamespaceManager ci does not name Unstable";
    assert_eq!((ran.code, &all["notDeliveredBecause"]), (3, &why.into()), "{}", ran.all());
    let observed = observed.replace("on: [Stale,", "on: [Deleted, Stale,");
    let ran = message("ci-2 --for Deleted", &observed);
    assert!(
        ran.code == 3 && ran.err.contains("ci observes: nothing is announced or deleted"),
        "{}",
        ran.all()
    );
    assert!(
        ran.out.contains("has been deleted") && !ran.out.contains("observes"),
        "no contradiction: {}",
        ran.out
    );
    let ran = message("ci-1 --for Stale", &text);
    assert!(
        ran.code == 0
            && ran.err.contains(
                "note: not by slack: neither the namespace nor owner.fallback has an address for it\n"
            ),
        "{}",
        ran.all()
    );
}

#[test]
fn the_part_is_that_which_its_owner_gets() {
    let slack = message("ci-1 --for Stale", &notifying("{slack: U024BE7LH}"));
    assert!(slack.code == 0 && slack.out.starts_with("*Namespace ci-1 has expired*\n"), "{}", slack.all());
    assert!(slack.err.contains("slack to U02***"), "addresses are masked: {}", slack.err);
    let webhook = notifying(BY_MAIL)
        .replace(CHANNELS, "channels: [{name: mail, webhook: {url: 'https://ci.example.org/'}}]");
    let content: Value = serde_json::from_str(&message("ci-1 --for Stale", &webhook).out).unwrap();
    assert_eq!(content["for"], "Stale");
}

#[test]
fn an_unreadable_record_or_manager_is_an_error_and_no_nonsense() {
    let text = notifying(BY_MAIL);
    for (text, error) in [
        (
            text.replace("firings: 0", "firings: many"),
            "ManagedNamespace ci-1/coppice: status cannot be understood: ",
        ),
        (
            text.replace("phase: Stale\n", "phase: Rotten\n"),
            "use the coppice of the operator's version (`coppice version`)",
        ),
    ] {
        let ran = message("ci-1 --for Stale", &text);
        assert!(ran.code == 1 && ran.out.is_empty() && ran.err.contains(error), "{}", ran.all());
    }
}

/// A file with this text.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

const CONFIG: &str = "apiVersion: coppice.dev/v1alpha1\nkind: CoppiceConfig\nmetadata: {name: coppice}\n";

#[test]
fn templates_are_those_of_the_settings_or_of_a_file() {
    let messages = "messages: {cluster: prod-eu, subject: '[{{ cluster }}] {{ namespace }}'}, channels";
    let settings = announced().replace("channels: [{name: mail,", &format!("{messages}: [{{name: mail,"));
    let ran = message("ci-1", &settings);
    assert!(ran.out.starts_with("Subject: [prod-eu] ci-1\n"), "{}", ran.all());
    let (_folder, path) =
        file(&format!("{CONFIG}spec: {{{CHANNELS}, messages: {{subject: 'of the file'}}}}"));
    let ran = message(&format!("ci-1 --config {path}"), &settings);
    assert!(ran.code == 0 && ran.out.starts_with("Subject: of the file\n"), "{}", ran.all());
}

#[test]
fn a_file_with_settings_is_checked_as_the_api_server_and_the_operator_would() {
    for (text, errors) in [
        (
            "kind: ConfigMap".to_owned(),
            &["has no CoppiceConfig: write apiVersion: coppice.dev/v1alpha1 and kind"][..],
        ),
        (format!("{CONFIG}---\n{CONFIG}"), &["has more than one CoppiceConfig"]),
        (
            "kind: CoppiceConfig\nspec: {mesages: {text: x}, channels: [{name: A}]}".to_owned(),
            &[
                "apiVersion: must be coppice.dev/v1alpha1",
                "metadata: required",
                "spec.mesages: unknown field",
                "spec.channels[0]",
            ],
        ),
        (
            format!(
                "{CONFIG}spec: {{messages: {{text: 'gone:\n\n  {{{{ nmespace }}}}', subject: '{{{{ x }}}}'}}}}"
            ),
            &[
                "template text, line 2: `nmespace` is undefined; the names are about, what",
                "template subject, line 1: `x` is undefined",
            ],
        ),
    ] {
        let (_folder, path) = file(&text);
        let ran = message(&format!("ci-1 --for Stale --config {path}"), &notifying(BY_MAIL));
        assert_eq!((ran.code, &*ran.out), (1, ""), "{}", ran.all());
        for error in errors {
            assert!(ran.err.contains(error), "{error}: {}", ran.err);
        }
    }
}

#[test]
fn the_example_of_the_guide_is_accepted() {
    let guide = std::fs::read_to_string("../../docs/guides/cluster-managers.md").unwrap();
    assert!(
        guide.contains("(#notify-owners)") && guide.contains("(#what-messages-say)"),
        "the contents name it"
    );
    let (_, section) = guide.split_once("\n## Notify owners\n").unwrap();
    let example = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ci-7, uid: u, creationTimestamp: '2026-03-01T12:00:00Z', \
                     annotations: {example.org/owner-mail: jo@example.org}}\n";
    // It observes: the reminder of its last day is the first message that its owner gets about it.
    let ran = message("ci-7", &format!("{example}{namespace}"));
    assert!(
        ran.code == 0 && ran.out.starts_with("Subject: [prod-eu] Namespace ci-7 expires soon\n"),
        "{}",
        ran.all()
    );
    assert!(
        ran.err.contains("note: to be sent by mail to j***@example.org, ci, 2026-03-02T12:00:01Z"),
        "{}",
        ran.err
    );
    for part in ["mail", "html", "slack", "content", "json"] {
        assert!(section.contains(&format!("\n| `{part}` | ")), "{part}");
    }
}

#[test]
fn what_cannot_be_shown_is_said() {
    let text = notifying(BY_MAIL).replace("on: [Stale, Expiring, Failed]", "on: []");
    for (line, error) in [
        ("nowhere", "namespace nowhere does not exist, or may not be read"),
        ("ci-1/e2e", "messages are about a namespace as a whole: write its name alone"),
        ("ci-1 --for Nonsense", "the kinds are DeletionAnnounced, NoticeWithdrawn, "),
        ("shop", "no ClusterNamespaceManager governs namespace shop, so that nobody is notified"),
    ] {
        let ran = message(line, &text);
        assert!(ran.code != 0 && ran.err.contains(error), "{line}: {}", ran.all());
    }
    let held = text.replace("until: \"2026-03-01T18:00:00Z\"", "until: \"2036-03-01T18:00:00Z\"");
    let ran = message("ci-held", &held);
    assert!(
        ran.code == 1 && ran.err.contains("say with --for which message to show, or with --at when"),
        "{}",
        ran.all()
    );
    let ran = run_at("coppice message ci-held -f -", &text, support::NOW, None);
    assert!(
        ran.code == 0 && ran.err.contains("2026-03-01T18:00:0"),
        "it is announced once the hold has ended: {}",
        ran.all()
    );
}

#[test]
fn explain_shows_what_the_owner_is_notified_of() {
    let notices = "    notices:\n    - {key: k-1, for: DeletionAnnounced, channel: mail, to: 'a***@example.org', state: Delivered, \
                   attempts: 2, givenAt: '2026-03-01T12:00:00Z', deliveredAt: '2026-03-01T12:00:05Z'}\n    - {key: k-2, for: \
                   DeletionAnnounced, channel: slack, to: 'U02***', state: Pending, attempts: 1, givenAt: '2026-03-01T12:00:00Z', \
                   nextAttempt: '2026-03-01T12:31:00Z', lastError: Slack refuses the message (not_in_channel)}\n    - {key: k-3, for: Stale, \
                   channel: ci, state: Failed, attempts: 9, givenAt: '2026-03-01T12:00:00Z', lastError: the webhook receiver answered 410}\n";
    let record = governed().replacen("    firings: 0", &format!("{notices}    firings: 0"), 1);
    let ran = run("coppice explain ci-1 -f -", &record);
    let expected = "What its owner is notified of\n  \
                    DeletionAnnounced by mail to a***@example.org: Delivered, 2026-03-01T12:00:05Z (29m ago)\n  \
                    DeletionAnnounced by slack to U02***: Pending, 1 attempt, the next 2026-03-01T12:31:00Z (in 60s): Slack refuses \
                    the message (not_in_channel)\n  \
                    Stale by ci: Failed, the webhook receiver answered 410\n";
    assert!(ran.out.contains(expected), "{}", ran.all());
}
