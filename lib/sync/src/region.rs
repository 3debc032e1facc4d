//! Transactional regions: short pieces of a structure's code that run in hardware transactions (Intel's RTM) where
//! these work, and are correct on all machines.
//!
//! A structure consists of *pages*, each with a [`VersionLock`], and writes its operations as regions of two kinds:
//!
//! - [`Traverse`]: walks from page to page, reads, and returns what it found, usually a page and its [`Version`];
//! - [`Change`]: changes one page, or a few, in place. It is short, and makes its decisions before its first write.
//!
//! | | walk | change |
//! |---|---|---|
//! | RTM, and the transaction commits | a transaction that reads each page's lock as free | a transaction that reads its pages' locks as free, at the requested version |
//! | RTM, and the transaction does not commit | page by page, each locked while it is read | with the pages locked |
//! | no RTM | optimistic lock coupling: each page's version is validated before values that were read from it are trusted | with the pages locked, at the requested version |
//!
//! In a transaction the read of the lock ("subscription") is the only overhead: an inner node on a walk's way costs a
//! load, a test and a branch. A transaction writes to a lock only to give the page a new version (see below). Other
//! changes of different parts of one page do not conflict. Without RTM the structure separates such changes explicitly:
//! by [`Region::update_part`] for parts with locks of their own, and by [`Region::exchange`] for a single word. Both
//! *share* the page's lock.
//!
//! [`Region::walking_by_versions`] is for structures whose walks seldom conflict with changes, but whose changes
//! conflict with each other. Walks run as without RTM, and changes are transactions where RTM works.
//!
//! # Versions
//! Without RTM, every [`update`](Region::update) gives its pages new versions. With RTM, if walks go by versions, every
//! update does so except those [in place](Change::IN_PLACE). Otherwise only [`Changing::restructure`] and
//! [`Changing::retire`] do. So a body calls `restructure` for every page from which or to which it moves entries that
//! walks look for. Then, in every *back end* (RTM, version locks), a later change refuses a walk's outdated result
//! `(page, version)`.
//!
//! # Why it is right with RTM
//! A transaction that commits has atomically read all locks as free and made all of its accesses. A thread that could
//! not commit locks the pages. Locking aborts the transactions that have subscribed to these locks, and gives the
//! thread exclusive access until it unlocks. Hence if two bodies touch the same page, and one of them writes it, one
//! happens before the other. This requires that no thread reads pages' words optimistically, since changes in
//! transactions do not change versions. So a walk that cannot commit locks each page that it reads. It holds one lock
//! at a time: while it holds a page's lock it loads the next page's version, and then it locks the next page at this
//! version. So the pages are consistent as in lock coupling, and the walk waits for no lock while it holds another.
//! Pages with [`Versioned::UNDER_LOCK_ONLY`] are read optimistically even so, since every change of these pages changes
//! their versions. Otherwise each walk that could not commit would lock the structure's root, and abort all
//! transactions, so that their walks could not commit either.
//!
//! # Why it is right without RTM
//! [`version_lock`](crate::version_lock) proves that a validated read of one page is consistent. In a step from one
//! page to the next, `follow` validates the first page twice. The first time is before it accesses the next page: the
//! first page had the pointer, so the caller's guard keeps the next page alive. The second time is after it has loaded
//! the next page's version: so the next page was linked at that version.
//!
//! # Why changes in transactions may run beside walks by versions
//! A transaction that changes pages adds one to their versions, as a locked change does. The new version and all writes
//! become visible atomically. A walk that has seen one of the writes sees the new version when it validates, since the
//! validating load comes later (`fence(Acquire)`, and a transaction's writes are visible together). The same holds for
//! a change under locks, as without RTM. A change that writes a single word once cannot be seen half-done, so it may
//! keep the version ([`Change::IN_PLACE`]): the walk has seen the word from before or from after the change. A walk
//! that sees a new word also sees the memory to which it leads. The earlier writes are ordered by the transaction,
//! which acts as a fence, or, under locks, by the Release fence of locking. Each pairs with the walk's Acquire fence
//! after its load of the word.
//!
//! # What a body can't do
//! Bodies and their results are `Copy`: they own nothing that could be freed in them, and can write only to pages.
//! References to other pages are results of [`Walk::follow`], which validates them. Debug builds panic if a body waits,
//! allocates pages, or enters RCU sections; a [lock](crate::lock) for which the body would wait stays as it is. The
//! types do not prevent other side effects, such as input and output, or an allocation by the standard library. These
//! abort a transaction. Then the body runs with locks held, and its result is correct.
//!
//! # A body that panics, or fails after it wrote
//! In every back end such a body leaves no effect. The processor rolls a transaction back. A panic aborts its
//! transaction, and the body runs again under locks. If it panics there, too, this panic propagates. Under locks, the
//! words and links of the change's pages are restored before the pages are unlocked, at new versions, and no page is
//! retired. Writes to pages that the change does not list are not restored; no other thread may have a reference to
//! such pages yet. Plain RCU readers may have followed a link that was set only for a moment. So the page to which it
//! led must stay alive until their guards end ([`Link::new`]), even after a panic.
//!
//! A value that [`Walk::get`] returns is *unproven*: without RTM it may stem from half of a change. Bodies must
//! tolerate arbitrary values: they check indices, and bound their loops independently of the content.
//!
//! ```
//! use archipelago::sync::rcu::Domain;
//! use archipelago::sync::region::{Again, Change, Changing, Versioned, Region, Stale, Traverse, Walk, Var};
//! use archipelago::sync::version_lock::{Version, VersionLock};
//!
//! struct Account {
//!     lock: VersionLock,
//!     cents: [Var; 2],
//! }
//!
//! // SAFETY: its words are plain fields.
//! unsafe impl Versioned for Account {
//!     fn lock(&self) -> &VersionLock {
//!         &self.lock
//!     }
//! }
//!
//! #[derive(Clone, Copy)]
//! struct Sum<'g>(&'g Account);
//!
//! impl<'g> Traverse<'g> for Sum<'g> {
//!     type Out = (u64, Version);
//!
//!     fn run(self, walk: &mut impl Walk<'g>) -> Result<(u64, Version), Again> {
//!         let account = walk.enter(self.0)?;
//!         Ok((walk.get(&account.cents[0]) + walk.get(&account.cents[1]), walk.version()))
//!     }
//! }
//!
//! #[derive(Clone, Copy)]
//! struct Move<'p>(&'p Account, u64);
//!
//! impl Change for Move<'_> {
//!     type Out = ();
//!
//!     fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
//!         let [from, to] = &self.0.cents;
//!         change.set(from, change.get(from) - self.1);
//!         change.set(to, change.get(to) + self.1);
//!         Ok(())
//!     }
//! }
//!
//! let account = Account { lock: VersionLock::new(), cents: [Var::new(70), Var::new(30)] };
//! let (domain, region) = (Domain::new(), Region::new());
//! let guard = domain.pin();
//! let (sum, version) = region.traverse(&guard, Sum(&account));
//! assert_eq!(sum, 100);
//! assert_eq!(region.update(&account, version, Move(&account, 20)), Ok(()));
//! ```

