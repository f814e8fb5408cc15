//! The `format` of strings and numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::node::Type;
use crate::{text, url};

/// A format that the API server checks.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    /// As written in the schema.
    pub(crate) name: String,
    /// Which strings have it; `None` for formats of numbers, which bound their range.
    pub(crate) accepts: Option<fn(&str) -> bool>,
}

impl Format {
    /// `Ok(None)` if the API server ignores it. `Err` if it knows it and we do not.
    pub(crate) fn find(name: &str, kind: Option<Type>) -> Result<Option<Self>, ()> {
        let accepts = match (kind, name) {
            (Some(Type::Integer), "int32" | "int64") | (Some(Type::Number), "float" | "double") => None,
            (None | Some(Type::String), _) => match string_format(&name.replace('-', ""), name)? {
                Some(accepts) => Some(accepts),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(Self { name: name.to_owned(), accepts }))
    }
}

type Accepts = fn(&str) -> bool;

fn string_format(normalized: &str, name: &str) -> Result<Option<Accepts>, ()> {
    let accepts: Accepts = match normalized {
        "datetime" => is_date_time,
        "date" => is_date,
        "duration" => |text| text::parse_duration(text).is_some(),
        "uri" => |text| url::Url::parse_request(text).is_ok(),
        "hostname" => is_hostname,
        "ipv4" => |text| text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => |text| text::parse_cidr(text).is_some(),
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some(b'3')),
        "uuid4" => |text| is_uuid(text, Some(b'4')),
        "uuid5" => |text| is_uuid(text, Some(b'5')),
        "byte" => |text| text::decode_base64(text).is_some(),
        "password" => |_| true,
        // The API server knows it; no schema has needed it here.
        "bsonobjectid" | "email" | "mac" | "isbn" | "isbn10" | "isbn13" | "creditcard" | "ssn"
        | "hexcolor" | "rgbcolor" => return Err(()),
        // Only with their dashes: names without them are ignored.
        _ => match name {
            "k8s-short-name" => is_label,
            "k8s-long-name" => {
                |text| !text.is_empty() && text.len() <= 253 && text.split('.').all(is_segment)
            }
            _ => return Ok(None),
        },
    };
    Ok(Some(accepts))
}

/// The year, month and day of `2026-12-01`, if there is such a day.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = bytes.len() == 10
        && bytes
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    // A year of zero is one to the API server as well as to us.
    shape && text.parse::<jiff::civil::Date>().is_ok()
}

/// RFC 3339 as loosely as the API server reads it: any character before the fraction, offsets of any digits.
fn is_date_time(text: &str) -> bool {
    static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
    });
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let time = TIME.as_ref().and_then(|re| re.captures(time));
    is_date(date) && time.is_some_and(|t| t[1] <= *"23" && t[2] <= *"59" && t[3] <= *"59")
}

fn is_hostname(text: &str) -> bool {
    static HOSTNAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(concat!(
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)",
            r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}",
            r"([a-zA-Z\p{L}]){2,63})$"
        ))
        .ok()
    });
    HOSTNAME.as_ref().is_some_and(|re| re.is_match(text))
        && text.len() <= 255
        && text.split('.').all(|part| part.len() <= 63)
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    // Each dash may be left out.
    let mut digits = Vec::with_capacity(32);
    let mut rest = text.as_bytes();
    for length in [8, 4, 4, 4, 12] {
        if !digits.is_empty() {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        digits.extend_from_slice(group);
        rest = after;
    }
    let variant = !matches!(version, Some(b'4' | b'5'))
        || matches!(digits[16], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
    rest.is_empty()
        && digits.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|version| digits[12] == version)
        && variant
}

fn is_segment(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_segment(text)
}

/// An address without a zone, as rules' `ip()` and prefixes take it.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(format: &str, text: &str) -> bool {
        let format = Format::find(format, Some(Type::String)).unwrap().unwrap();
        (format.accepts.unwrap())(text)
    }

    #[test]
    fn formats_accept_what_the_api_server_accepts() {
        for (format, text, good) in [
            ("date-time", "2026-12-01T18:00:00Z", true),
            ("date-time", "2026-12-01t18:00:00.123+01:00", true),
            ("date-time", "2026-12-01T18:00:00", false),
            ("date-time", "2026-12-01 18:00:00Z", false),
            ("date-time", "2026-02-30T18:00:00Z", false),
            ("date-time", "2026-12-01T24:00:00Z", false),
            ("date-time", "2026-12-01T18:00:60Z", false),
            ("date-time", "2026-12-01T18:00:00+99:99", true),
            ("datetime", "2026-12-01T18:00:00Z", true),
            ("date", "2026-12-01", true),
            ("date", "2026-13-01", false),
            ("date", "2026-1-01", false),
            ("duration", "1h30m", true),
            ("duration", "2 days", true),
            ("duration", "soon", false),
            ("uri", "http://a/b", true),
            ("uri", "/only/a/path", true),
            ("uri", "over there", false),
            ("hostname", "a.example.org", true),
            ("hostname", "a_b", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv4", "::1", false),
            ("ipv6", "::1", true),
            ("ipv6", "10.0.0.1", false),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", false),
            ("uuid4", "123E4567e89b42d3a456426614174000", true),
            ("byte", "YWJj", true),
            ("byte", "YWJ", false),
            ("byte", "", false),
            ("byte", "YWJj\n", false),
            ("byte", "YR==", true),
            ("k8s-short-name", "a-b", true),
            ("k8s-short-name", "a.b", false),
            ("k8s-long-name", "a.b", true),
        ] {
            assert_eq!(accepts(format, text), good, "{format} {text}");
        }
    }

    #[test]
    fn what_the_api_server_ignores_is_ignored_and_what_we_lack_is_said() {
        assert!(Format::find("int-or-string", Some(Type::String)).unwrap().is_none());
        assert!(Format::find("int64", Some(Type::String)).unwrap().is_none());
        assert!(Format::find("date", Some(Type::Integer)).unwrap().is_none());
        assert!(Format::find("isbn", Some(Type::String)).is_err());
    }
}
