//! MV-RLU under the weak memory model, in its smallest interesting configurations.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sync --release --test mvrlu_loom`
#![cfg(loom)]
// `Ok(*tx.lock(link)? = value)` says in one line what a body of three would.
#![allow(clippy::unit_arg)]

use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Abort, Domain, Link, Tuning, Tx};

/// All schedules with at most this many preemptions.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(test);
}

struct Pair {
    domain: Domain,
    links: [Link<u64>; 2],
}

impl Pair {
    /// Collected when asked to only: the models are large enough.
    fn new() -> Arc<Self> {
        Self::collected_from(1_000)
    }

    fn collected_from(low_watermark: usize) -> Arc<Self> {
        let tuning = Tuning { low_watermark, dereference_watermark: u32::MAX, concurrent: true };
        let domain = Domain::builder().tuning(tuning).build();
        let links = [domain.alloc(0), domain.alloc(0)];
        Arc::new(Self { domain, links })
    }

    /// One attempt to write both.
    fn write(&self, value: u64) -> Result<(), Abort> {
        self.domain.register().try_update(|tx| {
            *tx.lock(self.links[0])? = value;
            *tx.lock(self.links[1])? = value;
            Ok(())
        })
    }

    /// Reads both, twice, in one section.
    fn read(&self) -> u64 {
        let mut handle = self.domain.register();
        let snapshot = handle.read();
        let [first, second] = self.links.map(|link| *snapshot.get(link));
        assert_eq!(first, second, "torn");
        assert_eq!(*snapshot.get(self.links[0]), first, "changed");
        first
    }
}

/// The same with two versions: a commit waits for readers and writes back.
mod two_versions {
    use super::*;
    use archipelago_sync::{mvrlu::ClockKind, rlu};

    fn write(domain: &rlu::Domain, links: [Link<u64>; 2], value: u64) -> Result<(), Abort> {
        domain.register().try_update(|tx| {
            *tx.lock(links[0])? = value;
            *tx.lock(links[1])? = value;
            Ok(())
        })
    }

    fn read(domain: &rlu::Domain, links: [Link<u64>; 2]) -> u64 {
        let mut handle = domain.register();
        let snapshot = handle.read();
        let [first, second] = links.map(|link| *snapshot.get(link));
        assert_eq!(first, second, "torn");
        first
    }

    fn commits_against_read(deferred: usize, commits: u64) {
        model(2, move || {
            let domain = rlu::Domain::new(ClockKind::Logical, deferred);
            let links = [domain.alloc(0), domain.alloc(0)];
            let writer = {
                let domain = domain.clone();
                thread::spawn(move || (1..=commits).filter(|value| write(&domain, links, *value).is_ok()).count())
            };
            read(&domain, links);
            assert!(writer.join().unwrap() > 0);
            assert_ne!(read(&domain, links), 0);
        });
    }

    #[test]
    fn written_back_at_once() {
        commits_against_read(0, 2);
    }

    #[test]
    fn written_back_later() {
        commits_against_read(1, 2);
    }

    /// Adds to both, as long as two attempts are enough: without an end loom would follow the repetitions for ever. An
    /// attempt that meets a deferred commit writes that back before the next one. Whether it added.
    fn add(domain: &rlu::Domain, links: [Link<u64>; 2]) -> bool {
        let mut attempts = 0;
        let add = |tx: &mut Tx<'_>| {
            attempts += 1;
            if attempts > 2 {
                return Ok(false);
            }
            links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1))?;
            Ok(true)
        };
        domain.register().update(add).unwrap()
    }

    /// Commits that were put off, by a thread that has gone since, are written back by a stranger while another reads.
    #[test]
    fn a_stranger_writes_back_against_read() {
        model(2, || {
            let domain = rlu::Domain::new(ClockKind::Logical, 1);
            let links = [domain.alloc(0), domain.alloc(0)];
            write(&domain, links, 1).unwrap();
            let stranger = {
                let domain = domain.clone();
                thread::spawn(move || add(&domain, links))
            };
            let mut handle = domain.register();
            for _ in 0..2 {
                let snapshot = handle.read();
                let [first, second] = links.map(|link| *snapshot.get(link));
                assert_eq!(first, second, "torn");
                assert_eq!(*snapshot.get(links[0]), first, "changed");
            }
            drop(handle);
            let added = stranger.join().unwrap();
            assert_eq!(read(&domain, links), 1 + u64::from(added));
        });
    }

    /// The holder of a deferred commit goes on, or goes, while a stranger writes its log back.
    #[test]
    fn a_stranger_writes_back_against_the_holder() {
        for (stays, preemptions) in [(true, 1), (false, 2)] {
            model(preemptions, move || {
                let domain = rlu::Domain::new(ClockKind::Logical, 1);
                let links = [domain.alloc(0), domain.alloc(0)];
                let holder = {
                    let domain = domain.clone();
                    thread::spawn(move || {
                        let first = add(&domain, links);
                        u64::from(first) + u64::from(stays && add(&domain, links))
                    })
                };
                let own = u64::from(add(&domain, links));
                let added = own + holder.join().unwrap();
                assert!(added > 0);
                assert_eq!(read(&domain, links), added);
            });
        }
    }

    /// Of two writers one may meet objects that the other has half written back.
    #[test]
    fn two_writers_against_read() {
        model(1, || {
            let domain = rlu::Domain::new(ClockKind::Logical, 0);
            let links = [domain.alloc(0), domain.alloc(0)];
            let writers = [1, 2].map(|value| {
                let domain = domain.clone();
                thread::spawn(move || write(&domain, links, value).is_ok())
            });
            read(&domain, links);
            let committed = writers.map(|writer| writer.join().unwrap());
            assert!(committed.contains(&true));
            assert_ne!(read(&domain, links), 0);
        });
    }
}

