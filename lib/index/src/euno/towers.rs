//! Towers: the search layer of [`EunoSkipList`](super::EunoSkipList), by which a walk finds the chunk (leaf) of a key.
//!
//! About every other chunk, at random, has a tower, of random height. On each level, a tower stores a link to the
//! following tower on this level and, beside the link, the following tower's key. So a walk decides whether to follow
//! the link without reading the following tower. The last tower of the walk leads to its chunk, and from this chunk the
//! walk proceeds to the right, chunk by chunk.
//!
//! # Invariants
//! 1. Each level's towers are in ascending order of keys, and every tower of a level is also on the level below.
//! 2. A tower's key is its chunk's `low`. The chunk is not obsolete as long as the tower is in level 0.
//! 3. Towers change only under their locks, never in hardware transactions. So version validation protects readers of
//!    towers even in maps whose chunks are changed by hardware transactions.
//!
//! To link or unlink a tower, a thread locks the tower before it on each of its levels, from right to left. Each of
//! these towers must still have the version at which the search found it. Threads that hold towers wait only for towers
//! to the left of them.

use super::chunk::Chunk;
use super::form::ChunkForm;
use super::held::Held;
use super::index::{Aim, Index, show_some};
use super::look::{Alone, AtVersion, Look, order, settled, walking};
use super::size::{Size, Wide};
use super::waste::Waste;
use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use archipelago_platform::memory::taken_by;
use archipelago_platform::pad::CachePadded;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::region::{Again, Link, Var, Versioned, Walk};
use archipelago_sync::version_lock::{Version, VersionLock};
use core::alloc::Layout;
use core::marker::PhantomData;

/// The number of levels. One tower in four also has the next level.
const LEVELS: usize = 10;

/// A link, and the key of its target.
struct Next<S: Size> {
    key: Var,
    to: Link<Tower<S>>,
}

/// A tower, as the module's documentation describes it. It has three cache lines.
#[repr(C, align(64))]
pub struct Tower<S: Size> {
    lock: VersionLock,
    /// The tower's key and its number of levels, which never change.
    low: Var,
    levels: Var,
    chunk: Link<Chunk<S>>,
    next: [Next<S>; LEVELS],
}

const _: () = assert!(size_of::<Tower<Wide>>() == 192);

// SAFETY: the page's words and links are plain fields.
unsafe impl<S: Size> Versioned for Tower<S> {
    const UNDER_LOCK_ONLY: bool = true;

    #[inline(always)]
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

impl<S: Size> Tower<S> {
    fn new(low: u64, levels: usize, chunk: *mut Chunk<S>) -> Box<Self> {
        // SAFETY: the target is null.
        let none = || unsafe { Link::new(core::ptr::null_mut()) };
        Box::new(Self {
            lock: VersionLock::new(),
            low: Var::new(low),
            levels: Var::new(levels as u64),
            // SAFETY: the target is a chunk, which is freed after its tower.
            chunk: unsafe { Link::new(chunk) },
            next: core::array::from_fn(|_| Next { key: Var::new(0), to: none() }),
        })
    }

    fn levels(&self) -> usize {
        self.levels.load() as usize
    }

    /// Returns whether a walk to the goal proceeds to the next tower of a level, see [`reaches`].
    #[inline(always)]
    fn goes_on<F: ChunkForm>(&self, look: &impl Look, level: usize, aim: Aim<F::Probe<'_>>) -> Result<bool, Again> {
        let Next { key, to } = &self.next[level];
        Ok(!to.load().is_null() && reaches::<F>(look, look.get(key), aim)?)
    }

    /// Sets the link of a level. The caller must be the only thread that may change the tower.
    fn set(&self, level: usize, key: u64, to: *mut Self) {
        self.next[level].key.set(key);
        // SAFETY: the target is null or a tower, which is retired by RCU once no tower leads to it.
        unsafe { self.next[level].to.publish(to) };
    }
}

/// Returns whether a walk to the goal passes this bound. For [`Aim::At`], the walk does if the key is the bound or
/// greater; for [`Aim::Below`], only if the goal's bound is greater; for [`Aim::Last`], always.
#[inline(always)]
fn reaches<F: ChunkForm>(look: &impl Look, bound: u64, aim: Aim<F::Probe<'_>>) -> Result<bool, Again> {
    Ok(match aim {
        Aim::At(key) => order::<F>(look, bound, key)?.is_le(),
        Aim::Below(key) => order::<F>(look, bound, key)?.is_lt(),
        Aim::Last => true,
    })
}

/// The towers of a skip list.
pub struct Towers<F: ChunkForm, S: Size> {
    head: Box<Tower<S>>,
    /// The state of the random generator of heights. It is not in the cache line of the head, which all walks read.
    random: CachePadded<AtomicU64>,
    /// The number of towers, not counting the head.
    towers: CachePadded<AtomicUsize>,
    form: PhantomData<F>,
}

/// The last tower before a key on each level, at a version.
type Before<'g, S> = [(&'g Tower<S>, Version); LEVELS];

