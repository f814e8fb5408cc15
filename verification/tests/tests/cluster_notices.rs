//! Owners who are notified before their namespaces are deleted, on a real API server: by a webhook, by a real mail server, and in what
//! answers as Slack does.

use anyhow::{Context as _, ensure};
use coppice_plane::ADMIN;
use coppice_tests::mail_server::{MailCredentials, MailServer, MailServerOptions};
use coppice_tests::receiver::Receiver;
use coppice_tests::{Slack, TestCluster, on_shared_plane, requests};
use serde_json::{Value, json};

use super::cli::coppice;
use super::cluster_pods::signed;

type Test = anyhow::Result<()>;

/// A cluster manager that notifies owners by the channel of its name, and deletes after two seconds of notice.
pub(super) fn manager(name: &str, owner: &str) -> String {
    format!(
        "{{apiVersion: coppice.dev/v1alpha1, kind: ClusterNamespaceManager, metadata: {{name: {name}}}, spec: {{mode: Enforce, \
         selector: {{names: ['{name}-*']}}, settle: 1s, ttl: {{after: 3s}}, owner: {owner}, notify: {{channels: [{name}], on: []}}, \
         policies: [{{name: end, when: {{phase: {{in: [Stale]}}}}, then: {{delete: {{notice: 2s}}}}}}]}}}}"
    )
}

/// Creates a namespace, and gives back its uid.
pub(super) async fn namespace(
    test_cluster: &TestCluster,
    name: &str,
    metadata: &str,
) -> anyhow::Result<String> {
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, {metadata}}}}}");
    let [namespace] =
        requests::documents(&namespace)?.try_into().map_err(|_| anyhow::anyhow!("one object"))?;
    // Nothing is awaited in it: its life is a matter of seconds.
    let created = test_cluster.admin().await?.create(&namespace).await?;
    Ok(created["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
}

/// The first entry of the notices of a namespace that is as wanted.
pub(super) async fn notice(
    test_cluster: &TestCluster,
    namespace: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> anyhow::Result<Value> {
    test_cluster
        .until(what, async || {
            let record = test_cluster.get("managednamespace", namespace, "coppice").await.ok()??;
            record["status"]["notices"].as_array()?.iter().find(|one| wanted(one)).cloned()
        })
        .await
}

/// The record of the deletion of the namespace with this uid, once what it owes has been delivered.
pub(super) async fn notice_when_gone(test_cluster: &TestCluster, uid: &str) -> anyhow::Result<Value> {
    test_cluster
        .until("the message that the namespace is gone is delivered", async || {
            let records = test_cluster.list("deletednamespace", "").await.ok()?;
            let record = records.into_iter().find(|record| record["spec"]["uid"] == uid)?;
            (record["status"]["notices"][0]["state"] == "Delivered").then_some(record)
        })
        .await
}

#[test]
fn a_deletion_waits_until_its_owner_has_been_notified() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let receiver = Receiver::start(&[503]).await?;
        // A loopback address, which the settings alone can permit.
        test_cluster.channel(&json!({"name": "notified", "webhook": {"url": receiver.url}})).await?;
        let deletes = manager("notified", "{labels: [team]}").replace("on: []", "on: [Deleted]");
        test_cluster.apply(&deletes).await?;
        let uid = namespace(test_cluster, "notified-1", "labels: {team: compilers}").await?;
        test_cluster.deleted("notified-1", &uid).await?;
        let requests = receiver.received();
        ensure!(
            receiver.ids().len() == 1 && requests.len() >= 2,
            "the first was refused, and it waited for the second, under one key: {:?}",
            receiver.ids()
        );
        let said: Value = serde_json::from_slice(&requests[1].body)?;
        ensure!(said["namespace"] == "notified-1" && said["owner"] == "compilers", "{said:#}");
        ensure!(said["keep"] == "coppice extend notified-1 --by 24h", "{said:#}");
        ensure!(said["deletion"]["reason"] == "TtlElapsed" && said["observing"] == false, "{said:#}");
        signed(test_cluster, &requests).await?;

        // The record of the deletion tells that the namespace is gone.
        let record = notice_when_gone(test_cluster, &uid).await?;
        let notified = &record["status"]["notices"][0];
        ensure!(notified["for"] == "Deleted" && notified["channel"] == "notified", "{record:#}");
        ensure!(record["spec"]["notification"]["owner"] == "compilers", "{record:#}");
        let requests = receiver.received();
        let said: Value = serde_json::from_slice(&requests[requests.len() - 1].body)?;
        signed(test_cluster, &requests).await?;
        ensure!(said["for"] == "Deleted" && said["notice"] == notified["key"], "{said:#}");
        ensure!(
            said["deletion"]["at"] == record["status"]["deletedAt"] && said["keep"].is_null(),
            "{said:#}"
        );
        ensure!(receiver.ids().len() == 2, "each under its key: {:?}", receiver.ids());
        let (code, said, error) = coppice(test_cluster, ADMIN, &["explain", "notified-1"]).await?;
        ensure!(code == 0 && said.contains("Notified:   Deleted by notified: Delivered, "), "{said}{error}");
        Ok(())
    })
}

