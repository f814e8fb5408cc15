//! Mail, against a server that answers as a test wants it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail it by a panic")]

use crate::support;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use coppice_api::channel::{EmailChannel, EmailTls};
use coppice_notify::channel::{ChannelError, Deliverer, EmailRequest, Headline};
use coppice_notify::credentials::Credentials;
use coppice_notify::outbox::Deliver as _;
use coppice_notify::request::{DeliverError, DeliveryRequest};
use coppice_notify::webhook::NoConnection;
use rcgen::CertificateParams;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{now, settings};

/// What a server does at a command.
#[derive(Clone, Copy)]
enum SmtpReply {
    /// It says this, and more if it has line breaks in it.
    Says(&'static str),
    /// It keeps silent.
    Never,
    /// It says this again and again, without an end.
    Endless(&'static str),
    /// It waits for what the client sends next, and says this in plain text.
    Late(&'static str),
}

/// How a server behaves.
#[derive(Clone)]
struct Behaviour {
    /// How it is encrypted; with `STARTTLS` it offers that.
    tls: EmailTls,
    /// What it says to EHLO before TLS.
    offer: &'static str,
    /// Whom its certificate is for.
    host: &'static str,
    /// What it does at the commands that begin so; [`GREETING`] and [`MESSAGE`] are such, too.
    answers: Vec<(&'static str, SmtpReply)>,
}

const GREETING: &str = "(greeting)";
const MESSAGE: &str = "(message)";

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            tls: EmailTls::StartTls,
            offer: "250-fake\r\n250 STARTTLS",
            host: "127.0.0.1",
            answers: Vec::new(),
        }
    }
}

impl Behaviour {
    fn answering(command: &'static str, answer: SmtpReply) -> Self {
        Self { answers: vec![(command, answer)], ..Self::default() }
    }

    fn answer(&self, command: &str) -> SmtpReply {
        let own = self.answers.iter().find(|(begin, _)| command.starts_with(begin));
        own.map_or_else(
            || match command.split_whitespace().next().unwrap_or_default() {
                GREETING => SmtpReply::Says("220 fake ESMTP"),
                "EHLO" => SmtpReply::Says("250-fake\r\n250 AUTH PLAIN LOGIN"),
                "STARTTLS" => SmtpReply::Says("220 ready"),
                "AUTH" => SmtpReply::Says("235 2.7.0 welcome"),
                "DATA" => SmtpReply::Says("354 go on"),
                "QUIT" => SmtpReply::Says("221 bye"),
                _ => SmtpReply::Says("250 2.0.0 fine"),
            },
            |(_, answer)| *answer,
        )
    }
}

/// What a server got: each command, with `tls ` before it if it was encrypted.
type Seen = Arc<Mutex<Vec<String>>>;

struct Server {
    channel: EmailChannel,
    seen: Seen,
    credentials: TempDir,
}

impl Server {
    /// Starts one, with a channel that leads to it and trusts it.
    async fn start(behaviour: Behaviour) -> Self {
        let (acceptor, authority) = acceptor(behaviour.host);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Seen::default();
        let credentials = tempfile::tempdir().unwrap();
        let channel = EmailChannel {
            recipient_domains: None,
            host: "127.0.0.1".to_owned(),
            port,
            tls: behaviour.tls,
            from: "Coppice <coppice@example.org>".to_owned(),
            username_file: (behaviour.tls != EmailTls::None).then(|| "user".to_owned()),
            password_file: (behaviour.tls != EmailTls::None).then(|| "password".to_owned()),
            ca_file: Some("ca".to_owned()),
        };
        for (name, content) in [("user", "coppice"), ("password", "secret"), ("ca", &authority)] {
            std::fs::write(credentials.path().join(name), content).unwrap();
        }
        let known = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client may leave whenever it wants to.
                let _ = serve(stream, &behaviour, &acceptor, &known).await;
            }
        });
        Self { channel, seen, credentials }
    }

    async fn send(&self) -> Result<u16, DeliverError> {
        self.send_by(self.channel.clone()).await
    }

    async fn send_by(&self, channel: EmailChannel) -> Result<u16, DeliverError> {
        let request = EmailRequest {
            id: "notice-1".to_owned(),
            channel,
            to: "owner@example.org".to_owned(),
            subject: "Namespace ci-1 will be deleted".to_owned(),
            text: "It will be deleted.".to_owned(),
            html: "<p>It will be deleted.</p>".to_owned(),
            headline: Headline::default(),
            now: now(),
        };
        let deliverer = deliverer(self.credentials.path());
        let sent = deliverer.deliver(DeliveryRequest::Email(Box::new(request))).await;
        sent.map(|delivered| delivered.status)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn deliverer(credentials: &Path) -> Deliverer {
    Deliverer::new(settings(), Credentials::of_directory(Some(credentials.to_owned()))).unwrap()
}

/// TLS for a host, and the authority's PEM.
fn acceptor(host: &str) -> (TlsAcceptor, String) {
    support::acceptor(&CertificateParams::new(vec![host.to_owned()]).unwrap())
}

async fn serve(
    stream: TcpStream,
    behaviour: &Behaviour,
    acceptor: &TlsAcceptor,
    seen: &Seen,
) -> io::Result<()> {
    // Where time is paused, what is delayed by the kernel never comes.
    stream.set_nodelay(true)?;
    let encrypted = Talk { behaviour, seen, mark: "tls " };
    let plain = Talk { mark: "", ..encrypted };
    match behaviour.tls {
        EmailTls::None => plain.serve(stream, true).await.map(drop),
        EmailTls::Tls => encrypted.serve(acceptor.accept(stream).await?, true).await.map(drop),
        EmailTls::StartTls => {
            let mut offering = behaviour.clone();
            offering.answers.insert(0, ("EHLO", SmtpReply::Says(behaviour.offer)));
            let stream = Talk { behaviour: &offering, ..plain }.serve(stream, true).await?;
            encrypted.serve(acceptor.accept(stream).await?, false).await.map(drop)
        }
    }
}

/// One side of a conversation.
#[derive(Clone, Copy)]
struct Talk<'a> {
    behaviour: &'a Behaviour,
    seen: &'a Seen,
    mark: &'static str,
}

