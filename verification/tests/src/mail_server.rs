//! A mail server, as a process of its own, that remembers what it got and answers as the recipients ask for.
//!
//! It is `tools/mail`, whose `--help` says what it answers to whom: `refused@`, `greylisted@`, `full@`, `slow@` and
//! `rejected@` of any domain. It delivers nothing.

mod mail;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde::Deserialize;
use tempfile::TempDir;

use crate::program::Program;
use crate::test_cluster::until;

pub use mail::Mail;

/// How connections are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all: STARTTLS is not offered.
    None,
    /// STARTTLS is offered.
    #[default]
    StartTls,
    /// TLS from the beginning.
    Implicit,
}

/// What clients have to authenticate with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailCredentials {
    /// The user's name.
    pub username: String,
    /// The password. Any user of the machine can see it in the list of processes.
    pub password: String,
}

/// How a mail server behaves.
#[derive(Clone, Debug)]
pub struct MailServerOptions {
    /// How connections are encrypted.
    pub encryption: Encryption,
    /// What clients have to authenticate with, if they have to: that needs encryption.
    pub credentials: Option<MailCredentials>,
    /// How many attempts are refused for `greylisted@`, of each sender.
    pub greylist_attempts: u32,
    /// How long RCPT takes for `slow@`.
    pub slow: Duration,
}

impl Default for MailServerOptions {
    fn default() -> Self {
        Self {
            encryption: Encryption::default(),
            credentials: None,
            greylist_attempts: 1,
            slow: Duration::from_secs(30),
        }
    }
}

/// One command that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RefusedCommand {
    /// `AUTH`, `MAIL`, `RCPT` or `DATA`.
    pub command: String,
    /// The recipient because of which; empty if it was not for one.
    pub to: String,
    /// The code of the answer.
    pub code: u16,
    /// Its text, beginning with the enhanced code.
    pub text: String,
}

/// A line of its log.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Transaction {
    Accepted(Mail),
    Refused(RefusedCommand),
}

/// A running mail server on 127.0.0.1. It is killed when this is dropped.
pub struct MailServer {
    /// Where it listens.
    pub address: SocketAddr,
    program: Program,
    credentials: Option<MailCredentials>,
    ca_pem: String,
    /// Its log and its certificate.
    _dir: TempDir,
}

impl MailServer {
    /// Starts one, which is built first if need be, with a certificate for `localhost` and 127.0.0.1 of an authority of
    /// its own.
    pub async fn start(options: MailServerOptions) -> anyhow::Result<Self> {
        let binary = tokio::task::spawn_blocking(coppice_plane::mail_server).await??;
        let dir = tempfile::tempdir()?;
        let ca_pem = make_certificate(dir.path())?;
        let log = dir.path().join("mail-server.log");
        let mut program = Program::start_without_kubeconfig(&binary, log, |command| {
            command.args(["--greylist-attempts", &options.greylist_attempts.to_string()]);
            command.args(["--slow", &format!("{}ms", options.slow.as_millis())]);
            if options.encryption != Encryption::None {
                command.arg("--tls-cert").arg(dir.path().join(CERTIFICATE));
                command.arg("--tls-key").arg(dir.path().join(KEY));
            }
            if options.encryption == Encryption::Implicit {
                command.arg("--implicit-tls");
            }
            if let Some(MailCredentials { username, password }) = &options.credentials {
                command.args(["--username", username, "--password", password]);
            }
        })
        .await?;
        let log = program.log.clone();
        let address = tokio::select! {
            found = until("the mail server names its port", async || address(&log)) => {
                found.with_context(|| program.last_lines())?
            }
            ended = program.ended() => anyhow::bail!("it has ended, {}: {}", ended?, program.last_lines()),
        };
        Ok(Self { address, program, credentials: options.credentials, ca_pem, _dir: dir })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The authority of its certificate.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// What clients have to authenticate with.
    pub fn credentials(&self) -> Option<&MailCredentials> {
        self.credentials.as_ref()
    }

    /// The messages that it has accepted so far.
    pub fn accepted(&self) -> Vec<Mail> {
        let accepted = |line| if let Transaction::Accepted(mail) = line { Some(mail) } else { None };
        self.transactions().filter_map(accepted).collect()
    }

    /// The commands that it has refused so far.
    pub fn refused(&self) -> Vec<RefusedCommand> {
        let refused = |line| if let Transaction::Refused(refusal) = line { Some(refusal) } else { None };
        self.transactions().filter_map(refused).collect()
    }

    /// Waits until something is there in all the messages that it has accepted.
    pub async fn until<T>(&self, what: &str, check: impl Fn(&[Mail]) -> Option<T>) -> anyhow::Result<T> {
        let found = until(what, async || check(&self.accepted())).await;
        found.with_context(|| self.program.last_lines())
    }

    /// Waits until something is there in all the commands that it has refused.
    pub async fn until_refused<T>(
        &self,
        what: &str,
        check: impl Fn(&[RefusedCommand]) -> Option<T>,
    ) -> anyhow::Result<T> {
        let found = until(what, async || check(&self.refused())).await;
        found.with_context(|| self.program.last_lines())
    }

    /// In the order in which they came. A line that is still being written is not there yet.
    fn transactions(&self) -> impl Iterator<Item = Transaction> {
        let output = self.program.output();
        let lines: Vec<_> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.into_iter()
    }
}

/// Where it listens, once its log says so.
fn address(log: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(log).ok()?;
    let (line, _) = text.split_once('\n')?;
    line.strip_prefix("listening on ")?.parse().ok()
}

const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server-key.pem";

/// Writes a certificate with its key into a folder, and returns the authority's.
fn make_certificate(dir: &Path) -> anyhow::Result<String> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "coppice mail server");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let server = CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned))?;
    std::fs::write(dir.join(CERTIFICATE), server.signed_by(&key, &authority)?.pem())?;
    std::fs::write(dir.join(KEY), key.serialize_pem())?;
    Ok(authority.pem())
}
