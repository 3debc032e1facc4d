//! Transactional regions: short pieces of a structure's text that run in hardware transactions where those work, and are
//! right everywhere.
//!
//! A structure of *pages*, each with a [`VersionLock`], writes what it does as regions of two kinds:
//!
//! - [`Traverse`]: walks from page to page, reads, and gives out what it found, usually a page and its [`Version`];
//! - [`Change`]: changes one page, or a few, in place; it is short, and decides before its first write.
//!
//! | | walk | change |
//! |---|---|---|
//! | RTM commits here | a transaction that looks whether each page's lock is free | a transaction that looks whether its pages' locks are free, at the version asked for |
//! | RTM does not commit this one | page by page, each locked while it is read | with the pages locked |
//! | no RTM | optimistic lock coupling: each page's version is validated before what was read there is trusted | with the pages locked, at the version asked for |
//!
//! In transactions that look at the lock ("subscription") is all there is beside the body: an inner node that a walk passes
//! costs a load, a test and a branch. Nothing is written to the lock, so changes of different parts of one page do not
//! conflict. Without RTM such changes are told apart by hand: [`Region::update_part`] for parts with locks of their own,
//! [`Region::exchange`] for a single word. Both *share* the page's lock.
//!
//! A third way is for structures whose walks seldom meet a change, but whose changes meet each other:
//! [`Region::walking_by_versions`]. Walks are as without RTM, which costs them nothing, and changes are transactions where RTM works.
//!
//! # Versions
//! Without RTM every [`update`](Region::update) makes the version of its pages a new one, and where walks go by versions too. With RTM
//! otherwise only [`Changing::restructure`] and [`Changing::retire`] do. So a body calls the first for every page from which or to which it moves what walks look for: a
//! walk's result `(page, version)` is then refused by a change that comes too late, in every back end.
//!
//! # Why it is right with RTM
//! A transaction that commits has, in one instant, read all locks as free and done all of its accesses. A thread that could
//! not commit locks the pages, which aborts the transactions that have looked at them, and is alone on them until it unlocks.
//! Hence any two bodies that touch a page, one of which writes there, happen one before the other. This needs that nobody
//! reads pages' words optimistically there, since changes in transactions leave versions alone; so a walk that can't commit
//! locks each page that it reads. It holds one lock at a time, takes the next page's version while it does, and locks that
//! page at that version, so pages hang together as in lock coupling, and it waits for nobody with a lock held.
//! Pages that say so ([`Page::UNDER_LOCK_ONLY`]) it reads at versions all the same: of their changes versions do tell. Otherwise
//! each walk that could not commit would lock the structure's root, and abort all transactions, whose walks then could not
//! commit either.
//!
//! # Why it is right without
//! [`version_lock`](crate::version_lock). `follow` validates the page that it leaves twice: before it looks at the next one
//! (then the pointer was there, and the caller's guard keeps what it points to), and after it took the next one's version
//! (then the next page was linked at that version).
//!
//! # Why changes in transactions may stand beside walks by versions
//! A transaction that changes pages adds one to their versions, as if it had locked them: that and all of its writes are seen in one
//! instant. A walk that has seen one of its writes sees the version that came with them when it validates, since that load comes
//! later (`fence(Acquire)`, and a transaction's writes are seen together); so does one that a thread has run with locks held, as
//! without RTM. What is written in one word, once, tears nothing, so such a change can leave the version as it is
//! ([`Change::IN_PLACE`]): the walk has seen the word from before or from after it. What a new word leads to is seen with it: a
//! transaction orders all that came before it as a fence does, and under locks the Release fence of taking them does; the walk's
//! Acquire fence, after its load of the word, is their partner.
//!
//! # What a body can't do
//! Bodies are values that are `Copy`, and so is what they give out: they own nothing that could be freed in them, and have
//! no way to write but to pages. References to other pages come from [`Walk::follow`] alone, validated. Debug builds panic
//! when a body waits, allocates pages, or enters RCU sections. What the types don't stop (input and output, an allocation by
//! the standard library) makes a transaction abort, and the body then runs with locks held; its result is right.
//!
//! # A body that panics, or fails after it wrote
//! Nothing of it stays, whatever runs it. A transaction is rolled back by the processor (NOrec's writes nothing until it commits), and
//! a panic in one aborts it: the body panics anew under locks, where it can be heard. There the words and links
//! of the change's pages get their old values back before the pages are unlocked, at new versions, and no page is retired. What
//! is not put back is what the body wrote elsewhere: to pages that it does not list, which no other thread may know yet.
//! A link that was set for a moment may have been followed by plain RCU readers: so what it led to stays until their guards
//! end ([`Link::new`]), panic or not.
//!
//! What [`Walk::get`] gives is *unproven*: without RTM it may be half of a change. Bodies must not be harmed by nonsense:
//! bound indices, end loops by bounds and not by content.
//!
//! ```
//! use archipelago::sync::rcu::Domain;
//! use archipelago::sync::region::{Again, Change, Changing, Page, Region, Stale, Traverse, Walk, Word};
//! use archipelago::sync::version_lock::{Version, VersionLock};
//!
//! struct Account {
//!     lock: VersionLock,
//!     cents: [Word; 2],
//! }
//!
//! // SAFETY: its words are plain fields.
//! unsafe impl Page for Account {
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
//! let account = Account { lock: VersionLock::new(), cents: [Word::new(70), Word::new(30)] };
//! let (domain, region) = (Domain::new(), Region::new());
//! let guard = domain.pin();
//! let (sum, version) = region.traverse(&guard, Sum(&account));
//! assert_eq!(sum, 100);
//! assert_eq!(region.update(&account, version, Move(&account, 20)), Ok(()));
//! ```

