//! Finds the anomalies in a history of transactions, after Adya (Weak Consistency: A Generalized Theory, 1999).
//!
//! Transactions report what they read and wrote, including ranges and absent keys. Each write has a number of its own,
//! its *version*. The order of each key's versions is given: a row that keeps a list of its writers tells this order,
//! as in Elle (Kingsbury, Alvaro, VLDB 2020). The versions and their order imply dependencies between
//! transactions: *ww* (T2 overwrote T1's version), *wr* (T2 read T1's version), and *rw* (T2 overwrote the version that
//! T1 read). A range is a read of every key in it.
//!
//! | anomaly | description |
//! |---|---|
//! | G0 | a cycle of ww: writes of two transactions interleave |
//! | G1a, G1b | a read of a version that was rolled back; a read of a version that its own transaction overwrote |
//! | G1c | a cycle of ww and wr: transactions depend on each other |
//! | G-single | a cycle with one rw: torn snapshots, lost updates |
//! | G2 | a cycle with several rw: write skew, also by phantoms |
//!
//! A serializable history has none of these anomalies. [`Level::Snapshot`] permits G2.
//!
//! # Absent keys
//! A read that finds nothing does not tell *which* absence it saw: before the first version, or after one of the
//! removals. First, all certain dependencies are put into the graph. Then, repeatedly, absences are ruled out: an
//! absence is impossible for a read if it would close a cycle. If a read has no possible absence left, the history has
//! an anomaly. If one is left, it is certain. If several remain possible, nothing is claimed about the read.

use core::fmt::{Debug, Write as _};
use std::collections::{BTreeMap, VecDeque};

use crate::linear::{CounterExample, Verdict};

/// One transaction.
#[derive(Clone, Debug)]
pub struct Txn<K> {
    /// True if it committed.
    pub committed: bool,
    /// Stamps that were drawn before the transaction began and after it ended. Stamps order events; see
    /// [`crate::history`].
    pub during: (u64, u64),
    /// Its actions, in order.
    pub actions: Vec<Action<K>>,
}

/// One action of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<K> {
    /// Read the key and found this version, or nothing.
    Read(K, Option<u64>),
    /// Wrote this version; a removal if `there` is false.
    Write {
        /// The key.
        key: K,
        /// The version's number, which no other write of the history has.
        version: u64,
        /// True if the key is present afterwards.
        there: bool,
    },
    /// Found exactly these versions from the first key to the second, both included.
    Range(K, K, Vec<(K, u64)>),
}

/// The anomalies that are forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All anomalies except G2.
    Snapshot,
    /// All anomalies.
    Serializable,
    /// All anomalies, and any order that contradicts time: if a transaction was over when another began, it must be
    /// first.
    Strict,
}

/// A history of a store that was empty at the beginning.
#[derive(Clone, Debug)]
pub struct History<K> {
    /// The transactions.
    pub txns: Vec<Txn<K>>,
    /// The committed versions of each key, in their order. If a transaction wrote a key several times, only its last
    /// version counts.
    pub order: BTreeMap<K, Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Ww,
    Wr,
    Rw,
    Time,
}

#[derive(Clone, Debug)]
struct Edge {
    to: usize,
    why: Why,
    key: String,
}

/// A read that found nothing, with the pairs of writers (after, before) between which the read may be.
struct Absence {
    reader: usize,
    key: String,
    places: Vec<(Option<usize>, Option<usize>)>,
}

/// The write that made a version.
struct Origin {
    txn: usize,
    there: bool,
    /// Whether it is the transaction's last write of the key.
    last: bool,
}

struct Judge<'h, K> {
    history: &'h History<K>,
    origins: BTreeMap<u64, Origin>,
    edges: Vec<Vec<Edge>>,
    absences: Vec<Absence>,
}

