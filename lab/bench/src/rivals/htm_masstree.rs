//! The HTM-Masstree of Eunomia's authors: each operation of a [`Masstree`](super::masstree::Masstree) is one hardware
//! transaction, an update is two or more, and a scan is one for every 128 entries. Keys are `u64`.
//!
//! As in the paper, the transactions subsume the nodes' locks: a transaction reads a border node's writers' lock, and
//! does not take it. Everything else that the tree's threads share is as in the tree with locks. Readers read each
//! node's version before and after, and splits and removals change the version.
//!
//! # Invariants
//! - Those of [`Masstree`](super::masstree::Masstree). Keys of eight bytes have one layer, whose border nodes' slots
//!   are keys of full length. No block is freed before the tree is.
//! - Transactions allocate nothing. A session keeps spare nodes. A transaction returns how many of them it used, or that
//!   it lacked some; what it split until then stays split.

use core::cell::{Cell, RefCell};

use archipelago_index::map::When;
use archipelago_index::{OrderedIndex, OrderedSession};

use super::elided::{Elided, Place};
use super::indexes::stores;
use super::masstree::node::{Node, Order, Part, Retry, SLICE, WIDTH, pointer};
use super::masstree::{Met, Nodes, border, border_with_room, changing, check, clear, split_border};
use crate::contender::BenchIndex;

/// A map from `u64` to `u64`.
pub struct HtmMasstree {
    root: Box<Node>,
    lock: Elided,
}

/// A thread's access to the tree.
pub struct Session<'t> {
    tree: &'t HtmMasstree,
    spares: RefCell<Vec<*mut Node>>,
}

/// The spare nodes of one run of a transaction.
struct Spares<'s> {
    nodes: &'s [*mut Node],
    used: Cell<usize>,
    lacking: Cell<bool>,
}

/// The result of a transaction that inserts.
struct Stored {
    /// The value replaced; or, as an error, that spare nodes are missing.
    old: Result<Option<u64>, Lacking>,
    /// How many spare nodes it used, from the first on.
    used: usize,
}

/// A session has too few spare nodes.
#[derive(Debug)]
struct Lacking;

impl Nodes for Spares<'_> {
    fn take<const N: usize>(&self) -> Result<[&Node; N], Retry> {
        let from = self.used.get();
        let Some(nodes) = self.nodes.get(from..from + N) else {
            self.lacking.set(true);
            return Err(Retry);
        };
        self.used.set(from + N);
        // SAFETY: a spare node belongs to the session alone.
        Ok(core::array::from_fn(|at| unsafe { &*nodes[at] }))
    }
}

fn part(key: u64) -> Part {
    Part { slice: key, rank: SLICE as u64 }
}

/// In a transaction: repeats an attempt that has split a node.
fn until_done<R>(mut attempt: impl FnMut() -> Result<R, Retry>) -> R {
    loop {
        if let Ok(done) = attempt() {
            return done;
        }
    }
}

/// In a transaction: returns a border node's order, for a change. The node's lock is free, since no transaction takes
/// it; reading it is what remains of taking it.
fn unlocked(met: Met<'_>) -> Result<Order, Retry> {
    let alive = met.node.writer.read_unlocked().is_some();
    debug_assert!(alive, "no node leaves the tree");
    met.validate()?;
    Ok(met.node.order())
}

impl Default for HtmMasstree {
    fn default() -> Self {
        HtmMasstree { root: Node::new(0), lock: Elided::default() }
    }
}

impl HtmMasstree {
    fn look(&self, key: u64) -> Option<u64> {
        until_done(|| {
            let met = border(&self.root, key)?;
            let order = met.node.order();
            let found = met.node.find(order, part(key)).ok().map(|at| met.node.value(order.slot(at)));
            met.validate().map(|()| found)
        })
    }

    /// In a transaction: runs `change` with the key's border node, its order and the position of the key's slot, and
    /// returns the slot's old value.
    fn change(&self, key: u64, mut change: impl FnMut(&Node, Order, usize)) -> Option<u64> {
        until_done(|| {
            let met = border(&self.root, key)?;
            let order = unlocked(met)?;
            let Ok(at) = met.node.find(order, part(key)) else { return Ok(None) };
            let old = met.node.value(order.slot(at));
            change(met.node, order, at);
            Ok(Some(old))
        })
    }

    /// In a transaction: stores the value if `when` permits.
    fn store(&self, key: u64, value: u64, when: When, spares: &[*mut Node]) -> Stored {
        let nodes = Spares { nodes: spares, used: Cell::new(0), lacking: Cell::new(false) };
        let old = until_done(|| match self.try_store(key, value, when, &nodes) {
            Err(Retry) if nodes.lacking.get() => Ok(Err(Lacking)),
            old => old.map(Ok),
        });
        Stored { old, used: nodes.used.get() }
    }

