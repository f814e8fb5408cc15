//! One entry of `spec.tenants.webhookHosts`.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use thiserror::Error;

use super::{Destination, dns_name};

/// The longest entry that is read, in bytes: a name of 253 with room for a wildcard and a port.
const MAX_ENTRY_LENGTH: usize = 300;

/// The label that stands for the namespace of the manager.
const NAMESPACE: &str = "{namespace}";

/// An entry that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostEntry {
    /// A host, or every host below a suffix; the name is lower-case ASCII without a trailing dot. A label of it may be
    /// [`NAMESPACE`].
    Name { name: String, below: bool, port: Option<u16> },
    /// Addresses; IPv4-mapped ones are written as IPv4.
    Addresses { net: IpNet, port: Option<u16> },
}

impl HostEntry {
    pub(super) fn permits_name(&self, host: &str, at: u16, namespace: &str) -> bool {
        let Self::Name { name, below, port } = self else { return false };
        let mut labels = host.rsplit('.');
        let suffix = name.rsplit('.').all(|wanted| {
            let wanted = if wanted == NAMESPACE { namespace } else { wanted };
            labels.next().is_some_and(|label| !label.is_empty() && label == wanted)
        });
        suffix && labels.next().is_some() == *below && port.is_none_or(|port| port == at)
    }

    pub(super) fn lists_address(&self, address: IpAddr, at: u16) -> bool {
        let Self::Addresses { net, port } = self else { return false };
        net.contains(&address.to_canonical()) && port.is_none_or(|port| port == at)
    }
}

/// An entry of `webhookHosts` that permits nothing because it could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the entry {entry:?} of webhookHosts {problem}")]
pub struct HostEntryError {
    /// The entry as it was written.
    pub entry: String,
    /// What is wrong with it.
    pub problem: HostEntryProblem,
}

/// What is wrong with an entry of `webhookHosts`, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostEntryProblem {
    /// Nothing but blanks.
    #[error("is empty; write a host such as \"ci.example.org\", or remove it")]
    Empty,
    /// Longer than any host.
    #[error("is longer than {MAX_ENTRY_LENGTH} bytes; write a host such as \"ci.example.org\"")]
    TooLong,
    /// A whole URL.
    #[error("is a URL; write only the host and the port: {write:?}")]
    Url {
        /// What to write.
        write: String,
    },
    /// Something behind a `/` that is no prefix length.
    #[error("has a path; write only the host and, if it matters, the port: {write:?}")]
    Path {
        /// What to write.
        write: String,
    },
    /// A prefix that does not parse.
    #[error("is no IP prefix; write for example \"10.1.0.0/16\" or \"fd00:1::/64\" (a prefix takes no port)")]
    Prefix,
    /// A prefix with bits set behind its length.
    #[error(
        "has bits set behind the prefix length; write {network:?} for the whole prefix, or the address alone for one address"
    )]
    HostBits {
        /// The prefix with those bits cleared.
        network: String,
    },
    /// `*` anywhere but as the whole first label.
    #[error(
        "has a * in a place where it means nothing; write \"*.suffix\" for every host below a suffix, or each host by itself"
    )]
    Wildcard,
    /// Braces anywhere but around `namespace` as a whole label.
    #[error(
        "has braces in a place where they mean nothing; write {{namespace}} as a whole label, as in \"*.{{namespace}}.svc\", for the namespace of the manager"
    )]
    Placeholder,
    /// A port that is not a number from 1 to 65535.
    #[error("has a port that is not a number from 1 to 65535; write for example \"ci.example.org:443\"")]
    Port,
    /// An IPv4 address in an unusual spelling.
    #[error("is an unusual way to write an IP address; write {address:?}")]
    Spelling {
        /// The usual spelling.
        address: String,
    },
    /// Not a host name at all.
    #[error(
        "is neither a host name nor an IP address; write for example \"ci.example.org\", \"*.svc\", \"10.1.2.3:8080\" or \"[fd00::1]:8080\""
    )]
    NotAHost,
}

