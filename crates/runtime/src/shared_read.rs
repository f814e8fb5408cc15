//! One fresh read for several callers that need the same: namespaces that are due in one moment do not list the same objects
//! once each.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// What came of a read.
type Shared<T, E> = Result<Arc<T>, Arc<E>>;

/// Shares a read among all who ask while another is under way. Nobody is given what was read earlier: a read serves those who
/// asked before it began (H4).
pub struct SharedRead<T, E> {
    /// How many have asked.
    asked: AtomicU64,
    /// The newest read, and how many had asked before it began. Held while a read is under way.
    newest: Mutex<Option<(u64, Shared<T, E>)>>,
}

impl<T, E> Default for SharedRead<T, E> {
    fn default() -> Self {
        Self { asked: AtomicU64::new(0), newest: Mutex::new(None) }
    }
}

impl<T, E> SharedRead<T, E> {
    /// Reads, or waits for a read that begins from now on. It takes as long as two reads at most.
    ///
    /// # Errors
    /// That of the read: all that it serves get the same.
    pub async fn read(&self, read: impl Future<Output = Result<T, E>>) -> Shared<T, E> {
        let before = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut newest = self.newest.lock().await;
        if let Some((serves, result)) = &*newest
            && before < *serves
        {
            return result.clone();
        }
        let serves = self.asked.load(Ordering::SeqCst);
        let result = read.await.map(Arc::new).map_err(Arc::new);
        *newest = Some((serves, result.clone()));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// Each read takes a second and gives when it began, in milliseconds; every caller asks after so many.
    async fn began(asks: &[u64]) -> Vec<u128> {
        let (shared, start) = (SharedRead::<u128, ()>::default(), Instant::now());
        let callers = asks.iter().map(|after| async {
            sleep(Duration::from_millis(*after)).await;
            let read = async {
                let began = start.elapsed().as_millis();
                sleep(Duration::from_secs(1)).await;
                Ok(began)
            };
            *shared.read(read).await.unwrap()
        });
        futures::future::join_all(callers).await
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_given_what_was_read_before_they_asked() {
        assert_eq!(began(&[0, 500, 600, 999]).await, [0, 1000, 1000, 1000]);
        assert_eq!(began(&[0, 1500]).await, [0, 1500]);
        assert_eq!(began(&[0, 500, 1500]).await, [0, 1000, 2000], "the second read was under way already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_that_of_all_whom_the_read_serves_and_of_nobody_else() {
        let shared = SharedRead::<u8, &str>::default();
        let (first, second, third) = tokio::join!(
            shared.read(async {
                sleep(Duration::from_secs(1)).await;
                Ok(1)
            }),
            shared.read(async { Err("refused") }),
            shared.read(async { panic!("the second read serves this caller") }),
        );
        assert_eq!(
            (first.unwrap(), second.unwrap_err(), third.unwrap_err()),
            (1.into(), "refused".into(), "refused".into())
        );
        assert_eq!(*shared.read(async { Ok(4) }).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_keeps_nobody_waiting() {
        let shared = SharedRead::<u8, ()>::default();
        let never = shared.read(std::future::pending());
        let (gave_up, other) =
            tokio::join!(tokio::time::timeout(Duration::from_secs(1), never), shared.read(async { Ok(2) }));
        assert!(gave_up.is_err());
        assert_eq!(*other.unwrap(), 2);
    }
}
