//! `coppice audit check`.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use coppice_api::names::GROUP;
use coppice_clusters_api::{ClusterAccess, ClusterProvider};
use kube::api::{Api, ApiResource, DynamicObject};
use kube::{Client, Resource};
use thiserror::Error;

use super::InstallationArgs;
use crate::args::{ConnectionArgs, TimeArg};
use crate::audit::{
    Counts, Event, Filter, Finding, FindingType, Installation, Judge, Judgment, Line, Lines, SecretName,
    events, secrets_of_access, secrets_of_provider,
};
use crate::connect::{code, connect, failed};
use crate::print::{self, Cell, ERROR, Table, WARNING};
use crate::terminal::{self, Screen};
use crate::{Exit, Io, files, live, with_progress};

/// Report who else edited Coppice's objects, who read credentials, and what was refused
///
/// Reads audit logs of an API server with the policy of `coppice audit policy`, or of any other that logs as much: one event in a line. Which
/// Secrets hold credentials is read from the ClusterAccesses and ClusterProviders of the cluster or of files; those that
/// Coppice writes within the log are known besides, and all in its own namespaces. Requests by Coppice itself and by Kubernetes
/// (controllers, kubelets that mount Secrets) are counted and not listed. Only one line of a log is in memory at a time. With -n what was
/// requested in other namespaces is left out.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  coppice audit check /var/log/kubernetes/audit.log
  zcat audit-*.log.gz | coppice audit check -                        compressed logs
  kubectl get clacc,clprov -A -o yaml > objects.yaml
  coppice audit check audit.log --objects objects.yaml               without the cluster
  coppice audit check audit.log -n team                              requests in one namespace
  coppice audit check audit.log --allow 'system:serviceaccount:argocd:*' --since -24h
  coppice audit check audit.log --only CredentialRead,Refused -o json

Types: Edited, an object of Coppice: of its kinds, or one of its installation; CredentialEdited, CredentialRead, a Secret with a \
credential, alone or with all others of its namespace; TokenIssued, a token of an account of Coppice; PodEntered, a pod of Coppice; \
Refused, one of these that the API server refused.
A read that found nothing, a conflict and a dry run are not reported. But a dry run that changes a Secret has it in its answer, and is a read; \
and a deletion counts in any case, since the log does not have whether it was dry.

Exit codes: 0 nothing was found, 1 error, 2 usage, 3 something was found, or there are lines that are no events.")]
pub(super) struct CheckArgs {
    /// Audit logs, the oldest first; - for standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// Read ClusterAccesses and ClusterProviders from files or directories (`-` for standard input) instead of the cluster; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "offline")]
    objects: Vec<PathBuf>,
    /// Read them from nowhere: the log itself says which Secrets Coppice writes
    #[arg(long)]
    offline: bool,
    /// A user who may do all this, such as a GitOps controller; with * at the end all whose names begin so; may be repeated
    #[arg(long = "allow", value_name = "USER")]
    allowed: Vec<String>,
    /// Report these alone; may be repeated, or separated by commas
    #[arg(long, value_enum, value_name = "TYPE", value_delimiter = ',', ignore_case = true)]
    only: Vec<FindingType>,
    /// Leave out what was requested before: RFC 3339, or -DURATION from now
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = TimeArg::parse)]
    since: Option<TimeArg>,
    #[command(flatten)]
    installation: InstallationArgs,
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Without the line of column names
    #[arg(long)]
    no_headers: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    #[default]
    Table,
    /// With addresses, programs and ids of requests
    Wide,
    /// For programs
    Json,
}

/// A table has so many rows before the next one begins, so that however many there are, they are not kept.
const ROWS: usize = 1000;
/// So many lines that are no events are named; all are counted.
const NAMED: usize = 10;
/// What a compressed file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The time is looked at once in so many lines.
const LINES: usize = 1024;

pub(super) async fn run(args: &CheckArgs, connection: &ConnectionArgs, io: &mut Io<'_>) -> Result<Exit> {
    let inputs = args.logs.iter().chain(&args.objects).filter(|path| path.as_os_str() == "-").count();
    if inputs > 1 {
        bail!("standard input (-) can be read once");
    }
    let installation = args.installation.installation();
    let secrets = if args.offline {
        Vec::new()
    } else if args.objects.is_empty() {
        of_cluster(&installation, connection, io).await?
    } else {
        of_files(&installation, &args.objects, io)?
    };
    let filter = Filter {
        allowed: args.allowed.clone(),
        within: connection.namespace.clone(),
        since: args.since.map(|since| since.from(io.now)),
        only: args.only.clone(),
    };
    let mut judge = Judge::new(installation, filter);
    judge.add_secrets(secrets);
    let Io { stdin, out, err, color, progress, .. } = io;
    let mut check = Check {
        judge,
        report: Report::new(args, &mut **out, *color),
        err: &mut **err,
        progress: Progress { is_shown: *progress, began: Instant::now(), next: Duration::from_secs(1) },
    };
    for log in &args.logs {
        if log.as_os_str() == "-" {
            check.log("standard input", BufReader::new(&mut **stdin))?;
        } else {
            let name = log.display().to_string();
            let file = File::open(log).with_context(|| format!("{name} cannot be read"))?;
            check.log(&name, BufReader::new(file))?;
        }
    }
    check.end()
}

