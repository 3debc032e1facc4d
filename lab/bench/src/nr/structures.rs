//! The sequential structures of the node-replication paper's evaluation (§4.1, §4.2). Each maps the workloads' generic
//! operations (add, remove, read) to its own.

use std::hint::black_box;

use archipelago_platform::plain::Plain;
use archipelago_platform::touch;
use archipelago_replicate::Sequential;
use archipelago_server::args::Args;
use archipelago_server::command;
use archipelago_server::db::{Db, Outcome};
use archipelago_server::operation::{Call, Read, Write};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::skiplist::SkipList;
use crate::method::Op;
use crate::rivals::flat_combining::Combine;

/// A structure that `bench nr` measures.
pub trait Measured: Combine<Read: Send + Sync, Write: Send + Sync, Response: Send> + Send + Sync + 'static {
    /// Makes the structure with `items` items: the same on every call.
    fn filled(items: usize) -> Self;

    /// Returns what [`filled`](Self::filled) returns. May copy `self`, which `filled` made, if copying is faster.
    fn copy(&self, items: usize) -> Self
    where
        Self: Sized,
    {
        Self::filled(items)
    }

    /// Returns how many keys operations choose from, for `items` items; `None` for all keys of the type.
    fn key_space(items: usize) -> Option<usize>;

    /// Returns the structure's own operation for a generic one: `Ok` for a read, `Err` for a change.
    fn operation(op: Op) -> Result<Self::Read, Self::Write>;

    /// Returns a read that shows whether a change is fake, that is, has nothing to change (paper §3.9). `None` if such
    /// changes are rare.
    fn look_first(_: Op) -> Option<Self::Read> {
        None
    }

    /// Returns whether the read's response shows that the change is fake. The response then also answers the change.
    fn is_fake(_: Op, _: &Self::Response) -> bool {
        false
    }

    /// Uses up a response. Announces the reads of what another thread has allocated for it.
    fn take(response: Self::Response) {
        black_box(response);
    }
}

/// A skip list as a priority queue: `insert(random)`, `delete_min`, `find_min`.
pub struct PriorityQueue(SkipList<u64, (), false>);

/// A change of the queue.
pub enum QueueWrite {
    /// Inserts this key.
    Insert(u64),
    /// Removes the smallest key.
    DeleteMin,
}

impl Sequential for PriorityQueue {
    type Read = ();
    type Write = QueueWrite;
    type Response = Option<u64>;

    fn read(&self, (): &()) -> Option<u64> {
        self.0.first()
    }

    fn write(&mut self, operation: &QueueWrite) -> Option<u64> {
        match operation {
            QueueWrite::Insert(key) => self.0.insert(*key, ()).map(|()| *key),
            QueueWrite::DeleteMin => self.0.pop_first(),
        }
    }

    fn prepare(&self, operation: &QueueWrite) {
        if let QueueWrite::Insert(key) = operation {
            black_box(self.0.get(key));
        }
    }
}

/// A combiner removes the smallest keys of all its requests together.
impl Combine for PriorityQueue {
    fn is_set_aside(operation: &QueueWrite) -> bool {
        matches!(operation, QueueWrite::DeleteMin)
    }

    fn write_together(&mut self, count: usize, mut answer: impl FnMut(Option<u64>)) {
        let mut left = count;
        self.0.pop_firsts(count, |key| {
            left -= 1;
            answer(Some(key));
        });
        (0..left).for_each(|_| answer(None));
    }
}

impl Measured for PriorityQueue {
    fn filled(items: usize) -> Self {
        let mut list = SkipList::with_room(items);
        let mut rng = SmallRng::seed_from_u64(7);
        for _ in 0..items {
            list.insert(rng.random(), ());
        }
        Self(list)
    }

    fn copy(&self, items: usize) -> Self {
        Self(self.0.copy(items))
    }

    fn key_space(_: usize) -> Option<usize> {
        None
    }

    fn operation(op: Op) -> Result<(), QueueWrite> {
        match op {
            Op::Read(_) => Ok(()),
            Op::Add(key) => Err(QueueWrite::Insert(key)),
            Op::Remove(_) => Err(QueueWrite::DeleteMin),
        }
    }
}

/// A skip list as a dictionary: `insert(random)`, `delete(random)`, `lookup(random)`.
pub struct Dictionary(SkipList<u64, u64, false>);

/// A change of the dictionary.
pub enum DictionaryWrite {
    /// Inserts this key.
    Insert(u64),
    /// Deletes this key.
    Delete(u64),
}

impl Sequential for Dictionary {
    type Read = u64;
    type Write = DictionaryWrite;
    type Response = Option<u64>;

    fn read(&self, key: &u64) -> Option<u64> {
        self.0.get(key)
    }

    fn write(&mut self, operation: &DictionaryWrite) -> Option<u64> {
        match operation {
            DictionaryWrite::Insert(key) => self.0.insert(*key, !*key),
            DictionaryWrite::Delete(key) => self.0.remove(key),
        }
    }

