#![cfg(archipelago_sim)]
use archipelago_index::HydraList;
use archipelago_sim::{Client, Config, Machine, Placement, SimAlloc, run_with};
#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;
#[test]
fn first() {
    let machine = Machine::preset("xeon-8180-4s").unwrap();
    for threads in [1usize, 28, 112] {
        let config = Config { placement: Placement::Fill, until_ns: Some(200_000), ..Config::seeded(1) };
        let ops = std::cell::Cell::new(0u64);
        let setup = || {
            let m = HydraList::<u64, u64>::new();
            for k in 0..100_000u64 {
                m.pin().insert(k.wrapping_mul(0x9E3779B97F4A7C15), k);
            }
            m.sync();
            m
        };
        let body = |m: &HydraList<u64, u64>, c: Client| {
            let s = m.pin();
            let mut x = c.index as u64 * 7919;
            while c.running() {
                x = (x * 31 + 17) % 100_000;
                assert_eq!(s.get(&x.wrapping_mul(0x9E3779B97F4A7C15)), Some(x));
                ops.set(ops.get() + 1);
            }
        };
        let (r, _) = run_with(&machine, &config, threads, setup, body, drop);
        eprintln!(
            "{threads}: {} ops {} wall {:?} events {} hash {:x} remote {} lines {}",
            r.outcome,
            ops.get(),
            r.wall,
            r.stats.accesses,
            r.hash,
            r.stats.remote(),
            r.lines
        );
        for h in &r.hot_lines[..3.min(r.hot_lines.len())] {
            eprintln!("   {h:?}");
        }
        eprintln!("   {:?}", r.stats);
        r.assert_done();
    }
}
