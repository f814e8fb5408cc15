//! What the control plane of the tests is tested for, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod plane;
mod proxy;
