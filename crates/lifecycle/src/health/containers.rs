//! What is wrong with a container.

use coppice_api::HealthReason;
use coppice_quantity::Duration;
use jiff::Timestamp;

use super::facts::{ContainerFacts, ContainerState, Termination};
use crate::condition::later;

/// A container that has crashed again and again is no better before it has run for so long.
const STEADY: Duration = Duration::from_secs(60);
/// What Kubernetes writes for a container that was killed for its memory.
const OOM_KILLED: &str = "OOMKilled";

/// What is wrong with a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: HealthReason,
    pub(super) message: String,
    /// When it is over, if nothing happens.
    pub(super) ends: Option<Timestamp>,
}

/// What is wrong with a container, if anything.
pub(super) fn trouble(container: &ContainerFacts, now: Timestamp) -> Option<Trouble> {
    let name = &container.name;
    let last = container.last.as_ref();
    match &container.state {
        ContainerState::Waiting { reason, message } => match kind_of_wait(reason)? {
            HealthReason::CrashLoopBackOff => Some(crash(name, last, None)),
            kind => {
                let detail = if message.is_empty() { String::new() } else { format!(": {message}") };
                let message = format!("container {name}: {reason}{detail}");
                Some(Trouble { reason: kind, message, ends: None })
            }
        },
        ContainerState::Ended(ended) if container.restarts && ended.exit_code != 0 => {
            Some(crash(name, Some(ended), None))
        }
        ContainerState::Running { since, .. } => {
            let last = last.filter(|last| container.restarts && last.exit_code != 0)?;
            let steady = later(*since, STEADY);
            (now < steady).then(|| crash(name, Some(last), Some(steady)))
        }
        ContainerState::Ended(_) => None,
    }
}

fn crash(name: &str, last: Option<&Termination>, ends: Option<Timestamp>) -> Trouble {
    let killed = last.is_some_and(|last| &*last.reason == OOM_KILLED);
    let reason = if killed { HealthReason::OOMKilled } else { HealthReason::CrashLoopBackOff };
    let how = last.map_or_else(String::new, |last| format!(" with {}", exit_text(last)));
    Trouble { reason, message: format!("container {name} restarts repeatedly{how}"), ends }
}

/// How a run of a container ended, with what it wrote about that.
pub(super) fn exit_text(ended: &Termination) -> String {
    let Termination { exit_code, reason, message } = ended;
    let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let said = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("exit code {exit_code}{why}{said}")
}

/// What a waiting container is kept from; none if that is no failure.
fn kind_of_wait(reason: &str) -> Option<HealthReason> {
    match reason {
        "CrashLoopBackOff" => Some(HealthReason::CrashLoopBackOff),
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some(HealthReason::ImagePullBackOff),
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => Some(HealthReason::CreateContainerError),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn ended(exit_code: i32, reason: &str) -> Termination {
        Termination { exit_code, reason: reason.into(), message: "".into() }
    }

    fn container(restarts: bool, state: ContainerState, last: Option<Termination>) -> ContainerFacts {
        ContainerFacts { name: "main".into(), restarts, state, last }
    }

    fn waiting(reason: &str, message: &str) -> ContainerState {
        ContainerState::Waiting { reason: reason.into(), message: message.into() }
    }

    fn of(container: &ContainerFacts, now: i64) -> Option<(&'static str, String)> {
        trouble(container, at(now)).map(|found| (found.reason.as_str(), found.message))
    }

    #[test]
    fn a_waiting_container_fails_for_what_it_waits_for() {
        let pull = container(false, waiting("ErrImagePull", "no such tag"), None);
        let said = "container main: ErrImagePull: no such tag".to_owned();
        assert_eq!(of(&pull, 0), Some(("ImagePullBackOff", said)));
        let config = container(false, waiting("CreateContainerConfigError", "secret \"s\" not found"), None);
        let said = "container main: CreateContainerConfigError: secret \"s\" not found".to_owned();
        assert_eq!(of(&config, 0), Some(("CreateContainerError", said)));
        for usual in ["ContainerCreating", "PodInitializing", ""] {
            assert_eq!(of(&container(false, waiting(usual, ""), None), 0), None, "{usual}");
        }
    }

    #[test]
    fn a_crash_loop_says_how_the_container_ended() {
        let crashed = container(true, waiting("CrashLoopBackOff", ""), Some(ended(1, "Error")));
        let said = "container main restarts repeatedly with exit code 1 (Error)".to_owned();
        assert_eq!(of(&crashed, 0), Some(("CrashLoopBackOff", said)));
        let killed = container(true, waiting("CrashLoopBackOff", ""), Some(ended(137, "OOMKilled")));
        let said = "container main restarts repeatedly with exit code 137 (OOMKilled)".to_owned();
        assert_eq!(of(&killed, 0), Some(("OOMKilled", said)));
        let last = Termination { message: "panic: no database".into(), ..ended(2, "Error") };
        let crashed = container(true, waiting("CrashLoopBackOff", ""), Some(last));
        let said =
            "container main restarts repeatedly with exit code 2 (Error): panic: no database".to_owned();
        assert_eq!(of(&crashed, 0), Some(("CrashLoopBackOff", said)));
        let between = container(true, ContainerState::Ended(ended(2, "")), None);
        let said = "container main restarts repeatedly with exit code 2".to_owned();
        assert_eq!(of(&between, 0), Some(("CrashLoopBackOff", said)));
    }

    #[test]
    fn a_container_that_has_just_started_again_is_no_better_for_a_minute() {
        let running = ContainerState::Running { since: at(100), starting: false };
        let looping = container(true, running.clone(), Some(ended(1, "Error")));
        assert_eq!(trouble(&looping, at(159)).and_then(|found| found.ends), Some(at(160)));
        assert_eq!(trouble(&looping, at(160)), None);
        // A first restart is usual: it waits for something else to start.
        assert_eq!(of(&container(false, running.clone(), Some(ended(1, "Error"))), 101), None);
        // It was restarted on purpose, or has done what it should.
        assert_eq!(of(&container(true, running, Some(ended(0, "Completed"))), 101), None);
        assert_eq!(of(&container(false, ContainerState::Ended(ended(1, "Error")), None), 101), None);
    }
}
