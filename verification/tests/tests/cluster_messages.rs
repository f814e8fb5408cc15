//! What messages to owners say and when they are sent, on a real API server: within working hours, in words of the settings, while a
//! manager only observes, and with the command that keeps a namespace.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coppice_plane::{ADMIN, ALICE, OUTCOME_LABEL};
use coppice_tests::receiver::Receiver;
use coppice_tests::slack::Posted;
use coppice_tests::test_cluster::until;
use coppice_tests::{Operator, Slack, TestCluster, condition, on_own_plane, on_shared_plane};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_health::deployment;
use super::cluster_managers::record;
use super::cluster_notices::{manager, namespace, notice};
use super::records::grant;

type Test = anyhow::Result<()>;

/// A channel to a Slack that accepts this token.
pub(super) async fn slack_channel(test_cluster: &TestCluster, name: &str) -> anyhow::Result<Slack> {
    let token = format!("xoxb-{name}");
    let slack = Slack::start(&token, 0).await?;
    let file = format!("{name}-token");
    test_cluster.credential(&file, &token)?;
    let channel = json!({"tokenFile": file, "apiUrl": slack.api_url});
    test_cluster.channel(&json!({"name": name, "slack": channel})).await?;
    Ok(slack)
}

/// Waits for a message that contains this.
pub(super) async fn posted(slack: &Slack, part: &str) -> anyhow::Result<Posted> {
    let found = slack.until(part, |all| all.iter().find(|one| one.text.contains(part)).cloned()).await;
    found.with_context(|| format!("{:#?}", slack.posted()))
}

/// The day after the day after tomorrow, in UTC: it does not begin during the test.
#[allow(clippy::disallowed_methods, reason = "working hours are to be on another day than the test")]
fn day_to_come() -> anyhow::Result<Date> {
    Ok(Timestamp::now().to_zoned(TimeZone::UTC).date().checked_add(3.days())?)
}

/// The bodies that a receiver has got.
fn bodies(receiver: &Receiver) -> Vec<Value> {
    receiver.received().iter().filter_map(|one| serde_json::from_slice(&one.body).ok()).collect()
}

/// The words of a command, as a shell has them: quotes keep several together.
fn words(command: &str) -> Vec<&str> {
    let parts = command.split('"').enumerate();
    let mut words = Vec::new();
    for (number, part) in parts {
        match number % 2 {
            0 => words.extend(part.split_whitespace()),
            _ => words.push(part),
        }
    }
    words
}

