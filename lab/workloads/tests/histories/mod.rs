//! What threads do with Kyoto's cache and what was made of it, and how it is judged: as our own caches are.

#[path = "../../../../lib/cache/tests/model/mod.rs"]
mod model;

use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_workloads::caches::{CACHES, Caching, Client, Known, slot_of};
use model::{Map, Op, Ret, draw};

/// Each cache of Kyoto's kind.
pub fn each(test: impl Fn(&Known)) {
    CACHES.iter().filter(|known| known.name.starts_with("kyoto")).for_each(test);
}

/// A cache under test, and what was done with it.
pub struct Recorded {
    cache: Box<dyn Caching>,
    recorder: Recorder<Op, Ret>,
    /// The keys, all of one slot and of one tree.
    keys: Vec<u64>,
    may_vanish: bool,
}

/// Kyoto's slots, and so many records of each.
const SLOTS: usize = 16;

impl Recorded {
    /// With room for so many records in a slot.
    pub fn of(known: &Known, room: usize) -> Self {
        // Trees are chosen by a product's high bits: these are more of them than there are trees.
        let tree = |key: &u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let keys: Vec<u64> = (0..).filter(|key| slot_of(*key) == 3 && tree(key) == 3).take(4).collect();
        let (may_vanish, cache) = (room < keys.len(), (known.make)(room * SLOTS));
        Self { cache, recorder: Recorder::new(), keys, may_vanish }
    }

    /// What one thread does.
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

    /// # Panics
    /// If what threads have seen is no map, or vanished where there was room.
    pub fn judge(self) {
        drop(self.cache);
        linear::check(&Map { may_vanish: self.may_vanish }, self.recorder.finish().entries()).assert_ok();
    }
}

/// Clients look up and store.
fn known_to_clients(op: Op) -> Op {
    match op {
        Op::Remove(key) => Op::Get(key),
        Op::GetOrInsert(key, value) => Op::Insert(key, value),
        op => op,
    }
}
