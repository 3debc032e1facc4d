//! Regions (short sections that run as hardware transactions or under version locks) with every back end. Beside
//! changes that restructure pages, walks see consistent pages, and no change is lost. Natively the tests run on
//! threads. In the simulator they run under many schedules, with transactions that abort always, sometimes, or for lack
//! of capacity, and with threads that stall.
#![cfg(not(loom))]

use std::ptr;

use archipelago_platform::atomic::{AtomicU64, Ordering};
#[cfg(debug_assertions)]
use archipelago_sync::lock::{
    Mutex, RawBravo, RawCboMcs, RawCna, RawCohort, RawCrwNp, RawCrwRp, RawCrwWp, RawDistributedRwLock, RawHmcs, RawMcs,
    RawShfl, RawShflRw, RawTas, RawTicket, RawTtas, RawUnqueuedRwLock, RwLock,
};
use archipelago_sync::rcu::Domain;
use archipelago_sync::region::{Again, Change, Changing, Link, Region, Retired, Stale, Traverse, Var, Versioned, Walk};
use archipelago_sync::version_lock::{Look, Version, VersionLock};
#[cfg(debug_assertions)]
use lock_api::{RawMutex, RawRwLock};

/// A page. The tests use two pages; the first one has a link to the second one.
struct Node {
    lock: VersionLock,
    words: [Var; 2],
    link: Link<Node>,
}

// SAFETY: the page's words and links are plain fields.
unsafe impl Versioned for Node {
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

fn node(link: *mut Node) -> *mut Node {
    let words = [Var::new(0), Var::new(0)];
    // SAFETY: null, or a node that is reclaimed through the domain.
    let link = unsafe { Link::new(link) };
    Box::into_raw(Box::new(Node { lock: VersionLock::new(), words, link }))
}

#[derive(Clone, Copy)]
struct Find<'g>(&'g Node);

impl<'g> Traverse<'g> for Find<'g> {
    type Out = (&'g Node, Version, [u64; 2]);

    fn run(self, walk: &mut impl Walk<'g>) -> Result<Self::Out, Again> {
        let first = walk.enter(self.0)?;
        let second = walk.follow(&first.link)?.expect("there always is one");
        Ok((second, walk.version(), [0, 1].map(|at| walk.get(&second.words[at]))))
    }
}

#[derive(Clone, Copy)]
struct Count<'p>(&'p Node);

impl Change for Count<'_> {
    type Out = u64;

    fn run(self, change: &mut impl Changing) -> Result<u64, Stale> {
        let [one, other] = &self.0.words;
        let count = change.get(one) + 1;
        change.set(one, count);
        assert_eq!(change.get(other) + 1, count, "torn");
        change.set(other, count);
        Ok(count)
    }
}

#[derive(Clone, Copy)]
struct Replace<'p> {
    first: &'p Node,
    old: &'p Node,
    new: *mut Node,
}

impl Change for Replace<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        if !ptr::eq(change.target(&self.first.link), self.old) {
            return Err(Stale);
        }
        // SAFETY: no other thread knows the new page yet.
        let new = unsafe { &*self.new };
        for (to, from) in new.words.iter().zip(&self.old.words) {
            change.set(to, change.get(from));
        }
        // SAFETY: a new node, which is reclaimed through the domain.
        unsafe { change.set_link(&self.first.link, self.new) };
        change.restructure(self.first);
        change.retire(self.old);
        Ok(())
    }
}

struct Shared {
    domain: Domain,
    region: Region,
    first: Box<Node>,
    counted: AtomicU64,
}

impl Shared {
    fn new(region: Region) -> Self {
        // SAFETY: made by `node` just now.
        let first = unsafe { Box::from_raw(node(node(ptr::null_mut()))) };
        Self { domain: Domain::new(), region, first, counted: AtomicU64::new(0) }
    }

