//! The public interface: maps and sessions.

use core::fmt;
use core::ops::{ControlFlow, Range};

use archipelago_sync::rcu::{Domain, Flavour, Guard};

/// The size in bytes of a thread's bag of replaced memory. When a bag is full, the thread checks which bags can be
/// freed. About four bags of each thread wait to be freed.
const BAG_BYTES: usize = 2 << 10;

use crate::block::Block;
use crate::change::rewrite;
use crate::directory::Directory;
use crate::iter::Iter;
use crate::point::Point;

/// A map from disjoint ranges of points to values, shared by threads. See [the crate](crate).
pub struct RangeMap<K: Point, V: Send + Sync + 'static> {
    directory: Directory<K, V>,
    /// Declared after the directory, so that the directory is dropped first, and the replaced memory that still waits
    /// is reclaimed then.
    domain: Domain,
}

/// A thread's session in a [`RangeMap`]: references that it returns are valid as long as the session is borrowed.
///
/// A session holds an RCU guard: memory that is replaced during the session is not freed before the session ends. Keep
/// a session for a batch of operations, not permanently.
pub struct Pinned<'m, K: Point, V: Send + Sync + 'static> {
    map: &'m RangeMap<K, V>,
    guard: Guard<'m>,
}

/// The error of [`RangeMap::try_insert`], which has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occupied<K, V> {
    /// The first mapped range that overlaps the requested one.
    pub range: Range<K>,
    /// The value that was to be inserted.
    pub value: V,
}

impl<K: fmt::Debug, V> fmt::Display for Occupied<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is occupied: remove it first, or replace it by `insert`", self.range)
    }
}

impl<K: fmt::Debug, V: fmt::Debug> core::error::Error for Occupied<K, V> {}

