//! The template engine, as far as users may use it.

use jiff::Timestamp;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, filters};

use crate::{Part, escape, times};

/// The work that one template may cost: about so many instructions, or 64 bytes of text for each. The built-in ones need less than a quarter.
pub(crate) const FUEL: u64 = 50_000;

/// An engine with few filters and without functions and tests: nothing that turns off escaping, makes long lists, or calls what is
/// undefined defined.
pub(crate) fn environment() -> Environment<'static> {
    let mut engine = Environment::empty();
    engine.set_fuel(Some(FUEL));
    engine.set_debug(true);
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    // The delimiters are the usual ones, which no builder refuses.
    if let Ok(syntax) = syntax.trim_blocks(true).lstrip_blocks(true).build() {
        engine.set_syntax(syntax);
    }
    // Of each part, so that what `{% set %}` captures is known to be escaped.
    engine.set_auto_escape_callback(|name| AutoEscape::Custom(name.to_owned().into()));
    engine.set_formatter(write);
    engine.add_filter("absolute", absolute);
    engine.add_filter("relative", relative);
    engine.add_filter("first", filters::first);
    engine.add_filter("join", filters::join);
    engine.add_filter("last", filters::last);
    engine.add_filter("length", filters::length);
    engine.add_filter("lower", filters::lower);
    engine.add_filter("replace", filters::replace);
    engine.add_filter("trim", filters::trim);
    engine.add_filter("upper", filters::upper);
    engine
}

/// Writes a value as its template needs it, whatever `{% autoescape %}` says.
fn write(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_none() {
        return Ok(());
    }
    match value.as_str() {
        Some(text) if value.is_safe() => out.write_str(text)?,
        Some(text) => escape::write(out, part(state)?, text)?,
        None => escape::write(out, part(state)?, &value.to_string())?,
    }
    Ok(())
}

fn part(state: &State<'_, '_>) -> Result<Part, Error> {
    let part = Part::ALL.into_iter().find(|part| part.as_str() == state.name());
    part.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "no part of a message has this name"))
}

fn absolute(value: &Value) -> Result<String, Error> {
    instant(value).map(times::absolute)
}

fn relative(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let now = state.lookup("now").unwrap_or_default();
    Ok(times::relative(instant(value)?, instant(&now)?))
}

fn instant(value: &Value) -> Result<Timestamp, Error> {
    if value.is_none() {
        let problem = "there is no instant there: write {% if ... %} and {% endif %} around it";
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        let problem = format!("{value:?} is no instant: write one of givenAt, expiresAt, deletion.at");
        Error::new(ErrorKind::InvalidOperation, problem)
    })
}
