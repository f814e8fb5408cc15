//! Who waits for deliveries: each controller that has something sent says so itself.

use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::context::{ControllerContext, WebhookSubject};

type Ended = Box<dyn Fn(&WebhookSubject) + Send + Sync>;
type Opened = Box<dyn Fn(&ControllerContext) + Send + Sync>;

/// What is called when a delivery has ended, by the kind of what it was sent for; and when the first can be sent.
#[derive(Default)]
pub struct DeliveryWaiters {
    ended: RwLock<Vec<(&'static str, Ended)>>,
    opened: RwLock<Vec<Opened>>,
}

impl DeliveryWaiters {
    /// Has this called whenever an attempt has ended that was sent for an object of this kind.
    pub fn on_ended(&self, kind: &'static str, enqueue: impl Fn(&WebhookSubject) + Send + Sync + 'static) {
        self.ended.write().unwrap_or_else(PoisonError::into_inner).push((kind, Box::new(enqueue)));
    }

    /// Has this called whenever there are new outboxes: something waits for them.
    pub fn on_opened(&self, enqueue: impl Fn(&ControllerContext) + Send + Sync + 'static) {
        self.opened.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(enqueue));
    }

    /// An attempt has ended.
    pub fn ended(&self, subject: &WebhookSubject) {
        let waiters = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, enqueue)) = waiters.iter().find(|(kind, _)| *kind == subject.kind) {
            enqueue(subject);
        } else {
            tracing::error!(kind = subject.kind, "no controller waits for deliveries to this kind");
        }
    }

    /// There are new outboxes.
    pub fn opened(&self, shared: &ControllerContext) {
        let waiters = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        waiters.iter().for_each(|enqueue| enqueue(shared));
    }
}

impl fmt::Debug for DeliveryWaiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiters = self.ended.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(waiters.iter().map(|(kind, _)| kind)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_kind_hears_of_its_own_deliveries_and_of_no_others() {
        let (waiters, heard) = (DeliveryWaiters::default(), Arc::new(Mutex::new(Vec::new())));
        for kind in ["One", "Other"] {
            let heard = Arc::clone(&heard);
            waiters.on_ended(kind, move |subject| {
                heard.lock().unwrap().push((kind, subject.namespace.to_string(), subject.name.to_string()));
            });
        }
        for (kind, name) in [("Other", "a"), ("One", "b"), ("Nobody's", "c")] {
            waiters.ended(&WebhookSubject { kind, namespace: "ns".into(), name: name.into() });
        }
        let expected = [("Other", "a"), ("One", "b")];
        let expected = expected.map(|(kind, name)| (kind, "ns".to_owned(), name.to_owned()));
        assert_eq!(*heard.lock().unwrap(), expected);
    }
}
