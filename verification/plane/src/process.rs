//! Child processes that never outlive this one.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use crate::error::{Error, ProbeError, Result, io};

/// How much of a log goes into an error.
const TAIL_LINES: usize = 15;
/// Lines of a log may be long; more than this is never read back.
const TAIL_BYTES: u64 = 64 * 1024;

/// A command under its supervisor (`supervise.sh`), with its output in a log file.
///
/// Dropping it kills the command and waits until it is gone.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    log: PathBuf,
    supervisor: Child,
    /// While this is open, the command may live.
    keepalive_pipe: Option<ChildStdin>,
}

impl Process {
    /// Starts `program` in `dir`; its output goes to `log`.
    pub(crate) fn spawn(
        name: &'static str,
        program: &Path,
        args: impl IntoIterator<Item = impl Into<OsString>>,
        dir: &Path,
        log: &Path,
    ) -> Result<Self> {
        let describe = || format!("start {name} ({})", program.display());
        let out = File::create(log).map_err(io(format!("write {}", log.display())))?;
        let err = out.try_clone().map_err(io(describe()))?;
        let mut supervisor = Command::new("/bin/sh")
            .args(["-c", include_str!("supervise.sh"), name])
            .arg(program)
            .args(args.into_iter().map(Into::into))
            .current_dir(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(io(describe()))?;
        let keepalive_pipe = supervisor.stdin.take();
        Ok(Self { name, log: log.to_owned(), supervisor, keepalive_pipe })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// An error if the command has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.supervisor.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(status.to_string())),
            Err(error) => Err(self.ended(error.to_string())),
        }
    }

    fn ended(&self, status: String) -> Error {
        Error::Ended { process: self.name, status, log: self.log.clone(), tail: tail(&self.log) }
    }

    /// The error for a command that lives but does not get ready.
    pub(crate) fn not_ready(&self, after: Duration, last: &ProbeError) -> Error {
        let (process, log, last) = (self.name, self.log.clone(), last.to_string());
        Error::NotReady { process, seconds: after.as_secs(), last, tail: tail(&log), log }
    }

    /// Asks the command to end; a few seconds later it is killed.
    pub(crate) fn terminate(&mut self) {
        self.keepalive_pipe = None;
    }

    /// Has the command killed at once.
    pub(crate) fn kill(&mut self) {
        if let Some(mut keepalive_pipe) = self.keepalive_pipe.take() {
            // Fails only if the supervisor is gone already.
            let _ = keepalive_pipe.write_all(b"kill\n");
        }
    }

    /// Blocks until the command has ended, which `terminate` or `kill` bring about.
    pub(crate) fn wait(&mut self) {
        let _ = self.supervisor.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.wait();
    }
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = read_end(log).unwrap_or_else(|error| format!("(cannot be read: {error})"));
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    if tail.is_empty() { "(empty)".to_owned() } else { tail.join("\n") }
}

fn read_end(log: &Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let length = fs::metadata(log)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(dir: &Path, script: &str) -> Process {
        Process::spawn("script", Path::new("/bin/sh"), ["-c", script], dir, &dir.join("log")).unwrap()
    }

    /// Blocks until the script has written its line.
    fn first_line(dir: &Path) -> String {
        loop {
            let text = fs::read_to_string(dir.join("log")).unwrap();
            if text.ends_with('\n') {
                return text.trim().to_owned();
            }
            std::thread::yield_now();
        }
    }

    fn alive(pid: &str) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn an_exit_is_reported_with_status_and_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(dir.path(), "echo no luck; exit 3");
        process.wait();
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("script ended (exit status: 3)") && error.contains("no luck"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (program, log) = (Path::new("/does/not/exist"), dir.path().join("log"));
        let mut process = Process::spawn("x", program, [""; 0], dir.path(), &log).unwrap();
        process.wait();
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("127") && error.contains("/does/not/exist"), "{error}");
    }

    #[test]
    fn termination_is_polite_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(dir.path(), "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
        first_line(dir.path());
        process.terminate();
        process.wait();
        assert!(process.check().unwrap_err().to_string().contains("exit status: 7"));
    }

    #[test]
    fn a_command_that_ignores_term_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(dir.path(), "trap '' TERM; sleep 1000 & echo $$ $!; wait; sleep 1000");
        let pids = first_line(dir.path());
        process.terminate();
        process.wait();
        let (command, child) = pids.split_once(' ').unwrap();
        assert!(!alive(command));
        // Killed with the supervisor, so perhaps a moment later.
        while alive(child) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn dropping_kills_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let process = shell(dir.path(), "trap '' TERM; echo $$; while :; do sleep 0.01; done");
        let pid = first_line(dir.path());
        drop(process);
        assert!(!alive(&pid));
    }
}
