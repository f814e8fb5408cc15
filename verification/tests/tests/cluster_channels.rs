//! Channels to owners where something is in the way, on a real API server: more messages than anybody reads, nobody who can be reached,
//! credentials that were withdrawn, and certificates that are not trusted.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::mail_server::{Encryption, MailServer, MailServerOptions};
use coppice_tests::receiver::Receiver;
use coppice_tests::{Operator, Slack, TestCluster, on_own_plane, on_shared_plane};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_managers::record;
use super::cluster_notices::{manager, namespace, notice, notice_when_gone};

type Test = anyhow::Result<()>;

#[test]
fn many_messages_to_one_recipient_become_one_that_names_each_namespace() -> Test {
    // So many namespaces are work that others would wait for.
    on_own_plane(async {
        let test_cluster = &TestCluster::start_without_pods().await?;
        let _operator = Operator::start(test_cluster).await?;
        let slack = Slack::start("xoxb-many", 0).await?;
        test_cluster.credential("many-token", "xoxb-many")?;
        let channel = json!({"tokenFile": "many-token", "apiUrl": slack.api_url});
        test_cluster.channel(&json!({"name": "many", "slack": channel})).await?;
        // Reminders are due at once, and nothing else is within the hour.
        let reminds = manager("many", "{labels: [team], fallback: {slack: U024BE7LH}}")
            .replace("after: 3s", "after: 1h")
            .replace("on: []", "on: [Expiring], reminders: [59m59s]");
        test_cluster.apply(&reminds).await?;
        // 20 are sent one by one, and 100 become one, which has no room for more and waits for none.
        let names: Vec<_> = (1..=120).map(|n| format!("many-{n:03}")).collect();
        for name in &names {
            namespace(test_cluster, name, "labels: {team: compilers}").await?;
        }
        let joined = "*100 messages about your namespaces*";
        let count = |posted: &[_]| (posted.len() > 20).then_some(posted.len());
        slack.until("what is too much is sent as one", count).await?;
        let posted = slack.posted();
        ensure!(posted.iter().all(|one| one.to == "U024BE7LH"), "{posted:?}");
        ensure!(posted.iter().filter(|one| one.text.starts_with(joined)).count() == 1, "{posted:?}");
        for name in &names {
            let naming = posted.iter().filter(|one| one.text.contains(&**name)).count();
            ensure!(naming == 1, "{naming} messages name {name}: {posted:#?}");
        }
        // What came of the one holds for each that it joins, and none is sent again.
        for name in &names {
            notice(test_cluster, name, "it is recorded", |one| one["state"] == "Delivered").await?;
        }
        ensure!(slack.posted().len() == 21, "{:?}", slack.posted());
        Ok(())
    })
}

#[test]
fn a_deletion_that_nobody_could_be_notified_of_proceeds_where_it_may_and_says_so() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start_unavailable_for("DeletionAnnounced").await?;
        test_cluster.channel(&json!({"name": "undelivered", "webhook": {"url": receiver.url}})).await?;
        let proceeds = manager("undelivered", "{labels: [team]}")
            .replace("on: []", "on: [], undelivered: {after: 1s, then: Proceed}");
        test_cluster.apply(&proceeds).await?;
        let uid = namespace(test_cluster, "undelivered-1", "labels: {team: compilers}").await?;
        test_cluster.deleted("undelivered-1", &uid).await?;
        let announced: Value = serde_json::from_slice(&receiver.received()[0].body)?;
        ensure!(announced["for"] == "DeletionAnnounced", "{announced:#}");

        // The notice began when it was given up to wait for somebody to be notified.
        let record = notice_when_gone(test_cluster, &uid).await?;
        let instant = |value: &Value| anyhow::Ok(value.as_str().context("no instant")?.parse::<Timestamp>()?);
        let (given, decided) = (instant(&announced["givenAt"])?, instant(&record["spec"]["decidedAt"])?);
        ensure!(given + Duration::from_secs(3) <= decided, "{given} {decided}");

        // The announcement is not sent any more. That the namespace is gone is, though nobody asked for that.
        let superseded = &record["spec"]["notification"]["superseded"];
        ensure!(superseded.as_array().is_some_and(|all| all.len() == 1), "{record:#}");
        ensure!(superseded[0]["for"] == "DeletionAnnounced", "{superseded:#}");
        ensure!(superseded[0]["key"] == announced["notice"], "{superseded:#}");
        let error = superseded[0]["lastError"].as_str().unwrap_or_default();
        ensure!(error.contains("503"), "{superseded:#}");
        let notified = &record["status"]["notices"][0];
        let last = receiver.received().pop().context("nothing was received")?;
        let said: Value = serde_json::from_slice(&last.body)?;
        ensure!(said["for"] == "Deleted" && said["notice"] == notified["key"], "{said:#}");
        ensure!(receiver.ids().len() == 2, "each under its key: {:?}", receiver.ids());
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "undelivered-1"]).await?;
        let line = "Not sent:   DeletionAnnounced by undelivered, superseded by Deleted (";
        ensure!(code == 0 && said.contains(line), "{said}{error}");
        Ok(())
    })
}