impl<K: Point, V: Send + Sync + 'static> RangeMap<K, V> {
    /// Makes an empty map.
    pub fn new() -> Self {
        // The domain uses fences: blocks are large and few of them may wait, so threads often check what can be freed.
        // Membarrier would interrupt the other threads at each check, which costs more than a fence at each look-up.
        let domain = Domain::with_flavour(Flavour::Epoch).with_bag_bytes(BAG_BYTES);
        Self { directory: Directory::new(), domain }
    }

    /// Returns the RCU guard for a change. The call first waits a little for the other threads if there are more
    /// threads than processors, and much of the memory that this thread has replaced cannot be freed yet.
    fn begin(&self) -> Guard<'_> {
        let reader = self.domain.reader();
        reader.give_way();
        reader.enter()
    }

    /// Begins a session, for several operations, or for look-ups that return references.
    #[inline]
    pub fn pin(&self) -> Pinned<'_, K, V> {
        Pinned { map: self, guard: self.domain.pin() }
    }

    /// Returns the domain that reclaims replaced memory. Its statistics show how much memory waits for readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<K: Point, V: Clone + Eq + Send + Sync + 'static> RangeMap<K, V> {
    /// Returns a clone of the value at `point`, see [`Pinned::get`].
    #[inline]
    pub fn get(&self, point: K) -> Option<V> {
        self.pin().get(point).cloned()
    }

    /// Maps every point of `range` to `value`. Overlapping ranges are replaced, split or trimmed, and touching ranges
    /// with an equal value are joined. Linearizable. O(log n + overlapped ranges).
    ///
    /// # Panics
    /// If `range` is empty, or if the call is within a change of a `RangeMap`.
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..100, "heap");
    /// map.insert(40..60, "guard");
    /// let all: Vec<_> = map.ranges();
    /// assert_eq!(all, [(0..40, "heap"), (40..60, "guard"), (60..100, "heap")]);
    /// ```
    pub fn insert(&self, range: Range<K>, value: V) {
        not_empty(&range);
        let (guard, mut fill) = (self.begin(), Some(value));
        let done = self.directory.edit::<core::convert::Infallible>(&guard, range.clone(), |held, guard, new| {
            rewrite(held.entries(guard), new, range, &mut |_, _| None, &mut fill);
            Ok(())
        });
        done.unwrap_or_else(|never| match never {});
    }

    /// Inserts as [`insert`](Self::insert) does, if no point of `range` is mapped. Linearizable.
    ///
    /// # Errors
    /// [`Occupied`], with the first mapped range that overlaps `range`, and the value.
    ///
    /// # Panics
    /// In the cases of [`insert`](Self::insert).
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..10, 1);
    /// assert_eq!(map.try_insert(5..20, 2).unwrap_err().range, 0..10);
    /// assert!(map.try_insert(10..20, 2).is_ok());
    /// ```
    pub fn try_insert(&self, range: Range<K>, value: V) -> Result<(), Occupied<K, V>> {
        not_empty(&range);
        let mut fill = Some(value);
        let done = self.directory.edit(&self.begin(), range.clone(), |held, guard, new| {
            if let Some((taken, _)) = held.overlapping(guard, range.clone()).next() {
                return Err(taken);
            }
            rewrite(held.entries(guard), new, range, &mut |_, _| None, &mut fill);
            Ok(())
        });
        match (done, fill) {
            (Err(range), Some(value)) => Err(Occupied { range, value }),
            _ => Ok(()),
        }
    }

    /// Unmaps every point of `range`: overlapping ranges are removed, split or trimmed. Returns how many ranges
    /// overlapped. Linearizable. O(log n + overlapped ranges).
    ///
    /// # Panics
    /// If `range` ends before it begins, or if the call is within a change of a `RangeMap`.
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..10, 'a');
    /// map.insert(20..30, 'b');
    /// assert_eq!(map.remove(5..25), 2);
    /// assert_eq!(map.ranges(), [(0..5, 'a'), (25..30, 'b')]);
    /// ```
    pub fn remove(&self, range: Range<K>) -> usize {
        self.change_each(range, |_, _| None)
    }

    /// Replaces the value of every mapped point of `range` by the result of `change` for it. Ranges that reach beyond
    /// `range` are split, and neighbours that become equal are joined. `change` is called once for each overlapping
    /// range, with the part inside. Returns how many ranges overlapped. Linearizable. O(log n + overlapped ranges).
    ///
    /// `change` runs while the ranges are locked for other changes; it may look points up in this map. If it panics,
    /// the map is unchanged.
    ///
    /// # Panics
    /// In the cases of [`remove`](Self::remove), and if `change` panics.
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..100, "rw");
    /// assert_eq!(map.change(20..30, |_, _| "r"), 1);
    /// assert_eq!(map.ranges(), [(0..20, "rw"), (20..30, "r"), (30..100, "rw")]);
    /// map.change(20..30, |_, _| "rw");
    /// assert_eq!(map.ranges(), [(0..100, "rw")]);
    /// ```
    pub fn change(&self, range: Range<K>, mut change: impl FnMut(Range<K>, &V) -> V) -> usize {
        self.change_each(range, |range, value| Some(change(range, value)))
    }

    fn change_each(&self, window: Range<K>, mut change: impl FnMut(Range<K>, &V) -> Option<V>) -> usize {
        in_order(&window);
        let mut hit = 0;
        let done = self.directory.edit(&self.begin(), window.clone(), |held, guard, new| {
            hit = held.overlapping(guard, window.clone()).count();
            if hit == 0 {
                return Err(());
            }
            rewrite(held.entries(guard), new, window, &mut change, &mut None);
            Ok(())
        });
        debug_assert_eq!(done.is_ok(), hit > 0);
        hit
    }

    /// Maps `size` points to the value, in the lowest gap of `within` that has room for them at a multiple of
    /// `alignment` (0 allows any point). Returns the range of these points, or `None` if no gap has room.
    ///
    /// The check that the range is free and the insertion are one atomic step. The search for the lowest gap is an
    /// earlier step: at that moment no lower gap was large enough, but a lower gap may have become free before the
    /// insertion.
    ///
    /// # Panics
    /// If `size` is 0, and in the cases of [`insert`](Self::insert).
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..0x1800, "text");
    /// assert_eq!(map.insert_in_gap(0x1000, 0x1000, 0..0x10_0000, "stack"), Some(0x2000..0x3000));
    /// ```
    pub fn insert_in_gap(&self, size: K, alignment: K, within: Range<K>, mut value: V) -> Option<Range<K>> {
        loop {
            let gap = self.pin().find_gap(size, alignment, within.clone())?;
            match self.try_insert(gap.clone(), value) {
                Ok(()) => return Some(gap),
                Err(taken) => value = taken.value,
            }
        }
    }

    /// Returns all ranges, ascending, as they were at one moment.
    pub fn ranges(&self) -> Vec<(Range<K>, V)> {
        self.pin().iter().map(|(range, value)| (range, value.clone())).collect()
    }

    /// Checks the map's invariants, while no thread changes it.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let pinned = self.pin();
        let leaves = self.directory.check(&pinned.guard);
        let mut before: Option<(Range<K>, &V)> = None;
        for (range, value) in pinned.iter() {
            assert!(range.start < range.end);
            if let Some((before, last)) = before.replace((range.clone(), value)) {
                assert!(
                    before.end < range.start || before.end == range.start && last != value,
                    "{before:?} and {range:?}"
                );
            }
        }
        assert!(leaves > 0);
    }
}

