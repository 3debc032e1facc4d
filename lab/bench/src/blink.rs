//! `bench blink` and `sim blink`: a B-link tree under each technique of the NUMA B-tree thesis, and under their
//! combinations.

mod latch_set;

use core::marker::PhantomData;
use std::process::ExitCode;

use archipelago_index::BLinkTree;
use archipelago_index::blink::{
    Builder, Central, CohortWp, Granular, InnerReplicas, Latched, LogFed, Mirrored, Pages, Policy, Standard,
};
use archipelago_platform::time::Duration;

use crate::args::{Blink, SimCommon, Timed};
use crate::failure::Failure;
use crate::harness::program::{Dice, Done, Program, Turns};
use crate::harness::simulated::Contender;
use crate::harness::{Cells, Command, Experiment, Known, known};
use crate::report::row::Cell;
use crate::resources;
use latch_set::LatchSet;

/// Bytes that a key and its value take in half-full pages.
const ITEM: u64 = 32;

/// What clients do to a tree of `count` keys.
#[derive(Clone, Copy)]
struct Mix {
    count: u64,
    update_percent: u32,
    updates: Updates,
}

/// What updates do.
#[derive(Clone, Copy, PartialEq)]
enum Updates {
    /// Half of them replace the value of a key that was there from the beginning. The others store one of as many
    /// further keys.
    Store,
    /// Half of them remove a key. The others store one, which replaces its value if it is there.
    Remove,
    /// Each replaces the value of a key that was there from the beginning.
    Replace,
}

/// What an update does to the key with this number.
#[derive(Debug, PartialEq)]
enum Update {
    Delete(u64),
    Store(u64),
}

impl Updates {
    fn of<C: clap::Args>(args: &Blink<C>) -> Self {
        match (args.removes, args.replaces) {
            (true, _) => Updates::Remove,
            (_, true) => Updates::Replace,
            _ => Updates::Store,
        }
    }

    /// Returns what an update does that draws one of `count` keys, and `roll`.
    fn drawn(self, number: u64, count: u64, roll: u64) -> Update {
        match (self, (roll / 100).is_multiple_of(2)) {
            (Updates::Remove, true) => Update::Delete(number),
            (Updates::Store, false) => Update::Store(number + count),
            _ => Update::Store(number),
        }
    }

    /// Returns the name of a mix with such updates.
    const fn workload(self) -> &'static str {
        match self {
            Updates::Store => "mix",
            Updates::Remove => "mix with removals",
            Updates::Replace => "mix of replacements",
        }
    }
}

/// A mix, run on trees under the policy `P`.
struct Clients<P>(Mix, PhantomData<fn() -> P>);

impl<P> From<Mix> for Clients<P> {
    fn from(mix: Mix) -> Self {
        Clients(mix, PhantomData)
    }
}

/// Returns the key with this number. Successive numbers give scattered keys.
fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<P: Policy> Program for Clients<P> {
    type Shared = BLinkTree<u64, u64, P>;

    fn setup(&self, _: usize, _: u64) -> Self::Shared {
        let tree: Self::Shared = Builder::default().build();
        let map = tree.pin();
        (0..self.0.count).for_each(|number| _ = map.insert(key(number), number));
        tree
    }

    fn shares_setup(&self, other: &Self) -> bool {
        self.0.count == other.0.count
    }

    fn body(&self, tree: &Self::Shared, turns: &mut impl Turns) {
        let Mix { count, update_percent, updates } = self.0;
        let (map, dice) = (tree.pin(), Dice::of(turns));
        let op = |_| {
            let (number, roll) = (dice.roll() % count, dice.roll());
            if roll % 100 >= u64::from(update_percent) {
                let found = map.get(&key(number));
                return if updates == Updates::Remove || found == Some(number) { Done::Read } else { Done::Missed };
            }
            match updates.drawn(number, count, roll) {
                Update::Delete(number) => _ = map.delete(&key(number)),
                Update::Store(number) => _ = map.upsert(&key(number), number),
            }
            Done::Updated
        };
        turns.go(usize::MAX, op, || ());
    }

    fn retries(&self, tree: &Self::Shared) -> Option<u64> {
        Some(tree.retries())
    }
}

/// The page size, in bytes, of the contenders whose names state no page size.
const PAGE: usize = 4032;
/// 64 and 128 KiB, less one cache line for the allocator. The thesis's pages have 128 KiB.
const PAGE_64K: usize = (64 << 10) - 64;
const PAGE_128K: usize = (128 << 10) - 64;