    fn prepare(&self, operation: &DictionaryWrite) {
        let (DictionaryWrite::Insert(key) | DictionaryWrite::Delete(key)) = operation;
        black_box(self.0.get(key));
    }
}

impl Combine for Dictionary {}

impl Measured for Dictionary {
    /// Makes a dictionary with every other key. Keys that are neighbours are scattered in memory.
    fn filled(items: usize) -> Self {
        let mut list = SkipList::with_room(items);
        for at in scattered(items) {
            list.insert(2 * at, at);
        }
        Self(list)
    }

    fn copy(&self, items: usize) -> Self {
        Self(self.0.copy(items))
    }

    /// Returns twice the items: insertions and deletions of random keys then keep the number of items about constant.
    fn key_space(items: usize) -> Option<usize> {
        Some(2 * items)
    }

    fn operation(op: Op) -> Result<u64, DictionaryWrite> {
        match op {
            Op::Read(key) => Ok(key),
            Op::Add(key) => Err(DictionaryWrite::Insert(key)),
            Op::Remove(key) => Err(DictionaryWrite::Delete(key)),
        }
    }

    fn look_first(op: Op) -> Option<u64> {
        let (Op::Read(key) | Op::Add(key) | Op::Remove(key)) = op;
        Some(key)
    }

    /// An insertion of a present key is fake, since each key has only one value. A deletion of an absent key is fake.
    fn is_fake(op: Op, response: &Option<u64>) -> bool {
        response.is_some() == matches!(op, Op::Add(_))
    }
}

/// A hash table from member to score, with linear probing. Members are added at the beginning and never removed, so the
/// table has its full size from the start. All of its memory is [`Plain`], which the standard library's table could not
/// be.
struct Scores(Plain<Vec<Slot>>);

/// A member and its score.
type Slot = Plain<Option<(u64, u64)>>;

impl Scores {
    fn new(members: usize) -> Self {
        Self(Plain::new(vec![Plain::new(None); (2 * members).next_power_of_two()]))
    }

    /// Returns the slot that holds the member, or would hold it.
    fn slot(&self, member: u64) -> usize {
        let mask = self.0.len() - 1;
        let mut slot = member.wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 20 & mask;
        while (*self.0[slot]).is_some_and(|(other, _)| other != member) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn get(&self, member: u64) -> Option<u64> {
        (*self.0[self.slot(member)]).map(|(_, score)| score)
    }

    fn set(&mut self, member: u64, score: u64) {
        let slot = self.slot(member);
        *self.0.reach_mut()[slot] = Some((member, score));
    }
}

/// Redis's sorted set: a hash table from member to score and a skip list by score, changed together.
pub struct SortedSet {
    scores: Scores,
    order: SkipList<(u64, u64), (), true>,
}

/// `ZINCRBY`: raises a member's score.
pub struct IncreaseBy(u64, u64);

impl Sequential for SortedSet {
    /// `ZRANK` of this member.
    type Read = u64;
    type Write = IncreaseBy;
    type Response = Option<u64>;

    fn read(&self, member: &u64) -> Option<u64> {
        let score = self.scores.get(*member)?;
        self.order.rank(&(score, *member)).map(|rank| rank as u64)
    }

    fn write(&mut self, &IncreaseBy(member, by): &IncreaseBy) -> Option<u64> {
        let score = self.scores.get(member)?;
        self.order.remove(&(score, member));
        let raised = score.wrapping_add(by);
        self.scores.set(member, raised);
        self.order.insert((raised, member), ());
        Some(raised)
    }

    fn prepare(&self, IncreaseBy(member, _): &IncreaseBy) {
        black_box(self.read(member));
    }
}

impl Combine for SortedSet {}

impl Measured for SortedSet {
    fn filled(items: usize) -> Self {
        let mut set = Self { scores: Scores::new(items), order: SkipList::with_room(items) };
        for (score, member) in scattered(items).enumerate() {
            set.scores.set(member, score as u64);
            set.order.insert((score as u64, member), ());
        }
        set
    }

    fn key_space(items: usize) -> Option<usize> {
        Some(items)
    }

    fn operation(op: Op) -> Result<u64, IncreaseBy> {
        match op {
            Op::Read(member) => Ok(member),
            Op::Add(member) | Op::Remove(member) => Err(IncreaseBy(member, 1 + member % 97)),
        }
    }
}

impl Combine for Db {}

/// The server's database: `ZRANK` and `ZINCRBY` of a sorted set in the database, as the server passes these commands
/// on.
impl Measured for Db {
    fn filled(items: usize) -> Self {
        let mut db = Self::default();
        for (score, member) in scattered(items).enumerate() {
            db.write(&Write::Call(called("zadd", &[score as u64, member])));
        }
        db
    }

    fn key_space(items: usize) -> Option<usize> {
        Some(items)
    }