mod locked;
mod rtm;
mod scope;
mod undo;
mod versions;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_platform::htm::Htm;
use archipelago_platform::simd::match_row;

use crate::rcu::Guard;
use crate::version_lock::{Version, VersionLock};
use scope::{All, At, Part};

/// The walk conflicts with a change, and is repeated. A body that detects a conflict itself returns this error, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again;

/// The pages have changed since the change was decided. Nothing was changed; walk again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

/// The walk, and its repetition, would [enter](Walk::enter) a page that was retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired;

/// The messages of panics.
const RETIRED_TWICE: &str = "a page is retired twice in a change";
const NOT_LISTED: &str = "a page is retired by a change that it is not listed for";

/// A page: it has a version lock, and words and links that change only in regions.
///
/// # Safety
/// The page's words and links lie in the page itself, in its `size_of` bytes and not behind a pointer. (After a body
/// that fails, only such words and links are restored. If the body has written none of them, the page is unlocked at
/// its old version.) The words and links keep their type and address as long as the page is borrowed.
pub unsafe trait Versioned {
    /// A promise: the page changes only while its lock is held explicitly, and no [`Change`] lists it. So every change
    /// of the page changes its version, in every back end, and a walk that cannot commit need not lock the page.
    const UNDER_LOCK_ONLY: bool = false;

