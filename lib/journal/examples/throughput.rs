//! Compares the journal with plain files. A group commit is compared with one `write` and one `fdatasync` per record.
//! Appends without syncs are compared with writes of 64 KiB without syncs. Prints medians and their ratios. The rounds
//! of the two candidates alternate in one process.
//!
//! `cargo run --release -p archipelago-journal --example throughput -- DIRECTORY [SECONDS [ROUNDS]]`

use archipelago_journal::{Journal, Options, Policy, Real};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `work` in threads for this time. Returns the number of calls per second.
fn rate(threads: usize, time: Duration, work: impl Fn() + Sync) -> f64 {
    let start = Instant::now();
    let work = &work;
    let count: u64 = thread::scope(|scope| {
        let run = move || (0..).take_while(|_| start.elapsed() < time).map(|_| work()).count() as u64;
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that measures")).sum()
    });
    count as f64 / start.elapsed().as_secs_f64()
}

fn file(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).expect("a file")
}

fn with_journal(directory: &Path, policy: Policy, measure: impl FnOnce(&Journal) -> f64) -> f64 {
    let path = directory.join("journal");
    let options = Options { policy, ..Options::default() };
    let (journal, _) = Journal::open(Arc::new(Real), &path, options, |_| {}).expect("a journal");
    let result = measure(&journal);
    drop(journal);
    std::fs::remove_dir_all(path).expect("the journal's directory");
    result
}

fn with_file(directory: &Path, measure: impl FnOnce(&File) -> f64) -> f64 {
    let path = directory.join("plain");
    let result = measure(&file(&path));
    std::fs::remove_file(path).expect("the plain file");
    result
}

fn synced(directory: &Path, threads: usize, time: Duration) -> (f64, f64) {
    let record = [7; 100];
    let ours = with_journal(directory, Policy::Always, |journal| {
        rate(threads, time, || {
            let position = journal.append(0, 0, &record).expect("room");
            journal.wait(position).expect("a sync");
        })
    });
    let plain = with_file(directory, |file| {
        rate(threads, time, || {
            { file }.write_all(&record).expect("a write");
            file.sync_data().expect("a sync");
        })
    });
    (ours, plain)
}

/// Compares two ways to write 256 MiB without syncs: appends of records, and plain writes of 64 KiB.
fn unsynced(directory: &Path, record: usize) -> (f64, f64) {
    const BYTES: usize = 256 << 20;
    let bytes = vec![7; 64 << 10];
    let per_second = |start: Instant| BYTES as f64 / start.elapsed().as_secs_f64();
    let ours = with_journal(directory, Policy::Never, |journal| {
        let start = Instant::now();
        (0..BYTES / record).for_each(|_| assert!(journal.append(0, 0, &bytes[..record]).is_ok()));
        journal.wait(journal.end(0)).expect("a write");
        per_second(start)
    });
    let plain = with_file(directory, |mut file| {
        let start = Instant::now();
        (0..BYTES / bytes.len()).for_each(|_| file.write_all(&bytes).expect("a write"));
        per_second(start)
    });
    (ours, plain)
}

fn report(what: &str, rounds: usize, measure: impl Fn() -> (f64, f64)) {
    let (mut ours, mut plain): (Vec<f64>, Vec<f64>) = (0..rounds).map(|_| measure()).unzip();
    ours.sort_by(f64::total_cmp);
    plain.sort_by(f64::total_cmp);
    let (ours, plain) = (ours[rounds / 2], plain[rounds / 2]);
    println!("{what}: journal {ours:.0}, plain {plain:.0}, ratio {:.2}", ours / plain);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = Path::new(arguments.first().expect("a directory"));
    let number = |at: usize, usual: f64| arguments.get(at).map_or(usual, |text| text.parse().expect("a number"));
    let (time, rounds) = (Duration::from_secs_f64(number(1, 1.0)), number(2, 5.0) as usize);
    for threads in [1, 2, 16] {
        let what = format!("100-byte records, synced, {threads} threads, records/s");
        report(&what, rounds, || synced(directory, threads, time));
    }
    for record in [100, 4096] {
        let what = format!("{record}-byte records, not synced, bytes/s");
        report(&what, rounds, || unsynced(directory, record));
    }
}