mod locked;
mod norec;
mod rtm;
mod scope;
mod undo;
mod versions;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};
use archipelago_platform::htm::Htm;

pub use norec::Norec;

use crate::rcu::Guard;
use crate::version_lock::{Version, VersionLock};
use scope::{All, At, Part};

/// The walk met a change: it begins again. A body that met one by itself says so too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again;

/// The pages are no longer what the change was decided on: nothing was changed. Look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

/// A walk would [enter](Walk::enter) a page that was retired, and so would the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired;

/// What panics say.
const RETIRED_TWICE: &str = "a page is retired twice in a change";
const NOT_LISTED: &str = "a page is retired by a change that it is not listed for";

/// What has a version lock, and words and links that change only in regions.
///
/// # Safety
/// Words and links that lie in it are such as long as it is borrowed: a change that fails puts their old values back when its body
/// is over.
pub unsafe trait Page {
    /// A promise: the page changes while its lock is held by hand, and is among no [`Change`]'s pages. So its version tells of
    /// every change of it, in every back end, and a walk that can't commit need not lock it.
    const UNDER_LOCK_ONLY: bool = false;

    /// Its lock; always the same.
    fn lock(&self) -> &VersionLock;
}

/// Eight bytes of a page.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A word of a page that nobody else sees yet.
    #[cfg(not(loom))]
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// A word of a page that nobody else sees yet.
    #[cfg(loom)]
    pub fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Writes it, outside of regions: of a page that the caller alone changes, by its lock.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it is, of a page that nobody changes. (Beside changes: something that it was.)
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces it with the page shared, whose version says that all but such words is as it was seen.
    ///
    /// Release meets the fence of whoever validates a walk that found the new word, and the Acquire of who locks the page;
    /// Acquire meets the Release of the old word's exchange. (One that was stored under the lock is seen by the version.)
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
    /// Lets it lead elsewhere, outside of regions: of a page that the caller alone changes, by some lock. Release: pairs with
    /// the Acquire of [`load`](Self::load).
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    #[inline]
    pub unsafe fn publish(&self, to: *mut P) {
        self.0.store(to, Ordering::Release);
    }

    /// A link of a page that no other thread sees yet; null for none.
    ///
    /// # Safety
    /// Walks follow it: `to` is null, or a page that stays valid for shared use until every guard has ended under which a
    /// walk may have found the link leading there, for a moment in a change that failed or panicked, too.
    pub unsafe fn new(to: *mut P) -> Self {
        Self(AtomicPtr::new(to))
    }

    /// Where it leads now. Acquire: what is there is seen as it was when it was linked. To follow it is up to the caller:
    /// for plain RCU readers, and for pages that nobody changes.
    #[inline]
    pub fn load(&self) -> *mut P {
        self.0.load(Ordering::Acquire)
    }
}

