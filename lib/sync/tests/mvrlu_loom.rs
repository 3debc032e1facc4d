//! MV-RLU under the weak memory model, in its smallest interesting configurations.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sync --profile model --test mvrlu_loom --target-dir target/loom`
//!
//! Each model has been tested with planted faults: `proof/mutants/mvrlu`.
#![cfg(loom)]
// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Abort, Domain, Handle, Link, Tuning, Tx};

/// Runs `work` in another thread, with a handle that is made and dropped in this one. So loom explores the handles'
/// operations only, and not their registration and drop. Registration and drop are tested by `exit_against_collection`.
fn beside<R: 'static>(
    mut handle: Handle,
    work: impl FnOnce(&mut Handle) -> R + 'static,
) -> thread::JoinHandle<(R, Handle)> {
    thread::spawn(move || (work(&mut handle), handle))
}

/// The size of a copy in bytes in the model world, where atomics and watches are larger.
const COPY: usize = 128;

struct Pair {
    domain: Domain,
    links: [Link<u64>; 2],
}

impl Pair {
    /// Makes a pair that is scanned only on request: the models are large enough without automatic scans. Handles glance.
    fn new() -> Arc<Self> {
        Self::collected_from(1_000)
    }

    fn collected_from(low_watermark: usize) -> Arc<Self> {
        let tuning = Tuning { low_watermark, dereference_watermark: u32::MAX, concurrent: true };
        let domain = Domain::builder().tuning(tuning).build();
        let links = [domain.alloc(0), domain.alloc(0)];
        Arc::new(Self { domain, links })
    }

    fn handle(&self) -> Handle {
        self.domain.register()
    }

    /// Makes one attempt to write both.
    fn write(&self, handle: &mut Handle, value: u64) -> Result<(), Abort> {
        write(handle, self.links, value)
    }

    /// Reads both, twice, in one section.
    fn read(&self, handle: &mut Handle) -> u64 {
        let snapshot = handle.read();
        let [first, second] = self.links.map(|link| *snapshot.get(link));
        assert_eq!(first, second, "torn");
        assert_eq!(*snapshot.get(self.links[0]), first, "changed");
        first
    }
}

fn write(handle: &mut Handle, links: [Link<u64>; 2], value: u64) -> Result<(), Abort> {
    handle.try_update(|tx| {
        *tx.lock(links[0])? = value;
        *tx.lock(links[1])? = value;
        Ok(())
    })
}

/// The models of domains with two versions per object (RLU): a commit waits for readers and writes back.
mod two_versions {
    use super::*;
    use archipelago_sync::{mvrlu::ClockKind, rlu};

    fn read(handle: &mut Handle, links: [Link<u64>; 2]) -> u64 {
        let snapshot = handle.read();
        let [first, second] = links.map(|link| *snapshot.get(link));
        assert_eq!(first, second, "torn");
        first
    }

    fn commits_against_read(deferred: usize, commits: u64) {
        model(2, move || {
            let domain = rlu::Domain::new(ClockKind::Logical, deferred);
            let links = [domain.alloc(0), domain.alloc(0)];
            let mut handle = domain.register();
            let writer = beside(domain.register(), move |handle| {
                (1..=commits).filter(|value| write(handle, links, *value).is_ok()).count()
            });
            read(&mut handle, links);
            assert!(writer.join().unwrap().0 > 0);
            assert_ne!(read(&mut handle, links), 0);
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

    /// Adds one to both objects. Makes at most two attempts: without this limit, loom would explore repetitions for
    /// ever. An attempt that meets a deferred commit writes this commit back before the next attempt. Returns whether
    /// an attempt succeeded.
    fn add(handle: &mut Handle, links: [Link<u64>; 2]) -> bool {
        let mut attempts = 0;
        let add = |tx: &mut Tx<'_>| {
            attempts += 1;
            if attempts > 2 {
                return Ok(false);
            }
            links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1))?;
            Ok(true)
        };
        handle.update(add).unwrap()
    }

