//! What can go wrong, in sentences that say what to do.

use std::{io, path::PathBuf};

/// Why a control plane could not be built, started, read or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Go toolchain is absent or too old.
    #[error(
        "building the control plane needs Go {wanted} or newer on the PATH ({found}): install it from https://go.dev/dl, \
         or let {variable} name a folder with ready binaries"
    )]
    Go {
        /// Oldest version that the modules accept.
        wanted: String,
        /// What was found instead.
        found: String,
        /// Environment variable that makes Go unnecessary.
        variable: &'static str,
    },
    /// The folder with the Go modules was not found.
    #[error("no folder tools/kube above {}: set COPPICE_TOOLS to the folder `tools` of the source tree", .0.display())]
    NoTools(PathBuf),
    /// A Go module lacks something that the build needs.
    #[error("{}: {missing}", file.display())]
    Module {
        /// The module's file.
        file: PathBuf,
        /// What is missing in it.
        missing: String,
    },
    /// Go failed to build something, or to download it.
    #[error("Go cannot make {tool}:\n{output}")]
    Build {
        /// Name of the binary, or of the file.
        tool: &'static str,
        /// End of what Go printed.
        output: String,
    },
    /// A folder of ready binaries is incomplete.
    #[error("{tool} is missing in {}: a folder of ready binaries needs all that `coppice-plane build` makes", dir.display())]
    NoBinary {
        /// Name of the binary.
        tool: &'static str,
        /// Folder that was searched.
        dir: PathBuf,
    },
    /// A file or process could not be handled.
    #[error("cannot {action}: {reason}")]
    Io {
        /// What was tried.
        action: String,
        /// Why it failed. Part of the text, hence not a source as well.
        reason: io::Error,
    },
    /// A key or certificate could not be made.
    #[error("cannot make the certificates: {0}")]
    Pki(rcgen::Error),
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
    /// The folder named for the plane has content.
    #[error("{} is not empty: name a folder that is absent or empty", .0.display())]
    NotEmpty(PathBuf),
    /// Two users have the same name.
    #[error("the user {0} is declared twice")]
    DuplicateUser(String),
    /// No such user was declared.
    #[error("the plane has no user {0}: declare it in Options::users")]
    NoUser(String),
    /// A process ended by itself.
    #[error("{process} ended ({status}); the end of its log {}:\n{tail}", log.display())]
    Ended {
        /// Name of the process.
        process: &'static str,
        /// How it ended.
        status: String,
        /// Its log, which is kept.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// A process did not become ready in time.
    #[error("{process} is not ready after {seconds} s ({last}); the end of its log {}:\n{tail}", log.display())]
    NotReady {
        /// Name of the process.
        process: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// What the last probe saw.
        last: String,
        /// Its log, which is kept.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// The HTTP client for the probes could not be made.
    #[error("cannot make an HTTP client: {0}")]
    Client(String),
    /// The plane was started without an audit log.
    #[error("this plane writes no audit log: start it with Options::audit")]
    NoAudit,
    /// The audit log has a line that is no event.
    #[error("{} line {line} is not an audit event: {reason}", file.display())]
    Audit {
        /// The audit log.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What the parser says.
        reason: serde_json::Error,
    },
    /// A blocking task of the runtime was lost.
    #[error("a background task was lost: {0}")]
    Task(tokio::task::JoinError),
}

/// Why a server is not ready yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// There was no answer.
    #[error("{}", causes(.0))]
    Unanswered(reqwest::Error),
    /// The answer is no success.
    #[error("{status}: {}", text.trim())]
    Status {
        /// Its status.
        status: reqwest::StatusCode,
        /// Its body.
        text: String,
    },
    /// The answer is no object.
    #[error("{0}")]
    NoObject(serde_json::Error),
    /// No pod can run yet.
    #[error("the node is not ready")]
    NodeNotReady,
    /// No pod is scheduled yet.
    #[error("the node has taints: {0}")]
    Taints(serde_json::Value),
}

/// An error with its causes: the outermost text says little.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Wraps an I/O error with what was tried.
pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    move |reason| Error::Io { action: action.into(), reason }
}

impl From<rcgen::Error> for Error {
    fn from(error: rcgen::Error) -> Self {
        Self::Pki(error)
    }
}

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Task(error)
    }
}

impl Error {
    /// True when the start failed because another process took a port in between: worth another try.
    pub(crate) fn is_port_clash(&self) -> bool {
        matches!(self, Error::Ended { tail, .. } | Error::NotReady { tail, .. } if tail.contains("address already in use"))
    }
}
