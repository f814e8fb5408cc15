//! A panic in one place is an error there, not the end of the process.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// A future panicked while it ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bug in Coppice: the code panicked ({message}); the log has the place in the code, please report it"
)]
pub struct Panicked {
    /// What it said.
    pub message: String,
}

/// Runs `future`, and turns a panic in it into an error.
///
/// State that it shares with others may be half changed; what is contained here must keep its state to itself, or behind locks that
/// are never held across a computation that can fail. Does nothing under `panic = "abort"`.
pub async fn contain<T>(future: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(future)
        .catch_unwind()
        .await
        .map_err(|payload| Panicked { message: message_of(&*payload) })
}

/// Writes panics to the structured log, with their place in the code, instead of as plain text to standard error. Call once, after
/// [`logging::init`](crate::logging::init).
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(place, %backtrace, "panic: {}", message_of(info.payload()));
    }));
}

/// The text of a panic's payload.
pub(crate) fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::contain;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_message() {
        assert_eq!(contain(async { 1 }).await, Ok(1));
        let number = 7;
        assert_eq!(
            contain(async { panic!("number {number}") }).await.map(|(): ()| ()).unwrap_err().message,
            "number 7"
        );
        assert_eq!(contain(async { panic!("plain") }).await.map(|(): ()| ()).unwrap_err().message, "plain");
        let odd = contain(async { std::panic::panic_any(7_u8) }).await.map(|(): ()| ()).unwrap_err();
        assert_eq!(odd.message, "no message");
    }

    #[tokio::test]
    async fn a_panic_after_a_wait_is_contained_too() {
        let result = contain(async {
            tokio::task::yield_now().await;
            "".parse::<u8>().unwrap()
        });
        assert!(result.await.unwrap_err().to_string().contains("ParseIntError"));
    }
}