    /// Reads the counts, and then either increments them at the version that it saw, or replaces the page by a copy.
    fn step(&self, replaces: bool, latest: &mut u64) {
        let guard = self.domain.pin();
        let (second, version, [one, other]) = self.region.traverse(&guard, Find(&self.first));
        assert!(one == other && one >= *latest, "{one} and {other} after {latest}");
        *latest = one;
        if !replaces {
            if let Ok(count) = self.region.update(second, version, Count(second)) {
                assert!(count > one);
                *latest = count;
                self.counted.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        let new = node(ptr::null_mut());
        let replace = Replace { first: &self.first, old: second, new };
        match self.region.update_all(&[&*self.first, second], replace) {
            // SAFETY: unlinked by this change, which is the only one that retired it.
            Ok(()) => unsafe { guard.retire_box(ptr::from_ref(second).cast_mut()) },
            // SAFETY: the new page was not linked.
            Err(Stale) => drop(unsafe { Box::from_raw(new) }),
        }
    }
}

/// Reads the counts of both pages.
#[derive(Clone, Copy)]
struct Compare<'g>(&'g Node);

impl<'g> Traverse<'g> for Compare<'g> {
    type Out = [u64; 2];

    fn run(self, walk: &mut impl Walk<'g>) -> Result<[u64; 2], Again> {
        let first = walk.enter(self.0)?;
        let count = walk.get(&first.words[0]);
        let second = walk.follow(&first.link)?.expect("there always is one");
        Ok([count, walk.get(&second.words[0])])
    }
}

/// Finds the second page.
#[derive(Clone, Copy)]
struct Second<'g>(&'g Node);

impl<'g> Traverse<'g> for Second<'g> {
    type Out = *const Node;

    fn run(self, walk: &mut impl Walk<'g>) -> Result<*const Node, Again> {
        let first = walk.enter(self.0)?;
        Ok(walk.follow(&first.link)?.expect("there always is one"))
    }
}

/// Counts in both pages, which are not replaced.
#[derive(Clone, Copy)]
struct CountBoth<'p>([&'p Node; 2]);

impl Change for CountBoth<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        for page in self.0 {
            change.set(&page.words[0], change.get(&page.words[0]) + 1);
            change.restructure(page);
        }
        Ok(())
    }
}

/// How a change ends after it has done half of its work.
#[derive(Clone, Copy)]
enum Leaves {
    Failing,
    Panicking,
    RetiringTwice,
    RetiringAnother,
}

/// Adds one to a word of the first of its pages, many times. Then changes the page's link, retires the page, and ends
/// as the second field says.
#[derive(Clone, Copy)]
struct CountHalf<'p>([&'p Node; 2], Leaves);

impl Change for CountHalf<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        let [first, other] = self.0;
        (0..20).for_each(|_| change.set(&first.words[0], change.get(&first.words[0]) + 1));
        change.restructure(first);
        // SAFETY: a null link.
        unsafe { change.set_link(&first.link, ptr::null_mut()) };
        change.retire(first);
        match self.1 {
            Leaves::Failing => return Err(Stale),
            Leaves::Panicking => panic!("half a change"),
            Leaves::RetiringTwice => change.retire(first),
            Leaves::RetiringAnother => change.retire(other),
        }
        Ok(())
    }
}

impl Shared {
    /// Half of the threads add one to a count in both pages, and then to the count of one page by a change that fails.
    /// The others compare the two counts.
    fn count_or_compare(&self, thread: usize) {
        let guard = self.domain.pin();
        if thread.is_multiple_of(2) {
            // SAFETY: the page is not replaced before the end.
            let both = [&*self.first, unsafe { &*self.region.traverse(&guard, Second(&self.first)) }];
            assert_eq!(self.region.update_all(&both, CountBoth(both)), Ok(()));
            assert_eq!(self.region.update_all(&both, CountHalf(both, Leaves::Failing)), Err(Stale));
        } else {
            let [first, second] = self.region.traverse(&guard, Compare(&self.first));
            assert_eq!(first, second);
        }
    }

