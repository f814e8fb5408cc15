//! Evaluates compiled expressions.

use std::borrow::Cow;
use std::sync::Arc;

use super::program::{Expr, Fold, Program};
use super::value::{Error, Eval, Map, Val};

/// The value of an expression about a value and, if there is one, the value that was there before.
pub(crate) fn evaluate<'a>(program: &'a Program, this: &Val<'a>, old: &Val<'a>) -> Eval<'a> {
    let mut places = Variables(Vec::with_capacity(8));
    places.0.push(Ok(this.clone()));
    places.0.push(Ok(old.clone()));
    places.value(&program.code)
}

/// Variables, by their places. An accumulator may hold an error until something overrules it.
struct Variables<'a>(Vec<Eval<'a>>);

impl<'a> Variables<'a> {
    fn value(&mut self, expr: &'a Expr) -> Eval<'a> {
        match expr {
            Expr::Null => Ok(Val::Null),
            Expr::Bool(b) => Ok(Val::Bool(*b)),
            Expr::Int(int) => Ok(Val::Int(*int)),
            Expr::Uint(uint) => Ok(Val::Uint(*uint)),
            Expr::Double(double) => Ok(Val::Double(*double)),
            Expr::Str(text) => Ok(Val::text(text.as_str())),
            Expr::Bytes(bytes) => Ok(Val::Bytes(bytes.as_slice().into())),
            Expr::Type(name) => Ok(Val::Type(name)),
            Expr::Variable(place) => {
                self.0.get(*place).cloned().unwrap_or_else(|| Err(Error::new("no such attribute")))
            }
            Expr::Field { of, name } => {
                let of = self.value(of)?;
                field(&of, name)
            }
            Expr::Has { of, name } => {
                let of = self.value(of)?;
                has(&of, name)
            }
            Expr::MaybeField { of, key } => {
                let (of, key) = (self.value(of)?, self.value(key)?);
                maybe(of, &key)
            }
            Expr::Index { of, key } => {
                let (of, key) = (self.value(of)?, self.value(key)?);
                index(&of, &key)
            }
            Expr::And(sides) => self.either(sides, false),
            Expr::Or(sides) => self.either(sides, true),
            Expr::Choose(parts) => match self.value(&parts[0])? {
                Val::Bool(true) => self.value(&parts[1]),
                Val::Bool(false) => self.value(&parts[2]),
                _ => Err(Error::no_such_overload()),
            },
            Expr::NotFalse(inner) => Ok(Val::Bool(!matches!(self.value(inner), Ok(Val::Bool(false))))),
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Matches { text, pattern } => match self.value(text)? {
                Val::Str(text) => Ok(Val::Bool(pattern.is_match(&text))),
                other => Err(Error::no_overload_of("matches", &[other, Val::Str(Cow::Borrowed(""))])),
            },
            Expr::Call { function, name, arguments } => {
                let arguments = arguments.iter().map(|a| self.value(a)).collect::<Result<Vec<_>, _>>()?;
                function(&arguments)?.ok_or_else(|| Error::no_overload_of(name, &arguments))
            }
            Expr::Fold(fold) => self.fold(fold),
        }
    }

    /// And (`decisive` is false) and or: one side that decides is enough, whatever error the other has.
    fn either(&mut self, sides: &'a [Expr; 2], decisive: bool) -> Eval<'a> {
        let left = self.value(&sides[0]);
        if matches!(left, Ok(Val::Bool(b)) if b == decisive) {
            return left;
        }
        let right = self.value(&sides[1]);
        match (left, right) {
            (_, Ok(Val::Bool(b))) if b == decisive => Ok(Val::Bool(b)),
            (Ok(Val::Bool(_)), Ok(Val::Bool(b))) => Ok(Val::Bool(b)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => Err(Error::no_such_overload()),
        }
    }

    fn list(&mut self, items: &'a [(Expr, bool)]) -> Eval<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (item, is_optional) in items {
            match self.value(item)? {
                Val::Optional(inner) if *is_optional => values.extend(inner.map(|value| *value)),
                _ if *is_optional => return Err(Error::no_such_overload()),
                value => values.push(value),
            }
        }
        Ok(Val::list(values))
    }

    fn map(&mut self, entries: &'a [(Expr, Expr, bool)]) -> Eval<'a> {
        let mut values = Vec::with_capacity(entries.len());
        for (key, value, is_optional) in entries {
            let key = self.value(key)?;
            match self.value(value)? {
                Val::Optional(inner) if *is_optional => values.extend(inner.map(|value| (key, *value))),
                _ if *is_optional => return Err(Error::no_such_overload()),
                value => values.push((key, value)),
            }
        }
        Ok(Val::Map(Map::Own(Arc::new(values))))
    }

    fn fold(&mut self, fold: &'a Fold) -> Eval<'a> {
        let range = self.value(&fold.range)?;
        let start = self.value(&fold.start);
        let depth = self.0.len();
        self.0.push(start);
        let outcome = self.run(fold, &range, depth);
        self.0.truncate(depth + 1);
        let result = outcome.and_then(|()| self.value(&fold.result));
        self.0.truncate(depth);
        result
    }

    fn run(&mut self, fold: &'a Fold, range: &Val<'a>, depth: usize) -> Result<(), Error> {
        let keys = match range {
            Val::List(list) => (0..list.len()).map(Val::size).collect(),
            Val::Map(map) => map.keys(),
            _ => return Err(Error::no_such_overload()),
        };
        for (index, key) in keys.into_iter().enumerate() {
            self.0.truncate(depth + 1);
            let value = match range {
                Val::List(list) => list.get(index),
                Val::Map(map) if fold.two => {
                    Some(map.get(&key).and_then(|v| v.ok_or_else(Error::no_such_overload)))
                }
                _ => None,
            };
            let is_map = matches!(range, Val::Map(_));
            if fold.two || is_map {
                self.0.push(Ok(key));
            }
            self.0.extend(value);
            if matches!(self.value(&fold.go_on), Ok(Val::Bool(false))) {
                break;
            }
            let next = self.value(&fold.step);
            self.0[depth] = next;
        }
        Ok(())
    }
}

fn field<'a>(of: &Val<'a>, name: &str) -> Eval<'a> {
    match of {
        Val::Map(map) => map.field(name).unwrap_or_else(|| Err(Error::new(format!("no such key: {name}")))),
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => maybe((**inner).clone(), &Val::Str(Cow::Owned(name.to_owned()))),
        _ => Err(Error::no_such_overload()),
    }
}

fn has<'a>(of: &Val<'a>, name: &str) -> Eval<'a> {
    match of {
        Val::Map(map) => map.field(name).transpose().map(|found| Val::Bool(found.is_some())),
        Val::Optional(None) => Ok(Val::Bool(false)),
        Val::Optional(Some(inner)) => has(inner, name),
        _ => Err(Error::no_such_overload()),
    }
}

/// What is there under a key, or nothing.
fn maybe<'a>(of: Val<'a>, key: &Val<'a>) -> Eval<'a> {
    let found = match of {
        Val::Optional(None) => None,
        Val::Optional(Some(inner)) => return maybe(*inner, key),
        Val::Map(map) => map.get(key)?,
        Val::List(list) => match key {
            Val::Int(index) => usize::try_from(*index).ok().and_then(|index| list.get(index)).transpose()?,
            _ => return Err(Error::no_such_overload()),
        },
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Val::Optional(found.map(Box::new)))
}

fn index<'a>(of: &Val<'a>, key: &Val<'a>) -> Eval<'a> {
    match (of, key) {
        (Val::Map(map), key) => map.get(key)?.ok_or_else(|| Error::new(format!("no such key: {key}"))),
        (Val::List(list), Val::Int(index)) => usize::try_from(*index)
            .ok()
            .and_then(|index| list.get(index))
            .unwrap_or_else(|| Err(Error::new(format!("index out of bounds: {index}")))),
        (Val::Optional(_), key) => maybe(of.clone(), key),
        _ => Err(Error::no_such_overload()),
    }
}
