//! The functions of rules: CEL's own, and by name those of the other modules.
#![expect(clippy::unnecessary_wraps, reason = "all functions of a table have one type")]

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::value::{Error, Val};
use super::{library, strings};
use crate::{go, pattern, text};

/// Computes a value; none if the arguments are not of types that it is for.
pub(crate) type Function = for<'a> fn(&[Val<'a>]) -> FunctionResult<'a>;

/// The result of a function.
pub(crate) type FunctionResult<'a> = Result<Option<Val<'a>>, Error>;

/// A name, whether it is written after its first argument and a dot, the number of arguments with that one, and what it
/// does.
pub(crate) type FunctionEntry = (&'static str, bool, usize, Function);

/// The function of this name, and its name for messages.
pub(crate) fn find(name: &str, is_method: bool, count: usize) -> Option<(&'static str, Function)> {
    let tables = [OPERATORS, CONVERSIONS, TIMES, strings::FUNCTIONS, library::FUNCTIONS];
    let fits = |entry: &&FunctionEntry| entry.0 == name && entry.1 == is_method && entry.2 == count;
    tables.into_iter().flatten().find(fits).map(|entry| (entry.0, entry.3))
}

/// The type that a name stands for.
pub(crate) fn type_named(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 12] = [
        "bool",
        "bytes",
        "double",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "type",
        "uint",
    ];
    NAMES.into_iter().find(|known| *known == name)
}

const OPERATORS: &[FunctionEntry] = &[
    ("!_", false, 1, |a| match a {
        [Val::Bool(b)] => Ok(Some(Val::Bool(!b))),
        _ => Ok(None),
    }),
    ("-_", false, 1, |a| {
        Ok(match a {
            [Val::Int(int)] => Some(Val::Int(int.checked_neg().ok_or_else(overflow)?)),
            [Val::Double(double)] => Some(Val::Double(-double)),
            _ => None,
        })
    }),
    ("_==_", false, 2, |a| Ok(Some(Val::Bool(a[0].same(&a[1])?)))),
    ("_!=_", false, 2, |a| Ok(Some(Val::Bool(!a[0].same(&a[1])?)))),
    ("_<_", false, 2, |a| ordered(a, Ordering::is_lt)),
    ("_<=_", false, 2, |a| ordered(a, Ordering::is_le)),
    ("_>_", false, 2, |a| ordered(a, Ordering::is_gt)),
    ("_>=_", false, 2, |a| ordered(a, Ordering::is_ge)),
    ("_+_", false, 2, add),
    ("_-_", false, 2, subtract),
    ("_*_", false, 2, |a| {
        Ok(match a {
            [Val::Int(a), Val::Int(b)] => Some(Val::Int(a.checked_mul(*b).ok_or_else(overflow)?)),
            [Val::Uint(a), Val::Uint(b)] => Some(Val::Uint(a.checked_mul(*b).ok_or_else(unsigned_overflow)?)),
            [Val::Double(a), Val::Double(b)] => Some(Val::Double(a * b)),
            _ => None,
        })
    }),
    ("_/_", false, 2, |a| {
        let by_zero = || Err(Error::new("division by zero"));
        Ok(match a {
            [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => return by_zero(),
            [Val::Int(a), Val::Int(b)] => Some(Val::Int(a.checked_div(*b).ok_or_else(overflow)?)),
            [Val::Uint(a), Val::Uint(b)] => Some(Val::Uint(a / b)),
            [Val::Double(a), Val::Double(b)] => Some(Val::Double(a / b)),
            _ => None,
        })
    }),
    ("_%_", false, 2, |a| {
        let by_zero = || Err(Error::new("modulus by zero"));
        Ok(match a {
            [Val::Int(_), Val::Int(0)] | [Val::Uint(_), Val::Uint(0)] => return by_zero(),
            [Val::Int(a), Val::Int(b)] => Some(Val::Int(a.checked_rem(*b).ok_or_else(overflow)?)),
            [Val::Uint(a), Val::Uint(b)] => Some(Val::Uint(a % b)),
            _ => None,
        })
    }),
    ("@in", false, 2, |a| {
        Ok(match a {
            [item, Val::List(list)] => Some(Val::Bool(list.contains(item)?)),
            [key, Val::Map(map)] => Some(Val::Bool(map.get(key)?.is_some())),
            _ => return Err(Error::no_such_overload()),
        })
    }),
    ("size", false, 1, size),
    ("size", true, 1, size),
    ("type", false, 1, |a| Ok(Some(Val::Type(a[0].type_name())))),
    ("dyn", false, 1, |a| Ok(Some(a[0].clone()))),
];

fn overflow() -> Error {
    Error::new("integer overflow")
}

fn unsigned_overflow() -> Error {
    Error::new("unsigned integer overflow")
}

fn duration_overflow() -> Error {
    Error::new("duration overflow")
}

fn timestamp_overflow() -> Error {
    Error::new("timestamp overflow")
}

fn ordered<'a>(arguments: &[Val<'a>], is: fn(Ordering) -> bool) -> FunctionResult<'a> {
    Ok(arguments[0].compare(&arguments[1]).map(|order| Val::Bool(is(order))))
}

