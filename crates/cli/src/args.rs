//! The command line's grammar: what all commands share.
#![allow(clippy::doc_markdown, reason = "comments on arguments are the help that people read in a terminal")]

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use coppice_api::notify::MessageAbout;
use coppice_lifecycle::settings::ScaleKind;
use coppice_quantity::{Duration, DurationError};
use jiff::Timestamp;
use thiserror::Error;

use crate::command::{
    acknowledge, audit, cluster, completion, crds, create, doctor, explain, extend, give_back, hold, import,
    list, message, plan, preview, probe, quota, rearm, release, simulate, transfer, tree, version, wake,
};
use crate::validate;

/// Deletes namespaces on schedule: shows what will happen, when and why, and lets you hold, extend or undo it.
#[derive(Debug, Parser)]
#[command(
    name = "coppice",
    version,
    max_term_width = 110,
    after_help = "Exit codes:
  0  success
  1  it failed; standard error says why
  2  the command line could not be understood
  3  it succeeded, and something is refused, unknown, broken or not exactly carried over; of preview: becomes due; of audit
     check: was found

Times are printed in UTC. Colours only on a terminal, and never with NO_COLOR."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Plan(plan::PlanArgs),
    Preview(preview::PreviewArgs),
    Simulate(simulate::SimulateArgs),
    Explain(explain::ExplainArgs),
    Message(message::MessageArgs),
    List(list::ListArgs),
    Tree(tree::TreeArgs),
    Quota(quota::QuotaArgs),
    Create(create::CreateArgs),
    Transfer(transfer::TransferArgs),
    GiveBack(give_back::GiveBackArgs),
    Cluster(cluster::ClusterArgs),
    Hold(hold::HoldArgs),
    Release(release::ReleaseArgs),
    Extend(extend::ExtendArgs),
    Wake(wake::WakeArgs),
    Rearm(rearm::RearmArgs),
    Acknowledge(acknowledge::AcknowledgeArgs),
    Import(import::ImportArgs),
    Audit(audit::AuditArgs),
    Probe(probe::ProbeArgs),
    Crds(crds::CrdsArgs),
    Doctor(doctor::DoctorArgs),
    Version(version::VersionArgs),
    Completion(completion::CompletionArgs),
}

/// Which API server, as whom: kubectl's flags.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection (as kubectl)")]
pub(crate) struct ConnectionArgs {
    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// The user of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The namespace [default: the context's]
    #[arg(short, long, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The API server's URL
    #[arg(short, long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A bearer token
    #[arg(long, global = true, value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// Act as this user
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,
    /// Act as a member of this group; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP", requires = "impersonate")]
    pub(crate) impersonate_groups: Vec<String>,
    /// How long to wait for an answer; 0 for as long as it takes
    #[arg(long, global = true, value_name = "TIME", value_parser = timeout)]
    pub(crate) request_timeout: Option<Duration>,
    /// Do not check the API server's certificate
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
    /// A PEM file of the authorities that sign the API server's certificate
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// The name in the API server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
}

/// Why an argument is not accepted: what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ArgumentError {
    #[error(transparent)]
    Duration(#[from] DurationError),
    #[error("zero changes nothing: write at least 1s")]
    Zero,
    #[error("write at most {0}")]
    TooFarAhead(Duration),
    #[error("write an instant with its zone, such as 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00")]
    Instant,
    #[error("{}, or a time from now such as +2h or -30m", Self::Instant)]
    Time,
    #[error("write NAMESPACE or NAMESPACE/NAME, in lower-case letters, digits, '-' and '.'")]
    Target,
    #[error("messages are about a namespace as a whole: write its name alone")]
    OneManager,
    #[error("write a namespace's name: lower-case letters, digits and '-', at most 63")]
    Namespace,
    #[error("write NAMESPACE/NAME of a QuotaTransfer, in lower-case letters, digits, '-' and '.'")]
    Transfer,
    #[error("write PROVIDER/SHOOT: a ClusterProvider and the Shoot in its project")]
    Shoot,
    #[error("write an object's name: lower-case letters, digits, '-' and '.'")]
    Object,
    #[error("write SECRET or SECRET/KEY")]
    SecretKey,
    #[error(
        "write PARENT/NAME of a Subnamespace: two names of namespaces, in lower-case letters, digits and '-', at most 63 each"
    )]
    Subnamespace,
    #[error(
        "write a ManagedCluster's name: lower-case letters, digits and '-', at most 63; its namespace with -n"
    )]
    ManagedCluster,
    #[error("write what for")]
    NoReason,
    #[error("write GROUP/VERSION/KIND, such as argoproj.io/v1alpha1/Rollout")]
    ScaleKind,
    #[error("the kinds are {}", MessageAbout::ALL.map(MessageAbout::as_str).join(", "))]
    MessageAbout,
    #[error("it has {length} characters; at most {most} are accepted")]
    TooLong { length: usize, most: usize },
}

