//! The word of a set of MV-RLU: the stamp of all versions of one commit, or the state of its drawing.
//!
//! - `LINKING`: the set's versions are being linked, or a reader has set the word back. The stamp will be drawn after
//!   the word has changed.
//! - `OPEN`: all versions are linked, and the commit can no longer fail. A reader that meets the set draws the stamp
//!   and stores it, so that it is above the reader's moment. (The paper's readers guess, and may see half of a set: the
//!   stamp can have been drawn before the reader began, and stored after the reader loaded the word.)
//! - `CHECK`, with a stamp once it is drawn: the reads are being validated. A reader that cannot be serialized before
//!   the stamp sets the word back to `LINKING`, and the writer draws again.
//! - `FIRM`, with a stamp once it is drawn: as `CHECK`, but the reader waits. The word is `FIRM` while the log is
//!   written, since the log must have the stamp first. It is also `FIRM` after a few attempts, so that readers do not
//!   delay a writer forever.
//! - `NEVER`: the commit has failed.
//! - Otherwise: the stamp.
//!
//! *A word's answer is final.* A reader with a moment gets one of two answers from the word. The first is that the set
//! is before the moment: its stamp is known and not above the moment. The second is that the set will never be before
//! the moment: its stamp is above the moment, the set has failed, or its stamp will be drawn after the reader's load of
//! the word.
//!
//! *No fence* is needed between a commit's links, its store of the word, and its draw, nor between its draw and its
//! loads of other sets' words: the clock orders the draw after the former and before the latter (see [`Time`]).

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;

const LINKING: u64 = 0;
const OPEN: u64 = 1 << 62;
const CHECK: u64 = 1 << 61;
const FIRM: u64 = 1 << 60;
const NEVER: u64 = FIRM - 1;
/// The bits of the states above. A word without these bits is a stamp.
const STATE: u64 = OPEN | CHECK | FIRM;

/// The number of attempts of a commit that readers may set back to `LINKING`. Later attempts are `FIRM`.
const ATTEMPTS: u32 = 3;

/// The clock that orders commits and readers, with the guarantees of `archipelago_sync::clock`.
pub(crate) trait Time {
    /// Draws the stamp of a commit. It is above the moments of all readers that have missed the commit's earlier
    /// stores, and above the stamps of all commits that missed these stores after their [`settle`](Self::settle).
    fn draw(&self) -> u64;

    /// Waits until all readers that begin later have moments at or above `stamp`.
    fn settle(&self, stamp: u64);

    /// Returns whether a reader of `moment` sees a version with this stamp. If so, all readers that begin after the
    /// return see it, too.
    fn shows(&self, stamp: u64, moment: u64) -> bool;
}

/// The word of a set.
#[derive(Default)]
pub struct Set(AtomicU64);