pub(super) fn parse(text: &str) -> Result<HostEntry, HostEntryProblem> {
    let text = text.trim();
    if text.is_empty() {
        return Err(HostEntryProblem::Empty);
    }
    if text.len() > MAX_ENTRY_LENGTH {
        return Err(HostEntryProblem::TooLong);
    }
    if text.contains("://") {
        let write =
            Destination::parse(text).map_or_else(|_| "ci.example.org:443".to_owned(), |url| url.entry());
        return Err(HostEntryProblem::Url { write });
    }
    if let Some((host, length)) = text.split_once('/') {
        return prefix(text, host, length);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(HostEntry::Addresses { net: canonical(address.into()), port: None });
    }
    let (host, port) = split_port(text)?;
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: std::net::Ipv6Addr = address.parse().map_err(|_| HostEntryProblem::NotAHost)?;
        return Ok(HostEntry::Addresses { net: canonical(IpAddr::V6(address).into()), port });
    }
    if let Ok(address) = host.parse::<std::net::Ipv4Addr>() {
        return Ok(HostEntry::Addresses { net: IpAddr::V4(address).into(), port });
    }
    name(host, port)
}

fn name(host: &str, port: Option<u16>) -> Result<HostEntry, HostEntryProblem> {
    let (host, below) = host.strip_prefix("*.").map_or((host, false), |suffix| (suffix, true));
    if host.contains('*') {
        return Err(HostEntryProblem::Wildcard);
    }
    if host.contains(['{', '}']) {
        return with_placeholder(host).map(|name| HostEntry::Name { name, below, port });
    }
    match url::Host::parse(host) {
        Ok(url::Host::Domain(name)) => {
            let name = dns_name(&name).ok_or(HostEntryProblem::NotAHost)?.to_owned();
            Ok(HostEntry::Name { name, below, port })
        }
        Ok(url::Host::Ipv4(address)) => Err(HostEntryProblem::Spelling { address: address.to_string() }),
        Ok(url::Host::Ipv6(_)) | Err(_) => Err(HostEntryProblem::NotAHost),
    }
}

/// A name in which labels stand for the namespace: as a name it is read with another label in their place.
fn with_placeholder(host: &str) -> Result<String, HostEntryProblem> {
    let host = host.to_ascii_lowercase();
    let plain = |label| if label == NAMESPACE { "n" } else { label };
    let plain: Vec<&str> = host.split('.').map(plain).collect();
    let plain = plain.join(".");
    if plain.contains(['{', '}']) {
        return Err(HostEntryProblem::Placeholder);
    }
    match url::Host::parse(&plain) {
        Ok(url::Host::Domain(name)) if name == plain && dns_name(&name).is_some() => {
            Ok(host.strip_suffix('.').unwrap_or(&host).to_owned())
        }
        _ => Err(HostEntryProblem::NotAHost),
    }
}

fn prefix(text: &str, host: &str, length: &str) -> Result<HostEntry, HostEntryProblem> {
    if host.parse::<IpAddr>().is_err() {
        let number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        return Err(if number {
            HostEntryProblem::Prefix
        } else {
            HostEntryProblem::Path { write: host.to_owned() }
        });
    }
    let net: IpNet = text.parse().map_err(|_| HostEntryProblem::Prefix)?;
    if net.addr() != net.network() {
        return Err(HostEntryProblem::HostBits { network: net.trunc().to_string() });
    }
    Ok(HostEntry::Addresses { net: canonical(net), port: None })
}

/// Writes a prefix of IPv4-mapped addresses as the IPv4 prefix that it is.
fn canonical(net: IpNet) -> IpNet {
    let IpAddr::V4(address) = net.addr().to_canonical() else { return net };
    let IpNet::V6(mapped) = net else { return net };
    mapped
        .prefix_len()
        .checked_sub(96)
        .and_then(|length| Ipv4Net::new(address, length).ok())
        .map_or(net, IpNet::V4)
}

/// Splits `host`, `host:port`, `[v6]` and `[v6]:port`; the host may still be nonsense.
fn split_port(text: &str) -> Result<(&str, Option<u16>), HostEntryProblem> {
    if text.ends_with(']') {
        return Ok((text, None));
    }
    let Some((host, port)) = text.rsplit_once(':') else { return Ok((text, None)) };
    if host.contains(':') && !host.starts_with('[') {
        return Err(HostEntryProblem::NotAHost);
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(port) if digits && port > 0 => Ok((host, Some(port))),
        _ => Err(HostEntryProblem::Port),
    }
}
