//! `coppice message`: what a message to the owner of a namespace says, by the templates of the settings.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

mod notified;
mod sample;
mod upcoming;

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use coppice_api::CoppiceConfigSpec;
use coppice_api::notify::MessageAbout;
use coppice_lifecycle::cluster::ValidClusterManager;
use coppice_lifecycle::facts::NamespaceFacts;
use coppice_lifecycle::message::{MessageContent, MessageSource};
use coppice_messages::{Overrides, Rendered, Templates};
use jiff::Timestamp;
use serde::Serialize;

use crate::args::{ArgumentError, ConnectionArgs, NamespaceOrManager, SourceArgs};
use crate::lifecycle::{self, JudgedManagers, LifecycleSnapshot, ManagerFilter};
use crate::namespace_record::record_of;
use crate::terminal::Paragraph;
use crate::{Exit, Io, files, print, validate};
use notified::Receiver;
use upcoming::Chosen;

/// Show what a message to the owner of a namespace says
///
/// The message that is due next, or else the last one, in the form in which its owner gets it: by the templates in spec.messages of
/// CoppiceConfig, or by those of a file that is not applied yet. A kind of message (--for) that nothing leads to is shown with examples
/// of what it needs. Standard error says to whom it goes, with addresses masked, when, and what is made up. Nothing is sent.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice message ci-42                          the message that is due next, or the last one
  coppice message ci-42 --for Expiring --part slack
  coppice message ci-42 --at +2d                 what is due next in two days
  coppice message ci-42 --config config.yaml     with templates that are not applied yet
  coppice message ci-42 --part content           what templates have to work with, as JSON

Exit codes: 0 shown, 3 shown, but nobody would get it (see the warning), 1 error, also of a template, 2 usage.")]
pub(crate) struct MessageArgs {
    /// The namespace
    #[arg(value_name = "NAMESPACE", value_parser = namespace)]
    namespace: String,
    /// What the message is about; by default what comes next
    #[arg(long = "for", value_name = "KIND", value_parser = about)]
    about: Option<MessageAbout>,
    /// Which part of it [default: that of the first channel by which it goes, or else mail]
    #[arg(long, value_enum, value_name = "PART")]
    part: Option<Part>,
    /// Take spec.messages and spec.channels from the CoppiceConfig in this file (`-` for standard input)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    source: SourceArgs,
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Subject and plain text of a mail
    Mail,
    /// The HTML of a mail
    Html,
    /// The text in Slack
    Slack,
    /// What templates have to work with, as JSON: also the body of a webhook
    Content,
    /// All of it, as JSON
    Json,
}

fn namespace(text: &str) -> Result<String, ArgumentError> {
    match NamespaceOrManager::parse(text)? {
        NamespaceOrManager { namespace, name: None } => Ok(namespace),
        NamespaceOrManager { name: Some(_), .. } => Err(ArgumentError::OneManager),
    }
}

fn about(text: &str) -> Result<MessageAbout, ArgumentError> {
    let known = MessageAbout::ALL.iter().find(|about| about.as_str().eq_ignore_ascii_case(text));
    known.copied().ok_or(ArgumentError::MessageAbout)
}

/// The namespace that messages are about, and the cluster manager that sends them.
struct Subject {
    facts: NamespaceFacts,
    name: String,
    spec: ValidClusterManager,
}

impl Subject {
    /// The cluster manager, as messages of ours name it.
    fn manager(&self) -> String {
        format!("ClusterNamespaceManager {}", self.name)
    }
}

/// Everything, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    content: &'a MessageContent,
    subject: &'a str,
    text: &'a str,
    html: &'a str,
    slack: &'a str,
    /// When it is sent, or was.
    sent_at: Timestamp,
    /// The channels, and who gets it by them.
    receivers: &'a [Receiver],
    /// Why nobody would get it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_delivered_because: Option<&'a str>,
    /// What of it is made up.
    made_up: &'a [String],
}

