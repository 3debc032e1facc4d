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
//! | long fork | a cycle with several rw, no two of which are adjacent: snapshots see commits in different orders |
//! | G2 | a cycle with several rw: write skew, also by phantoms |
//!
//! A serializable history has none of these anomalies. Under snapshot isolation, each cycle of G2 has two successive
//! transactions each of which read what the next transaction overwrote (Fekete et al., Making Snapshot Isolation
//! Serializable, TODS 2005). So [`Level::Snapshot`] permits such cycles, and no others.
//!
//! # Moments
//! The nodes of the graph are moments. At [`Level::Snapshot`] a transaction T has two, its snapshot `s(T)` and its
//! commit `c(T)`, with an edge from the first to the second. Ww, wr and time lead from `c(T1)` to `s(T2)`, and rw leads
//! from `s(T1)` to `c(T2)`. So two successive rw edges never join, and each cycle of the graph is an anomaly. At the
//! other levels a transaction is one moment.
//!
//! # Absent keys
//! A read that finds nothing does not tell *which* absence it saw: before the first version, or after one of the
//! removals. First, all certain dependencies are put into the graph. Then, repeatedly, absences are ruled out: an
//! absence is impossible for a read if it would close a cycle. If a read has no possible absence left, the history has
//! an anomaly. If one is left, it is certain. If several remain possible, nothing is claimed about the read.

use core::fmt::{Debug, Write as _};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// Found exactly these versions from the first key to the second, both included; ascending.
    Range(K, K, Vec<(K, u64)>),
    /// Looked for these keys, and found exactly these versions of them; both ascending.
    Among(Vec<K>, Vec<(K, u64)>),
}

/// The anomalies that are forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// All anomalies except G2, and snapshots that are older than the transaction: if a transaction was over when
    /// another began, the other one's snapshot includes it.
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
    /// A transaction's snapshot is earlier than its commit.
    Within,
    Ww,
    Wr,
    Rw,
    Time,
}

/// An edge to a moment.
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
struct Origin<'h, K> {
    txn: usize,
    key: &'h K,
    there: bool,
    /// `true` if the transaction does not write the key again.
    last: bool,
}

struct Judge<'h, K> {
    level: Level,
    history: &'h History<K>,
    origins: BTreeMap<u64, Origin<'h, K>>,
    /// The outgoing edges of each moment.
    edges: Vec<Vec<Edge>>,
    absences: Vec<Absence>,
}

/// Judges a history.
///
/// # Panics
/// If two writes have the same number.
pub fn check<K: Ord + Clone + Debug>(level: Level, history: &History<K>) -> Verdict {
    let edges = vec![Vec::new(); 2 * history.txns.len()];
    let mut judge = Judge { level, history, origins: BTreeMap::new(), edges, absences: Vec::new() };
    match judge.run() {
        Ok(()) => Verdict::Ok,
        Err(counter_example) => Verdict::Violation(counter_example),
    }
}