#[test]
fn outside_working_hours_nothing_is_sent_and_within_them_what_was_held_back_is() -> Test {
    const HELD_BACK: &str = "held back until working hours";
    const ALWAYS: &str = r#"{"spec": {"notify": {"workingHours":
        {"days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]}}}}"#;
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[]).await?;
        test_cluster.channel(&json!({"name": "hours", "webhook": {"url": receiver.url}})).await?;
        let day = day_to_come()?;
        let hours = format!("{{timeZone: UTC, from: '00:00', to: '24:00', days: [{}]}}", day.strftime("%A"));
        for (name, notice) in [("hours", "2s"), ("overtime", "1h")] {
            let manager = manager(name, "{labels: [team]}")
                .replace(&format!("channels: [{name}]"), &format!("channels: [hours], workingHours: {hours}"))
                .replace("notice: 2s", &format!("notice: {notice}"));
            test_cluster.apply(&manager).await?;
        }
        let uid = namespace(test_cluster, "hours-1", "labels: {team: compilers}").await?;
        let other = namespace(test_cluster, "overtime-1", "labels: {team: compilers}").await?;
        let waits = |status: &Value| status["next"]["reason"] == "NoticeUndelivered";
        let held = record(test_cluster, "hours-1", "that nobody was notified", waits).await?;
        let why = held["status"]["next"]["message"].to_string();
        ensure!(why.contains(&format!("(channel hours: {HELD_BACK})")), "{held:#}");
        let one = &held["status"]["notices"][0];
        ensure!(one["state"] == "Pending" && one["attempts"] == 0, "{held:#}");
        let next = one["nextAttempt"].as_str().context("no next attempt")?.parse::<Timestamp>()?;
        ensure!(
            next == day.to_zoned(TimeZone::UTC)?.timestamp(),
            "it is sent when the hours begin: {held:#}"
        );
        let announced =
            |status: &Value| status["notice"].is_object() && status["notices"][0]["lastError"] == HELD_BACK;
        let announced = record(test_cluster, "overtime-1", "that it will be deleted", announced).await?;
        ensure!(!test_cluster.is_deleted("hours-1", &uid).await, "nobody was notified");
        ensure!(receiver.received().is_empty(), "{:?}", bodies(&receiver));

        for name in ["hours", "overtime"] {
            test_cluster.patch("cnsman", "", name, ALWAYS).await?;
        }
        let delivered = |one: &Value| one["state"] == "Delivered";
        notice(test_cluster, "overtime-1", "it is delivered", delivered).await?;
        test_cluster.deleted("hours-1", &uid).await?;
        let said = bodies(&receiver);
        let about =
            |name: &str| said.iter().find(|one| one["namespace"] == name).context("it was not received");
        ensure!(about("hours-1")?["for"] == "DeletionAnnounced", "{said:#?}");
        // Other hours begin nothing again.
        let given_at = &announced["status"]["notice"]["givenAt"];
        let about = about("overtime-1")?;
        ensure!(about["for"] == "DeletionAnnounced" && about["givenAt"] == *given_at, "{about:#} {given_at}");

        let (code, said, error) =
            coppice(test_cluster, ADMIN, &["extend", "overtime-1", "--by", "24h"]).await?;
        ensure!(code == 0, "{said}{error}");
        let withdrawn = until("whoever was notified hears that it is not deleted", async || {
            bodies(&receiver).into_iter().find(|said| said["for"] == "NoticeWithdrawn")
        });
        let withdrawn = withdrawn.await?;
        ensure!(withdrawn["namespace"] == "overtime-1" && withdrawn["keep"].is_null(), "{withdrawn:#}");
        let well = |status: &Value| status["phase"] == "Ok" && status["notice"].is_null();
        record(test_cluster, "overtime-1", "that it stays", well).await?;
        ensure!(!test_cluster.is_deleted("overtime-1", &other).await);
        ensure!(receiver.ids().len() == 3, "two announcements, one withdrawal: {:#?}", bodies(&receiver));
        Ok(())
    })
}

#[test]
fn the_command_of_a_message_keeps_the_namespace_when_its_owner_runs_it() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let slack = slack_channel(test_cluster, "keep").await?;
        let owner = "{annotations: [{key: example.org/slack, format: Slack}]}";
        // Alice has a while to react.
        test_cluster.apply(&manager("keep", owner).replace("notice: 2s", "notice: 1h")).await?;
        let uid = namespace(test_cluster, "keep-1", "annotations: {example.org/slack: U024BE7LH}").await?;
        grant(test_cluster, "keep-1", ALICE, "edit").await?;
        let announced = posted(&slack, "Namespace keep-1 will be deleted").await?;
        ensure!(announced.to == "U024BE7LH", "{announced:?}");
        let expired = |status: &Value| {
            status["phase"] == "Stale"
                && status["notice"].is_object()
                && status["notices"][0]["state"] == "Delivered"
        };
        let before = record(test_cluster, "keep-1", "that it will be deleted", expired).await?;

        // The message as it can be looked at afterwards.
        let (code, said, error) = coppice(test_cluster, ADMIN, &["message", "keep-1"]).await?;
        ensure!(code == 0 && error.contains("note: sent by keep to U02***, "), "{said}{error}");
        let command = announced.text.split("```").nth(1).context("it has no command")?;
        ensure!(said.contains(&format!("```{command}```")), "{said} {announced:?}");

        let words = words(command);
        ensure!(words == ["coppice", "extend", "keep-1", "--by", "24h"], "{announced:?}");
        let (code, said, error) = coppice(test_cluster, ALICE, &words[1..]).await?;
        ensure!(code == 0, "{said}{error}");
        let well = |status: &Value| status["phase"] == "Ok" && status["notice"].is_null();
        let kept = record(test_cluster, "keep-1", "that it stays", well).await?;
        ensure!(kept["spec"]["extendUntil"]["by"] == ALICE, "{kept:#}");
        let end = |record: &Value| -> anyhow::Result<Timestamp> {
            Ok(record["status"]["expiresAt"].as_str().context("it has no end")?.parse()?)
        };
        ensure!(end(&kept)? >= end(&before)? + jiff::SignedDuration::from_hours(24), "{kept:#}");
        let withdrawn = posted(&slack, "Namespace keep-1 will not be deleted as announced").await?;
        ensure!(withdrawn.to == "U024BE7LH" && !withdrawn.text.contains("```"), "{withdrawn:?}");
        ensure!(!test_cluster.is_deleted("keep-1", &uid).await);
        Ok(())
    })
}

