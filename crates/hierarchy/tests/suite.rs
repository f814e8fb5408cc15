//! Every test of what a tree of namespaces decides, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod cascade;
mod decide;
mod exhaustive;
mod interleavings;
mod moves;
mod reference;
mod rules;
mod support;
mod transfers;
