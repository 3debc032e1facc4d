//! Sorted sets. A small sorted set is a pack of members and scores. A large one has a table of its members and a tree
//! ordered by score.

use core::cmp::Ordering;
use core::slice;

use archipelago_platform::sync::Arc;

use super::hashing::Hashing;
use super::pack::Pack;
use super::seen::{look, read, wrote};
use super::table::{Keyed, Table};
use super::tree::Tree;

/// The most members of a packed sorted set.
pub const MOST_PACKED: usize = 128;
/// The most bytes of a member of a packed sorted set.
pub const LONGEST_PACKED: usize = 64;

/// A member with its score. The order is the order of the sorted set: by score, then by member.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The score. It is never NaN.
    pub score: f64,
    /// The member. The table and the tree share its allocation.
    pub member: Arc<[u8]>,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        // 0.0 and -0.0 are equal here, as in Redis.
        let members = || read(&self.member).cmp(read(&other.member));
        self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal).then_with(members)
    }
}

/// An entry of the table.
#[derive(Clone, Debug)]
pub struct Scored {
    ranked: Ranked,
    hash: u32,
}

impl Keyed for Scored {
    fn key(&self) -> &[u8] {
        &self.ranked.member
    }

    fn hash(&self) -> u32 {
        self.hash
    }

    fn heap(&self) -> usize {
        16 + self.ranked.member.len()
    }
}

impl Scored {
    /// Returns the member's score.
    pub fn score(&self) -> f64 {
        self.ranked.score
    }
}

/// A sorted set.
#[derive(Clone, Debug)]
pub enum Zset {
    /// A small sorted set: alternating members and packed scores, in the order of the sorted set.
    Packed(Pack),
    /// A large sorted set. The table and the tree have the same members.
    Large {
        /// Maps a member to its score.
        table: Box<Table<Scored>>,
        /// The members in order of score.
        tree: Box<Tree<Ranked>>,
    },
}

impl Default for Zset {
    fn default() -> Self {
        Self::Packed(Pack::default())
    }
}

/// Decodes a packed score: an integer of one, two or four bytes, or eight bytes of a floating-point number.
fn score_of(bytes: &[u8]) -> f64 {
    match *bytes {
        [a] => (a as i8).into(),
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => f64::from_le_bytes(bytes.try_into().expect("other scores have eight bytes")),
    }
}

/// Encodes a score. Returns eight bytes, and how many of them are used.
fn packed(score: f64) -> ([u8; 8], usize) {
    let number = score as i32;
    if f64::from(number).to_bits() != score.to_bits() {
        return (score.to_le_bytes(), 8);
    }
    let length = if i8::try_from(number).is_ok() {
        1
    } else if i16::try_from(number).is_ok() {
        2
    } else {
        4
    };
    (i64::from(number).to_le_bytes(), length)
}

fn pairs(pack: &Pack) -> impl Iterator<Item = (usize, &[u8], f64)> {
    let mut items = pack.iter();
    core::iter::from_fn(move || {
        let (offset, member) = items.next()?;
        Some((offset, member, score_of(items.next()?.1)))
    })
}

