//! Updates that are decided first and happen afterwards: a structure's text runs against what readers see and only notes what
//! it would change. Then the nodes are kept from others, looked at again, and changed.
//!
//! What is looked at again are the links of the nodes that the update changes or retires, as the text read them; if it read one
//! twice, both times the same. The structures see to it that of two updates that would be wrong together both change or
//! retire some node (`list.rs`, `tree.rs`).
//! A link that has its value again has it again for every thread: the guard, which lasts from the text to the second look,
//! keeps the nodes that were seen from being freed and coming back as others; of a null that comes back the Citrus tree's
//! argument (`citrus.rs`) disposes, which is about the same tree.

use core::cell::RefCell;

use archipelago_platform::{touch, touch_mut};

use crate::mechanism::{Conflict, Node, Update, View};
use crate::optimistic::Commit;
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// What an update's text has read, last things last.
struct Seen<const LINKS: usize, X> {
    node: *mut Shared<LINKS, X>,
    side: usize,
    to: *mut Shared<LINKS, X>,
}

/// A link to be changed.
pub(super) struct Write<const LINKS: usize, X> {
    pub(super) node: *mut Shared<LINKS, X>,
    pub(super) side: usize,
    /// What the text saw there; `None` for a link that this update changes before.
    seen: Option<*mut Shared<LINKS, X>>,
    pub(super) to: *mut Shared<LINKS, X>,
    /// Only after all readers have left that might not see what was changed before.
    pub(super) settled: bool,
}

/// A node to be retired, with its links as the text saw them.
pub(super) struct Retired<const LINKS: usize, X> {
    pub(super) node: *mut Shared<LINKS, X>,
    seen: [*mut Shared<LINKS, X>; LINKS],
}

/// What an update would do.
pub struct Plan<const LINKS: usize, X> {
    seen: Vec<Seen<LINKS, X>>,
    pub(super) writes: Vec<Write<LINKS, X>>,
    pub(super) retired: Vec<Retired<LINKS, X>>,
    /// Not linked yet.
    made: Vec<*mut Shared<LINKS, X>>,
    /// Where in `writes` the last wait for readers is.
    settle: usize,
}

/// A list's text changes what it read last, so no more is remembered there.
const LAST: usize = 8;

impl<const LINKS: usize, X> Plan<LINKS, X> {
    pub(super) const fn new() -> Self {
        Self { seen: Vec::new(), writes: Vec::new(), retired: Vec::new(), made: Vec::new(), settle: 0 }
    }

    /// Whether nothing is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.retired.is_empty()
    }

    /// Forgets everything; what was made is linked by now.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.writes.clear();
        self.retired.clear();
        self.made.clear();
        self.settle = 0;
    }

    /// Forgets everything; frees what was made, after it was shown.
    pub(super) fn discard(&mut self, mut show: impl FnMut(&X)) {
        for node in &self.made {
            // SAFETY: from `Shared::boxed`, and never linked.
            let node = unsafe { Box::from_raw(*node) };
            show(&node.beside);
        }
        self.clear();
    }

    /// The nodes that others have, and this update changes or retires; maybe more than once.
    pub(super) fn nodes(&self) -> impl Iterator<Item = *mut Shared<LINKS, X>> {
        self.writes.iter().map(|write| write.node).chain(self.retired.iter().map(|retired| retired.node))
    }

    /// Every link on which the update was decided: node, side, and what was seen there.
    #[inline]
    pub(super) fn each_seen(
        &self,
        mut holds: impl FnMut(*mut Shared<LINKS, X>, usize, *mut Shared<LINKS, X>) -> bool,
    ) -> bool {
        self.writes.iter().all(|write| write.seen.is_none_or(|seen| holds(write.node, write.side, seen)))
            && self
                .retired
                .iter()
                .all(|retired| retired.seen.iter().enumerate().all(|(side, seen)| holds(retired.node, side, *seen)))
    }

    #[inline]
    fn note(&mut self, node: *mut Shared<LINKS, X>, side: usize, to: *mut Shared<LINKS, X>) {
        if LINKS == 1 && self.seen.len() == 2 * LAST {
            self.seen.drain(..LAST);
        }
        self.seen.push(Seen { node, side, to });
        self.seen.last().into_iter().for_each(|last| touch_mut(last, size_of::<Seen<LINKS, X>>()));
    }

    /// What the text saw there; what is there now, if it has not looked.
    ///
    /// # Errors
    /// If it has looked more than once and saw different things: it may have decided one thing on the first and another on
    /// the second, and a look at the end would justify one of them only.
    ///
    /// # Safety
    /// As [`View::step`].
    unsafe fn seen(&self, node: *mut Shared<LINKS, X>, side: usize) -> Result<*mut Shared<LINKS, X>, Conflict> {
        touch(self.seen.as_ptr(), size_of_val(&*self.seen));
        let mut looks = self.seen.iter().filter(|seen| seen.node == node && seen.side == side).map(|seen| seen.to);
        // SAFETY: the caller's promise.
        let Some(first) = looks.next() else { return Ok(unsafe { &*node }.next[side].load()) };
        if looks.all(|another| another == first) { Ok(first) } else { Err(Conflict) }
    }

    /// A link as it would be after the update.
    ///
    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn next(&mut self, link: SharedLink<LINKS, X>, side: usize) -> Option<SharedLink<LINKS, X>> {
        let node = link.0.as_ptr();
        // SAFETY: the caller's promise.
        let to = unsafe { &*node }.next[side].load();
        self.note(node, side, to);
        let to = if self.writes.is_empty() { to } else { self.pending(node, side).map_or(to, |at| self.writes[at].to) };
        core::ptr::NonNull::new(to).map(SharedLink)
    }

    fn pending(&self, node: *mut Shared<LINKS, X>, side: usize) -> Option<usize> {
        self.writes.iter().rposition(|write| write.node == node && write.side == side)
    }
}