/// A read-only region.
pub trait Traverse<'g>: Copy {
    /// What it finds.
    type Out: Copy;

    /// Walks. May run any number of times.
    ///
    /// # Errors
    /// What [`Walk`]'s functions say, or by itself, to begin again.
    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again>;
}

/// What a [`Traverse`] reads through. Pages live for `'g`, the guard's.
pub trait Walk<'g> {
    /// Goes to a page that the body knows: the first, which is always there, or one that may have been retired since. Once the same
    /// page is found retired in two runs in a row, the walk ends ([`Region::try_traverse`]): so a body that begins elsewhere when
    /// it is told to begin again does so.
    ///
    /// # Errors
    /// To be passed on: the walk begins again.
    fn enter<P: Page>(&mut self, page: &'g P) -> Result<&'g P, Again>;

    /// Goes to the page that a link of the present page leads to. As long as it leads to a retired page, the walk begins again: to
    /// take such links away is up to the change that retires.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    fn follow<P: Page>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again>;

    /// As [`follow`](Self::follow), to a page of which only words are read that change while its lock is held by hand, and in no
    /// [`Change`]: of these its version tells, so that a walk that can't commit passes without locking the page. Until
    /// [`stay`](Self::stay).
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline(always)]
    fn pass<P: Page>(&mut self, link: &Link<P>) -> Result<Option<&'g P>, Again> {
        self.follow(link)
    }

    /// From now on any words of the present page may be read.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    #[inline(always)]
    fn stay(&mut self) -> Result<(), Again> {
        Ok(())
    }

    /// Reads a word of the present page; unproven (see [the module](self)).
    fn get(&self, word: &Word) -> u64;

    /// The present page's version.
    fn version(&self) -> Version;

    /// Proves what was read of the present page so far: it belongs together, and an address among it was one of something
    /// that the page had at a moment within the guard.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    fn prove(&self) -> Result<(), Again>;
}

/// A region that changes pages.
pub trait Change: Copy {
    /// What it gives out.
    type Out: Copy;

    /// A promise: it writes one word at most, and what walks and changes conclude from a version is true before and after. Then walks
    /// by versions need not hear of it: with RTM the version stays. Without RTM it does not, nor is that promised.
    const IN_PLACE: bool = false;

    /// Changes. May run any number of times. What a run that fails or panics wrote to its pages is put back, and no page is retired
    /// by it: see [the module](self).
    ///
    /// # Errors
    /// [`Stale`], best before the first write, if the pages are not what was expected.
    fn run(self, change: &mut impl Changing) -> Result<Self::Out, Stale>;

    /// Called, outside of transactions, when another thread's access has aborted one that ran it.
    #[inline]
    fn aborted(&self) {}
}

/// What a [`Change`] reads and writes its pages through. What it reads belongs together.
pub trait Changing {
    /// Reads a word.
    fn get(&self, word: &Word) -> u64;

    /// Writes a word.
    fn set(&mut self, word: &Word, value: u64);

    /// Where a link leads.
    fn target<P>(&self, link: &Link<P>) -> *mut P;

    /// Lets a link lead elsewhere. What is there was written before the change.
    ///
    /// # Safety
    /// As for [`Link::new`].
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P);

    /// Makes the version of one of the change's pages a new one, in every back end: what walks look for has moved.
    fn restructure(&mut self, page: &impl Page);

    /// Marks one of the change's pages as gone from the structure, for good, when the change is done.
    ///
    /// # Panics
    /// If the change has retired it before, or it is not one of its pages. Then nothing is changed.
    fn retire(&mut self, page: &impl Page);
}

/// How a structure runs its regions: with RTM, or by version locks. All threads must use one, or copies of one.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    htm: Option<Htm>,
    /// Whether walks are transactions, where changes are.
    walks: bool,
}

impl Region {
    /// A named point that a simulated thread passes where it writes a word under locks.
    pub const WRITING: &'static str = "a change under locks writes";

    /// With RTM where it works, and by version locks elsewhere.
    pub fn new() -> Self {
        Self { htm: Htm::get(), walks: true }
    }