#[test]
fn an_incoming_webhook_of_slack_is_posted_to_once_its_url_is_the_right_one() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let slack = Slack::start("xoxb-none", 0).await?;
        let removed = slack.webhook_url.replace("XXXXXXXX", "REMOVED");
        test_cluster.credential("incoming-url", &removed)?;
        let channel = json!({"webhookUrlFile": "incoming-url"});
        test_cluster.channel(&json!({"name": "incoming", "slack": channel})).await?;
        test_cluster.apply(&manager("incoming", "{labels: [team]}")).await?;
        let uid = namespace(test_cluster, "incoming-1", "labels: {team: compilers}").await?;
        let refused = |one: &Value| one["attempts"].as_u64().is_some_and(|attempts| attempts > 0);
        let refused = notice(test_cluster, "incoming-1", "the webhook was removed", refused).await?;
        // The channel itself says who reads it; its administrator can put this right.
        ensure!(refused["state"] == "Pending" && refused["to"].is_null(), "{refused:#}");
        let error = refused["lastError"].as_str().unwrap_or_default();
        ensure!(error.starts_with("Slack refuses the message (no_service)"), "{refused:#}");
        ensure!(!refused.to_string().contains("services"), "the URL is a secret: {refused:#}");
        ensure!(!test_cluster.is_deleted("incoming-1", &uid).await, "nobody was notified");
        test_cluster.credential("incoming-url", &format!("{}\n", slack.webhook_url))?;
        test_cluster.deleted("incoming-1", &uid).await?;
        let posted = slack.posted();
        ensure!(posted.len() == 1 && posted[0].to.is_empty(), "{posted:?}");
        for part in ["Namespace incoming-1 will be deleted", "coppice extend incoming-1 --by 24h"] {
            ensure!(posted[0].text.contains(part), "{part:?} is not in {posted:?}");
        }
        Ok(())
    })
}

#[test]
fn mail_is_sent_under_tls_that_is_trusted_or_not_at_all() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let mut servers = BTreeMap::new();
        for (tls, encryption) in [("STARTTLS", Encryption::StartTls), ("TLS", Encryption::Implicit)] {
            let options = MailServerOptions { encryption, ..MailServerOptions::default() };
            servers.insert(tls, MailServer::start(options).await?);
        }
        let owner = "{annotations: [{key: example.org/owner, format: Email}]}";
        let mut namespaces = Vec::new();
        for (tls, other) in [("STARTTLS", "TLS"), ("TLS", "STARTTLS")] {
            let name = format!("by-{}", tls.to_lowercase());
            // Each trusts the authority of the other one.
            test_cluster.credential(&format!("{name}-ca"), servers[other].ca_pem())?;
            let channel = json!({"name": name, "email": {
                "host": "127.0.0.1", "port": servers[tls].port(), "tls": tls,
                "from": "coppice@example.org", "caFile": format!("{name}-ca")
            }});
            test_cluster.channel(&channel).await?;
            test_cluster.apply(&manager(&name, owner)).await?;
            let namespace_name = format!("{name}-1");
            let metadata = "annotations: {example.org/owner: grace@example.org}";
            let uid = namespace(test_cluster, &namespace_name, metadata).await?;
            namespaces.push((tls, name, namespace_name, uid));
        }
        for (tls, _, namespace, uid) in &namespaces {
            let tried = |one: &Value| one["attempts"].as_u64().is_some_and(|attempts| attempts > 0);
            let notice = notice(test_cluster, namespace, "its certificate is refused", tried).await?;
            let error = notice["lastError"].as_str().unwrap_or_default();
            let why =
                "its certificate is from an authority that is not trusted; name the authority in caFile";
            ensure!(error.contains(why) && notice["state"] == "Pending", "{tls}: {notice:#}");
            ensure!(!test_cluster.is_deleted(namespace, uid).await, "nobody was notified");
            let server = &servers[tls];
            let (accepted, refused) = (server.accepted(), server.refused());
            ensure!(accepted.is_empty() && refused.is_empty(), "{tls}: {accepted:?} {refused:?}");
        }
        // With the right authority they are sent.
        for (tls, name, ..) in &namespaces {
            test_cluster.credential(&format!("{name}-ca"), servers[tls].ca_pem())?;
        }
        for (tls, _, namespace, uid) in &namespaces {
            test_cluster.deleted(namespace, uid).await?;
            let mails = servers[tls].accepted();
            let subject = format!("Namespace {namespace} will be deleted");
            ensure!(mails.iter().any(|mail| mail.header("Subject").contains(&subject)), "{mails:?}");
            ensure!(mails.iter().all(|mail| mail.tls && mail.to == ["grace@example.org"]), "{mails:?}");
        }
        Ok(())
    })
}

