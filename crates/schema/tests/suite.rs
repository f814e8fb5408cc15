//! Every test of schemas and of rules in CEL, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod expressions;
mod properties;
mod recorded;
mod refused;
