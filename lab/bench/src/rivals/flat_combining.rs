//! Flat combining as published (Hendler, Incze, Shavit, Tzafrir: Flat Combining and the Synchronization-Parallelism
//! Tradeoff, SPAA 2010): `FC` of the node-replication paper, and its `FC+`.
//!
//! Each thread has a record, and the active records form the publication list. A thread writes its request into its
//! record and tries to take the combiner's lock. The combiner walks over the list and carries out all requests that it
//! finds, in place. The other threads wait for their answers, or for the lock. In certain rounds the combiner removes
//! the records that no request was found in for long; a thread whose record is not active puts the record at the list's
//! head.
//!
//! *Combining that is specific to a structure* ([`Combine`]): requests of one kind (`deleteMin`) are set aside during the
//! walk, and carried out together after it. All requests of a round overlap in time, so any order of them is right.
//!
//! In `FC+`, readers share a readers-writer lock (the node-replication paper's, §3.8), which the combiner holds while it
//! carries out requests.
//!
//! # Differences
//! From `archipelago_replicate::Combined`: the walk follows links, so the records' cache lines arrive one after the
//! other (`Combined` prefetches all slots). A combiner makes `PASSES` walks, whatever it finds (`Combined` up to eight,
//! while many threads wait). Waiting threads never park. Operations must not panic.
//!
//! From the paper: an answer has a cell of its own beside the request, mostly in the same cache line. The numbers of
//! rounds between two removals, and until a record is removed, are chosen here.
//!
//! # Who may access a record's cells
//! Its thread, unless the record is `POSTED`; then the holder of the combiner's lock.

use core::ptr;

use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use archipelago_platform::cell::RaceCell;
use archipelago_platform::hint;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;
use archipelago_platform::sync;
use archipelago_replicate::Sequential;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{Mutex, RawTtas, RawUnqueuedRwLock, RwLock};

/// A structure with a kind of changes that a combiner can carry out together.
pub trait Combine: Sequential {
    /// Returns whether the change is of this kind.
    fn is_set_aside(_: &Self::Write) -> bool {
        false
    }

    /// Carries out `count` changes of this kind, and passes each response to `answer`.
    fn write_together(&mut self, count: usize, _answer: impl FnMut(Self::Response)) {
        unreachable!("{count} changes were set aside");
    }
}

const EMPTY: u32 = 0;
const POSTED: u32 = 1;
const ANSWERED: u32 = 2;

/// The number of rounds between two removals of old records, and the age in rounds at which a record is removed.
const OLD: u64 = 256;

/// A thread's record. The fields that change together are at the beginning, in one cache line if the request is small.
#[repr(C)]
struct Record<T: Sequential> {
    /// `EMPTY` → `POSTED` by the record's thread → `ANSWERED` by the combiner → `EMPTY` by the thread.
    state: AtomicU32,
    /// True from the moment at which the record's thread begins to insert the record into the list. The combiner that
    /// removes the record clears the flag.
    active: AtomicBool,
    next: AtomicPtr<CachePadded<Record<T>>>,
    /// The last round in which a request was found. For combiners.
    age: AtomicU64,
    answer: RaceCell<Option<T::Response>>,
    request: RaceCell<Option<Result<T::Read, T::Write>>>,
}

impl<T: Sequential> Record<T> {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            active: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
            age: AtomicU64::new(0),
            answer: RaceCell::new(None),
            request: RaceCell::new(None),
        }
    }

    fn is(&self, state: u32) -> bool {
        // Acquire: pairs with the Release of the thread that gave the cells away.
        self.state.load(Ordering::Acquire) == state
    }

    fn reply(&self, answer: T::Response) {
        // SAFETY: the record is posted, and the caller holds the combiner's lock.
        self.answer.with_mut(|cell| unsafe { *cell = Some(answer) });
        // Release: pairs with the Acquire of `is`.
        self.state.store(ANSWERED, Ordering::Release);
    }
}

type Link<T> = *mut CachePadded<Record<T>>;