    /// Checks that no count was lost and that everything is unlocked.
    fn check(&self) {
        // SAFETY: no thread changes it any more.
        let second = unsafe { &*self.first.link.load() };
        let counted = self.counted.load(Ordering::Relaxed);
        assert_eq!(second.words.each_ref().map(Var::load), [counted; 2]);
        assert!(self.first.lock.read().is_some() && second.lock.read().is_some());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: linked, hence not retired.
        drop(unsafe { Box::from_raw(self.first.link.load()) });
    }
}

#[cfg(not(archipelago_sim))]
fn threads(make: fn() -> Region, client: impl Fn(&Shared, usize, usize) + Sync) -> Shared {
    use archipelago_platform::thread;
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    let (shared, client) = (Shared::new(make()), &client);
    thread::scope(|scope| {
        for thread in 0..4 {
            let shared = &shared;
            scope.spawn(move || client(shared, thread, rounds));
        }
    });
    shared
}

#[cfg(not(archipelago_sim))]
fn churn(make: fn() -> Region) {
    let client = |shared: &Shared, thread, rounds| {
        let mut latest = 0;
        (0..rounds).for_each(|round| shared.step((thread + round) % 8 == 0, &mut latest));
    };
    threads(make, client).check();
}

#[cfg(not(archipelago_sim))]
fn couple(make: fn() -> Region) {
    threads(make, |shared, thread, rounds| (0..rounds).for_each(|_| shared.count_or_compare(thread)));
}

#[cfg(archipelago_sim)]
fn churn(make: fn() -> Region) {
    use archipelago_check::simulated::explore_transactions;
    use archipelago_sim::{Client, Fault, Point};
    let stall = |seed: u64| match seed % 2 {
        0 => vec![],
        _ => vec![Fault::Stall { thread: None, at: Point::OneIn(60), for_ns: 20_000 }],
    };
    let client = |shared: &Shared, client: Client| {
        let mut latest = 0;
        (0..6).for_each(|round| shared.step((client.index + round) % 4 == 0, &mut latest));
    };
    explore_transactions(600, stall, || Shared::new(make()), client, |shared| shared.check());
}

#[cfg(archipelago_sim)]
fn couple(make: fn() -> Region) {
    use archipelago_check::simulated::explore_transactions;
    let client = |shared: &Shared, client: archipelago_sim::Client| {
        (0..6).for_each(|_| shared.count_or_compare(client.index));
    };
    explore_transactions(200, |_| vec![], || Shared::new(make()), client, drop);
}

/// A walk reads data on a page, follows a link, and reads data on the next page. The data of both pages is of one
/// moment.
#[test]
fn pages_of_a_walk_hang_together() {
    couple(Region::new);
    couple(Region::walking_by_versions);
    couple(Region::by_version_locks);
}

#[test]
fn nothing_is_torn_or_lost_where_transactions_are() {
    churn(Region::new);
}

#[test]
fn nothing_is_torn_or_lost_where_changes_alone_are_transactions() {
    churn(Region::walking_by_versions);
}

#[test]
fn nothing_is_torn_or_lost_by_version_locks() {
    churn(Region::by_version_locks);
}

/// A change is refused if its version is out of date or its page was retired.
#[test]
fn late_changes_are_refused() {
    [Region::new(), Region::walking_by_versions(), Region::by_version_locks()]
        .into_iter()
        .for_each(refuses_late_changes);
}

fn refuses_late_changes(region: Region) {
    let shared = Shared::new(region);
    let guard = shared.domain.pin();
    let (old, version, _) = shared.region.traverse(&guard, Find(&shared.first));
    assert_eq!(shared.region.update(old, version, Count(old)), Ok(1));
    let mut latest = 0;
    shared.step(true, &mut latest);
    assert_eq!(latest, 1);
    assert_eq!(shared.region.update(old, version, Count(old)), Err(Stale));
    assert_eq!(shared.region.update_all(&[&*shared.first, old], Count(old)), Err(Stale));
    let (new, version, words) = shared.region.traverse(&guard, Find(&shared.first));
    assert!(!ptr::eq(old, new) && words == [1, 1]);
    assert_eq!(shared.region.update(new, version, Count(new)), Ok(2));
}