    /// A thread has deferred the write-back of its commits and dropped its handle. Another thread writes the commits
    /// back while a third one reads.
    #[test]
    fn a_stranger_writes_back_against_read() {
        model(2, || {
            let domain = rlu::Domain::new(ClockKind::Logical, 1);
            let links = [domain.alloc(0), domain.alloc(0)];
            write(&mut domain.register(), links, 1).unwrap();
            let mut handle = domain.register();
            let stranger = beside(domain.register(), move |handle| add(handle, links));
            for _ in 0..2 {
                let snapshot = handle.read();
                let [first, second] = links.map(|link| *snapshot.get(link));
                assert_eq!(first, second, "torn");
                assert_eq!(*snapshot.get(links[0]), first, "changed");
            }
            let (added, _stranger) = stranger.join().unwrap();
            assert_eq!(read(&mut handle, links), 1 + u64::from(added));
        });
    }

    /// The thread that deferred a commit continues, or drops its handle, while another thread writes its log back.
    #[test]
    fn a_stranger_writes_back_against_the_holder() {
        for (stays, preemptions) in [(true, 1), (false, 2)] {
            model(preemptions, move || {
                let domain = rlu::Domain::new(ClockKind::Logical, 1);
                let links = [domain.alloc(0), domain.alloc(0)];
                let mut handle = domain.register();
                let holder = beside(domain.register(), move |handle| {
                    let first = add(handle, links);
                    u64::from(first) + u64::from(stays && add(handle, links))
                });
                let own = u64::from(add(&mut handle, links));
                let (added, _holder) = holder.join().unwrap();
                assert!(own + added > 0);
                assert_eq!(read(&mut handle, links), own + added);
            });
        }
    }

    /// One of two writers may meet objects that the other has half written back.
    #[test]
    fn two_writers_against_read() {
        model(1, || {
            let domain = rlu::Domain::new(ClockKind::Logical, 0);
            let links = [domain.alloc(0), domain.alloc(0)];
            let mut handle = domain.register();
            let writers =
                [1, 2].map(|value| beside(domain.register(), move |handle| write(handle, links, value).is_ok()));
            read(&mut handle, links);
            let committed = writers.map(|writer| writer.join().unwrap());
            assert!(committed.iter().any(|(committed, _)| *committed));
            assert_ne!(read(&mut handle, links), 0);
        });
    }
}

/// A reader sees all of a commit or nothing of it. It may have to help the commit by setting its stamp. A thread that
/// begins after the commit sees it.
#[test]
fn commit_against_read() {
    model(3, || {
        let pair = Pair::new();
        let mut handle = pair.handle();
        let writer = {
            let pair = pair.clone();
            beside(pair.handle(), move |handle| pair.write(handle, 1).unwrap())
        };
        pair.read(&mut handle);
        let _writer = writer.join().unwrap();
        assert_eq!(pair.read(&mut handle), 1);
    });
}

/// A reader that has helped to stamp a commit sees all of it in its next section, including the part that it missed
/// before.
#[test]
fn helped_commit_is_seen_whole_afterwards() {
    model(3, || {
        let pair = Pair::new();
        let mut handle = pair.handle();
        let writer = {
            let pair = pair.clone();
            beside(pair.handle(), move |handle| pair.write(handle, 1).unwrap())
        };
        handle.read().get(pair.links[0]);
        let snapshot = handle.read();
        let [first, second] = pair.links.map(|link| *snapshot.get(link));
        assert_eq!(first, second, "torn");
        drop(snapshot);
        writer.join().unwrap();
    });
}