    /// With RTM where it works, but for walks, which go by versions everywhere.
    pub fn walking_by_versions() -> Self {
        Self { htm: Htm::get(), walks: false }
    }

    /// By version locks, everywhere.
    pub fn by_version_locks() -> Self {
        Self { htm: None, walks: false }
    }

    /// Whether changes are with RTM.
    pub fn is_transactional(&self) -> bool {
        self.htm.is_some()
    }

    /// Whether a page that still has the version at which it was found has not changed since, but [in place](Change::IN_PLACE).
    pub fn versions_tell(&self) -> bool {
        self.htm.is_none() || !self.walks
    }

    /// Walks until it has met no change: what comes out was so at one moment, as far as pages hang together. Waits for
    /// changes of the pages on its way.
    ///
    /// # Panics
    /// If the walk enters a page that was retired, as [`try_traverse`](Self::try_traverse) says.
    #[inline]
    pub fn traverse<'g, T: Traverse<'g>>(&self, guard: &'g Guard<'_>, body: T) -> T::Out {
        self.try_traverse(guard, body).unwrap_or_else(|Retired| nowhere())
    }

    /// As [`traverse`](Self::traverse), of a body that may begin at a page which is gone.
    ///
    /// # Errors
    /// [`Retired`], if two runs in a row would [enter](Walk::enter) the same retired page.
    #[inline]
    pub fn try_traverse<'g, T: Traverse<'g>>(&self, _guard: &'g Guard<'_>, body: T) -> Result<T::Out, Retired> {
        match self.htm {
            Some(htm) if self.walks => rtm::traverse(htm, body),
            Some(_) | None => versions::traverse(body),
        }
    }

    /// Changes a page that still has this version. Waits for others that change it, but not longer than the version
    /// stays.
    ///
    /// # Errors
    /// [`Stale`], if it has another version, or the body says so.
    #[inline]
    pub fn update<P: Page, T: Change>(&self, page: &P, at: Version, change: T) -> Result<T::Out, Stale> {
        self.change(At::new(page, at), change)
    }

    /// Changes a part of a page that still has this version: changes of other parts go on beside it. A part is a page by
    /// itself, with a lock and a version of its own, to which walks go by [`Walk::enter`]; what changes the whole page may
    /// change its parts, and then gives the page a new version. A walk that reads parts goes back to the page in the end,
    /// and looks whether its version is the same.
    ///
    /// # Errors
    /// [`Stale`], if the page has another version, or the body says so.
    #[inline]
    pub fn update_part<P: Page, Q: Page, T: Change>(
        &self,
        page: &P,
        at: Version,
        part: &Q,
        change: T,
    ) -> Result<T::Out, Stale> {
        self.change(Part::new(page, at, part), change)
    }

    /// Replaces one word of a page that still has this version (if a word is expected, only if that is what it is), and
    /// gives out what it was; or, refused by the word, what that is. This is one atomic operation while the page is shared:
    /// walks see no new version, and no thread waits for another.
    ///
    /// With RTM it is `change`, which must do the same: a version alone does not say there that what the word belongs to is
    /// still in its place, so it looks.
    ///
    /// Ordering: what the new word leads to is seen by whoever gets the word from a walk; and what the old one leads to, by
    /// the caller.
    ///
    /// # Errors
    /// [`Stale`], if the page is locked or has another version, or the body says so.
    #[inline]
    pub fn exchange<P: Page>(
        &self,
        page: &P,
        at: Version,
        word: &Word,
        (expected, new): (Option<u64>, u64),
        change: impl Change<Out = Result<u64, u64>>,
    ) -> Result<Result<u64, u64>, Stale> {
        match self.htm {
            Some(htm) => rtm::update(htm, At::new(page, at), change, false),
            None => word.exchange_shared(page.lock(), at, expected, new),
        }
    }

    /// Changes some pages, each listed once, whatever their versions: the body looks whether they are as expected.
    ///
    /// # Errors
    /// [`Stale`], if one is gone from the structure, or the body says so.
    ///
    /// # Panics
    /// If a page is listed twice and the change runs with its pages locked.
    #[inline]
    pub fn update_all<P: Page, T: Change>(&self, pages: &[&P], change: T) -> Result<T::Out, Stale> {
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
