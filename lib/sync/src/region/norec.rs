//! NOrec (Dalessandro, Spear and Scott 2010): a software transactional memory with one sequence lock, whose readers
//! validate by value. It runs the same bodies, for tests and for comparison. Every commit writes one word that all
//! transactions read.
//!
//! # Invariants
//! - `seq` is odd while a commit writes; memory changes at no other time.
//! - Every place that a transaction has accessed stays alive until the transaction's end, since its value is validated
//!   again. Callers promise this: the types cannot, since a body can make words and pages of its own, and access these.
//! - All values that a transaction has read were current at the same time, while `seq` was `snapshot`. A read that
//!   would violate this does not return, but leaves the body by unwinding. (Bodies own nothing that would be dropped.)

use core::cell::{Cell, RefCell};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use super::{
    Again, Change, Changing, Link, NOT_LISTED, Page, RETIRED_TWICE, Retired, Stale, Traverse, Walk, Word, locked,
};
use crate::backoff::Backoff;
use crate::rcu::Guard;
use crate::version_lock::{Look, Version, VersionLock};

/// Runs regions by NOrec. Its pages must not be used with another back end.
#[derive(Debug, Default)]
pub struct Norec {
    seq: AtomicU64,
}

/// A place (word, link or version lock) that a running transaction accesses.
#[derive(Clone, Copy, PartialEq)]
enum Location {
    Word(*const AtomicU64),
    Link(*const AtomicPtr<()>),
    Lock(*const VersionLock),
}

impl Location {
    fn word(word: &Word) -> Self {
        Location::Word(&raw const word.0)
    }

    fn link<P>(link: &Link<P>) -> Self {
        Location::Link(ptr::from_ref(&link.0).cast())
    }

    /// # Safety
    /// The place is still alive.
    unsafe fn load(self) -> Value {
        // SAFETY: the caller's promise. An `AtomicPtr` is laid out alike for all types of some size.
        unsafe {
            match self {
                Location::Word(word) => Value::Word((*word).load(Ordering::Relaxed)),
                Location::Link(link) => Value::Link((*link).load(Ordering::Acquire)),
                Location::Lock(lock) => Value::Lock((*lock).look()),
            }
        }
    }
}

/// The content of a place.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    Word(u64),
    Link(*mut ()),
    Lock(Look),
}

enum Write {
    Value(Location, Value),
    Restructure(*const VersionLock),
    Retire(*const VersionLock),
}

/// The payload of the unwinding that leaves a body whose reads are inconsistent.
struct Doomed;

struct Transaction<'n> {
    norec: &'n Norec,
    snapshot: Cell<u64>,
    reads: RefCell<Vec<(Location, Value)>>,
    writes: Vec<Write>,
    version: Option<Version>,
    /// The locks of the pages that the change may retire.
    listed: Vec<*const VersionLock>,
    /// The lock of a retired page that the walk could not enter.
    retired: *const VersionLock,
}

impl<'n> Transaction<'n> {
    fn begin(norec: &'n Norec) -> Self {
        let (reads, writes, version, listed) = Default::default();
        Self { norec, snapshot: Cell::new(norec.even()), reads, writes, version, listed, retired: ptr::null() }
    }

    fn read(&self, place: Location) -> Value {
        let own = |write: &Write| match write {
            Write::Value(at, value) if *at == place => Some(*value),
            _ => None,
        };
        if let Some(value) = self.writes.iter().rev().find_map(own) {
            return value;
        }
        // SAFETY: a part of a page that the body has a reference to.
        let value = unsafe { place.load() };
        self.reads.borrow_mut().push((place, value));
        // Pairs with the Release fence of a commit: a thread that reads one of its writes sees `seq` odd, or a later
        // value.
        fence(Ordering::Acquire);
        if self.norec.seq.load(Ordering::Relaxed) != self.snapshot.get() && !self.validate() {
            resume_unwind(Box::new(Doomed));
        }
        value
    }

    fn word(&self, word: &Word) -> u64 {
        let Value::Word(value) = self.read(Location::word(word)) else { unreachable!("a word is read as one") };
        value
    }

    fn link<P>(&self, link: &Link<P>) -> *mut P {
        let Value::Link(to) = self.read(Location::link(link)) else { unreachable!("a link is read as one") };
        to.cast()
    }

    fn look(&self, lock: &VersionLock) -> Look {
        let Value::Lock(look) = self.read(Location::Lock(lock)) else { unreachable!("a lock is read as one") };
        look
    }

    fn go<'g, P: Page>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        let Look::Free(version) = self.look(page.lock()) else { return Err(Again) };
        self.version = Some(version);
        Ok(page)
    }

    /// Returns whether all reads still have their values; if so, they are consistent at the new snapshot.
    fn validate(&self) -> bool {
        loop {
            let seq = self.norec.even();
            // SAFETY: as in `read`; the caller's guard keeps pages.
            let same = self.reads.borrow().iter().all(|(place, value)| unsafe { place.load() } == *value);
            fence(Ordering::Acquire);
            if self.norec.seq.load(Ordering::Relaxed) == seq {
                self.snapshot.set(seq);
                return same;
            }
        }
    }

    /// Commits. Returns whether it succeeded.
    fn commit(self) -> bool {
        if self.writes.is_empty() {
            return true;
        }
        let seq = &self.norec.seq;
        let begin = |at| seq.compare_exchange(at, at + 1, Ordering::Acquire, Ordering::Relaxed);
        while begin(self.snapshot.get()).is_err() {
            if !self.validate() {
                return false;
            }
        }
        fence(Ordering::Release);
        // SAFETY: as in `read`.
        self.writes.iter().for_each(|write| unsafe { write.happen() });
        seq.store(self.snapshot.get() + 2, Ordering::Release);
        true
    }
}