impl<K: Ord + Clone + Debug> Judge<'_, K> {
    fn run(&mut self) -> Result<(), CounterExample> {
        if self.level == Level::Snapshot {
            for txn in 0..self.history.txns.len() {
                let within = Edge { to: self.commit(txn), why: Why::Within, key: String::new() };
                let snapshot = self.snapshot(txn);
                self.edges[snapshot].push(within);
            }
        }
        self.number();
        self.follow_order()?;
        for reader in 0..self.history.txns.len() {
            self.follow_reads(reader)?;
        }
        if self.level != Level::Serializable {
            self.follow_time();
        }
        while self.cross_out()? {}
        self.find_cycle()
    }

    fn snapshot(&self, txn: usize) -> usize {
        if self.level == Level::Snapshot { 2 * txn } else { self.commit(txn) }
    }

    fn commit(&self, txn: usize) -> usize {
        2 * txn + 1
    }

    /// Adds an edge, unless both transactions are the same.
    fn depend(&mut self, from: usize, to: usize, why: Why, key: &str) {
        if from != to {
            let (from, to) = match why {
                Why::Rw => (self.snapshot(from), self.commit(to)),
                _ => (self.commit(from), self.snapshot(to)),
            };
            self.edges[from].push(Edge { to, why, key: key.to_owned() });
        }
    }

    /// Finds the write that made each version.
    fn number(&mut self) {
        let history = self.history;
        for (txn, what) in history.txns.iter().enumerate() {
            let mut last = BTreeMap::new();
            for action in &what.actions {
                let Action::Write { key, version, there } = action else { continue };
                let twice = self.origins.insert(*version, Origin { txn, key, there: *there, last: true });
                assert!(twice.is_none(), "two writes are number {version}");
                if let Some(before) = last.insert(key, *version) {
                    self.origins.get_mut(&before).expect("it was put there").last = false;
                }
            }
        }
    }

    /// Adds the edges ww. Checks that the order lists the last version of each key in each committed transaction once,
    /// and nothing else.
    fn follow_order(&mut self) -> Result<(), CounterExample> {
        let mut listed = BTreeMap::new();
        let history = self.history;
        for (key, versions) in &history.order {
            let mut before = None;
            for version in versions {
                let origin = self.origins.get(version);
                let origin = origin.filter(|origin| origin.key == key && history.txns[origin.txn].committed);
                let Some(origin) = origin else {
                    let title = "G1a: a version is there that was never committed to this key";
                    return Err(self.tell(title, &format!("{key:?}"), &[]));
                };
                let txn = origin.txn;
                if listed.insert(*version, ()).is_some() || !origin.last {
                    let title = "G0: a version is there twice, or was overwritten by its own transaction";
                    return Err(self.tell(title, &format!("{key:?}"), &[txn]));
                }
                if let Some(before) = before.replace(txn) {
                    self.depend(before, txn, Why::Ww, &format!("{key:?}"));
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
                    // A key that no other transaction wrote makes no dependency, but the result of the read is checked
                    // all the same.
                    let written = history.order.range(from.clone()..=to.clone()).map(|(key, _)| key);
                    let own_keys = own.keys().copied().filter(|&key| from <= key && key <= to);
                    let inside = found.iter().map(|(key, _)| key).filter(|&key| from <= key && key <= to);
                    let all = written.chain(own_keys).chain(inside).collect();
                    self.read_all(reader, &all, found, &own)?;
                }
                Action::Among(keys, found) => self.read_all(reader, &keys.iter().collect(), found, &own)?,
            }
        }
        Ok(())
    }

    /// Follows the reads of the keys `all`, of which exactly these versions were found. Checks that what was found is
    /// ascending and among `all`.
    fn read_all(
        &mut self,
        reader: usize,
        all: &BTreeSet<&K>,
        found: &[(K, u64)],
        own: &BTreeMap<&K, (u64, bool)>,
    ) -> Result<(), CounterExample> {
        let other = found.iter().find(|(key, _)| !all.contains(key)).map(|(key, _)| (key, "which is out of it"));
        let mut pairs = found.windows(2);
        let unordered = || pairs.find(|pair| pair[0].0 >= pair[1].0).map(|pair| (&pair[1].0, "twice or out of order"));
        if let Some((key, what)) = other.or_else(unordered) {
            return Err(self.tell(&format!("a range showed a key {what}"), &format!("{key:?}"), &[reader]));
        }
        let found: BTreeMap<&K, u64> = found.iter().map(|(key, version)| (key, *version)).collect();
        for &key in all {
            self.read(reader, key, found.get(key).copied(), own.get(key).copied())?;
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
        let Some(origin) = self.origins.get(&version).filter(|origin| origin.key == key) else {
            return Err(self.tell("G1a: a version was read that no transaction wrote to this key", &name, &[reader]));
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
        let (writer, history) = (origin.txn, self.history);
        self.depend(writer, reader, Why::Wr, &name);
        let order = &history.order[key];
        let at = order.iter().position(|&listed| listed == version).expect("committed versions are listed");
        if let Some(next) = order.get(at + 1) {
            let overwriter = self.origins[next].txn;
            self.depend(reader, overwriter, Why::Rw, &name);
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

    /// Adds an edge from each committed transaction to the committed ones that began after its end.
    fn follow_time(&mut self) {
        let history = self.history;
        let txns = &history.txns;
        for (before, one) in txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
            for (after, other) in txns.iter().enumerate().filter(|(_, txn)| txn.committed) {
                if one.during.1 < other.during.0 {
                    self.depend(before, after, Why::Time, "");
                }
            }
        }
    }

    /// Rules out absences that would close a cycle, and makes edges of absences that are certain. Returns whether
    /// anything changed.
    fn cross_out(&mut self) -> Result<bool, CounterExample> {
        let mut changed = false;
        for at in (0..self.absences.len()).rev() {
            let Absence { reader, key, places } = &self.absences[at];
            let reader = *reader;
            // An edge closes a cycle if a path leads back from its end to its start.
            let possible = |&(after, before): &(Option<usize>, Option<usize>)| {
                let back = |from, to| self.path(from, to, &|_| true).is_some();
                let snapshot = self.snapshot(reader);
                !after.is_some_and(|after| after != reader && back(snapshot, self.commit(after)))
                    && !before.is_some_and(|before| before != reader && back(self.commit(before), snapshot))
            };
            let left: Vec<_> = places.iter().copied().filter(possible).collect();
            match left[..] {
                [] => {
                    let title = "G-single, long fork or G2: a key was read as absent at no possible moment";
                    let involved = places.iter().flat_map(|&(after, before)| [after, before]).flatten();
                    let involved: Vec<usize> = involved.chain([reader]).collect();
                    return Err(self.tell(title, key, &involved));
                }
                [(after, before)] => {
                    let key = key.clone();
                    self.absences.swap_remove(at);
                    if let Some(after) = after {
                        self.depend(after, reader, Why::Wr, &key);
                    }
                    if let Some(before) = before {
                        self.depend(reader, before, Why::Rw, &key);
                    }
                    changed = true;
                }
                _ => self.absences[at].places = left,
            }
        }
        Ok(changed)
    }

    /// Returns a shortest path over edges for which `may` is true, as moments and the edges that follow them.
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

    fn find_cycle(&self) -> Result<(), CounterExample> {
        type May = fn(&Edge) -> bool;
        let several = match self.level {
            Level::Snapshot => "long fork: snapshots saw commits in different orders",
            _ => "G2: write skew",
        };
        let kinds: [(&str, May, May); 4] = [
            ("G0: writes interleave", |e| e.why == Why::Ww, |e| matches!(e.why, Why::Within | Why::Ww | Why::Time)),
            ("G1c: transactions depend on each other", |e| e.why == Why::Wr, |e| e.why != Why::Rw),
            ("G-single: what was read does not go together", |e| e.why == Why::Rw, |e| e.why != Why::Rw),
            (several, |e| e.why == Why::Rw, |_| true),
        ];
        for (title, first, rest) in kinds {
            for (from, edge) in self.edges.iter().enumerate().flat_map(|(from, to)| to.iter().map(move |e| (from, e))) {
                if first(edge)
                    && let Some(back) = self.path(edge.to, from, &rest)
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
        let cycle = cycle.iter().filter(|(_, edge)| edge.why != Why::Within);
        for (from, Edge { to, why, key }) in cycle.clone() {
            let (from, to) = (from / 2, to / 2);
            let line = match why {
                Why::Within => unreachable!("it stays within a transaction"),
                Why::Ww => format!("  T{to} overwrote {key} of T{from}\n"),
                Why::Wr => format!("  T{to} read {key} of T{from}\n"),
                Why::Rw => format!("  T{to} overwrote {key}, which T{from} had read\n"),
                Why::Time => format!("  T{from} was over before T{to} began\n"),
            };
            text += &line;
        }
        self.show(&mut text, &cycle.map(|step| step.0 / 2).collect::<Vec<_>>());
        CounterExample { title: title.to_owned(), text }
    }

    fn show(&self, text: &mut String, txns: &[usize]) {
        for &txn in txns {
            writeln!(text, "  T{txn}: {:?}", self.history.txns[txn]).expect("a string takes it");
        }
    }
}