/// A structure under flat combining. `PLUS`: whether reads are carried out by their own threads (`FC+`). A combiner
/// walks over the list `PASSES` times.
pub struct FlatCombining<T: Sequential, const PLUS: bool, const PASSES: usize> {
    /// The combiner's lock, with the number of rounds.
    lock: CachePadded<Mutex<RawTtas, Plain<u64>>>,
    head: CachePadded<AtomicPtr<CachePadded<Record<T>>>>,
    /// Without `PLUS` no thread takes this lock: only the combiner accesses the structure.
    data: CachePadded<RwLock<RawUnqueuedRwLock, T>>,
    old: u64,
    /// All records that were ever made. They are freed with the structure. In cache lines of their own, since each round
    /// reads `old`.
    records: CachePadded<sync::Mutex<Vec<Link<T>>>>,
}

// SAFETY: the records belong to the structure. Requests and answers are moved between threads, and each has one owner at
// a time (see the module's text). A combiner reads a posted reading operation by reference, while its thread waits.
unsafe impl<T: Sequential, const PLUS: bool, const PASSES: usize> Sync for FlatCombining<T, PLUS, PASSES> where
    T: Combine<Read: Send + Sync, Write: Send + Sync, Response: Send> + Send + Sync
{
}
// SAFETY: as above.
unsafe impl<T: Sequential, const PLUS: bool, const PASSES: usize> Send for FlatCombining<T, PLUS, PASSES> where
    T: Combine<Read: Send + Sync, Write: Send + Sync, Response: Send> + Send + Sync
{
}

impl<T: Combine, const PLUS: bool, const PASSES: usize> FlatCombining<T, PLUS, PASSES> {
    /// Makes the method over a structure.
    pub fn over(structure: T) -> Self {
        Self::with_age(structure, OLD)
    }

    fn with_age(structure: T, old: u64) -> Self {
        Self {
            lock: CachePadded::new(Mutex::new(Plain::new(0))),
            head: CachePadded::new(AtomicPtr::new(ptr::null_mut())),
            data: CachePadded::new(RwLock::new(structure)),
            old,
            records: CachePadded::default(),
        }
    }

