//! Structures over RCU in the form with which papers compare: a counter for each session (`sections.rs`), spin locks,
//! and grace periods inside updates. A session that has removed [`BATCH`] nodes waits for a grace period, and frees
//! them.

use core::mem;
use core::ops::DerefMut;

use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use archipelago_sync::lock::{self, RawTtas};

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::sections::{Place, Sections};
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// The number of nodes that a session removes before it waits for readers, as in the program of RLU's authors.
const BATCH: usize = if cfg!(loom) { 1 } else { 1_000 };

/// Structures over RCU whose updates wait for readers and then free removed nodes, after Matveev et al., *RLU*
/// (SOSP'15), whose benchmark the papers use: each thousandth removal of a session waits. There is one lock per scope:
/// a list or tree has one scope, a hash table has one per bucket.
#[derive(Default)]
pub struct SynchronousRcu {
    locks: Box<[Lock]>,
    sections: Sections,
    /// On cache lines of its own: every update reads the address of the locks.
    left: CachePadded<Left>,
}

/// A scope's lock. As in that program it takes four bytes, and sixteen of them share a cache line.
#[repr(align(4))]
struct Lock(lock::Mutex<RawTtas, ()>);

/// What sessions that have ended have not freed. The next session takes it over.
#[derive(Default)]
struct Left(Mutex<Vec<Unlinked>>);

impl Left {
    fn lock(&self) -> impl DerefMut<Target = Vec<Unlinked>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        // SAFETY: no session exists any more, so no thread can reach the nodes.
        self.lock().drain(..).for_each(|node| unsafe { node.free() });
    }
}

/// A node that has left its structure, of any number of links, and the function that frees it.
struct Unlinked(*mut (), unsafe fn(*mut ()));

// SAFETY: nodes may be freed on any thread.
unsafe impl Send for Unlinked {}

impl Unlinked {
    fn new<const LINKS: usize>(link: Link<LINKS>) -> Self {
        // SAFETY: in `free`, the node is from `Shared::boxed`.
        Self(link.0.as_ptr().cast(), |node| drop(unsafe { Box::from_raw(node.cast::<Shared<LINKS, ()>>()) }))
    }

    /// Frees the node.
    ///
    /// # Safety
    /// No thread can reach the node.
    unsafe fn free(self) {
        // SAFETY: the caller's promise; the node is freed once, since `self` is consumed.
        unsafe { self.1(self.0) }
    }
}

type Link<const LINKS: usize> = SharedLink<LINKS, ()>;

impl<const LINKS: usize> Mechanism<LINKS> for SynchronousRcu {
    type Link = Link<LINKS>;
    type Session<'m> = SynchronousSession<'m>;

    fn for_scopes(self, scopes: usize) -> Self {
        // Under loom, locks cannot be made in constants.
        let lock = |_| Lock(lock::Mutex::from_raw(RawTtas::default(), ()));
        Self { locks: (0..scopes).map(lock).collect(), ..self }
    }

    fn root(&self) -> Link<LINKS> {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 }, ())
    }

    fn session(&self) -> SynchronousSession<'_> {
        SynchronousSession { over: self, place: self.sections.place(), retired: mem::take(&mut *self.left.lock()) }
    }
}

#[doc(hidden)]
pub struct SynchronousSession<'m> {
    over: &'m SynchronousRcu,
    place: Place<'m>,
    /// Nodes that this session, or one before it, has removed and not freed.
    retired: Vec<Unlinked>,
}

impl Drop for SynchronousSession<'_> {
    fn drop(&mut self) {
        self.over.left.lock().append(&mut self.retired);
    }
}

impl SynchronousSession<'_> {
    /// Waits for the sections that are open, and frees what was removed.
    fn free_removed(&mut self) {
        self.over.sections.wait();
        // SAFETY: the nodes are unlinked, no section that could have seen them is open, and updates of their scopes
        // have seen the links change.
        self.retired.drain(..).for_each(|node| unsafe { node.free() });
    }

    /// Runs `body` with the locks of all the scopes held. The locks are taken in ascending order, so threads cannot
    /// deadlock.
    #[inline]
    fn locked<R>(&self, scopes: &[usize], body: impl FnOnce() -> R) -> R {
        let locks = &self.over.locks;
        if let [one] = scopes {
            let _lock = locks[*one].0.lock();
            return body();
        }
        debug_assert!(scopes.is_sorted_by(|a, b| a < b));
        let _locks: Vec<_> = scopes.iter().map(|scope| locks[*scope].0.lock()).collect();
        body()
    }
}

impl<const LINKS: usize> Session<LINKS> for SynchronousSession<'_> {
    type Link = Link<LINKS>;
    type View<'s>
        = Reading<()>
    where
        Self: 's;
    type Update<'s>
        = Changing<'s>
    where
        Self: 's;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&Reading<()>) -> R) -> R {
        let _section = self.place.enter();
        body(&Reading::new())
    }

    /// Runs without a section: nodes of a scope are unlinked only by the holder of the scope's lock.
    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Reading<()>) -> R) -> R {
        self.locked(scopes, || body(&Reading::new()))
    }

    /// Runs without a section, as [`read_at_once`](Self::read_at_once).
    #[inline]
    fn update<R>(&mut self, scopes: &[usize], mut body: impl FnMut(&mut Changing<'_>) -> Result<R, Conflict>) -> R {
        let mut changing = Changing { sections: &self.over.sections, retired: mem::take(&mut self.retired) };
        let result = self.locked(scopes, || body(&mut changing));
        let Ok(result) = result else { unreachable!("nothing conflicts under the locks") };
        self.retired = changing.retired;
        if self.retired.len() >= BATCH {
            self.free_removed();
        }
        result
    }

    fn aborts(&self) -> u64 {
        0
    }
}

/// An update, which holds the locks.
#[doc(hidden)]
pub struct Changing<'s> {
    sections: &'s Sections,
    retired: Vec<Unlinked>,
}

impl<const LINKS: usize> View<LINKS> for Changing<'_> {
    type Link = Link<LINKS>;

    #[inline]
    unsafe fn step(&self, link: Link<LINKS>, side: usize) -> (u64, Option<Link<LINKS>>) {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().step(link, side) }
    }

    #[inline]
    unsafe fn toward(&self, link: Link<LINKS>, key: u64) -> (u64, Option<Link<LINKS>>) {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().toward(link, key) }
    }

    #[inline]
    unsafe fn node(&self, link: Link<LINKS>) -> Node<Link<LINKS>, LINKS> {
        // SAFETY: the caller's promise.
        unsafe { Reading::new().node(link) }
    }
}

impl<const LINKS: usize> Update<LINKS> for Changing<'_> {
    #[inline]
    unsafe fn set_next(&mut self, link: Link<LINKS>, side: usize, change: Change<Link<LINKS>>) -> Result<(), Conflict> {
        // SAFETY: by the caller's promise `link` and the node to which the new link leads are alive.
        unsafe { link.shared().next[side].publish(pointer(change.to)) };
        Ok(())
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<Link<LINKS>, LINKS>) -> Link<LINKS> {
        Shared::boxed(node, ())
    }

    #[inline]
    unsafe fn retire(&mut self, link: Link<LINKS>, _: &Node<Link<LINKS>, LINKS>) -> Result<(), Conflict> {
        self.retired.push(Unlinked::new(link));
        Ok(())
    }

    fn settle(&mut self) {
        self.sections.wait();
    }
}
