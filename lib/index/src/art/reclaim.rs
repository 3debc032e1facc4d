//! Retiring nodes and leaves, and freeing a whole tree.

use super::edge::Edge;
use super::leaf::Leaf;
use super::node::Node;
use super::target::Target;
use crate::structure::Form;
use archipelago_sync::rcu::Guard;

/// Retires `node` (but not its children): it is freed once no reader can access it. The caller has unlinked it and
/// marked it obsolete.
pub(super) fn retire_node(node: Node<'_>, guard: &Guard<'_>) {
    fn free(raw: *mut (), _: *mut ()) {
        // SAFETY: made by `Node::create`; unlinked before it was retired, and the grace period is over.
        unsafe { Node::from_edge(Edge::from_raw(raw)).free() };
    }
    // SAFETY: the node is unlinked, so only readers that entered before can still use it. It is retired once, by the
    // thread that made it obsolete under its lock. `free` may run on any thread.
    unsafe { guard.retire_sized(node.edge().into_raw(), node.bytes(), core::ptr::null_mut(), free) };
}

/// Retires `leaf` (but not the memory to which its word leads): it is freed once no reader can access it. The caller
/// has unlinked it.
pub(super) fn retire_leaf<F: Form>(leaf: Leaf<'_, F>, guard: &Guard<'_>) {
    fn free<F: Form>(raw: *mut (), _: *mut ()) {
        // SAFETY: made by `Leaf::create` for `F`; unlinked before it was retired, and the grace period is over.
        let Target::Leaf(leaf) = (unsafe { Edge::from_raw(raw).target::<F>() }) else { unreachable!("not a leaf") };
        // SAFETY: as above.
        unsafe { leaf.free() };
    }
    // SAFETY: the leaf is unlinked, so only readers that entered before can still use it. It is retired once, by the
    // thread that removed it under the lock of its node. `free` may run on any thread.
    unsafe { guard.retire_sized(leaf.edge().into_raw(), leaf.bytes(), core::ptr::null_mut(), free::<F>) };
}

/// Frees `root` and everything below it, but not the memory to which words lead.
///
/// # Safety
/// No other thread may use the tree, now or later.
pub(super) unsafe fn free_tree<F: Form>(root: Node<'_>) {
    // An explicit stack, since a tree of long keys may be too deep for recursion on the thread's stack.
    let mut nodes = vec![root];
    while let Some(node) = nodes.pop() {
        for (_, edge) in node.entries() {
            // SAFETY: the tree is owned, and what it holds is not freed before it is visited.
            match unsafe { edge.target::<F>() } {
                Target::Nothing => {}
                Target::Node(child) => nodes.push(child),
                // SAFETY: the tree is owned and each leaf is held once.
                Target::Leaf(leaf) => unsafe { leaf.free() },
            }
        }
        // SAFETY: the tree is owned and each node is held once.
        unsafe { node.free() };
    }
}