#[test]
fn mail_goes_under_tls_to_the_owner_and_a_greylisted_one_is_sent_again() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let login = MailCredentials { username: "coppice".to_owned(), password: "correct horse".to_owned() };
        let options = MailServerOptions { credentials: Some(login), ..MailServerOptions::default() };
        let server = MailServer::start(options).await?;
        test_cluster.credential("mail-ca", server.ca_pem())?;
        test_cluster.credential("mail-user", "coppice\n")?;
        test_cluster.credential("mail-password", "correct horse\n")?;
        test_cluster
            .channel(&json!({"name": "mail", "email": {
                "host": "127.0.0.1", "port": server.port(), "from": "Coppice <coppice@example.org>",
                "usernameFile": "mail-user", "passwordFile": "mail-password", "caFile": "mail-ca"
            }}))
            .await?;
        let owner = "{annotations: [{key: example.org/owner, format: Email}]}";
        test_cluster.apply(&manager("mail", owner).replace("on: []", "on: [Deleted]")).await?;
        let of = |to: &str| format!("annotations: {{example.org/owner: {to}}}");
        let grey = namespace(test_cluster, "mail-grey", &of("greylisted@example.org")).await?;
        let bad = namespace(test_cluster, "mail-bad", &of("refused@example.org")).await?;
        // One bad recipient delays nobody.
        test_cluster.deleted("mail-grey", &grey).await?;
        let refusals = server.refused();
        ensure!(refusals.iter().any(|one| one.to.contains("greylisted@") && one.code == 451), "{refusals:?}");
        let mails = server.accepted();
        let mail = mails.iter().find(|mail| mail.to == ["greylisted@example.org"]).context("no mail")?;
        ensure!(mail.tls && mail.user == "coppice" && mail.from == "coppice@example.org", "{mail:?}");
        for part in [
            "Subject: Namespace mail-grey will be deleted",
            "From: Coppice <coppice@example.org>",
            "Auto-Submitted: auto-generated",
            "multipart/alternative",
            "coppice extend mail-grey --by 24h",
        ] {
            ensure!(mail.data.contains(part), "{part:?} is not in {}", mail.data);
        }

        // Its address is sealed in the record of the deletion.
        let record = notice_when_gone(test_cluster, &grey).await?;
        ensure!(!record.to_string().contains("greylisted@"), "{record:#}");
        ensure!(record["status"]["notices"][0]["to"] == "g***@example.org", "{record:#}");
        let gone = "Subject: Namespace mail-grey has been deleted";
        ensure!(server.accepted().iter().any(|mail| mail.data.contains(gone)), "{:?}", server.accepted());

        // A refusal for good is a dead letter, without the address in it; another address is another chance.
        let dead = notice(test_cluster, "mail-bad", "the address is refused", |one| one["state"] == "Failed")
            .await?;
        ensure!(dead["lastError"] == "the mail server refuses the recipient (550 5.1.1)", "{dead:#}");
        ensure!(dead["to"] == "r***@example.org", "{dead:#}");
        ensure!(!test_cluster.is_deleted("mail-bad", &bad).await, "nobody was notified");
        let patch =
            json!({"metadata": {"annotations": {"example.org/owner": "new@example.org"}}}).to_string();
        test_cluster.patch("namespace", "", "mail-bad", &patch).await?;
        test_cluster.deleted("mail-bad", &bad).await?;
        ensure!(server.accepted().iter().any(|mail| mail.to == ["new@example.org"]), "the new owner");
        Ok(())
    })
}

