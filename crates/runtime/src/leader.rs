//! Who may write.
//!
//! A [`Permit`] is proof that this replica held the lease when it was given out, renewed recently enough that no other replica can have
//! taken it. Functions that write take one. It does not fence: a write that is held up on its way may arrive after another replica
//! became leader, which is why each one also carries preconditions (H14).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use coppice_mutants::Mutant;

use crate::client::Clients;

/// What this replica knows about the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderState {
    /// The lease could not be read yet, or no longer; `problem` says why, once it is known.
    Unknown {
        /// What is wrong and what to do, in a sentence.
        problem: Option<String>,
    },
    /// Another replica holds it, or nobody.
    Follower {
        /// Who holds it.
        holder: Option<String>,
    },
    /// This replica holds it.
    Leader {
        /// Since when, on the [monotonic](crate::clock::Clock::monotonic) clock of this process.
        since: Duration,
        /// How many times the lease has changed hands.
        transitions: i32,
    },
}

/// Why there is no permit to write now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLeader {
    /// This replica does not hold the lease.
    #[error("this replica does not write: {}", holder.as_deref().map_or("no leader is known".to_owned(), |h| format!("{h} is the leader")))]
    Follower {
        /// Who holds it, if that is known.
        holder: Option<String>,
    },
    /// This replica holds the lease, but has not been able to renew it for too long.
    #[error("this replica does not write: its lease was last renewed {} s ago, so another may have taken it", age.as_secs())]
    Expired {
        /// How long ago it was renewed.
        age: Duration,
    },
    /// This replica is shutting down.
    #[error("this replica does not write: it is shutting down")]
    Closing,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    public: watch::Sender<LeaderState>,
    permits: TaskTracker,
    renew_deadline: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// When the request was sent that last renewed the lease. `None` if it is not held.
    renewed: Option<Instant>,
    /// No lease is needed.
    always: bool,
    closed: bool,
}

/// Answers whether this replica may write. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Shared>);

/// The other side of a [`Gate`], for the loop that holds the lease.
#[derive(Debug)]
pub struct GateHandle(Arc<Shared>);

/// A closed gate and its keeper. Permits end `renew_deadline` after the last renewal, however stuck the keeper is.
pub fn gate(renew_deadline: Duration) -> (GateHandle, Gate) {
    let public = watch::Sender::new(LeaderState::Unknown { problem: None });
    let shared =
        Arc::new(Shared { state: Mutex::default(), public, permits: TaskTracker::new(), renew_deadline });
    (GateHandle(Arc::clone(&shared)), Gate(shared))
}

/// This replica held the lease when this was given out. Keep it until the writes that it is for are answered: the lease is not released
/// before the last permit is dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    _in_flight: TaskTrackerToken,
}

impl Permit {
    /// The client for writes, which nothing else hands out. Keep the permit until what it is used for is answered.
    pub fn client<'a>(&'a self, clients: &'a Clients) -> &'a kube::Client {
        &clients.writes
    }