/// A thread that locks an object after another thread has unlocked it sees the value that the other thread wrote.
#[test]
fn updates_add_up() {
    model(2, || {
        let pair = Pair::new();
        let link = pair.links[0];
        let add = move |handle: &mut Handle| u64::from(handle.try_update(|tx| Ok(*tx.lock(link)? += 1)).is_ok());
        let mut handle = pair.handle();
        let other = beside(pair.handle(), add);
        let own = add(&mut handle);
        let (added, _other) = other.join().unwrap();
        assert_eq!(*handle.read().get(link), own + added);
    });
}

/// Two commits. The reader may see either of them or none, but no mixture.
#[test]
fn two_commits_against_read() {
    model(2, || {
        let pair = Pair::new();
        let mut handle = pair.handle();
        let writers = [1, 2].map(|value| {
            let pair = pair.clone();
            beside(pair.handle(), move |handle| pair.write(handle, value).is_ok())
        });
        pair.read(&mut handle);
        let committed = writers.map(|writer| writer.join().unwrap());
        assert!(committed.iter().any(|(committed, _)| *committed));
        assert_ne!(pair.read(&mut handle), 0);
    });
}

/// The writer writes back its commits while another thread reads.
#[test]
fn write_back_against_read() {
    model(2, || {
        let pair = Pair::new();
        let [mut handle, mut collector] = [pair.handle(), pair.handle()];
        pair.write(&mut collector, 1).unwrap();
        let collector = beside(collector, Handle::collect);
        assert_eq!(pair.read(&mut handle), 1);
        let _collector = collector.join().unwrap();
        assert_eq!(pair.read(&mut handle), 1);
        // The reader may have delayed the first collection.
        handle.collect();
        assert_eq!(pair.domain.stats().versions, 0);
    });
}

/// A commit that was made after a section began is not written back before the section ends.
#[test]
fn write_back_against_an_older_section() {
    model(2, || {
        let pair = Pair::new();
        let [mut handle, mut collector] = [pair.handle(), pair.handle()];
        let snapshot = handle.read();
        pair.write(&mut collector, 1).unwrap();
        let collector = beside(collector, Handle::collect);
        assert_eq!(pair.links.map(|link| *snapshot.get(link)), [0, 0]);
        drop(snapshot);
        let _collector = collector.join().unwrap();
        assert_eq!(pair.read(&mut handle), 1);
    });
}

/// The log of a dropped handle is collected by another handle, at whatever moment this other handle collects.
#[test]
fn exit_against_collection() {
    model(2, || {
        let pair = Pair::new();
        let [mut handle, mut leaver] = [pair.handle(), pair.handle()];
        let link = pair.links[0];
        let leaver = thread::spawn(move || {
            leaver.try_update(|tx| Ok(*tx.lock(link)? = 1)).unwrap();
            drop(leaver);
        });
        handle.collect();
        leaver.join().unwrap();
        handle.collect();
        assert_eq!(pair.domain.stats().versions, 0);
        assert_eq!(*handle.read().get(link), 1);
    });
}

/// No reader sees the values of the copies that an aborted transaction has linked, although a reader may be walking
/// over these copies while they are unlinked.
#[test]
fn abort_against_read() {
    model(3, || {
        let pair = Pair::new();
        let mut handle = pair.handle();
        let aborter = {
            let pair = pair.clone();
            beside(pair.handle(), move |handle| {
                let aborted = handle.try_update(|tx| {
                    *tx.lock(pair.links[0])? = 1;
                    tx.lock_const(pair.links[1])?;
                    Err::<(), Abort>(Abort::Conflict)
                });
                assert_eq!(aborted, Err(Abort::Conflict));
                handle.collect();
            })
        };
        assert_eq!(pair.read(&mut handle), 0);
        let _aborter = aborter.join().unwrap();
        pair.write(&mut handle, 1).unwrap();
        assert_eq!(pair.read(&mut handle), 1);
    });
}