#[test]
fn a_bot_writes_to_the_owner_or_to_the_fallback_with_the_token_that_is_there_now() -> Test {
    on_shared_plane(async |test_cluster, _| {
        let slack = Slack::start("xoxb-new", 1).await?;
        test_cluster.credential("slack-token", "xoxb-old")?;
        test_cluster
            .channel(
                &json!({"name": "slack", "slack": {"tokenFile": "slack-token", "apiUrl": slack.api_url}}),
            )
            .await?;
        let owner =
            "{annotations: [{key: example.org/slack, format: Slack}], fallback: {slack: '#platform'}}";
        test_cluster.apply(&manager("slack", owner)).await?;
        let uid = namespace(test_cluster, "slack-1", "annotations: {example.org/slack: U024BE7LH}").await?;
        let refused = notice(test_cluster, "slack-1", "the old token is refused", |one| {
            one["lastError"].as_str().is_some_and(|error| error.contains("invalid_auth"))
        });
        let refused = refused.await?;
        ensure!(refused["state"] == "Pending" && refused["to"] == "U02***", "{refused:#}");
        test_cluster.credential("slack-token", "xoxb-new")?;
        test_cluster.deleted("slack-1", &uid).await?;
        let uid = namespace(test_cluster, "slack-2", "labels: {team: nobody}").await?;
        test_cluster.deleted("slack-2", &uid).await?;
        let posted = slack.posted();
        let to = |name: &str| posted.iter().find(|one| one.text.contains(name)).map(|one| one.to.as_str());
        ensure!(to("slack-1") == Some("U024BE7LH"), "{posted:?}");
        ensure!(to("slack-2") == Some("#platform"), "whoever has no address has the fallback: {posted:?}");
        Ok(())
    })
}

