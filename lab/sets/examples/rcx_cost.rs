//! Measures the cost of updates and reads over RCX, beside fine-grained locks and plain RCU.
//!
//! `cargo run --release -p archipelago-sets --example rcx_cost -- update [THREADS]`: prints nanoseconds per update of a
//! list of 16 keys, measured in alternating spans. An update inserts or removes one key.
//!
//! `... -- read NAME COUNT`: looks up COUNT keys in a list of 256 over `rcu`, `rcx`, `striped` or `rcu-htm`.
//! Instructions can be counted by `valgrind --tool=callgrind --toggle-collect='*look_up*'`.

use std::hint::black_box;

use archipelago_platform::thread;
use archipelago_platform::time::Instant;
use archipelago_sets::{List, OverRcu, OverRcx, OverRcxStriped, RcuHtm, Set, SetSession};
use archipelago_sync::rcx::{Padding, Rcx, Striped};

#[inline(never)]
fn look_up(session: &mut impl SetSession, count: u64) -> u64 {
    (0..count).filter_map(|number| session.get(number * 7 % 256)).sum()
}

fn read(set: &impl Set, count: u64) {
    let mut session = set.session();
    (0..256).rev().for_each(|key| assert!(session.insert(key, key)));
    println!("{}", black_box(look_up(&mut session, count)));
}

const KEYS: u64 = 16;
const TURNS: u64 = 100_000;

/// Returns the nanoseconds that a thread takes per update.
fn update<S: Set>(set: &S, threads: usize) -> f64 {
    let work = |thread: u64| {
        let mut session = set.session();
        for turn in 0..TURNS / 2 {
            let key = (turn * 5 + thread * 3) % KEYS;
            black_box(session.insert(key, turn));
            black_box(session.remove(key));
        }
    };
    let begun = Instant::now();
    thread::scope(|scope| (0..threads).for_each(|thread| _ = scope.spawn(move || work(thread as u64))));
    begun.elapsed().as_nanos() as f64 / TURNS as f64
}

type Contender<'c> = (&'static str, Box<dyn Fn() -> f64 + 'c>);

fn updates(threads: usize) {
    fn contender<'c, S: Set + 'c>(name: &'static str, set: S, threads: usize) -> Contender<'c> {
        (name, Box::new(move || update(&set, threads)))
    }
    let few = |nodes, _| Striped::with_stripes(nodes, 2 * KEYS as usize);
    let contenders = [
        contender("fine-grained locks", List::over(OverRcx::over(Rcx::fine_grained().build())), threads),
        contender("RCX, this machine", List::<OverRcx>::default(), threads),
        contender(
            "RCX, 4 nodes, packed",
            List::over(OverRcx::over(Rcx::builder().nodes(4).padding(Padding::Compact).build())),
            threads,
        ),
        contender("RCX, 4 nodes", List::over(OverRcx::over(Rcx::builder().nodes(4).build())), threads),
        contender(
            "  without transactions",
            List::over(OverRcx::over(Rcx::builder().nodes(4).without_transactions().build())),
            threads,
        ),
        contender("  with hand-over", List::over(OverRcx::over(Rcx::builder().nodes(4).passes(16).build())), threads),
        contender(
            "striped, 4 nodes",
            List::over(OverRcxStriped::over(Rcx::builder().nodes(4).build_with(few))),
            threads,
        ),
        contender("RCU-HTM", List::<RcuHtm>::default(), threads),
        contender("RCU, one lock", List::<OverRcu>::default(), threads),
    ];
    let mut spans: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..15 {
        contenders.iter().zip(&mut spans).for_each(|((_, run), spans)| spans.push(run()));
    }
    for ((name, _), spans) in contenders.iter().zip(&mut spans) {
        spans.sort_by(f64::total_cmp);
        println!("{name:24} {:7.1} ns, least {:7.1}", spans[spans.len() / 2], spans[0]);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| args.get(at).map_or(usual, |text| text.parse().expect("a number"));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["read", "rcu", ..] => read(&List::<OverRcu>::default(), number(2, 10_000)),
        ["read", "rcx", ..] => read(&List::<OverRcx>::default(), number(2, 10_000)),
        ["read", "striped", ..] => read(&List::<OverRcxStriped>::default(), number(2, 10_000)),
        ["read", "rcu-htm", ..] => read(&List::<RcuHtm>::default(), number(2, 10_000)),
        ["update", ..] => updates(number(1, 1) as usize),
        _ => println!("update [THREADS], or read rcu|rcx|striped|rcu-htm [COUNT]"),
    }
}
