//! Structures over RCU as papers compare with it: a counter for each thread, spin locks, and a grace period in each update that takes
//! a node out, which its thread waits for before it frees the node.

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{self, RawTtas};

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// Structures over RCU whose updates wait for readers and free what they took out: after Matveev et al., *RLU* (SOSP'15), whose
/// benchmark the papers use. One lock per scope: a list or tree has one, a hash table one per bucket.
#[derive(Default)]
pub struct SynchronousRcu {
    locks: Box<[lock::Mutex<RawTtas, ()>]>,
    sections: Sections,
}

/// Sessions at a time, at most.
const SESSIONS: usize = if cfg!(loom) { 3 } else { 1024 };

/// A counter for each session, odd while the session reads.
struct Sections {
    /// On no line of what changes: each section reads where the counters are.
    counters: CachePadded<Box<[CachePadded<AtomicU64>]>>,
    /// Counters from here on were never used.
    used: AtomicUsize,
    /// Those of sessions that have ended.
    free: Mutex<Vec<usize>>,
}

impl Default for Sections {
    fn default() -> Self {
        let counters = (0..SESSIONS).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { counters: CachePadded::new(counters), used: AtomicUsize::new(0), free: Mutex::default() }
    }
}

impl Sections {
    /// # Panics
    /// If there are [`SESSIONS`] already.
    fn take(&self) -> usize {
        if let Some(ended) = self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop() {
            return ended;
        }
        let new = self.used.fetch_add(1, Ordering::Relaxed);
        assert!(new < SESSIONS, "no more than {SESSIONS} sessions at a time");
        new
    }

    fn give(&self, counter: usize) {
        self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(counter);
    }

    /// The fence orders the counter before what is read in the section; it pairs with that of [`synchronize`](Self::synchronize), so
    /// either the section is seen there, or the section sees what was unlinked before.
    #[inline]
    fn enter(&self, counter: usize) {
        let counter = &self.counters[counter];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Release: what the section has read comes before what [`synchronize`](Self::synchronize) lets its caller free.
    #[inline]
    fn leave(&self, counter: usize) {
        let counter = &self.counters[counter];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Waits until all sections that are open now have ended. The caller has none. A session that begins later than `used` is read
    /// here sees what was unlinked: taking its counter, or the fence in its first section, comes after.
    fn synchronize(&self) {
        fence(Ordering::SeqCst);
        for counter in &self.counters[..self.used.load(Ordering::Relaxed).min(SESSIONS)] {
            let seen = counter.load(Ordering::Acquire);
            let backoff = Backoff::new();
            while seen % 2 == 1 && counter.load(Ordering::Acquire) == seen {
                backoff.wait();
            }
        }
        fence(Ordering::Acquire);
    }
}

type Link<const LINKS: usize> = SharedLink<LINKS, ()>;

impl<const LINKS: usize> Mechanism<LINKS> for SynchronousRcu {
    type Link = Link<LINKS>;
    type Session<'m> = SynchronousSession<'m>;

    fn for_scopes(self, scopes: usize) -> Self {
        // The model world has no constant locks.
        let lock = |_| lock::Mutex::from_raw(RawTtas::default(), ());
        Self { locks: (0..scopes).map(lock).collect(), ..self }
    }

    fn root(&self) -> Link<LINKS> {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 }, ())
    }

    fn session(&self) -> SynchronousSession<'_> {
        SynchronousSession { over: self, counter: self.sections.take() }
    }
}

#[doc(hidden)]
pub struct SynchronousSession<'m> {
    over: &'m SynchronousRcu,
    counter: usize,
}

impl Drop for SynchronousSession<'_> {
    fn drop(&mut self) {
        self.over.sections.give(self.counter);
    }
}

/// An open section.
struct Section<'s>(&'s Sections, usize);

impl Drop for Section<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

impl SynchronousSession<'_> {
    fn section(&self) -> Section<'_> {
        self.over.sections.enter(self.counter);
        Section(&self.over.sections, self.counter)
    }

    /// Runs `body` with all the scopes' locks held, which are taken in rising order, so threads do not wait in a circle.
    #[inline]
    fn locked<R>(&self, scopes: &[usize], body: impl FnOnce() -> R) -> R {
        let locks = &self.over.locks;
        if let [one] = scopes {
            let _lock = locks[*one].lock();
            return body();
        }
        debug_assert!(scopes.is_sorted_by(|a, b| a < b));
        let _locks: Vec<_> = scopes.iter().map(|scope| locks[*scope].lock()).collect();
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
        = Changing<'s, LINKS>
    where
        Self: 's;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&Reading<()>) -> R) -> R {
        let _section = self.section();
        body(&Reading::new())
    }

    /// Without a section: what the locks' scopes have in them is unlinked only by their holder.
    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Reading<()>) -> R) -> R {
        self.locked(scopes, || body(&Reading::new()))
    }

    /// Without a section, as [`read_at_once`](Self::read_at_once).
    #[inline]
    fn update<R>(
        &mut self,
        scopes: &[usize],
        mut body: impl FnMut(&mut Changing<'_, LINKS>) -> Result<R, Conflict>,
    ) -> R {
        let mut changing = Changing { sections: &self.over.sections, retired: Vec::new() };
        let result = self.locked(scopes, || body(&mut changing));
        let Ok(result) = result else { unreachable!("nothing conflicts under the locks") };
        if !changing.retired.is_empty() {
            self.over.sections.synchronize();
            // SAFETY: from `Shared::boxed`, once per node; it is unlinked, no section that could have seen it is open, and updates
            // of its scope have seen the link change.
            changing.retired.iter().for_each(|node| drop(unsafe { Box::from_raw(node.0.as_ptr()) }));
        }
        result
    }

    fn aborts(&self) -> u64 {
        0
    }
}

/// An update, with the locks held.
#[doc(hidden)]
pub struct Changing<'s, const LINKS: usize> {
    sections: &'s Sections,
    retired: Vec<Link<LINKS>>,
}

impl<const LINKS: usize> View<LINKS> for Changing<'_, LINKS> {
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

impl<const LINKS: usize> Update<LINKS> for Changing<'_, LINKS> {
    #[inline]
    unsafe fn set_next(&mut self, link: Link<LINKS>, side: usize, change: Change<Link<LINKS>>) -> Result<(), Conflict> {
        // SAFETY: the caller's promise, for both nodes.
        unsafe { link.shared().next[side].publish(pointer(change.to)) };
        Ok(())
    }

    #[inline]
    unsafe fn alloc(&mut self, node: Node<Link<LINKS>, LINKS>) -> Link<LINKS> {
        Shared::boxed(node, ())
    }

    #[inline]
    unsafe fn retire(&mut self, link: Link<LINKS>, _: &Node<Link<LINKS>, LINKS>) -> Result<(), Conflict> {
        self.retired.push(link);
        Ok(())
    }

    fn settle(&mut self) {
        self.sections.synchronize();
    }
}