impl Set {
    /// Returns the set's rank, which orders sets with the same stamp. If two such sets' commits ask each other's words,
    /// one precedes the other.
    pub(crate) fn rank(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Returns whether the set has a stamp up to a moment. If it returns false, the set never gets such a stamp: the
    /// call makes sure of it. The caller is a reader, whose rank is above all others, or a commit.
    pub(crate) fn is_before(&self, (moment, last): (u64, usize), time: &impl Time) -> bool {
        let backoff = Backoff::new();
        let change = |from, to| self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        loop {
            let word = self.0.load(Ordering::Acquire);
            let stamp = word & !STATE;
            match word & STATE {
                OPEN => _ = change(OPEN, time.draw()),
                _ if (stamp, self.rank()) > (moment, last) => return false,
                0 => return word != LINKING && time.shows(stamp, moment),
                CHECK if change(word, LINKING) => return false,
                _ => backoff.wait(),
            }
        }
    }

    /// Draws and stores the stamp of a set that is linked, and whose commit cannot fail. Returns the stamp, which a
    /// reader may have drawn.
    pub(crate) fn stamp(&self, time: &impl Time) -> u64 {
        self.0.store(OPEN, Ordering::Release);
        let drawn = time.draw();
        point("txn::drawn");
        let stamp =
            self.0.compare_exchange(OPEN, drawn, Ordering::AcqRel, Ordering::Acquire).map_or_else(|met| met, |_| drawn);
        time.settle(stamp);
        stamp
    }

    /// Draws the stamp of a set that is linked, validates the commit's reads as of the stamp (`judge`), and stores the
    /// stamp once the log has it. If `is_firm`, readers do not make the commit draw again. After an error the set has
    /// no stamp, and the caller calls [`fail`](Self::fail).
    pub(crate) fn stamp_valid<E>(
        &self,
        is_firm: bool,
        time: &impl Time,
        mut judge: impl FnMut(u64) -> Result<(), E>,
        log: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        for attempt in 0.. {
            let state = if is_firm || attempt == ATTEMPTS { FIRM } else { CHECK };
            self.0.store(state, Ordering::Release);
            let stamp = time.draw();
            point("txn::drawn");
            if self.0.compare_exchange(state, state | stamp, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            // A set that this commit misses, since it is linked from here on, draws a later stamp: see `Time::draw`.
            time.settle(stamp);
            judge(stamp)?;
            if state == FIRM {
                log(stamp)?;
                self.0.store(stamp, Ordering::Release);
                return Ok(stamp);
            }
            if self.0.compare_exchange(state | stamp, stamp, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(stamp);
            }
        }
        unreachable!("readers do not set back what is firm")
    }

    /// Ends a set whose commit has failed.
    pub(crate) fn fail(&self) {
        self.0.store(NEVER, Ordering::Release);
    }
}

#[cfg(test)]
mod clocked {
    use archipelago_sync::clock::Clock;

    impl super::Time for Clock {
        fn draw(&self) -> u64 {
            self.stamp()
        }

        fn settle(&self, stamp: u64) {
            Clock::settle(self, stamp);
        }

        fn shows(&self, stamp: u64, moment: u64) -> bool {
            let shows = stamp <= moment;
            if shows {
                self.observe(stamp, moment);
            }
            shows
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use archipelago_sync::clock::{Clock, ClockKind};

    use super::*;

    /// The processors' clocks may give two commits the same stamp.
    #[test]
    fn of_equal_stamps_one_is_the_first() {
        let (clock, sets) = (Clock::new(ClockKind::Logical), [Set(AtomicU64::new(7)), Set(AtomicU64::new(7))]);
        let is_before = |one: usize, other: usize| sets[one].is_before((7, sets[other].rank()), &clock);
        assert_ne!(is_before(0, 1), is_before(1, 0));
        assert!(sets[0].is_before((7, usize::MAX), &clock), "a reader sees both");
    }
}

#[cfg(all(test, loom))]
mod model {
    use core::ops::Deref;

    use archipelago_platform::model::model;
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;
    use archipelago_sync::clock::{Clock, ClockKind};

    use super::*;
    use crate::words::head::{Latch, Words};

    /// A record with an old version, to which one commit links a new version.
    struct Linked(Words<u64>);

    // SAFETY: the versions are addresses, which no model dereferences.
    unsafe impl Send for Linked {}
    // SAFETY: as above.
    unsafe impl Sync for Linked {}

    impl Deref for Linked {
        type Target = Words<u64>;

        fn deref(&self) -> &Words<u64> {
            &self.0
        }
    }

    const OLD: *mut u64 = core::ptr::without_provenance_mut(1 << 4);
    const NEW: *mut u64 = core::ptr::without_provenance_mut(1 << 5);

    impl Linked {
        fn link(&self) {
            Latch::of(self).expect("no thread unlinks it").replace(NEW);
        }

        fn is_linked(&self) -> bool {
            self.head().version() == NEW
        }

        /// Returns whether a reader, or a commit with a stamp, finds the new version to be before its moment.
        fn shows(&self, set: &Set, moment: (u64, usize), clock: &Clock) -> bool {
            self.is_linked() && set.is_before(moment, clock)
        }
    }

    /// Two records and the sets of two commits.
    struct World {
        clock: Clock,
        records: [Linked; 2],
        sets: [Set; 2],
    }

    impl World {
        fn new() -> Arc<Self> {
            let records = [(); 2].map(|()| Linked(Words::held(OLD)));
            Arc::new(Self { clock: Clock::new(ClockKind::Logical), records, sets: Default::default() })
        }

        /// Commits the set 0, whose versions are at both records. The commit has read nothing that changes.
        fn commit_both(&self, way: Way) -> u64 {
            self.records.iter().for_each(Linked::link);
            let stamped = match way {
                Way::Open => Ok(self.sets[0].stamp(&self.clock)),
                Way::Check => self.sets[0].stamp_valid(false, &self.clock, |_| Ok::<_, ()>(()), |_| Ok(())),
                Way::Firm => self.sets[0].stamp_valid(true, &self.clock, |_| Ok::<_, ()>(()), |_| Ok(())),
            };
            stamped.expect("the commit is valid")
        }

        /// Runs the commit `me`, which has read the old version of the other commit's record and writes its own record.
        /// Returns the stamp.
        fn commit_skewed(&self, me: usize) -> Option<u64> {
            let (set, other) = (&self.sets[me], 1 - me);
            self.records[me].link();
            let judge = |stamp| {
                let replaced = self.records[other].shows(&self.sets[other], (stamp, set.rank()), &self.clock);
                if replaced { Err(()) } else { Ok(()) }
            };
            let stamp = set.stamp_valid(false, &self.clock, judge, |_| Ok(())).ok();
            if stamp.is_none() {
                set.fail();
            }
            stamp
        }

        /// Reads both records as of one moment. Returns the moment and whether the reader has seen each new version.
        fn read(&self) -> (u64, [bool; 2]) {
            let moment = self.clock.begin();
            let see = |record: &Linked| record.shows(&self.sets[0], (moment, usize::MAX), &self.clock);
            (moment, [see(&self.records[0]), see(&self.records[1])])
        }
    }

    #[derive(Clone, Copy)]
    enum Way {
        Open,
        Check,
        Firm,
    }

    /// Claim: a reader sees all versions of a set or none, and it sees them if and only if the stamp is not above the
    /// reader's moment.
    fn all_or_nothing(way: Way) {
        model(3, move || {
            let world = World::new();
            let writer = thread::spawn({
                let world = world.clone();
                move || world.commit_both(way)
            });
            let (moment, seen) = world.read();
            let stamp = writer.join().expect("no panic");
            assert_eq!(seen, [stamp <= moment; 2], "stamp {stamp}, moment {moment}");
        });
    }

    #[test]
    fn a_reader_sees_all_of_an_open_set_or_nothing() {
        all_or_nothing(Way::Open);
    }

    #[test]
    fn a_reader_sees_all_of_a_checked_set_or_nothing() {
        all_or_nothing(Way::Check);
    }

    #[test]
    fn a_reader_sees_all_of_a_firm_set_or_nothing() {
        all_or_nothing(Way::Firm);
    }

    /// Claim: of two commits that have each read what the other replaces, exactly one succeeds.
    #[test]
    fn one_of_two_skewed_commits_succeeds() {
        model(3, || {
            let world = World::new();
            let other = thread::spawn({
                let world = world.clone();
                move || world.commit_skewed(1)
            });
            let stamps = [world.commit_skewed(0), other.join().expect("no panic")];
            assert_eq!(stamps.iter().flatten().count(), 1, "stamps {stamps:?}");
        });
    }

    /// Claim: if a commit succeeds, the versions that it has read are the newest at its stamp: a set that replaces them
    /// has a greater stamp.
    #[test]
    fn what_a_commit_has_read_is_replaced_later() {
        model(3, || {
            let world = World::new();
            let other = thread::spawn({
                let world = world.clone();
                move || {
                    world.records[0].link();
                    world.sets[0].stamp(&world.clock)
                }
            });
            let mine = world.commit_skewed(1);
            let replacing = other.join().expect("no panic");
            assert!(mine.is_none_or(|mine| mine < replacing), "stamps {mine:?}, {replacing}");
        });
    }
}
