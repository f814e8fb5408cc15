//! Where a webhook may go: the URL a tenant wrote against the hosts the platform permits.
//!
//! ```text
//! URL ─parse→ Destination ─permits_host→ (names are resolved elsewhere) ─permits_address, each address→ connect to those
//! ```
//! Nothing here resolves a name or opens a connection. The caller that does must check twice:
//! [`AllowList::permits_host`] before it resolves a name, and [`AllowList::permits_address`] for every address that the
//! name resolves to. It must connect to those addresses and no others.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;
use url::Url;

mod address;
mod host_entry;
#[cfg(test)]
mod tests;

pub use address::{Special, special};
pub use host_entry::{HostEntryError, HostEntryProblem};

use host_entry::HostEntry;

/// The setting that refusals name, unless a list says otherwise.
const SETTING: &str = "spec.tenants.webhookHosts of CoppiceConfig/coppice";

/// The longest URL that is read, in bytes.
pub const MAX_URL_LENGTH: usize = 2048;

/// The hosts and addresses that webhooks may go to. An empty list permits nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList {
    entries: Vec<HostEntry>,
    /// Where it is written, for refusals.
    setting: &'static str,
}

impl Default for AllowList {
    fn default() -> Self {
        Self { entries: Vec::new(), setting: SETTING }
    }
}

impl AllowList {
    /// Reads the entries of `webhookHosts`; invalid entries permit nothing and are returned as errors.
    ///
    /// An entry is a host (`ci.example.org`), every host below a suffix (`*.svc`, which is not `svc` itself), an IP address or an IP
    /// prefix (`10.1.0.0/16`). The label `{namespace}` of a host stands for the namespace of the manager. Hosts and single addresses may be followed by a port (`ci.example.org:443`, `[fd00::1]:8080`); without
    /// one every port is meant.
    pub fn parse(entries: &[String]) -> (Self, Vec<HostEntryError>) {
        let mut list = Self::default();
        let mut errors = Vec::new();
        for text in entries {
            match host_entry::parse(text) {
                Ok(entry) => list.entries.push(entry),
                Err(problem) => errors.push(HostEntryError { entry: text.clone(), problem }),
            }
        }
        (list, errors)
    }

    /// The same, of which refusals say that it is written here.
    #[must_use]
    pub fn of_setting(self, setting: &'static str) -> Self {
        Self { setting, ..self }
    }

    /// The same, which also permits the host of a destination that the platform itself has written: its name, or its address
    /// unless that is a [special](special) one.
    #[must_use]
    pub fn permitting(mut self, destination: &Destination) -> Self {
        let port = Some(destination.port());
        let entry = match destination.host() {
            Host::Name(name) => Some(HostEntry::Name { name: name.to_owned(), below: false, port }),
            Host::Address(address) => {
                let net = address.to_canonical().into();
                special(address).is_none().then_some(HostEntry::Addresses { net, port })
            }
        };
        self.entries.extend(entry);
        self
    }

    /// Whether a destination may be resolved at all for a manager in this namespace: a name needs a name entry, an IP
    /// address needs an IP entry.
    pub fn permits_host(&self, destination: &Destination, namespace: &str) -> Result<(), DestinationError> {
        let (port, setting) = (destination.port(), self.setting);
        match destination.host() {
            Host::Name(name)
                if self.entries.iter().any(|entry| entry.permits_name(name, port, namespace)) =>
            {
                Ok(())
            }
            Host::Address(address) if self.contains(address, port) => Ok(()),
            Host::Name(name) => Err(DestinationError::HostNotListed {
                host: name.to_owned(),
                entry: destination.entry(),
                setting,
            }),
            Host::Address(address) => {
                Err(DestinationError::AddressNotListed { address, entry: destination.entry(), setting })
            }
        }
    }

    /// Whether the connection for a destination may go to this address, one of those that its name led to.
    ///
    /// This does not check the name again. Special addresses (see [`special`]) need an IP entry; an IPv6 address
    /// that only carries such an IPv4 address (NAT64, 6to4) needs an entry for the IPv6 address, except that an IPv4-mapped one is
    /// the same as the IPv4 address.
    pub fn permits_address(
        &self,
        destination: &Destination,
        address: IpAddr,
    ) -> Result<(), DestinationError> {
        let (port, setting) = (destination.port(), self.setting);
        if self.contains(address, port) {
            return Ok(());
        }
        match (destination.host(), special(address)) {
            (Host::Address(_), _) => {
                Err(DestinationError::AddressNotListed { address, entry: destination.entry(), setting })
            }
            (Host::Name(name), Some(special)) => {
                Err(DestinationError::SpecialAddress { host: name.to_owned(), address, special, setting })
            }
            (Host::Name(_), None) => Ok(()),
        }
    }

    fn contains(&self, address: IpAddr, port: u16) -> bool {
        self.entries.iter().any(|entry| entry.lists_address(address, port))
    }
}