impl Talk<'_> {
    /// Answers until the end, or until TLS is to begin.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(self, stream: S, greets: bool) -> io::Result<S> {
        let mut stream = BufReader::new(stream);
        if greets {
            self.answer(&mut stream, GREETING).await?;
        }
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            self.seen.lock().unwrap().push(format!("{}{line}", self.mark));
            self.answer(&mut stream, line).await?;
            match line {
                "STARTTLS" => return Ok(stream.into_inner()),
                "DATA" => {
                    let mut line = String::new();
                    while line != ".\r\n" {
                        line.clear();
                        stream.read_line(&mut line).await?;
                    }
                    self.seen.lock().unwrap().push(format!("{}{MESSAGE}", self.mark));
                    self.answer(&mut stream, MESSAGE).await?;
                }
                _ => {}
            }
        }
    }

    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut BufReader<S>,
        command: &str,
    ) -> io::Result<()> {
        let text = match self.behaviour.answer(command) {
            SmtpReply::Says(text) => format!("{text}\r\n"),
            SmtpReply::Never => std::future::pending().await,
            SmtpReply::Endless(text) => loop {
                stream.write_all(text.as_bytes()).await?;
            },
            SmtpReply::Late(text) => {
                stream.write_all(b"220 ready\r\n").await?;
                stream.read_exact(&mut [0; 16]).await?;
                text.to_owned()
            }
        };
        stream.write_all(text.as_bytes()).await?;
        stream.flush().await
    }
}

const PLAIN: &str = "AUTH PLAIN AGNvcHBpY2UAc2VjcmV0";

