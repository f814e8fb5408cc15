//! The operator's options: flags, each also an environment variable.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use coppice_api::names::{LEASE_NAME, SYSTEM_NAMESPACE, TREES_ACCOUNT, TREES_ADMISSION};
use coppice_lifecycle::settings::ScaleKind;
use coppice_quantity::DurationError;
use coppice_runtime::lease::LeaseSettings;
use coppice_runtime::logging::LogFormat;
use coppice_serve::startup::StartOptions;

/// Coppice's operator: deletes namespaces on schedule, and scales workloads down, as their managers say.
#[derive(Clone, Debug, Parser)]
#[command(name = "coppice-operator", version, about, long_about = None)]
pub(crate) struct Args {
    /// What to do instead of running as the operator.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Connect by this kubeconfig; by default by the service account of the pod, else as kubectl would.
    #[arg(long, global = true, env = "COPPICE_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig.
    #[arg(long, global = true, env = "COPPICE_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The namespace that the operator lives in: its Lease and its webhook key are there, and it is protected.
    #[arg(long, global = true, env = "COPPICE_NAMESPACE", value_name = "NAME", default_value = SYSTEM_NAMESPACE)]
    pub(crate) namespace: String,

    /// Where to serve /metrics.
    #[arg(long, env = "COPPICE_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Serve /metrics by http:// and to everybody. Otherwise it is served by https:// and to those alone whose token the API server
    /// knows and who may get the path (ClusterRole coppice-metrics-reader).
    #[arg(long, env = "COPPICE_METRICS_INSECURE", conflicts_with = "metrics_cert_dir", value_parser = BoolishValueParser::new())]
    pub(crate) metrics_insecure: bool,

    /// The directory with the certificate of /metrics, as files tls.crt and tls.key, which are read again when they change. By default
    /// it is one that nobody can verify.
    #[arg(long, env = "COPPICE_METRICS_CERT_DIR", value_name = "DIRECTORY")]
    pub(crate) metrics_cert_dir: Option<PathBuf>,

    /// Where to serve /livez and /readyz.
    #[arg(
        long,
        env = "COPPICE_LISTEN_PROBES",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:8081"
    )]
    pub(crate) listen_probes: SocketAddr,

    /// The form of the log on standard error.
    #[arg(long, global = true, env = "COPPICE_LOG_FORMAT", value_parser = log_format(), default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// What to log, as `target=level` pairs: `info,coppice_controllers=debug`.
    #[arg(long, global = true, env = "COPPICE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// This replica's name in the Lease and in Events; by default the pod's name.
    #[arg(long, global = true, env = "POD_NAME", value_name = "NAME")]
    pub(crate) identity: Option<String>,

    /// The Lease by which replicas agree on who writes; by default that of the program's name.
    #[arg(long, global = true, env = "COPPICE_LEASE_NAME", value_name = "NAME")]
    pub(crate) lease_name: Option<String>,

    /// How long a replica that does not answer keeps the Lease.
    #[arg(long, global = true, env = "COPPICE_LEASE_DURATION", value_name = "TIME", default_value = "15s", value_parser = time)]
    pub(crate) lease_duration: Duration,

    /// How long the leader tries to renew before it gives up and exits.
    #[arg(long, global = true, env = "COPPICE_LEASE_RENEW_DEADLINE", value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) lease_renew_deadline: Duration,

    /// How often the Lease is renewed or asked for.
    #[arg(long, global = true, env = "COPPICE_LEASE_RETRY_PERIOD", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) lease_retry_period: Duration,

    /// How many managers, or of trees objects of a kind, are worked on at once.
    #[arg(long, env = "COPPICE_CONCURRENCY", value_name = "N", default_value = "16")]
    pub(crate) concurrency: std::num::NonZeroUsize,

    /// A further kind that may be scaled down, as GROUP/VERSION/KIND/PLURAL; may be repeated. The installation must
    /// grant `list` on it and `get`, `patch` on its scale subresource.
    #[arg(
        long = "scale-kind",
        global = true,
        env = "COPPICE_SCALE_KINDS",
        value_name = "GROUP/VERSION/KIND/PLURAL",
        value_delimiter = ',',
        value_parser = scale_kind
    )]
    pub(crate) scale_kinds: Vec<ScaleKind>,

    /// A PEM file of further authorities to trust when webhooks are sent.
    #[arg(long, env = "COPPICE_WEBHOOK_CA_FILE", value_name = "FILE")]
    pub(crate) webhook_ca_file: Option<PathBuf>,

    /// The directory with the credentials of channels (spec.channels of CoppiceConfig): a mounted Secret, whose keys channels name.
    /// Files are read again for every message.
    #[arg(long, env = "COPPICE_CREDENTIALS_DIR", value_name = "DIRECTORY")]
    pub(crate) credentials_dir: Option<PathBuf>,

    /// Reserved for the embedded database of later versions; nothing is written there yet.
    #[arg(long, env = "COPPICE_DATA_DIR", value_name = "DIRECTORY")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// What the program does besides running as the operator.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the controllers of NamespaceTree and Subnamespace instead of the operator's: a Deployment of its own, with an account and
    /// a Lease of its own (--lease-name; by default coppice-trees).
    Trees(TreesArgs),
    /// Gives every workload that was scaled down its replicas back, before Coppice is uninstalled. It takes the Lease from the
    /// operator that leads, which then does nothing any more, lists what cannot be woken and why, and fails if anything is left.
    WakeAll {
        /// For how long to try.
        #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time)]
        wait: Duration,
    },
}