#[test]
fn a_recipient_whose_mail_server_is_slow_delays_no_other() -> Test {
    on_shared_plane(async |test_cluster, _| {
        // Longer than any test waits, and than an attempt may take.
        let slow = Duration::from_mins(30);
        let server = MailServer::start(MailServerOptions { slow, ..MailServerOptions::default() }).await?;
        test_cluster.credential("slow-ca", server.ca_pem())?;
        let mail = json!({"host": "127.0.0.1", "port": server.port(), "from": "coppice@example.org", "caFile": "slow-ca"});
        test_cluster.channel(&json!({"name": "slow", "email": mail})).await?;
        test_cluster
            .apply(&manager("slow", "{annotations: [{key: example.org/owner, format: Email}]}"))
            .await?;
        let of = |to: &str| format!("annotations: {{example.org/owner: {to}}}");
        let waiting = namespace(test_cluster, "slow-1", &of("slow@example.org")).await?;
        notice(test_cluster, "slow-1", "it is to be sent", |one| one["state"] == "Pending").await?;
        let ordinary = namespace(test_cluster, "slow-2", &of("grace@example.org")).await?;
        test_cluster.deleted("slow-2", &ordinary).await?;
        let mails = server.accepted();
        ensure!(mails.len() == 1 && mails[0].to == ["grace@example.org"], "{mails:?}");
        ensure!(!test_cluster.is_deleted("slow-1", &waiting).await, "nobody was notified");
        // The other one was under way meanwhile: it ends for want of an answer.
        let tried = |one: &Value| one["attempts"].as_u64().is_some_and(|attempts| attempts > 0);
        let late = notice(test_cluster, "slow-1", "its attempt has ended", tried).await?;
        let error = late["lastError"].as_str().unwrap_or_default();
        ensure!(late["state"] == "Pending" && error.contains("did not answer within 60 s"), "{late:#}");
        ensure!(!test_cluster.is_deleted("slow-1", &waiting).await, "nobody was notified");
        Ok(())
    })
}

/// An API server that refuses to delete one namespace.
const REFUSES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuses-one}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [DELETE], resources: [namespaces], resourceNames: [refused-1]}
  validations:
  - {expression: 'false', reason: Forbidden, message: somebody needs it}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuses-one}
spec: {policyName: refuses-one, validationActions: [Deny]}
";

#[test]
fn a_deletion_that_is_refused_again_and_again_is_no_deletion_and_its_owner_hears_of_the_one_that_is() -> Test
{
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[]).await?;
        test_cluster.channel(&json!({"name": "refused", "webhook": {"url": receiver.url}})).await?;
        test_cluster.kubectl_stdin(ADMIN, &["apply", "-f", "-"], REFUSES).await?;
        let uid = namespace(test_cluster, "refused-1", "labels: {team: compilers}").await?;
        let admin = test_cluster.admin().await?;
        let dry_run = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
        test_cluster
            .until("the policy is in force", async || {
                let answer = admin.delete("namespace", "", "refused-1", &dry_run).await;
                answer.is_err_and(|error| error.to_string().contains("somebody needs it")).then_some(())
            })
            .await?;
        test_cluster
            .apply(&manager("refused", "{labels: [team]}").replace("on: []", "on: [Deleted]"))
            .await?;
        let answers = || -> anyhow::Result<Vec<Option<u16>>> {
            let deletes = test_cluster.namespace_deletes()?.into_iter();
            // What has changed since it was read is read again.
            let ours = deletes.filter(|delete| delete.name == "refused-1" && delete.code != Some(409));
            Ok(ours.map(|delete| delete.code).collect())
        };
        let thrice = async || (answers().ok()?.len() >= 3).then_some(());
        test_cluster.until("it was refused three times", thrice).await?;
        ensure!(answers()?.iter().all(|code| *code == Some(403)), "{:?}", answers()?);
        let says = |status: &Value| status["intent"]["lastError"].to_string().contains("somebody needs it");
        let refused = record(test_cluster, "refused-1", "why it is not deleted", says).await?;
        ensure!(refused["status"]["firings"].as_u64().unwrap_or_default() == 0, "{refused:#}");
        ensure!(!test_cluster.is_deleted("refused-1", &uid).await);
        let said = || -> anyhow::Result<Vec<(Value, String)>> {
            let all = receiver.received();
            let about = |body: &[u8]| anyhow::Ok(serde_json::from_slice::<Value>(body)?["for"].clone());
            all.iter().map(|one| Ok((about(&one.body)?, one.header("webhook-id").to_owned()))).collect()
        };
        ensure!(said()?.iter().all(|(about, _)| about == "DeletionAnnounced"), "{:?}", said()?);
        ensure!(receiver.ids().len() == 1, "it is announced once: {:?}", said()?);

        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            test_cluster.kubectl(ADMIN, &["delete", kind, "refuses-one"]).await?;
        }
        test_cluster.deleted("refused-1", &uid).await?;
        let record = notice_when_gone(test_cluster, &uid).await?;
        ensure!(record["status"]["notices"][0]["for"] == "Deleted", "{record:#}");
        let accepted = answers()?.into_iter().flatten().filter(|code| (200..300).contains(code)).count();
        ensure!(accepted == 1, "{:?}", answers()?);
        let deleted: Vec<_> = said()?.into_iter().filter(|(about, _)| about == "Deleted").collect();
        ensure!(deleted.len() == 1 && receiver.ids().len() == 2, "{:?}", said()?);
        Ok(())
    })
}
