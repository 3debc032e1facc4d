//! The structures and mechanisms that can be measured together.

use archipelago_sets::{
    CitrusTree, CountedCitrusTree, HarrisList, Hash, HazardList, List, OverMvRlu, OverRcu, OverRcuHmcs,
    OverRcuKilobyte, OverRcx, OverRcxKilobyte, OverRcxStriped, OverRcxSuccessors, OverRcxSuccessorsKilobyte, OverRlu,
    OverRluKilobyte, OverVersioned, PredicateCitrusTree, RcuHtm, RcuHtmOneLock, RcuHtmOneLockKilobyte,
    SynchronousCitrusTree, SynchronousRcu, Tree,
};
use archipelago_sync::mvrlu::{ClockKind, Collection, Domain, Tuning};
use archipelago_sync::rcx::{Builder, Rcx, Striped};
use archipelago_sync::region::Region;

use super::clients::{Clients, Spec};
use crate::choose;
use crate::failure::Failure;
use crate::harness::{Entry, Known, simulated};

/// The structures, in the order of reports.
pub const STRUCTURES: [&str; 3] = ["list", "hash", "tree"];

/// One of the [`STRUCTURES`], and a mechanism over which it is measured.
pub type Over = (&'static str, Known<Spec>);

/// Returns MV-RLU or a variant. A variant whose name begins with `ordered-` is for the factor analysis: it has the
/// hardware's clock, and differs from `mvrlu-ordered` in one thing. Any other variant differs from `mvrlu` in one
/// thing.
fn mvrlu(variant: &str) -> OverMvRlu {
    let mut domain = Domain::builder();
    let mut tuning = Tuning::default();
    if variant.starts_with("ordered") {
        domain = domain.clock(ClockKind::Hardware);
    }
    match variant.trim_start_matches("ordered-") {
        "background" => domain = domain.collection(Collection::Background),
        "one-collector" => tuning.concurrent = false,
        "late" => tuning.low_watermark *= 16,
        "no-dereference" => tuning.dereference_watermark = u32::MAX,
        _ => {}
    }
    OverMvRlu::with(domain.tuning(tuning))
}

fn rlu(variant: &str) -> OverRlu {
    match variant {
        "ordered" => OverRlu::with(ClockKind::Hardware, 0),
        "deferred" => OverRlu::with(ClockKind::Logical, 10),
        _ => OverRlu::with(ClockKind::Logical, 0),
    }
}

/// Returns RCX or a variant for comparison. Each variant differs from `rcx` in one thing.
fn rcx(variant: &str) -> Builder {
    match variant {
        "no-htm" => Rcx::builder().without_transactions(),
        "handover" => Rcx::builder().passes(16),
        "fglock" => Rcx::fine_grained(),
        _ => Rcx::builder(),
    }
}

/// Returns RCX with a table of locks that has one stripe for each possible key.
fn striped(spec: &Spec) -> OverRcxStriped {
    OverRcxStriped::over(Rcx::builder().build_with(|nodes, _| Striped::with_stripes(nodes, 2 * spec.items)))
}

/// Defines a contender from a structure's name, a mechanism's name, and an expression that makes the structure for a
/// [`Spec`].
macro_rules! contender {
    ($structure:literal, $mechanism:expr, |$spec:pat_param| $make:expr) => {
        (
            $structure,
            Known {
                name: $mechanism,
                native: |name, cell, spec| Entry::of(name, cell, Clients { spec, make: |$spec: &Spec| $make }),
                simulate: |_, spec| simulated::program(Clients { spec, make: |$spec: &Spec| $make }),
            },
        )
    };
}

/// Defines the contenders of one mechanism over all three structures.
macro_rules! over {
    ($name:literal, $make:expr) => {
        [
            contender!("list", $name, |_| List::over($make)),
            contender!("hash", $name, |spec| Hash::over($make, spec.buckets)),
            contender!("tree", $name, |_| Tree::over($make)),
        ]
    };
}

/// Returns all contenders, in the order of reports.
fn all() -> Vec<Over> {
    let rcu = [
        contender!("list", "rcu", |_| List::<OverRcu>::default()),
        contender!("hash", "rcu", |spec| Hash::<OverRcu>::with_buckets(spec.buckets)),
        contender!("tree", "rcu", |_| Tree::<OverRcu>::default()),
    ];
    let striped = [
        contender!("list", "rcx-striped", |spec| List::over(striped(spec))),
        contender!("hash", "rcx-striped", |spec| Hash::over(striped(spec), spec.buckets)),
        contender!("tree", "rcx-striped", |spec| Tree::over(striped(spec))),
    ];
    let successors = [
        contender!("list", "rcx-successors", |_| List::over(OverRcxSuccessors::over(rcx("").build()))),
        contender!("hash", "rcx-successors", |spec| Hash::over(OverRcxSuccessors::over(rcx("").build()), spec.buckets)),
        contender!("list", "rcx-successors-1024", |_| List::over(OverRcxSuccessorsKilobyte::over(rcx("").build()))),
        contender!("hash", "rcx-successors-1024", |spec| Hash::over(
            OverRcxSuccessorsKilobyte::over(rcx("").build()),
            spec.buckets
        )),
    ];
    let rivals = [
        contender!("list", "harris", |_| HarrisList::default()),
        contender!("hash", "harris", |spec| HarrisList::with_buckets(spec.buckets)),
        contender!("list", "harris-hp", |_| HazardList::default().as_published()),
        contender!("hash", "harris-hp", |spec| HazardList::with_buckets(spec.buckets).as_published()),
        contender!("list", "michael-hp", |_| HazardList::default()),
        contender!("hash", "michael-hp", |spec| HazardList::with_buckets(spec.buckets)),
        contender!("tree", "citrus", |_| CitrusTree::default()),
        contender!("tree", "citrus-synchronous", |_| SynchronousCitrusTree::default()),
        contender!("tree", "citrus-predicate", |_| CountedCitrusTree::default()),
        contender!("tree", "citrus-predicate-eer", |_| PredicateCitrusTree::default()),
    ];
    [
        rcu,
        over!("rlu", rlu("")),
        over!("rlu-ordered", rlu("ordered")),
        over!("rlu-deferred", rlu("deferred")),
        over!("rlu-1024", OverRluKilobyte::default()),
        over!("mvrlu", mvrlu("")),
        over!("mvrlu-ordered", mvrlu("ordered")),
        over!("mvrlu-background", mvrlu("background")),
        over!("mvrlu-ordered-one-collector", mvrlu("ordered-one-collector")),
        over!("mvrlu-ordered-late", mvrlu("ordered-late")),
        over!("mvrlu-ordered-no-dereference", mvrlu("ordered-no-dereference")),
        over!("versioned", OverVersioned::default()),
        over!("rcx", OverRcx::over(rcx("").build())),
        over!("rcx-no-htm", OverRcx::over(rcx("no-htm").build())),
        over!("rcx-handover", OverRcx::over(rcx("handover").build())),
        over!("rcx-1024", OverRcxKilobyte::over(rcx("").build())),
        striped,
        over!("fglock", OverRcx::over(rcx("fglock").build())),
        over!("rcu-htm", RcuHtm::default()),
        over!("rcu-htm-one-lock", RcuHtmOneLock::default()),
        over!("rcu-htm-one-lock-1024", RcuHtmOneLockKilobyte::default()),
        over!("rcu-htm-by-locks", RcuHtm::over(Region::by_version_locks())),
        over!("rcu-hmcs", OverRcuHmcs::default()),
        over!("rcu-1024", OverRcuKilobyte::default()),
        over!("rcu-one-lock", OverRcu::with_one_lock()),
        over!("rcu-synchronous", SynchronousRcu::default()),
    ]
    .into_iter()
    .flatten()
    .chain(successors)
    .chain(rivals)
    .collect()
}

/// Returns the contenders that both lists name. They are kept until the program ends.
///
/// # Errors
/// If a name is unknown, or no contender is chosen.
pub fn select(structures: &str, mechanisms: &str) -> Result<&'static [Over], Failure> {
    let mut all = all();
    let chosen = |what: &str, list: &str, name: fn(&Over) -> &'static str| {
        choose::names(what, list, &all.iter().map(name).collect::<Vec<_>>())
    };
    let structure = chosen("structure", structures, |contender| contender.0)?;
    let mechanism = chosen("mechanism", mechanisms, |contender| contender.1.name)?;
    all.retain(|(over, known)| structure.contains(over) && mechanism.contains(&known.name));
    if all.is_empty() {
        return Err(Failure::new(format!("none of --mechanism {mechanisms} has a --structure {structures}")));
    }
    Ok(all.leak())
}