/// What the program of trees has besides.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TreesArgs {
    /// Where to serve the admission webhook; by default nowhere.
    #[arg(long, env = "COPPICE_LISTEN_ADMISSION", value_name = "ADDRESS:PORT")]
    pub(crate) listen_admission: Option<SocketAddr>,

    /// A name or address by which the API server calls the admission webhook; may be repeated. By default that of its Service:
    /// coppice-trees-admission.NAMESPACE.svc.
    #[arg(
        long = "admission-name",
        env = "COPPICE_ADMISSION_NAMES",
        value_name = "NAME",
        value_delimiter = ',',
        requires = "listen_admission"
    )]
    pub(crate) admission_names: Vec<String>,

    /// The directory with the certificate of the admission webhook, as files tls.crt and tls.key, which are read again when they change;
    /// who makes them also keeps caBundle of the webhook configuration coppice-trees. By default Coppice does both.
    #[arg(long, env = "COPPICE_ADMISSION_CERT_DIR", value_name = "DIRECTORY", requires = "listen_admission")]
    pub(crate) admission_cert_dir: Option<PathBuf>,
}

impl TreesArgs {
    /// By which the API server calls the admission webhook of the program in this namespace.
    pub(crate) fn admission_names(&self, namespace: &str) -> Vec<String> {
        if self.admission_names.is_empty() {
            return vec![format!("{TREES_ADMISSION}.{namespace}.svc")];
        }
        self.admission_names.clone()
    }
}

impl Args {
    /// What they say about the start of a program; it has `default_name` where the pod's own is not known.
    pub(crate) fn start_options(&self, default_name: &str) -> StartOptions {
        StartOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            listen: self.listen,
            metrics_insecure: self.metrics_insecure,
            metrics_cert_dir: self.metrics_cert_dir.clone(),
            listen_probes: self.listen_probes,
            name: self.identity.clone().unwrap_or_else(|| default_name.to_owned()),
        }
    }

    /// The Lease, for a process of that identity.
    pub(crate) fn lease(&self, identity: &str, seed: u64) -> LeaseSettings {
        LeaseSettings {
            duration: self.lease_duration,
            renew_deadline: self.lease_renew_deadline,
            retry: self.lease_retry_period,
            seed,
            ..LeaseSettings::new(&self.namespace, self.lease_name(), identity)
        }
    }

    fn lease_name(&self) -> &str {
        let own = if matches!(self.command, Some(Command::Trees(_))) { TREES_ACCOUNT } else { LEASE_NAME };
        self.lease_name.as_deref().unwrap_or(own)
    }
}

/// Reads the form of the log, and has the help name each.
fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    let values = LogFormat::ALL.map(|format| PossibleValue::new(format.name()).help(format.help()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<LogFormat>())
}

