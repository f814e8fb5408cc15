//! From what is written to the amount.

use super::{BINARY, BINARY_LIMIT, DECIMAL, Format, LIMIT, NANOS, Quantity};

/// No number of nanos within the limit has more digits.
const MAX_DIGITS: i64 = 31;

/// Why a text is not a quantity. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing was written.
    #[error(
        "a quantity is missing: write a number, with a suffix where it needs one, such as 2, 500m or 4Gi"
    )]
    Empty,
    /// A space somewhere.
    #[error("{0:?} has a space in it: write number and suffix together, such as 4Gi")]
    Space(String),
    /// A suffix that is meant as one that there is.
    #[error("{text:?} has an unknown suffix: write {instead}")]
    Suffix {
        /// What was written.
        text: String,
        /// The suffixes that it may mean.
        instead: String,
    },
    /// Anything else that is not a number with a suffix.
    #[error(
        "{0:?} is not a quantity: write a number with a point where it has a fraction, and one of the suffixes n, u, m, k, M, \
         G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent where it needs one, such as 1.5, 500m, 4Gi or 1e3"
    )]
    Syntax(String),
    /// More than Kubernetes can represent.
    #[error("{0:?} is too large: write less than 1000E, and with a binary suffix less than 8Ei")]
    TooLarge(String),
}

/// What a suffix multiplies by.
enum Multiplier {
    /// A power of ten.
    Ten(i32),
    /// A power of two.
    Two(u32),
}

/// The amount, and the form in which it is written.
pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    if text.contains(char::is_whitespace) {
        return Err(QuantityError::Space(text.to_owned()));
    }
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    // The API server reads a text without digits as zero; whoever writes one has forgotten the number.
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError::Syntax(text.to_owned()));
    }
    let (multiplier, mut format) = multiplier(suffix).ok_or_else(|| unknown(text, suffix))?;
    let (nanos, limit) = match multiplier {
        Multiplier::Ten(exponent) => (by_ten(whole, fraction, exponent), LIMIT - 1),
        Multiplier::Two(exponent) => (by_two(whole, fraction, exponent), BINARY_LIMIT),
    };
    let nanos =
        nanos.filter(|nanos| *nanos <= limit).ok_or_else(|| QuantityError::TooLarge(text.to_owned()))?;
    if format == Format::Binary && nanos > 0 && nanos < NANOS {
        format = Format::Decimal;
    }
    Ok(Quantity::new(if negative { -nanos } else { nanos }, format))
}

/// The digits that a text begins with, and the rest.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn multiplier(suffix: &str) -> Option<(Multiplier, Format)> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((Multiplier::Ten(*exponent), Format::Decimal));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Some((Multiplier::Two(*exponent), Format::Binary));
    }
    // Of an exponent with more than 32 bits the API server keeps the lowest.
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Multiplier::Ten(exponent), Format::Exponent))
}

/// Nanos of a number times a power of ten, rounded up. Nothing: it is far too large.
fn by_ten(whole: &str, fraction: &str, exponent: i32) -> Option<i128> {
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let zeros = i64::from(exponent) + 9 - i64::try_from(fraction.len()).ok()?;
    let length = i64::try_from(digits.len()).ok()? + zeros;
    if length > MAX_DIGITS {
        return None;
    }
    let Ok(length) = usize::try_from(length) else { return Some(1) };
    let Ok(zeros) = u32::try_from(zeros) else {
        let (kept, dropped) = digits.split_at(length);
        let kept: i128 = if kept.is_empty() { 0 } else { kept.parse().ok()? };
        return Some(kept + i128::from(dropped.bytes().any(|digit| digit != b'0')));
    };
    digits.parse::<i128>().ok()?.checked_mul(10_i128.checked_pow(zeros)?)
}