impl<K: Point, V: Send + Sync + 'static> Pinned<'_, K, V> {
    /// Returns the value at `point`, or `None` if no range contains the point. Linearizable; takes no lock, and writes
    /// no memory. O(log n).
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(10_u32..20, String::from("ten"));
    /// let pinned = map.pin();
    /// assert_eq!(pinned.get(19).map(String::as_str), Some("ten"));
    /// assert_eq!(pinned.get(20), None);
    /// ```
    #[inline]
    pub fn get(&self, point: K) -> Option<&V> {
        let block = self.map.directory.find(&self.guard, point).block(&self.guard);
        block.find(point).map(|place| block.value(place))
    }

    /// Returns the range that contains `point`, and its value. Guarantees and cost are those of [`get`](Self::get).
    #[inline]
    pub fn get_range(&self, point: K) -> Option<(Range<K>, &V)> {
        let block = self.map.directory.find(&self.guard, point).block(&self.guard);
        block.find(point).map(|place| (block.range(place), block.value(place)))
    }

    /// Returns the first range that ends above `point`, and its value: the range that contains `point`, or else the
    /// lowest range above it. Returns `None` if no range ends above `point`. The result was correct at one moment of
    /// the call. O(log n), plus O(log n) for each empty leaf between `point` and the range: changes merge most of them
    /// with their neighbours. The call takes locks in the same cases as [`overlapping`](Self::overlapping).
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(10_u64..20, 'a');
    /// let pinned = map.pin();
    /// assert_eq!(pinned.next_range(0), Some((10..20, &'a')));
    /// assert_eq!(pinned.next_range(19), Some((10..20, &'a')));
    /// assert_eq!(pinned.next_range(20), None);
    /// ```
    pub fn next_range(&self, point: K) -> Option<(Range<K>, &V)> {
        let found = self.map.directory.look(&self.guard, point, |found: &mut Option<_>, block, _| {
            *found = block.first_above(point).map(|place| (block, place));
            if found.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found.map(|(block, place)| (block.range(place), block.value(place)))
    }

    /// Returns an iterator over all ranges that overlap `window`, untrimmed, ascending, as they were at one moment of
    /// this call. O(log n + ranges / 16) for this call, even if the iterator is not advanced, and O(1) for each step.
    /// [`next_range`](Self::next_range) finds the first range alone.
    ///
    /// The call takes no lock, unless concurrent changes have made eight attempts fail. Then it locks the window's
    /// leaves for one attempt. (Within the closure of a change it repeats attempts without locks instead.)
    ///
    /// # Panics
    /// If `window` ends before it begins.
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..10, 'a');
    /// map.insert(20..30, 'b');
    /// map.insert(40..50, 'c');
    /// let pinned = map.pin();
    /// assert!(pinned.overlapping(5..21).map(|(range, _)| range).eq([0..10, 20..30]));
    /// assert!(pinned.overlapping(5..21).rev().map(|(_, value)| *value).eq(['b', 'a']));
    /// ```
    pub fn overlapping(&self, window: Range<K>) -> Iter<'_, K, V> {
        in_order(&window);
        let blocks = self.map.directory.look(&self.guard, window.start, |blocks: &mut Vec<_>, block, high| {
            blocks.push(block);
            if high < window.end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        Iter::new(blocks, window)
    }

    /// Returns an iterator over all ranges, as [`overlapping`](Self::overlapping) does.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.overlapping(K::MIN..K::MAX)
    }

    /// Returns the number of ranges at one moment, at the cost of [`overlapping`](Self::overlapping).
    pub fn len(&self) -> usize {
        let all = ControlFlow::Continue(());
        self.map.directory.look(&self.guard, K::MIN, |len: &mut usize, block, _| {
            *len += block.len();
            all
        })
    }

    /// Returns whether the map had no range at one moment of the call, at the cost of [`next_range`](Self::next_range).
    pub fn is_empty(&self) -> bool {
        self.next_range(K::MIN).is_none()
    }

    /// Returns the lowest range of `size` unmapped points in `within` that begins at a multiple of `alignment` (0
    /// allows any point). The result was correct at one moment of the call. O(log n + ranges between the start of
    /// `within` and the gap). The call takes locks in the same cases as [`overlapping`](Self::overlapping). To continue
    /// an earlier search, let `within` begin at the end of the earlier result.
    ///
    /// # Panics
    /// If `size` is 0 or `within` ends before it begins.
    ///
    /// ```
    /// use archipelago_ranges::RangeMap;
    ///
    /// let map = RangeMap::new();
    /// map.insert(0_u64..10, ());
    /// map.insert(15..20, ());
    /// assert_eq!(map.pin().find_gap(4, 0, 0..100), Some(10..14));
    /// assert_eq!(map.pin().find_gap(4, 4, 0..100), Some(20..24));
    /// assert_eq!(map.pin().find_gap(90, 0, 0..100), None);
    /// ```
    pub fn find_gap(&self, size: K, alignment: K, within: Range<K>) -> Option<Range<K>> {
        in_order(&within);
        assert!(size > K::MIN, "a gap of no points: the size must be at least 1");
        let search = Search { size, alignment, within: within.clone() };
        let found = self.map.directory.look(&self.guard, within.start, |at: &mut Option<State<K>>, block, high| {
            search.step(at.get_or_insert_with(|| search.begin()), block, high)
        });
        match found {
            Some(State::Found(gap)) => Some(gap),
            _ => None,
        }
    }
}

/// A search for a gap.
struct Search<K> {
    size: K,
    alignment: K,
    within: Range<K>,
}

enum State<K> {
    /// The points from this one (an aligned point) to the next range that has not been visited are unmapped.
    FreeFrom(K),
    Found(Range<K>),
    None,
}

impl<K: Point> Search<K> {
    fn begin(&self) -> State<K> {
        self.free_from(self.within.start)
    }

