//! The hash table of the anchors' prefixes.
//!
//! A thread changes a table only while no thread reads it ([`Wormhole`](super::Wormhole) says when), so the table's words
//! need no ordering of their own.

use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};
use archipelago_platform::touch;

use super::leaf::{EMPTY, Leaf, hash, mixed, parts, tagged};

/// Slots of a bucket, which is a cache line.
const SLOTS: usize = 8;
/// Buckets of a new table.
const BUCKETS: usize = 64;

/// Slots are filled from the first on. A node that finds no slot in its bucket is in the next one with a free slot.
#[derive(Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; SLOTS]);

/// A prefix of anchors.
struct Node {
    prefix: Box<[u8]>,
    /// One bit for each byte that continues the prefix to a longer one.
    children: [AtomicU64; 4],
    /// The leaf whose anchor the prefix is, or null.
    leaf: AtomicPtr<Leaf>,
    /// The first and the last leaf whose anchor begins with the prefix.
    ends: [AtomicPtr<Leaf>; 2],
}

/// See the module.
pub struct Table {
    buckets: AtomicPtr<Box<[Bucket]>>,
    nodes: AtomicUsize,
    /// The length of the longest prefix.
    longest: AtomicUsize,
}

fn pointer(leaf: &Leaf) -> *mut Leaf {
    ptr::from_ref(leaf).cast_mut()
}

fn leaf<'t>(pointer: &AtomicPtr<Leaf>) -> Option<&'t Leaf> {
    // SAFETY: leaves live as long as the map.
    unsafe { pointer.load(Relaxed).as_ref() }
}

/// Returns the node at an address.
fn node<'t>(address: u64) -> &'t Node {
    // SAFETY: the address is in a table's slot, and nodes live as long as the table.
    unsafe { &*ptr::with_exposed_provenance(address as usize) }
}

fn buckets(count: usize) -> *mut Box<[Bucket]> {
    Box::into_raw(Box::new((0..count).map(|_| Bucket::default()).collect()))
}

impl Node {
    fn new(prefix: &[u8], only: &Leaf) -> Box<Node> {
        let ends = [(); 2].map(|()| AtomicPtr::new(pointer(only)));
        Box::new(Node { prefix: prefix.into(), children: Default::default(), leaf: AtomicPtr::default(), ends })
    }

    /// Returns the greatest byte less than `byte` that continues the prefix.
    fn child_below(&self, byte: u8) -> Option<u8> {
        let (word, bit) = (usize::from(byte / 64), u32::from(byte % 64));
        let bits = |at: usize, mask: u64| {
            let bits = self.children[at].load(Relaxed) & mask;
            (bits != 0).then(|| (at as u32 * 64 + bits.ilog2()) as u8)
        };
        bits(word, (1 << bit) - 1).or_else(|| (0..word).rev().find_map(|at| bits(at, u64::MAX)))
    }

    /// Returns the last leaf before those whose anchors continue the prefix.
    fn own(&self) -> &Leaf {
        leaf(&self.leaf).unwrap_or_else(|| leaf(&self.ends[0]).expect("each prefix has a leaf").previous())
    }
}

impl Table {
    /// Makes the table of a first leaf, whose anchor is empty.
    pub fn new(first: &Leaf) -> Table {
        let table = Table {
            buckets: AtomicPtr::new(buckets(BUCKETS)),
            nodes: AtomicUsize::new(0),
            longest: AtomicUsize::new(0),
        };
        let root = Node::new(&[], first);
        root.leaf.store(pointer(first), Relaxed);
        table.put(root);
        table
    }

    fn buckets(&self) -> &[Bucket] {
        // SAFETY: the buckets are replaced only while no thread reads the table.
        unsafe { &*self.buckets.load(Relaxed) }
    }

    /// Returns the node of `prefix` with `byte` behind it, if there is one.
    #[inline]
    fn get(&self, prefix: &[u8], byte: Option<u8>) -> Option<&Node> {
        let whole = mixed(hash(hash(EMPTY, prefix), byte.as_slice()));
        let buckets = self.buckets();
        let mut at = whole as usize % buckets.len();
        loop {
            for slot in &buckets[at].0 {
                let (tag, address) = parts(slot.load(Relaxed));
                if address == 0 {
                    return None;
                }
                if tag == parts(tagged(whole, 0)).0 {
                    let node = node(address);
                    touch(node, size_of::<Node>());
                    touch(node.prefix.as_ptr(), node.prefix.len());
                    if node.prefix.strip_prefix(prefix).is_some_and(|rest| rest == byte.as_slice()) {
                        return Some(node);
                    }
                }
            }
            at = (at + 1) % buckets.len();
        }
    }