pub(crate) async fn run(args: &MessageArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let namespace = args.namespace.as_str();
    let file = args.config.as_ref().map(|file| config_of(file, io)).transpose()?;
    let wanted = ManagerFilter { namespace: Some(namespace), name: None, judged: JudgedManagers::All };
    let (mut snapshot, at) = lifecycle::read(&args.source, wanted, connection, io).await?;
    if let Some(CoppiceConfigSpec { messages, channels, .. }) = file {
        let config = &mut snapshot.settings.config;
        (config.messages, config.channels) = (messages, channels);
    }
    let subject = subject(&snapshot, namespace)?;
    let receivers = notified::receivers(&subject, &snapshot.settings.config);
    let chosen = choose(&mut snapshot, &subject, args.about, &receivers, at)?;
    let source = MessageSource {
        status: &chosen.status,
        manager: &subject.name,
        spec: &subject.spec,
        namespace: &subject.facts,
    };
    let content = source.content(chosen.about, chosen.given_at, chosen.sent_at);
    let messages = snapshot.settings.config.messages.clone().unwrap_or_default();
    let rendered = templates(Overrides::from(&messages))?.render(
        &content,
        chosen.sent_at,
        messages.cluster.as_deref(),
    )?;
    let part = args.part.or_else(|| receivers.iter().find(|one| one.receives()).map(|one| one.part));
    let part = part.unwrap_or(Part::Mail);
    let undelivered_reason = notified::undelivered_reason(&subject, chosen.about, &receivers);
    let undelivered_reason = undelivered_reason.or_else(|| notified::unsent(part, &receivers));
    remarks(&chosen, undelivered_reason.as_deref(), &receivers, at, io)?;
    show(part, &content, &rendered, (&chosen, &receivers, undelivered_reason.as_deref()), io)?;
    Ok(if undelivered_reason.is_some() { Exit::Attention } else { Exit::Ok })
}

fn show(
    part: Part,
    content: &MessageContent,
    rendered: &Rendered,
    (chosen, receivers, not_delivered_because): (&Chosen, &[Receiver], Option<&str>),
    io: &mut Io<'_>,
) -> Result<()> {
    let Rendered { subject, text, html, slack } = rendered;
    match part {
        Part::Mail => {
            writeln!(io.screen(), "Subject: {subject}")?;
            writeln!(io.screen())?;
            write_lines(text, io)
        }
        Part::Html => write_lines(html, io),
        Part::Slack => write_lines(slack, io),
        Part::Content => print::json(io.out, content),
        Part::Json => {
            let (sent_at, made_up) = (chosen.sent_at, &*chosen.made_up);
            print::json(
                io.out,
                &Report {
                    content,
                    subject,
                    text,
                    html,
                    slack,
                    sent_at,
                    receivers,
                    not_delivered_because,
                    made_up,
                },
            )
        }
    }
}

/// Line by line: the screen shows what is within a value as one.
fn write_lines(text: &str, io: &mut Io<'_>) -> Result<()> {
    for line in text.lines() {
        writeln!(io.screen(), "{line}")?;
    }
    Ok(())
}

/// Says to whom it goes and when, and what of it is not so.
fn remarks(
    chosen: &Chosen,
    undelivered_reason: Option<&str>,
    receivers: &[Receiver],
    at: Timestamp,
    io: &mut Io<'_>,
) -> Result<()> {
    let when = print::instant_from(chosen.sent_at, at);
    match (undelivered_reason, notified::to_whom(receivers)) {
        (Some(why), _) => io.print_note(&format!("warning: nobody would get this message: {why}"))?,
        (None, Some(to)) if chosen.is_sent => io.print_note(&format!("note: sent by {to}, {when}"))?,
        (None, Some(to)) if chosen.made_up.is_empty() => {
            io.print_note(&format!("note: to be sent by {to}, {when}"))?;
        }
        (None, Some(to)) => io.print_note(&format!("note: such a message goes by {to}"))?,
        (None, None) => {}
    }
    for one in receivers.iter().filter(|_| undelivered_reason.is_none()) {
        if let Some(problem) = &one.problem {
            io.print_note(&format!("note: not by {}: {problem}", one.channel))?;
        }
    }
    if !chosen.made_up.is_empty() {
        io.print_note(&format!(
            "note: an example, since nothing leads to a message about {} as things stand; made up: {}",
            chosen.about,
            chosen.made_up.join(", ")
        ))?;
    }
    Ok(())
}