#[tokio::test]
async fn a_message_is_sent_as_its_channel_says() {
    let after = |mark: &str, commands: &[&str]| -> Vec<String> {
        commands.iter().map(|command| format!("{mark}{command}")).collect()
    };
    let sent = [
        "EHLO example.org",
        PLAIN,
        "MAIL FROM:<coppice@example.org>",
        "RCPT TO:<owner@example.org>",
        "DATA",
        MESSAGE,
        "QUIT",
    ];
    let start_tls = Server::start(Behaviour::default()).await;
    assert_eq!(start_tls.send().await, Ok(250));
    let hello = after("", &["EHLO example.org", "STARTTLS"]);
    assert_eq!(start_tls.seen(), [hello, after("tls ", &sent)].concat(), "it asks again under TLS");
    let tls = Server::start(Behaviour { tls: EmailTls::Tls, ..Behaviour::default() }).await;
    assert_eq!(tls.send().await, Ok(250));
    assert_eq!(tls.seen(), after("tls ", &sent));
    let open = Server::start(Behaviour { tls: EmailTls::None, ..Behaviour::default() }).await;
    assert_eq!(open.send().await, Ok(250));
    assert_eq!(open.seen(), after("", &sent.iter().copied().filter(|one| *one != PLAIN).collect::<Vec<_>>()));
}

#[tokio::test]
async fn without_tls_of_the_right_server_nothing_is_sent() {
    let said = async |server: &Server, channel: EmailChannel| {
        let error = server.send_by(channel).await.unwrap_err();
        assert!(!error.is_permanent(), "{error}");
        let seen = server.seen();
        assert!(seen.iter().all(|line| line.starts_with("EHLO") || line == "STARTTLS"), "{seen:?}");
        error.to_string().replace(&format!(":{}", server.channel.port), "")
    };
    let none = Server::start(Behaviour { tls: EmailTls::None, ..Behaviour::default() }).await;
    let channel = EmailChannel { tls: EmailTls::StartTls, ..none.channel.clone() };
    assert_eq!(
        said(&none, channel).await,
        "the mail server 127.0.0.1 offers no STARTTLS, without which nothing is sent: enable it there, or write \
         tls: TLS or tls: None"
    );
    for tls in [EmailTls::StartTls, EmailTls::Tls] {
        let server = Server::start(Behaviour { tls, ..Behaviour::default() }).await;
        let stranger = EmailChannel { ca_file: None, ..server.channel.clone() };
        assert_eq!(
            said(&server, stranger).await,
            "no connection to the mail server 127.0.0.1: its certificate is from an authority that is not trusted; name the \
             authority in caFile of the channel"
        );
        let other = Server::start(Behaviour { tls, host: "mail.example.org", ..Behaviour::default() }).await;
        assert_eq!(
            said(&other, other.channel.clone()).await,
            "no connection to the mail server 127.0.0.1: its certificate is for another host"
        );
    }
}

/// The injection of answers before TLS: CVE-2011-0411 the other way round.
#[tokio::test]
async fn what_is_said_before_tls_is_no_answer_under_tls() {
    const FORGED: &str = "250-forged\r\n250 AUTH PLAIN\r\n235 welcome\r\n250 fine";
    let at_once = SmtpReply::Says("220 ready\r\n250-forged\r\n250 AUTH PLAIN\r\n235 welcome\r\n250 fine");
    let answering = |answer| Behaviour::answering("STARTTLS", answer);
    let early = Behaviour { offer: "250-fake\r\n250 STARTTLS\r\n220 ready", ..Behaviour::default() };
    let cases = [
        (answering(at_once), &["EHLO example.org", "STARTTLS"][..]),
        (answering(SmtpReply::Late(FORGED)), &["EHLO example.org", "STARTTLS"]),
        (early, &["EHLO example.org"]),
    ];
    for (behaviour, expected) in cases {
        let server = Server::start(behaviour).await;
        let error = server.send().await.unwrap_err();
        let DeliverError::Channel(error) = error else { panic!("{error:?}") };
        assert!(
            matches!(
                error,
                ChannelError::Broken { .. } | ChannelError::Connect { why: NoConnection::Tls, .. }
            ),
            "{error:?}"
        );
        assert_eq!(server.seen(), expected, "nothing is sent");
    }
}