impl Zset {
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Large { tree, .. } => tree.len(),
        }
    }

    /// Returns whether the sorted set has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Packed(pack) => pairs(pack).find(|(_, met, _)| *met == member).map(|(_, _, score)| score),
            Self::Large { table, .. } => look(&**table).get(member).map(Scored::score),
        }
    }

    /// Sets the score of a member. Returns the member's previous score. If the sorted set becomes large, its table gets
    /// the hash function `hashing`.
    pub fn set(&mut self, member: &[u8], score: f64, hashing: Hashing) -> Option<f64> {
        // Adding 0.0 removes the sign of -0.0: a packed zero has no sign, as in Redis.
        self.put_either(member, score, score + 0.0, hashing)
    }

    /// Sets the score of a member as [`set`](Self::set) does, for a sorted set that is made as a whole: a packed zero keeps
    /// its sign until [`made`](Self::made).
    pub fn add(&mut self, member: &[u8], score: f64, hashing: Hashing) -> Option<f64> {
        self.put_either(member, score, score, hashing)
    }

    /// Returns the sorted set that was made with [`add`](Self::add). As in Redis, its zeros have signs if it is large.
    pub fn made(self) -> Self {
        let signed = |score: f64| score == 0.0 && score.is_sign_negative();
        match &self {
            Self::Packed(pack) if pairs(pack).any(|(.., score)| signed(score)) => {
                let mut unsigned = Self::default();
                // What fits a pack needs no hash function.
                pairs(pack).for_each(|(_, member, score)| _ = unsigned.set(member, score, Hashing::default()));
                unsigned
            }
            _ => self,
        }
    }

    /// Sets the score of a member, to `score` in a large sorted set and to `packed_score` in a packed one.
    fn put_either(&mut self, member: &[u8], score: f64, packed_score: f64, hashing: Hashing) -> Option<f64> {
        if let Self::Packed(pack) = self {
            let before = pairs(pack).find(|(_, met, _)| *met == member).map(|(offset, _, before)| (offset, before));
            if let Some((offset, _)) = before {
                pack.remove(offset, 2);
            }
            if member.len() <= LONGEST_PACKED && pack.len() / 2 < MOST_PACKED {
                let behind = |met: &[u8], other: f64| other > score || (other == score && met > member);
                let at =
                    pairs(pack).find(|(_, met, other)| behind(met, *other)).map_or(pack.end(), |(offset, ..)| offset);
                // The score is inserted first. The member is then inserted before the score.
                let index = pack.iter().take_while(|(offset, _)| *offset < at).count();
                let (bytes, length) = packed(packed_score);
                pack.insert(at, &bytes[..length]);
                pack.insert(pack.offset(index), member);
                return before.map(|(_, before)| before);
            }
            self.unpack(hashing);
            if let Some((_, before)) = before {
                self.put(member, score);
                return Some(before);
            }
        }
        self.put(member, score)
    }

    fn put(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let Self::Large { table, tree } = self else { unreachable!("it was unpacked") };
        if let Some(scored) = table.get_mut(member) {
            let before = scored.ranked.clone();
            // The bits differ between 0.0 and -0.0, too.
            if before.score.to_bits() != score.to_bits() {
                tree.remove(&before);
                scored.ranked.score = score;
                wrote(slice::from_ref(scored));
                tree.insert(scored.ranked.clone());
            }
            return Some(before.score);
        }
        let ranked = Ranked { score, member: member.into() };
        tree.insert(ranked.clone());
        table.insert(Scored { ranked, hash: table.hash(member) });
        None
    }

    /// Makes the sorted set a large one, with a tree, and a table of the hash function `hashing`.
    pub fn unpack(&mut self, hashing: Hashing) {
        if let Self::Packed(pack) = self {
            let pack = core::mem::take(pack);
            *self = Self::Large { table: Box::new(Table::new(hashing)), tree: Box::default() };
            pairs(&pack).for_each(|(_, member, score)| _ = self.put(member, score));
        }
    }

    /// Removes a member. Returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Packed(pack) => {
                let (offset, _, score) = pairs(pack).find(|(_, met, _)| *met == member)?;
                pack.remove(offset, 2);
                Some(score)
            }
            Self::Large { table, tree } => {
                let Scored { ranked, .. } = table.remove(member)?;
                tree.remove(&ranked);
                Some(ranked.score)
            }
        }
    }

    /// Returns the number of members for which `before` returns `true`. `before` gets a member and its score. If
    /// `before` returns `true` for a member, it must return `true` for all members that precede this member, too.
    pub fn rank(&self, before: impl Fn(&[u8], f64) -> bool) -> usize {
        match self {
            Self::Packed(pack) => pairs(pack).take_while(|(_, member, score)| before(member, *score)).count(),
            Self::Large { tree, .. } => look(&**tree).rank(|ranked| before(&ranked.member, ranked.score)),
        }
    }

    /// Returns the rank of a member. O(log n) if the sorted set is large.
    pub fn rank_of(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.rank(|met, other| other < score || (other == score && met < member)))
    }

    /// Returns at most `count` members with their scores, in order, beginning with the member of rank `from`.
    pub fn range(&self, from: usize, count: usize) -> Vec<(&[u8], f64)> {
        match self {
            Self::Packed(pack) => {
                pairs(pack).skip(from).take(count).map(|(_, member, score)| (member, score)).collect()
            }
            Self::Large { tree, .. } => {
                let mut all = Vec::with_capacity(count.min(tree.len()));
                tree.visit(from, count, |ranked| all.push((&*ranked.member, ranked.score)));
                all
            }
        }
    }

    /// Returns the name of the encoding, as `OBJECT ENCODING` reports it.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Packed(_) => "listpack",
            Self::Large { .. } => "skiplist",
        }
    }

    /// Returns how many bytes of memory the sorted set takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.capacity(),
            Self::Large { table, tree } => {
                table.bytes() + tree.bytes() + table.iter().map(|scored| scored.key().len() + 24).sum::<usize>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Random;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn is_a_map_and_an_order_packed_and_large() {
        for names in [100, 1_000] {
            let (mut zset, mut scores, mut order) = (Zset::default(), BTreeMap::new(), BTreeSet::new());
            let mut random = Random(names as u64);
            for step in 0..20_000 {
                let member = random.below(names).to_string().into_bytes();
                let score = random.below(50) as i64 - 25;
                if random.below(3) > 0 {
                    let before = scores.insert(member.clone(), score);
                    before.map(|before| order.remove(&(before, member.clone())));
                    order.insert((score, member.clone()));
                    assert_eq!(zset.set(&member, score as f64, Hashing::default()), before.map(|before| before as f64));
                } else {
                    let before = scores.remove(&member);
                    before.map(|before| order.remove(&(before, member.clone())));
                    assert_eq!(zset.remove(&member), before.map(|before| before as f64));
                }
                assert_eq!(zset.len(), scores.len());
                if step % 100 == 0 {
                    assert!(
                        zset.range(0, usize::MAX)
                            .iter()
                            .map(|(member, _)| *member)
                            .eq(order.iter().map(|(_, member)| member))
                    );
                    let rank = scores.get(&member).map(|score| order.range(..(*score, member.clone())).count());
                    assert_eq!(zset.rank_of(&member), rank);
                }
            }
        }
    }

    #[test]
    fn only_zeros_of_large_sets_have_signs() {
        let signed = |zset: &Zset| {
            let score = |number: usize| zset.score(number.to_string().as_bytes()).unwrap();
            (0..zset.len()).filter(|number| score(*number).is_sign_negative()).count()
        };
        for (count, set, made) in [(MOST_PACKED, 0, 0), (MOST_PACKED + 1, 1, MOST_PACKED + 1)] {
            let mut each = [Zset::default(), Zset::default()];
            for number in 0..count {
                let member = number.to_string();
                each[0].set(member.as_bytes(), -0.0, Hashing::default());
                each[1].add(member.as_bytes(), -0.0, Hashing::default());
            }
            let [one, other] = each.map(Zset::made);
            assert_eq!((signed(&one), signed(&other)), (set, made));
        }
        // A change of the sign alone is a change.
        let mut zset = Zset::default();
        zset.unpack(Hashing::default());
        zset.set(b"0", -0.0, Hashing::default());
        zset.set(b"0", 0.0, Hashing::default());
        assert_eq!((signed(&zset), zset.range(0, 1)[0].1.is_sign_negative()), (0, false));
    }
}
