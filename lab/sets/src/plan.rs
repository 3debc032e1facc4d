//! Updates that are decided first and happen afterwards: a structure's text runs against what readers see and only notes what
//! it would change. Then the nodes are kept from others, looked at again, and changed.
//!
//! What is looked at again are the links of the nodes that the update changes or retires. The text names each as it was when
//! it decided on it ([`Change::from`], [`Update::retire`]): were they read again here, a text that has read one twice and seen two
//! things would be held to one of them only. The structures see to it that of two updates that would be wrong together
//! both change or retire some node (`list.rs`, `tree.rs`).
//! A link that has its value again has it again for every thread: the guard, which lasts from the text to the second look,
//! keeps the nodes that were seen from being freed and coming back as others. A null that comes back stands for the same keys,
//! or more (`tree.rs`).

use archipelago_platform::{touch, touch_mut};

use crate::mechanism::{Change, Conflict, Node, Update, View};
use crate::scratch::Scratch;
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// A link to be changed.
pub(super) struct Write<const LINKS: usize, X> {
    pub(super) node: *mut Shared<LINKS, X>,
    pub(super) side: usize,
    /// What the text was decided on.
    from: *mut Shared<LINKS, X>,
    pub(super) to: *mut Shared<LINKS, X>,
}

/// A node to be retired, with the links that the text was decided on.
pub(super) struct Retired<const LINKS: usize, X> {
    pub(super) node: *mut Shared<LINKS, X>,
    links: [*mut Shared<LINKS, X>; LINKS],
}

/// What an update would do, in the order in which readers may see it happen.
pub struct Plan<const LINKS: usize, X> {
    pub(super) writes: Vec<Write<LINKS, X>>,
    pub(super) retired: Vec<Retired<LINKS, X>>,
    /// Not linked yet.
    made: Vec<*mut Shared<LINKS, X>>,
}

impl<const LINKS: usize, X> Plan<LINKS, X> {
    pub(super) const fn new() -> Self {
        Self { writes: Vec::new(), retired: Vec::new(), made: Vec::new() }
    }

    /// Whether nothing is to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.retired.is_empty()
    }

    /// Forgets everything; what was made is linked by now.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.retired.clear();
        self.made.clear();
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
        touch(self.retired.as_ptr(), size_of_val(&*self.retired));
        self.writes.iter().all(|write| holds(write.node, write.side, write.from))
            && self
                .retired
                .iter()
                .all(|retired| retired.links.iter().enumerate().all(|(side, seen)| holds(retired.node, side, *seen)))
    }

    /// A link as it would be after the update.
    ///
    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn next(&self, link: SharedLink<LINKS, X>, side: usize) -> Option<SharedLink<LINKS, X>> {
        let node = link.0.as_ptr();
        // SAFETY: the caller's promise.
        let to = unsafe { &*node }.next[side].load();
        let to = if self.writes.is_empty() { to } else { self.pending(node, side).map_or(to, |at| self.writes[at].to) };
        core::ptr::NonNull::new(to).map(SharedLink)
    }

    fn pending(&self, node: *mut Shared<LINKS, X>, side: usize) -> Option<usize> {
        self.writes.iter().position(|write| write.node == node && write.side == side)
    }
}

/// How a decided update happens.
#[doc(hidden)]
pub trait Commit: Default + Send + Sync + 'static {
    /// What lies beside each node.
    type Beside: Send + Sync;

    /// What an update has from before it is decided until it is done.
    type Turn<'c>;

    /// Returns the mechanism with the state that a structure of this number of scopes needs.
    fn for_scopes(self, _: usize) -> Self {
        self
    }

    fn beside(&self) -> Self::Beside;

    /// A node with this beside it has left the structure, or was never in it.
    fn gone(&self, beside: &Self::Beside);

    /// Outside of the guard, before an update of these scopes is decided that `failed` so often.
    fn turn<'c>(&'c self, scopes: &'c [usize], failed: u64) -> Self::Turn<'c>;

    /// Does what is planned, if all that it was decided on still holds; whether it did. In the guard in which the plan was
    /// made.
    fn commit<const LINKS: usize>(
        &self,
        plan: &Plan<LINKS, Self::Beside>,
        scratch: &mut Scratch,
        turn: &Self::Turn<'_>,
    ) -> bool;
}

/// An update while it is decided on.
#[doc(hidden)]
pub struct Planning<'p, const LINKS: usize, C: Commit> {
    plan: &'p mut Plan<LINKS, C::Beside>,
    commit: &'p C,
}

impl<'p, const LINKS: usize, C: Commit> Planning<'p, LINKS, C> {
    pub(super) fn new(plan: &'p mut Plan<LINKS, C::Beside>, commit: &'p C) -> Self {
        Self { plan, commit }
    }
}

impl<const LINKS: usize, C: Commit> View<LINKS> for Planning<'_, LINKS, C> {
    type Link = SharedLink<LINKS, C::Beside>;

    #[inline]
    unsafe fn step(&self, link: Self::Link, side: usize) -> (u64, Option<Self::Link>) {
        // SAFETY: the caller's promise.
        unsafe { (*link.shared().key, self.plan.next(link, side)) }
    }

    #[inline]
    unsafe fn toward(&self, link: Self::Link, key: u64) -> (u64, Option<Self::Link>) {
        // SAFETY: the caller's promise.
        unsafe {
            let here = *link.shared().key;
            (here, self.plan.next(link, usize::from(key > here)))
        }
    }

    #[inline]
    unsafe fn node(&self, link: Self::Link) -> Node<Self::Link, LINKS> {
        // SAFETY: the caller's promise.
        unsafe {
            let next = core::array::from_fn(|side| self.plan.next(link, side));
            Node { next, ..Reading::new().node(link) }
        }
    }
}

impl<const LINKS: usize, C: Commit> Update<LINKS> for Planning<'_, LINKS, C> {
    unsafe fn set_next(&mut self, link: Self::Link, side: usize, change: Change<Self::Link>) -> Result<(), Conflict> {
        let (plan, node) = (&mut *self.plan, link.0.as_ptr());
        let (from, to) = (pointer(change.from), pointer(change.to));
        if plan.made.contains(&node) {
            // SAFETY: the caller's promise, for both nodes. No other thread knows the first.
            unsafe { (&*node).next[side].publish(to) };
            return Ok(());
        }
        match plan.pending(node, side) {
            // What the update was decided on is what was there before its first change.
            Some(at) => plan.writes[at].to = to,
            None => plan.writes.push(Write { node, side, from, to }),
        }
        Ok(())
    }

    unsafe fn alloc(&mut self, node: Node<Self::Link, LINKS>) -> Self::Link {
        let link = Shared::boxed(node, self.commit.beside());
        self.plan.made.push(link.0.as_ptr());
        link
    }

    unsafe fn retire(&mut self, link: Self::Link, node: &Node<Self::Link, LINKS>) -> Result<(), Conflict> {
        let (plan, retired) = (&mut *self.plan, link.0.as_ptr());
        let links = core::array::from_fn(|side| {
            // A link that this update changes before was seen as it is to be.
            plan.pending(retired, side).map_or_else(|| pointer(node.next[side]), |at| plan.writes[at].from)
        });
        plan.retired.push(Retired { node: retired, links });
        plan.retired.last().into_iter().for_each(|last| touch_mut(last, size_of::<Retired<LINKS, C::Beside>>()));
        Ok(())
    }

    fn changes_one_link(&self) -> bool {
        true
    }
}
