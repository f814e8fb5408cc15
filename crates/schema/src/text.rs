//! Texts that stand for something else: durations, prefixes, bytes.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::format::parse_ip;

const SECOND: i64 = 1_000_000_000;

/// A Go duration in nanoseconds (`1h30m`, `-1.5s`, `0`).
pub(crate) fn parse_go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        total += scaled(number, unit_of(unit)?)?;
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn unit_of(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        _ => return None,
    })
}

/// A decimal number times a unit, without rounding up.
fn scaled(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    let mut nanoseconds = whole * i128::from(unit);
    let mut part = i128::from(unit);
    // Beyond eighteen digits nothing is left even of an hour.
    let mut rest: i128 = 0;
    let mut scale: i128 = 1;
    for digit in fraction.bytes().take(18) {
        rest = rest * 10 + i128::from(digit - b'0');
        scale *= 10;
    }
    part = part * rest / scale;
    nanoseconds += part;
    Some(nanoseconds)
}

/// The `duration` format: as Go reads it, or numbers with units by their names, such as `2 days`. In nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    if let Some(nanoseconds) = parse_go_duration(text) {
        return Some(nanoseconds);
    }
    let mut total: i64 = 0;
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = &rest[start..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start_matches(['\t', '\n', '\u{c}', '\r', ' ']);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        rest = after;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        for nanoseconds in named_units(&unit.to_lowercase()) {
            found = true;
            total = total.wrapping_add(number.wrapping_mul(nanoseconds));
        }
    }
    found.then_some(total)
}

/// The units that a word stands for: by an abbreviation, or by the beginning of its name.
fn named_units(word: &str) -> impl Iterator<Item = i64> {
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], SECOND),
        (&["m", "min"], 60 * SECOND),
        (&["h", "hr", "hour"], 3_600 * SECOND),
        (&["d", "day"], 86_400 * SECOND),
        (&["w", "wk", "week"], 604_800 * SECOND),
    ];
    UNITS.into_iter().filter_map(move |(names, nanoseconds)| {
        let name = names.last()?;
        (names.contains(&word) || word.starts_with(name)).then_some(nanoseconds)
    })
}

/// An address and the length of its prefix.
pub(crate) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let plain = !length.is_empty() && length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit());
    let length = length.parse::<u8>().ok().filter(|l| plain && *l <= most)?;
    Some((address, length))
}

/// The bytes of standard base64 with padding, at least one, without line breaks. Bits that are left over may be set.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    LENIENT.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("0", Some(0)),
            ("1h30m", Some(5_400 * SECOND)),
            ("-1.5s", Some(-1_500_000_000)),
            (".5m", Some(30 * SECOND)),
            ("1.", None),
            ("1.s", Some(SECOND)),
            ("1d", None),
            ("", None),
            ("-", None),
            ("9223372036854775807ns", Some(i64::MAX)),
            ("9223372036854775808ns", None),
            ("-9223372036854775808ns", Some(i64::MIN)),
        ] {
            assert_eq!(parse_go_duration(text), nanoseconds, "{text}");
        }
    }

    #[test]
    fn the_format_also_knows_units_by_name() {
        for (text, nanoseconds) in [
            ("2 days", Some(2 * 86_400 * SECOND)),
            ("1 hour and 5 min", Some(3_900 * SECOND)),
            ("3w", Some(3 * 604_800 * SECOND)),
            ("days", None),
            ("7", None),
        ] {
            assert_eq!(parse_duration(text), nanoseconds, "{text}");
        }
    }
}
