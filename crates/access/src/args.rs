//! The program's options: flags, each also an environment variable.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Parser, Subcommand};
use coppice_access::release_all::CredentialHandling;
use coppice_clusters::kubeconfig::Unencrypted;
use coppice_clusters_api::names::{PROGRAM, SYSTEM_NAMESPACE};
use coppice_quantity::DurationError;
use coppice_runtime::lease::LeaseSettings;
use coppice_runtime::logging::LogFormat;
use coppice_serve::startup::StartOptions;

/// Keeps credentials for other clusters: issues them as each ClusterAccess says, replaces them before they expire, and revokes them.
#[derive(Clone, Debug, Parser)]
#[command(name = PROGRAM, version, about, long_about = None)]
pub(crate) struct Args {
    /// What to do instead of keeping credentials.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Connect by this kubeconfig; by default by the service account of the pod, else as kubectl would.
    #[arg(long, global = true, env = "COPPICE_KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig.
    #[arg(long, global = true, env = "COPPICE_CONTEXT", value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The namespace that the program lives in, with its Lease and the kubeconfigs of ClusterProviders.
    #[arg(long, global = true, env = "COPPICE_NAMESPACE", value_name = "NAME", default_value = SYSTEM_NAMESPACE)]
    pub(crate) namespace: String,

    /// Where to serve /metrics.
    #[arg(long, env = "COPPICE_LISTEN", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,

    /// Serve /metrics by http:// and to everybody. Otherwise it is served by https:// and to those alone whose token the API server
    /// knows and who may get the path (ClusterRole coppice-metrics-reader).
    #[arg(long, env = "COPPICE_METRICS_INSECURE", value_parser = BoolishValueParser::new())]
    pub(crate) metrics_insecure: bool,

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

    /// What to log, as `target=level` pairs: `info,coppice_access=debug`.
    #[arg(long, global = true, env = "COPPICE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// This replica's name in the Lease and in Events; by default the pod's name.
    #[arg(long, global = true, env = "POD_NAME", value_name = "NAME")]
    pub(crate) identity: Option<String>,

    /// How long a replica that does not answer keeps the Lease.
    #[arg(long, global = true, env = "COPPICE_LEASE_DURATION", value_name = "TIME", default_value = "15s", value_parser = time)]
    pub(crate) lease_duration: Duration,

    /// How long the leader tries to renew before it gives up and exits.
    #[arg(long, global = true, env = "COPPICE_LEASE_RENEW_DEADLINE", value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) lease_renew_deadline: Duration,

    /// How often the Lease is renewed or asked for.
    #[arg(long, global = true, env = "COPPICE_LEASE_RETRY_PERIOD", value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) lease_retry_period: Duration,

    /// How many ClusterAccesses are worked on at once.
    #[arg(long, env = "COPPICE_CONCURRENCY", value_name = "N", default_value = "16")]
    pub(crate) concurrency: NonZeroUsize,

    /// Whether clusters are made, changed and deleted as ManagedClusters say.
    #[arg(
        long,
        env = "COPPICE_MANAGED_CLUSTERS",
        value_name = "MODE",
        default_value = "disabled",
        action = ArgAction::Set,
        value_parser = PossibleValuesParser::new(["disabled", "enabled"]).map(|mode| mode == "enabled")
    )]
    pub(crate) managed_clusters: bool,

    /// Use kubeconfigs with a server that is a loopback address without TLS, too: for tests alone, since whatever listens there then gets
    /// the credentials.
    #[arg(long, env = "COPPICE_UNENCRYPTED_LOOPBACK", value_parser = BoolishValueParser::new(), hide = true)]
    pub(crate) unencrypted_loopback: bool,

    /// For how long the leader sees that something in a target is of a ClusterAccess that is gone, until it deletes it: for tests alone, since
    /// that time is there to put a wrong backup right.
    #[arg(long, env = "COPPICE_GONE_FOR", value_name = "TIME", default_value = "1h", value_parser = time, hide = true)]
    pub(crate) gone_for: Duration,
}

/// What the program does besides keeping credentials.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Takes Coppice's finalizer off every ClusterAccess and ManagedCluster, before coppice-access is uninstalled. It takes the Lease from the
    /// program that leads, which then does nothing any more, revokes what is being deleted, and names what stays valid, until when, and which
    /// clusters are kept. No cluster is deleted. It fails if an object has the finalizer still.
    ReleaseAll(ReleaseAllArgs),
}

