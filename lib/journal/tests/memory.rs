//! Bounds of allocated memory. Records that wait for a slow disk take at most two queues. To read a file, a window of
//! 256 KiB is allocated, or one for the longest record. No content of a file makes the window longer than the file.

use archipelago_check::hostile::{Counting, alone};
use archipelago_journal::{Call, Error, Journal, Options, Simulated};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[global_allocator]
static HEAP: Counting = Counting::new();

const HERE: &str = "journal";

fn open(disk: &Simulated, options: Options) -> Result<Journal, Error> {
    Journal::open(Arc::new(disk.clone()), Path::new(HERE), options, |_| {}).map(|(journal, _)| journal)
}

/// Returns the peak of allocated bytes while `work` runs, minus the bytes that were allocated before, and the result of
/// `work`.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = HEAP.bytes();
    HEAP.reset_peak();
    let result = work();
    (HEAP.peak().saturating_sub(before), result)
}

#[test]
fn appends_beyond_a_slow_disk_hold_two_queues_at_most() {
    let _alone = alone();
    for queue in [64 << 10, 1 << 20] {
        let disk = Simulated::new();
        let journal = open(&disk, Options { queue, ..Options::default() }).unwrap();
        disk.hold(Call::Write);
        let (bytes, ()) = peak(|| {
            thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| (0..queue / 4000).for_each(|_| assert!(journal.append(0, 0, &[1; 1000]).is_ok())));
                }
                // Waits until all writers are blocked, so that no further record is appended.
                let mut queued = usize::MAX;
                while queued != journal.queued(0) || queued < queue / 2 {
                    queued = journal.queued(0);
                    thread::sleep(Duration::from_millis(20));
                }
                assert!(queued <= queue && HEAP.peak() > 0);
                assert!(HEAP.bytes() < 2 * queue + (200 << 10) + disk.used(), "{} for {queue}", HEAP.bytes());
                disk.release();
            });
        });
        // The simulated disk stores all bytes twice until they are synced.
        assert!(bytes < 2 * queue + 4 * 4 * queue + (400 << 10), "{bytes} for {queue}");
    }
}

#[test]
fn too_long_a_record_allocates_nothing() {
    let _alone = alone();
    let journal = open(&Simulated::new(), Options { background: false, ..Options::default() }).unwrap();
    let long = vec![1; 8 << 20];
    let mut refused = None;
    let bytes = HEAP.allocated_here(|| refused = Some(journal.append(0, 0, &long)));
    assert!(matches!(refused, Some(Err(Error::TooLong { .. }))) && bytes < 1000, "{bytes}");
}

#[test]
fn a_length_that_lies_allocates_a_window() {
    let _alone = alone();
    let disk = Simulated::new();
    let options = Options { background: false, ..Options::default() };
    let journal = open(&disk, options.clone()).unwrap();
    journal.append(0, 0, b"a record").unwrap();
    journal.sync().unwrap();
    let path = Path::new(HERE).join("0000-0000000000000000-00000001.segment");
    let disk = disk.restarted();
    disk.damage(&path, |bytes| bytes[72 + 32 + 4..72 + 32 + 8].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes()));
    let (bytes, _) = peak(|| open(&disk, options).unwrap());
    assert!(bytes < 1 << 20, "{bytes}");
}
