//! URLs as Go reads them. The URLs of browsers are others: there spaces are mended, cases folded, hosts rewritten.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// A URL in its parts, each unescaped unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// As it was written.
    pub(crate) text: String,
    /// In lower case; empty for a path alone.
    pub(crate) scheme: String,
    /// With the port.
    pub(crate) host: String,
    /// As it was written: not unescaped.
    pub(crate) path: String,
    /// Still escaped, without the question mark.
    pub(crate) query: String,
}

/// Why a text is no URL, in the words of Go.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("parse {}: {problem}", crate::go::quote(text))]
    Parse { text: String, problem: Box<UrlError> },
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    #[error("empty url")]
    Empty,
    #[error("invalid URI for request")]
    NotForRequest,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("net/url: invalid userinfo")]
    UserInfo,
    #[error("invalid port {} after host", crate::go::quote(.0))]
    Port(String),
    #[error("invalid IP-literal")]
    IpLiteral,
    #[error("missing ']' in host")]
    NoBracket,
    #[error("invalid host: ParseAddr({}): unexpected character", crate::go::quote(.0))]
    Address(String),
    #[error("invalid character {} in host name", crate::go::quote(.0))]
    HostCharacter(String),
    #[error("invalid URL escape {}", crate::go::quote(.0))]
    Escape(String),
}

/// What of a URL a text is, which decides what must be escaped in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    Host,
    Zone,
    Other,
}