/// The techniques one by one, their combinations, pages of other sizes under version locks and under the thesis's
/// latches, and the techniques with the latches that the thesis's code has in each page. Each contender is a type of its
/// own, which must be compiled.
const KNOWN: [Known<Mix>; 34] = [
    Known::of::<Clients<Latched<PAGE, Central, true>>>("standard"),
    Known::of::<Clients<Latched<PAGE, CohortWp, true>>>("cohort"),
    Known::of::<Clients<Latched<PAGE, Central, false>>>("free-reads"),
    Known::of::<Clients<Latched<PAGE, CohortWp, false>>>("free-reads+cohort"),
    Known::of::<Clients<Standard>>("default"),
    Known::of::<Clients<Mirrored<Latched<PAGE, Central, true>>>>("replicas"),
    Known::of::<Clients<Mirrored<Latched<PAGE, CohortWp, true>>>>("replicas+cohort"),
    Known::of::<Clients<Mirrored<Latched<PAGE, Central, false>>>>("replicas+free-reads"),
    Known::of::<Clients<Granular<Latched<PAGE, Central, true>, 1>>>("granular"),
    Known::of::<Clients<Granular<Latched<PAGE, Central, true>, { usize::MAX }>>>("granular-root"),
    Known::of::<Clients<Mirrored<Granular<Latched<PAGE, Central, true>, { usize::MAX }>>>>("replicas+granular-root"),
    Known::of::<Clients<Mirrored<Standard>>>("replicas+default"),
    Known::of::<Clients<LogFed<Standard>>>("log-fed"),
    Known::of::<Clients<InnerReplicas<Standard>>>("inner-replicas"),
    Known::of::<Clients<InnerReplicas<Latched<PAGE, CohortWp, false>>>>("inner-replicas+cohort"),
    Known::of::<Clients<Pages<960>>>("pages-1k"),
    Known::of::<Clients<Pages<PAGE_64K>>>("pages-64k"),
    Known::of::<Clients<Pages<PAGE_128K>>>("pages-128k"),
    Known::of::<Clients<Latched<PAGE_64K, Central, true>>>("standard-64k"),
    Known::of::<Clients<Latched<PAGE_64K, Central, false>>>("free-reads-64k"),
    Known::of::<Clients<Latched<PAGE_128K, Central, true>>>("standard-128k"),
    Known::of::<Clients<Latched<PAGE_128K, CohortWp, true>>>("cohort-128k"),
    Known::of::<Clients<Latched<PAGE_128K, Central, false>>>("free-reads-128k"),
    Known::of::<Clients<Latched<PAGE_128K, CohortWp, false>>>("free-reads+cohort-128k"),
    Known::of::<Clients<Granular<Latched<PAGE_128K, Central, true>, { usize::MAX }>>>("granular-root-128k"),
    Known::of::<Clients<Mirrored<Latched<PAGE_128K, Central, true>>>>("replicas-128k"),
    Known::of::<Clients<Mirrored<Latched<PAGE_128K, CohortWp, true>>>>("replicas+cohort-128k"),
    Known::of::<Clients<Mirrored<Latched<PAGE_128K, Central, false>>>>("replicas+free-reads-128k"),
    Known::of::<Clients<Mirrored<Granular<Latched<PAGE_128K, Central, true>, { usize::MAX }>>>>(
        "replicas+granular-root-128k",
    ),
    Known::of::<Clients<Latched<PAGE, LatchSet<Central>, true>>>("standard-latch-set"),
    Known::of::<Clients<Latched<PAGE, LatchSet<CohortWp>, true>>>("cohort-latch-set"),
    Known::of::<Clients<Latched<PAGE, LatchSet<Central>, false>>>("free-reads-latch-set"),
    Known::of::<Clients<Latched<PAGE, LatchSet<CohortWp>, false>>>("free-reads+cohort-latch-set"),
    Known::of::<Clients<Mirrored<Latched<PAGE, LatchSet<Central>, true>>>>("replicas-latch-set"),
];

/// Returns the contenders that the arguments list, in one cell (a workload with its parameters) for each percentage of
/// updates.
fn cells<C: clap::Args>(args: &Blink<C>, count: usize) -> Result<Cells<Mix>, Failure> {
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    let named = crate::choose::names("technique", &args.technique, &names)?;
    let chosen: Vec<_> = named.iter().filter_map(|name| KNOWN.iter().find(|known| known.name == *name)).collect();
    let count = args.count.unwrap_or(count);
    let updates = Updates::of(args);
    let workload = updates.workload();
    let cell = |&percent: &u32| {
        let mix = Mix { count: count as u64, update_percent: percent, updates };
        (Cell { update_percent: Some(percent), count: Some(count), ..Cell::of(workload) }, mix, chosen.clone())
    };
    Ok(args.update_percent.iter().map(cell).collect())
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run(args: &Blink<Timed>) -> Result<ExitCode, Failure> {
    let Timed { common, millis } = &args.common;
    resources::check_items(args.count.unwrap_or(0), ITEM, 0)?;
    let (cells, time) = (cells(args, 1_000_000)?, Duration::from_millis(*millis as u64));
    Command::start(common)?.run(&Experiment::of("blink", common, "standard", time, cells)?)
}

/// Returns the contenders on the virtual machine (a simulator).
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Blink<SimCommon>) -> Result<Vec<Contender>, Failure> {
    Ok(known::simulated(cells(args, 100_000)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of the updates add or remove a key, where updates do so at all.
    #[test]
    fn updates_do_as_they_say() {
        let other = |updates: Updates| (0..400).filter(|roll| updates.drawn(3, 10, *roll) != Update::Store(3)).count();
        assert_eq!([Updates::Store, Updates::Remove, Updates::Replace].map(other), [200, 200, 0]);
        assert_eq!(Updates::Remove.drawn(3, 10, 0), Update::Delete(3));
        assert_eq!(Updates::Store.drawn(3, 10, 100), Update::Store(13));
    }
}
