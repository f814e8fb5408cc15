//! The entry point of a process: the only place that reads the clock, the terminal and the environment.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use jiff::Timestamp;

use crate::Io;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // Fails only if a provider is installed already, which is then the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let color = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|v| v != "dumb");
    let size = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut io = Io {
        stdin: &mut std::io::stdin().lock(),
        out: &mut out,
        err: &mut std::io::stderr().lock(),
        now: now(),
        color,
        width: size.map(|(width, _)| usize::from(width.0)),
        progress: std::io::stderr().is_terminal(),
        client: None,
    };
    let code = crate::run(std::env::args_os(), &mut io);
    // The reader may be gone: then there is nobody to report this to.
    let _ = out.flush();
    ExitCode::from(code)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a command takes the time once, here; everything below gets it as an argument"
)]
fn now() -> Timestamp {
    Timestamp::now()
}
