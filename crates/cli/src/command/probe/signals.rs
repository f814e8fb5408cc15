//! Signals that end a probe with what it has created: SIGINT, SIGTERM, as a Job sends it that has taken too long, and SIGHUP, as a terminal does
//! that is closed.

/// Until one of them is received.
pub(super) async fn received() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = interrupted => {}
        () = terminated() => {}
    }
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::SignalKind;

    // Whoever has it ignored, as by nohup, closes the terminal and has the probe go on.
    if ignores_hangup() {
        return signalled(SignalKind::terminate()).await;
    }
    tokio::select! {
        () = signalled(SignalKind::terminate()) => {}
        () = signalled(SignalKind::hangup()) => {}
    }
}

#[cfg(unix)]
async fn signalled(kind: tokio::signal::unix::SignalKind) {
    match tokio::signal::unix::signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

/// Whether SIGHUP is ignored since before this program began, as Linux says; elsewhere nobody knows.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| is_first_ignored(&status))
}

/// Whether the first signal, which is SIGHUP, is one of those that a process ignores.
#[cfg(unix)]
fn is_first_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_known_by_the_first_bit() {
        assert!(is_first_ignored("Name:\tcoppice\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n"));
        assert!(!is_first_ignored("SigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n"));
        assert!(!is_first_ignored("Name:\tcoppice\n"));
    }

    #[tokio::test]
    async fn each_signal_that_ends_a_program_is_received() {
        let signals = ["INT", "TERM", "HUP"];
        // Tests may run without a terminal, too.
        for signal in signals.into_iter().filter(|signal| *signal != "HUP" || !ignores_hangup()) {
            let mut received = Box::pin(received());
            assert!(futures::poll!(&mut received).is_pending());
            let mut shell = std::process::Command::new("sh");
            let sent = shell.args(["-c", &format!("kill -{signal} $PPID")]).status().unwrap();
            assert!(sent.success());
            tokio::time::timeout(std::time::Duration::from_secs(30), received).await.expect(signal);
        }
    }
}