    fn try_store(&self, key: u64, value: u64, when: When, nodes: &Spares<'_>) -> Result<Option<u64>, Retry> {
        let (met, above) = border_with_room(&self.root, key, nodes)?;
        let (node, order) = (met.node, unlocked(met)?);
        match node.find(order, part(key)) {
            Ok(at) => {
                let slot = order.slot(at);
                let old = Some(node.value(slot));
                if stores(when, old) {
                    node.set_value(slot, value);
                }
                return Ok(old);
            }
            Err(_) if !stores(when, None) => {}
            Err(at) if order.count() < WIDTH => node.put(at, part(key), value, 0),
            Err(_) => {
                split_border(met, above, nodes)?;
                return Err(Retry);
            }
        }
        Ok(None)
    }

    /// In a transaction: copies entries from `from` on, as many as `to` has room for. Returns how many it copied.
    fn copy(&self, from: u64, to: &[Place]) -> usize {
        until_done(|| {
            let (mut met, mut copied) = (border(&self.root, from)?, 0);
            loop {
                let order = met.node.order();
                let slots = (0..order.count()).map(|at| order.slot(at)).filter(|slot| met.node.slice(*slot) >= from);
                for (slot, place) in slots.zip(&to[copied..]) {
                    place.set((met.node.slice(slot), met.node.value(slot)));
                    copied += 1;
                }
                let next = met.node.next();
                met.validate()?;
                if next == 0 || copied == to.len() {
                    return Ok(copied);
                }
                // SAFETY: the word was a node's address, and nodes live as long as the tree.
                met = Met::new(unsafe { &*pointer(next) });
            }
        })
    }

    /// Checks the whole tree. Returns the numbers of nodes and of keys. No thread may change the tree meanwhile.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&mut self) -> (usize, usize) {
        check::layer(&self.root)
    }
}

impl BenchIndex<u64> for HtmMasstree {
    fn empty() -> Self {
        Self::default()
    }
}

impl OrderedIndex<u64, u64> for HtmMasstree {
    type Session<'a> = Session<'a>;

    fn pin(&self) -> Session<'_> {
        Session { tree: self, spares: RefCell::default() }
    }
}

impl OrderedSession<u64, u64> for Session<'_> {
    fn get(&self, key: &u64) -> Option<u64> {
        let (tree, key) = (self.tree, *key);
        tree.lock.run(|| tree.look(key))
    }

    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        let (tree, key, mut spares) = (self.tree, *key, self.spares.borrow_mut());
        loop {
            let now = &spares[..];
            let Stored { old, used } = tree.lock.run(|| tree.store(key, value, When::Always, now));
            spares.drain(..used);
            match old {
                Ok(old) => return old,
                Err(Lacking) => spares.push(Box::into_raw(Node::new(0))),
            }
        }
    }

    fn update(&self, key: &u64, f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let (tree, key) = (self.tree, *key);
        tree.lock.update(self.get(&key)?, f, |expected, new| {
            tree.change(key, |node, order, at| {
                let slot = order.slot(at);
                if node.value(slot) == expected {
                    node.set_value(slot, new);
                }
            })
        })
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        let (tree, key) = (self.tree, *key);
        tree.lock.run(|| tree.change(key, |node, order, at| changing(node, || node.set_order(order.remove(at)))))
    }

    fn scan(&self, from: &u64, limit: usize, visit: impl FnMut(u64, &u64)) -> usize {
        self.tree.lock.scan(*from, limit, visit, |from, to| self.tree.copy(from, to))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: the node was made by this session, and is in no tree.
        self.spares.get_mut().drain(..).for_each(|spare| drop(unsafe { Box::from_raw(spare) }));
    }
}

impl Drop for HtmMasstree {
    fn drop(&mut self) {
        clear(&self.root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::tests::{check_rival, words};

    /// A root needs two spare nodes to split. If only one is ready, the session keeps it.
    #[test]
    fn a_spare_node_that_is_not_used_stays_one() {
        let mut tree = HtmMasstree::default();
        (0..WIDTH as u64).for_each(|key| _ = tree.pin().insert(&key, 1));
        let mut spare = Node::new(0);
        let stored = tree.store(99, 1, When::Always, &[&raw mut *spare]);
        assert!(stored.old.is_err() && stored.used == 0);
        assert_eq!(tree.check_invariants(), (1, WIDTH));
        assert_eq!(tree.pin().insert(&99, 1), None);
        assert_eq!(tree.check_invariants(), (3, WIDTH + 1));
    }

    #[test]
    fn it_agrees_with_a_model_and_its_histories_are_linearizable() {
        check_rival::<HtmMasstree>(&words(2_000), |tree| _ = tree.check_invariants());
    }
}
