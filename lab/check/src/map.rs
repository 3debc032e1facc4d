//! Are the answers of an ordered map right? Linearizability key by key, and scans by what they promise.
//!
//! Linearizability is local: a history is linearizable when each key's part of it is. So every key is checked on its
//! own, as one cell that holds a value or nothing, which keeps the search small however long the history is.
//!
//! # Scans
//! A scan of an ordered map of this library is not atomic over several keys. It promises that the keys come in order
//! and once each, within bounds and limit; that no key is missing that was there throughout the call; and that no pair
//! is shown that was current at no moment of the call. Over one key, the last two are what a look-up of that key
//! promises that begins and ends with the scan: answered with the value shown, or with nothing if the scan passed the
//! key by (a full scan passes by all keys up to its last, a scan that ran dry all keys to the end). Each scan is
//! therefore entered as such a look-up into the history of every key it covers.
//!
//! *Sound*: a map that keeps the promises is never accused, because its own order of events places all these look-ups.
//! *Complete* for these promises, as far as stamps can tell: a history is accepted only if some order of each key's
//! operations explains all answers and scans together. What is not asked for: that different keys of one scan be
//! explained by one moment. Where that is promised too, judge the history by [`AtomicMap`].

use crate::history::{Entry, History};
use crate::linear::{self, CounterExample, Model, Shown, Verdict};
use core::fmt::Debug;
use core::hash::Hash;
use core::ops::Bound;
use std::collections::BTreeMap;

/// What is asked of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapOp<K, V> {
    /// Look up; answered with the value.
    Get(K),
    /// Insert or replace; answered with the old value.
    Insert(K, V),
    /// Replace by this value if the key is there; answered with the old value.
    Update(K, V),
    /// Remove; answered with the old value.
    Remove(K),
    /// Visit up to the given number of entries from the key on, ascending.
    Scan(K, usize),
    /// Visit up to the given number of entries from the key on, descending.
    ScanRev(K, usize),
}

/// What a map answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRet<K, V> {
    /// Of all operations on one key.
    Value(Option<V>),
    /// Of scans, in the order of the visit.
    Entries(Vec<(K, V)>),
}

/// A recorded operation on a map.
pub type MapEntry<K, V> = Entry<MapOp<K, V>, MapRet<K, V>>;

/// What a map's types must offer to be checked.
pub trait Part: Clone + Debug + Eq + Hash {}
impl<T: Clone + Debug + Eq + Hash> Part for T {}

/// Judges a history of a map that held `initial` before it; `steps` bounds the search of each key
/// ([`linear::DEFAULT_STEPS`]).
///
/// # Panics
/// When an operation on one key is recorded with a scan's answer, or a scan with a value.
pub fn check_map<K: Part + Ord, V: Part>(
    initial: &BTreeMap<K, V>,
    history: &History<MapOp<K, V>, MapRet<K, V>>,
    steps: u64,
) -> Verdict {
    let mut cells: BTreeMap<&K, Vec<CellEntry<V>>> = initial.keys().map(|key| (key, Vec::new())).collect();
    for entry in history.entries() {
        if let Some(title) = misshapen(entry) {
            return Verdict::Violation(CounterExample { title, text: format!("  {}", Shown(entry)) });
        }
        gather_points(&mut cells, entry);
    }
    // After all keys are known, so that a scan is asked about each of them.
    for entry in history.entries() {
        gather_scan(&mut cells, entry);
    }
    let mut undecided = None;
    for (key, entries) in cells {
        match linear::check_within(&Cell { initial: initial.get(key).cloned() }, &entries, steps) {
            Verdict::Ok => {}
            Verdict::Undecided(why) => undecided = Some(format!("key {key:?}: {why}")),
            Verdict::Violation(CounterExample { title, text }) => {
                return Verdict::Violation(CounterExample { title: format!("key {key:?}: {title}"), text });
            }
        }
    }
    undecided.map_or(Verdict::Ok, Verdict::Undecided)
}

/// What is wrong with a scan's answer by itself.
fn misshapen<K: Ord + Debug, V: Debug>(entry: &MapEntry<K, V>) -> Option<String> {
    let (from, limit, down) = match &entry.op {
        MapOp::Scan(from, limit) => (from, *limit, false),
        MapOp::ScanRev(from, limit) => (from, *limit, true),
        _ => return None,
    };
    let found = entries_of(entry);
    let before = |a: &K, b: &K| if down { a > b } else { a < b };
    if found.len() > limit {
        return Some(format!("a scan showed {} entries, its limit was {limit}", found.len()));
    }
    if let Some((first, _)) = found.first().filter(|(first, _)| before(first, from)) {
        return Some(format!("a scan from {from:?} showed {first:?}, which is out of its range"));
    }
    let pair = found.windows(2).find(|pair| !before(&pair[0].0, &pair[1].0))?;
    let what = if pair[0].0 == pair[1].0 { "twice" } else { "out of order" };
    Some(format!("a scan showed {:?} {what} (after {:?})", pair[1].0, pair[0].0))
}

fn entries_of<K, V>(entry: &MapEntry<K, V>) -> &[(K, V)] {
    match &entry.ret {
        MapRet::Entries(found) => found,
        MapRet::Value(_) => panic!("a scan was recorded with the answer of a look-up"),
    }
}