/// A commit, which the reader may have to help, is seen whole or not at all, and by whoever begins after it.
#[test]
fn commit_against_read() {
    model(3, || {
        let pair = Pair::new();
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || pair.write(1).unwrap())
        };
        pair.read();
        writer.join().unwrap();
        assert_eq!(pair.read(), 1);
    });
}

/// A reader that has helped to stamp a commit sees all of it in its next section, also what it has missed before.
#[test]
fn helped_commit_is_seen_whole_afterwards() {
    model(3, || {
        let pair = Pair::new();
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || pair.write(1).unwrap())
        };
        let mut handle = pair.domain.register();
        handle.read().get(pair.links[0]);
        let snapshot = handle.read();
        let [first, second] = pair.links.map(|link| *snapshot.get(link));
        assert_eq!(first, second, "torn");
        drop(snapshot);
        writer.join().unwrap();
    });
}

/// Who locks what another has let go of sees its value.
#[test]
fn updates_add_up() {
    model(2, || {
        let pair = Pair::new();
        let add = |pair: &Pair| {
            let add = |tx: &mut Tx<'_>| {
                *tx.lock(pair.links[0])? += 1;
                Ok(())
            };
            u64::from(pair.domain.register().try_update(add).is_ok())
        };
        let other = {
            let pair = pair.clone();
            thread::spawn(move || add(&pair))
        };
        let own = add(&pair);
        let added = own + other.join().unwrap();
        assert_eq!(*pair.domain.register().read().get(pair.links[0]), added);
    });
}

/// Two commits; the reader may see either of them, or none, but no mixture.
#[test]
fn two_commits_against_read() {
    model(2, || {
        let pair = Pair::new();
        let writers = [1, 2].map(|value| {
            let pair = pair.clone();
            thread::spawn(move || pair.write(value).is_ok())
        });
        pair.read();
        let committed = writers.map(|writer| writer.join().unwrap());
        assert!(committed.contains(&true));
        assert_ne!(pair.read(), 0);
    });
}

/// The writer writes back what it has committed while another reads.
#[test]
fn write_back_against_read() {
    model(2, || {
        let pair = Pair::new();
        pair.write(1).unwrap();
        let collector = {
            let pair = pair.clone();
            thread::spawn(move || pair.domain.register().collect())
        };
        assert_eq!(pair.read(), 1);
        collector.join().unwrap();
        assert_eq!(pair.read(), 1);
        // The reader may have held up the first collection.
        pair.domain.register().collect();
        assert_eq!(pair.domain.stats().versions, 0);
    });
}

/// The log of a handle that is dropped is collected by another, whenever that comes by.
#[test]
fn exit_against_collection() {
    model(2, || {
        let pair = Pair::new();
        let leaver = {
            let pair = pair.clone();
            thread::spawn(move || pair.write(1).unwrap())
        };
        pair.domain.register().collect();
        leaver.join().unwrap();
        pair.domain.register().collect();
        assert_eq!(pair.domain.stats().versions, 0);
        assert_eq!(pair.read(), 1);
    });
}

/// What an aborted transaction has linked is never seen, although a reader may be looking at it while it goes.
#[test]
fn abort_against_read() {
    model(2, || {
        let pair = Pair::new();
        let aborter = {
            let pair = pair.clone();
            thread::spawn(move || {
                let mut handle = pair.domain.register();
                let aborted = handle.try_update(|tx| {
                    *tx.lock(pair.links[0])? = 1;
                    tx.lock_const(pair.links[1])?;
                    Err::<(), Abort>(Abort::Conflict)
                });
                assert_eq!(aborted, Err(Abort::Conflict));
                handle.collect();
            })
        };
        assert_eq!(pair.read(), 0);
        aborter.join().unwrap();
        pair.write(1).unwrap();
        assert_eq!(pair.read(), 1);
    });
}

/// A version in the middle of a chain is pruned while a reader, for whom it is too new, may be walking over it.
#[test]
fn pruning_against_read() {
    model(1, || {
        let pair = Pair::collected_from(96);
        let reader = {
            let pair = pair.clone();
            thread::spawn(move || {
                let mut handle = pair.domain.register();
                let snapshot = handle.read();
                let first = *snapshot.get(pair.links[0]);
                assert_eq!(*snapshot.get(pair.links[0]), first, "changed");
            })
        };
        let mut writer = pair.domain.register();
        for value in 1..=3 {
            writer.update(|tx| Ok(*tx.lock(pair.links[0])? = value)).unwrap();
        }
        writer.collect();
        reader.join().unwrap();
    });
}

