//! Cells of threads.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

#[test]
fn makes_each_cell_once() {
    model(3, || {
        let table = Arc::new(PerThread::new());
        let other = {
            let table = table.clone();
            thread::spawn(move || {
                let cell: &AtomicU64 = table.get_or(1, || AtomicU64::new(7));
                cell.fetch_add(1, Ordering::Relaxed);
            })
        };
        let cell = table.get_or(1, || AtomicU64::new(7));
        cell.fetch_add(1, Ordering::Relaxed);
        other.join().unwrap();
        assert_eq!(cell.load(Ordering::Relaxed), 9);
        assert_eq!(table.iter().count(), 1);
    });
}
