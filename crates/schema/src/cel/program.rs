//! Expressions, compiled once: names are places, functions are known, patterns are ready.

use std::sync::Arc;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Ast, IdedExpr, LiteralValue, SelectExpr, operators,
};
use regex::Regex;

use super::functions::{self, Function};
use super::names;
use crate::node::{Entries, Node, Type};
use crate::pattern::{self, PatternError};

/// Why an expression does not compile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompileError {
    #[error("{0}")]
    Syntax(String),
    #[error("a map cannot have fields")]
    MapWithFields,
    #[error("messages cannot be made")]
    MakesMessage,
    #[error("an expression is missing")]
    Missing,
    #[error("undeclared reference to '{0}'")]
    Undeclared(String),
    #[error("invalid matches argument: {0}")]
    Pattern(#[from] PatternError),
    #[error("unknown function {name} of {count} arguments")]
    UnknownFunction { name: String, count: usize },
    #[error("undefined field '{0}'")]
    UndefinedField(String),
    #[error("type 'dyn' has no field '{0}' that is always there")]
    MaybeNoField(String),
    #[error("type '{0}' does not support field selection")]
    NoFields(&'static str),
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) code: Expr,
    /// Whether it reads the old value.
    pub(crate) uses_old: bool,
}

/// One step of an expression.
#[derive(Debug)]
pub(crate) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Str(String),
    Bytes(Vec<u8>),
    Type(&'static str),
    /// What lies at a place: `self`, `oldSelf`, then the variables of macros from the outside in.
    Variable(usize),
    Field {
        of: Box<Expr>,
        name: String,
    },
    /// `has(of.name)`
    Has {
        of: Box<Expr>,
        name: String,
    },
    /// `of.?name` or `of[?name]`
    MaybeField {
        of: Box<Expr>,
        key: Box<Expr>,
    },
    Index {
        of: Box<Expr>,
        key: Box<Expr>,
    },
    And(Box<[Expr; 2]>),
    Or(Box<[Expr; 2]>),
    Choose(Box<[Expr; 3]>),
    /// Anything but false, be it an error.
    NotFalse(Box<Expr>),
    /// With the items that are left out if they are absent optionals.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Matches {
        text: Box<Expr>,
        pattern: Arc<Regex>,
    },
    Call {
        function: Function,
        name: &'static str,
        arguments: Vec<Expr>,
    },
    Fold(Box<Fold>),
}

/// What `all`, `exists`, `map` and the like become: a loop with an accumulator.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Expr,
    pub(crate) start: Expr,
    pub(crate) go_on: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
    /// Whether there is a variable for the index or key and another for the value.
    pub(crate) two: bool,
}

/// What is known of the value of an expression before there is one.
type Known<'n> = Option<&'n Node>;

struct Compiler<'n> {
    /// The names in scope, each at its place.
    scope: Vec<(String, Known<'n>)>,
    uses_old: bool,
}

/// Compiles an expression about values of this schema.
pub(crate) fn compile(source: &str, node: &Node, optional_old: bool) -> Result<Program, CompileError> {
    let parsed = cel::Env::stdlib().compile(source).map_err(|errors| {
        let all: Vec<_> = errors.errors.iter().map(|error| error.msg.clone()).collect();
        CompileError::Syntax(all.join("; "))
    })?;
    let old = Some(node).filter(|_| !optional_old);
    let scope = vec![("self".to_owned(), Some(node)), ("oldSelf".to_owned(), old)];
    let mut compiler = Compiler { scope, uses_old: false };
    let (code, _) = compiler.expression(parsed.expression())?;
    Ok(Program { code, uses_old: compiler.uses_old })
}

impl<'n> Compiler<'n> {
    fn boxed(&mut self, ast: &IdedExpr) -> Result<Box<Expr>, CompileError> {
        Ok(Box::new(self.expression(ast)?.0))
    }

