//! `make bench-memory`: what the operator costs with very many namespaces and pods on a control plane of its own.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match coppice_tests::scale::run(&coppice_tests::scale::ScaleArgs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the measurement could not be made: {error:#}");
            ExitCode::FAILURE
        }
    }
}