/// A version is pruned (unlinked from the middle of its chain) while a reader may be walking over it. The version is
/// too new for this reader.
#[test]
fn pruning_against_read() {
    model(1, || {
        let pair = Pair::collected_from(COPY + 1);
        let link = pair.links[0];
        let [mut writer, reader] = [pair.handle(), pair.handle()];
        let reader = beside(reader, move |handle| {
            let snapshot = handle.read();
            let first = *snapshot.get(link);
            assert_eq!(*snapshot.get(link), first, "changed");
        });
        for value in 1..=3 {
            writer.update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
        }
        writer.collect();
        let _reader = reader.join().unwrap();
    });
}

/// A chain is pruned while a transaction links a copy above it, aborts and frees the copy.
#[test]
fn pruning_against_abort() {
    model(2, || {
        let pair = Pair::collected_from(3 * COPY + 1);
        let [link, other, third, fourth] = [pair.links[0], pair.links[1], pair.domain.alloc(0), pair.domain.alloc(0)];
        let [mut old, mut pruner, mut aborter] = [(); 3].map(|()| pair.handle());
        core::mem::forget(old.read());
        let write = |handle: &mut Handle, link, value| handle.update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
        (1..=3).for_each(|value| write(&mut pruner, link, value));
        // Prunes the versions 1 and 2.
        let pruner = beside(pruner, move |pruner| write(pruner, other, 1));
        // As many copies as make the log free them.
        let aborted = aborter.try_update(|tx| {
            tx.lock_const(link)?;
            tx.lock_const(third)?;
            tx.lock_const(fourth)?;
            Err::<(), Abort>(Abort::Conflict)
        });
        assert_eq!(aborted, Err(Abort::Conflict));
        let _pruner = pruner.join().unwrap();
        assert_eq!(*aborter.read().get(link), 3);
    });
}

/// If each of two transactions reads what the other writes, and both are serializable, they are not both committed.
#[test]
fn write_skew_is_prevented() {
    model(2, || {
        let pair = Pair::new();
        let attempts = [0, 1].map(|me| {
            let pair = pair.clone();
            beside(pair.handle(), move |handle| {
                let mut first = true;
                let set = |tx: &mut Tx<'_>| {
                    // Only the first attempt writes: without this limit, loom would explore repetitions for ever.
                    if core::mem::take(&mut first) && *tx.get(pair.links[1 - me]) == 0 {
                        *tx.lock(pair.links[me])? = 1;
                    }
                    Ok(())
                };
                handle.update_serializable(set).unwrap();
            })
        });
        let _attempts = attempts.map(|attempt| attempt.join().unwrap());
        let mut handle = pair.handle();
        let snapshot = handle.read();
        assert!(*snapshot.get(pair.links[0]) + *snapshot.get(pair.links[1]) <= 1);
    });
}

/// Two logs have versions in the middle of one chain. While their owners prune the chain, the section for which one of
/// the versions was kept ends. A snapshot that is held sees the oldest version. (`pruning_against_read` tests that a
/// single pruner does not disturb a reader; three threads are too many for loom.)
#[test]
fn two_pruners_at_one_chain() {
    model(1, || {
        let pair = Pair::collected_from(COPY);
        let [link, first, second] = [pair.links[0], pair.links[1], pair.domain.alloc(0)];
        let [mut held, mut ends, mut one, mut two] = [(); 4].map(|()| pair.handle());
        let write = |handle: &mut Handle, link, value| handle.update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
        let snapshot = held.read();
        write(&mut two, link, 1);
        // This section lasts until its handle is dropped.
        core::mem::forget(ends.read());
        write(&mut one, link, 2);
        write(&mut two, link, 3);
        let other = beside(two, move |two| {
            drop(ends);
            // At the second write, this handle scans its log, and prunes version 1.
            (1..=2).for_each(|value| write(two, second, value));
        });
        // This write prunes version 2, which is newer than the version that the ending section needed.
        write(&mut one, first, 1);
        assert_eq!(*snapshot.get(link), 0);
        let (_, mut two) = other.join().unwrap();
        one.collect();
        assert_eq!(*snapshot.get(link), 0);
        drop(snapshot);
        assert_eq!(*two.read().get(link), 3);
    });
}

