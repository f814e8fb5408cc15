//! Mail by SMTP: a connection for each message, so that a server that hangs or a changed credential concerns no other one.

use std::error::Error;
use std::time::Duration;

use coppice_api::channel::{EmailChannel, EmailTls};
use lettre::address::Address;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart};
use lettre::transport::smtp::authentication::{Credentials as Login, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::{Code, Response, Severity};
use lettre::transport::smtp::{self};
use rustls::pki_types::ServerName;
use tokio::time::timeout;

use self::connection::{NotReady, Session};
use super::{ChannelError, Deliverer, EmailRequest, SmtpStep};
use crate::webhook::{Delivered, NoConnection, innermost};

mod connection;

/// The longest wait for everything. Mail servers let clients wait on purpose, to discourage those who send spam.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The longest wait for the goodbye of a server that has answered to a message.
const GOODBYE: Duration = Duration::from_secs(2);
/// How to log in, the best way first.
const MECHANISMS: &[Mechanism] = &[Mechanism::Plain, Mechanism::Login];

/// What came of a message.
struct MailExchange {
    /// To be closed, whatever was answered.
    connection: AsyncSmtpConnection,
    /// The server's answer to the message, or why there is none.
    answer: Result<Response, ChannelError>,
}

impl Deliverer {
    pub(super) async fn send_email(&self, request: EmailRequest) -> Result<Delivered, ChannelError> {
        let server = server(&request.channel);
        let late = |_| ChannelError::Timeout { server: server.clone(), after: TIMEOUT };
        let exchange = timeout(TIMEOUT, Box::pin(self.exchange_mail(&request, &server)));
        let MailExchange { mut connection, answer } = exchange.await.map_err(late)??;
        // Nobody depends on it any more: what was taken is taken.
        let _ = timeout(GOODBYE, connection.abort()).await;
        let code: u16 = answer?.code().into();
        // Only this says that the message was taken (RFC 5321, 4.2.1).
        if !(200..300).contains(&code) {
            return Err(ChannelError::Broken { server, cause: format!("{code} after the message") });
        }
        Ok(Delivered { status: code, address: None })
    }

    async fn exchange_mail(
        &self,
        request: &EmailRequest,
        server: &str,
    ) -> Result<MailExchange, ChannelError> {
        let channel = &request.channel;
        let message = message(request)?;
        let login = self.login(channel).await?;
        let mut connection = self.connect(channel, server, &hello(&message)).await?;
        let answer = transaction(&mut connection, login.as_ref(), &message, server).await;
        Ok(MailExchange { connection, answer })
    }

    async fn login(&self, channel: &EmailChannel) -> Result<Option<Login>, ChannelError> {
        let (Some(username), Some(password)) = (&channel.username_file, &channel.password_file) else {
            return Ok(None);
        };
        if channel.tls == EmailTls::None {
            return Err(invalid("a password is sent only under TLS: write tls: STARTTLS or tls: TLS"));
        }
        let username = self.credentials.read(username).await?;
        let password = self.credentials.read(password).await?;
        Ok(Some(Login::new(username.expose().to_owned(), password.expose().to_owned())))
    }

    /// A connection that is encrypted as the channel says.
    async fn connect(
        &self,
        channel: &EmailChannel,
        server: &str,
        client: &ClientId,
    ) -> Result<AsyncSmtpConnection, ChannelError> {
        let tls = match channel.tls {
            EmailTls::None => None,
            EmailTls::StartTls | EmailTls::Tls => {
                Some((self.tls(channel.ca_file.as_deref(), &[]).await?, name_of(channel)?))
            }
        };
        let broken = |error| unusable(&error, server);
        let stream = connection::connect(&channel.host, channel.port).await;
        let stream = stream.map_err(|error| no_connection(NoConnection::of(&error), &error, server))?;
        let stream: Box<dyn AsyncTokioStream> = match (channel.tls, tls) {
            (EmailTls::StartTls, Some((tls, name))) => {
                let ready = connection::start_tls(stream, client).await;
                let ready = ready.map_err(|why| not_ready(why, server))?;
                Box::new(Session::greeted(connection::encrypt(ready, tls, name).await.map_err(broken)?))
            }
            (_, Some((tls, name))) => {
                Box::new(Session::new(connection::encrypt(stream, tls, name).await.map_err(broken)?))
            }
            (_, None) => Box::new(Session::new(stream)),
        };
        let connection = AsyncSmtpConnection::connect_with_transport(stream, client).await;
        connection.map_err(|error| match error.status() {
            Some(code) => refused(SmtpStep::Greeting, code, innermost(&error)),
            None => unusable(&error, server),
        })
    }
}

/// What is wrong with a channel, and can be put right.
fn invalid(what: &'static str) -> ChannelError {
    ChannelError::Invalid { what, permanent: false }
}

fn no_connection(why: NoConnection, error: &(dyn Error + 'static), server: &str) -> ChannelError {
    ChannelError::Connect { server: server.to_owned(), why, cause: innermost(error) }
}

fn not_ready(why: NotReady, server: &str) -> ChannelError {
    match why {
        NotReady::Refused(answer) => {
            let said = answer.message().collect::<Vec<_>>().join(" ");
            refused(SmtpStep::Greeting, answer.code(), said)
        }
        NotReady::NotOffered => ChannelError::NoStartTls { server: server.to_owned() },
        NotReady::Broken(error) => unusable(&error, server),
    }
}

/// A connection that broke before the server was ready for a message.
fn unusable(error: &(dyn Error + 'static), server: &str) -> ChannelError {
    match NoConnection::of(error) {
        NoConnection::Other => ChannelError::Broken { server: server.to_owned(), cause: innermost(error) },
        why => no_connection(why, error, server),
    }
}

/// An answer that refuses a step.
fn refused(step: SmtpStep, code: Code, said: String) -> ChannelError {
    let enhanced = enhanced(&said);
    // What a server's policy refuses (x.7.x) its administrator can permit.
    let by_policy = enhanced.is_some_and(|enhanced| enhanced.starts_with("5.7."));
    let permanent = code.severity == Severity::PermanentNegativeCompletion && !by_policy;
    let code = enhanced.map_or(code.to_string(), |enhanced| format!("{code} {enhanced}"));
    ChannelError::Smtp { step, code, permanent, cause: said }
}

/// The enhanced code that an answer begins with (RFC 3463), such as `5.1.1`.
fn enhanced(text: &str) -> Option<&str> {
    let first = text.split_whitespace().next()?;
    let parts: Vec<_> = first.split('.').collect();
    let is_number =
        |part: &&str| matches!(part.len(), 1..=3) && part.bytes().all(|byte| byte.is_ascii_digit());
    (parts.len() == 3 && parts.iter().all(is_number)).then_some(first)
}

/// The commands one by one, to know which of them is refused.
async fn transaction(
    connection: &mut AsyncSmtpConnection,
    login: Option<&Login>,
    message: &Message,
    server: &str,
) -> Result<Response, ChannelError> {
    let failed = |step| {
        move |error: smtp::Error| match error.status() {
            Some(code) => refused(step, code, innermost(&error)),
            None => ChannelError::Broken { server: server.to_owned(), cause: innermost(&error) },
        }
    };
    if let Some(login) = login {
        if connection.server_info().get_auth_mechanism(MECHANISMS).is_none() {
            return Err(invalid(
                "the mail server offers no login by PLAIN or LOGIN: enable one there, or leave out usernameFile and passwordFile",
            ));
        }
        connection.auth(MECHANISMS, login).await.map_err(failed(SmtpStep::Login))?;
    }
    let envelope = message.envelope();
    let formatted = message.formatted();
    let mut options = Vec::new();
    let addresses = envelope.to().iter().chain(envelope.from());
    let utf8 = addresses.into_iter().any(|address| !AsRef::<str>::as_ref(address).is_ascii());
    if utf8 && connection.server_info().supports_feature(Extension::SmtpUtfEight) {
        options.push(MailParameter::SmtpUtfEight);
    }
    if !formatted.is_ascii() {
        options.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    let sender = Mail::new(envelope.from().cloned(), options);
    connection.command(sender).await.map_err(failed(SmtpStep::Sender))?;
    for to in envelope.to() {
        let recipient = Rcpt::new(to.clone(), Vec::new());
        connection.command(recipient).await.map_err(failed(SmtpStep::Recipient))?;
    }
    connection.command(Data).await.map_err(failed(SmtpStep::Message))?;
    connection.message(&formatted).await.map_err(failed(SmtpStep::Message))
}

/// How this client introduces itself: many servers want a domain, which that of the sender is.
fn hello(message: &Message) -> ClientId {
    let domain = message.envelope().from().map_or("localhost", Address::domain);
    ClientId::Domain(domain.to_owned())
}

/// Whom the server's certificate has to be for.
fn name_of(channel: &EmailChannel) -> Result<ServerName<'static>, ChannelError> {
    let wrong = "host of the channel is no name or address of a host: write it as smtp.example.org";
    ServerName::try_from(channel.host.clone()).map_err(|_| invalid(wrong))
}

fn server(channel: &EmailChannel) -> String {
    format!("the mail server {}:{}", channel.host, channel.port)
}

fn message(request: &EmailRequest) -> Result<Message, ChannelError> {
    let invalid = |what, permanent| move |_| ChannelError::Invalid { what, permanent };
    let channel = &request.channel;
    let from: Mailbox = channel.from.parse().map_err(invalid(
        "from of the channel is no mail address: write it as coppice@example.org or Coppice <coppice@example.org>",
        false,
    ))?;
    let to: Address = request.to.parse().map_err(invalid("the owner's address is no mail address", true))?;
    let domain = from.email.domain().to_owned();
    let sent = std::time::SystemTime::from(request.now);
    Message::builder()
        .from(from)
        .to(Mailbox::new(None, to))
        .subject(request.subject.clone())
        .date(sent)
        // The same in every attempt: mail programs show it once.
        .message_id(Some(format!("<{}@{domain}>", request.id)))
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ))
        .multipart(MultiPart::alternative_plain_html(request.text.clone(), request.html.clone()))
        .map_err(|_| ChannelError::Invalid {
            what: "the message cannot be written as a mail",
            permanent: true,
        })
}