    fn free_from(&self, point: K) -> State<K> {
        point.align_up(self.alignment).map_or(State::None, State::FreeFrom)
    }

    /// Continues the search in a block, whose leaf ends at `high`.
    fn step<V>(&self, state: &mut State<K>, block: &Block<K, V>, high: K) -> ControlFlow<()> {
        let State::FreeFrom(from) = *state else { return ControlFlow::Break(()) };
        for (range, _) in block.entries().skip(block.overlapping(&(from..K::MAX)).start) {
            self.meet(state, range.start);
            let State::FreeFrom(from) = *state else { return ControlFlow::Break(()) };
            *state = self.free_from(range.end.max(from));
        }
        self.meet(state, high);
        match state {
            State::FreeFrom(from) if *from < self.within.end => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    /// Ends the search if the unmapped points up to `end` have room for the requested size, or if the window has no
    /// room any more.
    fn meet(&self, state: &mut State<K>, end: K) {
        let State::FreeFrom(from) = *state else { return };
        match from.checked_add(self.size) {
            Some(to) if to <= self.within.end => {
                if to <= end {
                    *state = State::Found(from..to);
                }
            }
            _ => *state = State::None,
        }
    }
}

/// # Panics
/// If the range is empty.
fn not_empty<K: Point>(range: &Range<K>) {
    assert!(range.start < range.end, "{range:?} is empty: a range begins below its end");
}

/// # Panics
/// If the range ends before it begins.
fn in_order<K: Point>(range: &Range<K>) {
    assert!(range.start <= range.end, "{range:?} ends before it begins");
}

impl<K: Point, V: Send + Sync + 'static> Default for RangeMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Point, V: fmt::Debug + Send + Sync + 'static> fmt::Debug for RangeMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pin().iter()).finish()
    }
}

impl<K: Point, V: fmt::Debug + Send + Sync + 'static> fmt::Debug for Pinned<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}

impl<K: Point, V: Clone + Eq + Send + Sync + 'static> FromIterator<(Range<K>, V)> for RangeMap<K, V> {
    /// Inserts the entries one after the other.
    fn from_iter<I: IntoIterator<Item = (Range<K>, V)>>(entries: I) -> Self {
        let map = Self::new();
        entries.into_iter().for_each(|(range, value)| map.insert(range, value));
        map
    }
}
