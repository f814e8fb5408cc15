//! One attempt to deliver one webhook.
//!
//! The host is checked before its name is looked up, every address that it resolves to is checked after, and the
//! attempt has an HTTP client of its own that knows these addresses and no resolver, proxy, redirect or older
//! connection: it cannot connect anywhere else. Only a channel of the platform can have a proxy: the host is checked, and the
//! proxy alone decides to which address its name leads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coppice_api::text::acts_on_terminal;
use coppice_destination::{AllowList, Destination, DestinationError, Host};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, ClientBuilder, Proxy, Response, StatusCode, redirect, retry};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::key::SigningKey;
use crate::roots::{Roots, RootsError};

/// The largest body that is sent, in bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024;
/// How much of an answer is read, in bytes; the rest is never asked for.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The longest wait that a receiver can ask for with `retry-after`.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

const MAX_ID_LENGTH: usize = 128;
/// How much of an answer is kept for the log, in bytes.
const MAX_EXCERPT_BYTES: usize = 200;
/// How long a delivered webhook waits for the rest of the answer, so that the receiver can finish writing it.
const DRAIN: Duration = Duration::from_secs(1);
const USER_AGENT: &str = concat!("coppice/", env!("CARGO_PKG_VERSION"));

/// What a [`WebhookClient`] needs.
pub struct WebhookSettings {
    /// The key that signs.
    pub key: SigningKey,
    /// The longest wait for a connection, TLS included.
    pub connect_timeout: Duration,
    /// The longest wait for everything up to the head of the answer, name resolution included.
    pub timeout: Duration,
    /// More certificate authorities to trust, as a PEM bundle; empty for none.
    pub extra_roots_pem: Vec<u8>,
    /// How names become addresses.
    pub lookup: Arc<dyn Resolver>,
}

impl WebhookSettings {
    /// The defaults: 3 s to connect, 10 s in all, the platform's certificate authorities and the system's resolver.
    pub fn new(key: SigningKey) -> Self {
        Self {
            key,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(10),
            extra_roots_pem: Vec::new(),
            lookup: Arc::new(SystemResolver),
        }
    }
}

/// Turns names into addresses.
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of a host, each with the given port.
    fn lookup<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver, with its search domains.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn lookup<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}

/// One attempt to be made.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// The firing's id, the same for every attempt: 1 to 128 letters, digits, `-` and `_`.
    pub id: String,
    /// Where to.
    pub destination: Destination,
    /// Where webhooks may go: each of these lists has to permit it.
    pub allow: Vec<AllowList>,
    /// The namespace that it is sent for.
    pub namespace: String,
    /// The JSON to be sent, at most [`MAX_BODY_BYTES`] bytes.
    pub body: Vec<u8>,
    /// The time of this attempt, which is signed.
    pub now: Timestamp,
}

/// A receiver answered with 2xx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The status code, 200 to 299.
    pub status: u16,
    /// The address that was connected to.
    pub address: Option<SocketAddr>,
}

/// Why an attempt did not deliver. The texts are for people who may read the object, and come from a fixed list: none shows what a
/// receiver answered, what its certificate says or what a library said, because that could be of a service they cannot reach
/// themselves. Causes and excerpts are for the operator's debug log alone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SendError {
    /// The destination is not permitted.
    #[error(transparent)]
    Refused(#[from] DestinationError),
    /// The id cannot be signed safely.
    #[error("the webhook's id {id:?} is not 1 to {MAX_ID_LENGTH} letters, digits, - and _")]
    Id {
        /// The id.
        id: String,
    },
    /// The body is larger than [`MAX_BODY_BYTES`].
    #[error("the webhook's body has {bytes} bytes; {MAX_BODY_BYTES} is the most")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// The host has no address, or the resolver did not answer.
    #[error("the webhook host {host:?} cannot be resolved: check the name, and that the Service exists")]
    Resolve {
        /// The host.
        host: String,
        /// What the resolver said, for the log.
        cause: String,
    },
    /// No connection, or no TLS on it.
    #[error("no connection to the webhook receiver: {why}")]
    Connect {
        /// What is wrong.
        why: NoConnection,
        /// The innermost cause, for the log.
        cause: String,
    },
    /// No answer in time.
    #[error("the webhook receiver did not answer within {} s", after.as_secs_f64())]
    Timeout {
        /// How long it had.
        after: Duration,
    },
    /// The connection broke, or what came over it was not HTTP.
    #[error("the webhook receiver closed the connection or did not answer as HTTP does")]
    Broken {
        /// The innermost cause, for the log.
        cause: String,
    },
    /// An answer of 3xx.
    #[error(
        "the webhook receiver answered {code}, a redirect, which is never followed; write the final address into the URL"
    )]
    Redirect {
        /// The status code.
        code: u16,
    },
    /// Another answer that is not 2xx.
    #[error("the webhook receiver answered {code}")]
    Status {
        /// The status code.
        code: u16,
        /// The beginning of the answer on one line, for the operator's log only.
        excerpt: String,
        /// How long the receiver asked to wait, at most [`MAX_RETRY_AFTER`].
        retry_after: Option<Duration>,
    },
}

