//! Structures over RCU in the form with which papers compare: a counter for each session (`sections.rs`), spin locks,
//! and grace periods inside updates. A thread that removes a node waits for a grace period before it frees the node.

use archipelago_sync::lock::{self, RawTtas};

use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::sections::{Place, Sections};
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// Structures over RCU whose updates wait for readers and then free the removed nodes, after Matveev et al., *RLU*
/// (SOSP'15), whose benchmark the papers use. There is one lock per scope: a list or tree has one scope, a hash table
/// has one per bucket.
#[derive(Default)]
pub struct SynchronousRcu {
    locks: Box<[lock::Mutex<RawTtas, ()>]>,
    sections: Sections,
}

type Link<const LINKS: usize> = SharedLink<LINKS, ()>;

impl<const LINKS: usize> Mechanism<LINKS> for SynchronousRcu {
    type Link = Link<LINKS>;
    type Session<'m> = SynchronousSession<'m>;

    fn for_scopes(self, scopes: usize) -> Self {
        // Under loom, locks cannot be made in constants.
        let lock = |_| lock::Mutex::from_raw(RawTtas::default(), ());
        Self { locks: (0..scopes).map(lock).collect(), ..self }
    }

    fn root(&self) -> Link<LINKS> {
        Shared::boxed(Node { key: 0, next: [None; LINKS], value: 0 }, ())
    }

    fn session(&self) -> SynchronousSession<'_> {
        SynchronousSession { over: self, place: self.sections.place() }
    }
}

#[doc(hidden)]
pub struct SynchronousSession<'m> {
    over: &'m SynchronousRcu,
    place: Place<'m>,
}

impl SynchronousSession<'_> {
    /// Runs `body` with the locks of all the scopes held. The locks are taken in ascending order, so threads cannot
    /// deadlock.
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
        let _section = self.place.enter();
        body(&Reading::new())
    }

    /// Runs without a section: nodes of a scope are unlinked only by the holder of the scope's lock.
    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Reading<()>) -> R) -> R {
        self.locked(scopes, || body(&Reading::new()))
    }

    /// Runs without a section, as [`read_at_once`](Self::read_at_once).
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
            self.over.sections.wait();
            // SAFETY: the node is from `Shared::boxed`, and is freed once. It is unlinked, no section that could have
            // seen it is open, and updates of its scope have seen the link change.
            changing.retired.iter().for_each(|node| drop(unsafe { Box::from_raw(node.0.as_ptr()) }));
        }
        result
    }

    fn aborts(&self) -> u64 {
        0
    }
}

/// An update, which holds the locks.
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
        self.retired.push(link);
        Ok(())
    }

    fn settle(&mut self) {
        self.sections.wait();
    }
}
