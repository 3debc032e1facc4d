//! RCX (two-level locks for the writers of RCU-protected data), and the replacement of one link's target (a *swing*)
//! without transactions, under the weak memory model.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sync --profile model --test loom_rcx --target-dir target/loom`
//!
//! An object's lock has a *local byte* for each NUMA node and one *global word*. A holder that unlocks may *leave* the
//! word to a thread of its node that waits for the byte (hand-over). The locks protect cells in which loom checks every
//! access.
#![cfg(loom)]

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::lock::be_on_node;
use archipelago_sync::rcu::Domain;
use archipelago_sync::rcx::{Builder, InOrder, Locks, Padding, Rcx, Stripe, Striped};
use archipelago_sync::region::{Again, Change, Changing, Link, Region, Stale, Traverse, Var, Versioned, Walk};
use archipelago_sync::version_lock::VersionLock;
use loom::cell::UnsafeCell;
use std::sync::LazyLock;

/// Two objects with a value each, and a flag that says whether the first was removed.
struct Objects<L: Locks + 'static> {
    rcx: Rcx<L>,
    objects: [&'static L::Object; 2],
    values: [UnsafeCell<u32>; 2],
    removed: UnsafeCell<bool>,
}

impl<L: Locks> Objects<L> {
    fn new(rcx: Rcx<L>) -> Self {
        // In one allocation, so their order, which is that of their addresses, is the same in all schedules of a model.
        let objects: &'static [L::Object; 2] = Box::leak(Box::new([rcx.object(), rcx.object()]));
        Self::of(rcx, objects.each_ref())
    }

    fn of(rcx: Rcx<L>, objects: [&'static L::Object; 2]) -> Self {
        let values = [UnsafeCell::new(0), UnsafeCell::new(0)];
        Self { rcx, objects, values, removed: UnsafeCell::new(false) }
    }

    /// Locks the objects `which` and adds one to the value of each. If object 0 is among them and was removed, changes
    /// nothing and returns false.
    fn add(&self, which: &[usize]) -> bool {
        let mut handles = which.iter().map(|at| self.rcx.handle(self.objects[*at])).collect();
        let _held = self.rcx.lock(self.rcx.order(&mut handles));
        // This is the validation under the lock.
        // SAFETY: changed only by the holder of the first object.
        if which.contains(&0) && self.removed.with(|removed| unsafe { *removed }) {
            return false;
        }
        // SAFETY: changed only by the holder of the object.
        which.iter().for_each(|at| self.values[*at].with_mut(|value| unsafe { *value += 1 }));
        true
    }

    fn remove_first(&self) {
        let first = self.rcx.handle(self.objects[0]);
        let _held = self.rcx.lock(InOrder::one(&first));
        // SAFETY: as above.
        self.removed.with_mut(|removed| unsafe { *removed = true });
    }

    fn values(&self) -> [u32; 2] {
        // SAFETY: the threads have ended.
        [0, 1].map(|at| self.values[at].with(|value| unsafe { *value }))
    }
}

// SAFETY: loom ends the run if accesses to the cells are not ordered.
unsafe impl<L: Locks> Sync for Objects<L> {}
// SAFETY: as above.
unsafe impl<L: Locks> Send for Objects<L> {}

/// Two threads on these nodes: one locks both objects, the other locks one.
fn two_add<L: Locks + 'static>(nodes: [usize; 2], make: fn() -> Rcx<L>) {
    two_add_to(nodes, move || Objects::new(make()));
}

fn two_add_to<L: Locks + 'static>(nodes: [usize; 2], make: impl Fn() -> Objects<L> + Send + Sync + 'static) {
    model(2, move || {
        let objects = Arc::new(make());
        let other = {
            let objects = objects.clone();
            thread::spawn(move || {
                be_on_node(nodes[1]);
                assert!(objects.add(&[1]));
            })
        };
        be_on_node(nodes[0]);
        assert!(objects.add(&[0, 1]));
        other.join().unwrap();
        assert_eq!(objects.values(), [1, 2]);
    });
}

fn builder() -> Builder {
    Rcx::builder().nodes(2)
}

#[test]
fn two_nodes_exclude_each_other_by_global_words() {
    two_add([0, 1], || builder().build());
    two_add([0, 1], || builder().padding(Padding::Compact).build());
}

#[test]
fn threads_of_a_node_exclude_each_other_by_local_bytes() {
    two_add([1, 1], || builder().build());
}

/// The objects are locked by one stripe of a table of locks, or by two different stripes. An object's address selects
/// its stripe, so the address must be the same in all schedules of a model.
#[test]
fn a_table_of_locks_excludes_alike() {
    static OBJECTS: LazyLock<[Stripe; 64]> = LazyLock::new(|| std::array::from_fn(|_| Stripe::default()));
    for stripes in [1, 2] {
        let rcx = move || builder().build_with(|nodes, _| Striped::with_stripes(nodes, stripes));
        two_add_to([0, 1], move || {
            let rcx = rcx();
            let stripe = |object: &Stripe| format!("{:?}", rcx.handle(object));
            let other = OBJECTS[1..].iter().find(|other| (stripe(other) != stripe(&OBJECTS[0])) == (stripes == 2));
            Objects::of(rcx, [&OBJECTS[0], other.expect("of so many")])
        });
    }
}

#[test]
fn hand_over_leaves_the_global_word_to_the_node_and_to_no_one_for_ever() {
    two_add([0, 0], || builder().passes(1).build());
    two_add([0, 1], || builder().passes(1).build());
}

