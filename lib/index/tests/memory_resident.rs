//! Memory that is returned to the operating system, and memory that maps report, compared with the resident memory that
//! the operating system reports. The tests run in a process of their own, one after the other, since no other code may
//! allocate meanwhile.
#![cfg(not(miri))]

use archipelago_check::hostile::{alone, some_try};
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::Key;
use archipelago_index::art::Radix;
use archipelago_index::blink::BLink;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_platform::memory::resident_bytes;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_tested as _;

/// Returns the resident memory, or the map's own count if the system does not report it.
fn held<S: Kind, K: Key>(map: &Map<S, K, u64>) -> u64 {
    resident_bytes().unwrap_or(map.bytes() as u64)
}

/// Inserts `count` keys in the order of `load` (a permutation of the numbers below `count`), and removes them in
/// ascending order. Returns by how many bytes the process's resident memory has grown when the map is full, and at the
/// end.
fn fill_and_empty<S: Kind, K: Key>(count: u64, make: fn(u64) -> K, load: fn(u64, u64) -> u64) -> (u64, u64) {
    let map: Map<S, K, u64> = Map::new();
    let before = held(&map);
    map.pin().extend((0..count).map(|n| (make(load(n, count)), n)));
    map.sync();
    let peak = held(&map);
    let session = map.pin();
    (0..count).for_each(|n| assert!(session.delete(&make(n))));
    assert!(map.is_empty());
    // If a background thread is preempted in the middle of a round, memory is not reclaimed until it continues.
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
    let _alone = alone();
    let sorted = |n, _| n;
    let scattered = |n: u64, count: u64| n * 1_000_003 % count;
    let email = |n| format!("user{n:012}@example.org");
    watchdog(USUAL, |_| {
        // These two calls touch memory of the program itself for the first time. This memory stays resident.
        fill_and_empty::<Hydra, _>(60_000, |n| n, scattered);
        fill_and_empty::<Hydra, _>(60_000, email, scattered);
        given_back(|| fill_and_empty::<Hydra, _>(2_000_000, |n| n, sorted));
        given_back(|| fill_and_empty::<Hydra, _>(2_000_000, |n| n, scattered));
        given_back(|| fill_and_empty::<Hydra, _>(1_000_000, email, sorted));
        given_back(|| fill_and_empty::<Hydra, _>(1_000_000, email, scattered));
        // These maps are tested only with words. Their byte-string keys are in boxes of the global allocator, which may
        // keep freed blocks.
        given_back(|| fill_and_empty::<Tree, _>(1_000_000, |n| n, scattered));
        given_back(|| fill_and_empty::<Skip, _>(1_000_000, |n| n, scattered));
    });
}

/// Checks that at most a twentieth of the peak is left. Each try uses a new map. If a map keeps memory, it does so in
/// every try. But the allocator may keep small blocks that were freed (up to 2.7 MB the first time); then the next try
/// uses these blocks.
fn given_back(fill_and_empty: impl Fn() -> (u64, u64)) {
    some_try(3, || {
        let (peak, left) = fill_and_empty();
        println!("{left} of {peak} bytes are left");
        if left * 20 <= peak { Ok(()) } else { Err(format!("{left} of {peak} bytes are still resident")) }
    });
}

/// Returns how much memory a map has made resident, and how much it reports.
fn counted<S: Kind, K: Key>(make: fn(u64) -> K) -> (u64, u64) {
    let before = resident_bytes().unwrap_or(0);
    let map: Map<S, K, u64> = Map::new();
    (0..500_000).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).for_each(|n| _ = map.pin().upsert(&make(n), n));
    map.sync();
    (resident_bytes().unwrap_or(0) - before, map.bytes() as u64)
}

/// Each map is in a process of its own, whose heap has no free memory.
#[test]
#[cfg(target_os = "linux")]
fn what_is_resident_is_counted() {
    const CASE: &str = "ARCHIPELAGO_RESIDENT";

    let _alone = alone();
    let email = |n| format!("user{n:x}@example.org");
    // All keys of a page, and its bounds, share a long prefix.
    let path = |n: u64| format!("{}{n:x}", "/a/long/path".repeat(8));
    let boxed = |n: u64| format!("{}{n:x}", "long ".repeat(50));
    type Case<'a> = (&'a str, &'a dyn Fn() -> (u64, u64));
    let cases: [Case<'_>; 10] = [
        ("Art of words", &|| counted::<Radix, _>(|n: u64| n)),
        ("Art of strings", &|| counted::<Radix, _>(email)),
        ("HydraList of words", &|| counted::<Hydra, _>(|n: u64| n)),
        ("HydraList of strings", &|| counted::<Hydra, _>(email)),
        ("HydraList of paths", &|| counted::<Hydra, _>(path)),
        ("HydraList of long strings", &|| counted::<Hydra, _>(boxed)),
        ("BLinkTree of words", &|| counted::<BLink, _>(|n: u64| n)),
        ("BLinkTree of strings", &|| counted::<BLink, _>(email)),
        ("EunoBTree of strings", &|| counted::<Tree, _>(email)),
        ("EunoSkipList of strings", &|| counted::<Skip, _>(email)),
    ];
    if let Ok(case) = std::env::var(CASE) {
        let (resident, counted) = cases.iter().find(|it| it.0 == case).unwrap().1();
        println!("{case}: {counted} bytes counted, {resident} resident: {:.3}", counted as f64 / resident as f64);
        // The tolerance is for other memory that the process touches for the first time.
        assert!(
            resident.abs_diff(counted) <= resident / 20 + (2 << 20),
            "{case}: {counted} bytes counted, {resident} are resident"
        );
        return;
    }
    for (case, _) in cases {
        let this = std::env::current_exe().unwrap();
        let args = ["--exact", "what_is_resident_is_counted", "--nocapture"];
        let child = std::process::Command::new(this).args(args).env(CASE, case).output().unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        said.lines().filter(|line| line.contains("counted,")).for_each(|line| println!("{line}"));
        assert!(child.status.success(), "{case}: {said}{}", String::from_utf8_lossy(&child.stderr));
    }
}