    /// Returns the page's lock, always the same one.
    fn lock(&self) -> &VersionLock;
}

/// A transactional variable: eight bytes of a page that change only in regions.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Var(AtomicU64);

impl Var {
    /// Makes a variable of a page that no other thread can access yet.
    #[cfg(not(loom))]
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Makes a variable of a page that no other thread can access yet.
    #[cfg(loom)]
    pub fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Writes the word outside regions, in a page that only the caller changes, since it holds the lock.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the value of the word, in a page that no thread changes. (During changes: a value that the word had.)
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns which bytes of up to sixteen words of a page equal `byte`, as a bit mask, with the lowest byte of the
    /// first word first. The bytes of a word may be from different moments: a walk must tolerate them, as it tolerates
    /// all unproven values.
    #[inline(always)]
    pub fn matches(words: &[Self], byte: u8) -> u128 {
        // SAFETY: a `Var` is an atomic word (`repr(transparent)`).
        match_row(unsafe { &*(core::ptr::from_ref(words) as *const [AtomicU64]) }, byte)
    }

    /// Replaces the word while the page's lock is shared. The page's version proves that everything except such words
    /// is unchanged.
    ///
    /// Release pairs with the fence of a thread that validates a walk which found the new word, and with the Acquire of
    /// a thread that locks the page. Acquire pairs with the Release of the old word's exchange. (The version makes a
    /// word visible that was stored under the lock.)
    #[inline]
    fn exchange_shared(
        &self,
        lock: &VersionLock,
        at: Version,
        expected: Option<u64>,
        new: u64,
    ) -> Result<Result<u64, u64>, Stale> {
        if !lock.try_share_at(at) {
            return Err(Stale);
        }
        let old = match expected {
            Some(expected) => self.0.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire),
            None => Ok(self.0.swap(new, Ordering::AcqRel)),
        };
        lock.unshare();
        Ok(old)
    }
}

/// A page's link to another.
#[derive(Debug)]
#[repr(transparent)]
pub struct Link<P>(AtomicPtr<P>);

impl<P> Link<P> {
    /// Changes the link outside regions, in a page that only the caller changes, since it holds a lock. Release: pairs
    /// with the Acquire of [`load`](Self::load).
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline]
    pub unsafe fn publish(&self, to: *mut P) {
        self.0.store(to, Ordering::Release);
    }

    /// Makes a link of a page that no other thread can access yet; null for none.
    ///
    /// # Safety
    /// Walks follow the link. So `to` is null, or a page that stays valid for shared use until every guard has ended
    /// under which a walk may have loaded this value of the link. This applies even if a change that failed or panicked
    /// set the link only for a moment.
    pub unsafe fn new(to: *mut P) -> Self {
        Self(AtomicPtr::new(to))
    }

    /// Returns the link's present target. Acquire: the caller sees the target as it was when it was linked. The caller
    /// proves that it may dereference the pointer: for plain RCU readers, and for pages that no thread changes.
    #[inline]
    pub fn load(&self) -> *mut P {
        self.0.load(Ordering::Acquire)
    }
}

/// A read-only region.
pub trait Traverse<'g>: Copy {
    /// The type of the result.
    type Out: Copy;

    /// Does the walk. May run any number of times.
    ///
    /// # Errors
    /// [`Again`], from [`Walk`]'s functions or from the body itself, to repeat the walk.
    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again>;
}