/// Judges a history.
///
/// # Panics
/// If two writes have the same number.
pub fn check<K: Ord + Clone + Debug>(level: Level, history: &History<K>) -> Verdict {
    let edges = vec![Vec::new(); history.txns.len()];
    let mut judge = Judge { history, origins: BTreeMap::new(), edges, absences: Vec::new() };
    match judge.run(level) {
        Ok(()) => Verdict::Ok,
        Err(counter_example) => Verdict::Violation(counter_example),
    }
}

impl<K: Ord + Clone + Debug> Judge<'_, K> {
    fn run(&mut self, level: Level) -> Result<(), CounterExample> {
        self.number();
        self.follow_order()?;
        for reader in 0..self.history.txns.len() {
            self.follow_reads(reader)?;
        }
        if level == Level::Strict {
            self.follow_time();
        }
        while self.cross_out(level)? {}
        self.find_cycle(level)
    }

    /// Finds the write that made each version.
    fn number(&mut self) {
        for (txn, what) in self.history.txns.iter().enumerate() {
            let mut last = BTreeMap::new();
            for action in &what.actions {
                let Action::Write { key, version, there } = action else { continue };
                let twice = self.origins.insert(*version, Origin { txn, there: *there, last: true });
                assert!(twice.is_none(), "two writes are number {version}");
                if let Some(before) = last.insert(key, *version) {
                    self.origins.get_mut(&before).expect("it was put there").last = false;
                }
            }
        }
    }

    /// Adds the edges ww. Checks that the order lists each committed version once, and nothing else.
    fn follow_order(&mut self) -> Result<(), CounterExample> {
        let mut listed = BTreeMap::new();
        for (key, versions) in &self.history.order {
            let mut before = None;
            for version in versions {
                let origin = self.origins.get(version).filter(|origin| self.history.txns[origin.txn].committed);
                let Some(origin) = origin else {
                    return Err(self.tell(
                        "G1a: a version is there that was never committed",
                        &format!("{key:?}"),
                        &[],
                    ));
                };
                if listed.insert(*version, ()).is_some() || !origin.last {
                    let title = "G0: a version is there twice, or was overwritten by its own transaction";
                    return Err(self.tell(title, &format!("{key:?}"), &[origin.txn]));
                }
                if let Some(before) = before.replace(origin.txn) {
                    depend(&mut self.edges, before, origin.txn, Why::Ww, &format!("{key:?}"));
                }
            }
        }
        let lost = self.origins.iter().find(|(version, origin)| {
            origin.last && self.history.txns[origin.txn].committed && !listed.contains_key(version)
        });
        match lost {
            Some((version, origin)) => Err(self.tell("lost update", &format!("version {version}"), &[origin.txn])),
            None => Ok(()),
        }
    }

    /// Adds the edges wr and rw of one transaction.
    fn follow_reads(&mut self, reader: usize) -> Result<(), CounterExample> {
        let mut own: BTreeMap<&K, (u64, bool)> = BTreeMap::new();
        let history = self.history;
        for action in &history.txns[reader].actions {
            match action {
                Action::Write { key, version, there } => _ = own.insert(key, (*version, *there)),
                Action::Read(key, found) => self.read(reader, key, *found, own.get(key).copied())?,
                Action::Range(from, to, found) => {
                    let found: BTreeMap<&K, u64> = found.iter().map(|(key, version)| (key, *version)).collect();
                    // A key that no other transaction wrote makes no dependency, but the result of the read is checked
                    // all the same.
                    let written = history.order.range(from.clone()..=to.clone()).map(|(key, _)| key);
                    let all = written.chain(found.keys().copied()).chain(own.keys().copied());
                    let mut all: Vec<&K> = all.filter(|&key| from <= key && key <= to).collect();
                    all.sort_unstable();
                    all.dedup();
                    for key in all {
                        self.read(reader, key, found.get(key).copied(), own.get(key).copied())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        reader: usize,
        key: &K,
        found: Option<u64>,
        own: Option<(u64, bool)>,
    ) -> Result<(), CounterExample> {
        let name = format!("{key:?}");
        if let Some((version, there)) = own {
            let expected = there.then_some(version);
            return if found == expected {
                Ok(())
            } else {
                Err(self.tell("its own write is not seen", &name, &[reader]))
            };
        }
        let Some(version) = found else {
            self.read_nothing(reader, key, name);
            return Ok(());
        };
        let Some(origin) = self.origins.get(&version) else {
            return Err(self.tell("G1a: a version was read that no transaction wrote", &name, &[reader]));
        };
        if !self.history.txns[origin.txn].committed {
            if self.history.txns[reader].committed {
                return Err(self.tell("G1a: a read of what was rolled back", &name, &[origin.txn, reader]));
            }
            return Ok(());
        }
        if !origin.last || !origin.there {
            return Err(self.tell("G1b: a read of what was overwritten or removed", &name, &[origin.txn, reader]));
        }
        if !self.history.txns[reader].committed {
            return Ok(());
        }
        depend(&mut self.edges, origin.txn, reader, Why::Wr, &name);
        let order = &self.history.order[key];
        let at = order.iter().position(|&listed| listed == version).expect("committed versions are listed");
        if let Some(next) = order.get(at + 1) {
            depend(&mut self.edges, reader, self.origins[next].txn, Why::Rw, &name);
        }
        Ok(())
    }

    fn read_nothing(&mut self, reader: usize, key: &K, name: String) {
        let Some(order) = self.history.order.get(key) else { return };
        if !self.history.txns[reader].committed {
            return;
        }
        let writer = |version: &u64| self.origins[version].txn;
        let mut places = vec![(None, order.first().map(writer))];
        for (at, version) in order.iter().enumerate().filter(|(_, version)| !self.origins[version].there) {
            places.push((Some(writer(version)), order.get(at + 1).map(writer)));
        }
        // Writes of the reader itself come after the read.
        if let Some(at) = order.iter().position(|version| writer(version) == reader) {
            let before = at.checked_sub(1).map(|at| writer(&order[at]));
            places.retain(|place| *place == (before, Some(reader)));
        }
        self.absences.push(Absence { reader, key: name, places });
    }

    /// Adds an edge from each transaction to the transactions that began after its end.
    fn follow_time(&mut self) {
        let txns = &self.history.txns;
        for (before, one) in txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
            for (after, other) in txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
                if one.during.1 < other.during.0 {
                    depend(&mut self.edges, before, after, Why::Time, "");
                }
            }
        }
    }

    /// Rules out absences that would close a cycle, and makes edges of absences that are certain. Returns whether
    /// anything changed.
    fn cross_out(&mut self, level: Level) -> Result<bool, CounterExample> {
        let mut changed = false;
        for at in (0..self.absences.len()).rev() {
            let Absence { reader, key, places } = &self.absences[at];
            let reader = *reader;
            // `only` tells which edges may be on a path that closes a cycle. At the level of snapshot isolation it
            // excludes rw: a cycle that contains the read's own rw edge to `before` and a further rw edge is permitted
            // there.
            let only = |edge: &Edge| level != Level::Snapshot || edge.why != Why::Rw;
            let possible = |&(after, before): &(Option<usize>, Option<usize>)| {
                !after.is_some_and(|after| after != reader && self.path(reader, after, &only).is_some())
                    && !before.is_some_and(|before| before != reader && self.path(before, reader, &only).is_some())
            };
            let left: Vec<_> = places.iter().copied().filter(possible).collect();
            match left[..] {
                [] => {
                    let title = "G-single or G2: a key was read as absent at no possible moment";
                    let involved = places.iter().flat_map(|&(after, before)| [after, before]).flatten();
                    let involved: Vec<usize> = involved.chain([reader]).collect();
                    return Err(self.tell(title, key, &involved));
                }
                [(after, before)] => {
                    let key = key.clone();
                    self.absences.swap_remove(at);
                    if let Some(after) = after {
                        depend(&mut self.edges, after, reader, Why::Wr, &key);
                    }
                    if let Some(before) = before {
                        depend(&mut self.edges, reader, before, Why::Rw, &key);
                    }
                    changed = true;
                }
                _ => self.absences[at].places = left,
            }
        }
        Ok(changed)
    }

    /// Returns a shortest path over edges for which `may` is true, as transactions and the edges that follow them.
    fn path(&self, from: usize, to: usize, may: &dyn Fn(&Edge) -> bool) -> Option<Vec<(usize, Edge)>> {
        let mut came: Vec<Option<(usize, &Edge)>> = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for edge in self.edges[node].iter().filter(|edge| may(edge)) {
                if came[edge.to].is_none() {
                    came[edge.to] = Some((node, edge));
                    queue.push_back(edge.to);
                }
            }
            if came[to].is_some() {
                let mut steps: Vec<(usize, Edge)> = Vec::new();
                let mut at = to;
                while steps.is_empty() || at != from {
                    let (before, edge) = came[at].expect("found on the way");
                    steps.push((before, edge.clone()));
                    at = before;
                }
                steps.reverse();
                return Some(steps);
            }
        }
        None
    }

    fn find_cycle(&self, level: Level) -> Result<(), CounterExample> {
        type May = fn(&Edge) -> bool;
        let kinds: [(&str, May, May); 4] = [
            ("G0: writes interleave", |e| e.why == Why::Ww, |e| matches!(e.why, Why::Ww | Why::Time)),
            ("G1c: transactions depend on each other", |e| e.why == Why::Wr, |e| e.why != Why::Rw),
            ("G-single: what was read does not go together", |e| e.why == Why::Rw, |e| e.why != Why::Rw),
            ("G2: write skew", |e| e.why == Why::Rw, |_| true),
        ];
        let kinds = if level == Level::Snapshot { &kinds[..3] } else { &kinds[..] };
        for (title, first, rest) in kinds {
            for (from, edge) in self.edges.iter().enumerate().flat_map(|(from, to)| to.iter().map(move |e| (from, e))) {
                if first(edge)
                    && let Some(back) = self.path(edge.to, from, rest)
                {
                    let cycle: Vec<_> = [(from, edge.clone())].into_iter().chain(back).collect();
                    return Err(self.tell_cycle(title, &cycle));
                }
            }
        }
        Ok(())
    }

    fn tell(&self, title: &str, key: &str, involved: &[usize]) -> CounterExample {
        let mut text = format!("  key {key}\n");
        self.show(&mut text, involved);
        CounterExample { title: title.to_owned(), text }
    }

    fn tell_cycle(&self, title: &str, cycle: &[(usize, Edge)]) -> CounterExample {
        let mut text = String::new();
        for (from, Edge { to, why, key }) in cycle {
            let line = match why {
                Why::Ww => format!("  T{to} overwrote {key} of T{from}\n"),
                Why::Wr => format!("  T{to} read {key} of T{from}\n"),
                Why::Rw => format!("  T{to} overwrote {key}, which T{from} had read\n"),
                Why::Time => format!("  T{from} was over before T{to} began\n"),
            };
            text += &line;
        }
        self.show(&mut text, &cycle.iter().map(|step| step.0).collect::<Vec<_>>());
        CounterExample { title: title.to_owned(), text }
    }

    fn show(&self, text: &mut String, txns: &[usize]) {
        for &txn in txns {
            writeln!(text, "  T{txn}: {:?}", self.history.txns[txn]).expect("a string takes it");
        }
    }
}

/// Adds an edge, unless both transactions are the same.
fn depend(edges: &mut [Vec<Edge>], from: usize, to: usize, why: Why, key: &str) {
    if from != to {
        edges[from].push(Edge { to, why, key: key.to_owned() });
    }
}
