//! Records and checks the operations of threads on the cache after Kyoto Cabinet and its variants, with the model of
//! this library's own caches.

#[path = "../../../../lib/cache/tests/model/mod.rs"]
mod model;

use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_workloads::caches::{CACHES, Caching, Client, Known, Room, slot_of};
use model::{Map, Op, Ret, draw};

/// Runs a test on the cache after Kyoto Cabinet and on each of its variants.
pub fn each(test: impl Fn(&Known)) {
    CACHES.iter().filter(|known| known.name.starts_with("kyoto")).for_each(test);
}

/// A cache under test, and the recorder of its operations.
pub struct Recorded {
    cache: Box<dyn Caching>,
    recorder: Recorder<Op, Ret>,
    /// The keys, all in one slot and in one tree.
    keys: Vec<u64>,
    may_vanish: bool,
}

/// The number of slots in Kyoto Cabinet.
const SLOTS: usize = 16;

impl Recorded {
    /// Makes a cache with room for `room` records in each slot.
    pub fn of(known: &Known, room: usize) -> Self {
        // A tree is chosen by the high bits of a product. Keys that agree in these eight bits are in one tree, since
        // a slot has fewer than 256 trees.
        let tree = |key: &u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let keys: Vec<u64> = (0..).filter(|key| slot_of(*key) == 3 && tree(key) == 3).take(4).collect();
        let (may_vanish, cache) = (room < keys.len(), (known.make)(Room::of(room * SLOTS)));
        Self { cache, recorder: Recorder::new(), keys, may_vanish }
    }

    /// Runs one thread's operations.
    pub fn work(&self, operations: u32, first: u32, mut random: impl FnMut(u64) -> u64) {
        let (mut client, mut log) = (self.cache.client(), self.recorder.log());
        for unique in first..first + operations {
            log.record(known_to_clients(draw(&mut random, unique)), |op| self.perform(&mut *client, op));
        }
    }

    fn perform(&self, client: &mut dyn Client, op: &Op) -> Ret {
        match *op {
            Op::Insert(key, value) => {
                client.set(self.keys[usize::from(key)], value.into());
                Ret::Was(true)
            }
            Op::Get(key) => Ret::Value(client.get(self.keys[usize::from(key)]).map(|number| number as u32)),
            _ => unreachable!("not known to clients"),
        }
    }

    /// Judges the history.
    ///
    /// # Panics
    /// If the results are not those of a map, or a record vanished although the cache had room.
    pub fn judge(self) {
        drop(self.cache);
        linear::check(&Map { may_vanish: self.may_vanish }, self.recorder.finish().entries()).assert_ok();
    }
}

/// Turns an operation into one that clients have: a look-up or a store.
fn known_to_clients(op: Op) -> Op {
    match op {
        Op::Remove(key) => Op::Get(key),
        Op::GetOrInsert(key, value) => Op::Insert(key, value),
        op => op,
    }
}
