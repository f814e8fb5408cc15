//! What is counted of the objects of a cache while they change, so that nobody has to look through all of them.

use std::fmt::Debug;
use std::sync::Arc;

/// Follows every change of a [`Store`](super::Store).
pub trait StoreIndex<T>: Debug + Send + Sync {
    /// Objects were removed or replaced (`before`), and put in or put in the place of those (`after`): of a complete list all that there
    /// was and all that there is. That is one change: who asks the index must not see half of it. Called under the lock of the store: it has
    /// to be short, and must not use the store.
    fn changed(&self, before: &mut dyn Iterator<Item = &T>, after: &mut dyn Iterator<Item = &T>);
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
    pub(super) fn changed<'a>(
        &self,
        before: impl IntoIterator<Item = &'a T>,
        after: impl IntoIterator<Item = &'a T>,
    ) where
        T: 'a,
    {
        if let Some(index) = &self.0 {
            index.changed(&mut before.into_iter(), &mut after.into_iter());
        }
    }
}
