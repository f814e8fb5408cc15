//! Takes our finalizer off all objects of a kind.

use coppice_quantity::count;
use coppice_runtime::client::Clients;
use coppice_runtime::leader::Gate;
use coppice_runtime::object::OwnKind;
use coppice_runtime::read::ListError;
use coppice_runtime::write::{self, WriteError};
use tokio::time::{Instant, sleep};

use super::{PAUSE, StepError, each, listed_until};

/// Takes it off each object that has it, as it was read, until none has it or the time is over. `off` is called for each, as it was before;
/// what has it still, each with why.
///
/// # Errors
/// If it is not known which objects there are, until the time is over.
pub(super) async fn take_off<K: OwnKind>(
    clients: &Clients,
    gate: &Gate,
    end: Instant,
    mut off: impl FnMut(&K::Object),
) -> Result<Vec<String>, ListError> {
    let mut unknown: Vec<K::Object> = Vec::new();
    loop {
        let mut kept = listed_until::<K>(clients, end).await?;
        kept.retain(|object| object.has_finalizer);
        for object in unknown.drain(..) {
            if kept.iter().all(|kept| kept.uid != object.uid) {
                off(&object);
            }
        }
        if kept.is_empty() {
            return Ok(Vec::new());
        }
        tracing::info!("the finalizer is taken off {} of the kind {}", count(kept.len(), "object"), K::KIND);
        let mut results = each(kept, |object| take_off_one::<K>(clients.clone(), gate.clone(), object)).await;
        results.sort_by(|(a, _), (b, _)| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let mut left = Vec::new();
        for (object, result) in results {
            match result {
                Ok(()) => off(&object),
                // Somebody else has.
                Err(StepError::Write(WriteError::Gone)) => {}
                Err(error) => {
                    left.push(format!("{} {}/{}: {error}", K::KIND, object.namespace, object.name));
                    // The next list says whether it was.
                    if matches!(error, StepError::Write(WriteError::Ambiguous(_))) {
                        unknown.push(object);
                    }
                }
            }
        }
        if left.is_empty() {
            // What is kept by then is looked at again.
            continue;
        }
        if Instant::now() + PAUSE >= end {
            return Ok(left);
        }
        for line in &left {
            tracing::warn!("the finalizer is not off yet: {line}");
        }
        sleep(PAUSE.max(clients.backpressure.remaining())).await;
    }
}

async fn take_off_one<K: OwnKind>(
    clients: Clients,
    gate: Gate,
    object: K::Object,
) -> (K::Object, Result<(), StepError>) {
    let taken_off = async {
        let permit = gate.permit()?;
        write::remove_finalizer::<K>(&clients, &permit, &object).await?;
        Ok::<(), StepError>(())
    };
    let taken_off = taken_off.await;
    (object, taken_off)
}