impl Url {
    /// A URL as `url()` makes it of a string: absolute, or a path from the root. The fragment is left out.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        Self::parse_request(text)?;
        let without_fragment = text.split_once('#').map_or(text, |(before, _)| before);
        let parsed = Self::parts(without_fragment, false)?;
        Ok(Self { text: text.to_owned(), ..parsed })
    }

    /// A URL as in a request: no fragment, so that a `#` is an ordinary character.
    pub(crate) fn parse_request(text: &str) -> Result<Self, UrlError> {
        let wrap = |problem| UrlError::Parse { text: text.to_owned(), problem: Box::new(problem) };
        Self::parts(text, true).map_err(wrap)
    }

    fn parts(text: &str, is_request: bool) -> Result<Self, UrlError> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(UrlError::ControlCharacter);
        }
        if text.is_empty() && is_request {
            return Err(UrlError::Empty);
        }
        let empty = String::new;
        let mut url =
            Self { text: text.to_owned(), scheme: empty(), host: empty(), path: empty(), query: empty() };
        if text == "*" {
            "*".clone_into(&mut url.path);
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                // Such as mailto:someone: neither host nor path.
                return Ok(url);
            }
            if is_request {
                return Err(UrlError::NotForRequest);
            }
        }
        let has_host =
            (!url.scheme.is_empty() || !is_request && !rest.starts_with("///")) && rest.starts_with("//");
        let path = if has_host {
            let rest = &rest[2..];
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            url.host = host_of(&url.scheme, authority)?;
            path
        } else {
            rest
        };
        unescape(path, UrlPart::Other)?;
        path.clone_into(&mut url.path);
        Ok(url)
    }

    /// The host without the port, and the port.
    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let host = self.host.as_str();
        let (host, port) = match host.rfind(':') {
            Some(colon) if is_port(&host[colon..]) => (&host[..colon], &host[colon + 1..]),
            _ => (host, ""),
        };
        (host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host), port)
    }

    /// The path as it must be in a request: as it was written if it can be, or else escaped again.
    pub(crate) fn escaped_path(&self) -> String {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
        if self.path.bytes().all(|b| plain(b) || b"!'()*[]%".contains(&b)) {
            return self.path.clone();
        }
        let mut escaped = String::with_capacity(self.path.len() + 16);
        for byte in unescape(&self.path, UrlPart::Other).unwrap_or_default().bytes() {
            if plain(byte) {
                escaped.push(char::from(byte));
            } else {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
        escaped
    }

    /// The parameters of the query, in the order in which their names come first. Those that cannot be read are left
    /// out.
    pub(crate) fn parameters(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let read = |text: &str| unescape(&text.replace('+', " "), UrlPart::Other);
            let (Ok(key), Ok(value)) = (read(key), read(value)) else { continue };
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        found
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(UrlError::NoScheme),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// The host of `user:password@host:port`, with its port.
fn host_of(scheme: &str, authority: &str) -> Result<String, UrlError> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let host = check_host(scheme, host)?;
    if let Some(user) = user {
        let valid = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(valid) {
            return Err(UrlError::UserInfo);
        }
        unescape(user, UrlPart::Other)?;
    }
    Ok(host)
}

fn check_host(scheme: &str, host: &str) -> Result<String, UrlError> {
    let port_of = |text: &str| if is_port(text) { Ok(()) } else { Err(UrlError::Port(text.to_owned())) };
    match host.rfind('[') {
        Some(1..) => return Err(UrlError::IpLiteral),
        Some(_) => {
            let Some(close) = host.rfind(']') else { return Err(UrlError::NoBracket) };
            port_of(&host[close + 1..])?;
            let name = &host[1..close];
            let (address, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
            let (address, zone) = (unescape(address, UrlPart::Host)?, unescape(zone, UrlPart::Zone)?);
            if address.parse::<Ipv6Addr>().is_err() || zone == "%" {
                return Err(UrlError::Address(name.to_owned()));
            }
            return Ok(format!("[{address}{zone}]{}", &host[close + 1..]));
        }
        None => {}
    }
    if let Some(first) = host.find(':') {
        let last = host.rfind(':').unwrap_or(first);
        let colon = if matches!(scheme, "http" | "https") { first } else { last };
        port_of(&host[colon..])?;
    }
    unescape(host, UrlPart::Host)
}

/// Nothing, or a colon and digits, of which there may be none.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

fn may_stand_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn unescape(text: &str, part: UrlPart) -> Result<String, UrlError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(byte) = bytes.get(index) {
        if *byte != b'%' {
            if part != UrlPart::Other && byte.is_ascii() && !may_stand_in_host(*byte) {
                return Err(UrlError::HostCharacter(char::from(*byte).to_string()));
            }
            out.push(*byte);
            index += 1;
            continue;
        }
        let escape = &bytes[index..bytes.len().min(index + 3)];
        let wrong = || Err(UrlError::Escape(String::from_utf8_lossy(escape).into_owned()));
        let digit = |i: usize| escape.get(i).and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(1), digit(2)) else { return wrong() };
        let Ok(decoded) = u8::try_from(high << 4 | low) else { return wrong() };
        let refused = match part {
            UrlPart::Host => high < 8 && decoded != b'%',
            UrlPart::Zone => {
                decoded != b'%' && decoded != b' ' && decoded.is_ascii() && !may_stand_in_host(decoded)
            }
            UrlPart::Other => false,
        };
        if refused {
            return wrong();
        }
        out.push(decoded);
        index += 3;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_accepted_as_in_go() {
        for (text, good) in [
            ("http://a.b.svc/x?y=1#z", true),
            ("HTTP://a", true),
            ("http://", true),
            ("http:", true),
            ("mailto:a", true),
            ("/path", true),
            ("*", true),
            ("", false),
            ("a/b", false),
            ("over there", false),
            (":a", false),
            ("http://a b/", false),
            ("http://a/b c", true),
            ("http://a/%zz", false),
            ("http://a%41/", false),
            ("http://a%c3%a4/", true),
            ("http://a:80/", true),
            ("http://a:/", true),
            ("http://a:b/", false),
            ("http://a:1:2/", false),
            ("x://a:1:2/", true),
            ("http://[::1]:80/", true),
            ("http://[fe80::1%25en0]/", true),
            ("http://[::1/", false),
            ("http://[10.0.0.1]/", false),
            ("http://u:p@a/", true),
            ("http://u p@a/", false),
            ("http://a\n/", false),
        ] {
            assert_eq!(Url::parse_request(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn parts_are_those_of_go() {
        let url = Url::parse("HTTPS://u@[::1]:8443/a%20b?k=1&k=%32+3&l#f").unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str()), ("https", "[::1]:8443"));
        assert_eq!(url.host_and_port(), ("::1", "8443"));
        assert_eq!(url.path, "/a%20b");
        let parameters = vec![
            ("k".to_owned(), vec!["1".to_owned(), "2 3".to_owned()]),
            ("l".to_owned(), vec![String::new()]),
        ];
        assert_eq!(url.parameters(), parameters);
        assert_eq!(Url::parse("http:///x").unwrap().host_and_port(), ("", ""));
    }
}
