//! Functions of strings. Positions count characters, not bytes.
#![expect(clippy::unnecessary_wraps, reason = "all functions of a table have one type")]

use std::sync::Arc;

use super::functions::{FunctionEntry, FunctionResult};
use super::value::{Error, List, Val};
use crate::{go, pattern};

pub(crate) const FUNCTIONS: &[FunctionEntry] = &[
    ("contains", true, 2, |a| both(a, |text, other| text.contains(other))),
    ("startsWith", true, 2, |a| both(a, |text, other| text.starts_with(other))),
    ("endsWith", true, 2, |a| both(a, |text, other| text.ends_with(other))),
    ("lowerAscii", true, 1, |a| changed(a, str::to_ascii_lowercase)),
    ("upperAscii", true, 1, |a| changed(a, str::to_ascii_uppercase)),
    ("trim", true, 1, |a| changed(a, |text| text.trim().to_owned())),
    ("strings.quote", false, 1, |a| changed(a, go::quote)),
    ("charAt", true, 2, |a| {
        let [Val::Str(text), Val::Int(index)] = a else { return Ok(None) };
        let count = text.chars().count();
        match usize::try_from(*index) {
            Ok(index) if index == count => Ok(Some(Val::text(""))),
            Ok(index) if index < count => {
                Ok(Some(Val::text(text.chars().skip(index).take(1).collect::<String>())))
            }
            _ => Err(out_of_range(*index)),
        }
    }),
    ("indexOf", true, 2, |a| position(a, 0, false)),
    ("indexOf", true, 3, |a| position(a, 0, false)),
    ("lastIndexOf", true, 2, |a| position(a, i64::MAX, true)),
    ("lastIndexOf", true, 3, |a| position(a, i64::MAX, true)),
    ("substring", true, 2, substring),
    ("substring", true, 3, substring),
    ("replace", true, 3, replace),
    ("replace", true, 4, replace),
    ("split", true, 2, split),
    ("split", true, 3, split),
    ("join", true, 1, join),
    ("join", true, 2, join),
    ("find", true, 2, |a| {
        let [Val::Str(text), Val::Str(pattern)] = a else { return Ok(None) };
        let found = regex(pattern)?.find(text).map_or("", |m| m.as_str()).to_owned();
        Ok(Some(Val::text(found)))
    }),
    ("findAll", true, 2, find_all),
    ("findAll", true, 3, find_all),
];

fn both<'a>(arguments: &[Val<'a>], is: fn(&str, &str) -> bool) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Str(text), Val::Str(other)] => Some(Val::Bool(is(text, other))),
        _ => None,
    })
}

fn changed<'a>(arguments: &[Val<'a>], change: fn(&str) -> String) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Str(text)] => Some(Val::text(change(text))),
        _ => None,
    })
}

fn out_of_range(index: i64) -> Error {
    Error::new(format!("index out of range: {index}"))
}

fn regex(pattern: &str) -> Result<Arc<regex::Regex>, Error> {
    pattern::compile(pattern).map_err(|problem| Error::new(format!("Illegal regex: {problem}")))
}

/// Where one text begins in another, from a place on or up to it. Lists have functions of the same names.
fn position<'a>(arguments: &[Val<'a>], default: i64, is_last: bool) -> FunctionResult<'a> {
    if let [Val::List(list), item] = arguments {
        return position_in_list(list, item, is_last);
    }
    let ([Val::Str(text), Val::Str(part), rest @ ..], default) = (arguments, default) else {
        return Ok(None);
    };
    let from = match rest {
        [Val::Int(from)] => *from,
        [] => default,
        _ => return Ok(None),
    };
    let characters: Vec<char> = text.chars().collect();
    let wanted: Vec<char> = part.chars().collect();
    if rest.is_empty() && wanted.is_empty() && is_last {
        return Ok(Some(Val::size(characters.len())));
    }
    let bound = usize::try_from(from).map_err(|_| out_of_range(from))?;
    if !rest.is_empty() && bound > characters.len() {
        return Err(out_of_range(from));
    }
    let mut places = 0..=characters.len().saturating_sub(wanted.len());
    let is_at = |place: &usize| characters[*place..].starts_with(&wanted);
    let found = if is_last {
        places.rev().find(|place| *place <= bound && is_at(place))
    } else {
        places.find(|place| *place >= bound && is_at(place))
    };
    Ok(Some(found.map_or(Val::Int(-1), Val::size)))
}

