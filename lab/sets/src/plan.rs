//! Plans of updates: an update is first decided, and carried out afterwards. A structure's code runs on what readers
//! see, and only records the changes that it wants to make. Then other threads are kept away from the nodes, the nodes
//! are checked again, and the changes are made.
//!
//! The check compares the links that the update changes, and all links of the nodes that the update retires. The
//! structure's code passes each link with the value on which it decided ([`Change::from`], [`Update::retire`]). The
//! plan must not read a link's old value itself: the link may have changed since the structure's code read it, and then
//! the check would compare with a value on which nothing was decided. If two updates must not both take effect, the
//! structures ensure that some node is changed or retired by both (`list.rs`, `tree.rs`).
//!
//! A link may change and later have its old value again. This does no harm if the value is a node: the RCU guard lasts
//! from the structure's code to the check, and keeps the seen nodes from being freed and reused as other nodes. A null
//! link has no node that the guard could protect. But if a link was null, then not, then null again, the keys that
//! belong below it are the same as before, or a wider range (`tree.rs`), so an insertion may still use it.

use archipelago_platform::{touch, touch_mut};

use crate::mechanism::{Change, Conflict, Node, Update, View};
use crate::room::Aside;
use crate::scratch::Scratch;
use crate::shared::{Reading, Shared, SharedLink, pointer};

/// A planned change of a link.
pub(super) struct Write<const LINKS: usize, X: Aside> {
    pub(super) node: *mut Shared<LINKS, X>,
    pub(super) side: usize,
    /// The value on which the update was decided.
    from: *mut Shared<LINKS, X>,
    pub(super) to: *mut Shared<LINKS, X>,
}

/// A node that is to be retired, with the links on which the update was decided.
pub(super) struct Retired<const LINKS: usize, X: Aside> {
    pub(super) node: *mut Shared<LINKS, X>,
    links: [*mut Shared<LINKS, X>; LINKS],
}

/// The changes of an update, in the order in which readers may see them.
pub struct Plan<const LINKS: usize, X: Aside> {
    pub(super) writes: Vec<Write<LINKS, X>>,
    pub(super) retired: Vec<Retired<LINKS, X>>,
    /// New nodes that are not linked yet.
    made: Vec<*mut Shared<LINKS, X>>,
    /// Nodes that are neither changed nor retired, and from which other updates are kept away nevertheless.
    beside: Vec<*mut Shared<LINKS, X>>,
}

impl<const LINKS: usize, X: Aside> Plan<LINKS, X> {
    pub(super) const fn new() -> Self {
        Self { writes: Vec::new(), retired: Vec::new(), made: Vec::new(), beside: Vec::new() }
    }

    /// Returns whether the plan changes and retires nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.retired.is_empty()
    }

    /// Empties the plan after it was carried out, when the new nodes are linked.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.retired.clear();
        self.made.clear();
        self.beside.clear();
    }

    /// Empties the plan. Passes the data of each new node to `show`, and frees the node.
    pub(super) fn discard(&mut self, mut show: impl FnMut(&X)) {
        for node in &self.made {
            // SAFETY: the node is from `Shared::boxed`, and was never linked.
            let node = unsafe { Box::from_raw(*node) };
            show(&node.beside);
        }
        self.clear();
    }

    /// Returns the existing nodes that the update changes or retires, and those that are kept beside them, possibly
    /// more than once.
    pub(super) fn nodes(&self) -> impl Iterator<Item = *mut Shared<LINKS, X>> {
        let (changed, retired) = (self.writes.iter().map(|write| write.node), self.retired.iter());
        changed.chain(retired.map(|retired| retired.node)).chain(self.beside.iter().copied())
    }

    /// Returns whether `holds` returns true for every link on which the update was decided; stops at the first false.
    /// `holds` gets the node, the side, and the value that was seen.
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

    /// Returns a link as it would be after the changes that are planned so far.
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
        touch(self.writes.as_ptr(), size_of_val(&self.writes[..]));
        self.writes.iter().position(|write| write.node == node && write.side == side)
    }
}

/// The way in which a decided update is carried out.
#[doc(hidden)]
pub trait Commit: Default + Send + Sync + 'static {
    /// The mechanism's data in each node.
    type Beside: Aside;

    /// The state of an update from before it is decided until it is done.
    type Turn<'c>;

    /// True if an update also excludes other updates of its nodes' successors ([`Update::beside`]).
    const SUCCESSORS: bool = false;

    /// Returns the mechanism, prepared for a structure with this number of scopes. A scope is a set of nodes that is
    /// updated independently of others, such as a bucket.
    fn for_scopes(self, _: usize) -> Self {
        self
    }

    fn beside(&self) -> Self::Beside;

    /// Called with the data of a node that has left the structure, or was never in it.
    fn gone(&self, beside: &Self::Beside);

    /// Called outside of the RCU guard, before an update of these scopes is decided. The update has failed `failed`
    /// times before.
    fn turn<'c>(&'c self, scopes: &'c [usize], failed: u64) -> Self::Turn<'c>;

    /// Tries to carry the plan out. Succeeds only if everything on which the plan was decided still holds. May also
    /// fail for other reasons (a lock that is held, an aborted transaction). Returns whether it succeeded. The caller
    /// is in the guard in which the plan was made.
    fn commit<const LINKS: usize>(
        &self,
        plan: &Plan<LINKS, Self::Beside>,
        scratch: &mut Scratch,
        turn: &Self::Turn<'_>,
    ) -> bool;
}

/// An update while it is being decided.
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
            // SAFETY: by the caller's promise `node` and `to` are alive. `node` is new, so no other thread knows it.
            unsafe { (&*node).next[side].publish(to) };
            return Ok(());
        }
        let at = plan.pending(node, side).unwrap_or_else(|| {
            // A further change of the link keeps this value, on which the update was decided.
            plan.writes.push(Write { node, side, from, to });
            plan.writes.len() - 1
        });
        touch_mut(&raw const plan.writes[at], size_of::<Write<LINKS, C::Beside>>());
        plan.writes[at].to = to;
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
            // If this update changed a link earlier, the structure's code saw the planned value. The check compares
            // with the value before the update.
            plan.pending(retired, side).map_or_else(|| pointer(node.next[side]), |at| plan.writes[at].from)
        });
        plan.retired.push(Retired { node: retired, links });
        plan.retired.last().into_iter().for_each(|last| touch_mut(last, size_of::<Retired<LINKS, C::Beside>>()));
        Ok(())
    }

    #[inline]
    unsafe fn beside(&mut self, link: Self::Link) {
        // No other thread knows a new node.
        if C::SUCCESSORS && !self.plan.made.contains(&link.0.as_ptr()) {
            self.plan.beside.push(link.0.as_ptr());
        }
    }

    fn changes_one_link(&self) -> bool {
        true
    }
}