/// The access of a [`Traverse`] to pages. Pages live for `'g`, the lifetime of the guard.
pub trait Walk<'g> {
    /// Enters a page that the body knows: the first page, which always exists, or a page that may have been retired
    /// since. If two successive runs find the same page retired, the walk ends ([`Region::try_traverse`]). So a body
    /// that enters another page in its second run continues.
    ///
    /// # Errors
    /// [`Again`], to be passed on: the walk is repeated.
    fn enter<P: Versioned>(&mut self, page: &'g P) -> Result<&'g P, Again>;

    /// Follows a link of the present page. While the link leads to a retired page, the walk is repeated. So the change
    /// that retires a page must also change the links to the page.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    fn follow<P: Versioned>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again>;

    /// As [`follow`](Self::follow), for a walk that keeps a promise. Until [`stay`](Self::stay), it reads only words of
    /// the page that no [`Change`] writes: they change only while the page's lock is held explicitly. So every change
    /// of these words changes the version, and a walk that cannot commit does not lock the page.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline(always)]
    fn pass<P: Versioned>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        self.follow(link)
    }

    /// Allows the walk to read any words of the present page from now on.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline(always)]
    fn stay(&mut self) -> Result<(), Again> {
        Ok(())
    }

    /// Reads a word of the present page; unproven (see [the module](self)).
    fn get(&self, word: &Var) -> u64;

    /// Returns the present page's version.
    fn version(&self) -> Version;

    /// Proves the values that were read from the present page so far: they are consistent. If one of the values is an
    /// address, the page had this address at a moment within the guard.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    fn prove(&self) -> Result<(), Again>;
}

/// A region that changes pages.
pub trait Change: Copy {
    /// The type of the result.
    type Out: Copy;

    /// A promise: the change writes at most one word, and everything that walks and changes conclude from a version
    /// holds before and after it. Then the change may keep the version for walks by versions, and with RTM it does.
    /// Without RTM the version may change.
    const IN_PLACE: bool = false;

    /// Does the change. May run any number of times. If a run fails or panics, its writes to its pages are undone, and
    /// it retires no page: see [the module](self).
    ///
    /// # Errors
    /// [`Stale`], preferably before the first write, if the pages are not as expected.
    fn run(self, change: &mut impl Changing) -> Result<Self::Out, Stale>;

    /// Called, outside transactions, after another thread's access has aborted a transaction that ran the change.
    #[inline]
    fn aborted(&self) {}
}

/// The access of a [`Change`] to its pages. The values that it reads are consistent.
pub trait Changing {
    /// Reads a word.
    fn get(&self, word: &Var) -> u64;

    /// Writes a word.
    fn set(&mut self, word: &Var, value: u64);

    /// Returns a link's target.
    fn target<P>(&self, link: &Link<P>) -> *mut P;

    /// Changes a link's target. The new target was written before the change.
    ///
    /// # Safety
    /// As for [`Link::new`].
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P);

    /// Gives one of the change's pages a new version, in every back end, since entries that walks look for have moved.
    fn restructure(&mut self, page: &impl Versioned);

    /// Retires one of the change's pages: when the change is done, the page is marked as removed from the structure
    /// forever.
    ///
    /// # Panics
    /// If the change has already retired the page, or does not list it. Then nothing is changed.
    fn retire(&mut self, page: &impl Versioned);
}

/// How a structure runs its regions: with RTM, or by version locks. All threads must use the same value, or copies of
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    htm: Option<Htm>,
    /// Whether walks are transactions, if changes are.
    walks: bool,
}

impl Region {
    /// A named point that a simulated thread passes when it writes a word under locks.
    pub const WRITING: &'static str = "a change under locks writes";

    /// Uses RTM where it works, and version locks elsewhere.
    pub fn new() -> Self {
        Self { htm: Htm::get(), walks: true }
    }

    /// Uses RTM for changes where it works. Walks validate versions on all machines.
    pub fn walking_by_versions() -> Self {
        Self { htm: Htm::get(), walks: false }
    }

    /// Uses version locks on all machines.
    pub fn by_version_locks() -> Self {
        Self { htm: None, walks: false }
    }

    /// Returns whether changes use RTM.
    pub fn is_transactional(&self) -> bool {
        self.htm.is_some()
    }

    /// Returns whether an unchanged version proves that a page has not changed, except [in place](Change::IN_PLACE).
    pub fn versions_tell(&self) -> bool {
        self.htm.is_none() || !self.walks
    }

