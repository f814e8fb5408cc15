//! Quantities against the tables that the Go package of Kubernetes has made. How they are made: `tools/quantity-golden/main.go`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use coppice_quantity::{Quantity, QuantityError};

const QUANTITIES: &str = include_str!("golden/quantities.tsv");
const SUMS: &str = include_str!("golden/sums.tsv");

/// Texts without a digit, which the package reads as zero.
const WITHOUT_DIGITS: [&str; 7] = [".", "+", "-", "m", "Ki", "-.m", "e3"];
/// From here on of either sign, in units, the package prints something else than the amount.
const LIMIT: i128 = 1_000_000_000_000_000_000_000;
const NANOS: i128 = 1_000_000_000;

fn rows<const COLUMNS: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; COLUMNS]> {
    table.lines().map(|line| line.split('\t').collect::<Vec<_>>().try_into().unwrap())
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Whether the package represents it, and did not put its largest amount with a binary suffix in its place.
fn representable(text: &str, nanos: &str) -> bool {
    let cut =
        text.ends_with('i') && nanos.trim_start_matches('-') == (i128::from(i64::MAX) * NANOS).to_string();
    !cut && nanos.parse::<i128>().is_ok_and(|nanos| nanos.abs() < LIMIT * NANOS)
}

#[test]
fn every_text_is_read_and_printed_as_by_kubernetes() {
    let (mut read, mut refused, mut too_large) = (0, 0, 0);
    for [text, printed, canonical, nanos] in rows(QUANTITIES) {
        if nanos == "!" || WITHOUT_DIGITS.contains(&text) {
            let error = text.parse::<Quantity>().expect_err(text);
            assert!(!matches!(error, QuantityError::TooLarge(_)), "{text}: {error}");
            refused += 1;
        } else if !representable(text, nanos) {
            assert_eq!(text.parse::<Quantity>(), Err(QuantityError::TooLarge(text.to_owned())));
            too_large += 1;
        } else {
            let quantity = quantity(text);
            assert_eq!(quantity.to_string(), canonical, "{text}");
            // Exactly that amount: so many of the smallest unit.
            assert_eq!(quantity, self::quantity(&in_nanos(nanos)), "{text}");
            assert_eq!(quantity, self::quantity(printed), "{text}");
            read += 1;
        }
    }
    assert!(
        read > 700 && refused > 40 && too_large > 15,
        "{read} read, {refused} refused, {too_large} too large"
    );
}

/// A number of nanos, written in units.
fn in_nanos(nanos: &str) -> String {
    let digits = nanos.trim_start_matches('-');
    let sign = if nanos.starts_with('-') { "-" } else { "" };
    let padded = format!("{digits:0>10}");
    let (units, rest) = padded.split_at(padded.len() - 9);
    format!("{sign}{units}.{rest}")
}

#[test]
fn sums_and_differences_are_those_of_kubernetes() {
    let (mut compared, mut apart) = (0, 0);
    for [left, right, sum, difference, order] in rows(SUMS) {
        let (Ok(left), Ok(right)) = (left.parse::<Quantity>(), right.parse::<Quantity>()) else { continue };
        let order: i8 = order.parse().unwrap();
        assert_eq!(left.cmp(&right), order.cmp(&0), "{left} and {right}");
        for (result, expected) in [(left.checked_add(right), sum), (left.checked_sub(right), difference)] {
            match result {
                // The package prints 8Ei and more in a way that it does not read itself.
                Some(_) if expected.ends_with('i') && expected.parse::<Quantity>().is_err() => apart += 1,
                Some(result) => {
                    assert_eq!(result.to_string(), expected, "{left} and {right}");
                    compared += 1;
                }
                None => apart += 1,
            }
        }
    }
    assert!(compared > 1000 && apart < 100, "{compared} compared, {apart} out of range");
}