    fn expression(&mut self, ast: &IdedExpr) -> Result<(Expr, Known<'n>), CompileError> {
        let plain = |expr| Ok((expr, None));
        match &ast.expr {
            Ast::Literal(literal) => plain(constant(literal)),
            Ast::Ident(name) => self.name(name),
            Ast::Select(select) => self.select(select),
            Ast::Call(call) => self.call(call),
            Ast::Comprehension(fold) => self.fold(fold),
            Ast::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (index, item) in list.elements.iter().enumerate() {
                    items.push((self.expression(item)?.0, list.optional_indices.contains(&index)));
                }
                plain(Expr::List(items))
            }
            Ast::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err(CompileError::MapWithFields);
                    };
                    let key = self.expression(&entry.key)?.0;
                    entries.push((key, self.expression(&entry.value)?.0, entry.optional));
                }
                plain(Expr::Map(entries))
            }
            Ast::Struct(_) => Err(CompileError::MakesMessage),
            Ast::Unspecified => Err(CompileError::Missing),
        }
    }

    fn name(&mut self, name: &str) -> Result<(Expr, Known<'n>), CompileError> {
        let name = name.trim_start_matches('.');
        if let Some(place) = self.scope.iter().rposition(|(known, _)| known == name) {
            self.uses_old |= place == 1;
            return Ok((Expr::Variable(place), self.scope[place].1));
        }
        match functions::type_named(name) {
            Some(name) => Ok((Expr::Type(name), None)),
            None => Err(CompileError::Undeclared(name.to_owned())),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<(Expr, Known<'n>), CompileError> {
        if let Some(name) = qualified(&select.operand).filter(|_| !select.test) {
            let name = format!("{name}.{}", select.field);
            if let Some(name) = functions::type_named(&name) {
                return Ok((Expr::Type(name), None));
            }
        }
        let (of, known) = self.expression(&select.operand)?;
        let child = match known {
            Some(node) => Some(field(node, &select.field)?),
            None => None,
        };
        let (of, name) = (Box::new(of), select.field.clone());
        Ok(if select.test { (Expr::Has { of, name }, None) } else { (Expr::Field { of, name }, child) })
    }

    fn call(&mut self, call: &CallExpr) -> Result<(Expr, Known<'n>), CompileError> {
        let plain = |expr| Ok((expr, None));
        if let Some(target) = &call.target {
            return self.method(call, target);
        }
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::LOGICAL_AND, [a, b]) => plain(Expr::And(self.both(a, b)?)),
            (operators::LOGICAL_OR, [a, b]) => plain(Expr::Or(self.both(a, b)?)),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let condition = self.expression(condition)?.0;
                plain(Expr::Choose(Box::new([condition, self.expression(yes)?.0, self.expression(no)?.0])))
            }
            (operators::NOT_STRICTLY_FALSE, [a]) => plain(Expr::NotFalse(self.boxed(a)?)),
            (operators::INDEX, [of, key]) => {
                let (of, known) = self.expression(of)?;
                let child = match known {
                    Some(Node { items: Some(items), .. }) => Some(items.as_ref()),
                    Some(Node { entries: Some(Entries::Of(entry)), .. }) => Some(entry.as_ref()),
                    _ => None,
                };
                Ok((Expr::Index { of: Box::new(of), key: self.boxed(key)? }, child))
            }
            (operators::OPT_SELECT | operators::OPT_INDEX, [of, key]) => {
                let (of, known) = self.expression(of)?;
                if let (Some(node), Ast::Literal(LiteralValue::String(name))) = (known, &key.expr) {
                    field(node, name.inner())?;
                }
                plain(Expr::MaybeField { of: Box::new(of), key: self.boxed(key)? })
            }
            ("matches", [text, pattern]) => self.matches(text, pattern),
            (name, arguments) => self.function(name, false, None, arguments),
        }
    }

    fn method(&mut self, call: &CallExpr, target: &IdedExpr) -> Result<(Expr, Known<'n>), CompileError> {
        // Such as sets.contains(a, b), if sets is no variable.
        let is_variable = |name: &String| {
            let first = name.split('.').next().unwrap_or_default();
            self.scope.iter().any(|(known, _)| known == first)
        };
        if let Some(namespace) = qualified(target).filter(|name| !is_variable(name)) {
            return self.function(&format!("{namespace}.{}", call.func_name), false, None, &call.args);
        }
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("matches", [pattern]) => self.matches(target, pattern),
            (name, arguments) => self.function(name, true, Some(target), arguments),
        }
    }

    fn both(&mut self, a: &IdedExpr, b: &IdedExpr) -> Result<Box<[Expr; 2]>, CompileError> {
        Ok(Box::new([self.expression(a)?.0, self.expression(b)?.0]))
    }

    fn matches(&mut self, text: &IdedExpr, regex: &IdedExpr) -> Result<(Expr, Known<'n>), CompileError> {
        let Ast::Literal(LiteralValue::String(regex)) = &regex.expr else {
            return self.function("matches", false, Some(text), std::slice::from_ref(regex));
        };
        let pattern = pattern::compile(regex.inner())?;
        Ok((Expr::Matches { text: self.boxed(text)?, pattern }, None))
    }

    fn function(
        &mut self,
        name: &str,
        is_method: bool,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Result<(Expr, Known<'n>), CompileError> {
        let count = arguments.len() + usize::from(target.is_some());
        let Some((name, function)) = functions::find(name, is_method, count) else {
            return Err(CompileError::UnknownFunction { name: name.to_owned(), count });
        };
        let arguments = target.into_iter().chain(arguments).map(|argument| Ok(self.expression(argument)?.0));
        let arguments = arguments.collect::<Result<Vec<_>, CompileError>>()?;
        Ok((Expr::Call { function, name, arguments }, None))
    }

    fn fold(&mut self, fold: &ComprehensionExpr) -> Result<(Expr, Known<'n>), CompileError> {
        let (range, known) = self.expression(&fold.iter_range)?;
        let start = self.expression(&fold.accu_init)?.0;
        let depth = self.scope.len();
        let item = known.and_then(|node| node.items.as_deref());
        self.scope.push((fold.accu_var.clone(), None));
        let two = fold.iter_var2.is_some();
        self.scope.push((fold.iter_var.clone(), item.filter(|_| !two)));
        if let Some(second) = &fold.iter_var2 {
            self.scope.push((second.clone(), item));
        }
        let go_on = self.expression(&fold.loop_cond)?.0;
        let step = self.expression(&fold.loop_step)?.0;
        self.scope.truncate(depth + 1);
        let result = self.expression(&fold.result)?.0;
        self.scope.truncate(depth);
        Ok((Expr::Fold(Box::new(Fold { range, start, go_on, step, result, two })), None))
    }
}

