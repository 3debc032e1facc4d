//! The model with which the tests compare a `RangeMap`: an array with one element for each point.

use std::ops::Range;

use archipelago_check::linear::Model;
use archipelago_ranges::RangeMap;

/// The number of points.
pub const POINTS: u16 = if cfg!(any(archipelago_sim, miri)) { 24 } else { 160 };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Get(u16),
    GetRange(u16),
    NextRange(u16),
    Insert(Range<u16>, u8),
    TryInsert(Range<u16>, u8),
    Remove(Range<u16>),
    /// Adds one to each value, modulo 3.
    Change(Range<u16>),
    Overlapping(Range<u16>),
    Len,
    IsEmpty,
    FindGap(u16, u16, Range<u16>),
    InsertInGap(u16, u16, Range<u16>, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ret {
    Value(Option<u8>),
    Ranges(Vec<(Range<u16>, u8)>),
    Count(usize),
    /// The range that made `TryInsert` fail, or `None` if the operation succeeded.
    Done(Option<Range<u16>>),
    Gap(Option<Range<u16>>),
}

/// Returns a random operation. `random(bound)` returns a random number below `bound`.
pub fn draw(mut random: impl FnMut(u64) -> u64) -> Op {
    let mut window = |longest: u64| {
        let start = random(u64::from(POINTS)) as u16;
        start..(start + 1 + random(longest) as u16).min(POINTS)
    };
    let (short, long) = (window(4), window(u64::from(POINTS)));
    let window = if random(4) == 0 { long } else { short };
    let value = random(3) as u8;
    let (size, alignment) = (1 + random(6) as u16, random(3) as u16 * 2);
    match random(18) {
        0 | 1 => Op::Get(window.start),
        2 => Op::GetRange(window.start),
        3..=5 => Op::Insert(window, value),
        6 | 7 => Op::TryInsert(window, value),
        8..=10 => Op::Remove(window),
        11 => Op::Change(window),
        12 => Op::Overlapping(window),
        13 => Op::Len,
        14 => Op::NextRange(window.start),
        15 => Op::IsEmpty,
        16 => Op::FindGap(size, alignment, window.start..POINTS),
        _ => Op::InsertInGap(size, alignment, window.start..POINTS, value),
    }
}

pub fn perform(map: &RangeMap<u16, u8>, op: &Op) -> Ret {
    let owned = |(range, value): (Range<u16>, &u8)| (range, *value);
    match op.clone() {
        Op::Get(point) => Ret::Value(map.get(point)),
        Op::GetRange(point) => Ret::Ranges(map.pin().get_range(point).map(owned).into_iter().collect()),
        Op::NextRange(point) => Ret::Ranges(map.pin().next_range(point).map(owned).into_iter().collect()),
        Op::Insert(range, value) => {
            map.insert(range, value);
            Ret::Done(None)
        }
        Op::TryInsert(range, value) => Ret::Done(map.try_insert(range, value).err().map(|occupied| occupied.range)),
        Op::Remove(range) => Ret::Count(map.remove(range)),
        Op::Change(range) => Ret::Count(map.change(range, |_, value| (value + 1) % 3)),
        Op::Overlapping(range) => Ret::Ranges(map.pin().overlapping(range).map(owned).collect()),
        Op::Len => Ret::Count(map.pin().len()),
        Op::IsEmpty => Ret::Count(map.pin().is_empty().into()),
        Op::FindGap(size, alignment, within) => Ret::Gap(map.pin().find_gap(size, alignment, within)),
        Op::InsertInGap(size, alignment, within, value) => Ret::Gap(map.insert_in_gap(size, alignment, within, value)),
    }
}

/// One element per point: the value of the point plus one, or 0 if no range contains the point.
pub type Points = Vec<u8>;

/// The model, with the points at the start of the history.
#[derive(Debug)]
pub struct Flat(pub Points);

fn part(range: &Range<u16>) -> Range<usize> {
    usize::from(range.start)..usize::from(range.end)
}

/// Returns the ranges that overlap a window.
fn ranges(points: &Points, window: &Range<u16>) -> Vec<(Range<u16>, u8)> {
    let runs = points.chunk_by(|a, b| a == b).scan(0, |at, run| {
        let start = *at;
        *at += run.len() as u16;
        Some((start..*at, run[0]))
    });
    let overlaps = |range: &Range<u16>| range.start < window.end && range.end > window.start;
    runs.filter(|(range, value)| *value > 0 && overlaps(range)).map(|(range, value)| (range, value - 1)).collect()
}

fn gap(points: &Points, size: u16, alignment: u16, within: &Range<u16>) -> Option<Range<u16>> {
    let fits = |at: &u16| {
        at.is_multiple_of(alignment.max(1))
            && at + size <= within.end
            && points[part(&(*at..at + size))].iter().all(|point| *point == 0)
    };
    within.clone().find(fits).map(|at| at..at + size)
}

impl Model for Flat {
    type Op = Op;
    type Ret = Ret;
    type State = Points;

    fn initial(&self) -> Points {
        self.0.clone()
    }

    fn is_blind(&self, op: &Op, _: &Ret) -> bool {
        matches!(op, Op::Insert(..) | Op::Change(_) | Op::Remove(_))
    }

    fn step(&self, state: &Points, op: &Op, ret: &Ret) -> Option<Points> {
        let mut next = state.clone();
        let right = match op {
            Op::Get(point) => Ret::Value(state[usize::from(*point)].checked_sub(1)),
            Op::GetRange(point) => Ret::Ranges(ranges(state, &(*point..point + 1))),
            Op::NextRange(point) => Ret::Ranges(ranges(state, &(*point..POINTS)).into_iter().take(1).collect()),
            Op::Insert(range, value) => {
                next[part(range)].fill(value + 1);
                Ret::Done(None)
            }
            Op::TryInsert(range, value) => {
                let first = ranges(state, range).into_iter().next().map(|(range, _)| range);
                if first.is_none() {
                    next[part(range)].fill(value + 1);
                }
                Ret::Done(first)
            }
            Op::Remove(range) => {
                next[part(range)].fill(0);
                Ret::Count(ranges(state, range).len())
            }
            Op::Change(range) => {
                next[part(range)].iter_mut().filter(|point| **point > 0).for_each(|point| *point = *point % 3 + 1);
                Ret::Count(ranges(state, range).len())
            }
            Op::Overlapping(range) => Ret::Ranges(ranges(state, range)),
            Op::Len => Ret::Count(ranges(state, &(0..POINTS)).len()),
            Op::IsEmpty => Ret::Count(state.iter().all(|point| *point == 0).into()),
            Op::FindGap(size, alignment, within) => Ret::Gap(gap(state, *size, *alignment, within)),
            Op::InsertInGap(size, alignment, within, value) => {
                // Any free gap is a correct answer. The map promises only that no lower gap was large enough at an
                // earlier moment of the call, so the model does not check the order of gaps.
                let Ret::Gap(answer) = ret else { return None };
                if let Some(taken) = answer {
                    if gap(state, *size, *alignment, taken).as_ref() != Some(taken) || taken.start < within.start {
                        return None;
                    }
                    next[part(taken)].fill(value + 1);
                    ret.clone()
                } else {
                    Ret::Gap(gap(state, *size, *alignment, within))
                }
            }
        };
        (right == *ret).then_some(next)
    }
}

/// Returns the points of many short ranges, and a map of the same ranges, which has several leaves.
pub fn several_leaves() -> (Points, RangeMap<u16, u8>) {
    let points: Points = (0..POINTS).map(|point| (point % 4) as u8).collect();
    let map = ranges(&points, &(0..POINTS)).into_iter().collect();
    (points, map)
}