/// Of two transactions that each read what the other writes, serializable ones are not both committed.
#[test]
fn write_skew_is_prevented() {
    model(2, || {
        let pair = Pair::new();
        let attempts = [0, 1].map(|me| {
            let pair = pair.clone();
            thread::spawn(move || {
                let mut first = true;
                let mut handle = pair.domain.register();
                let set = |tx: &mut Tx<'_>| {
                    // One attempt; without it loom would follow the repetitions for ever.
                    if core::mem::take(&mut first) && *tx.get(pair.links[1 - me]) == 0 {
                        *tx.lock(pair.links[me])? = 1;
                    }
                    Ok(())
                };
                handle.update_serializable(set).unwrap();
            })
        });
        for attempt in attempts {
            attempt.join().unwrap();
        }
        let mut handle = pair.domain.register();
        let snapshot = handle.read();
        assert!(*snapshot.get(pair.links[0]) + *snapshot.get(pair.links[1]) <= 1);
    });
}

/// Two logs have versions in the middle of one chain; their owners prune at the same time, and a snapshot that is held sees
/// the oldest. (That one pruner disturbs no reader is `pruning_against_read`; three threads are more than loom gets through.)
#[test]
fn two_pruners_at_one_chain() {
    model(1, || {
        let pair = Pair::collected_from(96);
        let link = pair.links[0];
        let mut held = pair.domain.register();
        let snapshot = held.read();
        let mut writers = [pair.domain.register(), pair.domain.register()];
        for value in 1..=4 {
            writers[value as usize % 2].update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
        }
        let [mut one, mut two] = writers;
        let pruner = thread::spawn(move || one.collect());
        two.collect();
        assert_eq!(*snapshot.get(link), 0);
        pruner.join().unwrap();
        assert_eq!(*snapshot.get(link), 0);
        drop(snapshot);
        assert_eq!(*pair.domain.register().read().get(link), 4);
    });
}

/// An object that was made and retired while a snapshot is held goes, although a reader may have found it.
#[test]
fn a_mark_is_pruned_against_read() {
    model(1, || {
        let tuning = Tuning { low_watermark: 64, dereference_watermark: u32::MAX, concurrent: true };
        let domain = Arc::new(Domain::builder().tuning(tuning).build());
        let root = domain.alloc(None::<Link<u64>>);
        let before = domain.stats().objects;
        let mut held = domain.register();
        let snapshot = held.read();
        let mut writer = domain.register();
        let put = |tx: &mut Tx<'_>| {
            // SAFETY: not used after an abort.
            let new = unsafe { tx.alloc(7) };
            tx.lock(root).map(|root| *root = Some(new))
        };
        // The object is born after the snapshot's time, not at it.
        writer.update(|tx| Ok(*tx.lock(root)? = None)).unwrap();
        writer.update(put).unwrap();
        let reader = {
            let domain = domain.clone();
            thread::spawn(move || {
                let mut handle = domain.register();
                let snapshot = handle.read();
                if let Some(link) = *snapshot.get(root) {
                    assert_eq!(*snapshot.get(link), 7);
                }
            })
        };
        let take = |tx: &mut Tx<'_>| {
            let old = tx.lock(root)?.take().unwrap();
            // SAFETY: only the root has had a link to it.
            unsafe { tx.retire(old) }
        };
        writer.update(take).unwrap();
        writer.collect();
        assert!(snapshot.get(root).is_none());
        reader.join().unwrap();
        writer.collect();
        assert_eq!(domain.stats().objects, before, "what was put there is still there");
    });
}

/// What only locked comes to be changed: another copy takes the place of the first, which a reader may have met.
#[test]
fn locking_for_a_change_what_was_locked_against_read() {
    model(2, || {
        let pair = Pair::new();
        let writer = {
            let pair = pair.clone();
            thread::spawn(move || {
                let mut handle = pair.domain.register();
                let write = |tx: &mut Tx<'_>| {
                    tx.lock_const(pair.links[0])?;
                    *tx.lock(pair.links[1])? = 1;
                    *tx.lock(pair.links[0])? = 1;
                    Ok(())
                };
                handle.try_update(write).unwrap();
            })
        };
        pair.read();
        writer.join().unwrap();
        assert_eq!(pair.read(), 1);
    });
}

/// What a handle has committed last is collected by another thread while the handle goes on.
#[test]
fn another_thread_takes_what_was_committed_last() {
    model(1, || {
        let pair = Pair::new();
        let mut writer = pair.domain.register();
        let mut write = move |value, links: [Link<u64>; 2]| {
            let write = |tx: &mut Tx<'_>| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = value));
            writer.try_update(write).unwrap();
            writer.counts()
        };
        write(1, pair.links);
        let collector = {
            let pair = pair.clone();
            thread::spawn(move || pair.domain.register().collect())
        };
        let links = pair.links;
        write(2, links);
        collector.join().unwrap();
        assert_eq!(pair.read(), 2);
        pair.domain.register().collect();
        assert_eq!(pair.domain.stats().versions, 0);
    });
}
