//! Tests of the time at which pages are reclaimed: never while a search layer leads to them, or to a page that forwards
//! to them, but always eventually. To imitate a race in which the drain comes too early for some log entries, the tests
//! withhold these entries from the drain.

use super::*;
use crate::HydraList;
use crate::hydra::Session;
use crate::hydra::config::SearchLayerKind;
use crate::hydra::oplog::OpKind;
use crate::hydra::page::Page;
use crate::hydra::page::word::{SLOTS, WINDOW, WordPage};
use crate::structure::Word;
use archipelago_platform::atomic::{AtomicBool, AtomicUsize};
use archipelago_platform::sync::OnceLock;
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_sync::version_lock::Look;
use core::ops::Bound;
use core::ptr::NonNull;

/// The number of entries of a full page of consecutive keys.
const FULL: u64 = WINDOW as u64;
/// The least number of entries of a page that is not underfull.
const ENOUGH: u64 = SLOTS as u64 / 4;

type Address = NonNull<WordPage>;

/// Makes a map on `nodes` nodes with pages of `FULL` consecutive keys each, which the search layers contain. It runs no
/// maintenance round by itself.
fn map(layer: SearchLayerKind, nodes: usize) -> HydraList<u64, u64> {
    let map: HydraList<u64, u64> = HydraList::builder()
        .topology(Topology::synthetic(nodes, 1))
        .search_layer(layer)
        .maintainers(Maintainers::Clients)
        .build();
    map.pause_maintenance(true);
    map.pin().extend((0..8 * FULL).map(|key| (key, key)));
    map.sync();
    map
}

/// Returns the page to which a node's search layer leads.
fn jump(session: &Session<'_, u64, u64>, node: usize, key: u64) -> Address {
    let guard = session.core.domain.pin();
    session.core.layers[node].jump(&guard, key).0
}

/// Runs one round, which the layers of `nodes` apply, and frees what has been retired.
fn round(session: &Session<'_, u64, u64>, nodes: core::ops::Range<usize>) {
    let core = session.core;
    {
        let guard = session.core.domain.pin();
        let local = core.local_at(&guard, 0);
        core.combine(&mut core.lock_combiner());
        nodes.for_each(|node| core.update(&local, node));
        core.reclaim(&local);
    }
    core.reclaim_retired();
}

/// Returns whether the page, whose `Remove` has been drained from the log, is kept from reclamation.
fn is_kept(core: &Core<Word>, page: Address) -> bool {
    let combiner = core.lock_combiner();
    let removed = combiner.removed.iter().flat_map(|(_, pages)| pages);
    combiner.delayed.iter().chain(removed).any(|kept| kept.0 == page)
}

/// Merges the fourth page (D) into the third (L), and L into the second (K). Returns D and L; both merges are logged.
fn merge_twice(session: &Session<'_, u64, u64>) -> (Address, Address) {
    let (k, l, d) = (FULL, 2 * FULL, 3 * FULL);
    let (dead, left) = (jump(session, 0, d), jump(session, 0, l));
    let remove = |keys: core::ops::Range<u64>| keys.for_each(|key| assert_eq!(session.remove(&key), Some(key)));
    remove(d + ENOUGH..d + FULL);
    // If L has one entry fewer than `ENOUGH`, it takes D's entries over.
    remove(l + ENOUGH - 1..l + FULL);
    remove(l..l + ENOUGH - 2);
    remove(d..d + 1);
    // In the same way K takes L's entries over.
    remove(k + ENOUGH - 1..k + FULL);
    // SAFETY: nothing has been reclaimed yet.
    let (dead_page, left_page) = unsafe { (dead.as_ref(), left.as_ref()) };
    assert!(dead_page.lock().look() == Look::Obsolete && core::ptr::eq(dead_page.next(), left_page), "D forwards to L");
    assert!(left_page.lock().look() == Look::Obsolete && !left_page.next().is_null(), "L forwards to K");
    (dead, left)
}

fn assert_found(session: &Session<'_, u64, u64>) {
    let d = 3 * FULL;
    (d + 1..d + ENOUGH).for_each(|key| assert_eq!(session.get(&key), Some(key)));
    assert_eq!(session.get(&d), None);
}