/// Why there is no connection, or no TLS on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoConnection {
    /// Nobody listens there.
    #[error("it is refused; check the port, and that the receiver runs")]
    Refused,
    /// No route, or a broken one.
    #[error("no network route leads to the receiver")]
    Unreachable,
    /// It took too long.
    #[error(
        "the receiver does not answer in time; check the address, and that no NetworkPolicy is in the way"
    )]
    TimedOut,
    /// It was closed at once.
    #[error("the receiver closes it; check that the URL begins with the right one of http and https")]
    Closed,
    /// The certificate has expired, or is not valid yet.
    #[error("the receiver's certificate is not valid at this time; renew it")]
    CertificateTime,
    /// The authority is not trusted.
    #[error(
        "the receiver's certificate is from an authority that is not trusted; an administrator can add it with --webhook-ca-file"
    )]
    CertificateAuthority,
    /// A certificate for another host.
    #[error("the receiver's certificate is for another host than the URL's")]
    CertificateHost,
    /// Something else about the certificate.
    #[error("the receiver's certificate is not accepted")]
    Certificate,
    /// No TLS, for another reason than the receiver's certificate.
    #[error(
        "no TLS can be agreed on; the receiver has to offer TLS 1.2 or 1.3 and ask for no client certificate"
    )]
    Tls,
    /// A proxy connects to nobody.
    #[error(
        "the proxy does not connect to the receiver; check what it permits, and whether it asks for a login"
    )]
    Proxy,
    /// Anything else.
    #[error("it fails; the operator's debug log has the cause")]
    Other,
}

impl NoConnection {
    /// Every one of them.
    pub const ALL: [Self; 11] = [
        Self::Refused,
        Self::Unreachable,
        Self::TimedOut,
        Self::Closed,
        Self::CertificateTime,
        Self::CertificateAuthority,
        Self::CertificateHost,
        Self::Certificate,
        Self::Tls,
        Self::Proxy,
        Self::Other,
    ];

    /// By the first cause that says something.
    pub(crate) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Self::of_tls(error);
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            // An I/O error hides the error in it from `source`, which gives that one's source.
            let inner = error.get_ref().map_or(Self::Other, |inner| Self::of(inner));
            return if inner == Self::Other { Self::of_io(error.kind()) } else { inner };
        }
        // The error of a tunnel has a text alone: its type cannot be named.
        let last = || if error.to_string().starts_with("tunnel error: ") { Self::Proxy } else { Self::Other };
        error.source().map_or_else(last, Self::of)
    }

    fn of_io(kind: io::ErrorKind) -> Self {
        use io::ErrorKind;
        match kind {
            ErrorKind::ConnectionRefused => Self::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                Self::Unreachable
            }
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Other,
        }
    }

    fn of_tls(error: &rustls::Error) -> Self {
        use rustls::{CertificateError, Error};
        match error {
            Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => Self::CertificateTime,
            // A signature that is wrong is of an authority of the same name, such as a renewed one.
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
                Self::CertificateAuthority
            }
            Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Self::CertificateHost,
            Error::InvalidCertificate(_) | Error::NoCertificatesPresented => Self::Certificate,
            _ => Self::Tls,
        }
    }
}