fn time(text: &str) -> Result<Duration, DurationError> {
    text.parse::<coppice_quantity::Duration>().map(Into::into)
}

/// A text that names no kind of workload.
#[derive(Debug)]
struct InvalidScaleKind(String);

impl fmt::Display for InvalidScaleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(
            f,
            "{text:?} is not a kind: write GROUP/VERSION/KIND/PLURAL, such as argoproj.io/v1alpha1/Rollout/rollouts"
        )
    }
}

impl std::error::Error for InvalidScaleKind {}

fn scale_kind(text: &str) -> Result<ScaleKind, InvalidScaleKind> {
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        [group, version, kind, plural] if parts.iter().all(|p| !p.is_empty()) => Ok(ScaleKind {
            api_version: format!("{group}/{version}"),
            kind: (*kind).to_owned(),
            plural: (*plural).to_owned(),
        }),
        _ => Err(InvalidScaleKind(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, String> {
        let args = ["coppice-operator"].iter().chain(args);
        Args::try_parse_from(args).map_err(|e| e.to_string())
    }

    #[test]
    fn further_kinds_are_read_and_bad_ones_explained() {
        let args = parse(&["--scale-kind", "argoproj.io/v1alpha1/Rollout/rollouts"]).unwrap();
        assert_eq!(args.scale_kinds[0].api_version, "argoproj.io/v1alpha1");
        assert!(parse(&["--scale-kind", "Rollout"]).unwrap_err().contains("GROUP/VERSION/KIND/PLURAL"));
    }

    #[test]
    fn the_log_has_one_of_two_forms() {
        let format = |args: &[&str]| parse(args).map(|args| args.log_format);
        assert_eq!(format(&[]), Ok(LogFormat::Text));
        assert_eq!(format(&["--log-format", "json"]), Ok(LogFormat::Json));
        let error = format(&["--log-format", "xml"]).unwrap_err();
        assert!(error.contains("[possible values: text, json]"), "{error}");
    }

    #[test]
    fn waking_takes_the_operators_flags_before_and_after() {
        let args = parse(&["--namespace", "own", "wake-all", "--wait", "5m", "--lease-name", "l"]).unwrap();
        assert_eq!((args.namespace.as_str(), args.lease_name()), ("own", "l"));
        let Some(Command::WakeAll { wait }) = args.command else { panic!("{:?}", args.command) };
        assert_eq!(wait, Duration::from_mins(5));
        assert!(parse(&["wake-all", "--wait", "600"]).unwrap_err().contains("no unit"));
        assert!(parse(&[]).unwrap().command.is_none());
    }

    #[test]
    fn each_program_has_a_lease_of_its_own() {
        assert_eq!(parse(&[]).unwrap().lease_name(), "coppice-operator");
        assert_eq!(parse(&["trees"]).unwrap().lease_name(), "coppice-trees");
        assert_eq!(parse(&["wake-all"]).unwrap().lease_name(), "coppice-operator");
        assert_eq!(parse(&["trees", "--lease-name", "other"]).unwrap().lease_name(), "other");
    }

    #[test]
    fn metrics_are_for_those_who_may_read_them_unless_they_are_for_everybody() {
        assert!(!parse(&[]).unwrap().metrics_insecure);
        assert!(parse(&["--metrics-insecure"]).unwrap().metrics_insecure);
        assert!(parse(&["--metrics-insecure", "--metrics-cert-dir", "a"]).is_err());
    }

    #[test]
    fn the_admission_webhook_is_called_by_the_name_of_its_service_unless_it_has_others() {
        let names = |args: &[&str]| match parse(args)?.command {
            Some(Command::Trees(trees)) => Ok(trees.admission_names("own")),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(names(&["trees"]).unwrap(), ["coppice-trees-admission.own.svc"]);
        let listens = ["trees", "--listen-admission", "127.0.0.1:0", "--admission-name", "127.0.0.1,a"];
        assert_eq!(names(&listens).unwrap(), ["127.0.0.1", "a"]);
        assert!(names(&["trees", "--admission-name", "a"]).unwrap_err().contains("--listen-admission"));
    }

    #[test]
    fn times_need_units() {
        assert!(parse(&["--lease-duration", "15"]).unwrap_err().contains("no unit"));
    }
}
