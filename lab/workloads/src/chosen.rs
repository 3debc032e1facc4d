//! A map that is chosen when a store is loaded: all ordered maps behind one type. Because all maps have this one type,
//! each concurrency-control scheme and each workload is compiled once, not once per map. Each operation is one call
//! through a table of functions (a trait object).

use core::any::Any;
use core::cell::Cell;
use core::fmt;

use archipelago_index::map::{End, Held, Kind, Limits, Put, Structure, When, Words};
use archipelago_index::{Bytes, Form, Word};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Guard};

/// A [`Kind`] whose maps consist of the structure that a [`Choice`] selects at run time.
pub enum Chosen {}

impl Kind for Chosen {
    type OfWords = Erased<Word>;
    type OfBytes = Erased<Bytes>;
    type Config = Choice;
    type Hooks = ();

    const NAME: &'static str = "Chosen";
}

/// One of the ordered maps.
#[derive(Clone, Copy)]
pub struct Choice {
    name: &'static str,
    words: fn(Limits) -> Box<dyn Inner<Word>>,
    bytes: fn(Limits) -> Box<dyn Inner<Bytes>>,
}

thread::thread_local! {
    static CHOICE: Cell<Option<Choice>> = const { Cell::new(None) };
}

impl Choice {
    /// Returns the choice of the map `S`.
    pub const fn of<S: Kind>() -> Self {
        Self { name: S::NAME, words: built::<Word, S>, bytes: built::<Bytes, S> }
    }

    /// Returns this choice with another structure for keys that are words (64-bit integers).
    pub const fn with_words(self, name: &'static str, words: fn(Limits) -> Box<dyn Inner<Word>>) -> Self {
        Self { name, words, bytes: self.bytes }
    }

    /// Calls `load`. Tables that this thread declares during the call have this map.
    pub fn within<R>(self, load: impl FnOnce() -> R) -> R {
        let before = CHOICE.with(|choice| choice.replace(Some(self)));
        let loaded = load();
        CHOICE.with(|choice| choice.set(before));
        loaded
    }
}

