//! Credentials that are issued and lost, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod certificates;
mod crashes;
mod support;
