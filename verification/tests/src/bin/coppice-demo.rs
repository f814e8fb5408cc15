//! `make demo`: a control plane of its own, the real operator, the examples, and what happens to each namespace.

use std::process::ExitCode;

fn main() -> ExitCode {
    match coppice_tests::demo::run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the demo could not be run: {error:#}");
            ExitCode::FAILURE
        }
    }
}