/// How everything is released.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReleaseAllArgs {
    /// What becomes of the credentials of ClusterAccesses that nobody has deleted. keep: they stay in their Secrets, and are valid until they
    /// expire. revoke: each ClusterAccess is deleted, by which its credential is revoked.
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "keep",
        action = ArgAction::Set,
        value_parser = PossibleValuesParser::new(["keep", "revoke"]).map(|what| credentials(&what))
    )]
    pub(crate) credentials: CredentialHandling,

    /// For how long it is tried to revoke what is being deleted. Then its finalizer is taken off, too.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time)]
    pub(crate) wait: Duration,

    /// For how long no replica leads after that, so that the program can be removed.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = time)]
    pub(crate) hold: Duration,

    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

fn credentials(what: &str) -> CredentialHandling {
    if what == "revoke" { CredentialHandling::Revoke } else { CredentialHandling::Keep }
}

impl Args {
    /// To which targets credentials may go unencrypted.
    pub(crate) const fn unencrypted(&self) -> Unencrypted {
        if self.unencrypted_loopback { Unencrypted::ToLoopback } else { Unencrypted::Nowhere }
    }

    /// What they say about the start of the program.
    pub(crate) fn start_options(&self) -> StartOptions {
        StartOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            listen: self.listen,
            metrics_insecure: self.metrics_insecure,
            metrics_cert_dir: None,
            listen_probes: self.listen_probes,
            name: self.identity.clone().unwrap_or_else(|| PROGRAM.to_owned()),
        }
    }

    /// The Lease, for a process of that identity.
    pub(crate) fn lease(&self, identity: &str, seed: u64) -> LeaseSettings {
        LeaseSettings {
            duration: self.lease_duration,
            renew_deadline: self.lease_renew_deadline,
            retry: self.lease_retry_period,
            seed,
            ..LeaseSettings::new(&self.namespace, PROGRAM, identity)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releasing_takes_the_programs_flags_before_and_after_and_keeps_credentials_unless_they_are_to_be_revoked()
     {
        let parse = |args: &[&str]| {
            Args::try_parse_from(["coppice-access"].iter().chain(args)).map_err(|e| e.to_string())
        };
        let released = |args: &[&str]| match parse(args)?.command {
            Some(Command::ReleaseAll(own)) => Ok(own),
            None => Err("no command".to_owned()),
        };
        let args = parse(&["--namespace", "own", "release-all", "--lease-duration", "30s"]).unwrap();
        assert_eq!((args.namespace.as_str(), args.lease_duration.as_secs()), ("own", 30));
        let own = released(&["release-all"]).unwrap();
        assert_eq!((own.credentials, own.dry_run), (CredentialHandling::Keep, false));
        assert_eq!((own.wait, own.hold), (Duration::from_mins(5), Duration::from_mins(15)));
        let own = released(&["release-all", "--credentials", "revoke", "--wait", "1m", "--dry-run"]).unwrap();
        assert_eq!(
            (own.credentials, own.wait, own.dry_run),
            (CredentialHandling::Revoke, Duration::from_mins(1), true)
        );
        assert!(
            released(&["release-all", "--credentials", "all"])
                .unwrap_err()
                .contains("[possible values: keep, revoke]")
        );
        assert!(released(&["release-all", "--wait", "600"]).unwrap_err().contains("no unit"));
        assert!(parse(&[]).unwrap().command.is_none());
    }

    #[test]
    fn the_lease_has_the_name_of_the_program_in_its_own_namespace() {
        let lease = Args::parse_from(["coppice-access"]).lease("me", 7);
        assert_eq!(
            (lease.namespace.as_str(), lease.name.as_str()),
            ("coppice-access-system", "coppice-access")
        );
        assert!(lease.validate().is_ok());
        assert_eq!(Args::parse_from(["coppice-access"]).unencrypted(), Unencrypted::Nowhere);
        assert_eq!(Args::parse_from(["coppice-access"]).gone_for, coppice_access::GONE_FOR);
        for (mode, is_enabled) in [("disabled", false), ("enabled", true)] {
            let args = Args::parse_from(["coppice-access", "--managed-clusters", mode]);
            assert_eq!(args.managed_clusters, is_enabled);
        }
        let error =
            Args::try_parse_from(["coppice-access", "--lease-duration", "15"]).unwrap_err().to_string();
        assert!(error.contains("no unit"), "{error}");
    }
}
