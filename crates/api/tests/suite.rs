//! Rules for every field of the kinds, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod bounds;
mod defaults;
mod support;