/// The drain has passed the log that contains D's `Remove`, but not the log that contains L's. So L's `Remove` is
/// drained a round before D's, and L must outlive D.
fn a_page_outlives_those_that_forward_to_it(layer: SearchLayerKind) {
    let map = map(layer, 2);
    let session = map.pin();
    let (core, all) = (session.core, 0..2);
    let (dead, left) = merge_twice(&session);
    let mut logged = Vec::new();
    core.cell().drain_into(&mut logged);
    let mut logged = logged.into_iter().filter(|op| op.kind == OpKind::Remove);
    let (first, second) = (logged.next().unwrap(), logged.next().unwrap());
    assert!(first.page.0 == dead && second.page.0 == left && logged.next().is_none());
    core.cell().append(second);
    round(&session, all.clone());
    core.cell().append(first);
    round(&session, all.clone());
    // L's `Remove` has been applied by all layers, D's `Remove` by none.
    assert!(all.clone().all(|node| jump(&session, node, 2 * FULL) != left));
    assert!(all.clone().all(|node| jump(&session, node, 3 * FULL) == dead));
    assert!(is_kept(core, left), "D still forwards to it");
    assert_found(&session);
    round(&session, all.clone());
    assert!(all.clone().all(|node| jump(&session, node, 3 * FULL) != dead));
    assert!(is_kept(core, dead), "readers may have found it in a layer just now");
    (0..3).for_each(|_| round(&session, all.clone()));
    assert!(!is_kept(core, dead) && !is_kept(core, left), "what nothing leads to is given back");
    assert_found(&session);
    map.check_invariants();
}

#[test]
fn a_page_outlives_those_that_forward_to_it_in_snapshots() {
    a_page_outlives_those_that_forward_to_it(SearchLayerKind::Snapshot);
}

#[test]
fn a_page_outlives_those_that_forward_to_it_in_trees() {
    a_page_outlives_those_that_forward_to_it(SearchLayerKind::Art);
}

/// A page to which one layer still leads stays, however many rounds the other layers apply.
fn pages_wait_for_the_slowest_layer(layer: SearchLayerKind) {
    const NODES: usize = 4;
    let map = map(layer, NODES);
    let session = map.pin();
    let (dead, left) = merge_twice(&session);
    for _ in 0..6 {
        round(&session, 0..NODES - 1);
        assert_eq!(jump(&session, NODES - 1, 3 * FULL), dead, "this layer stands still");
        assert!(is_kept(session.core, dead) && is_kept(session.core, left));
        assert_found(&session);
    }
    assert!((0..NODES - 1).all(|node| ![dead, left].contains(&jump(&session, node, 3 * FULL))));
    (0..3).for_each(|_| round(&session, 0..NODES));
    assert!((0..NODES).all(|node| ![dead, left].contains(&jump(&session, node, 3 * FULL))));
    assert!(!is_kept(session.core, dead) && !is_kept(session.core, left), "what nothing leads to is given back");
    assert_found(&session);
    map.check_invariants();
}

#[test]
fn pages_wait_for_the_slowest_snapshot() {
    pages_wait_for_the_slowest_layer(SearchLayerKind::Snapshot);
}

#[test]
fn pages_wait_for_the_slowest_tree() {
    pages_wait_for_the_slowest_layer(SearchLayerKind::Art);
}

/// Reclaim functions may run users' destructors, which may take any lock of the map. So none may run while an updater
/// holds its own lock, however many bags the round fills.
#[test]
fn nothing_is_reclaimed_while_a_layer_is_changed() {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    static UNDER_LOCK: AtomicUsize = AtomicUsize::new(0);
    static UPDATER: OnceLock<thread::ThreadId> = OnceLock::new();
    UPDATER.get_or_init(|| thread::current().id());
    unsafe fn look(core: *mut (), _: *mut ()) {
        // SAFETY: the map outlives its domain's objects, which are drained below.
        let core = unsafe { &*core.cast::<Core<Word>>() };
        RUN.fetch_add(1, Relaxed);
        // The thread that maintains idle maps may run the function while this test's thread holds the lock, and may
        // wait for it. So only the calls of the test's own thread count.
        let mine = UPDATER.get() == Some(&thread::current().id());
        UNDER_LOCK.fetch_add(usize::from(mine && core.maintenance.updaters[0].busy.try_lock().is_err()), Relaxed);
    }
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    let core = session.core;
    let look_later = |guard: &archipelago_sync::rcu::Guard<'_>| {
        // SAFETY: no thread reaches the object through the domain's structure, which does not contain it.
        unsafe { guard.retire((&raw const *core).cast_mut().cast(), core::ptr::null_mut(), look) }
    };
    // Each round retires one snapshot. Whatever number of objects fills a bag, in some round the snapshot is the last
    // object of a bag.
    for number in 0..600 {
        let guard = session.core.domain.pin();
        let local = core.local_at(&guard, 0);
        (0..number % 2 + 1).for_each(|_| look_later(&guard));
        (0..FULL).for_each(|key| assert!(!session.upsert(&(100 * FULL + number * FULL + key), key)));
        core.combine(&mut core.lock_combiner());
        core.update(&local, 0);
        core.reclaim(&local);
        drop(guard);
    }
    core.reclaim_retired();
    assert!(RUN.load(Relaxed) > 500, "{} ran", RUN.load(Relaxed));
    assert_eq!(UNDER_LOCK.load(Relaxed), 0, "of {} that ran", RUN.load(Relaxed));
}