impl Write {
    /// # Safety
    /// The write's place is still alive, and no other thread changes it meanwhile.
    unsafe fn happen(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            match *self {
                Write::Value(Location::Word(word), Value::Word(value)) => (*word).store(value, Ordering::Relaxed),
                Write::Value(Location::Link(link), Value::Link(to)) => (*link).store(to, Ordering::Release),
                Write::Value(..) => unreachable!("of words and links only"),
                Write::Restructure(lock) => (*lock).bump_in_transaction(),
                Write::Retire(lock) => _ = (*lock).retire_in_transaction(),
            }
        }
    }
}

impl<'g> Walk<'g> for Transaction<'_> {
    fn enter<P: Page>(&mut self, page: &'g P) -> Result<&'g P, Again> {
        let entered = self.go(page);
        if entered.is_err() {
            self.retired = locked::retired(page.lock());
        }
        entered
    }

    fn follow<P: Page>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        let to = Transaction::link(self, link);
        // SAFETY: the link was current together with all links that led to it, within the guard whose lifetime is `'g`.
        unsafe { to.as_ref() }.map(|page| self.go(page)).transpose()
    }

    fn get(&self, word: &Word) -> u64 {
        self.word(word)
    }

    fn version(&self) -> Version {
        self.version.expect("a page was entered")
    }

    fn prove(&self) -> Result<(), Again> {
        // Each read was validated together with all earlier reads.
        Ok(())
    }
}

impl Changing for Transaction<'_> {
    fn get(&self, word: &Word) -> u64 {
        self.word(word)
    }

    fn set(&mut self, word: &Word, value: u64) {
        self.writes.push(Write::Value(Location::word(word), Value::Word(value)));
    }

    fn target<P>(&self, link: &Link<P>) -> *mut P {
        self.link(link)
    }

    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P) {
        self.writes.push(Write::Value(Location::link(link), Value::Link(to.cast())));
    }

    fn restructure(&mut self, page: &impl Page) {
        self.writes.push(Write::Restructure(page.lock()));
    }

    fn retire(&mut self, page: &impl Page) {
        let lock = ptr::from_ref(page.lock());
        assert!(self.listed.contains(&lock), "{NOT_LISTED}");
        let before = self.writes.iter().any(|write| matches!(write, Write::Retire(retired) if *retired == lock));
        assert!(!before, "{RETIRED_TWICE}");
        self.writes.push(Write::Retire(lock));
    }
}

/// Runs a transaction. Returns `None` if its reads are inconsistent, or if `transaction` returns `None`.
fn attempt<R>(transaction: impl FnOnce() -> Option<R>) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(transaction)) {
        Ok(result) => result,
        Err(payload) if payload.is::<Doomed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl Norec {
    fn even(&self) -> u64 {
        let backoff = Backoff::new();
        loop {
            let seq = self.seq.load(Ordering::Acquire);
            if seq.is_multiple_of(2) {
                return seq;
            }
            backoff.wait();
        }
    }

    /// As [`Region::try_traverse`](super::Region::try_traverse).
    ///
    /// # Errors
    /// As [`Region::try_traverse`](super::Region::try_traverse).
    ///
    /// # Safety
    /// All words, links and pages that `body` accesses exist before the call, and until it has returned.
    pub unsafe fn try_traverse<'g, T: Traverse<'g>>(&self, _guard: &'g Guard<'_>, body: T) -> Result<T::Out, Retired> {
        let (backoff, mut met) = (Backoff::new(), ptr::null());
        loop {
            let mut retired = ptr::null();
            let found = attempt(|| {
                let mut transaction = Transaction::begin(self);
                let found = body.run(&mut transaction);
                retired = transaction.retired;
                found.ok().filter(|_| transaction.commit())
            });
            if let Some(found) = found {
                return Ok(found);
            }
            locked::same_again(&mut met, retired)?;
            backoff.wait();
        }
    }

    /// As [`Region::update`](super::Region::update).
    ///
    /// # Errors
    /// As [`Region::update`](super::Region::update).
    ///
    /// # Safety
    /// As for [`try_traverse`](Self::try_traverse).
    pub unsafe fn update<P: Page, T: Change>(&self, page: &P, at: Version, change: T) -> Result<T::Out, Stale> {
        self.change(&[page], change, |transaction, page| transaction.look(page.lock()) == Look::Free(at))
    }

    /// As [`Region::update_all`](super::Region::update_all).
    ///
    /// # Errors
    /// As [`Region::update_all`](super::Region::update_all).
    ///
    /// # Safety
    /// As for [`try_traverse`](Self::try_traverse).
    pub unsafe fn update_all<P: Page, T: Change>(&self, pages: &[&P], change: T) -> Result<T::Out, Stale> {
        self.change(pages, change, |transaction, page| matches!(transaction.look(page.lock()), Look::Free(_)))
    }

    fn change<P: Page, T: Change>(
        &self,
        pages: &[&P],
        change: T,
        expected: impl Fn(&Transaction<'_>, &P) -> bool,
    ) -> Result<T::Out, Stale> {
        let backoff = Backoff::new();
        loop {
            let result = attempt(|| {
                let mut transaction = Transaction::begin(self);
                transaction.listed.extend(pages.iter().map(|page| ptr::from_ref(page.lock())));
                let expected = pages.iter().all(|page| expected(&transaction, page));
                let result = if expected { change.run(&mut transaction) } else { Err(Stale) };
                if result.is_err() {
                    transaction.writes.clear();
                }
                transaction.commit().then_some(result)
            });
            if let Some(result) = result {
                return result;
            }
            backoff.wait();
        }
    }
}