    /// Returns the leaf with the greatest anchor that is not greater than `key`.
    #[inline]
    pub fn leaf(&self, key: &[u8]) -> &Leaf {
        let mut node = self.get(&[], None).expect("the empty prefix is there");
        let (mut from, mut to) = (0, key.len().min(self.longest.load(Relaxed)) + 1);
        while to - from > 1 {
            let middle = (from + to) / 2;
            match self.get(&key[..middle], None) {
                Some(found) => (node, from) = (found, middle),
                None => to = middle,
            }
        }
        let Some(&byte) = key.get(from) else { return node.own() };
        // No prefix continues by the key's own byte.
        match node.child_below(byte) {
            Some(child) => {
                let child = self.get(&key[..from], Some(child)).expect("its bit is set");
                leaf(&child.ends[1]).expect("each prefix has a leaf")
            }
            None => node.own(),
        }
    }

    /// Adds the anchor of a new leaf, to the right of `left`.
    pub fn add(&self, left: &Leaf, right: &Leaf) {
        let anchor = &right.anchor;
        for len in 0..=anchor.len() {
            let node = match self.get(&anchor[..len], None) {
                Some(node) => node,
                None => self.put(Node::new(&anchor[..len], right)),
            };
            // The new leaf is an end where its neighbour was.
            if ptr::eq(node.ends[1].load(Relaxed), left) {
                node.ends[1].store(pointer(right), Relaxed);
            }
            if right.next().is_some_and(|next| ptr::eq(node.ends[0].load(Relaxed), next)) {
                node.ends[0].store(pointer(right), Relaxed);
            }
            match anchor.get(len) {
                Some(&byte) => {
                    let word = &node.children[usize::from(byte / 64)];
                    word.store(word.load(Relaxed) | 1 << (byte % 64), Relaxed);
                }
                None => node.leaf.store(pointer(right), Relaxed),
            }
        }
        self.longest.store(self.longest.load(Relaxed).max(anchor.len()), Relaxed);
    }

    /// Puts a node into the table.
    fn put(&self, new: Box<Node>) -> &Node {
        let nodes = self.nodes.load(Relaxed) + 1;
        self.nodes.store(nodes, Relaxed);
        if nodes * 2 > self.buckets().len() * SLOTS {
            self.grow();
        }
        let address = Box::into_raw(new).expose_provenance() as u64;
        place(self.buckets(), address);
        node(address)
    }

    fn grow(&self) {
        let more = buckets(self.buckets().len() * 2);
        // SAFETY: no other thread has the new buckets, and none reads the old ones.
        let old = unsafe {
            self.addresses().for_each(|address| place(&*more, address));
            Box::from_raw(self.buckets.swap(more, Relaxed))
        };
        drop(old);
    }

    /// Returns the addresses of all nodes.
    fn addresses(&self) -> impl Iterator<Item = u64> {
        let words = self.buckets().iter().flat_map(|bucket| &bucket.0).map(|slot| parts(slot.load(Relaxed)).1);
        words.filter(|address| *address != 0)
    }

    /// Checks that the table has what the leaves' anchors demand, and nothing else.
    pub fn check(&self, leaves: &[&Leaf]) {
        let mut prefixes: Vec<&[u8]> =
            leaves.iter().flat_map(|leaf| (0..=leaf.anchor.len()).map(|len| &leaf.anchor[..len])).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        assert!(self.addresses().count() == prefixes.len() && self.nodes.load(Relaxed) == prefixes.len());
        for prefix in prefixes {
            let node = self.get(prefix, None).expect("each prefix is there");
            let (own, longer): (Vec<&Leaf>, Vec<&Leaf>) =
                leaves.iter().filter(|leaf| leaf.anchor.starts_with(prefix)).partition(|leaf| *leaf.anchor == *prefix);
            let is = |pointer: &AtomicPtr<Leaf>, leaf: &Leaf| ptr::eq(pointer.load(Relaxed), leaf);
            assert!(own.len() < 2 && own.first().map_or(leaf(&node.leaf).is_none(), |own| is(&node.leaf, own)));
            let mut below = own.iter().chain(&longer);
            let first = below.next().expect("a prefix is one of an anchor");
            assert!(is(&node.ends[0], first) && is(&node.ends[1], below.next_back().unwrap_or(first)));
            let mut bits = [0_u64; 4];
            longer
                .iter()
                .map(|leaf| leaf.anchor[prefix.len()])
                .for_each(|it| bits[usize::from(it / 64)] |= 1 << (it % 64));
            assert_eq!(node.children.each_ref().map(|word| word.load(Relaxed)), bits);
        }
    }
}

/// Puts a node into the first free slot, from its bucket on.
fn place(buckets: &[Bucket], address: u64) {
    let whole = mixed(hash(EMPTY, &node(address).prefix));
    let mut at = whole as usize % buckets.len();
    loop {
        if let Some(free) = buckets[at].0.iter().find(|slot| slot.load(Relaxed) == 0) {
            return free.store(tagged(whole, address), Relaxed);
        }
        at = (at + 1) % buckets.len();
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: no thread uses the table, and each node is a box that is in one slot.
        unsafe {
            let boxed = |address: u64| Box::from_raw(ptr::with_exposed_provenance_mut::<Node>(address as usize));
            self.addresses().for_each(|address| drop(boxed(address)));
            drop(Box::from_raw(self.buckets.load(Relaxed)));
        }
    }
}
