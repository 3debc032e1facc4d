//! What a transaction sees, and what others see of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Abort, Domain, Handle, Link};

use super::{collect_until, each_kind, read, retire_all, scaled};

#[test]
fn a_commit_is_seen_by_all_later_sections_and_by_no_earlier_one() {
    each_kind(|domain| {
        let (link, mut writer, mut reader) = (domain.alloc(0_u64), domain.register(), domain.register());
        for value in 1..=scaled(500, 20) as u64 {
            let before = reader.read();
            assert_eq!(*before.get(link), value - 1);
            writer.update(|tx| Ok(*tx.lock(link)? = value)).unwrap();
            assert_eq!(*before.get(link), value - 1);
            assert_eq!(read(&mut writer, link), value, "own commit");
            drop(before);
            assert_eq!(read(&mut reader, link), value);
        }
        assert_eq!(writer.counts().aborts, 0);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn a_transaction_sees_its_own_changes() {
    each_kind(|domain| {
        let (link, mut handle) = (domain.alloc(1_u64), domain.register());
        handle
            .update(|tx| {
                *tx.lock(link)? = 2;
                assert_eq!((*tx.get(link), *tx.snapshot(link)), (2, 1));
                *tx.lock(link)? += 1;
                tx.lock_const(link)?;
                assert_eq!(*tx.get(link), 3);
                Ok(())
            })
            .unwrap();
        assert_eq!(read(&mut handle, link), 3);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn what_is_locked_or_newer_conflicts() {
    let domain = Domain::new();
    let (link, mut one, mut two) = (domain.alloc(0_u64), domain.register(), domain.register());
    let conflict = one.try_update(|tx| {
        tx.lock_const(link)?;
        assert_eq!(two.try_update(|tx| tx.lock(link).map(|_| ())), Err(Abort::Conflict));
        assert_eq!(two.try_update(|tx| tx.lock_const(link)), Err(Abort::Conflict));
        Ok(())
    });
    assert_eq!(conflict, Ok(()));
    let stale = one.try_update(|tx| {
        two.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
        tx.lock(link).map(|_| ())
    });
    assert_eq!(stale, Err(Abort::Conflict));
    assert_eq!((one.counts().commits, one.counts().aborts, two.counts().aborts), (1, 1, 2));
    retire_all(&domain, &[link]);
}

/// Each transaction writes the same number to eight objects. No thread may ever see two different numbers.
fn torn(domain: &Domain, writers: usize, readers: usize, rounds: usize) {
    let links: Vec<Link<u64>> = (0..8).map(|_| domain.alloc(0)).collect();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writing: Vec<_> = (0..writers)
            .map(|_| {
                scope.spawn(|| {
                    let mut handle = domain.register();
                    for _ in 0..rounds {
                        let value = next.fetch_add(1, Ordering::Relaxed) + 1;
                        handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = value))).unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..readers {
            scope.spawn(|| {
                let mut handle = domain.register();
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = handle.read();
                    let first = *snapshot.get(links[0]);
                    assert!(links.iter().all(|link| *snapshot.get(*link) == first), "torn");
                    assert!(links.iter().rev().all(|link| *snapshot.get(*link) == first), "torn at a second look");
                }
            });
        }
        writing.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    retire_all(domain, &links);
}

#[test]
fn snapshots_are_never_torn() {
    each_kind(|domain| torn(&domain, 1, 1, scaled(8_000, 15)));
    each_kind(|domain| torn(&domain, 2, 2, scaled(2_000, 6)));
}

#[test]
fn more_threads_than_cores() {
    each_kind(|domain| torn(&domain, scaled(6, 2), scaled(6, 2), scaled(300, 3)));
}

/// Two accounts. Either may be overdrawn as long as their sum is not negative: the standard example of write skew.
fn skew(serializable: bool, constant: bool) -> i64 {
    let domain = Domain::new();
    let (a, b) = (domain.alloc(50_i64), domain.alloc(50_i64));
    let (mut one, mut two) = (domain.register(), domain.register());
    let withdraw = |tx: &mut archipelago_sync::mvrlu::Tx<'_>, from: Link<i64>, other: Link<i64>| {
        let both = *tx.get(from) + *tx.get(other);
        if constant {
            tx.lock_const(other)?;
        }
        if both >= 100 {
            *tx.lock(from)? -= 100;
        }
        Ok(())
    };
    // The second transaction runs as a whole inside the first one's first attempt.
    let mut first_attempt = true;
    let mut body = |tx: &mut archipelago_sync::mvrlu::Tx<'_>| {
        withdraw(tx, a, b)?;
        if core::mem::take(&mut first_attempt) {
            let inner = |tx: &mut archipelago_sync::mvrlu::Tx<'_>| withdraw(tx, b, a);
            // If `constant`, the first transaction has locked the object that it only read, so the second transaction
            // cannot commit now.
            if serializable {
                two.update_serializable_once(inner);
            } else {
                let _ = two.try_update(inner);
            }
        }
        Ok(())
    };
    if serializable { one.update_serializable(&mut body) } else { one.update(&mut body) }.unwrap();
    let sum = read(&mut one, a) + read(&mut one, b);
    retire_all(&domain, &[a, b]);
    sum
}

/// Makes one attempt, whatever its result.
trait Once {
    fn update_serializable_once(&mut self, body: impl FnMut(&mut archipelago_sync::mvrlu::Tx<'_>) -> Result<(), Abort>);
}

impl Once for Handle {
    fn update_serializable_once(
        &mut self,
        mut body: impl FnMut(&mut archipelago_sync::mvrlu::Tx<'_>) -> Result<(), Abort>,
    ) {
        let mut first = true;
        self.update_serializable(|tx| if core::mem::take(&mut first) { body(tx) } else { Ok(()) }).unwrap();
    }
}

#[test]
fn write_skew_happens_and_is_prevented() {
    assert_eq!(skew(false, false), -100, "snapshot isolation allows it");
    assert_eq!(skew(false, true), 0, "locked reads prevent it");
    assert_eq!(skew(true, false), 0, "checked reads prevent it");
}

#[test]
fn serializable_transactions_under_contention_never_overdraw() {
    each_kind(|domain| {
        let links = [domain.alloc(0_i64), domain.alloc(0_i64), domain.alloc(0_i64)];
        let rounds = scaled(2_000, 8);
        thread::scope(|scope| {
            for me in 0..3 {
                let (domain, links) = (&domain, &links);
                scope.spawn(move || {
                    let mut handle = domain.register();
                    for round in 0..rounds {
                        // Each thread sets its own object if all objects are 0, and otherwise clears its own. So two
                        // objects are never set at the same time.
                        handle
                            .update_serializable(|tx| {
                                let sum: i64 = links.iter().map(|link| *tx.get(*link)).sum();
                                if sum == 0 {
                                    *tx.lock(links[me])? = 1;
                                } else if *tx.get(links[me]) == 1 {
                                    *tx.lock(links[me])? = 0;
                                }
                                Ok(())
                            })
                            .unwrap();
                        let snapshot = handle.read();
                        let sum: i64 = links.iter().map(|link| *snapshot.get(*link)).sum();
                        assert!(sum <= 1, "round {round}: {sum}");
                    }
                });
            }
        });
        retire_all(&domain, &links);
    });
}

#[test]
fn aborts_undo_everything() {
    each_kind(|domain| {
        let (link, mut handle) = (domain.alloc(7_u64), domain.register());
        let mut attempt = |fail: &dyn Fn() -> Result<(), Abort>| {
            catch_unwind(AssertUnwindSafe(|| {
                handle.try_update(|tx| {
                    *tx.lock(link)? = 8;
                    // SAFETY: the link is not used.
                    unsafe { tx.alloc([0_u64; 100]) };
                    // SAFETY: the transaction aborts.
                    unsafe { tx.retire(link) }?;
                    fail()
                })
            }))
        };
        assert_eq!(attempt(&|| Err(Abort::Conflict)).unwrap(), Err(Abort::Conflict));
        assert!(attempt(&|| panic!("planted")).is_err());
        assert_eq!(handle.counts().aborts, 2);
        assert_eq!(read(&mut domain.register(), link), 7);
        domain.register().update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
        assert_eq!(read(&mut handle, link), 8);
        retire_all(&domain, &[link]);
    });
}

#[test]
fn a_large_write_set() {
    each_kind(|domain| {
        let links: Vec<Link<u64>> = (0..scaled(100_000, 50)).map(|_| domain.alloc(1)).collect();
        let mut handle = domain.register();
        handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1))).unwrap();
        let snapshot = handle.read();
        assert!(links.iter().all(|link| *snapshot.get(*link) == 2));
        drop(snapshot);
        handle.collect();
        retire_all(&domain, &links);
    });
}

/// An object that one transaction makes and retires is freed once, by the abort or after the commit.
#[test]
fn what_one_transaction_makes_and_retires_is_freed() {
    each_kind(|domain| {
        let (before, mut handle) = (domain.stats().objects, domain.register());
        for outcome in [Err(Abort::Conflict), Ok(()), Err(Abort::Conflict)] {
            let done = handle.try_update(|tx| {
                // SAFETY: the link is used only here.
                unsafe {
                    let made = tx.alloc([7_u64; 4]);
                    tx.lock(made)?[0] = 8;
                    tx.retire(made)?;
                }
                outcome
            });
            assert_eq!(done, outcome);
        }
        handle.collect();
        drop(handle);
        collect_until(&domain, &mut domain.register(), |stats| (stats.objects, stats.versions) == (before, 0));
    });
}
