//! Connections to mail servers, below lettre: lettre waits for the end of a line however long it is, and takes what came before TLS
//! began for answers of the server that TLS has proved (CVE-2011-0411 is of that kind).

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lettre::transport::smtp::client::AsyncTokioStream;
use lettre::transport::smtp::commands::{Ehlo, Starttls};
use lettre::transport::smtp::extension::{ClientId, Extension, ServerInfo};
use lettre::transport::smtp::response::Response;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf,
    Take,
};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest wait for a connection to one address.
const CONNECT: Duration = Duration::from_secs(5);
/// How much a server may say in all, in bytes. For one message that is some ten answers of at most a few lines.
const MAX_READ: usize = 16 * 1024;
/// What lettre waits for first. A server that has greeted in plain text does not greet again under TLS (RFC 3207, 4.2).
const GREETING: &[u8] = b"220 TLS\r\n";

/// Connects to the first of a host's addresses that takes the connection.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in lookup_host((host, port)).await? {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // The end of a message is written alone, and need not wait until the rest has arrived.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = ErrorKind::TimedOut.into(),
        }
    }
    Err(failed)
}

/// Encrypts a connection, to a server whose certificate is for this name.
pub(super) async fn encrypt(
    stream: TcpStream,
    tls: ClientConfig,
    name: ServerName<'static>,
) -> io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(Arc::new(tls)).connect(name, stream).await
}

/// Why a server is not ready for TLS.
pub(super) enum NotReady {
    /// It refuses the connection, or a command.
    Refused(Response),
    /// It does not offer `STARTTLS`.
    NotOffered,
    /// The connection broke, or what came was no answer.
    Broken(io::Error),
}

impl From<io::Error> for NotReady {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Asks for TLS by `STARTTLS`. What the server said until then is discarded: anyone on the way could have said it. The first byte after
/// its answer has to be of TLS.
pub(super) async fn start_tls(stream: TcpStream, client: &ClientId) -> Result<TcpStream, NotReady> {
    let mut plain = BufReader::new(stream).take(MAX_READ as u64);
    answer(&mut plain).await?;
    let offer = command(&mut plain, &Ehlo::new(client.clone()).to_string()).await?;
    let offer = ServerInfo::from_response(&offer).map_err(|_| no_answer())?;
    if !offer.supports_feature(Extension::StartTls) {
        return Err(NotReady::NotOffered);
    }
    if !command(&mut plain, &Starttls.to_string()).await?.has_code(220) {
        return Err(no_answer().into());
    }
    // Its buffer is empty.
    Ok(plain.into_inner().into_inner())
}

async fn command(plain: &mut Take<BufReader<TcpStream>>, line: &str) -> Result<Response, NotReady> {
    plain.get_mut().write_all(line.as_bytes()).await?;
    answer(plain).await
}

/// One answer: lines with `-` behind the code, and one without. Nothing may be there behind it, for nothing else was asked.
async fn answer(plain: &mut Take<BufReader<TcpStream>>) -> Result<Response, NotReady> {
    let mut text = Vec::new();
    loop {
        let begin = text.len();
        plain.read_until(b'\n', &mut text).await?;
        if !text.ends_with(b"\n") {
            let closed = || io::Error::from(ErrorKind::UnexpectedEof);
            return Err(if plain.limit() == 0 { too_much() } else { closed() }.into());
        }
        if text.get(begin + 3) != Some(&b'-') {
            break;
        }
    }
    if !plain.get_ref().buffer().is_empty() {
        return Err(invalid("there is more than an answer before TLS").into());
    }
    let response: Response = String::from_utf8_lossy(&text).parse().map_err(|_| no_answer())?;
    if response.is_positive() { Ok(response) } else { Err(NotReady::Refused(response)) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn no_answer() -> io::Error {
    invalid("no answer of SMTP")
}

fn too_much() -> io::Error {
    invalid("it says more than is read of a connection")
}

/// A connection as lettre gets it, of which no more than [`MAX_READ`] is read.
#[derive(Debug)]
pub(super) struct Session<S> {
    stream: S,
    /// What is read before anything that the server says.
    greeting: &'static [u8],
    /// How much the server may still say, in bytes.
    left: usize,
}

impl<S> Session<S> {
    /// A connection whose server greets first.
    pub(super) fn new(stream: S) -> Self {
        Self { stream, greeting: &[], left: MAX_READ }
    }

    /// One whose server has greeted before `STARTTLS`.
    pub(super) fn greeted(stream: S) -> Self {
        Self { greeting: GREETING, ..Self::new(stream) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Session<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.greeting.is_empty() {
            let (now, later) = this.greeting.split_at(this.greeting.len().min(into.remaining()));
            into.put_slice(now);
            this.greeting = later;
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, into))?;
        let read = into.filled().len() - before;
        let enough = read <= this.left;
        this.left = this.left.saturating_sub(read);
        if !enough {
            into.set_filled(before);
            return Poll::Ready(Err(too_much()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Session<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl AsyncTokioStream for Session<TcpStream> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl AsyncTokioStream for Session<TlsStream<TcpStream>> {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.get_ref().0.peer_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_never_ends_is_read_no_further_than_the_bound() {
        let (stream, mut server) = tokio::io::duplex(1024);
        let mut session = Session::greeted(stream);
        let endless = tokio::spawn(async move {
            let mut written = 0;
            while let Ok(more) = server.write(&[b'2'; 1024]).await {
                written += more;
            }
            written
        });
        let mut read = Vec::new();
        let error = session.read_to_end(&mut read).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        drop(session);
        assert!(read.starts_with(GREETING));
        assert!(endless.await.unwrap() <= MAX_READ + 2 * 1024, "what was written is read or in the pipe");
    }
}