/// Returns the page of the greatest shortcut at or below a key.
fn shortcut(core: &Core<Word>, key: u64) -> Option<Address> {
    core.shortcuts.nearest(&core.domain.pin(), Bound::Included(key)).map(|page| page.0)
}

fn add_shortcut(core: &Core<Word>, page: Address) {
    // SAFETY: nothing has been reclaimed yet.
    core.shortcuts.add(&core.domain.pin(), unsafe { page.as_ref() });
}

#[test]
fn pages_that_are_merged_away_hand_their_shortcuts_on() {
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    add_shortcut(session.core, jump(&session, 0, 3 * FULL));
    merge_twice(&session);
    assert_eq!(
        shortcut(session.core, 3 * FULL),
        Some(jump(&session, 0, FULL)),
        "of what was merged away to where that went"
    );
}

#[test]
fn pages_that_move_hand_their_shortcuts_on() {
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    let page = jump(&session, 0, 3 * FULL);
    add_shortcut(session.core, page);
    session.core.close_all();
    // The search layers do not know of any move.
    session.core.compact(0);
    let twin = shortcut(session.core, 3 * FULL).expect("a shortcut stays one");
    assert_ne!(twin, page, "it has moved");
    // SAFETY: nothing has been reclaimed yet.
    assert_eq!(unsafe { twin.as_ref() }.low(), 3 * FULL);
}

#[test]
fn shortcuts_stay_until_the_slowest_layer_needs_them_no_more() {
    let map = map(SearchLayerKind::Snapshot, 2);
    let session = map.pin();
    let page = jump(&session, 0, 2 * FULL);
    add_shortcut(session.core, page);
    let grow_and_round = |number: u64, nodes| {
        (0..2 * FULL).for_each(|key| assert!(!session.upsert(&(100 * FULL + 2 * number * FULL + key), key)));
        round(&session, nodes);
    };
    for number in 0..6 {
        grow_and_round(number, 0..1);
        assert_eq!(shortcut(session.core, 2 * FULL), Some(page), "the other layer may not know of the page");
    }
    grow_and_round(6, 0..2);
    assert_eq!(
        shortcut(session.core, 2 * FULL),
        Some(page),
        "what was logged with it may be drained in the next round"
    );
    (7..12).for_each(|number| grow_and_round(number, 0..2));
    assert_ne!(shortcut(session.core, 2 * FULL), Some(page), "it has been of no use for long");
    map.check_invariants();
}

/// After `sync` no generation of shortcuts is left, whatever the last rounds were. The same holds when a map becomes
/// idle.
#[test]
fn no_shortcut_remains_at_rest() {
    let map = map(SearchLayerKind::Snapshot, 2);
    let session = map.pin();
    let generations = |core: &Core<Word>| (core.shortcuts.generations(), core.shortcuts.bytes(&core.domain.pin()));
    for rounds in 0..6 {
        add_shortcut(session.core, jump(&session, 0, 2 * FULL));
        // In some of these rounds generations are replaced, with changes to drain or without, and either generation may
        // contain a shortcut.
        for number in 0..rounds {
            let key = 1000 * FULL * (rounds + 1) + 2 * FULL * number;
            (key..key + number % 2 * 2 * FULL).for_each(|key| assert!(!session.upsert(&key, key)));
            round(&session, 0..2);
            if number % 3 == 1 {
                add_shortcut(session.core, jump(&session, 0, 3 * FULL));
            }
        }
        map.sync();
        assert_eq!(generations(session.core), (0, 0), "after {rounds} rounds and `sync`");
    }
    let map: HydraList<u64, u64> = HydraList::builder().topology(Topology::synthetic(2, 1)).build();
    let session = map.pin();
    // The background threads, which the load starts, run the rounds; the test does not.
    (0..1000 * FULL).for_each(|key| assert!(!session.upsert(&key, key)));
    (0..1000 * FULL).filter(|key| key % 1000 > 0).for_each(|key| assert!(session.delete(&key)));
    let stats = loop {
        let stats = map.maintenance_stats();
        if stats.roused == stats.done {
            break stats;
        }
        thread::sleep(core::time::Duration::from_millis(1));
    };
    assert!(stats.threads > 0 && stats.rounds > 4);
    assert_eq!(generations(session.core), (0, 0), "in a map at rest: {stats:?}");
}