impl<F: ChunkForm, S: Size> Towers<F, S> {
    /// Returns a random height, which is 0 (no tower) with probability one half. Of the towers that have a level, about
    /// one in four has the next level, too.
    fn height(&self) -> usize {
        let mut bits = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        if bits & 1 == 0 { 0 } else { (1 + (bits >> 1).trailing_zeros() as usize / 2).min(LEVELS) }
    }

    /// Returns the towers before `key`. Each was linked in its level at the returned version. The caller holds a guard.
    fn before(&self, key: F::Probe<'_>) -> Result<Before<'_, S>, Again> {
        let mut tower = &*self.head;
        let mut version = tower.lock.read_unlocked().ok_or(Again)?;
        let mut before = [(tower, version); LEVELS];
        for level in (0..LEVELS).rev() {
            loop {
                let look = AtVersion(&tower.lock, version);
                let to = tower.next[level].to.load();
                let goes_on = tower.goes_on::<F>(&look, level, Aim::Below(key))?;
                look.prove()?;
                if !goes_on {
                    break;
                }
                // SAFETY: the pointer is proven, within the caller's guard.
                let next = unsafe { &*to };
                // A tower that is not obsolete is linked.
                let seen = next.lock.read_unlocked().ok_or(Again)?;
                (tower, version) = (next, seen);
            }
            before[level] = (tower, version);
        }
        Ok(before)
    }

    /// Locks the towers of `before` on the lowest `levels` levels. A tower that is on several of these levels is locked
    /// once.
    fn lock<'g>(before: &Before<'g, S>, levels: usize) -> Result<Vec<Held<'g, Tower<S>>>, Again> {
        let mut held: Vec<Held<'g, Tower<S>>> = Vec::with_capacity(levels);
        for &(tower, version) in &before[..levels] {
            // On each next level, the tower is the same as on the level below, or farther left.
            if held.last().is_none_or(|last| !core::ptr::eq(last.page(), tower)) {
                held.push(Held::wait_at(tower, version).ok_or(Again)?);
            }
        }
        held.iter_mut().for_each(Held::change);
        Ok(held)
    }

    fn try_add(&self, tower: &Tower<S>) -> Result<(), Again> {
        // SAFETY: a tower's key is freed with the tower.
        let before = self.before(unsafe { F::kept(tower.low.load()) })?;
        let _held = Self::lock(&before, tower.levels())?;
        for (level, (left, _)) in before.iter().enumerate().take(tower.levels()) {
            let Next { key, to } = &left.next[level];
            tower.set(level, key.load(), to.load());
        }
        for (level, (left, _)) in before.iter().enumerate().take(tower.levels()) {
            left.set(level, tower.low.load(), core::ptr::from_ref(tower).cast_mut());
        }
        Ok(())
    }

    fn try_forget(&self, chunk: &Chunk<S>, waste: &mut Waste) -> Result<(), Again> {
        let low = chunk.low::<F>();
        let before = self.before(low)?;
        let (left, version) = before[0];
        let look = AtVersion(&left.lock, version);
        let (key, to) = (look.get(&left.next[0].key), left.next[0].to.load());
        let is_its = !to.is_null() && order::<F>(&look, key, low)?.is_eq();
        look.prove()?;
        if !is_its {
            return Ok(());
        }
        // SAFETY: the pointer is proven, within the caller's guard; the tower's height never changes.
        let tower = unsafe { &*to };
        let gone = Held::wait(tower).ok_or(Again)?;
        let _held = Self::lock(&before, tower.levels())?;
        for (level, (left, _)) in before.iter().enumerate().take(tower.levels()) {
            debug_assert!(core::ptr::eq(left.next[level].to.load(), tower), "a tower follows what is before it");
            let Next { key, to } = &tower.next[level];
            left.set(level, key.load(), to.load());
        }
        self.towers.fetch_sub(1, Relaxed);
        waste.key(tower.low.load());
        waste.page(tower);
        gone.gone();
        Ok(())
    }

    /// Returns the lower bounds of all chunks but the first, in ascending order. The caller holds a guard. If a chunk
    /// is being changed, only the bounds before it and its own are returned.
    fn lows(&self) -> Vec<u64> {
        let (mut lows, mut at) = (Vec::new(), self.head.chunk.load());
        loop {
            // SAFETY: the first chunk stays, and the pointers to the others are proven, within the caller's guard.
            let chunk = unsafe { &*at };
            let Some(version) = chunk.lock().read_unlocked() else { return lows };
            let next = chunk.next.load();
            if AtVersion(chunk.lock(), version).prove().is_err() || next.is_null() {
                return lows;
            }
            // SAFETY: proven just now.
            lows.push(unsafe { &*next }.low_word());
            at = next;
        }
    }
}

impl<F: ChunkForm, S: Size> Index<F> for Towers<F, S> {
    type Size = S;

    const WHOLE: bool = false;

    fn new(first: *mut Chunk<S>) -> Self {
        Self {
            head: Tower::new(0, LEVELS, first),
            random: CachePadded::new(AtomicU64::new(0)),
            towers: CachePadded::new(AtomicUsize::new(0)),
            form: PhantomData,
        }
    }

