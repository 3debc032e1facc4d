//! Checks whether a history of transactions is snapshot-isolated, or serializable.
//!
//! Every transaction reports what it read and wrote. Written values are unique, so each read identifies the write that
//! it saw. The reads, the writes and the order of each key's versions imply dependencies (Adya's): *ww* (T2 overwrote
//! T1's version), *wr* (T2 read T1's version), and *rw* (T2 overwrote the version that T1 read).
//!
//! # Snapshot isolation as one acyclic graph
//! A transaction T has two moments: its snapshot `s(T)` and its commit `c(T)`. Snapshot isolation means that all
//! moments can be put into one order with two properties. Each read sees what was committed before its snapshot, and no
//! two concurrent transactions write the same key. As edges "earlier than": `s(T) → c(T)`; ww and wr: `c(T1) → s(T2)`;
//! rw: `s(T1) → c(T2)`. The history is snapshot-isolated exactly if these edges have no cycle.
//!
//! Two successive rw edges never join: an rw edge leads to a commit, and the next one leaves from a snapshot. This is
//! why write skew passes the check and all other anomalies do not. Stamps (numbers that order events; see
//! [`crate::history`]) add edges: if the interval of a moment is over before the interval of another moment begins, the
//! first moment is earlier. So a snapshot that is older than the transaction's begin is a violation, too.
//!
//! The reads of an aborted transaction are checked only key by key. If a store guarantees a snapshot to aborted
//! transactions as well, record them as committed, without their writes.
//!
//! For serializability a transaction is one moment, and no cycle of any kind is permitted.
//!
//! # The order of versions
//! The order of a key's versions is taken from commit numbers if the store reports them; else from writers that read
//! what they overwrote; else from commits that do not overlap in time. If none of these determines the order, the
//! verdict is `Undecided`. The checker does not search for a possible order, which is NP-complete.

mod components;
mod graph;

use crate::linear::{CounterExample, Verdict};
use core::fmt::Debug;
use core::hash::Hash;
use graph::{Edge, Graph, Why};
use rustc_hash::FxHashMap;

/// One transaction.
#[derive(Clone, Debug)]
pub struct Txn<K, V> {
    /// The thread that ran it.
    pub thread: usize,
    /// Stamps drawn before and after the transaction began, that is, took its snapshot.
    pub begin: (u64, u64),
    /// Stamps drawn before and after the transaction tried to commit; `begin.1 < end.0`.
    pub end: (u64, u64),
    /// Whether the transaction committed, with the number of the commit if the store reports it. The numbers ascend in
    /// the order in which versions of a key replace each other.
    pub outcome: Outcome,
    /// Its actions, in order.
    pub actions: Vec<Action<K, V>>,
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Aborted: its writes must not be seen.
    Aborted,
    /// Committed; the store does not report when.
    Committed,
    /// Committed with this number.
    CommittedAs(u64),
}

/// One action of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K, V> {
    /// Read this value; `None` if the key had no value yet.
    Read(K, Option<V>),
    /// Wrote this value, which no other action of the history writes to this key. (A removal is a write of a unique
    /// tombstone.)
    Write(K, V),
}

/// The property for which a history of transactions is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Snapshot isolation, with snapshots that are not older than the transaction's begin.
    Snapshot,
    /// Serializability in an order that agrees with time: if T1 was over before T2 began, T1 is first.
    Serializable,
}

/// Checks a history of a store that was empty at the beginning.
///
/// # Panics
/// If a value is written to the same key twice, or stamps are not ascending.
pub fn check<K, V>(level: Level, history: &[Txn<K, V>]) -> Verdict
where
    K: Clone + Debug + Eq + Hash,
    V: Clone + Debug + Eq + Hash,
{
    for txn in history {
        let ordered = txn.begin.0 < txn.begin.1 && txn.begin.1 < txn.end.0 && txn.end.0 < txn.end.1;
        assert!(ordered, "stamps run backwards in {txn:?}");
    }
    match judge(level, history) {
        Ok(()) => Verdict::Ok,
        Err(verdict) => verdict,
    }
}

fn judge<K, V>(level: Level, history: &[Txn<K, V>]) -> Result<(), Verdict>
where
    K: Clone + Debug + Eq + Hash,
    V: Clone + Debug + Eq + Hash,
{
    let mut accesses: FxHashMap<&K, Accesses<'_, V>> = FxHashMap::default();
    let writers = writers(history);
    for (index, txn) in history.iter().enumerate() {
        gather(history, &writers, index, txn, &mut accesses)?;
    }
    let mut graph = Graph::new(level, history);
    for (key, accesses) in &accesses {
        add_dependencies(&mut graph, history, key, accesses)?;
    }
    match graph.shortest_cycle() {
        None => Ok(()),
        Some(cycle) => Err(explain(level, history, &cycle)),
    }
}