#[tokio::test]
async fn a_server_that_never_ends_its_answer_is_left() {
    let server = |tls, command, text| {
        Server::start(Behaviour { tls, ..Behaviour::answering(command, SmtpReply::Endless(text)) })
    };
    for (tls, command, text) in [
        (EmailTls::StartTls, GREETING, "2"),
        (EmailTls::StartTls, "EHLO", "250-more\r\n"),
        (EmailTls::Tls, GREETING, "220-more\r\n"),
        (EmailTls::Tls, "EHLO", "2"),
        (EmailTls::None, "RCPT", "250-more\r\n"),
        (EmailTls::None, MESSAGE, "2"),
    ] {
        let server = server(tls, command, text).await;
        let error = server.send().await.unwrap_err();
        assert!(
            matches!(&error, DeliverError::Channel(ChannelError::Broken { cause, .. }) if cause == "it says more than is read of a connection"),
            "{command}: {error:?}"
        );
        assert!(error.to_string().ends_with("did not answer as it should"), "{error}");
    }
}

#[tokio::test]
async fn refusals_say_what_is_refused_and_whether_for_good() {
    for (command, answer, sentence, permanent) in [
        (GREETING, "554 5.3.2 closed", "the connection (554 5.3.2)", false),
        ("STARTTLS", "454 4.7.0 no TLS now", "the connection (454 4.7.0)", false),
        (
            "AUTH",
            "535 5.7.8 secret",
            "the login; check usernameFile and passwordFile of the channel (535 5.7.8)",
            false,
        ),
        ("MAIL", "550 5.1.8 who?", "the sender; check from of the channel (550 5.1.8)", false),
        ("RCPT", "550 5.1.1 nobody@inner", "the recipient (550 5.1.1)", true),
        ("RCPT", "550 nobody", "the recipient (550)", true),
        ("RCPT", "550-5.1.1 nobody\r\n550 5.1.1 at all", "the recipient (550 5.1.1)", true),
        ("RCPT", "550 5.7.1 policy", "the recipient (550 5.7.1)", false),
        ("RCPT", "450 4.2.0 greylisted", "the recipient (450 4.2.0)", false),
        ("DATA", "451 4.3.0 busy", "the message (451 4.3.0)", false),
        (MESSAGE, "552 5.3.4 too large", "the message (552 5.3.4)", true),
        (MESSAGE, "554 5.7.1 spam", "the message (554 5.7.1)", false),
    ] {
        let server = Server::start(Behaviour::answering(command, SmtpReply::Says(answer))).await;
        let error = server.send().await.unwrap_err();
        let expected = (format!("the mail server refuses {sentence}"), permanent);
        assert_eq!((error.to_string(), error.is_permanent()), expected, "{command} {answer}");
    }
}

#[tokio::test]
async fn what_is_no_yes_is_none() {
    let server = Server::start(Behaviour::answering(MESSAGE, SmtpReply::Says("354 go on"))).await;
    let error = server.send().await.unwrap_err();
    assert!(matches!(error, DeliverError::Channel(ChannelError::Broken { .. })), "{error:?}");
    let no_login = Behaviour {
        tls: EmailTls::Tls,
        ..Behaviour::answering("EHLO", SmtpReply::Says("250-fake\r\n250 AUTH GSSAPI"))
    };
    let error = Server::start(no_login).await.send().await.unwrap_err();
    assert!(error.to_string().starts_with("the mail server offers no login by PLAIN or LOGIN"), "{error}");
    assert!(!error.is_permanent());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_left_after_a_minute() {
    for (tls, command) in [
        (EmailTls::StartTls, GREETING),
        (EmailTls::StartTls, "STARTTLS"),
        (EmailTls::Tls, GREETING),
        (EmailTls::Tls, "RCPT"),
        (EmailTls::None, MESSAGE),
    ] {
        let behaviour = Behaviour { tls, ..Behaviour::answering(command, SmtpReply::Never) };
        let server = Server::start(behaviour).await;
        let error = server.send().await.unwrap_err();
        let expected =
            format!("the mail server 127.0.0.1:{} did not answer within 60 s", server.channel.port);
        assert_eq!((error.to_string(), error.is_permanent()), (expected, false), "{command}");
    }
    let rude = Behaviour::answering("QUIT", SmtpReply::Never);
    assert_eq!(Server::start(rude).await.send().await, Ok(250), "the message was taken");
}
