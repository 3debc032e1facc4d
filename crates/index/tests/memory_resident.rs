//! Memory that is really given back: what the operating system says is resident. One test in a process of its own, since
//! nothing else may allocate meanwhile.
#![cfg(not(miri))]

use archipelago_check::hostile::some_try;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_index::Key;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_platform::memory::resident_bytes;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

/// Resident, or the map's own count where the system does not say.
fn held<S: Kind, K: Key>(map: &Map<S, K, u64>) -> u64 {
    resident_bytes().unwrap_or(map.bytes() as u64)
}

/// What a map of this many keys takes at its peak, and what is left of that when all have been removed, in the order of
/// `nth` (0 to `count`, each once), by the system's count.
fn fill_and_empty<S: Kind, K: Key>(count: u64, make: fn(u64) -> K, load: fn(u64, u64) -> u64) -> (u64, u64) {
    let map: Map<S, K, u64> = Map::new();
    let before = held(&map);
    map.pin().extend((0..count).map(|n| (make(load(n, count)), n)));
    map.sync();
    let peak = held(&map);
    let session = map.pin();
    (0..count).for_each(|n| assert!(session.delete(&make(n))));
    assert!(map.is_empty());
    // A background thread that is off its processor in the middle of a round keeps memory from being reclaimed.
    some_try(500, || {
        map.sync();
        let bytes = map.bytes();
        if bytes < 1 << 16 {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(2));
        Err(format!("{bytes} bytes"))
    });
    (peak.saturating_sub(before), held(&map).saturating_sub(before))
}

#[test]
fn what_is_deleted_in_order_is_given_back_to_the_system() {
    let sorted = |n, _| n;
    let scattered = |n: u64, count: u64| n * 1_000_003 % count;
    let email = |n| format!("user{n:012}@example.org");
    watchdog(USUAL, |_| {
        // The program's own pages, which stay.
        fill_and_empty::<Hydra, _>(60_000, |n| n, scattered);
        fill_and_empty::<Hydra, _>(60_000, email, scattered);
        given_back(|| fill_and_empty::<Hydra, _>(2_000_000, |n| n, sorted));
        given_back(|| fill_and_empty::<Hydra, _>(2_000_000, |n| n, scattered));
        given_back(|| fill_and_empty::<Hydra, _>(1_000_000, email, sorted));
        given_back(|| fill_and_empty::<Hydra, _>(1_000_000, email, scattered));
        // Words: keys that are byte strings lie in boxes of the allocator's.
        given_back(|| fill_and_empty::<Tree, _>(1_000_000, |n| n, scattered));
        given_back(|| fill_and_empty::<Skip, _>(1_000_000, |n| n, scattered));
    });
}

/// At most a twentieth of the peak is left. Each try has a map of its own: what a map keeps it keeps every time, while what
/// the allocator keeps of small blocks that were freed (up to 2.7 MB the first time) the next try takes from there.
fn given_back(fill_and_empty: impl Fn() -> (u64, u64)) {
    some_try(3, || {
        let (peak, left) = fill_and_empty();
        println!("{left} of {peak} bytes are left");
        if left * 20 <= peak { Ok(()) } else { Err(format!("{left} of {peak} bytes are still resident")) }
    });
}