#[test]
fn the_command_of_a_message_holds_the_namespace_where_no_ttl_is_the_reason() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let slack = slack_channel(test_cluster, "finished").await?;
        let owner = "{annotations: [{key: example.org/slack, format: Slack}]}";
        let finished = manager("finished", owner)
            .replace("ttl: {after: 3s}, ", "")
            .replace("{phase: {in: [Stale]}}", "{podsSucceed: {initialDelay: 0s}}")
            .replace("notice: 2s", "notice: 1h");
        test_cluster.apply(&finished).await?;
        let address = "annotations: {example.org/slack: U024BE7LH}";
        let uid = namespace(test_cluster, "finished-1", address).await?;
        test_cluster.account("finished-1").await?;
        test_cluster.pod("finished-1", "test", "succeed", "a: b").await?;
        grant(test_cluster, "finished-1", ALICE, "edit").await?;
        let announced = posted(&slack, "Namespace finished-1 will be deleted").await?;
        let command = announced.text.split("```").nth(1).context("it has no command")?;
        let words = words(command);
        let hold = ["coppice", "hold", "finished-1", "--for", "24h", "--reason", "still needed"];
        ensure!(words == hold, "{announced:?}");
        let (code, said, error) = coppice(test_cluster, ALICE, &words[1..]).await?;
        ensure!(code == 0, "{said}{error}");
        let kept = |status: &Value| status["next"]["reason"] == "Held" && status["notice"].is_null();
        let kept = record(test_cluster, "finished-1", "that it is held", kept).await?;
        let by = &kept["spec"]["hold"];
        ensure!(by["by"] == ALICE && by["reason"] == "still needed", "{kept:#}");
        posted(&slack, "Namespace finished-1 will not be deleted as announced").await?;
        ensure!(!test_cluster.is_deleted("finished-1", &uid).await);
        Ok(())
    })
}

#[test]
fn while_a_manager_observes_its_messages_say_that_nothing_will_be_deleted() -> Test {
    const OBSERVES: &str = "{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {name: ska}, spec: {mode: \
                            Observe, selector: {names: ['ska-*']}, settle: 1s, ttl: {after: 1h}, health: {recoveryPeriod: 1s}, \
                            owner: {annotations: [{key: cicd.skao.int/notificationAddress, format: SKA}]}, notify: {channels: \
                            [ska], on: [Unstable, Recovered, Expiring], reminders: [59m59s]}, policies: [{name: end, when: \
                            {phase: {in: [Failed]}}, then: {delete: {notice: 15m}}}]}}";
    on_shared_plane(async |test_cluster, _| {
        let slack = slack_channel(test_cluster, "ska").await?;
        test_cluster.apply(OBSERVES).await?;
        let address = STANDARD.encode("Ada Lovelace::U024BE7LH");
        let metadata = format!("annotations: {{cicd.skao.int/notificationAddress: '{address}'}}");
        let uid = namespace(test_cluster, "ska-1", &metadata).await?;
        test_cluster.account("ska-1").await?;
        // What its owner hears first, once the manager has settled: phases before that are not announced.
        posted(&slack, "*Namespace ska-1 expires soon*").await?;

        let crashing = format!("{OUTCOME_LABEL}: crashloop");
        test_cluster.apply(&deployment("ska-1", &crashing, "")).await?;
        let fails = posted(&slack, "*Namespace ska-1 has failing workloads*").await?;
        ensure!(fails.text.contains("Deployment web: CrashLoopBackOff"), "{fails:?}");
        let heard = |one: &Value| one["for"] == "Unstable" && one["state"] == "Delivered";
        notice(test_cluster, "ska-1", "its owner has heard that something fails", heard).await?;
        let well = format!("{OUTCOME_LABEL}=run");
        test_cluster
            .kubectl(ADMIN, &["label", "pods", "-n", "ska-1", "-l", "app=web", "--overwrite", &well])
            .await?;
        posted(&slack, "*Nothing fails in namespace ska-1 any more*").await?;

        let known =
            record(test_cluster, "ska-1", "that it is well", |status| status["phase"] == "Ok").await?;
        ensure!(
            known["status"]["owner"] == "Ada Lovelace" && known["status"]["notice"].is_null(),
            "{known:#}"
        );
        let all = slack.posted();
        ensure!(all.len() == 3, "{all:#?}");
        let nothing = "*Nothing will be deleted: cluster manager ska deletes no namespaces at present*";
        for one in &all {
            ensure!(one.to == "U024BE7LH", "{one:?}");
            ensure!(one.text.contains(nothing) && one.text.contains("*Owner:* Ada Lovelace"), "{one:?}");
        }
        // Nobody gets an announcement, which can be looked at all the same.
        let args = ["message", "ska-1", "--for", "DeletionAnnounced"];
        let (code, said, error) = coppice(test_cluster, ADMIN, &args).await?;
        ensure!(code == 3 && said.contains("*Namespace ska-1 would be deleted*"), "{said}{error}");
        ensure!(said.contains(nothing), "{said}");
        let why = "warning: nobody would get this message: ClusterNamespaceManager ska observes";
        ensure!(error.contains(why), "{error}");
        ensure!(!test_cluster.is_deleted("ska-1", &uid).await);
        Ok(())
    })
}