#[test]
fn no_finger_outlives_its_page() {
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    let (core, from, page) = (session.core, jump(&session, 0, 0), jump(&session, 0, 3 * FULL));
    // SAFETY: nothing has been reclaimed yet.
    let (from, kept) = unsafe { (from.as_ref(), page.as_ref()) };
    core.cell().set_finger(from, kept, core.retirements());
    assert_eq!(core.cell().finger(from, core.retirements()), Some(page));
    let (dead, _) = merge_twice(&session);
    assert_eq!(dead, page);
    while is_kept(core, dead) || !core.cell().is_drained() {
        round(&session, 0..1);
    }
    assert_eq!(core.cell().finger(from, core.retirements()), None, "its page may be in use for something else");
}

#[test]
fn sync_waits_for_another_threads_walk() {
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    let full = map.stats().pages;
    // Pages become nearly empty, but none of them underfull.
    (0..8 * FULL).filter(|key| key % FULL > ENOUGH).for_each(|key| assert_eq!(session.remove(&key), Some(key)));
    assert_eq!(map.stats().pages, full);
    let walk = session.core.maintenance.hold_still();
    thread::scope(|scope| {
        let syncing = scope.spawn(|| map.sync());
        thread::sleep(Duration::from_millis(16));
        drop(walk);
        syncing.join().unwrap();
    });
    assert!(map.stats().pages <= full / 2, "{:?}", map.stats());
    map.check_invariants();
}

/// A thread adds the first shortcut of a generation while another thread has the generations take turns.
#[test]
fn no_tree_of_shortcuts_is_lost_in_a_turn() {
    const TREES: usize = if cfg!(miri) { 20 } else { 1000 };
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    let (core, page) = (session.core, jump(&session, 0, 2 * FULL));
    let added = AtomicUsize::new(0);
    let dropped = thread::scope(|scope| {
        let turning = scope.spawn(|| {
            let mut dropped = 0;
            while dropped < TREES && (added.load(Acquire) < TREES || core.shortcuts.generations() > 0) {
                let Some(tree) = core.shortcuts.turn() else { continue };
                tree.retire(&core.domain.pin());
                dropped += 1;
            }
            dropped
        });
        for _ in 0..TREES {
            add_shortcut(core, page);
            added.fetch_add(1, Release);
            while core.shortcuts.generations() > 0 {
                thread::yield_now();
            }
        }
        turning.join().unwrap()
    });
    assert_eq!(dropped, TREES, "each tree is returned by a turn");
}

/// Pages that are inserted at one anchor, and merged away, several times between two rounds.
#[test]
fn the_number_of_anchors_is_exact() {
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    for number in 0..9 {
        for _ in 0..number % 4 {
            (50 * FULL..70 * FULL).for_each(|key| assert!(!session.upsert(&key, key)));
            (50 * FULL..70 * FULL).for_each(|key| assert_eq!(session.remove(&key), Some(key)));
        }
        round(&session, 0..1);
    }
    map.sync();
    let mut pages = 0;
    session.core.for_each_page(|_| pages += 1);
    assert_eq!(session.core.lock_combiner().anchors, pages);
}

/// The search layer finds the page before a page by the page's lower bound. A search for a key a little below the bound
/// would not suffice: many pages may be between this key and the bound. The keys are tenants' entries that never
/// expire.
#[test]
fn the_page_before_is_found_in_a_few_steps() {
    for layer in [SearchLayerKind::Snapshot, SearchLayerKind::Art] {
        let map: HydraList<(u32, u64, u64), u64> = HydraList::builder().search_layer(layer).build();
        let session = map.pin();
        for tenant in [7, 8, u32::MAX] {
            (0..20 * FULL).for_each(|id| assert!(!session.upsert(&(tenant, u64::MAX, id * 37 % (20 * FULL)), id)));
        }
        map.sync();
        let core = session.core;
        let guard = core.domain.pin();
        let local = core.local_at(&guard, 0);
        let (mut most, mut last) = (0, core::ptr::null());
        core.for_each_page(|page| {
            if !core::ptr::eq(page, core.head()) {
                let (before, _, steps) = core.before(&local, Some(page.low()));
                assert!(core::ptr::eq(before.next(), page));
                most = most.max(steps);
            }
            last = page;
        });
        let (end, _, steps) = core.before(&local, None);
        assert!(core::ptr::eq(end, last));
        assert!(most.max(steps) <= 1, "{most} steps, and {steps} to the end");
    }
}