/// The `CoppiceConfig` in a file, which the API server and the operator would accept.
fn config_of(file: &PathBuf, io: &mut Io<'_>) -> Result<CoppiceConfigSpec> {
    let documents = files::read(std::slice::from_ref(file), false, io.stdin)?;
    let objects = documents.iter().flat_map(files::Document::objects);
    let mut configs = objects.filter(|(_, object)| object["kind"] == "CoppiceConfig");
    let shown = file.display();
    let (place, config) = configs.next().ok_or_else(|| {
        anyhow!(
            "{shown} has no CoppiceConfig: write apiVersion: coppice.dev/v1alpha1 and kind: CoppiceConfig above its spec"
        )
    })?;
    if configs.next().is_some() {
        bail!("{shown} has more than one CoppiceConfig");
    }
    let mut problems: Vec<String> = validate::check(&config).iter().map(ToString::to_string).collect();
    if config["apiVersion"] != "coppice.dev/v1alpha1" {
        problems.insert(0, "apiVersion: must be coppice.dev/v1alpha1".to_owned());
    }
    if !problems.is_empty() {
        let first = format!("{place}: the CoppiceConfig has {}:", print::count(problems.len(), "problem"));
        return Err(Paragraph { first, below: problems }.into());
    }
    serde_json::from_value(config["spec"].clone()).with_context(|| format!("{place}: spec"))
}

/// The templates, if all of them can be used.
fn templates(overrides: Overrides<'_>) -> Result<Templates> {
    let (templates, errors) = Templates::or_built_in(overrides);
    if errors.is_empty() {
        return Ok(templates);
    }
    let first =
        "spec.messages of CoppiceConfig has templates that cannot be used (their built-in ones are sent):"
            .to_owned();
    Err(Paragraph { first, below: errors.iter().map(ToString::to_string).collect() }.into())
}

/// The namespace with the cluster manager that governs it.
///
/// # Errors
/// Where that, or what the operator knows of it, is not known: a message would say nonsense.
fn subject(snapshot: &LifecycleSnapshot, namespace: &str) -> Result<Subject> {
    let facts = snapshot
        .namespaces
        .get(namespace)
        .with_context(|| format!("namespace {namespace} does not exist, or may not be read"))?;
    if let Err(why) = &snapshot.governed.managers {
        bail!("{why}: they say what owners are notified of");
    }
    if let Some(record) = snapshot.governed.records.get(namespace) {
        let unreadable = record.status_error.as_ref().or(record.spec.as_ref().err());
        if let Some(error) = unreadable {
            bail!(
                "{}: {error}; use the coppice of the operator's version (`coppice version`)",
                record_of(namespace)
            );
        }
    }
    let Some(contest) = snapshot.contest(namespace) else {
        bail!("which cluster manager governs namespace {namespace} is not known");
    };
    let winner = contest.map_err(|unknown| anyhow!("{unknown}"))?.winner.with_context(|| {
        format!("no ClusterNamespaceManager governs namespace {namespace}, so that nobody is notified: see `coppice explain {namespace}`")
    })?;
    if facts.terminating {
        bail!("namespace {namespace} is being deleted: nobody is notified of anything more");
    }
    Ok(Subject { facts: facts.clone(), name: winner.name.to_owned(), spec: winner.spec.clone() })
}

/// Which message to show.
fn choose(
    snapshot: &mut LifecycleSnapshot,
    subject: &Subject,
    about: Option<MessageAbout>,
    receivers: &[Receiver],
    at: Timestamp,
) -> Result<Chosen> {
    let namespace = &subject.facts.name;
    let status = snapshot.governed_plan(namespace, at).map(|plan| plan.status).unwrap_or_default();
    let about = if let Some(about) = about {
        about
    } else {
        if let Some(why) = notified::nobody(subject, receivers) {
            bail!(
                "nobody is notified of anything about namespace {namespace}: {why}; to see a message all the same, say with --for which"
            );
        }
        let gets_any = |channel: &str| receivers.iter().any(|one| one.receives() && one.channel == channel);
        if let Some(next) = upcoming::next(snapshot, subject, at, gets_any) {
            return Ok(next);
        }
        let last = status.notices.iter().rev().find(|notice| gets_any(&notice.channel));
        last.map(|notice| notice.about).with_context(|| {
            format!(
                "nothing is announced about namespace {namespace}, and as things stand nothing will be: say with --for which message to \
                 show, or with --at when"
            )
        })?
    };
    match upcoming::of_kind(snapshot, subject, about, at) {
        Some(found) => Ok(found),
        None => sample::sample(subject, about, status, at),
    }
}