    /// Returns the calling thread's access.
    pub fn access(&self) -> Access<'_, T, PLUS, PASSES> {
        let record = Box::into_raw(Box::new(CachePadded::new(Record::new())));
        self.records.lock().expect("no thread panics with the list").push(record);
        // SAFETY: just made, and freed with the structure, which the access borrows.
        Access { structure: self, record: unsafe { &*record } }
    }

    /// Puts a record that is not active at the head of the list. For its thread.
    #[cold]
    fn enlist(&self, record: &CachePadded<Record<T>>) {
        record.active.store(true, Ordering::Relaxed);
        let link = ptr::from_ref(record).cast_mut();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            record.next.store(head, Ordering::Relaxed);
            // Release: the record's content and link were written before. Pairs with the Acquire in `listed`.
            match self.head.compare_exchange_weak(head, link, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Returns the active records, in the order of the list. The caller holds the combiner's lock.
    fn listed(&self) -> impl Iterator<Item = &CachePadded<Record<T>>> {
        let mut next = self.head.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: records are freed with the structure only.
            let record = unsafe { next.as_ref() }?;
            // Read before the caller sees the record: a record that the caller removes may enter the list again.
            next = record.next.load(Ordering::Relaxed);
            Some(record)
        })
    }

    /// Carries out all posted requests of the list, in the round of this number. The caller holds the combiner's lock.
    fn combine(&self, round: u64) {
        hint::point("a combiner walks");
        let mut guard = PLUS.then(|| self.data.write());
        let data = match &mut guard {
            Some(guard) => &mut **guard,
            // SAFETY: without `PLUS` only the combiner accesses the structure, and this thread holds its lock.
            None => unsafe { &mut *self.data.data_ptr() },
        };
        let mut aside = Vec::new();
        for _ in 0..PASSES {
            self.walk(data, round, &mut aside);
        }
        let mut aside = aside.into_iter();
        if aside.len() > 0 {
            data.write_together(aside.len(), |answer| {
                let record: &CachePadded<Record<T>> = aside.next().expect("one answer each");
                record.reply(answer);
            });
        }
        drop(guard);
        if round.is_multiple_of(self.old) {
            self.clean_up(round);
        }
    }

    /// Carries out the posted requests, and appends the records of those that are set aside to `aside`.
    fn walk<'s>(&'s self, data: &mut T, round: u64, aside: &mut Vec<&'s CachePadded<Record<T>>>) {
        for record in self.listed() {
            if !record.is(POSTED) || record.age.load(Ordering::Relaxed) == round && self.is_aside(record) {
                continue;
            }
            record.age.store(round, Ordering::Relaxed);
            // SAFETY: the record is posted, and this thread holds the combiner's lock.
            let answer = record.request.with(|cell| match unsafe { &*cell } {
                Some(Ok(read)) => Some(data.read(read)),
                Some(Err(write)) if T::is_set_aside(write) => None,
                Some(Err(write)) => Some(data.write(write)),
                None => unreachable!("a posted record has a request"),
            });
            match answer {
                Some(answer) => record.reply(answer),
                None => aside.push(record),
            }
        }
    }

    /// Returns whether the request of a posted record is of the kind that is set aside.
    fn is_aside(&self, record: &Record<T>) -> bool {
        // SAFETY: as in `walk`.
        record.request.with(|cell| matches!(unsafe { &*cell }, Some(Err(write)) if T::is_set_aside(write)))
    }

    /// Removes the records in which no request was found for long. The first record stays, since other threads may put
    /// theirs before it at the same time; so only the combiner changes the links behind it.
    #[cold]
    fn clean_up(&self, round: u64) {
        let mut listed = self.listed();
        let Some(mut before) = listed.next() else { return };
        for record in listed {
            if record.age.load(Ordering::Relaxed) + self.old <= round {
                before.next.store(record.next.load(Ordering::Relaxed), Ordering::Relaxed);
                // Release: pairs with the Acquire in `execute`. The record's thread writes its link only after this.
                record.active.store(false, Ordering::Release);
            } else {
                before = record;
            }
        }
    }
}

impl<T: Sequential, const PLUS: bool, const PASSES: usize> Drop for FlatCombining<T, PLUS, PASSES> {
    fn drop(&mut self) {
        for record in self.records.get_mut().expect("no thread panics with the list").drain(..) {
            // SAFETY: made by `Box::into_raw`, and freed only here. No access is left.
            drop(unsafe { Box::from_raw(record) });
        }
    }
}

/// One thread's access to a [`FlatCombining`] structure.
pub struct Access<'m, T: Sequential, const PLUS: bool, const PASSES: usize> {
    structure: &'m FlatCombining<T, PLUS, PASSES>,
    record: &'m CachePadded<Record<T>>,
}

impl<T: Combine, const PLUS: bool, const PASSES: usize> Access<'_, T, PLUS, PASSES> {
    /// Carries out an operation: `Ok` is a read, `Err` a change.
    #[inline]
    pub fn execute(&mut self, operation: Result<T::Read, T::Write>) -> T::Response {
        match operation {
            Ok(read) if PLUS => self.structure.data.read().read(&read),
            operation => self.combined(operation),
        }
    }

    fn combined(&mut self, operation: Result<T::Read, T::Write>) -> T::Response {
        let Self { structure, record } = self;
        // SAFETY: the record is empty, so its cells belong to this thread.
        record.request.with_mut(|cell| unsafe { *cell = Some(operation) });
        // Release: pairs with the Acquire of `is`.
        record.state.store(POSTED, Ordering::Release);
        let backoff = Backoff::new();
        loop {
            // A combiner may remove the record at any time, so this is checked again and again. Acquire: pairs with the
            // Release in `clean_up`.
            if !record.active.load(Ordering::Acquire) {
                structure.enlist(record);
            }
            if let Some(mut rounds) = structure.lock.try_lock() {
                let rounds: &mut u64 = &mut rounds;
                *rounds += 1;
                structure.combine(*rounds);
            }
            if record.is(ANSWERED) {
                break;
            }
            backoff.wait();
        }
        // SAFETY: the record is answered, so its cells belong to this thread.
        let answer = record.answer.with_mut(|cell| unsafe { (*cell).take() });
        record.state.store(EMPTY, Ordering::Relaxed);
        answer.expect("an answered record has an answer")
    }
}

