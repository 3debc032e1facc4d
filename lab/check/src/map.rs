//! Checks whether the results of an ordered map are right: linearizability key by key, and scans by their documented
//! guarantees.
//!
//! Linearizability is local: a history is linearizable if each key's part of it is. So every key is checked on its own,
//! as one cell with a value or nothing. This keeps the search small even for a long history.
//!
//! # Scans
//! A scan of an ordered map of this library is not atomic over several keys. It guarantees the following. Keys are
//! shown in order, once each, and within bounds and limit. No key is missing that was present throughout the call. Each
//! pair that is shown was current at some moment of the call.
//!
//! For one key, the last two guarantees are those of a look-up that begins and ends with the scan. The look-up returns
//! the value that the scan showed, or nothing if the scan covered the key without showing it. A scan that reached its
//! limit covers all keys up to the last one shown; a scan that ended before its limit covers all keys to the end. So
//! each scan is entered as such a look-up into the history of every key that it covers.
//!
//! *Sound*: a map that keeps the guarantees is never accused, because its own order of events places all these
//! look-ups. *Complete* for these guarantees, as far as stamps (numbers that order events; see [`crate::history`]) can
//! tell: a history is accepted only if, for each key, some order of its operations explains all results and scans
//! together. One scan may show different keys as of different moments. If a map guarantees one moment for the whole
//! scan, check its history with [`AtomicMap`].

use crate::history::{Entry, History};
use crate::linear::{self, CounterExample, Model, Shown, Verdict};
use core::fmt::Debug;
use core::hash::Hash;
use core::ops::Bound;
use std::collections::BTreeMap;

/// The operations of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapOp<K, V> {
    /// Looks a key up. Returns the value.
    Get(K),
    /// Inserts a key or replaces its value. Returns the old value.
    Insert(K, V),
    /// Replaces the value if the key is present. Returns the old value.
    Update(K, V),
    /// Removes a key. Returns the old value.
    Remove(K),
    /// Visits up to the given number of entries from the key on, ascending.
    Scan(K, usize),
    /// Visits up to the given number of entries from the key on, descending.
    ScanRev(K, usize),
}

/// The results of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapRet<K, V> {
    /// The result of operations on one key.
    Value(Option<V>),
    /// The result of scans, in the order of the visits.
    Entries(Vec<(K, V)>),
}

/// A recorded operation on a map.
pub type MapEntry<K, V> = Entry<MapOp<K, V>, MapRet<K, V>>;

/// The traits of keys and values that a check needs.
pub trait Part: Clone + Debug + Eq + Hash {}
impl<T: Clone + Debug + Eq + Hash> Part for T {}

/// Checks a history of a map that contained `initial` at the beginning. `steps` limits the search of each key (for
/// example [`linear::DEFAULT_STEPS`]).
///
/// # Panics
/// If an operation on one key is recorded with a scan's result, or a scan with a value.
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
    // Scans are entered when all keys are known, so that each scan is entered for every key that it covers.
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

/// Returns what is wrong with a scan's result by itself.
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

/// Enters an operation on one key into the history of the key. For a scan, makes an empty history for each shown key
/// that has none yet.
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

/// Enters a scan as a look-up into the history of every key that it covers.
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

/// An operation on one key. `Scan` is a look-up made by a scan; a counter-example shows it as such.
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

/// A map whose operations are all atomic, including scans: the model for structures whose scans are snapshots. The
/// state is the whole map, so histories should have tens of keys and hundreds of operations at most.
#[derive(Clone, Debug)]
pub struct AtomicMap<K, V> {
    /// The contents of the map before the history.
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

/// Runs one operation on a sequential map. Returns the result that [`AtomicMap`] takes as right.
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