/// The accesses of committed transactions to one key.
struct Accesses<'h, V> {
    /// The transactions that wrote the key, each with its last value and, if it read the key before, the value that it
    /// overwrote.
    writes: Vec<Written<'h, V>>,
    /// The transactions that read another transaction's version of the key, with the value that they read.
    reads: Vec<(usize, Option<&'h V>)>,
}

struct Written<'h, V> {
    txn: usize,
    value: &'h V,
    over: Option<Option<&'h V>>,
}

impl<V> Default for Accesses<'_, V> {
    fn default() -> Self {
        Accesses { writes: Vec::new(), reads: Vec::new() }
    }
}

/// For each value, the transaction that wrote it and the index of the action.
type Writers<'h, K, V> = FxHashMap<(&'h K, &'h V), (usize, usize)>;

fn writers<K: Debug + Eq + Hash, V: Debug + Eq + Hash>(history: &[Txn<K, V>]) -> Writers<'_, K, V> {
    let mut writers = FxHashMap::default();
    for (index, txn) in history.iter().enumerate() {
        for (place, action) in txn.actions.iter().enumerate() {
            if let Action::Write(key, value) = action {
                let twice = writers.insert((key, value), (index, place));
                assert!(twice.is_none(), "{value:?} is written to {key:?} twice: reads do not tell the writers apart");
            }
        }
    }
    writers
}

/// Collects one transaction's accesses by key. Checks what can be checked for one key alone: reads of the transaction's
/// own writes, repeated reads, and reads of values that were never committed.
fn gather<'h, K: Debug + Eq + Hash, V: Debug + Eq + Hash>(
    history: &'h [Txn<K, V>],
    writers: &Writers<'h, K, V>,
    index: usize,
    txn: &'h Txn<K, V>,
    accesses: &mut FxHashMap<&'h K, Accesses<'h, V>>,
) -> Result<(), Verdict> {
    struct View<'h, V> {
        outside: Option<Option<&'h V>>,
        own: Option<&'h V>,
    }
    let mut views: FxHashMap<&K, View<'_, V>> = FxHashMap::default();
    for action in &txn.actions {
        match action {
            Action::Write(key, value) => {
                views.entry(key).or_insert(View { outside: None, own: None }).own = Some(value);
            }
            Action::Read(key, seen) => {
                let view = views.entry(key).or_insert(View { outside: None, own: None });
                let seen = seen.as_ref();
                if let Some(own) = view.own {
                    if seen != Some(own) {
                        return Err(violation("a transaction does not see its own write", &[(index, txn)]));
                    }
                } else if *view.outside.get_or_insert(seen) != seen {
                    return Err(violation("a repeated read changed within a transaction", &[(index, txn)]));
                }
                if view.own.is_none() {
                    committed_version(history, writers, (index, txn), key, seen)?;
                }
            }
        }
    }
    if txn.outcome == Outcome::Aborted {
        return Ok(());
    }
    for (key, View { outside, own }) in views {
        let at_key = accesses.entry(key).or_default();
        if let Some(seen) = outside {
            at_key.reads.push((index, seen));
        }
        if let Some(value) = own {
            at_key.writes.push(Written { txn: index, value, over: outside });
        }
    }
    Ok(())
}

/// Checks that a read of another transaction's version saw the last write of a committed transaction, or nothing.
fn committed_version<'h, K: Debug + Eq + Hash, V: Debug + Eq + Hash>(
    history: &'h [Txn<K, V>],
    writers: &Writers<'h, K, V>,
    reader: (usize, &'h Txn<K, V>),
    key: &'h K,
    seen: Option<&'h V>,
) -> Result<(), Verdict> {
    let Some(value) = seen else { return Ok(()) };
    let Some(&(writer, place)) = writers.get(&(key, value)) else {
        return Err(violation("a value was read that no thread wrote", &[reader]));
    };
    let txn = &history[writer];
    let wrote_later = txn.actions[place + 1..].iter().any(|a| matches!(a, Action::Write(k, _) if k == key));
    if writer == reader.0 {
        Err(violation("a transaction read its own write before writing it", &[reader]))
    } else if txn.outcome == Outcome::Aborted {
        Err(violation("a write of an aborted transaction was read", &[(writer, txn), reader]))
    } else if wrote_later {
        Err(violation("an intermediate write was read", &[(writer, txn), reader]))
    } else {
        Ok(())
    }
}

fn add_dependencies<K: Debug, V: Debug + Eq + Hash>(
    graph: &mut Graph,
    history: &[Txn<K, V>],
    key: &K,
    accesses: &Accesses<'_, V>,
) -> Result<(), Verdict> {
    let order = version_order(history, key, accesses)?;
    let place: FxHashMap<&V, usize> = order.iter().enumerate().map(|(place, write)| (write.value, place)).collect();
    let name = format!("{key:?}");
    for pair in order.windows(2) {
        graph.depend(Edge { from: pair[0].txn, to: pair[1].txn, why: Why::Ww }, &name);
    }
    for &(reader, seen) in &accesses.reads {
        let next = seen.map_or(0, |value| place[value] + 1);
        if next > 0 {
            graph.depend(Edge { from: order[next - 1].txn, to: reader, why: Why::Wr }, &name);
        }
        if let Some(write) = order.get(next).filter(|write| write.txn != reader) {
            graph.depend(Edge { from: reader, to: write.txn, why: Why::Rw }, &name);
        }
    }
    Ok(())
}

