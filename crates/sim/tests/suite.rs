//! Every test of the simulated API server, in one program.
//!
//! A new file here is a module of this program, or it does not run.

mod conformance_regressions;
mod narrow_watches;
mod server_clients;
mod server_custom;
mod server_models;
mod server_properties;
mod server_reading;
mod server_requests;
mod server_support;
mod simulate;