/// Channels that the API server refuses, and a part of the sentence with which it does.
const REFUSED: &[(&str, &str)] = &[
    ("{}", "write exactly one of webhook, slack and email"),
    (
        "{webhook: {url: 'https://x.example'}, slack: {tokenFile: a}}",
        "write exactly one of webhook, slack and email",
    ),
    ("{webhook: {url: ftp://x.example}}", "write an absolute http:// or https:// URL"),
    ("{webhook: {url: 'https://u:p@x.example/hook'}}", "write the URL without a user and a password"),
    ("{webhook: {url: 'https://u@x.example'}}", "write the URL without a user and a password"),
    ("{webhook: {url: 'https://x.example/hook#top'}}", "write the URL without a fragment"),
    ("{slack: {}}", "write exactly one of tokenFile"),
    ("{slack: {tokenFile: a, webhookUrlFile: b}}", "write exactly one of tokenFile"),
    ("{slack: {tokenFile: ../token}}", "write the name of a file in the operator's --credentials-dir"),
    (
        "{slack: {tokenFile: /var/run/secrets/token}}",
        "write the name of a file in the operator's --credentials-dir",
    ),
    ("{slack: {tokenFile: a, apiUrl: 'ftp://x.example'}}", "write an absolute http:// or https:// URL"),
    ("{slack: {tokenFile: a, apiUrl: slack.com}}", "write an absolute http:// or https:// URL"),
    (
        "{slack: {tokenFile: a, apiUrl: 'https://u:p@x.example/api'}}",
        "write the URL without a user and a password",
    ),
    ("{slack: {tokenFile: a, apiUrl: 'http://slack.com/api'}}", "write an https:// URL"),
    ("{slack: {tokenFile: a, apiUrl: 'HTTP://10.0.0.1/api'}}", "write an https:// URL"),
    ("{slack: {tokenFile: a, apiUrl: 'http://localhost/api'}}", "write an https:// URL"),
    ("{slack: {tokenFile: a, apiUrl: 'http://127.0.0.1.example.org/api'}}", "write an https:// URL"),
    ("{slack: {tokenFile: a, apiUrl: 'http://x.example/://127.0.0.1/'}}", "write an https:// URL"),
    ("{slack: {tokenFile: a, apiUrl: 'http://127.0.0.1:80@x.example/'}}", "write an https:// URL"),
    ("{slack: {tokenFile: a, proxy: 'socks5://x'}}", "write an absolute http:// or https:// URL"),
    ("{email: {from: a@example.org}}", "host: Required"),
    ("{email: {host: smtp.example.org}}", "from: Required"),
    ("{email: {host: smtp.example.org, from: nobody}}", "should match"),
    ("{email: {host: 'smtp.example.org:25', from: a@example.org, port: 0}}", "greater than or equal to 1"),
    (
        "{email: {host: smtp.example.org, from: a@example.org, passwordFile: p}}",
        "write usernameFile and passwordFile together",
    ),
    (
        "{email: {host: smtp.example.org, from: a@example.org, usernameFile: u, passwordFile: p, tls: None}}",
        "a password is sent only under TLS",
    ),
    ("{email: {host: smtp.example.org, from: a@example.org, tls: SSL}}", "Unsupported value"),
    ("{email: {host: smtp.example.org, from: a@example.org, recipientDomains: []}}", "at least 1 items"),
    (
        "{email: {host: smtp.example.org, from: a@example.org, recipientDomains: [a.example, a.example]}}",
        "duplicate entries",
    ),
    (
        "{email: {host: smtp.example.org, from: a@example.org, recipientDomains: ['*.example.org']}}",
        "write domains in lower case, without '@' and '*', such as example.org",
    ),
    (
        "{email: {host: smtp.example.org, from: a@example.org, recipientDomains: ['@Example.org']}}",
        "write domains in lower case, without '@' and '*', such as example.org",
    ),
    (
        "{email: {host: smtp.example.org, from: a@example.org, password: secret}}",
        "field not declared in schema",
    ),
];

#[test]
fn a_channel_that_cannot_be_meant_is_refused_with_advice() -> Test {
    on_shared_plane(async |test_cluster, _| {
        test_cluster.settings().await?;
        let apply = async |spec: &str| {
            let config = format!(
                "{{apiVersion: coppice.dev/v1alpha1, kind: CoppiceConfig, metadata: {{name: coppice}}, spec: {spec}}}"
            );
            let args = ["apply", "--server-side", "--dry-run=server", "--field-manager=bad", "-f", "-"];
            test_cluster.kubectl_stdin(ADMIN, &args, &config).await
        };
        let mut wrong = Vec::new();
        for (channel, sentence) in REFUSED {
            let channel = format!("{{name: bad, {}", channel.trim_start_matches('{'));
            match apply(&format!("{{channels: [{channel}]}}")).await {
                Ok(_) => wrong.push(format!("{channel}: accepted")),
                Err(error) if error.to_string().contains(sentence) => {}
                Err(error) => wrong.push(format!("{channel}: {error}")),
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        for channel in [
            "email: {host: smtp.example.org, from: 'Coppice <coppice@example.org>'}",
            "webhook: {url: 'https://x.example/users/@me?to=a@example.org'}",
            "slack: {tokenFile: a, apiUrl: 'https://slack.example/api'}",
            "slack: {tokenFile: a, apiUrl: 'http://127.0.0.1:8080/api'}",
            "slack: {tokenFile: a, apiUrl: 'http://[::1]:8080/api', proxy: 'http://proxy.example.org:3128'}",
        ] {
            apply(&format!("{{channels: [{{name: fine, {channel}}}]}}")).await?;
        }
        Ok(())
    })
}