#[cfg(test)]
mod tests {
    use archipelago_check::history::Recorder;
    use archipelago_check::linear;
    use archipelago_check::pops::{PopOp, Whole};
    use archipelago_platform::thread;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::rivals::tests::scaled;

    /// A priority queue of numbers below 128, which counts the calls that remove several together.
    #[derive(Default)]
    struct Queue {
        keys: Plain<u128>,
        together: Vec<usize>,
    }

    enum Change {
        Insert(u64),
        DeleteMin,
    }

    impl Queue {
        fn get(&self, key: u64) -> Option<u64> {
            (*self.keys & 1 << key != 0).then_some(key)
        }

        fn delete_min(&mut self) -> Option<u64> {
            let least = (*self.keys != 0).then(|| u64::from(self.keys.trailing_zeros()))?;
            *self.keys &= !(1 << least);
            Some(least)
        }
    }

    impl Sequential for Queue {
        type Read = u64;
        type Write = Change;
        type Response = Option<u64>;

        fn read(&self, key: &u64) -> Option<u64> {
            self.get(*key)
        }

        fn write(&mut self, operation: &Change) -> Option<u64> {
            let Change::Insert(key) = *operation else { unreachable!("it is set aside") };
            let old = self.get(key);
            *self.keys |= 1 << key;
            old
        }
    }

    impl Combine for Queue {
        fn is_set_aside(operation: &Change) -> bool {
            matches!(operation, Change::DeleteMin)
        }

        fn write_together(&mut self, count: usize, mut answer: impl FnMut(Option<u64>)) {
            self.together.push(count);
            (0..count).for_each(|_| answer(self.delete_min()));
        }
    }

    type Scene<const PLUS: bool, const PASSES: usize> =
        (FlatCombining<Queue, PLUS, PASSES>, Recorder<PopOp, Option<u64>>);

    /// Begins with a structure whose records are removed after two rounds without a request.
    fn begin<const PLUS: bool, const PASSES: usize>() -> Scene<PLUS, PASSES> {
        (FlatCombining::with_age(Queue::default(), 2), Recorder::new())
    }

    /// Runs one thread's operations, with a new record every few operations.
    fn act<const PLUS: bool, const PASSES: usize>((shared, recorder): &Scene<PLUS, PASSES>, ops: usize, seed: u64) {
        let (mut log, mut rng) = (recorder.log(), SmallRng::seed_from_u64(seed));
        let mut access = shared.access();
        for at in 0..ops {
            if at % 6 == 5 {
                access = shared.access();
            }
            let key = rng.random_range(0..12);
            let op = match rng.random_range(0..5) {
                0 => PopOp::Get(key),
                1 | 2 => PopOp::First,
                _ => PopOp::Insert(key),
            };
            log.record(op, |op| {
                access.execute(match *op {
                    PopOp::Get(key) => Ok(key),
                    PopOp::Insert(key) => Err(Change::Insert(key)),
                    _ => Err(Change::DeleteMin),
                })
            });
        }
    }

    fn judge<const PLUS: bool, const PASSES: usize>((_, recorder): Scene<PLUS, PASSES>) {
        linear::check(&Whole::default(), recorder.finish().entries()).assert_ok();
    }

    fn histories<const PLUS: bool, const PASSES: usize>() {
        for (threads, ops) in [(3, scaled(400, 12)), (24, scaled(25, 2))] {
            let scene = begin::<PLUS, PASSES>();
            thread::scope(|scope| {
                for number in 0..threads {
                    let scene = &scene;
                    scope.spawn(move || act(scene, ops, number));
                }
            });
            judge(scene);
        }
    }