/// What to look at: the cluster, or files.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SourceArgs {
    /// Read Namespaces, NamespaceManagers, ClusterNamespaceManagers, ManagedNamespaces, Pods, Jobs and CoppiceConfig from
    /// files or directories (`-` for standard input) instead of a cluster; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// With -f: also directories below directories
    #[arg(short = 'R', long, requires = "files")]
    pub(crate) recursive: bool,
    /// As of another instant: RFC 3339, or +DURATION or -DURATION from now. Only the clock moves
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = TimeArg::parse)]
    pub(crate) at: Option<TimeArg>,
    /// The namespace that Coppice is installed in
    #[arg(long, value_name = "NAME", default_value = coppice_api::names::SYSTEM_NAMESPACE)]
    pub(crate) system_namespace: String,
    /// A further kind that this installation scales down, as GROUP/VERSION/KIND; may be repeated
    #[arg(long = "scale-kind", value_name = "GROUP/VERSION/KIND", value_parser = scale_kind)]
    pub(crate) scale_kinds: Vec<ScaleKind>,
}

/// Another instant than now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeArg {
    Instant(Timestamp),
    Ahead(Duration),
    Ago(Duration),
}

impl TimeArg {
    pub(crate) fn parse(text: &str) -> Result<Self, ArgumentError> {
        let relative = |rest: &str| rest.parse::<Duration>().map_err(ArgumentError::from);
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => relative(rest).map(Self::Ahead),
            (_, Some(rest)) => relative(rest).map(Self::Ago),
            _ => instant(text).map(Self::Instant).map_err(|_| ArgumentError::Time),
        }
    }

    /// The instant, seen from now.
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        let seconds = |d: Duration| jiff::SignedDuration::from_secs(d.as_secs_i64());
        match self {
            Self::Instant(at) => at,
            Self::Ahead(by) => now.checked_add(seconds(by)).unwrap_or(Timestamp::MAX),
            Self::Ago(by) => now.checked_sub(seconds(by)).unwrap_or(Timestamp::MIN),
        }
    }
}

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For people with a wide terminal
    Wide,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Only the names
    Name,
}

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// How to print
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: OutputFormat,
    /// Without the line of column names
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// How to write.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct WriteArgs {
    /// Let the API server check it, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A manager: `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Target {
    /// Reads `PARENT/NAME` of a Subnamespace, whose namespace has its name.
    pub(crate) fn subnamespace(text: &str) -> Result<Self, ArgumentError> {
        match text.split_once('/') {
            Some((namespace, name)) if validate::is_dns_label(namespace) && validate::is_dns_label(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(ArgumentError::Subnamespace),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A namespace, or one manager in it: `NAMESPACE[/NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceOrManager {
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
}

impl NamespaceOrManager {
    /// Reads `NAMESPACE` or `NAMESPACE/NAME`.
    pub(crate) fn parse(text: &str) -> Result<Self, ArgumentError> {
        let (namespace, name) = match text.split_once('/') {
            None => (text, None),
            Some((namespace, name)) => (namespace, Some(name)),
        };
        let good = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
        };
        if !good(namespace) || !name.is_none_or(good) {
            return Err(ArgumentError::Target);
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.map(str::to_owned) })
    }
}

/// Reads the name of a namespace.
pub(crate) fn namespace_name(text: &str) -> Result<String, ArgumentError> {
    if validate::is_dns_label(text) { Ok(text.to_owned()) } else { Err(ArgumentError::Namespace) }
}

/// Reads the name of an object of most kinds.
pub(crate) fn object_name(text: &str) -> Result<String, ArgumentError> {
    if validate::is_dns_subdomain(text) { Ok(text.to_owned()) } else { Err(ArgumentError::Object) }
}

/// Reads a length of time that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, ArgumentError> {
    let time: Duration = text.parse()?;
    if time.is_zero() { Err(ArgumentError::Zero) } else { Ok(time) }
}

/// Reads a length of time.
pub(crate) fn any_duration(text: &str) -> Result<Duration, DurationError> {
    text.parse()
}

fn timeout(text: &str) -> Result<Duration, DurationError> {
    if text == "0" { Ok(Duration::ZERO) } else { any_duration(text) }
}

/// Reads an instant with its zone.
pub(crate) fn instant(text: &str) -> Result<Timestamp, ArgumentError> {
    text.parse().map_err(|_| ArgumentError::Instant)
}

fn scale_kind(text: &str) -> Result<ScaleKind, ArgumentError> {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [group, version, kind, ..] if ![group, version, kind].iter().any(|p| p.is_empty()) => Ok(ScaleKind {
            api_version: format!("{group}/{version}"),
            kind: (*kind).to_owned(),
            plural: String::new(),
        }),
        _ => Err(ArgumentError::ScaleKind),
    }
}

/// A command that calls itself as it was called: `kubectl coppice` for the plugin.
pub(crate) fn named_after(program: Option<&OsString>, command: clap::Command) -> clap::Command {
    let file = program.map(PathBuf::from).and_then(|p| Some(p.file_stem()?.to_string_lossy().into_owned()));
    match file.as_deref() {
        Some("kubectl-coppice") => command.bin_name("kubectl coppice").display_name("kubectl coppice"),
        _ => command.bin_name("coppice"),
    }
}