fn position_in_list<'a>(list: &List<'a>, item: &Val<'a>, is_last: bool) -> FunctionResult<'a> {
    let mut found = None;
    for (index, known) in list.iter().enumerate() {
        if known?.same(item)? {
            found = Some(index);
            if !is_last {
                break;
            }
        }
    }
    Ok(Some(found.map_or(Val::Int(-1), Val::size)))
}

fn substring<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    let (text, start, end) = match arguments {
        [Val::Str(text), Val::Int(start)] => (text, *start, None),
        [Val::Str(text), Val::Int(start), Val::Int(end)] => (text, *start, Some(*end)),
        _ => return Ok(None),
    };
    let count = text.chars().count();
    let place = |index: i64| {
        usize::try_from(index).ok().filter(|place| *place <= count).ok_or_else(|| out_of_range(index))
    };
    let from = place(start)?;
    let to = end.map_or(Ok(count), place)?;
    if from > to {
        return Err(Error::new(format!("invalid substring range. start: {from}, end: {to}")));
    }
    Ok(Some(Val::text(text.chars().skip(from).take(to - from).collect::<String>())))
}

fn replace<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    Ok(match arguments {
        [Val::Str(text), Val::Str(old), Val::Str(new)] => Some(Val::text(text.replace(old.as_ref(), new))),
        [Val::Str(text), Val::Str(old), Val::Str(new), Val::Int(most)] => {
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            Some(Val::text(text.replacen(old.as_ref(), new, most)))
        }
        _ => None,
    })
}

fn split<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    let (text, separator, most) = match arguments {
        [Val::Str(text), Val::Str(separator)] => (text, separator, usize::MAX),
        [Val::Str(text), Val::Str(separator), Val::Int(most)] => {
            (text, separator, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Ok(None),
    };
    let own = |part: &str| Val::text(part.to_owned());
    let parts = if separator.is_empty() {
        // Into its characters, the last part keeping the rest.
        let mut rest = text.as_ref();
        let mut parts = Vec::new();
        while let Some(first) = rest.chars().next().filter(|_| parts.len() < most) {
            let end = if parts.len() + 1 == most { rest.len() } else { first.len_utf8() };
            parts.push(own(&rest[..end]));
            rest = &rest[end..];
        }
        parts
    } else {
        text.splitn(most, separator.as_ref()).map(own).collect()
    };
    Ok(Some(Val::list(parts)))
}

fn join<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    let (list, separator) = match arguments {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::Str(separator)] => (list, separator.as_ref()),
        _ => return Ok(None),
    };
    let mut joined = String::new();
    for (index, item) in list.iter().enumerate() {
        let Val::Str(text) = item? else { return Ok(None) };
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&text);
    }
    Ok(Some(Val::text(joined)))
}

fn find_all<'a>(arguments: &[Val<'a>]) -> FunctionResult<'a> {
    let (text, pattern, most) = match arguments {
        [Val::Str(text), Val::Str(pattern)] => (text, pattern, usize::MAX),
        [Val::Str(text), Val::Str(pattern), Val::Int(most)] => {
            (text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Ok(None),
    };
    let pattern = regex(pattern)?;
    let found = pattern.find_iter(text).take(most).map(|m| Val::text(m.as_str().to_owned()));
    Ok(Some(Val::list(found.collect())))
}