    /// Also with far more threads than processors, and with records that come and go all the time.
    #[test]
    fn histories_are_linearizable() {
        histories::<false, 1>();
        histories::<true, 1>();
        histories::<false, 2>();
    }

    #[cfg(archipelago_sim)]
    fn schedules<const PLUS: bool, const PASSES: usize>() {
        use archipelago_sim::{Client, Config, Fault, Machine, Point, hunt, run_with};
        let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
        let walks = |nth| Point::Named { name: "a combiner walks".to_owned(), nth };
        let stall = |thread, nth| Fault::Stall { thread: Some(thread), at: walks(nth), for_ns: 200_000 };
        let anywhere = Fault::Stall { thread: None, at: Point::OneIn(200), for_ns: 100_000 };
        for (seeds, faults) in [(200, vec![]), (100, vec![stall(0, 1), stall(1, 2)]), (100, vec![anywhere])] {
            hunt(seeds, |config| {
                let config = Config { faults: faults.clone(), ..config };
                let body = |scene: &Scene<PLUS, PASSES>, client: Client| {
                    act(scene, 9, config.seed << 8 ^ client.index as u64);
                };
                run_with(&machine, &config, 4, begin::<PLUS, PASSES>, body, judge).0
            });
        }
    }

    /// The same test under random schedules of the simulator, with combiners and other threads that stall.
    #[cfg(archipelago_sim)]
    #[test]
    fn schedules_find_nothing() {
        schedules::<false, 1>();
        schedules::<true, 1>();
        schedules::<false, 2>();
    }

    fn post<const PASSES: usize>(access: &Access<'_, Queue, false, PASSES>, operation: Result<u64, Change>) {
        // SAFETY: the record is empty, and of this thread.
        access.record.request.with_mut(|cell| unsafe { *cell = Some(operation) });
        access.record.state.store(POSTED, Ordering::Relaxed);
        access.structure.enlist(access.record);
    }

    fn answer<const PASSES: usize>(access: &Access<'_, Queue, false, PASSES>) -> Option<u64> {
        assert!(access.record.is(ANSWERED));
        // SAFETY: the record is answered, and of this thread.
        access.record.answer.with_mut(|cell| unsafe { (*cell).take() }).expect("an answer")
    }

    fn one_round<const PASSES: usize>() {
        let shared = FlatCombining::<_, false, PASSES>::over(Queue::default());
        let posters = [(); 4].map(|()| shared.access());
        [Change::DeleteMin, Change::Insert(5), Change::DeleteMin, Change::Insert(3)]
            .into_iter()
            .zip(&posters)
            .for_each(|(change, poster)| post(poster, Err(change)));
        assert_eq!(shared.access().execute(Err(Change::DeleteMin)), Some(3), "the list's first record");
        let answers = posters.each_ref().map(answer);
        assert_eq!(answers, [None, None, Some(5), None]);
        assert_eq!(shared.data.read().together, [3]);
    }

    /// A combiner answers all requests of a round. It removes the least keys together, once, and after all insertions,
    /// however often it walks.
    #[test]
    fn a_round_answers_everyone() {
        one_round::<1>();
        one_round::<2>();
    }

    /// A record in which no request was found for long leaves the list, and returns with its next request. The first
    /// record of the list stays.
    #[test]
    fn old_records_leave_the_list_and_return() {
        let shared = FlatCombining::<_, true, 1>::with_age(Queue::default(), 4);
        let [mut rests, mut works] = [(); 2].map(|()| shared.access());
        rests.execute(Err(Change::Insert(7)));
        for round in 0..9 {
            assert_eq!(rests.record.active.load(Ordering::Relaxed), round < 7, "{round}");
            works.execute(Err(Change::Insert(8)));
        }
        assert_eq!(shared.listed().count(), 1);
        assert_eq!(rests.execute(Err(Change::DeleteMin)), Some(7));
        assert_eq!(shared.listed().count(), 2);
        assert_eq!(works.execute(Ok(8)), Some(8));
    }
}