/// A thread waits for an object, the holder leaves the object's word to it, and the thread gives up. The other node can
/// still take the object.
#[test]
fn what_is_left_to_a_thread_that_gives_up_is_free_again() {
    model(3, || {
        let objects = Arc::new(Objects::<archipelago_sync::rcx::Embedded>::new(builder().passes(1).build()));
        let other = {
            let objects = objects.clone();
            thread::spawn(move || {
                be_on_node(0);
                drop(objects.rcx.try_lock(InOrder::one(&objects.rcx.handle(objects.objects[0]))));
            })
        };
        be_on_node(0);
        assert!(objects.add(&[0]));
        other.join().unwrap();
        be_on_node(1);
        assert!(objects.rcx.try_lock(InOrder::one(&objects.rcx.handle(objects.objects[0]))).is_some());
    });
}

/// Two threads want both objects. The first object is held on another node, so they do not get it. The word of the
/// second object is left to them. They must give up this word before they wait or return. (Two threads, or sets of one
/// object, do not reach this case. It needs a thread that leaves the word; two threads that wait for it, one of which
/// removes its registration while the other has the byte; and an object held on another node.)
#[test]
fn what_is_left_is_free_again_when_another_object_is_refused() {
    for refused in 0..2 {
        model(2, move || {
            let objects = Arc::new(Objects::<archipelago_sync::rcx::Embedded>::new(builder().passes(1).build()));
            let [first, second] = [refused, 1 - refused].map(|which| objects.rcx.handle(objects.objects[which]));
            be_on_node(1);
            let first = objects.rcx.try_lock(InOrder::one(&first));
            be_on_node(0);
            let second = objects.rcx.try_lock(InOrder::one(&second));
            let others = [(); 2].map(|()| {
                let objects = objects.clone();
                thread::spawn(move || {
                    be_on_node(0);
                    let mut both = objects.objects.iter().map(|object| objects.rcx.handle(object)).collect();
                    let both = objects.rcx.order(&mut both);
                    (0..2).for_each(|_| drop(objects.rcx.try_lock(both)));
                })
            });
            drop(second);
            others.into_iter().for_each(|other| other.join().unwrap());
            drop(first);
            be_on_node(1);
            for object in objects.objects {
                assert!(objects.rcx.try_lock(InOrder::one(&objects.rcx.handle(object))).is_some());
            }
        });
    }
}

#[test]
fn on_one_node_the_local_byte_is_the_lock() {
    two_add([0, 0], || Rcx::fine_grained().build());
}

/// After locking, a thread sees the state in which the last holder left the object, so it does not miss a removal.
#[test]
fn validation_under_the_locks_sees_removals() {
    model(2, || {
        let objects = Arc::new(Objects::<archipelago_sync::rcx::Embedded>::new(builder().build()));
        let other = {
            let objects = objects.clone();
            thread::spawn(move || {
                be_on_node(1);
                objects.remove_first();
            })
        };
        let added = objects.add(&[0, 1]);
        other.join().unwrap();
        assert_eq!(objects.values(), [u32::from(added); 2]);
        assert!(!objects.add(&[0]));
    });
}

struct Node {
    lock: VersionLock,
    word: Var,
    link: Link<Node>,
}

// SAFETY: the page's words and links are plain fields.
unsafe impl Versioned for Node {
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

fn node(word: u64, link: *mut Node) -> Box<Node> {
    // SAFETY: nodes are freed at the end.
    Box::new(Node { lock: VersionLock::new(), word: Var::new(word), link: unsafe { Link::new(link) } })
}

/// Replaces a node by the copy that was made from it.
#[derive(Clone, Copy)]
struct Swing<'p> {
    first: &'p Node,
    old: *mut Node,
    new: *mut Node,
}

impl Change for Swing<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        if change.target(&self.first.link) != self.old {
            return Err(Stale);
        }
        // SAFETY: both nodes exist until the end.
        let old = unsafe {
            change.set_link(&self.first.link, self.new);
            &*self.old
        };
        change.restructure(self.first);
        change.retire(old);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Read<'g>(&'g Node);

impl<'g> Traverse<'g> for Read<'g> {
    type Out = u64;

    fn run(self, walk: &mut impl Walk<'g>) -> Result<u64, Again> {
        let first = walk.enter(self.0)?;
        let second = walk.follow(&first.link)?.ok_or(Again)?;
        Ok(walk.get(&second.word))
    }
}

/// Two threads copy the second node, count, and swing the link. No count is lost, and a concurrent walk sees the
/// counts.
#[test]
fn one_swing_of_two_is_refused() {
    model(2, || {
        let second = Box::into_raw(node(1, std::ptr::null_mut()));
        let first = Arc::new(node(0, second));
        let count = |first: &Node| {
            let old = first.link.load();
            // SAFETY: nodes are freed at the end.
            let new = Box::into_raw(node(unsafe { &*old }.word.load() + 1, std::ptr::null_mut()));
            // SAFETY: as above.
            let pages = [first, unsafe { &*old }];
            (Region::by_version_locks().update_all(&pages, Swing { first, old, new }).is_ok(), new as usize)
        };
        let other = {
            let first = first.clone();
            thread::spawn(move || count(&first))
        };
        let mine = count(&first);
        let domain = Domain::new();
        let seen = Region::by_version_locks().traverse(&domain.pin(), Read(&first));
        assert!(seen == 2 || seen == 3);
        let others = other.join().unwrap();
        // SAFETY: as above.
        let counted = unsafe { &*first.link.load() }.word.load();
        assert_eq!(counted, 1 + u64::from(mine.0) + u64::from(others.0));
        assert!(counted > 1);
        for made in [second as usize, mine.1, others.1] {
            // SAFETY: made by a box, freed once, and the threads have ended.
            drop(unsafe { Box::from_raw(made as *mut Node) });
        }
    });
}