    fn operation(op: Op) -> Result<Read, Write> {
        match op {
            Op::Read(member) => Ok(Read::Call(called("zrank", &[member]))),
            Op::Add(member) | Op::Remove(member) => Err(Write::Call(called("zincrby", &[1 + member % 97, member]))),
        }
    }

    fn take(outcome: Outcome) {
        if let Some(effects) = outcome.effects.as_deref() {
            touch(effects, size_of_val(effects));
        }
        black_box(outcome);
    }
}

/// Returns a command on the sorted set.
fn called(command: &str, numbers: &[u64]) -> Call {
    let mut args = Args::with_capacity(2 + numbers.len(), 32);
    args.push(command.as_bytes());
    args.push(b"set");
    numbers.iter().for_each(|number| args.push(number.to_string().as_bytes()));
    let command = command::find(command.as_bytes()).expect("the server has it");
    Call { command, args, db: 0, now: 1, seed: 0, wishes: 0, rights: None, deadline: None }
}

/// Returns the items of a lock-free structure, with neighbours scattered in memory, as in [`PriorityQueue`] and
/// [`Dictionary`].
pub fn lock_free_items(queue: bool, items: usize) -> impl Iterator<Item = (u64, u64)> {
    scattered(items).map(move |at| (if queue { at.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { 2 * at }, at))
}

/// Returns the numbers below `items` in a shuffled order, the same on every call.
fn scattered(items: usize) -> impl Iterator<Item = u64> {
    let mut all: Vec<u64> = (0..items as u64).collect();
    let mut rng = SmallRng::seed_from_u64(7);
    for at in (1..items).rev() {
        all.swap(at, rng.random_range(0..=at));
    }
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use archipelago_server::reply::Reply;

    use super::*;

    /// A change that a read shows to be fake returns the read's answer and changes nothing.
    #[test]
    fn fake_changes_change_nothing() {
        let mut dictionary = Dictionary::filled(50);
        let mut fakes = 0;
        for key in 0..100 {
            for op in [Op::Remove(key), Op::Add(key), Op::Add(key), Op::Remove(key), Op::Remove(key)] {
                let before = dictionary.read(&Dictionary::look_first(op).unwrap());
                let after = dictionary.write(&Dictionary::operation(op).unwrap_err());
                let fake = Dictionary::is_fake(op, &before);
                assert_eq!(fake, dictionary.read(&key) == before, "{op:?}");
                assert!(!fake || after == before, "{op:?}");
                fakes += usize::from(fake);
            }
        }
        assert_eq!(fakes, 250, "each second add, each third remove, and half of the first");
    }

    #[test]
    fn a_sorted_set_ranks_by_score() {
        let mut set = SortedSet::filled(100);
        let first = (0..100).find(|member| set.read(member) == Some(0)).unwrap();
        assert_eq!(set.write(&IncreaseBy(first, 1_000)), Some(1_000));
        assert_eq!(set.read(&first), Some(99));
        assert_eq!(set.read(&100), None);
    }

    /// The ranks are at first those of the synthetic set. Equal scores are ordered by member, which is a text in the
    /// database.
    #[test]
    fn the_database_ranks_by_score() {
        let (mut db, set) = (Db::filled(200), SortedSet::filled(200));
        let rank = |db: &Db, member| match db.read(&Db::operation(Op::Read(member)).ok().unwrap()).reply {
            Reply::Int(rank) => rank as u64,
            other => panic!("{other:?}"),
        };
        assert!((0..200).all(|member| Some(rank(&db, member)) == set.read(&member)));
        let first = (0..200).find(|member| rank(&db, *member) == 0).unwrap();
        db.write(&Db::operation(Op::Add(first)).err().unwrap());
        assert!([0, 1].contains(&(rank(&db, first) - first % 97)));
    }

    /// Removals that are carried out together answer as one after the other do, and leave the same queue.
    #[test]
    fn removals_together_are_removals() {
        for (items, count) in [(0, 3), (1, 1), (5, 3), (40, 17), (40, 45)] {
            let (mut one, mut other) = (PriorityQueue::filled(items), PriorityQueue::filled(items));
            let mut together = Vec::new();
            one.write_together(count, |answer| together.push(answer));
            let apart: Vec<_> = (0..count).map(|_| other.write(&QueueWrite::DeleteMin)).collect();
            assert_eq!(together, apart, "{items}, {count}");
            for key in 0..50 {
                let insert = QueueWrite::Insert(key * 7919 % 101);
                assert_eq!(one.write(&insert), other.write(&insert));
            }
            while let Some(least) = other.write(&QueueWrite::DeleteMin) {
                assert_eq!(one.write(&QueueWrite::DeleteMin), Some(least));
            }
            assert_eq!(one.read(&()), None);
        }
    }

    #[test]
    fn a_queue_gives_the_smallest() {
        let mut queue = PriorityQueue::filled(10);
        queue.write(&QueueWrite::Insert(0));
        assert_eq!((queue.read(&()), queue.write(&QueueWrite::DeleteMin)), (Some(0), Some(0)));
        assert!(queue.read(&()) > Some(0));
    }
}