/// Why a webhook may not go where its URL leads.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DestinationError {
    /// No name entry covers the host at this port.
    #[error(
        "the webhook host {host:?} is not on the list of permitted hosts; the entry {entry:?} in {setting} would permit it"
    )]
    HostNotListed {
        /// The host of the URL.
        host: String,
        /// The narrowest entry that would permit it.
        entry: String,
        /// The list that does not permit it.
        setting: &'static str,
    },
    /// The URL has an IP address for a host, or was resolved to another one, and no IP entry covers it.
    #[error(
        "the webhook goes to the address {address}, and only an IP entry permits an IP address: the entry {entry:?} in {setting} would"
    )]
    AddressNotListed {
        /// The address.
        address: IpAddr,
        /// The narrowest entry that would permit it.
        entry: String,
        /// The list that does not permit it.
        setting: &'static str,
    },
    /// The name is permitted, but it led to an address that no name may lead to.
    #[error(
        "the webhook host {host:?} resolves to {address}, {special}, which no name may lead to; only the address itself in {setting} would permit it"
    )]
    SpecialAddress {
        /// The host of the URL.
        host: String,
        /// The address it resolved to.
        address: IpAddr,
        /// What is special about the address.
        special: Special,
        /// The list that does not permit it.
        setting: &'static str,
    },
}

/// The host of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host<'a> {
    /// A name to be resolved: lower-case ASCII without a trailing dot.
    Name(&'a str),
    /// An IP address, whichever of its spellings the URL used.
    Address(IpAddr),
}

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// A URL that a webhook can be sent to; the [`AllowList`] decides whether it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    url: Url,
    host: OwnedHost,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OwnedHost {
    Name(String),
    Address(IpAddr),
}

impl Destination {
    /// Reads an `http` or `https` URL with a host and without user, password or fragment, of at most [`MAX_URL_LENGTH`] bytes.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_URL_LENGTH {
            return Err(UrlError::TooLong { length: text.len() });
        }
        let url = Url::parse(text).map_err(UrlError::Syntax)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UrlError::Scheme { scheme: url.scheme().to_owned() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Credentials);
        }
        if url.fragment().is_some() {
            return Err(UrlError::Fragment);
        }
        let host = match url.host() {
            Some(url::Host::Domain(name)) => OwnedHost::Name(
                dns_name(name).ok_or_else(|| UrlError::Host { host: name.to_owned() })?.to_owned(),
            ),
            Some(url::Host::Ipv4(address)) => OwnedHost::Address(address.into()),
            Some(url::Host::Ipv6(address)) => OwnedHost::Address(address.into()),
            None => return Err(UrlError::NoHost),
        };
        let port = url.port_or_known_default().filter(|port| *port > 0).ok_or(UrlError::Port)?;
        Ok(Self { url, host, port })
    }

    /// The URL as it is to be requested.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host: a name to resolve or an address.
    pub fn host(&self) -> Host<'_> {
        match &self.host {
            OwnedHost::Name(name) => Host::Name(name),
            OwnedHost::Address(address) => Host::Address(*address),
        }
    }

    /// The TCP port, which is 80 or 443 when the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The entry of `webhookHosts` that would permit exactly this host and port.
    pub fn entry(&self) -> String {
        match self.host() {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]:{}", self.port()),
            host => format!("{host}:{}", self.port()),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Why a text is not a URL that a webhook can be sent to.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Longer than [`MAX_URL_LENGTH`].
    #[error("the webhook URL has {length} bytes; {MAX_URL_LENGTH} is the most")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// Not a URL.
    #[error("the webhook URL is not one ({0}); write for example \"https://ci.example.org/hook\"")]
    Syntax(url::ParseError),
    /// Neither `http` nor `https`.
    #[error("the webhook URL begins with {scheme:?}; only http and https are possible")]
    Scheme {
        /// The scheme it has.
        scheme: String,
    },
    /// No host.
    #[error("the webhook URL has no host; write for example \"https://ci.example.org/hook\"")]
    NoHost,
    /// A host that DNS cannot have.
    #[error(
        "the webhook URL has the host {host:?}, which is not a DNS name (labels of letters, digits, - and _, 253 bytes in all)"
    )]
    Host {
        /// The host it has.
        host: String,
    },
    /// Port 0.
    #[error("the webhook URL has the port 0; write a port from 1 to 65535, or none")]
    Port,
    /// A user or a password.
    #[error(
        "the webhook URL has a user or a password, which anyone who reads the object would see; leave them out and check the signature"
    )]
    Credentials,
    /// A fragment, which is never sent.
    #[error("the webhook URL has a fragment (#...), which is never sent; leave it out")]
    Fragment,
}

/// A name without its trailing dot, if DNS can have it: labels of 1 to 63 letters, digits, `-` and `_`, at most 253 bytes.
fn dns_name(name: &str) -> Option<&str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    let label = |label: &str| matches!(label.len(), 1..=63) && label.bytes().all(letter);
    (name.len() <= 253 && name.split('.').all(label)).then_some(name)
}