#[test]
fn a_text_of_the_settings_is_sent_and_one_that_cannot_be_used_is_named_and_replaced() -> Test {
    // Texts are those of all messages of a plane.
    on_own_plane(async {
        let test_cluster = &TestCluster::start_without_pods().await?;
        let _operator = Operator::start(test_cluster).await?;
        let slack = slack_channel(test_cluster, "texts").await?;
        let texts = async |text: &str, ready: &str| {
            let messages = json!({"spec": {"messages": {"cluster": "prod-eu", "slack": text}}});
            let changed = test_cluster.patch("coppiceconfig", "", "coppice", &messages.to_string()).await?;
            let generation = changed["metadata"]["generation"].clone();
            let in_force = async || {
                let config = test_cluster.get("coppiceconfig", "", "coppice").await.ok()??;
                let status = condition(&config, "Ready");
                (config["status"]["observedGeneration"] == generation && status["status"] == ready)
                    .then_some(status)
            };
            test_cluster.until(&format!("the settings are Ready: {ready}"), in_force).await
        };
        texts("{{ namespace }} of {{ owner }} in {{ cluster }}, keep: {{ keep }}", "True").await?;
        let owner = "{labels: [team], fallback: {slack: '#platform'}}";
        test_cluster.apply(&manager("texts", owner).replace("notice: 2s", "notice: 1h")).await?;
        namespace(test_cluster, "texts-1", "labels: {team: compilers}").await?;
        let own = posted(&slack, "texts-1").await?;
        let said = "texts-1 of compilers in prod-eu, keep: coppice extend texts-1 --by 24h";
        ensure!(own.text.trim_end() == said && own.to == "#platform", "{own:?}");
        let delivered = |one: &Value| one["state"] == "Delivered";
        notice(test_cluster, "texts-1", "it is delivered", delivered).await?;
        let (code, shown, error) = coppice(test_cluster, ADMIN, &["message", "texts-1"]).await?;
        ensure!(code == 0 && shown.trim_end() == said, "{shown}{error}");
        ensure!(error.contains("note: sent by texts to #platform, "), "{error}");

        let broken = texts("{{ namespace", "False").await?;
        ensure!(broken["reason"] == "InvalidEntries", "{broken:#}");
        let why = broken["message"].as_str().unwrap_or_default();
        ensure!(why.contains("spec.messages.slack: ") && why.contains("; the built-in one is used"), "{why}");
        namespace(test_cluster, "texts-2", "labels: {team: compilers}").await?;
        let built_in = posted(&slack, "texts-2").await?;
        // The rest of the settings is in force.
        for part in ["*Namespace texts-2 will be deleted*", "*Cluster:* prod-eu", "*Owner:* compilers"] {
            ensure!(built_in.text.contains(part), "{part:?} is not in {built_in:?}");
        }
        let (code, shown, error) = coppice(test_cluster, ADMIN, &["message", "texts-2"]).await?;
        let why = "spec.messages of CoppiceConfig has templates that cannot be used (their built-in ones are sent):";
        ensure!(code == 1 && shown.is_empty() && error.contains(why), "{shown}{error}");
        Ok(())
    })
}