/// An update while it is decided on.
#[doc(hidden)]
pub struct Planning<'p, const LINKS: usize, C: Commit> {
    plan: RefCell<&'p mut Plan<LINKS, C::Beside>>,
    commit: &'p C,
}

impl<'p, const LINKS: usize, C: Commit> Planning<'p, LINKS, C> {
    pub(super) fn new(plan: &'p mut Plan<LINKS, C::Beside>, commit: &'p C) -> Self {
        Self { plan: RefCell::new(plan), commit }
    }
}

impl<const LINKS: usize, C: Commit> View<LINKS> for Planning<'_, LINKS, C> {
    type Link = SharedLink<LINKS, C::Beside>;

    #[inline]
    unsafe fn step(&self, link: Self::Link, side: usize) -> (u64, Option<Self::Link>) {
        // SAFETY: the caller's promise.
        unsafe { (*link.shared().key, self.plan.borrow_mut().next(link, side)) }
    }

    #[inline]
    unsafe fn toward(&self, link: Self::Link, key: u64) -> (u64, Option<Self::Link>) {
        // SAFETY: the caller's promise.
        unsafe {
            let here = *link.shared().key;
            (here, self.plan.borrow_mut().next(link, usize::from(key > here)))
        }
    }

    #[inline]
    unsafe fn node(&self, link: Self::Link) -> Node<Self::Link, LINKS> {
        // SAFETY: the caller's promise.
        unsafe {
            let next = core::array::from_fn(|side| self.plan.borrow_mut().next(link, side));
            Node { next, ..Reading::new().node(link) }
        }
    }
}

impl<const LINKS: usize, C: Commit> Update<LINKS> for Planning<'_, LINKS, C> {
    unsafe fn set_next(&mut self, link: Self::Link, side: usize, to: Option<Self::Link>) -> Result<(), Conflict> {
        let (plan, node, to) = (self.plan.get_mut(), link.0.as_ptr(), pointer(to));
        if plan.made.contains(&node) {
            // SAFETY: the caller's promise, for both nodes. No other thread knows the first.
            unsafe { (&*node).next[side].publish(to) };
            return Ok(());
        }
        let before = plan.pending(node, side);
        match before.filter(|at| *at >= plan.settle) {
            Some(at) => plan.writes[at].to = to,
            None => {
                // SAFETY: the caller's promise.
                let seen = if before.is_none() { Some(unsafe { plan.seen(node, side) }?) } else { None };
                let settled = plan.settle > 0 && plan.settle == plan.writes.len();
                plan.writes.push(Write { node, side, seen, to, settled });
            }
        }
        Ok(())
    }

    unsafe fn alloc(&mut self, node: Node<Self::Link, LINKS>) -> Self::Link {
        let link = Shared::boxed(node, self.commit.beside());
        self.plan.get_mut().made.push(link.0.as_ptr());
        link
    }

    unsafe fn retire(&mut self, link: Self::Link) -> Result<(), Conflict> {
        let (plan, node) = (self.plan.get_mut(), link.0.as_ptr());
        let mut seen = [core::ptr::null_mut(); LINKS];
        for (side, seen) in seen.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *seen = unsafe { plan.seen(node, side)? };
        }
        plan.retired.push(Retired { node, seen });
        Ok(())
    }

    fn settle(&mut self) {
        let plan = self.plan.get_mut();
        plan.settle = plan.writes.len();
    }

    fn changes_one_link(&self) -> bool {
        C::ONE_LINK
    }
}