fn add<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    Ok(Some(match arguments {
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_add(*b).ok_or_else(overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a.checked_add(*b).ok_or_else(unsigned_overflow)?),
        [Val::Double(a), Val::Double(b)] => Val::Double(a + b),
        [Val::Str(a), Val::Str(b)] => Val::text(format!("{a}{b}")),
        [Val::Bytes(a), Val::Bytes(b)] => Val::Bytes(a.iter().chain(b.iter()).copied().collect()),
        [Val::List(a), Val::List(b)] => a.concatenate(b)?,
        [Val::Duration(a), Val::Duration(b)] => {
            Val::Duration(a.checked_add(*b).ok_or_else(duration_overflow)?)
        }
        [Val::Timestamp(t), Val::Duration(d)] | [Val::Duration(d), Val::Timestamp(t)] => later(*t, *d)?,
        _ => return Ok(None),
    }))
}

fn subtract<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    Ok(Some(match arguments {
        [Val::Int(a), Val::Int(b)] => Val::Int(a.checked_sub(*b).ok_or_else(overflow)?),
        [Val::Uint(a), Val::Uint(b)] => Val::Uint(a.checked_sub(*b).ok_or_else(unsigned_overflow)?),
        [Val::Double(a), Val::Double(b)] => Val::Double(a - b),
        [Val::Duration(a), Val::Duration(b)] => {
            Val::Duration(a.checked_sub(*b).ok_or_else(duration_overflow)?)
        }
        [Val::Timestamp(t), Val::Duration(d)] => later(*t, d.checked_neg().ok_or_else(duration_overflow)?)?,
        [Val::Timestamp(a), Val::Timestamp(b)] => {
            let nanoseconds = a.as_nanosecond() - b.as_nanosecond();
            Val::Duration(i64::try_from(nanoseconds).map_err(|_| duration_overflow())?)
        }
        _ => return Ok(None),
    }))
}

fn later<'a>(at: Timestamp, nanoseconds: i64) -> Result<Val<'a>, Error> {
    let later = at.checked_add(SignedDuration::from_nanos(nanoseconds)).map_err(|_| timestamp_overflow())?;
    Ok(Val::Timestamp(later))
}

