//! MV-RLU natively: snapshots are consistent, commits are seen, and nothing leaks, whatever readers, panics and threads
//! do.
#![cfg(not(loom))]
// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

mod handles;
mod limits;
mod objects;
mod readers;
mod statistics;
mod transactions;

use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::mvrlu::{Builder, ClockKind, Collection, Domain, Handle, Link, Stats, Tuning, Versioned};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// Collects at every opportunity.
fn eager() -> Builder {
    Domain::builder().tuning(Tuning { low_watermark: 1, dereference_watermark: 8, concurrent: true })
}

fn each_kind(test: impl Fn(Domain)) {
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        for builder in [Domain::builder(), eager(), eager().collection(Collection::Background)] {
            test(builder.clock(clock).build());
        }
    }
}

/// Retires objects, so that the test does not leak them.
fn retire_all<T: Versioned>(domain: &Domain, links: &[Link<T>]) {
    let mut handle = domain.register();
    // SAFETY: the links are not used any more.
    handle.update(|tx| links.iter().try_for_each(|link| unsafe { tx.retire(*link) })).unwrap();
    collect_until(domain, &mut handle, |stats| stats.versions == 0);
}

/// Collects until `enough` accepts the domain's statistics.
fn collect_until(domain: &Domain, handle: &mut Handle, enough: impl Fn(&Stats) -> bool) {
    // More than one attempt is needed only if the domain's own thread is working, too, and has lost its processor in a
    // section.
    let mut looks = 0;
    while !enough(&domain.stats()) {
        looks += 1;
        assert!(looks < 1_000, "{:?}", domain.stats());
        if looks < 100 {
            thread::yield_now()
        } else {
            thread::sleep(Duration::from_millis(1))
        }
        handle.collect();
    }
}

fn read<T: Versioned>(handle: &mut Handle, link: Link<T>) -> T {
    *handle.read().get(link)
}