/// From files.
fn of_files(installation: &Installation, paths: &[PathBuf], io: &mut Io<'_>) -> Result<Vec<SecretName>> {
    let mut secrets = Vec::new();
    let (mut found, version) = (false, format!("{GROUP}/"));
    for (_, object) in files::read(paths, false, io.stdin)?.iter().flat_map(files::Document::objects) {
        if !object["apiVersion"].as_str().is_some_and(|text| text.starts_with(&version)) {
            continue;
        }
        match object["kind"].as_str().unwrap_or_default() {
            "ClusterAccess" => secrets.extend(secrets_of_access(&object)),
            "ClusterProvider" => secrets.extend(secrets_of_provider(&object, installation)),
            _ => continue,
        }
        found = true;
    }
    if !found {
        io.print_note("warning: --objects: there is no ClusterAccess and no ClusterProvider in these files")?;
    }
    Ok(secrets)
}

/// From the cluster. One that does not have these kinds has none of these objects, such as one that credentials are for.
async fn of_cluster(
    installation: &Installation,
    connection: &ConnectionArgs,
    io: &mut Io<'_>,
) -> Result<Vec<SecretName>> {
    const INSTEAD: &str = "with --objects FILE or --offline no cluster is asked";
    let client = connect(connection, io).await.map_err(|error| anyhow!("{error:#}; {INSTEAD}"))?.client;
    let reading = async {
        let accesses = listed::<ClusterAccess>(&client, connection.namespace.as_deref()).await?;
        anyhow::Ok((accesses, listed::<ClusterProvider>(&client, None).await?))
    };
    let (accesses, providers) = with_progress("reading the cluster", io, reading)
        .await?
        .map_err(|error| anyhow!("{error:#}; {INSTEAD}"))?;
    let mut secrets = Vec::new();
    for access in accesses {
        secrets.extend(secrets_of_access(&serde_json::to_value(access)?));
    }
    for provider in providers {
        secrets.extend(secrets_of_provider(&serde_json::to_value(provider)?, installation));
    }
    Ok(secrets)
}

/// Without their types: one that this version cannot understand must not hide the others.
async fn listed<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    match live::list(&api, None).await {
        Err(error) if code(&error) == Some(404) => Ok(Vec::new()),
        found => found.map_err(|error| failed(&format!("{} cannot be listed", resource.plural), &error)),
    }
}

/// Why a line has no events.
#[derive(Debug, Error)]
enum LineError {
    #[error("it is longer than any event is")]
    TooLong,
    #[error("{0}")]
    NoEvent(serde_json::Error),
}

/// The events of a line, which may be empty.
fn events_of(line: &Line<'_>) -> Result<Vec<Event>, LineError> {
    match line {
        Line::TooLong => Err(LineError::TooLong),
        Line::Text(text) if text.trim_ascii().is_empty() => Ok(Vec::new()),
        Line::Text(text) => events(text.trim_ascii()).map_err(LineError::NoEvent),
    }
}

/// What is done with logs.
struct Check<'a> {
    judge: Judge,
    report: Report<'a>,
    err: &'a mut dyn Write,
    progress: Progress,
}

