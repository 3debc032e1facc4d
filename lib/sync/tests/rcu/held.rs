//! Sections that several threads hold ([`Held`]).

use super::*;

/// A section without a holder delays no reclamation. It can be held again only if nothing can have been reclaimed in
/// the meantime.
#[test]
fn what_is_held_is_let_go_of_and_goes_on() {
    each_flavour(|make| {
        let domain = make().with_bag_limit(1);
        let drops = AtomicUsize::new(0);
        let readers = || domain.stats().active_readers;
        let held = domain.pin_owned().keep(7);
        let (keeper, other) = (Held::keeper(&held), held.clone());
        assert_eq!((readers(), domain.may_wait(), *held, *other), (1, false, 7, 7));
        drop(held);
        assert_eq!((readers(), domain.may_wait()), (1, false));
        drop(other);
        assert_eq!((readers(), domain.may_wait()), (0, true));
        for _ in 0..3 {
            let held = keeper.hold();
            assert!(held.is_some() && readers() == 1, "no time has passed");
            let another = keeper.hold();
            drop(held);
            assert!(another.is_some() && readers() == 1);
        }
        // Retired while there is no holder. A new holder protects the object again, unless the epoch has moved.
        let object = Tracked::boxed(&drops);
        // SAFETY: unlinked from the start, for guards that begin later; `drops` outlives the domain.
        unsafe { domain.pin().retire_box(object) };
        if let Some(_held) = keeper.hold() {
            (0..4).for_each(|_| domain.collect());
            // SAFETY: the section has continued, and it began before the retirement.
            unsafe { &*object }.check();
        }
        (0..4).for_each(|_| domain.collect());
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        for _ in 0..3 {
            assert!(keeper.hold().is_none() && readers() == 0, "it may not go on, however often it is asked");
        }
        let (guard, what) = keeper.into_parts().expect("there is no holder");
        assert_eq!((readers(), what), (1, 7));
        let held = guard.keep(8);
        let keeper = Held::keeper(&held);
        thread::scope(|s| _ = s.spawn(|| drop(held)));
        assert!(readers() == 0 && keeper.hold().is_some_and(|held| *held == 8));
        drop(keeper);
        assert_eq!(readers(), 0);
    });
}

/// Whichever of the holders and the keeper is dropped last frees the held value, once. There is only one keeper.
#[test]
fn what_is_held_ends_with_the_last() {
    each_flavour(|make| {
        let domain = make();
        let (drops, readers) = (AtomicUsize::new(0), || domain.stats().active_readers);
        let boxed = || Tracked::boxed(&drops);
        // SAFETY: made by a box, freed once.
        let held = || domain.pin_owned().keep(unsafe { Box::from_raw(boxed()) });
        let ended = || drops.swap(0, Ordering::Relaxed);
        drop(held());
        assert_eq!((ended(), readers()), (1, 0));
        let (first, keeper) = {
            let held = held();
            let keeper = Held::keeper(&held);
            (held, keeper)
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Held::keeper(&first))).is_err());
        drop(keeper);
        assert_eq!((ended(), readers()), (0, 1));
        let second = first.clone();
        drop(first);
        second.check();
        drop(second);
        assert_eq!((ended(), readers()), (1, 0));
        let held = held();
        let keeper = Held::keeper(&held);
        assert!(keeper.into_parts().is_none());
        assert_eq!((ended(), readers()), (0, 1));
        drop(held);
        assert_eq!((ended(), readers()), (1, 0));
    });
}

/// Several threads hold and release the section beside the keeper. The section lasts as long as there is a holder, and
/// no longer.
#[test]
fn holders_come_and_go_together() {
    each_flavour(|make| {
        let domain = make().with_bag_limit(1);
        let drops = AtomicUsize::new(0);
        let object = AtomicPtr::new(Tracked::boxed(&drops));
        let rounds = scaled(300, 3);
        for _ in 0..rounds {
            let guard = domain.pin_owned();
            // SAFETY: accessed only while there is a holder.
            let held = guard.keep(unsafe { &*object.load(Ordering::Acquire) });
            let keeper = Held::keeper(&held);
            let look = |held: &Held<'_, &Tracked<'_>>| held.check();
            let work = || {
                for turn in 0..scaled(20, 2) {
                    let Some(held) = keeper.hold() else { return };
                    look(&held);
                    let again = (turn % 2 == 0).then(|| held.clone());
                    drop(held);
                    again.iter().for_each(look);
                }
            };
            thread::scope(|s| {
                s.spawn(work);
                s.spawn(work);
                s.spawn(|| drop(held));
                let old = object.swap(Tracked::boxed(&drops), Ordering::AcqRel);
                // SAFETY: unlinked just now, once; `drops` outlives the domain.
                unsafe { domain.pin().retire_box(old) };
                domain.collect();
            });
            assert_eq!(domain.stats().active_readers, 0);
        }
        (0..4).for_each(|_| domain.collect());
        assert_eq!(drops.load(Ordering::Relaxed), rounds);
        // SAFETY: the last object, which is not linked anywhere else.
        drop(unsafe { Box::from_raw(object.into_inner()) });
    });
}
