//! Channels: who subscribes to what, over all loops.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocked::Owner;
use crate::family::glob;

/// A kind of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A channel by its name.
    Channel,
    /// Channels by a pattern.
    Pattern,
    /// A channel of a shard: the whole server is one.
    Shard,
}

impl Kind {
    /// The word in front of a message.
    pub fn message(self) -> &'static str {
        match self {
            Self::Channel => "message",
            Self::Pattern => "pmessage",
            Self::Shard => "smessage",
        }
    }
}

/// All subscriptions.
#[derive(Default)]
pub struct Hub {
    all: BTreeMap<(Kind, Vec<u8>), BTreeSet<Owner>>,
    patterns: usize,
}

impl Hub {
    /// Adds a subscription.
    pub fn subscribe(&mut self, kind: Kind, name: &[u8], owner: Owner) {
        let subscribers = self.all.entry((kind, name.to_vec())).or_default();
        self.patterns += usize::from(kind == Kind::Pattern && subscribers.is_empty());
        subscribers.insert(owner);
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, kind: Kind, name: &[u8], owner: Owner) {
        let key = (kind, name.to_vec());
        if let Some(subscribers) = self.all.get_mut(&key) {
            subscribers.remove(&owner);
            if subscribers.is_empty() {
                self.all.remove(&key);
                self.patterns -= usize::from(kind == Kind::Pattern);
            }
        }
    }

    /// Calls `each` with every subscriber of a channel, and the pattern if it is one that fits. O(patterns + subscribers).
    pub fn subscribers(&self, shard: bool, channel: &[u8], mut each: impl FnMut(Owner, Option<&[u8]>)) {
        let kind = if shard { Kind::Shard } else { Kind::Channel };
        if let Some(owners) = self.all.get(&(kind, channel.to_vec())) {
            owners.iter().for_each(|owner| each(*owner, None));
        }
        if shard || self.patterns == 0 {
            return;
        }
        let patterns =
            self.all.range((Kind::Pattern, Vec::new())..).take_while(|((kind, _), _)| *kind == Kind::Pattern);
        for ((_, pattern), owners) in patterns.filter(|((_, pattern), _)| glob::fits(pattern, channel)) {
            owners.iter().for_each(|owner| each(*owner, Some(pattern)));
        }
    }

    /// Channels of a kind, with how many subscribe to each.
    pub fn channels(&self, kind: Kind) -> impl Iterator<Item = (&[u8], usize)> {
        let all = self.all.iter().filter(move |((other, _), _)| *other == kind);
        all.map(|((_, name), owners)| (&name[..], owners.len()))
    }

    /// How many patterns are subscribed to.
    pub fn patterns(&self) -> usize {
        self.patterns
    }
}
