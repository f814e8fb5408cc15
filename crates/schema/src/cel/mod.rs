//! `x-kubernetes-validations`: rules in CEL, and their walk over an object.
//!
//! The crate `cel` parses the expressions. They are evaluated here: its evaluator compiles a pattern again at every match
//! and its messages differ from the API server's when something fails, and objects are read here where they are, by
//! their schema, instead of being copied. What Kubernetes adds to CEL and is not known here is an error of the schema:
//! quantities, versions, named formats, the authorizer, `format`, comprehensions of two variables.

mod eval;
mod functions;
mod library;
mod names;
mod program;
mod rule;
mod strings;
mod value;

pub(crate) use rule::{ValidationRule, check};
