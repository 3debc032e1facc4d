//! Objects of all sizes, which come and go.

use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Domain, Link};

use super::{each_kind, eager, read, retire_all, scaled};

/// The memory of a retired object is freed once, when no thread can reach the object any more.
#[test]
fn objects_come_and_go() {
    #[derive(Clone, Copy)]
    struct Root(Link<[u64; 4]>);
    each_kind(|domain| {
        let root = domain.alloc(Root(domain.alloc([1; 4])));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut handle = domain.register();
                    for round in 0..scaled(2_000, 10) as u64 {
                        handle
                            .update(|tx| {
                                let old = tx.get(root).0;
                                // SAFETY: not used after an abort.
                                let new = unsafe { tx.alloc([round; 4]) };
                                tx.lock(root)?.0 = new;
                                // SAFETY: only the root has a link to it.
                                unsafe { tx.retire(old) }
                            })
                            .unwrap();
                        let snapshot = handle.read();
                        let object = snapshot.get(snapshot.get(root).0);
                        assert!(object.iter().all(|word| *word == object[0]));
                    }
                });
            }
        });
        let last = read(&mut domain.register(), root).0;
        retire_all(&domain, &[last]);
        retire_all(&domain, &[root]);
    });
}

fn objects_of<const BYTES: usize>(domain: &Domain) {
    let link = domain.alloc([1_u8; BYTES]);
    let mut handle = domain.register();
    for value in 2..10 {
        handle.update(|tx| Ok(tx.lock(link)?.fill(value))).unwrap();
        assert!(handle.read().get(link).iter().all(|byte| *byte == value));
    }
    retire_all(domain, &[link]);
}

#[test]
fn objects_of_all_sizes() {
    each_kind(|domain| {
        objects_of::<0>(&domain);
        objects_of::<1>(&domain);
        objects_of::<8>(&domain);
        objects_of::<33>(&domain);
        objects_of::<{ 1 << 10 }>(&domain);
        #[cfg(not(miri))]
        objects_of::<{ 1 << 16 }>(&domain);
        #[cfg(not(miri))]
        objects_of::<{ 1 << 18 }>(&domain);
    });
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Wide(u8);
    let domain = eager().build();
    let link = domain.alloc(Wide(1));
    let mut handle = domain.register();
    handle.update(|tx| Ok(tx.lock(link)?.0 = 2)).unwrap();
    assert_eq!(*handle.read().get(link), Wide(2));
    retire_all(&domain, &[link]);
}

#[test]
#[cfg(not(miri))]
fn objects_of_a_mebibyte() {
    // Runs on a thread with a large stack, because values are passed by value.
    let thread = thread::Builder::new().stack_size(64 << 20).spawn(|| objects_of::<{ 1 << 20 }>(&Domain::new()));
    thread.unwrap().join().unwrap();
}

#[test]
fn objects_outlive_their_domain_whole() {
    let domain = Domain::new();
    let link = domain.alloc(1_u64);
    domain.register().update(|tx| Ok(*tx.lock(link)? = 2)).unwrap();
    let handle = domain.register();
    drop(domain);
    // The handle keeps the domain alive.
    let mut handle = handle;
    assert_eq!(read(&mut handle, link), 2);
    // SAFETY: the link is not used any more.
    handle.update(|tx| unsafe { tx.retire(link) }).unwrap();
}