/// A thread that is told of a round for changes that the round before has drained makes no round: it would rebuild the
/// search layer for the few changes since.
#[test]
fn a_thread_that_comes_too_late_makes_no_round() {
    let map: HydraList<u64, u64> = HydraList::builder().maintainers(Maintainers::Clients).build();
    let session = map.pin();
    session.extend((0..8 * FULL).map(|key| (key, key)));
    map.sync();
    let rounds = map.maintenance_stats().rounds;
    let core = session.core;
    core.round_in_passing(&core.local_at(&core.domain.pin(), 0));
    assert!(!core.combine_if_due(&mut core.lock_combiner()));
    assert_eq!(map.maintenance_stats().rounds, rounds, "nothing is pending");
    // One change more than are due.
    let due = core.maintenance.due_at.load(Relaxed) as isize;
    map.pause_maintenance(true);
    for key in 8 * FULL.. {
        if core.maintenance.pending.load(Relaxed) > due {
            break;
        }
        session.insert(key, key);
    }
    map.pause_maintenance(false);
    assert!(core.combine_if_due(&mut core.lock_combiner()));
    assert!(!core.combine_if_due(&mut core.lock_combiner()));
    assert_eq!(map.maintenance_stats().rounds, rounds + 1);
}

/// While it is the clients' turn, clients do the rounds. What these rounds retire is freed, although clients look for no
/// garbage: the map's thread is told of it.
#[test]
fn clients_take_turns_and_the_thread_frees_what_they_retire() {
    let map: HydraList<u64, u64> = HydraList::builder().topology(Topology::synthetic(1, 2)).build();
    let session = map.pin();
    let mut keys = 0..;
    let mut fill = |pages: u64| session.extend(keys.by_ref().take((pages * FULL) as usize).map(|key| (key, key)));
    fill(1_024);
    map.sync();
    let rests = |stats: MaintenanceStats| stats.threads == 1 && stats.done == stats.roused;
    while !rests(map.maintenance_stats()) {
        thread::sleep(Duration::from_millis(1));
    }
    let turns = &session.core.maintenance.background.turns;
    turns.give();
    let mut pages = 0;
    while turns.are_clients() {
        assert!(pages < 8 * 1_024, "no client takes a turn");
        let left = turns.left();
        fill(64);
        pages += 64;
        assert!(turns.left() + 2 >= left, "the thread has done a round: a twentieth of the pages is due, 51 or more");
    }
    let is_clean = (0..20_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        map.stats().garbage.objects == 0
    });
    assert!(is_clean, "the thread does not look for garbage");
}

/// While another thread updates a layer, a client that is told of a due round does not begin it, so the other thread has
/// no more rounds to apply. But the client does the round afterwards, since perhaps no change follows.
#[test]
fn a_due_round_waits_for_the_updater() {
    let map = map(SearchLayerKind::Snapshot, 1);
    let session = map.pin();
    let state = &session.core.maintenance;
    let is_due = || state.pending.load(Relaxed) >= state.due_at.load(Relaxed) as isize;
    let before = map.maintenance_stats().rounds;
    let begun = || map.maintenance_stats().rounds - before;
    let stop = AtomicBool::new(false);
    map.pause_maintenance(false);
    let begun_too_early = thread::scope(|scope| {
        let updating = lock(&state.updaters[0].busy);
        scope.spawn(|| {
            let session = map.pin();
            let mut keys = 8 * FULL..;
            while !stop.load(Relaxed) {
                keys.by_ref().take(4).for_each(|key| _ = session.insert(key, key));
            }
        });
        while !is_due() && begun() == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        stop.store(true, Relaxed);
        let begun = begun();
        drop(updating);
        begun
    });
    assert_eq!(begun_too_early, 0, "a round was begun while a thread updates");
    assert!(!is_due(), "a due round is left");
    assert_eq!(begun(), 1);
}
