//! What a reader of a value accesses after the value's box: addresses that scans prefetch.
//!
//! A scan prefetches the boxes of several entries at a time, so that their cache misses overlap. A value that leads to
//! other memory (a string, a counted reference) causes further misses, one entry after another. Only the user knows
//! where these accesses go, so the user supplies functions from a value to an address
//! ([`Builder::fetch_ahead`](crate::map::Builder::fetch_ahead)).

use crate::value;
use archipelago_platform::hint;
use core::fmt;
use core::marker::PhantomData;

/// The ways from a map's words to the memory that readers of the values access later: one step for each pointer.
#[derive(Clone, Copy)]
pub struct Reach<'a>(&'a [Step]);

impl<'a> Reach<'a> {
    pub(crate) fn new(steps: &'a [Step]) -> Self {
        Self(steps)
    }

    /// Prefetches the memory to which the values of some words lead. All words make one step before any word makes the
    /// next one: the next step reads what this step prefetches.
    ///
    /// # Safety
    /// The words are words of the map for whose values the steps were made, and their boxes are not reclaimed during
    /// the call.
    #[inline]
    pub(crate) unsafe fn fetch(self, words: impl Iterator<Item = u64> + Clone) {
        for step in self.0 {
            // SAFETY: the caller guarantees the same contract.
            words.clone().for_each(|word| unsafe { step.0.fetch(word) });
        }
    }
}

impl fmt::Debug for Reach<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reach").field(&self.0.len()).finish()
    }
}

/// A function from a map's values to addresses.
pub(crate) struct Step(Box<dyn Fetch>);

impl Step {
    pub(crate) fn new<V, T>(address: impl Fn(&V) -> *const T + Clone + Send + Sync + 'static) -> Self
    where
        V: 'static,
        T: 'static,
    {
        Self(Box::new(Address { address, types: PhantomData }))
    }
}

impl Clone for Step {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

trait Fetch: Send + Sync {
    /// Prefetches the memory at the address that belongs to the value of `word`.
    ///
    /// # Safety
    /// `word` is a word of a value of the function's type, and its box is not reclaimed during the call.
    unsafe fn fetch(&self, word: u64);

    /// Returns a clone.
    fn boxed(&self) -> Box<dyn Fetch>;
}

struct Address<V, T, F> {
    address: F,
    types: PhantomData<fn(V) -> T>,
}

impl<V: 'static, T: 'static, F: Fn(&V) -> *const T + Clone + Send + Sync + 'static> Fetch for Address<V, T, F> {
    unsafe fn fetch(&self, word: u64) {
        // SAFETY: the caller guarantees the contract of `with_ref`.
        unsafe { value::with_ref(word, |value| hint::prefetch_read((self.address)(value))) }
    }

    fn boxed(&self) -> Box<dyn Fetch> {
        Box::new(Self { address: self.address.clone(), types: PhantomData })
    }
}
