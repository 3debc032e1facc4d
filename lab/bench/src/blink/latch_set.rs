//! The latches of a page in the code with which McKenzie's thesis begins (§3.2.2).

use archipelago_index::blink::Latch;

/// Two of the three latches of Malbrain's `BtLatchSet`, each of kind `L`: *access intent*, and *read* or *write*. A
/// thread takes access intent, shared, before it waits for the page's content, and releases it when it has the content.
/// So an operation writes two words for each latch that [`Latched`](archipelago_index::blink::Latched) alone takes.
///
/// - The thesis releases the parent's read latch when the thread has access intent to the child. Here the thread waits
///   for the child's content first.
/// - *Node delete*, which access intent excludes, is never taken: RCU frees pages, and the thesis measures no removals.
/// - *Parent modification*, the third latch, is taken by splits only, in the thesis. Here a split takes the parent's
///   latch instead.
pub struct LatchSet<L> {
    access: L,
    content: L,
}

impl<L: Latch> Latch for LatchSet<L> {
    type Read<'a> = L::Read<'a>;
    type Write<'a> = L::Write<'a>;

    fn new() -> Self {
        LatchSet { access: L::new(), content: L::new() }
    }

    fn read(&self) -> Self::Read<'_> {
        let _intent = self.access.read();
        self.content.read()
    }

    fn write(&self) -> Self::Write<'_> {
        let _intent = self.access.read();
        self.content.write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_index::BLinkTree;
    use archipelago_index::blink::{Builder, Central, CohortWp, Latched};

    /// A thread that has the content has released its access intent.
    #[test]
    fn access_intent_ends_when_the_content_is_held() {
        let set = LatchSet::<Central>::new();
        let reader = set.read();
        drop(set.access.write());
        drop((reader, set.read()));
        let writer = set.write();
        drop(set.access.write());
        drop(writer);
    }

    #[test]
    fn a_tree_with_latch_sets_is_a_map() {
        fn fill<L: Latch>() {
            let tree: BLinkTree<u64, u64, Latched<960, LatchSet<L>, true>> = Builder::default().build();
            let map = tree.pin();
            (0..5_000_u64).for_each(|key| assert_eq!(map.insert(key * 7 % 5_000, key), None));
            assert!((0..5_000).all(|key| map.get(&(key * 7 % 5_000)) == Some(key)));
        }
        fill::<Central>();
        fill::<CohortWp>();
    }
}
