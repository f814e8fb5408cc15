//! A message that a mail server has accepted, and what a reader sees of it.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// One message that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Mail {
    /// The sender of the envelope; empty if it is null.
    pub from: String,
    /// The recipients of the envelope.
    pub to: Vec<String>,
    /// Whether it came under TLS.
    pub tls: bool,
    /// Who had authenticated; empty if nobody had.
    pub user: String,
    /// The raw message: header, empty line and body, with CRLF.
    pub data: String,
}

impl Mail {
    /// A field of its header in one line; empty if it is not there.
    pub fn header(&self, name: &str) -> String {
        field(&self.data, name)
    }

    /// Its plain text, which may be one of several parts, with plain line ends.
    pub fn plain_text(&self) -> anyhow::Result<String> {
        let text = plain_text(&self.data).with_context(|| format!("no plain text in {}", self.data))?;
        Ok(text?.replace("\r\n", "\n"))
    }
}

/// A field of the header of a message, or of a part of one.
fn field(entity: &str, name: &str) -> String {
    let header = entity.split("\r\n\r\n").next().unwrap_or_default();
    let unfolded = header.replace("\r\n ", " ").replace("\r\n\t", " ");
    let mut fields = unfolded.split("\r\n").filter_map(|line| line.split_once(':'));
    let value = fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    value.unwrap_or_default().to_owned()
}

fn plain_text(entity: &str) -> Option<anyhow::Result<String>> {
    let (_, body) = entity.split_once("\r\n\r\n")?;
    let kind = field(entity, "Content-Type");
    if kind.starts_with("multipart/") {
        let (_, boundary) = kind.split_once("boundary=")?;
        let boundary = boundary.trim_start_matches('"').split(['"', ';']).next()?;
        let separator = format!("--{boundary}");
        return body.split(&*separator).skip(1).find_map(|part| plain_text(part.strip_prefix("\r\n")?));
    }
    kind.starts_with("text/plain").then(|| decoded(&field(entity, "Content-Transfer-Encoding"), body))
}

fn decoded(encoding: &str, body: &str) -> anyhow::Result<String> {
    Ok(match encoding.to_ascii_lowercase().as_str() {
        "quoted-printable" => String::from_utf8(quoted_printable(body)?)?,
        "base64" => String::from_utf8(STANDARD.decode(body.split_whitespace().collect::<String>())?)?,
        _ => body.to_owned(),
    })
}

fn quoted_printable(body: &str) -> anyhow::Result<Vec<u8>> {
    let joined = body.replace("=\r\n", "");
    let mut pieces = joined.split('=');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (code, rest) = piece.split_at_checked(2).with_context(|| format!("={piece} is no byte"))?;
        bytes.push(u8::from_str_radix(code, 16)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(encoding: &str, text: &str) -> Mail {
        let data = format!(
            "Subject: Namespace ci-1 will be\r\n deleted\r\nContent-Type: multipart/alternative;\r\n boundary=\"b1\"\r\n\r\n\
             --b1\r\nContent-Type: text/html\r\n\r\n<p>no</p>\r\n--b1\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Transfer-Encoding: {encoding}\r\n\r\n{text}\r\n--b1--\r\n"
        );
        Mail { from: String::new(), to: Vec::new(), tls: true, user: String::new(), data }
    }

    #[test]
    fn a_reader_sees_the_plain_text_however_it_was_encoded() -> anyhow::Result<()> {
        for (encoding, text) in [
            ("7bit", "Why: it is \u{201c}old\u{201d}."),
            ("quoted-printable", "Why: it=\r\n is =E2=80=9Cold=E2=80=9D."),
            ("base64", "V2h5OiBpdCBpcyDigJxv\r\nbGTigJ0u"),
        ] {
            let mail = mail(encoding, text);
            assert_eq!(mail.header("subject"), "Namespace ci-1 will be deleted");
            assert_eq!(mail.plain_text()?.trim_end(), "Why: it is \u{201c}old\u{201d}.", "{encoding}");
        }
        assert!(mail("quoted-printable", "=E2=8").plain_text().is_err());
        Ok(())
    }
}