    #[inline(always)]
    fn seek<'g>(&'g self, walk: &mut impl Walk<'g>, aim: Aim<F::Probe<'_>>, _: usize) -> Result<&'g Chunk<S>, Again> {
        let mut tower = walk.enter(&*self.head)?;
        for level in (0..LEVELS).rev() {
            while tower.goes_on::<F>(&walking(walk), level, aim)? {
                tower = walk.follow(&tower.next[level].to)?.ok_or(Again)?;
            }
        }
        // Bounds and the list of chunks change only under locks.
        let mut chunk = walk.pass(&tower.chunk)?.ok_or(Again)?;
        loop {
            let look = walking(walk);
            if chunk.next.load().is_null() || !reaches::<F>(&look, look.get(&chunk.high), aim)? {
                walk.stay()?;
                return Ok(chunk);
            }
            chunk = walk.pass(&chunk.next)?.ok_or(Again)?;
        }
    }

    fn add(&self, chunk: &Chunk<S>) {
        let levels = self.height();
        if levels == 0 {
            return;
        }
        let tower = Tower::new(F::keep(chunk.low::<F>()), levels, core::ptr::from_ref(chunk).cast_mut());
        // SAFETY: the tower is freed by RCU after it was unlinked.
        let tower = unsafe { &*Box::into_raw(tower) };
        let backoff = Backoff::new();
        while self.try_add(tower).is_err() {
            backoff.wait();
        }
        self.towers.fetch_add(1, Relaxed);
    }

    fn forget(&self, chunk: &Chunk<S>, waste: &mut Waste) -> bool {
        let backoff = Backoff::new();
        while self.try_forget(chunk, waste).is_err() {
            backoff.wait();
        }
        true
    }

    fn replace(&self, old: &Chunk<S>, new: &Chunk<S>, waste: &mut Waste) {
        self.forget(old, waste);
        self.add(new);
    }

    fn compact(&self, _: F::Probe<'_>, _: &mut Waste) {}

    fn cut(&self, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        // Uses the highest level that has enough towers. If a tower of the level is being changed, only the towers
        // before it are used.
        for level in (0..LEVELS).rev() {
            let (mut keys, mut at) = (Vec::new(), Some(&*self.head));
            while let Some(tower) = at {
                let Some(version) = tower.lock.read_unlocked() else { break };
                let look = AtVersion(&tower.lock, version);
                let (key, to) = (look.get(&tower.next[level].key), tower.next[level].to.load());
                if look.prove().is_err() || to.is_null() {
                    break;
                }
                keys.push(key);
                // SAFETY: the pointer is proven, within the caller's guard.
                at = Some(unsafe { &*to });
            }
            if keys.len() >= count.saturating_mul(16) {
                return show_some::<F>(&keys, count, &mut show);
            }
        }
        // If towers are few, the distances between them differ much, since chance decides which chunks have a tower.
        show_some::<F>(&self.lows(), count, &mut show);
    }

    fn bytes(&self) -> usize {
        (1 + self.towers.load(Relaxed)) * taken_by(Layout::new::<Tower<S>>())
    }

    fn check(&self, mut each: impl FnMut(*const Chunk<S>)) {
        each(self.head.chunk.load());
        let mut towers = 0;
        for level in 0..LEVELS {
            let mut at = &*self.head;
            assert!(at.lock.read().is_some(), "towers are neither locked nor obsolete");
            // SAFETY: the tower is in a map that no thread changes.
            while let Some(tower) = unsafe { at.next[level].to.load().as_ref() } {
                assert!(tower.lock.read().is_some(), "towers are neither locked nor obsolete");
                assert!(level < tower.levels(), "a tower is in its levels only");
                let chunk = tower.chunk.load();
                // SAFETY: as above, and the same holds for the tower's chunk.
                let (low, chunk_low) = unsafe { (F::kept(tower.low.load()), (*chunk).low::<F>()) };
                assert!(F::compare(chunk_low, low).is_eq(), "a tower's key is its chunk's");
                assert!(settled(order::<F>(&Alone, at.next[level].key.load(), low)).is_eq(), "the key beside a link");
                let first = core::ptr::eq(at, &*self.head);
                assert!(first || settled(order::<F>(&Alone, at.low.load(), low)).is_lt(), "towers ascend");
                if level == 0 {
                    each(chunk);
                    towers += 1;
                }
                at = tower;
            }
        }
        assert_eq!(towers, self.towers.load(Relaxed), "towers are counted");
    }
}

impl<F: ChunkForm, S: Size> Drop for Towers<F, S> {
    fn drop(&mut self) {
        let mut at = self.head.next[0].to.load();
        while !at.is_null() {
            // SAFETY: no thread uses the map any more; each tower is in level 0 once, and its key is its own.
            unsafe {
                let tower = Box::from_raw(at);
                F::discard(tower.low.load());
                at = tower.next[0].to.load();
            }
        }
    }
}