/// The schema of a field. A name that cannot be there is a mistake of the rule.
fn field<'n>(node: &'n Node, name: &str) -> Result<&'n Node, CompileError> {
    let unknown = || CompileError::UndefinedField(name.to_owned());
    if node.int_or_string {
        return Err(CompileError::MaybeNoField(name.to_owned()));
    }
    if node.kind != Some(Type::Object) {
        return Err(CompileError::NoFields(node.kind.map_or("unknown", Type::as_str)));
    }
    if !node.is_object() {
        return match &node.entries {
            Some(Entries::Of(entry)) => Ok(entry),
            _ => Err(unknown()),
        };
    }
    let name = names::unescape(name).ok_or_else(unknown)?;
    node.rule_property(&name).ok_or_else(unknown)
}

/// `a.b.c`, if an expression consists of names only.
fn qualified(ast: &IdedExpr) -> Option<String> {
    match &ast.expr {
        Ast::Ident(name) => Some(name.clone()),
        Ast::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand)?, select.field))
        }
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Expr {
    match literal {
        LiteralValue::Boolean(b) => Expr::Bool(*b.inner()),
        LiteralValue::Bytes(bytes) => Expr::Bytes(bytes.inner().to_vec()),
        LiteralValue::Double(double) => Expr::Double(*double.inner()),
        LiteralValue::Int(int) => Expr::Int(*int.inner()),
        LiteralValue::Null => Expr::Null,
        LiteralValue::String(text) => Expr::Str(text.inner().to_owned()),
        LiteralValue::UInt(uint) => Expr::Uint(*uint.inner()),
    }
}
