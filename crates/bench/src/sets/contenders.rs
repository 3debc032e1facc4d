//! Which structures over which mechanisms can be measured.

use archipelago_platform::sync::Arc;
use archipelago_sync::mvrlu::{ClockKind, Collection, Domain, Tuning};
use archipelago_sync::set::{CitrusTree, HarrisList, Hash, List, OverMvRlu, OverRcu, OverRlu, Tree};

use super::drive::{self, Sample, Spec};
use crate::failure::Failure;

/// A structure over a mechanism.
pub struct Contender {
    /// `list`, `hash` or `tree`.
    pub structure: &'static str,
    /// As in `--mechanism`.
    pub mechanism: &'static str,
    /// Makes, fills, drives and drops one.
    pub measure: fn(&Spec) -> Sample,
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

/// One mechanism under all three structures.
macro_rules! over {
    ($name:literal, $make:expr) => {
        [
            Contender { structure: "list", mechanism: $name, measure: |spec| drive::measure(&List::over($make), spec) },
            Contender {
                structure: "hash",
                mechanism: $name,
                measure: |spec| drive::measure(&Hash::over($make, spec.buckets), spec),
            },
            Contender { structure: "tree", mechanism: $name, measure: |spec| drive::measure(&Tree::over($make), spec) },
        ]
    };
}

/// All of them, in the order of reports.
pub fn all() -> Vec<Contender> {
    let rcu = [
        Contender {
            structure: "list",
            mechanism: "rcu",
            measure: |spec| drive::measure(&List::<OverRcu>::default(), spec),
        },
        Contender {
            structure: "hash",
            mechanism: "rcu",
            measure: |spec| drive::measure(&Hash::<OverRcu>::with_buckets(spec.buckets), spec),
        },
        Contender {
            structure: "tree",
            mechanism: "rcu",
            measure: |spec| drive::measure(&Tree::<OverRcu>::default(), spec),
        },
    ];
    let rivals = [
        Contender {
            structure: "list",
            mechanism: "harris",
            measure: |spec| drive::measure(&HarrisList::default(), spec),
        },
        Contender {
            structure: "hash",
            mechanism: "harris",
            measure: |spec| drive::measure(&HarrisList::with_buckets(spec.buckets), spec),
        },
        Contender {
            structure: "tree",
            mechanism: "citrus",
            measure: |spec| drive::measure(&CitrusTree::default(), spec),
        },
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