impl SendError {
    /// Whether another attempt of the same request is pointless: it is not permitted, cannot be sent, or the receiver is gone for
    /// good (410).
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Id { .. } | Self::TooLarge { .. } => true,
            Self::Status { code, .. } => *code == StatusCode::GONE,
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::Redirect { .. } => false,
        }
    }

    /// Whether it shows that the receiver works; none if nothing was sent because of the request itself.
    pub fn receiver_works(&self) -> Option<bool> {
        match self {
            Self::Id { .. } | Self::TooLarge { .. } => None,
            Self::Status { code, .. } => Some(*code < 500 && *code != StatusCode::TOO_MANY_REQUESTS),
            Self::Refused(_)
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::Redirect { .. } => Some(false),
        }
    }

    /// How long the receiver asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Status { retry_after, .. } = self { *retry_after } else { None }
    }
}

/// How the webhooks of a channel are sent, which the platform has written, where that differs from those of tenants.
#[derive(Default)]
pub(crate) struct Route {
    /// Whom to trust.
    pub(crate) tls: Option<rustls::ClientConfig>,
    /// Through which proxy.
    pub(crate) proxy: Option<Proxy>,
}

/// Signs webhooks and posts them, each with a client of its own.
pub struct WebhookClient {
    settings: WebhookSettings,
    tls: rustls::ClientConfig,
}

impl WebhookClient {
    /// Reads the certificate authorities.
    pub fn new(settings: WebhookSettings) -> Result<Self, RootsError> {
        Self::with_roots(settings, &Roots::of_platform())
    }

    /// The same with the platform's authorities as they are known already.
    pub(crate) fn with_roots(settings: WebhookSettings, roots: &Roots) -> Result<Self, RootsError> {
        let tls = roots.client_config(&settings.extra_roots_pem)?;
        Ok(Self { settings, tls })
    }

    /// Makes one attempt. Dropping the future ends it; the receiver may have got the request all the same.
    pub async fn send(&self, request: WebhookRequest) -> Result<Delivered, SendError> {
        self.send_by(request, Route::default()).await
    }

    /// The same by a route of its own.
    pub(crate) async fn send_by(
        &self,
        request: WebhookRequest,
        route: Route,
    ) -> Result<Delivered, SendError> {
        if !is_id(&request.id) {
            return Err(SendError::Id { id: request.id });
        }
        if request.body.len() > MAX_BODY_BYTES {
            return Err(SendError::TooLarge { bytes: request.body.len() });
        }
        for list in &request.allow {
            list.permits_host(&request.destination, &request.namespace)?;
        }
        let timeout = self.settings.timeout;
        let deadline = Instant::now() + timeout;
        let response = timeout_at(deadline, self.exchange(request, route))
            .await
            .map_err(|_| SendError::Timeout { after: timeout })??;
        read_response(response, deadline).await
    }

