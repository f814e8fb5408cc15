//! What is counted of the objects of a cache while they change, so that nobody has to look through all of them.

use std::fmt::Debug;
use std::sync::Arc;

/// Follows every change of a [`Store`](super::Store).
pub trait StoreIndex<T>: Debug + Send + Sync {
    /// An object was put in (nothing was there before), replaced, or removed (nothing is there after). Called under the lock of the
    /// store: it has to be short, and must not use the store.
    fn changed(&self, before: Option<&T>, after: Option<&T>);
}

/// The index of a store, if it has one.
#[derive(Debug)]
pub(super) struct Index<T>(pub(super) Option<Arc<dyn StoreIndex<T>>>);

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Index<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Index<T> {
    pub(super) fn changed(&self, before: Option<&T>, after: Option<&T>) {
        if let Some(index) = &self.0 {
            index.changed(before, after);
        }
    }

    /// All of the one were replaced by all of the other.
    pub(super) fn replaced<'a>(
        &self,
        before: impl Iterator<Item = &'a Arc<T>>,
        after: impl Iterator<Item = &'a Arc<T>>,
    ) where
        T: 'a,
    {
        if let Some(index) = &self.0 {
            before.for_each(|object| index.changed(Some(&**object), None));
            after.for_each(|object| index.changed(None, Some(&**object)));
        }
    }
}