/// Another thread has found that the horizon has moved (no section has an earlier time than the horizon). So a
/// collection frees a pruned version without a scan of its own, but not while a reader walks over the version.
#[test]
fn what_is_pruned_waits_for_walks() {
    model(1, || {
        let pair = Pair::collected_from(3 * COPY + 1);
        let links = pair.links;
        let [mut old, mut reader, mut one, mut two] = [(); 4].map(|()| pair.handle());
        let write = move |handle: &mut Handle, at: usize, value| {
            handle.update(|tx| Ok(*tx.lock(links[at])? = value)).unwrap();
        };
        core::mem::forget(old.read());
        write(&mut one, 0, 1);
        let snapshot = reader.read();
        (2..=3).for_each(|value| write(&mut one, 0, value));
        let writer = thread::spawn(move || {
            // Prunes versions 2 and 3, which are newer than the version that the snapshot sees.
            write(&mut one, 0, 4);
            drop(old);
            (1..=4).for_each(|value| write(&mut two, 1, value));
            (5..=6).for_each(|value| write(&mut one, 0, value));
            [one, two]
        });
        assert_eq!(*snapshot.get(links[0]), 1);
        let _handles = writer.join().unwrap();
        assert_eq!(*snapshot.get(links[0]), 1);
    });
}

/// An object that was made and retired while a snapshot is held is freed, although a reader may have found it.
#[test]
fn a_mark_is_pruned_against_read() {
    model(2, || {
        let tuning = Tuning { low_watermark: COPY, dereference_watermark: u32::MAX, concurrent: true };
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
        // This commit advances the clock, so the object is made after the snapshot's time, not at this time.
        writer.update(|tx| Ok(*tx.lock(root)? = None)).unwrap();
        writer.update(put).unwrap();
        let reader = beside(domain.register(), move |handle| {
            let snapshot = handle.read();
            if let Some(link) = *snapshot.get(root) {
                assert_eq!(*snapshot.get(link), 7);
            }
        });
        let take = |tx: &mut Tx<'_>| {
            let old = tx.lock(root)?.take().unwrap();
            // SAFETY: only the root has had a link to it.
            unsafe { tx.retire(old) }
        };
        writer.update(take).unwrap();
        writer.collect();
        assert!(snapshot.get(root).is_none());
        let _reader = reader.join().unwrap();
        writer.collect();
        assert_eq!(domain.stats().objects, before, "what was put there is still there");
    });
}

/// A transaction locks an object without a change (`lock_const`), and then for a change. A second copy replaces the
/// first one, which a reader may have met.
#[test]
fn locking_for_a_change_what_was_locked_against_read() {
    model(2, || {
        let pair = Pair::new();
        let mut handle = pair.handle();
        let writer = {
            let pair = pair.clone();
            beside(pair.handle(), move |handle| {
                let write = |tx: &mut Tx<'_>| {
                    tx.lock_const(pair.links[0])?;
                    *tx.lock(pair.links[1])? = 1;
                    *tx.lock(pair.links[0])? = 1;
                    Ok(())
                };
                handle.try_update(write).unwrap();
            })
        };
        pair.read(&mut handle);
        let _writer = writer.join().unwrap();
        assert_eq!(pair.read(&mut handle), 1);
    });
}

/// The last commit of a handle is collected by another thread while the handle continues.
#[test]
fn another_thread_takes_what_was_committed_last() {
    model(1, || {
        let pair = Pair::new();
        let [mut writer, collector] = [pair.handle(), pair.handle()];
        let link = pair.links[0];
        let mut write = |value| writer.try_update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
        write(1);
        let collector = beside(collector, Handle::collect);
        write(2);
        let (_, mut collector) = collector.join().unwrap();
        assert_eq!(*collector.read().get(link), 2);
        collector.collect();
        assert_eq!(pair.domain.stats().versions, 0);
    });
}