fn size<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Str(text)] => Some(Val::size(text.chars().count())),
        [Val::Bytes(bytes)] => Some(Val::size(bytes.len())),
        [Val::List(list)] => Some(Val::size(list.len())),
        [Val::Map(map)] => Some(Val::size(map.len())),
        _ => None,
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions of numbers are what this table is for"
)]
const CONVERSIONS: &[FunctionEntry] = &[
    ("int", false, 1, |a| {
        Ok(Some(match a {
            [Val::Int(int)] => Val::Int(*int),
            [Val::Uint(uint)] => Val::Int(i64::try_from(*uint).map_err(|_| overflow())?),
            // Beyond these bounds the fraction is lost, and with it what is meant.
            [Val::Double(d)] if *d > i64::MIN as f64 && *d < i64::MAX as f64 => Val::Int(*d as i64),
            [Val::Double(_)] => return Err(overflow()),
            [Val::Timestamp(at)] => Val::Int(at.as_second()),
            [Val::Str(text)] => match text.parse() {
                Ok(int) => Val::Int(int),
                Err(_) => return Err(unreadable("int")),
            },
            _ => return Ok(None),
        }))
    }),
    ("uint", false, 1, |a| {
        Ok(Some(match a {
            [Val::Uint(uint)] => Val::Uint(*uint),
            [Val::Int(int)] => Val::Uint(u64::try_from(*int).map_err(|_| unsigned_overflow())?),
            [Val::Double(d)] if *d >= 0.0 && *d < u64::MAX as f64 => Val::Uint(*d as u64),
            [Val::Double(_)] => return Err(unsigned_overflow()),
            [Val::Str(text)] => match text.parse() {
                Ok(uint) => Val::Uint(uint),
                Err(_) => return Err(unreadable("uint")),
            },
            _ => return Ok(None),
        }))
    }),
    ("double", false, 1, |a| {
        Ok(Some(match a {
            [Val::Str(text)] => match text.parse() {
                Ok(double) => Val::Double(double),
                Err(_) => return Err(unreadable("double")),
            },
            [other] => return Ok(other.as_double().map(Val::Double)),
            _ => return Ok(None),
        }))
    }),
    ("bool", false, 1, |a| {
        Ok(Some(match a {
            [Val::Bool(b)] => Val::Bool(*b),
            [Val::Str(text)] => match text.as_ref() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Val::Bool(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Val::Bool(false),
                _ => return Err(unreadable("bool")),
            },
            _ => return Ok(None),
        }))
    }),
    ("string", false, 1, |a| {
        Ok(Some(match a {
            [Val::Bytes(bytes)] => match std::str::from_utf8(bytes) {
                Ok(text) => Val::text(text.to_owned()),
                Err(_) => return Err(Error::new("invalid UTF-8 in bytes, cannot convert to string")),
            },
            [Val::Duration(nanoseconds)] => Val::text(format!("{}s", go::float(*nanoseconds as f64 / 1e9))),
            [Val::Timestamp(at)] => Val::text(at.to_string()),
            [Val::Url(url)] => Val::text(url.text.clone()),
            [Val::Ip(ip)] => Val::text(ip.to_string()),
            [Val::Cidr(ip, length)] => Val::text(format!("{ip}/{length}")),
            [Val::Str(text)] => Val::Str(text.clone()),
            [scalar @ (Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_))] => {
                Val::text(scalar.to_string())
            }
            _ => return Ok(None),
        }))
    }),
    ("bytes", false, 1, |a| {
        Ok(match a {
            [Val::Bytes(bytes)] => Some(Val::Bytes(Arc::clone(bytes))),
            [Val::Str(text)] => Some(Val::Bytes(text.as_bytes().into())),
            _ => None,
        })
    }),
    ("duration", false, 1, |a| {
        Ok(match a {
            [Val::Duration(d)] => Some(Val::Duration(*d)),
            [Val::Str(written)] => match text::parse_go_duration(written) {
                Some(nanoseconds) => Some(Val::Duration(nanoseconds)),
                None => return Err(unreadable("google.protobuf.Duration")),
            },
            _ => None,
        })
    }),
    ("timestamp", false, 1, |a| {
        Ok(match a {
            [Val::Timestamp(at)] => Some(Val::Timestamp(*at)),
            [Val::Int(seconds)] => {
                Some(Val::Timestamp(Timestamp::from_second(*seconds).map_err(|_| timestamp_overflow())?))
            }
            [Val::Str(text)] => match text.parse() {
                Ok(at) => Some(Val::Timestamp(at)),
                Err(_) => return Err(unreadable("google.protobuf.Timestamp")),
            },
            _ => None,
        })
    }),
    ("matches", false, 2, |a| {
        let [Val::Str(text), Val::Str(pattern)] = a else { return Ok(None) };
        let pattern = pattern::compile(pattern).map_err(|problem| Error::new(problem.to_string()))?;
        Ok(Some(Val::Bool(pattern.is_match(text))))
    }),
];

/// A string that cannot be converted to the type that it has to have.
fn unreadable(wanted: &str) -> Error {
    Error::new(format!("type conversion error from 'string' to '{wanted}'"))
}

const TIMES: &[FunctionEntry] = &[
    ("getFullYear", true, 1, |a| of_time(a, |t| t.year().into())),
    ("getMonth", true, 1, |a| of_time(a, |t| i64::from(t.month()) - 1)),
    ("getDayOfMonth", true, 1, |a| of_time(a, |t| i64::from(t.day()) - 1)),
    ("getDate", true, 1, |a| of_time(a, |t| t.day().into())),
    ("getDayOfYear", true, 1, |a| of_time(a, |t| i64::from(t.day_of_year()) - 1)),
    ("getDayOfWeek", true, 1, |a| of_time(a, |t| t.weekday().to_sunday_zero_offset().into())),
    ("getHours", true, 1, |a| of_span(a, 3_600_000_000_000, |t| t.hour().into())),
    ("getMinutes", true, 1, |a| of_span(a, 60_000_000_000, |t| t.minute().into())),
    ("getSeconds", true, 1, |a| of_span(a, 1_000_000_000, |t| t.second().into())),
    ("getMilliseconds", true, 1, |a| of_span(a, 1_000_000, |t| t.millisecond().into())),
];

fn of_time<'a>(arguments: &[Val<'a>], part: fn(&jiff::Zoned) -> i64) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Timestamp(at)] => Some(Val::Int(part(&at.to_zoned(TimeZone::UTC)))),
        _ => None,
    })
}

/// Of a time its part, of a duration how often the unit is in it.
fn of_span<'a>(arguments: &[Val<'a>], unit: i64, part: fn(&jiff::Zoned) -> i64) -> FunctionResult<'a> {
    match arguments {
        [Val::Duration(nanoseconds)] => Ok(Some(Val::Int(nanoseconds / unit))),
        _ => of_time(arguments, part),
    }
}