/// Files an operation on one key under it, and makes the keys a scan showed known.
fn gather_points<'h, K: Part + Ord, V: Part>(
    cells: &mut BTreeMap<&'h K, Vec<CellEntry<V>>>,
    entry: &'h MapEntry<K, V>,
) {
    let (key, op) = match &entry.op {
        MapOp::Get(key) => (key, CellOp::Get),
        MapOp::Insert(key, value) => (key, CellOp::Insert(value.clone())),
        MapOp::Update(key, value) => (key, CellOp::Update(value.clone())),
        MapOp::Remove(key) => (key, CellOp::Remove),
        MapOp::Scan(..) | MapOp::ScanRev(..) => {
            for (key, _) in entries_of(entry) {
                cells.entry(key).or_default();
            }
            return;
        }
    };
    let MapRet::Value(ret) = &entry.ret else { panic!("an operation on one key was recorded with a scan's answer") };
    cells.entry(key).or_default().push(cell_entry(entry, op, ret.clone()));
}

/// Files a scan as a look-up under every key it covers.
fn gather_scan<K: Part + Ord, V: Part>(cells: &mut BTreeMap<&K, Vec<CellEntry<V>>>, entry: &MapEntry<K, V>) {
    let (from, limit, down) = match &entry.op {
        MapOp::Scan(from, limit) => (from, *limit, false),
        MapOp::ScanRev(from, limit) => (from, *limit, true),
        _ => return,
    };
    let found = entries_of(entry);
    let far = match found.last() {
        Some((last, _)) if found.len() == limit => Bound::Included(last),
        None if limit == 0 => return,
        _ => Bound::Unbounded,
    };
    let bounds = if down { (far, Bound::Included(from)) } else { (Bound::Included(from), far) };
    let mut found: Vec<_> = found.iter().collect();
    if down {
        found.reverse();
    }
    let mut found = found.into_iter().peekable();
    for (key, cell) in cells.range_mut::<K, _>(bounds) {
        let seen = found.next_if(|(shown, _)| shown == *key).map(|(_, value)| value.clone());
        cell.push(cell_entry(entry, CellOp::Scan, seen));
    }
}

/// What is asked of one key. `Scan` is a look-up made by a scan, told apart for the reader of a counter-example.
#[derive(Clone, Debug)]
enum CellOp<V> {
    Get,
    Scan,
    Insert(V),
    Update(V),
    Remove,
}

type CellEntry<V> = Entry<CellOp<V>, Option<V>>;

fn cell_entry<K, V>(entry: &MapEntry<K, V>, op: CellOp<V>, ret: Option<V>) -> CellEntry<V> {
    Entry { thread: entry.thread, invoked: entry.invoked, returned: entry.returned, op, ret }
}

/// One key of a map.
struct Cell<V> {
    initial: Option<V>,
}

impl<V: Part> Model for Cell<V> {
    type Op = CellOp<V>;
    type Ret = Option<V>;
    type State = Option<V>;

    fn initial(&self) -> Option<V> {
        self.initial.clone()
    }

    fn step(&self, state: &Option<V>, op: &CellOp<V>, ret: &Option<V>) -> Option<Option<V>> {
        (state == ret).then(|| match op {
            CellOp::Get | CellOp::Scan => state.clone(),
            CellOp::Insert(value) => Some(value.clone()),
            CellOp::Update(value) => state.is_some().then(|| value.clone()),
            CellOp::Remove => None,
        })
    }
}

/// A map whose every operation is atomic, scans included: the model for structures that promise snapshots of ranges.
/// The state is the whole map, so keep histories to tens of keys and hundreds of operations.
#[derive(Clone, Debug)]
pub struct AtomicMap<K, V> {
    /// What the map held before the history.
    pub initial: BTreeMap<K, V>,
}

impl<K: Part + Ord, V: Part> Model for AtomicMap<K, V> {
    type Op = MapOp<K, V>;
    type Ret = MapRet<K, V>;
    type State = BTreeMap<K, V>;

    fn initial(&self) -> BTreeMap<K, V> {
        self.initial.clone()
    }

    fn step(&self, state: &Self::State, op: &MapOp<K, V>, ret: &MapRet<K, V>) -> Option<Self::State> {
        let mut next = state.clone();
        (apply(&mut next, op) == *ret).then_some(next)
    }
}

/// Runs one operation on a sequential map: the answer every checker here holds to be right.
pub fn apply<K: Clone + Ord, V: Clone>(map: &mut BTreeMap<K, V>, op: &MapOp<K, V>) -> MapRet<K, V> {
    let owned = |(key, value): (&K, &V)| (key.clone(), value.clone());
    match op {
        MapOp::Get(key) => MapRet::Value(map.get(key).cloned()),
        MapOp::Insert(key, value) => MapRet::Value(map.insert(key.clone(), value.clone())),
        MapOp::Update(key, value) => MapRet::Value(map.get_mut(key).map(|old| core::mem::replace(old, value.clone()))),
        MapOp::Remove(key) => MapRet::Value(map.remove(key)),
        MapOp::Scan(from, limit) => MapRet::Entries(map.range(from..).take(*limit).map(owned).collect()),
        MapOp::ScanRev(from, limit) => MapRet::Entries(map.range(..=from).rev().take(*limit).map(owned).collect()),
    }
}
