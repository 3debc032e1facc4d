//! Which structures over which mechanisms can be measured.

use archipelago_platform::sync::Arc;
use archipelago_sets::{CitrusTree, HarrisList, Hash, List, OverMvRlu, OverRcu, OverRlu, Tree};
use archipelago_sync::mvrlu::{ClockKind, Collection, Domain, Tuning};

use super::drive::{self, Sample, Simulation, Spec};
use crate::failure::Failure;
use crate::sim::measure::Run;

/// A structure over a mechanism.
pub struct Contender {
    /// `list`, `hash` or `tree`.
    pub structure: &'static str,
    /// As in `--mechanism`.
    pub mechanism: &'static str,
    /// Makes, fills, drives and drops one.
    pub measure: fn(&Spec) -> Sample,
    /// The same on the virtual machine.
    pub simulate: fn(&Simulation<'_>) -> Result<Run, Failure>,
}

/// MV-RLU and the variants of the factor analysis, each differing from `mvrlu` in one thing.
fn mvrlu(variant: &str) -> OverMvRlu {
    let mut domain = Domain::builder();
    let mut tuning = Tuning::default();
    match variant {
        "ordered" => domain = domain.clock(ClockKind::Hardware),
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

/// A structure over a mechanism, from how to make one for a [`Spec`].
macro_rules! contender {
    ($structure:literal, $mechanism:expr, |$spec:pat_param| $make:expr) => {
        Contender {
            structure: $structure,
            mechanism: $mechanism,
            measure: |spec| {
                let $spec = spec;
                drive::measure(&$make, spec)
            },
            simulate: |simulation| {
                drive::simulate(simulation, |spec| {
                    let $spec = spec;
                    $make
                })
            },
        }
    };
}

/// One mechanism under all three structures.
macro_rules! over {
    ($name:literal, $make:expr) => {
        [
            contender!("list", $name, |_| List::over($make)),
            contender!("hash", $name, |spec| Hash::over($make, spec.buckets)),
            contender!("tree", $name, |_| Tree::over($make)),
        ]
    };
}

/// All of them, in the order of reports.
pub fn all() -> Vec<Contender> {
    let rcu = [
        contender!("list", "rcu", |_| List::<OverRcu>::default()),
        contender!("hash", "rcu", |spec| Hash::<OverRcu>::with_buckets(spec.buckets)),
        contender!("tree", "rcu", |_| Tree::<OverRcu>::default()),
    ];
    let rivals = [
        contender!("list", "harris", |_| HarrisList::default()),
        contender!("hash", "harris", |spec| HarrisList::with_buckets(spec.buckets)),
        contender!("tree", "citrus", |_| CitrusTree::default()),
    ];
    [
        rcu,
        over!("rlu", rlu("")),
        over!("rlu-ordered", rlu("ordered")),
        over!("rlu-deferred", rlu("deferred")),
        over!("mvrlu", mvrlu("")),
        over!("mvrlu-ordered", mvrlu("ordered")),
        over!("mvrlu-background", mvrlu("background")),
        over!("mvrlu-one-collector", mvrlu("one-collector")),
        over!("mvrlu-late", mvrlu("late")),
        over!("mvrlu-no-dereference", mvrlu("no-dereference")),
        rivals,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The contenders that both lists name.
///
/// # Errors
/// If a name is unknown, or nothing is left.
pub fn select(structures: &str, mechanisms: &str) -> Result<Vec<Arc<Contender>>, Failure> {
    let all = all();
    check("--structure", structures, all.iter().map(|contender| contender.structure))?;
    check("--mechanism", mechanisms, all.iter().map(|contender| contender.mechanism))?;
    let named = |list: &str, name: &str| list.split(',').any(|wanted| wanted == name || wanted == "all");
    let chosen: Vec<Arc<Contender>> = all
        .into_iter()
        .filter(|contender| named(structures, contender.structure) && named(mechanisms, contender.mechanism))
        .map(Arc::new)
        .collect();
    if chosen.is_empty() {
        return Err(Failure::new(format!("none of --mechanism {mechanisms} has a --structure {structures}")));
    }
    Ok(chosen)
}

fn check(option: &str, list: &str, known: impl Iterator<Item = &'static str>) -> Result<(), Failure> {
    let mut names: Vec<&str> = Vec::new();
    known.for_each(|name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    match list.split(',').find(|wanted| *wanted != "all" && !names.contains(wanted)) {
        None => Ok(()),
        Some(wanted) => Err(Failure::new(format!("{option} {wanted} is unknown; known are all, {}", names.join(", ")))),
    }
}
