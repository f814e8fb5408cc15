//! What has ended, for a program that ends what is being deleted and issues nothing: before Coppice is uninstalled.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use crate::kinds::Access;

/// Those that have ended since they were last taken, in that order. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endings(Arc<Mutex<Vec<Ending>>>);

/// One that has ended: its finalizer is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Its namespace.
    pub(crate) namespace: Box<str>,
    /// Its name.
    pub(crate) name: Box<str>,
    /// Its uid.
    pub(crate) uid: Box<str>,
    /// Why not all of it was revoked; none: it was.
    pub(crate) skipped: Option<String>,
    /// Until when something is valid that was issued for it and was not revoked, or cannot be.
    pub(crate) valid_until: Option<Timestamp>,
}

impl Endings {
    /// One more has ended.
    pub(crate) fn add(&self, access: &Access, skipped: Option<&str>, valid_until: Option<Timestamp>) {
        let ending = Ending {
            namespace: access.namespace.clone(),
            name: access.name.clone(),
            uid: access.uid.clone(),
            skipped: skipped.map(str::to_owned),
            valid_until,
        };
        // A panic leaves valid data: one push.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ending);
    }

    /// Takes them.
    pub(crate) fn take(&self) -> Vec<Ending> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
