//! Users' comparisons, listeners, weighers, destructors and closures that panic, lie or use the cache.

use super::*;

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone)]
struct Key(u32);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(!PANICS.get(), "planned");
        self.0 == other.0
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn comparisons_that_panic_change_nothing() {
    let _beside = beside();
    let drops = DropCounter::new();
    let cache = Cache::builder().entries(100);
    (0..50).for_each(|key| _ = cache.insert(Key(key), drops.value(1)));
    PANICS.set(true);
    for key in 0..50 {
        assert!(catch_unwind(AssertUnwindSafe(|| cache.insert(Key(key), drops.value(2)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| cache.get(&Key(key)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| cache.remove(&Key(key)))).is_err());
    }
    PANICS.set(false);
    assert!((0..50).all(|key| cache.with(&Key(key), |value| value.tag()) == Some(1)));
    cache.check_invariants();
    drop(cache);
    drops.assert_all_dropped();
}

#[test]
fn listeners_may_use_the_cache_and_panic() {
    let _beside = beside();
    let drops = DropCounter::new();
    static CACHE: OnceLock<Cache<u64, archipelago_check::drops::Counted>> = OnceLock::new();
    let cache = CACHE.get_or_init(|| {
        let left = AtomicU64::new(0);
        let listener = move |key: &u64, _: &archipelago_check::drops::Counted, cause: Cause| {
            let count = left.fetch_add(1, Relaxed);
            if let Some(cache) = CACHE.get()
                && cause == Cause::Evicted
                && count.is_multiple_of(3)
            {
                cache.remove(&(key + 1));
            }
            assert!(!count.is_multiple_of(7), "planned");
        };
        Cache::builder().shards(2).on_leave(listener).entries(128)
    });
    let panics: usize = crowd(4, Duration::ZERO, |thread, _| {
        let insert =
            |key: u64| catch_unwind(AssertUnwindSafe(|| cache.insert(thread as u64 * 1_000 + key, drops.value(key))));
        (0..1_000).filter(|key| insert(*key).is_err()).count()
    })
    .into_iter()
    .sum();
    assert!(panics > 100, "{panics}");
    cache.check_invariants();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.resize(24))).is_err());
    assert!(cache.stats().len <= 24, "the bound holds although the listener panicked");
    cache.check_invariants();
    assert!(catch_unwind(AssertUnwindSafe(|| cache.clear())).is_err());
    assert_eq!(cache.stats().len, 0, "a panic does not end the sweep");
    cache.sync();
    cache.sync();
    assert_eq!(cache.stats().weight, 0);
}

/// How the `Eq` and `Hash` of a [`Liar`] break their contracts.
#[derive(Clone, Copy, Debug)]
enum Lie {
    NeverEqual,
    AlwaysEqual,
    EqualAtRandom,
    HashedAtRandom,
    HashPanics,
}

#[derive(Clone)]
struct Liar(u64, Lie);

thread_local! {
    static DRAWN: Cell<u64> = const { Cell::new(1) };
}

fn drawn(bound: u64) -> u64 {
    let mut state = DRAWN.get();
    let number = random(&mut state) % bound;
    DRAWN.set(state);
    number
}

impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        match self.1 {
            Lie::NeverEqual => false,
            Lie::AlwaysEqual => true,
            Lie::EqualAtRandom => drawn(2) == 0,
            _ => self.0 == other.0,
        }
    }
}

impl Eq for Liar {}

impl std::hash::Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.1 {
            Lie::HashedAtRandom => drawn(1_000).hash(state),
            Lie::HashPanics => assert!(drawn(5) > 0, "planned"),
            _ => (self.0 % 16).hash(state),
        }
    }
}

/// Keys that break the contracts of `Eq` and `Hash` make wrong results, but each value is dropped once, the bound
/// holds, and each call ends.
#[test]
fn keys_that_lie_lose_nothing() {
    let _beside = beside();
    hush();
    for lie in [Lie::NeverEqual, Lie::AlwaysEqual, Lie::EqualAtRandom, Lie::HashedAtRandom, Lie::HashPanics] {
        ended(move || {
            let drops = DropCounter::new();
            let cache = Cache::builder().shards(4).entries(100);
            crowd(8, Duration::ZERO, |thread, _| {
                DRAWN.set(thread as u64);
                for _ in 0..2_000 {
                    let key = Liar(drawn(200), lie);
                    let value = || drops.value(key.0);
                    _ = catch_unwind(AssertUnwindSafe(|| match drawn(8) {
                        0 => _ = cache.insert(key.clone(), value()),
                        1 => _ = cache.remove(&key),
                        2 => _ = cache.with(&key, |value| value.tag()),
                        3 => _ = cache.insert_for(key.clone(), value(), Duration::ZERO),
                        4 if drawn(20) == 0 => cache.resize(drawn(150) as usize),
                        5 => _ = cache.invalidate_if(|key, _| key.0 % 50 == 0),
                        _ => _ = cache.get_or_insert_with(key.clone(), |_| value()),
                    }));
                }
            });
            assert!(cache.stats().weight <= cache.capacity(), "{lie:?}");
            cache.check_invariants();
            cache.clear();
            assert_eq!(cache.stats().len, 0, "{lie:?}");
            drop(cache);
            drops.assert_all_dropped();
        });
    }
}

