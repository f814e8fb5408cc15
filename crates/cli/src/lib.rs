//! The command line `coppice`, also `kubectl coppice`.
//!
//! ```text
//! live (API server) ─┐
//!                    ├─▶ Snapshot ─▶ forecast (the operator's own `plan`) ─▶ print
//! files (YAML, JSON) ┘
//! ```
//! `plan` and `explain` call the very function by which the operator decides. Only [`entry`] reads the clock; everything
//! else is given the time, so that answers can be tested and asked for another instant (`--at`).

mod args;
mod audit;
mod by_namespace;
mod command;
mod connect;
mod consol;
pub mod entry;
mod facts;
mod files;
mod import;
mod kim;
mod lifecycle;
mod live;
mod losses;
mod namespace_record;
mod print;
mod probe;
mod records;
mod refused_pods;
mod ska;
mod terminal;
mod transfers;
mod trees;
mod validate;
mod wait;
mod write;
pub mod yaml;

use std::ffi::OsString;
use std::io::{Read, Write};

use clap::{CommandFactory as _, FromArgMatches as _};
use jiff::Timestamp;

use args::Cli;
use terminal::Screen;

/// What a command reads from and writes to.
pub struct Io<'a> {
    /// Standard input, for `-f -`.
    pub stdin: &'a mut dyn Read,
    /// Standard output: what was asked for.
    pub out: &'a mut dyn Write,
    /// Standard error: warnings and remarks.
    pub err: &'a mut dyn Write,
    /// The present.
    pub now: Timestamp,
    /// Whether `out` understands colours.
    pub color: bool,
    /// How wide the terminal is that `out` is. None where it is none: then nothing is left out or shortened.
    pub width: Option<usize>,
    /// Whether somebody looks at `err`, who wants to know that something takes long.
    pub progress: bool,
    /// The API server to talk to, instead of the one that kubeconfig names.
    pub client: Option<kube::Client>,
}

impl Io<'_> {
    /// Standard output for people; what is for programs goes to `out` itself.
    fn screen(&mut self) -> Screen<'_> {
        Screen::new(self.out, self.color)
    }

    /// Writes a line to standard error, after what has been written so far.
    fn print_note(&mut self, line: &str) -> std::io::Result<()> {
        self.out.flush()?;
        writeln!(Screen::new(self.err, false), "{line}")
    }
}

/// Waits for something, and says so on a terminal while it takes longer than a second: after 1, 2, 4, 8 ... seconds.
async fn with_progress<T>(what: &str, io: &mut Io<'_>, work: impl Future<Output = T>) -> anyhow::Result<T> {
    if !io.progress {
        return Ok(work.await);
    }
    let mut work = std::pin::pin!(work);
    let mut waited = std::time::Duration::ZERO;
    loop {
        let pause = waited.max(std::time::Duration::from_secs(1));
        match tokio::time::timeout(pause, &mut work).await {
            Ok(done) => return Ok(done),
            Err(_) => waited += pause,
        }
        io.print_note(&format!("{what}: {} s so far ...", waited.as_secs()))?;
    }
}

/// Computes something on a thread of its own, and says so like [`with_progress`].
async fn compute<T: Send + 'static>(
    what: &str,
    io: &mut Io<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (done, computed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || done.send(work()).is_ok());
    let computed = with_progress(what, io, computed).await?;
    computed.map_err(|_| anyhow::anyhow!("a bug in Coppice stopped it: {what}"))
}

/// How a command ended. The numbers are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// As asked.
    Ok = 0,
    /// It failed; standard error says why.
    Error = 1,
    /// The command line could not be understood.
    Usage = 2,
    /// It succeeded, and something is refused, unknown, broken or not exactly carried over; of `preview`: becomes due; of
    /// `audit check`: was found.
    Attention = 3,
}

/// The whole command line, for generated documentation.
pub fn clap_command() -> clap::Command {
    Cli::command()
}

/// Runs one command line (the first argument is the program's name) and returns the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, io: &mut Io<'_>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let command = args::named_after(args.first(), Cli::command());
    let cli = match command.try_get_matches_from(&args).and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(error) => return explain_usage(&error, io) as u8,
    };
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(command::dispatch(cli, io)));
    let exit = match result.and_then(|exit| Ok(io.out.flush().map(|()| exit)?)) {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Ok,
        Err(error) => {
            // If standard error fails, there is nowhere to report it.
            let _ = writeln!(io.err, "{}", terminal::error(&error));
            Exit::Error
        }
    };
    exit as u8
}

fn explain_usage(error: &clap::Error, io: &mut Io<'_>) -> Exit {
    let text = error.render();
    // The reader may be gone.
    if error.use_stderr() {
        // It quotes what was typed, or what a script was given.
        let mut screen = Screen::new(io.err, false);
        let _ = text.to_string().lines().try_for_each(|line| writeln!(screen, "{line}"));
        return Exit::Usage;
    }
    let _ = if io.color { write!(io.out, "{}", text.ansi()) } else { write!(io.out, "{text}") };
    Exit::Ok
}

/// The reader of our output is gone, as with `head`: no error of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard error, which tells somebody that something is written.
    struct Screen {
        text: Vec<u8>,
        said: std::sync::mpsc::Sender<()>,
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.text.extend_from_slice(bytes);
            let _ = self.said.send(());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_computed_for_longer_than_a_second_says_so() {
        let (said, heard) = std::sync::mpsc::channel();
        let (mut out, mut err) = (Vec::new(), Screen { text: Vec::new(), said });
        let mut io = Io {
            stdin: &mut std::io::empty(),
            out: &mut out,
            err: &mut err,
            now: Timestamp::UNIX_EPOCH,
            color: false,
            width: None,
            progress: true,
            client: None,
        };
        // It takes until something is said.
        let work = move || heard.recv_timeout(std::time::Duration::from_secs(30)).is_ok();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let said = runtime.block_on(compute("comparing", &mut io, work)).unwrap();
        let text = String::from_utf8(err.text).unwrap();
        assert!(said && text.starts_with("comparing: 1 s so far ...\n"), "{text}");
    }

    #[test]
    fn what_takes_longer_than_a_second_says_so() {
        let waited = |seconds: u64, progress: bool| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut io = Io {
                stdin: &mut std::io::empty(),
                out: &mut out,
                err: &mut err,
                now: Timestamp::UNIX_EPOCH,
                color: false,
                width: None,
                progress,
                client: None,
            };
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let time = std::time::Duration::from_secs(seconds);
                let work = tokio::time::timeout(time, std::future::pending::<()>());
                with_progress("reading", &mut io, work).await.unwrap().unwrap_err();
            });
            String::from_utf8(err).unwrap()
        };
        assert_eq!(waited(0, true), "");
        assert_eq!(waited(5, false), "", "nobody looks");
        assert_eq!(
            waited(5, true),
            "reading: 1 s so far ...\nreading: 2 s so far ...\nreading: 4 s so far ...\n"
        );
    }
}