/// Writes one word.
#[derive(Clone, Copy)]
struct Put<'p, const IN_PLACE: bool>(&'p Node);

impl<const IN_PLACE: bool> Change for Put<'_, IN_PLACE> {
    type Out = ();

    const IN_PLACE: bool = IN_PLACE;

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        change.set(&self.0.words[0], 7);
        Ok(())
    }
}

/// Walks by versions detect every change, except changes in place.
#[test]
fn versions_tell_of_changes() {
    let region = Region::walking_by_versions();
    let shared = Shared::new(region);
    let guard = shared.domain.pin();
    assert!(region.versions_tell() && Region::by_version_locks().versions_tell());
    assert!(Region::new().versions_tell() != Region::new().is_transactional());
    let look = || shared.region.traverse(&guard, Find(&shared.first));
    let (page, first, _) = look();
    assert_eq!(region.update(page, first, Put::<true>(page)), Ok(()));
    let (_, second, words) = look();
    assert_eq!((words[0], first == second), (7, region.is_transactional()));
    assert_eq!(region.update(page, second, Put::<false>(page)), Ok(()));
    assert!(look().1 != second);
}

#[cfg(debug_assertions)]
#[derive(Clone, Copy)]
struct Waits;

#[cfg(debug_assertions)]
impl Change for Waits {
    type Out = ();

    fn run(self, _: &mut impl Changing) -> Result<(), Stale> {
        archipelago_sync::backoff::Backoff::new().wait();
        Ok(())
    }
}

/// In debug builds a body that waits panics, whether it runs in a hardware transaction or under version locks. The page
/// is unlocked afterwards.
#[test]
#[cfg(debug_assertions)]
fn a_body_that_waits_is_caught() {
    for region in [Region::new(), Region::walking_by_versions(), Region::by_version_locks()] {
        let shared = Shared::new(region);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            shared.region.update_all(&[&*shared.first], Waits)
        }));
        let text = caught.unwrap_err();
        let text = text.downcast_ref::<String>().map_or("", String::as_str);
        assert!(text.contains("waiting in the body of a region"), "{text}");
        assert!(shared.first.lock.read().is_some());
    }
}

/// Calls a function in a body.
#[cfg(debug_assertions)]
#[derive(Clone, Copy)]
struct Runs<F>(F);

#[cfg(debug_assertions)]
impl<F: Fn() + Copy> Change for Runs<F> {
    type Out = ();

    fn run(self, _: &mut impl Changing) -> Result<(), Stale> {
        (self.0)();
        Ok(())
    }
}

/// Asserts that `lock`, which would wait, panics in the body of a region.
#[cfg(debug_assertions)]
fn assert_refused(lock: impl Fn() + Copy) {
    for region in [Region::new(), Region::by_version_locks()] {
        let shared = Shared::new(region);
        let text = said(|| _ = shared.region.update_all(&[&*shared.first], Runs(lock)));
        assert!(text.contains("waiting in the body of a region"), "{text}");
    }
}