/// A weigher that returns another weight at each call, uses the cache, and panics.
#[test]
fn weighers_may_be_wrong_use_the_cache_and_panic() {
    let _beside = beside();
    hush();
    thread_local! {
        static WITHIN: Cell<bool> = const { Cell::new(false) };
    }
    // Not a static: the memory of this cache must be free when another test measures memory.
    let used = Arc::new(OnceLock::<Weak<Cache<u64, u64>>>::new());
    let weigher = {
        let used = used.clone();
        move |key: &u64, _: &u64| {
            if let Some(cache) = used.get().and_then(Weak::upgrade)
                && !WITHIN.replace(true)
            {
                _ = catch_unwind(AssertUnwindSafe(|| match drawn(5) {
                    0 => _ = cache.insert(key + 1, 1),
                    1 => cache.resize(drawn(20_000) as usize),
                    2 => cache.clear(),
                    3 => _ = cache.get_or_insert_with(key + 2, |_| 1),
                    _ => _ = cache.remove(key),
                }));
                WITHIN.set(false);
            }
            let weight = drawn(7) as usize;
            assert!(weight > 0, "planned");
            [0, usize::MAX, 1, 70_000, 900, 65_535][weight - 1]
        }
    };
    let cache = Arc::new(Cache::builder().shards(2).weigher(10_000, weigher));
    used.set(Arc::downgrade(&cache)).expect("set once");
    crowd(8, Duration::ZERO, |thread, _| {
        DRAWN.set(thread as u64);
        (0..2_000).for_each(|key| _ = catch_unwind(AssertUnwindSafe(|| cache.insert(key % 300, key))));
    });
    assert!(cache.stats().weight <= cache.capacity());
    cache.check_invariants();
}

/// A value whose destructor panics if its number is a multiple of five.
struct Bomb(u64, Arc<AtomicU64>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
        assert!(!self.0.is_multiple_of(5) || thread::panicking(), "planned");
    }
}

#[test]
fn destructors_that_panic_lose_nothing() {
    let _beside = beside();
    let dropped = Arc::new(AtomicU64::new(0));
    let cache = Cache::builder().entries(50);
    for key in 0..2_000 {
        let _ = catch_unwind(AssertUnwindSafe(|| cache.insert(key, Arc::new(Bomb(key, dropped.clone())))));
    }
    for _ in 0..200 {
        let _ = catch_unwind(AssertUnwindSafe(|| cache.sync()));
    }
    cache.check_invariants();
    assert!(dropped.load(Relaxed) >= 1_950, "{}", dropped.load(Relaxed));
    // Destructors of the remaining entries panic, too. An entry's destructor runs or its memory leaks, but no entry is
    // freed twice.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(cache)));
    assert!(dropped.load(Relaxed) <= 2_000);
}

/// A value whose destructor uses its cache.
struct Restless(u64);

static RESTLESS: std::sync::LazyLock<Cache<u64, Restless>> =
    std::sync::LazyLock::new(|| Cache::builder().shards(2).entries(64));

impl Drop for Restless {
    fn drop(&mut self) {
        // If its number is a multiple of four, the destructor inserts a value with a quarter of the number under
        // another key. So the insertions end after a few steps.
        if self.0.is_multiple_of(4) && self.0 > 0 {
            RESTLESS.insert(self.0 + 1_000_000, Restless(self.0 / 4));
            RESTLESS.remove(&(self.0 - 1));
            let _ = RESTLESS.with(&self.0, |value| value.0);
        }
    }
}

#[test]
fn destructors_may_use_the_cache() {
    let _beside = beside();
    crowd(4, Duration::ZERO, |thread, _| {
        (0..2_000).for_each(|key| _ = RESTLESS.insert(key + 2_000 * thread as u64, Restless(key)));
    });
    (0..20).for_each(|_| {
        RESTLESS.clear();
        RESTLESS.sync();
    });
    RESTLESS.check_invariants();
    assert_eq!(RESTLESS.stats().len, 0);
}

#[test]
fn closures_may_use_the_cache_and_panic() {
    let _beside = beside();
    let drops = DropCounter::new();
    let cache = Cache::builder().weigher(1_000, |key: &u64, _: &archipelago_check::drops::Counted| {
        assert!(!key.is_multiple_of(50), "planned");
        10
    });
    let insert = |key: u64| catch_unwind(AssertUnwindSafe(|| cache.insert(key, drops.value(key))));
    assert_eq!((0..1_000).filter(|key| insert(*key).is_err()).count(), 20);
    cache.check_invariants();
    let before = cache.stats().len;
    let mut asked = 0;
    let panics = catch_unwind(AssertUnwindSafe(|| {
        cache.invalidate_if(|key, _| {
            asked += 1;
            cache.remove(key);
            cache.insert(key + 10_001, drops.value(*key));
            assert!(asked < 20, "planned");
            asked % 2 == 0
        })
    }));
    assert!(panics.is_err() && before > 90);
    cache.check_invariants();
    let pinned = cache.pin();
    let mut shown = pinned.iter();
    let first = shown.next().map(|(key, value)| (*key, value.tag()));
    cache.resize(0);
    cache.resize(1_000);
    // The entry that the iterator has returned stays valid, and no entry is returned twice.
    assert!(first.is_some() && shown.count() <= before);
    drop(pinned);
    drop(cache);
    drops.assert_all_dropped();
}
