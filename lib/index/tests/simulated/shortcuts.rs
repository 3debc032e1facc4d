//! Walks that skip pages, while pages are split and merged away. A walk starts at a finger (the end of an earlier walk
//! of its thread), or continues at a shortcut (a page that is registered for long walks). The map has a dozen pages,
//! none of which the search layers know. In about half of the runs, a thread resumes maintenance in the middle.

use super::*;

/// The number of keys of a full page.
const FULL: u64 = 47;
const PAGES: u64 = 12;

fn key(number: u64) -> u64 {
    number * 3
}

/// Makes pages in pairs. The pages of one pair are full, so that they are soon split. The pages of the next pair are so
/// empty that one removal merges them.
fn pages(kind: SearchLayerKind, nodes: usize) -> Shared<HydraList<u64, u64>> {
    let map = hydralist(kind, Maintainers::Clients, nodes);
    map.pause_maintenance(true);
    let session = map.pin();
    session.extend((0..PAGES * FULL).map(|number| (key(number), number)));
    let sparse = |number: &u64| number / FULL % 4 >= 2 && number % FULL >= 12;
    (0..PAGES * FULL).filter(sparse).for_each(|number| _ = session.remove(&key(number)));
    let before = session.iter().collect();
    drop(session);
    Shared { index: map, recorder: Recorder::new(), before }
}

fn client(shared: &Shared<HydraList<u64, u64>>, client: Client) {
    let map = shared.index.pin();
    let mut log = shared.recorder.log();
    let maintained = world::random().is_multiple_of(2);
    for i in 0..16 {
        if client.index == 0 && i == 8 && maintained {
            shared.index.pause_maintenance(false);
        }
        // The keys are in the right half, since walks to the pages at the left skip no page.
        let number = (PAGES / 2 + world::random() % (PAGES / 2)) * FULL;
        let (present, any) = (key(number + world::random() % 12), 3 * number + world::random() % (3 * FULL));
        let value = client.index as u64 * 1000 + i;
        match world::random() % 8 {
            0..2 => log.record(MapOp::Insert(any, value), |_| MapRet::Value(map.insert(any, value))),
            2..5 => log.record(MapOp::Remove(present), |_| MapRet::Value(map.remove(&present))),
            5..7 => log.record(MapOp::Get(present), |_| MapRet::Value(map.get(&present))),
            _ => log.record(MapOp::Scan(any, 4), |_| MapRet::Entries(map.range(any..).take(4).collect())),
        };
    }
}

#[test]
fn hydralist_is_linearizable_where_walks_skip() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    for (kind, nodes) in [(SearchLayerKind::Snapshot, 1), (SearchLayerKind::Snapshot, 4), (SearchLayerKind::Art, 2)] {
        let end = |shared| judge(shared, HydraList::check_invariants);
        hunt(150, |config| {
            let stall = Fault::Stall { thread: None, at: Point::OneIn(500), for_ns: 20_000 };
            let faults = if config.seed.is_multiple_of(2) { vec![stall] } else { vec![] };
            let config = Config { expected_accesses: 4_000, faults, ..config };
            run_with(&machine, &config, THREADS, || pages(kind, nodes), client, end).0
        });
    }
}