    /// Repeats the walk until it conflicts with no change. The result corresponds to one moment, as far as the walk's
    /// pages are consistent with each other. Waits for changes of the pages on its way.
    ///
    /// # Panics
    /// If the walk enters a retired page, where [`try_traverse`](Self::try_traverse) returns an error.
    #[inline]
    pub fn traverse<'g, T: Traverse<'g>>(&self, guard: &'g Guard<'_>, body: T) -> T::Out {
        self.try_traverse(guard, body).unwrap_or_else(|Retired| nowhere())
    }

    /// As [`traverse`](Self::traverse), for a body that may enter a retired page.
    ///
    /// # Errors
    /// [`Retired`], if two successive runs would [enter](Walk::enter) the same retired page.
    #[inline]
    pub fn try_traverse<'g, T: Traverse<'g>>(&self, _guard: &'g Guard<'_>, body: T) -> Result<T::Out, Retired> {
        match self.htm {
            Some(htm) if self.walks => rtm::traverse(htm, body),
            Some(_) | None => versions::traverse(body),
        }
    }

    /// Changes a page that still has this version. Waits for other changes of the page, but only as long as the page
    /// keeps this version.
    ///
    /// # Errors
    /// [`Stale`], if the page has another version, or the body returns it.
    #[inline]
    pub fn update<P: Versioned, T: Change>(&self, page: &P, at: Version, change: T) -> Result<T::Out, Stale> {
        self.change(At::new(page, at), change)
    }

    /// Changes a part of a page that still has this version, concurrently with changes of other parts. A part is itself
    /// a page, with a lock and a version of its own, and walks go to it by [`Walk::enter`]. A change of the whole page
    /// may change its parts, and then gives the page a new version. A walk that reads parts returns to the page in the
    /// end, and checks that the page's version is the same.
    ///
    /// # Errors
    /// [`Stale`], if the page has another version, or the body returns it.
    #[inline]
    pub fn update_part<P: Versioned, Q: Versioned, T: Change>(
        &self,
        page: &P,
        at: Version,
        part: &Q,
        change: T,
    ) -> Result<T::Out, Stale> {
        self.change(Part::new(page, at, part), change)
    }

    /// Replaces one word of a page that still has this version and, if an expected value is given, only if the word has
    /// it. Returns the old value, or as a refusal the word's present value. Without RTM this is one atomic operation
    /// while the page's lock is shared: the version does not change, and the caller does not wait.
    ///
    /// With RTM it runs `change`, which must do the same. With RTM an unchanged version does not prove that the word's
    /// entry is still in its place, so `change` checks this.
    ///
    /// Ordering: a thread that gets the new word from a walk sees the memory to which it leads, and the caller sees the
    /// memory to which the old word leads.
    ///
    /// # Errors
    /// [`Stale`], if the page is locked or has another version, or the body returns it.
    #[inline]
    pub fn exchange<P: Versioned>(
        &self,
        page: &P,
        at: Version,
        word: &Var,
        (expected, new): (Option<u64>, u64),
        change: impl Change<Out = Result<u64, u64>>,
    ) -> Result<Result<u64, u64>, Stale> {
        match self.htm {
            Some(htm) => rtm::update(htm, At::new(page, at), change, false),
            None => word.exchange_shared(page.lock(), at, expected, new),
        }
    }

    /// Changes some pages, each listed once, independently of their versions: the body checks whether they are as
    /// expected.
    ///
    /// # Errors
    /// [`Stale`], if one of the pages is retired, or the body returns it.
    ///
    /// # Panics
    /// If a page is listed twice and the change runs with its pages locked.
    #[inline]
    pub fn update_all<P: Versioned, T: Change>(&self, pages: &[&P], change: T) -> Result<T::Out, Stale> {
        self.change(All(pages), change)
    }

    #[inline]
    fn change<S: scope::Scope, T: Change>(&self, scope: S, change: T) -> Result<T::Out, Stale> {
        match self.htm {
            Some(htm) => rtm::update(htm, scope, change, !(self.walks || T::IN_PLACE)),
            None => locked::update(scope, change, true),
        }
    }
}

#[cold]
fn nowhere() -> ! {
    panic!("a walk enters a page that is retired")
}

impl Default for Region {
    fn default() -> Self {
        Self::new()
    }
}