    async fn exchange(&self, request: WebhookRequest, route: Route) -> Result<Response, SendError> {
        let client = self.client(&request, route).await?;
        let timestamp = request.now.as_second();
        let signature = self.settings.key.sign(&request.id, timestamp, &request.body);
        client
            .post(request.destination.url().clone())
            .header("content-type", "application/json")
            .header("webhook-id", request.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(request.body)
            .send()
            .await
            .map_err(|error| failed(&error))
    }

    /// The addresses of the destination, every one of them permitted; one that is not refuses them all.
    async fn checked_addresses(&self, request: &WebhookRequest) -> Result<Vec<SocketAddr>, SendError> {
        let destination = &request.destination;
        let addresses = match destination.host() {
            Host::Address(address) => vec![SocketAddr::new(address, destination.port())],
            Host::Name(name) => {
                let unresolved = |cause: String| SendError::Resolve { host: name.to_owned(), cause };
                let found =
                    self.settings.lookup.lookup(requested_host(destination), destination.port()).await;
                let found = found.map_err(|error| unresolved(error.to_string()))?;
                if found.is_empty() {
                    return Err(unresolved("it has no address".to_owned()));
                }
                found
            }
        };
        for list in &request.allow {
            for address in &addresses {
                list.permits_address(destination, address.ip())?;
            }
        }
        Ok(addresses)
    }

    /// A client that can connect to checked addresses only; through a proxy, which resolves the name itself, to that alone.
    async fn client(&self, request: &WebhookRequest, route: Route) -> Result<Client, SendError> {
        let tls = route.tls.unwrap_or_else(|| self.tls.clone());
        let builder = client_builder(tls, self.settings.connect_timeout);
        let builder = if let Some(proxy) = route.proxy {
            builder.proxy(proxy)
        } else {
            let addresses = self.checked_addresses(request).await?;
            let host = requested_host(&request.destination).to_owned();
            builder.dns_resolver(Pinned { host, addresses })
        };
        builder
            .build()
            .map_err(|error| SendError::Connect { why: NoConnection::Other, cause: innermost(&error) })
    }
}

/// A client for one attempt: it follows no redirect, repeats nothing, keeps no connection, and asks no proxy of the environment.
pub(crate) fn client_builder(tls: rustls::ClientConfig, connect_timeout: Duration) -> ClientBuilder {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .http1_only()
        .pool_max_idle_per_host(0)
        .connect_timeout(connect_timeout)
        .user_agent(USER_AGENT)
}

/// Answers for one host with addresses that were checked, and for no other.
struct Pinned {
    host: String,
    addresses: Vec<SocketAddr>,
}

impl Resolve for Pinned {
    fn resolve(&self, name: Name) -> Resolving {
        let answer: Result<Addrs, Box<dyn std::error::Error + Send + Sync>> = if name.as_str() == self.host {
            Ok(Box::new(self.addresses.clone().into_iter()))
        } else {
            Err(format!("{:?} is not the host that was checked", name.as_str()).into())
        };
        std::future::ready(answer).boxed()
    }
}

/// The host as the URL has it: a trailing dot keeps the resolver from trying its search domains.
fn requested_host(destination: &Destination) -> &str {
    destination.url().host_str().unwrap_or_default()
}

fn is_id(id: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    matches!(id.len(), 1..=MAX_ID_LENGTH) && id.bytes().all(letter)
}

async fn read_response(response: Response, deadline: Instant) -> Result<Delivered, SendError> {
    let status = response.status();
    if status.is_success() {
        let address = response.remote_addr();
        read(response, MAX_RESPONSE_BYTES, deadline.min(Instant::now() + DRAIN)).await;
        return Ok(Delivered { status: status.as_u16(), address });
    }
    if status.is_redirection() {
        return Err(SendError::Redirect { code: status.as_u16() });
    }
    let retry_after = retry_after(&response);
    let body = read(response, MAX_EXCERPT_BYTES, deadline).await;
    Err(SendError::Status { code: status.as_u16(), excerpt: excerpt(&body), retry_after })
}

/// How long an answer asks to wait, at most [`MAX_RETRY_AFTER`].
pub(crate) fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// The beginning of an answer, at most `limit` bytes of it, as far as it came before the deadline and without an error.
pub(crate) async fn read(mut response: Response, limit: usize, deadline: Instant) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < limit {
        let Ok(Ok(Some(chunk))) = timeout_at(deadline, response.chunk()).await else { break };
        body.extend_from_slice(&chunk[..chunk.len().min(limit - body.len())]);
    }
    body
}

/// One line without characters that act on a terminal.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body).replace(acts_on_terminal, " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn failed(error: &reqwest::Error) -> SendError {
    let cause = innermost(error);
    match no_connection(error) {
        Some(why) => SendError::Connect { why, cause },
        None => SendError::Broken { cause },
    }
}

/// Why there was no connection; none if there was one, and it broke.
pub(crate) fn no_connection(error: &reqwest::Error) -> Option<NoConnection> {
    // The time to connect ends by an error without a cause.
    let why = || if error.is_timeout() { NoConnection::TimedOut } else { NoConnection::of(error) };
    error.is_connect().then(why)
}

/// The text of the cause of the causes; the outer ones only repeat the URL.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