/// Nanos of a number times a power of two, rounded up. Nothing: it is far too large.
fn by_two(whole: &str, fraction: &str, exponent: u32) -> Option<i128> {
    let factor = NANOS << exponent;
    let whole = whole.trim_start_matches('0');
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // From the last digit on: each is a tenth of the one before it.
    let (mut nanos, mut exact) = (0, true);
    for digit in fraction.bytes().rev() {
        let tenths = i128::from(digit - b'0') * factor + nanos;
        exact &= tenths % 10 == 0;
        nanos = tenths / 10;
    }
    whole.checked_mul(factor)?.checked_add(nanos + i128::from(!exact))
}

/// What is said of a suffix that there is not.
fn unknown(text: &str, suffix: &str) -> QuantityError {
    let stem = suffix.trim_end_matches(['b', 'B']);
    let same = |known: &str| !known.is_empty() && known.eq_ignore_ascii_case(stem);
    let binary = |known: &str| same(known) || known.strip_suffix('i').is_some_and(same);
    let decimal = DECIMAL.iter().filter(|(known, exponent)| *exponent > 0 && same(known));
    let decimal = decimal.map(|(known, exponent)| format!("{known} for 10^{exponent}"));
    let binary = BINARY.iter().filter(|(known, _)| binary(known));
    let binary = binary.map(|(known, exponent)| format!("{known} for 2^{exponent}"));
    let instead: Vec<String> = decimal.chain(binary).collect();
    if instead.is_empty() {
        return QuantityError::Syntax(text.to_owned());
    }
    QuantityError::Suffix { text: text.to_owned(), instead: instead.join(", or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn refusals_say_what_to_write() {
        assert!(refusal("").ends_with("such as 2, 500m or 4Gi"), "{}", refusal(""));
        assert_eq!(
            refusal("4 Gi"),
            "\"4 Gi\" has a space in it: write number and suffix together, such as 4Gi"
        );
        for (text, instead) in [
            ("1K", "k for 10^3, or Ki for 2^10"),
            ("4gb", "G for 10^9, or Gi for 2^30"),
            ("1GiB", "Gi for 2^30"),
            ("1mi", "Mi for 2^20"),
            ("1mb", "M for 10^6, or Mi for 2^20"),
            ("1e", "E for 10^18, or Ei for 2^60"),
        ] {
            assert_eq!(refusal(text), format!("{text:?} has an unknown suffix: write {instead}"));
        }
        for text in ["m", ".", "+", "1,5", "1.2.3", "half", "1b", "1h", "1e3.5", "1e2147483648", "--1"] {
            assert_eq!(parse(text).unwrap_err(), QuantityError::Syntax(text.to_owned()));
        }
        for text in ["1000E", "8Ei", "-1e21", "999999999999999999999.9999999991", "1e2147483647"] {
            assert_eq!(parse(text).unwrap_err(), QuantityError::TooLarge(text.to_owned()));
        }
    }

    #[test]
    fn amounts_are_exact_however_long_the_text_is() {
        let zeros = "0".repeat(10_000);
        let one = Quantity::new(NANOS, Format::Decimal);
        assert_eq!(parse(&format!("{zeros}1.{zeros}")), Ok(one));
        assert_eq!(parse(&format!("0.{zeros}1e10001")), Ok(one));
        assert_eq!(parse(&format!("1{zeros}e-10000")), Ok(one));
        assert_eq!(parse(&format!("0.{zeros}1")).map(Quantity::nanos), Ok(1));
        assert_eq!(parse(&format!("1.{zeros}1Ki")).map(Quantity::nanos), Ok(1024 * NANOS + 1));
        // The largest that is written with a binary suffix.
        assert_eq!(parse("9007199254740991.9990234375Ki").map(Quantity::nanos), Ok(BINARY_LIMIT));
        assert_eq!(parse("0e2147483647").map(Quantity::nanos), Ok(0));
        assert_eq!(parse("1e-2147483648").map(Quantity::nanos), Ok(1));
    }
}