    /// Whether the lease is still held. For work of several steps, before each further one.
    pub fn check(&self) -> Result<(), NotLeader> {
        match self.shared.allowed() {
            // Work that started before the shutdown may finish.
            Ok(()) | Err(NotLeader::Closing) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Gate {
    /// A gate without a lease, for a program that is alone: always open until it is [closed](Self::close).
    pub fn always(since: Duration) -> Self {
        let (gate_handle, gate) = gate(Duration::MAX);
        gate_handle.0.state().always = true;
        gate_handle.0.public.send_replace(LeaderState::Leader { since, transitions: 0 });
        gate
    }

    /// Whether a permit would be given now.
    pub fn is_leader(&self) -> bool {
        self.0.allowed().is_ok()
    }

    /// A permit to write, or why there is none.
    pub fn permit(&self) -> Result<Permit, NotLeader> {
        // Under the lock, so that none is given out after the gate was closed and found empty.
        let state = self.0.state();
        self.0.allowed_by(&state)?;
        Ok(Permit { shared: Arc::clone(&self.0), _in_flight: self.0.permits.token() })
    }

    /// What is known about the lease now.
    pub fn state(&self) -> LeaderState {
        self.0.public.borrow().clone()
    }

    /// Notifies of every change of [`state`](Self::state): a new leader reconciles everything.
    pub fn subscribe(&self) -> watch::Receiver<LeaderState> {
        self.0.public.subscribe()
    }

    /// No further permit is given out.
    pub fn close(&self) {
        self.0.close();
    }

    /// Waits until the gate is closed and the last permit was dropped.
    pub async fn drained(&self) {
        self.0.permits.wait().await;
    }
}

impl GateHandle {
    /// A gate of this keeper.
    pub fn gate(&self) -> Gate {
        Gate(Arc::clone(&self.0))
    }

    /// How long a renewal lasts.
    pub fn renew_deadline(&self) -> Duration {
        self.0.renew_deadline
    }

    /// The lease is held; the request that won or renewed it was *sent* at this instant.
    pub fn renewed(&self, sent: Instant, since: Duration, transitions: i32) {
        self.0.state().renewed = Some(sent);
        self.publish(LeaderState::Leader { since, transitions });
    }

    /// The lease is not held by this replica.
    pub fn follows(&self, holder: Option<String>) {
        self.0.state().renewed = None;
        self.publish(LeaderState::Follower { holder });
    }

    /// The lease is not held, and cannot be read or written.
    pub fn unknown(&self, problem: String) {
        self.0.state().renewed = None;
        self.publish(LeaderState::Unknown { problem: Some(problem) });
    }

    /// No further permit is given out.
    pub fn close(&self) {
        self.0.close();
    }

    /// Waits until the gate is closed and the last permit was dropped.
    pub async fn drained(&self) {
        self.0.permits.wait().await;
    }

    fn publish(&self, state: LeaderState) {
        self.0.public.send_if_modified(|before| {
            let changed = *before != state;
            *before = state;
            changed
        });
    }
}

impl Drop for GateHandle {
    /// Without a keeper nobody renews.
    fn drop(&mut self) {
        let mut state = self.0.state();
        if !state.always {
            state.renewed = None;
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowed(&self) -> Result<(), NotLeader> {
        self.allowed_by(&self.state())
    }

    fn allowed_by(&self, state: &State) -> Result<(), NotLeader> {
        if coppice_mutants::active(Mutant::LeaseIgnored) {
            return Ok(());
        }
        let age = state.renewed.map(|sent| sent.elapsed());
        match age {
            _ if state.always => {}
            Some(age) if age < self.renew_deadline => {}
            Some(age) => return Err(NotLeader::Expired { age }),
            None => {
                let holder = match &*self.public.borrow() {
                    LeaderState::Follower { holder } => holder.clone(),
                    _ => None,
                };
                return Err(NotLeader::Follower { holder });
            }
        }
        if state.closed { Err(NotLeader::Closing) } else { Ok(()) }
    }

    fn close(&self) {
        self.state().closed = true;
        self.permits.close();
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, LeaderState, NotLeader, gate};
    use std::time::Duration;
    use tokio::time::{Instant, advance};

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn permits_are_given_from_the_first_renewal_until_a_renew_deadline_after_the_last() {
        let (gate_handle, gate) = gate(DEADLINE);
        assert_eq!(gate.permit().unwrap_err(), NotLeader::Follower { holder: None });
        gate_handle.follows(Some("b".to_owned()));
        assert_eq!(gate.permit().unwrap_err().to_string(), "this replica does not write: b is the leader");

        let sent = Instant::now();
        advance(Duration::from_secs(4)).await;
        gate_handle.renewed(sent, Duration::ZERO, 1);
        let permit = gate.permit().unwrap();
        advance(Duration::from_millis(5_999)).await;
        assert!(gate.is_leader());
        advance(Duration::from_millis(1)).await;
        assert_eq!(
            gate.permit().unwrap_err(),
            NotLeader::Expired { age: DEADLINE },
            "counted from when it was sent"
        );
        assert_eq!(permit.check(), Err(NotLeader::Expired { age: DEADLINE }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_waits_for_what_was_permitted() {
        let (gate_handle, gate) = gate(DEADLINE);
        gate_handle.renewed(Instant::now(), Duration::ZERO, 0);
        let permit = gate.permit().unwrap();
        gate_handle.close();
        assert_eq!(gate.permit().unwrap_err(), NotLeader::Closing);
        assert_eq!(permit.check(), Ok(()), "what was begun may end");
        let drained = tokio::time::timeout(Duration::from_secs(1), gate_handle.drained());
        assert!(drained.await.is_err(), "a permit is out");
        drop(permit);
        gate_handle.drained().await;
    }

    #[tokio::test(start_paused = true)]
    async fn only_changes_are_published() {
        let (gate_handle, gate) = gate(DEADLINE);
        let mut changes = gate.subscribe();
        gate_handle.renewed(Instant::now(), Duration::ZERO, 3);
        assert!(changes.has_changed().unwrap());
        assert_eq!(
            *changes.borrow_and_update(),
            LeaderState::Leader { since: Duration::ZERO, transitions: 3 }
        );
        gate_handle.renewed(Instant::now(), Duration::ZERO, 3);
        assert!(!changes.has_changed().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_gate_handle_leaves_a_closed_gate() {
        let (gate_handle, gate) = gate(DEADLINE);
        gate_handle.renewed(Instant::now(), Duration::ZERO, 0);
        drop(gate_handle);
        assert!(!gate.is_leader());
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_without_a_lease_is_open_until_it_is_closed() {
        let gate = Gate::always(Duration::ZERO);
        advance(Duration::from_hours(24)).await;
        drop(gate.permit().unwrap());
        gate.close();
        gate.drained().await;
        assert_eq!(gate.permit().unwrap_err(), NotLeader::Closing);
    }
}
