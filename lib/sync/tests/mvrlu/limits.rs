//! What is refused, and limits that are reached or never reached.

use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_sync::mvrlu::{Collection, Domain, Full, Handle, Link, Tuning};

use super::{eager, read, retire_all, scaled};

#[test]
fn the_memory_cap_is_an_error_and_passes() {
    let domain = eager().memory_cap(64 * 1024).build();
    let links: Vec<Link<u64>> = (0..2_000).map(|_| domain.alloc(0)).collect();
    let mut handle = domain.register();
    let all = |handle: &mut Handle| handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? += 1)));
    assert_eq!(all(&mut handle), Err(Full));
    assert!(domain.stats().bytes <= 64 * 1024);
    for link in &links {
        handle.update(|tx| Ok(*tx.lock(*link)? += 1)).unwrap();
    }
    assert_eq!(read(&mut handle, links[1_999]), 1);
    for links in links.chunks(100) {
        retire_all(&domain, links);
    }
}

#[test]
#[should_panic(expected = "a link of another domain")]
fn links_of_other_domains_are_refused() {
    let (one, other) = (Domain::new(), Domain::new());
    let link = one.alloc(1_u64);
    struct Retire<'d>(&'d Domain, Link<u64>);
    impl Drop for Retire<'_> {
        fn drop(&mut self) {
            retire_all(self.0, &[self.1]);
        }
    }
    let _retire = Retire(&one, link);
    other.register().read().get(link);
}

/// A new domain often gets the memory of one that was dropped.
#[test]
fn links_of_a_dropped_domain_are_refused() {
    let make = || {
        let domain = Domain::new();
        let link = domain.alloc(1_u64);
        (domain, link)
    };
    let mut last = make();
    for _ in 0..scaled(20, 2) {
        let (domain, link) = core::mem::replace(&mut last, make());
        drop(domain);
        let (next, own) = make();
        let refused = catch_unwind(AssertUnwindSafe(|| *next.register().read().get(link)));
        assert!(refused.is_err(), "a link of another domain");
        assert_eq!(*next.register().read().get(own), 1);
        retire_all(&next, &[own]);
    }
    retire_all(&last.0, &[last.1]);
}

/// Tunings at their limits, with which nothing is collected except on request.
#[test]
fn watermarks_that_are_never_reached() {
    let tuning = Tuning { low_watermark: usize::MAX, dereference_watermark: u32::MAX, concurrent: true };
    for collection in [Collection::Cooperative, Collection::Background] {
        let domain = Domain::builder().tuning(tuning).collection(collection).build();
        let link = domain.alloc(0_u64);
        let mut handle = domain.register();
        for _ in 0..scaled(10_000, 200) {
            handle.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
        }
        assert!(domain.stats().versions > scaled(5_000, 100));
        handle.collect();
        assert_eq!(domain.stats().versions, 0);
        assert_eq!(*handle.read().get(link), scaled(10_000, 200) as u64);
        retire_all(&domain, &[link]);
    }
}
