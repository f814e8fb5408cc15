//! What is read of objects of others, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod corpus;
mod projections;
mod workloads;
