//! Iteration.

use core::fmt;

use archipelago_sync::rcu::Guard;

use crate::entry::{Entry, Shared};
use crate::inner::Inner;
use crate::policy::Policy;

type Entries<'p, K, V> = Box<dyn Iterator<Item = Shared<K, V>> + 'p>;

/// The entries of a cache: [`Pinned::iter`](crate::Pinned::iter).
pub struct Iter<'p, K, V, P, S> {
    inner: &'p Inner<K, V, P, S>,
    guard: &'p Guard<'p>,
    shards: core::ops::Range<usize>,
    of_shard: Entries<'p, K, V>,
}

impl<'p, K: 'p, V: 'p, P, S> Iter<'p, K, V, P, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
{
    pub(crate) fn new(inner: &'p Inner<K, V, P, S>, guard: &'p Guard<'p>) -> Self {
        Self { inner, guard, shards: 0..inner.shards().len(), of_shard: Box::new(core::iter::empty()) }
    }
}

impl<'p, K, V, P, S> Iterator for Iter<'p, K, V, P, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    P: Policy,
{
    type Item = (&'p K, &'p V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for entry in &mut self.of_shard {
                if !self.inner.is_expired(self.guard, entry) {
                    // SAFETY: the entry was found under the guard, which is borrowed for `'p`.
                    let entry: &'p Entry<K, V> = unsafe { entry.as_ref() };
                    return Some((entry.key(), entry.value()));
                }
            }
            self.of_shard = Box::new(self.inner.shards()[self.shards.next()?].table().entries(self.guard));
        }
    }
}

impl<K, V, P, S> fmt::Debug for Iter<'_, K, V, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}