impl Check<'_> {
    /// Reads a log to its end.
    fn log(&mut self, name: &str, input: impl BufRead) -> Result<()> {
        let mut lines = Lines::new(input);
        while let Some((number, line)) = lines.read().with_context(|| format!("{name} cannot be read"))? {
            if number == 1 && matches!(line, Line::Text(text) if text.starts_with(&GZIP)) {
                bail!("{name} is compressed: `zcat {name} | coppice audit check -` reads it");
            }
            match events_of(&line) {
                Ok(events) => self.look_at(&events)?,
                Err(error) => self.malformed(name, number, &error)?,
            }
            if number.is_multiple_of(LINES)
                && let Some(seconds) = self.progress.due()
            {
                let events = print::count(self.judge.counts().events, "event");
                self.note(&format!("reading {name}: {events}, {seconds} s so far ..."))?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, events: &[Event]) -> Result<()> {
        for event in events {
            if let Judgment::Found(finding) = self.judge.judge(event) {
                self.report.add(&finding)?;
            }
        }
        Ok(())
    }

    fn malformed(&mut self, name: &str, number: usize, why: &LineError) -> Result<()> {
        self.judge.malformed();
        if self.judge.counts().malformed <= NAMED {
            self.note(&format!("warning: {name}, line {number}: it is no audit event: {why}"))?;
        }
        Ok(())
    }

    fn note(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(Screen::new(self.err, false), "{line}")?)
    }

    /// Prints what is left, and what was counted.
    fn end(mut self) -> Result<Exit> {
        let counts = self.judge.counts();
        self.report.end(&counts)?;
        let secrets = print::count(self.judge.known_secrets(), "Secret");
        self.note(&format!(
            "{}: {} found; {} by Coppice itself, {} by Kubernetes, {} allowed; {secrets} with credentials known outside of Coppice's namespaces",
            print::count(counts.events, "event"), counts.findings, counts.by_coppice, counts.by_kubernetes, counts.by_allowed,
        ))?;
        if counts.malformed > 0 {
            let lines = print::count(counts.malformed, "line");
            self.note(&format!(
                "warning: {lines} could not be understood: what they are about is not known"
            ))?;
        }
        if counts.events == 0 {
            self.note("warning: there is no event: does the API server log, and is this its audit log?")?;
        }
        Ok(if counts.findings + counts.malformed == 0 { Exit::Ok } else { Exit::Attention })
    }
}

/// Says what takes long: after 1, 2, 4, 8 ... seconds.
struct Progress {
    is_shown: bool,
    began: Instant,
    next: Duration,
}

impl Progress {
    /// For how many seconds it goes on, if that is to be said now.
    fn due(&mut self) -> Option<u64> {
        let waited = self.began.elapsed();
        if !self.is_shown || waited < self.next {
            return None;
        }
        while self.next <= waited {
            self.next *= 2;
        }
        Some(waited.as_secs())
    }
}

/// Prints findings as they come.
struct Report<'a> {
    args: &'a CheckArgs,
    out: &'a mut dyn Write,
    color: bool,
    table: Table,
    /// Rows in the table.
    rows: usize,
    /// Whether something was printed.
    began: bool,
}

impl<'a> Report<'a> {
    fn new(args: &'a CheckArgs, out: &'a mut dyn Write, color: bool) -> Self {
        Self { args, out, color, table: table(args.output), rows: 0, began: false }
    }

    fn add(&mut self, finding: &Finding) -> Result<()> {
        if self.args.output == Output::Json {
            let before = if self.began { ",\n    " } else { "{\n  \"findings\": [\n    " };
            write!(self.out, "{before}{}", terminal::json(&serde_json::to_string(finding)?))?;
            self.began = true;
            return Ok(());
        }
        let style = if finding.type_ == FindingType::Refused { WARNING } else { ERROR };
        let mut cells: Vec<Cell> = vec![
            print::instant(finding.when).into(),
            finding.who().into(),
            finding.what().into(),
            finding.object().into(),
            Cell::styled(finding.type_.as_str(), style),
        ];
        if self.args.output == Output::Wide {
            cells.extend([
                finding.source_ips.join(",").into(),
                finding.user_agent.as_str().into(),
                finding.audit_id.as_str().into(),
            ]);
        }
        self.table.row(cells);
        self.rows += 1;
        if self.rows == ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes the rows so far.
    fn flush(&mut self) -> Result<()> {
        if self.rows > 0 {
            let full = std::mem::replace(&mut self.table, table(self.args.output));
            full.write(&mut Screen::new(self.out, self.color), !self.args.no_headers && !self.began)?;
            (self.rows, self.began) = (0, true);
        }
        Ok(())
    }

    fn end(&mut self, counts: &Counts) -> Result<()> {
        if self.args.output != Output::Json {
            self.flush()?;
            return Ok(self.out.flush()?);
        }
        let before = if self.began { "\n  ],\n" } else { "{\n  \"findings\": [],\n" };
        writeln!(self.out, "{before}  \"counts\": {}\n}}", serde_json::to_string(counts)?)?;
        Ok(self.out.flush()?)
    }
}

fn table(output: Output) -> Table {
    let mut headers = vec!["WHEN", "WHO", "WHAT", "OBJECT", "TYPE"];
    if output == Output::Wide {
        headers.extend(["FROM", "PROGRAM", "ID"]);
    }
    Table::new(&headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_said_after_1_2_4_8_seconds_to_whoever_looks() {
        let since = |seconds, is_shown| {
            let began = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
            Progress { is_shown, began, next: Duration::from_secs(1) }
        };
        let mut progress = since(5, true);
        assert_eq!((progress.due(), progress.next), (Some(5), Duration::from_secs(8)));
        assert_eq!(progress.due(), None);
        assert_eq!((since(0, true).due(), since(5, false).due()), (None, None));
    }
}
