//! What a structure needs of a mechanism.
//!
//! Links stay valid inside the section that read them. That is the one thing structures must keep to, so following a link
//! is `unsafe` here; the structures are safe for their users because links never leave an operation.

/// A node: of a list (one link) or a tree (two).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Node<L, const LINKS: usize> {
    pub(crate) key: u64,
    pub(crate) next: [Option<L>; LINKS],
    /// Last, where a search seldom looks.
    pub(crate) value: u64,
}

/// A link from what it was to what it is to be.
#[doc(hidden)]
pub struct Change<L> {
    pub(crate) from: Option<L>,
    pub(crate) to: Option<L>,
}

/// The other transaction was faster: the update is to begin again.
pub struct Conflict;

/// A mechanism that structures of nodes with `LINKS` links are built over. Sealed: its parts are not for use elsewhere.
pub trait Mechanism<const LINKS: usize>: Default + Send + Sync + 'static {
    /// A reference to a node.
    #[doc(hidden)]
    type Link: Copy + Eq + Send + Sync;
    #[doc(hidden)]
    type Session<'m>: Session<LINKS, Link = Self::Link>;

    /// The same mechanism for `scopes` sets of nodes that are updated independently: a hint for mechanisms with locks. The
    /// structure asks for as many as it has, before anything else, so that the two cannot disagree.
    #[doc(hidden)]
    #[must_use]
    fn for_scopes(self, scopes: usize) -> Self;

    /// A node without successors, that is never removed.
    #[doc(hidden)]
    fn root(&self) -> Self::Link;

    #[doc(hidden)]
    fn session(&self) -> Self::Session<'_>;
}

/// A thread's way into a mechanism.
#[doc(hidden)]
pub trait Session<const LINKS: usize> {
    type Link: Copy + Eq;
    type View<'s>: View<LINKS, Link = Self::Link>
    where
        Self: 's;
    type Update<'s>: Update<LINKS, Link = Self::Link>
    where
        Self: 's;

    /// Runs `body` in a read-side section.
    fn read<R>(&mut self, body: impl FnOnce(&Self::View<'_>) -> R) -> R;

    /// As [`read`](Self::read), and what is seen in the given scopes is of one moment. `scopes` rises.
    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Self::View<'_>) -> R) -> R;

    /// Runs `body` in an update that may change the given scopes, until it commits. `scopes` rises.
    fn update<R>(&mut self, scopes: &[usize], body: impl FnMut(&mut Self::Update<'_>) -> Result<R, Conflict>) -> R;

    fn aborts(&self) -> u64;
}

/// Seeing nodes.
#[doc(hidden)]
pub trait View<const LINKS: usize> {
    type Link: Copy + Eq;

    /// The key and one link.
    ///
    /// # Safety
    /// The link is a root, or was read in this section, or made in this update; and it is not used after the section.
    unsafe fn step(&self, link: Self::Link, side: usize) -> (u64, Option<Self::Link>);

    /// The key, and the link to the smaller or greater keys where `key` is.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn toward(&self, link: Self::Link, key: u64) -> (u64, Option<Self::Link>);

    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn node(&self, link: Self::Link) -> Node<Self::Link, LINKS>;
}

/// Changing nodes: all changes become visible at once, or (RCU) in order.
#[doc(hidden)]
pub trait Update<const LINKS: usize>: View<LINKS> {
    /// Changes a link from what the update has read there, which is what it was decided on. Mechanisms whose updates run side
    /// by side compare the two again.
    ///
    /// # Safety
    /// As [`View::step`].
    unsafe fn set_next(&mut self, link: Self::Link, side: usize, change: Change<Self::Link>) -> Result<(), Conflict>;

    /// A new node, to be linked in this update.
    ///
    /// # Safety
    /// The link is not used after this attempt if the attempt fails.
    unsafe fn alloc(&mut self, node: Node<Self::Link, LINKS>) -> Self::Link;

    /// Gives a node up, which the update has read as `node`.
    ///
    /// # Safety
    /// As [`View::step`]; no node that stays has a link to it when the update has committed; once per node.
    unsafe fn retire(&mut self, link: Self::Link, node: &Node<Self::Link, LINKS>) -> Result<(), Conflict>;

    /// Between two changes of which no reader may see the second and not have been able to see the first: waits for
    /// readers, where changes are not visible at once.
    fn settle(&mut self) {}

    /// Whether the update is to change one link that readers see, and to replace nodes whose links it would change beside
    /// that by copies. Then it does not [`settle`](Self::settle): it waits for no reader.
    fn changes_one_link(&self) -> bool {
        false
    }
}