/// Returns the committed writers of a key in the order of their versions.
fn version_order<'a, 'h, K: Debug, V: Debug + Eq + Hash>(
    history: &'h [Txn<K, V>],
    key: &K,
    accesses: &'a Accesses<'h, V>,
) -> Result<Vec<&'a Written<'h, V>>, Verdict> {
    let mut successors: FxHashMap<Option<&V>, &Written<'_, V>> = FxHashMap::default();
    for write in &accesses.writes {
        if let Some(over) = write.over
            && let Some(rival) = successors.insert(over, write)
        {
            let both = [(rival.txn, &history[rival.txn]), (write.txn, &history[write.txn])];
            return Err(violation(&format!("lost update: both overwrote the same version of {key:?}"), &both));
        }
    }
    let number = |write: &&Written<'_, V>| match history[write.txn].outcome {
        Outcome::CommittedAs(number) => Some(number),
        _ => None,
    };
    let mut order: Vec<_> = accesses.writes.iter().collect();
    if order.iter().all(|write| number(write).is_some()) {
        order.sort_by_key(number);
        if let Some(pair) = order.windows(2).find(|pair| number(&pair[0]) == number(&pair[1])) {
            let both = [pair[0].txn, pair[1].txn].map(|txn| (txn, &history[txn]));
            return Err(violation(&format!("equal commit numbers of two versions of {key:?}"), &both));
        }
        return Ok(order);
    }
    let mut chain = Vec::new();
    let mut last = None;
    while let Some(&write) = successors.get(&last) {
        chain.push(write);
        last = Some(write.value);
    }
    if chain.len() == order.len() {
        return Ok(chain);
    }
    order.sort_by_key(|write| history[write.txn].end);
    match order.windows(2).find(|pair| history[pair[0].txn].end.1 >= history[pair[1].txn].end.0) {
        None => Ok(order),
        Some(pair) => Err(Verdict::Undecided(format!(
            "the order of the versions of {key:?} by transactions {} and {} is unknown: their commits overlap, and \
             neither commit numbers nor reads before writes tell",
            pair[0].txn, pair[1].txn
        ))),
    }
}

fn violation<K: Debug, V: Debug>(title: &str, involved: &[(usize, &Txn<K, V>)]) -> Verdict {
    let text = involved.iter().map(|&(index, txn)| show(index, txn)).collect();
    Verdict::Violation(CounterExample { title: title.to_owned(), text })
}

fn show<K: Debug, V: Debug>(index: usize, txn: &Txn<K, V>) -> String {
    let Txn { thread, begin, end, outcome, actions } = txn;
    format!(
        "  T{index} thread {thread} began [{}..{}] ended [{}..{}] {outcome:?}: {actions:?}\n",
        begin.0, begin.1, end.0, end.1
    )
}

/// Returns a violation that names the anomaly of this cycle.
fn explain<K: Debug, V: Debug>(level: Level, history: &[Txn<K, V>], cycle: &[(Edge, String)]) -> Verdict {
    let count = |why| cycle.iter().filter(|(edge, _)| edge.why == why).count();
    let (rw, time) = (count(Why::Rw), count(Why::Time));
    let after_each_other = |i: usize| cycle[i].0.why == Why::Rw && cycle[(i + 1) % cycle.len()].0.why == Why::Rw;
    let name = match (level, rw) {
        (Level::Serializable, 2..) if (0..cycle.len()).any(after_each_other) => "write skew",
        (_, 0) if time == 0 => "dependencies run in a circle",
        (_, 0) => "a version was seen before it was committed",
        (_, 1) if time > 0 => "stale snapshot: a version committed before the snapshot was not seen",
        (_, 1) if count(Why::Ww) > 0 => "lost update: a version was overwritten that the snapshot did not hold",
        (_, 1) => "torn snapshot: a part of what was committed was seen, a part was not",
        _ => "long fork: snapshots saw the same commits in different orders",
    };
    let mut involved: Vec<usize> = cycle.iter().flat_map(|(edge, _)| [edge.from, edge.to]).collect();
    involved.sort_unstable();
    involved.dedup();
    let mut text = String::new();
    for (Edge { from, to, why }, key) in cycle {
        text += &match why {
            Why::Ww => format!("  T{from} wrote {key}, T{to} overwrote it\n"),
            Why::Wr => format!("  T{from} wrote {key}, T{to} read that\n"),
            Why::Rw => format!("  T{from} read {key}, T{to} overwrote what it read\n"),
            Why::Time => format!("  T{from} was there before T{to} by their stamps\n"),
        };
    }
    text.extend(involved.into_iter().map(|index| show(index, &history[index])));
    Verdict::Violation(CounterExample { title: format!("{name} ({level:?})"), text })
}