/// A body that waits for a mutex leaves nothing in the mutex: when the holder unlocks the mutex, the mutex is free.
#[test]
#[cfg(debug_assertions)]
fn a_body_that_waits_for_a_mutex_leaves_it_as_it_is() {
    fn check<R: RawMutex>() {
        let mutex = Mutex::<R, u32>::new(0);
        let guard = mutex.lock();
        assert_refused(|| drop(mutex.lock()));
        drop(guard);
        *mutex.try_lock().expect("the mutex is free") += 1;
        // A body that need not wait may lock it.
        let shared = Shared::new(Region::by_version_locks());
        shared.region.update_all(&[&*shared.first], Runs(|| *mutex.lock() += 1)).unwrap();
        assert_eq!(mutex.into_inner(), 2);
    }
    check::<RawTas>();
    check::<RawTtas>();
    check::<RawTicket>();
    check::<RawMcs>();
    check::<RawCna>();
    check::<RawCohort>();
    check::<RawHmcs>();
    check::<RawCboMcs>();
    check::<RawShfl>();
}

/// The same for reader-writer locks, for readers and writers.
#[test]
#[cfg(debug_assertions)]
fn a_body_that_waits_for_a_reader_writer_lock_leaves_it_as_it_is() {
    fn check<R: RawRwLock>() {
        let lock = RwLock::<R, u32>::new(0);
        let assert_free = || {
            *lock.try_write().expect("the lock is free") += 1;
            drop(lock.try_read().expect("the lock is free"));
        };
        // After a first reader, the next one enters by a bias, if the lock has one.
        drop(lock.read());
        let reader = lock.read();
        assert_refused(|| drop(lock.write()));
        drop(reader);
        assert_free();
        let writer = lock.write();
        assert_refused(|| drop(lock.write()));
        assert_refused(|| drop(lock.read()));
        drop(writer);
        assert_free();
        let shared = Shared::new(Region::by_version_locks());
        let both = || {
            *lock.write() += 1;
            drop(lock.read());
        };
        shared.region.update_all(&[&*shared.first], Runs(both)).unwrap();
        assert_eq!(lock.into_inner(), 3);
    }
    check::<RawCrwNp>();
    check::<RawCrwRp>();
    check::<RawCrwWp>();
    check::<RawDistributedRwLock>();
    check::<RawUnqueuedRwLock>();
    check::<RawShflRw>();
    check::<RawBravo<RawCrwNp>>();
    check::<RawBravo<RawDistributedRwLock>>();
}

/// Returns the message of a panic.
fn said(body: impl FnOnce()) -> String {
    let why = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_err();
    let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| why.downcast_ref::<String>().cloned()).unwrap()
}

/// A change that panics or fails after it has written leaves no effects, with every back end. The same holds for a
/// change that retires a page twice, or a page that is not its own.
#[test]
fn half_a_change_leaves_nothing() {
    leaves_nothing(Region::new());
    leaves_nothing(Region::walking_by_versions());
    leaves_nothing(Region::by_version_locks());
}

fn leaves_nothing(region: Region) {
    let shared = Shared::new(region);
    let guard = shared.domain.pin();
    for round in 0..3 {
        let (second, version, words) = shared.region.traverse(&guard, Find(&shared.first));
        assert_eq!(words, [round; 2]);
        let pages = [&*shared.first, second];
        let half = |leaves| _ = shared.region.update_all(&pages[..1], CountHalf(pages, leaves));
        assert_eq!(shared.region.update_all(&pages[..1], CountHalf(pages, Leaves::Failing)), Err(Stale));
        assert_eq!(said(|| half(Leaves::Panicking)), "half a change");
        assert!(said(|| half(Leaves::RetiringTwice)).contains("retired twice"));
        assert!(said(|| half(Leaves::RetiringAnother)).contains("not listed"));
        let first = pages[0].lock.read().expect("free, and not gone");
        assert_eq!(
            said(|| _ = shared.region.update(pages[0], first, CountHalf(pages, Leaves::Panicking))),
            "half a change"
        );
        assert_eq!((pages[0].words[0].load(), ptr::eq(pages[0].link.load(), second)), (0, true));
        // The page that was not written is unchanged, and so is its version.
        assert_eq!(shared.region.update(second, version, Count(second)), Ok(round + 1));
    }
}