/// Returns the map that is chosen in this thread.
///
/// # Panics
/// If none is chosen.
impl Default for Choice {
    fn default() -> Self {
        CHOICE.with(Cell::get).expect("tables are declared within a choice")
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn built<F: Form, S: Kind>(limits: Limits) -> Box<dyn Inner<F>> {
    Box::new(F::Core::<S>::build(&S::Config::default(), limits))
}

/// A form of keys (words, or byte strings) for which a choice can make a structure.
pub trait Side: Form {
    /// Makes the structure.
    fn make(choice: &Choice, limits: Limits) -> Box<dyn Inner<Self>>;
}

impl Side for Word {
    fn make(choice: &Choice, limits: Limits) -> Box<dyn Inner<Self>> {
        (choice.words)(limits)
    }
}

impl Side for Bytes {
    fn make(choice: &Choice, limits: Limits) -> Box<dyn Inner<Self>> {
        (choice.bytes)(limits)
    }
}

/// A structure behind a trait object.
pub struct Erased<F: Form>(Box<dyn Inner<F>>);

/// A function that visits an entry. Returns whether to continue.
pub type Visit<'v, F> = &'v mut dyn FnMut(<F as Form>::Probe<'_>, u64) -> bool;

/// [`Structure`] as a trait that can be a trait object. Callers cannot pass a `Place` (the data with which an operation
/// starts), so each call computes the thread's place again.
///
/// # Safety
/// The contract of [`Structure`].
pub unsafe trait Inner<F: Form>: Send + Sync {
    #[doc(hidden)]
    fn domain(&self) -> &Domain;
    #[doc(hidden)]
    fn limits(&self) -> &Limits;
    #[doc(hidden)]
    fn get(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64>;
    #[doc(hidden)]
    fn put(&self, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put;
    #[doc(hidden)]
    fn take(&self, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64>;
    #[doc(hidden)]
    fn take_end(&self, guard: &Guard<'_>, end: End, found: &mut dyn FnMut(F::Probe<'_>, u64));
    #[doc(hidden)]
    fn scan(&self, guard: &Guard<'_>, from: F::Probe<'_>, limit: usize, words: Words, visit: Visit<'_, F>) -> usize;
    #[doc(hidden)]
    fn scan_back(
        &self,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words,
        visit: Visit<'_, F>,
    ) -> usize;
    #[doc(hidden)]
    fn split_points(&self, guard: &Guard<'_>, count: usize, show: &mut dyn FnMut(F::Probe<'_>));
    #[doc(hidden)]
    fn entries(&self) -> usize;
    #[doc(hidden)]
    fn held(&self) -> Held;
    #[doc(hidden)]
    fn outside(&self, key: F::Probe<'_>) -> usize;
    #[doc(hidden)]
    fn spare(&self) -> usize;
    #[doc(hidden)]
    fn is_thin(&self) -> bool;
    #[doc(hidden)]
    fn note_garbage(&self);
    #[doc(hidden)]
    fn settle(&self);
    /// # Safety
    /// The contract of [`Structure::dismantle`] must hold.
    #[doc(hidden)]
    unsafe fn dismantle(&self, each: &mut dyn FnMut(u64)) -> Option<Box<dyn Any + Send>>;
    #[doc(hidden)]
    fn check(&self);
}

// SAFETY: each method calls a structure, which keeps the contract.
unsafe impl<F: Form, C: Structure<F>> Inner<F> for Arc<C> {
    fn domain(&self) -> &Domain {
        (**self).domain()
    }

    fn limits(&self) -> &Limits {
        (**self).limits()
    }

    fn get(&self, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        (**self).get(self.place(), guard, key)
    }

    fn put(&self, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        (**self).put(self.place(), guard, key, word, when)
    }

    fn take(&self, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        (**self).take(self.place(), guard, key, expected)
    }

    fn take_end(&self, guard: &Guard<'_>, end: End, found: &mut dyn FnMut(F::Probe<'_>, u64)) {
        (**self).take_end(self.place(), guard, end, found);
    }

    fn scan(&self, guard: &Guard<'_>, from: F::Probe<'_>, limit: usize, words: Words, visit: Visit<'_, F>) -> usize {
        (**self).scan(self.place(), guard, from, limit, words, visit)
    }

    fn scan_back(
        &self,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words,
        visit: Visit<'_, F>,
    ) -> usize {
        (**self).scan_back(self.place(), guard, bound, limit, words, visit)
    }

    fn split_points(&self, guard: &Guard<'_>, count: usize, show: &mut dyn FnMut(F::Probe<'_>)) {
        (**self).split_points(self.place(), guard, count, show);
    }

    fn entries(&self) -> usize {
        (**self).entries()
    }

    fn held(&self) -> Held {
        (**self).held()
    }

    fn outside(&self, key: F::Probe<'_>) -> usize {
        (**self).outside(key)
    }

    fn spare(&self) -> usize {
        (**self).spare(self.place())
    }

    fn is_thin(&self) -> bool {
        (**self).is_thin()
    }

    fn note_garbage(&self) {
        (**self).note_garbage();
    }

    fn settle(&self) {
        (**self).settle();
    }

    unsafe fn dismantle(&self, each: &mut dyn FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { (**self).dismantle(each) }
    }

    fn check(&self) {
        (**self).check();
    }
}

// SAFETY: each method calls the structure inside, whose domain is this structure's.
unsafe impl<F: Side> Structure<F> for Erased<F> {
    type Config = Choice;
    type Hooks = ();
    type Place<'s> = ();
    type Near<'g> = ();

    // The B-link tree has the least limit of all maps.
    const LONGEST_KEY: usize = <F::Core<archipelago_txn::on::BLinkTree> as Structure<F>>::LONGEST_KEY;

    fn build(choice: &Choice, limits: Limits) -> Arc<Self> {
        Arc::new(Self(F::make(choice, limits)))
    }

    fn hooks(&self) -> &() {
        &()
    }

    fn place(&self) {}

    fn domain(&self) -> &Domain {
        self.0.domain()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn get(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        self.0.get(guard, key)
    }

    fn put(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        self.0.put(guard, key, word, when)
    }

    fn take(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        self.0.take(guard, key, expected)
    }

    fn take_end<R>(
        &self,
        (): (),
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (mut found, mut result) = (Some(found), None);
        self.0.take_end(guard, end, &mut |key, word| result = found.take().map(|found| found(key, word)));
        result
    }

    fn scan(
        &self,
        (): (),
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        self.0.scan(guard, from, limit, words, &mut visit)
    }

    fn scan_back(
        &self,
        (): (),
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        self.0.scan_back(guard, bound, limit, words, &mut visit)
    }

    fn split_points(&self, (): (), guard: &Guard<'_>, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        self.0.split_points(guard, count, &mut show);
    }

    fn entries(&self) -> usize {
        self.0.entries()
    }

    fn held(&self) -> Held {
        self.0.held()
    }

    fn outside(&self, key: F::Probe<'_>) -> usize {
        self.0.outside(key)
    }

    fn spare(&self, (): ()) -> usize {
        self.0.spare()
    }

    fn is_thin(&self) -> bool {
        self.0.is_thin()
    }

    fn note_garbage(&self) {
        self.0.note_garbage();
    }

    fn settle(&self) {
        self.0.settle();
    }

    unsafe fn dismantle(&self, mut each: impl FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { self.0.dismantle(&mut each) }
    }

    fn check(&self) {
        self.0.check();
    }
}
