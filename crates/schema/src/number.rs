//! Bounds of numbers. The API server keeps whole numbers of 64 bits as such and everything else as a float.

use std::cmp::Ordering;

use serde_json::Number;

use crate::cause::CauseType;
use crate::check::{CheckResult, ValidationFailure};
use crate::go;
use crate::node::{Node, Type};
use crate::path::Path;

/// A number as the API server holds it.
#[derive(Clone, Copy)]
enum Num {
    Int(i64),
    Float(f64),
}

impl From<&Number> for Num {
    fn from(number: &Number) -> Self {
        match number.as_i64() {
            Some(int) => Self::Int(int),
            None => Self::Float(number.as_f64().unwrap_or_default()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "as the API server compares whole numbers with floats")]
const fn as_float(int: i64) -> f64 {
    int as f64
}

/// A float without its fraction.
#[expect(clippy::cast_possible_truncation, reason = "this is what it is for")]
pub(crate) const fn truncated(float: f64) -> i64 {
    float as i64
}

/// Whether a float passes as a whole number: within a billionth of its size, as far as floats count in ones.
pub(crate) fn is_whole(float: f64) -> bool {
    const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || float.abs() > MAX_EXACT_FLOAT {
        return false;
    }
    let whole = float.trunc();
    float.total_cmp(&whole).is_eq() || (float - whole).abs() / (float.abs() + whole.abs()) < 1e-9
}

pub(crate) fn check(node: &Node, number: &Number, path: Path<'_>, outcome: &mut CheckResult) {
    let value = Num::from(number);
    let checks = &node.checks;
    let bad = |sentence: String| {
        ValidationFailure::at(CauseType::Invalid, &path.dotted(), Some(&go::number(number)), sentence)
    };
    if let Some(failure) = out_of_range(node, value, "Checked", path) {
        outcome.fail(failure);
    }
    if let Some(factor) = checks.multiple_of {
        let wrong = bound_out_of_range(node, factor, "MultipleOf", path, outcome);
        if let Some(failure) = not_multiple(value, factor, wrong, path) {
            outcome.fail(failure);
        }
    }
    // The least is checked before the most, though it is written after it.
    for (bound, exclusive, is_least, prefix) in [
        (checks.minimum, checks.exclusive_minimum, true, "Minimum boundary"),
        (checks.maximum, checks.exclusive_maximum, false, "Maximum boundary"),
    ] {
        let Some(bound) = bound else { continue };
        let wrong = bound_out_of_range(node, bound, prefix, path, outcome);
        let (order, shown) = match value {
            Num::Int(int) if !wrong => (int.cmp(&truncated(bound)), truncated(bound).to_string()),
            Num::Int(int) => (compare(as_float(int), bound), go::float(bound)),
            Num::Float(float) => (compare(float, bound), go::float(bound)),
        };
        let outside = if is_least { order.is_lt() } else { order.is_gt() };
        if outside || exclusive && order.is_eq() {
            let relation = match (is_least, exclusive) {
                (true, false) => "greater than or equal to",
                (true, true) => "greater than",
                (false, false) => "less than or equal to",
                (false, true) => "less than",
            };
            outcome.fail(bad(format!("{} in body should be {relation} {shown}", path.dotted())));
        }
    }
}

/// Whole numbers are divided by the factor without its fraction, of which nothing may be left.
fn not_multiple(value: Num, factor: f64, as_floats: bool, path: Path<'_>) -> Option<ValidationFailure> {
    let name = path.dotted();
    let fail =
        |bad: &str, sentence| Some(ValidationFailure::at(CauseType::Invalid, &name, Some(bad), sentence));
    let (float, shown) = match value {
        Num::Int(int) if !as_floats => {
            let factor = truncated(factor);
            return match int.checked_rem(factor) {
                None => fail("0", format!("factor MultipleOf declared for {name} must be positive: 0")),
                Some(0) => None,
                Some(_) => fail(&int.to_string(), format!("{name} in body should be a multiple of {factor}")),
            };
        }
        Num::Int(int) => (as_float(int), int.to_string()),
        Num::Float(float) => (float, go::float(float)),
    };
    let times = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
    if is_whole(times) {
        return None;
    }
    fail(&shown, format!("{name} in body should be a multiple of {}", go::float(factor)))
}

/// JSON has no number that is none.
fn compare(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or(Ordering::Equal)
}

fn bound_out_of_range(
    node: &Node,
    bound: f64,
    what: &str,
    path: Path<'_>,
    outcome: &mut CheckResult,
) -> bool {
    let failure = out_of_range(node, Num::Float(bound), what, path);
    let found = failure.is_some();
    if let Some(failure) = failure {
        outcome.fail(failure);
    }
    found
}

/// What is not a number of the type and format that the schema names. The API server gives no place for it but in the
/// sentence, and says it of bounds as well.
fn out_of_range(node: &Node, value: Num, what: &str, path: Path<'_>) -> Option<ValidationFailure> {
    let format = node.checks.format.as_ref().map(|f| f.name.as_str());
    let fits = match (node.kind, format) {
        _ if node.int_or_string => true,
        (Some(Type::Integer), format) => match value {
            Num::Int(int) => format != Some("int32") || i32::try_from(int).is_ok(),
            Num::Float(float) => {
                let (least, most) = if format == Some("int32") {
                    (f64::from(i32::MIN), f64::from(i32::MAX) + 1.0)
                } else {
                    (as_float(i64::MIN), as_float(i64::MAX))
                };
                float.fract() == 0.0 && float >= least && float < most
            }
        },
        (Some(Type::Number), Some("float")) => match value {
            Num::Int(_) => true,
            Num::Float(float) => float.abs() < 3.402_823_567_797_336_6e38,
        },
        _ => true,
    };
    if fits {
        return None;
    }
    let kind = node.kind.map_or("", Type::as_str);
    let format = format.map_or_else(|| "(default format)".to_owned(), |f| format!("with format {f}"));
    Some(ValidationFailure::unplaced(format!(
        "{what} value must be of type {kind} {format} in {}",
        path.dotted()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_whole_floats_pass_as_whole() {
        for (float, whole) in [
            (1.0, true),
            (0.0, true),
            (-3.0, true),
            (1.5, false),
            (3.000_000_000_1, true),
            (9_007_199_254_740_992.0, false),
            (f64::NAN, false),
        ] {
            assert_eq!(is_whole(float), whole, "{float}");
        }
    }
}