/// A walk by versions may have seen data that was later restored, so restoring changes the version.
#[test]
fn what_is_put_back_is_told() {
    let shared = Shared::new(Region::by_version_locks());
    let (before, pages) = (shared.first.lock.read(), [&*shared.first; 2]);
    assert_eq!(shared.region.update_all(&pages[..1], CountHalf(pages, Leaves::Failing)), Err(Stale));
    assert_ne!(shared.first.lock.read(), before);
}

/// Writes words that are dropped with the body, among many words of its page.
#[derive(Clone, Copy)]
struct OfItsOwn<'p>(&'p Node);

impl Change for OfItsOwn<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        for value in 1..20 {
            change.set(&Box::new(Var::new(1)), value);
            change.set(&self.0.words[0], value);
        }
        panic!("half a change")
    }
}

/// Only words in pages are restored: other words may have been freed.
#[test]
fn what_ends_with_a_body_is_not_put_back() {
    for region in [Region::new(), Region::walking_by_versions(), Region::by_version_locks()] {
        let shared = Shared::new(region);
        assert_eq!(said(|| _ = region.update_all(&[&*shared.first], OfItsOwn(&shared.first))), "half a change");
        assert_eq!(shared.first.words[0].load(), 0);
    }
}

/// Retires a page that is still linked.
#[derive(Clone, Copy)]
struct Lose<'p>(&'p Node);

impl Change for Lose<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        change.retire(self.0);
        Ok(())
    }
}

/// Enters a page given as a hint. If the hint is retired and `first` is given, enters `first` instead.
#[derive(Clone, Copy)]
struct FromHint<'g> {
    hint: &'g Node,
    first: Option<&'g Node>,
}

impl<'g> Traverse<'g> for FromHint<'g> {
    type Out = *const Node;

    fn run(self, walk: &mut impl Walk<'g>) -> Result<*const Node, Again> {
        let gone = self.hint.lock.look() == Look::Obsolete;
        Ok(walk.enter(self.first.filter(|_| gone).unwrap_or(self.hint))?)
    }
}

/// A walk that enters a retired page returns an error instead of walking for ever. A change that would retire the page
/// again is refused.
#[test]
fn a_walk_into_a_retired_page_ends() {
    ends(Region::new());
    ends(Region::walking_by_versions());
    ends(Region::by_version_locks());
}

fn ends(region: Region) {
    let shared = Shared::new(region);
    let guard = shared.domain.pin();
    let (hint, ..) = shared.region.traverse(&guard, Find(&shared.first));
    let walk = |first| shared.region.try_traverse(&guard, FromHint { hint, first });
    assert_eq!(walk(None), Ok(ptr::from_ref(hint)));
    assert_eq!(shared.region.update_all(&[hint], Lose(hint)), Ok(()));
    for _ in 0..3 {
        assert_eq!(walk(None), Err(Retired));
        assert_eq!(walk(Some(&shared.first)), Ok(&raw const *shared.first));
        assert_eq!(shared.region.update_all(&[hint], Lose(hint)), Err(Stale));
    }
}

#[test]
#[should_panic(expected = "enters a page that is retired")]
fn a_walk_that_must_not_meet_a_retired_page_says_so() {
    let (region, domain) = (Region::by_version_locks(), Domain::new());
    let page = Node { lock: VersionLock::new(), words: [Var::new(0), Var::new(0)], link: null_link() };
    assert_eq!(region.update_all(&[&page], Lose(&page)), Ok(()));
    region.traverse(&domain.pin(), FromHint { hint: &page, first: None });
}

#[test]
#[should_panic(expected = "a page is listed twice")]
fn a_page_listed_twice_is_refused() {
    let page = Node { lock: VersionLock::new(), words: [Var::new(0), Var::new(0)], link: null_link() };
    _ = Region::by_version_locks().update_all(&[&page, &page], Count(&page));
}

fn null_link() -> Link<Node> {
    // SAFETY: a null link.
    unsafe { Link::new(ptr::null_mut()) }
}
