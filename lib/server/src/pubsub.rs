//! Channels: the subscriptions of the clients of all event loops.

use std::collections::{BTreeMap, BTreeSet};

use crate::blocked::Owner;
use crate::family::glob;

/// A kind of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubscriptionKind {
    /// A subscription to a channel, by the channel's name.
    Channel,
    /// A subscription to all channels whose names match a pattern.
    Pattern,
    /// A subscription to a channel of a shard. The whole server is one shard.
    Shard,
}

impl SubscriptionKind {
    /// Returns the first word of a message to a subscriber of this kind.
    pub fn message(self) -> &'static str {
        match self {
            Self::Channel => "message",
            Self::Pattern => "pmessage",
            Self::Shard => "smessage",
        }
    }
}

/// The subscriptions of one client: the names of each kind, in the order of [`SubscriptionKind`].
#[derive(Default)]
pub struct Subscriptions([BTreeSet<Vec<u8>>; 3]);

impl Subscriptions {
    /// Adds a subscription.
    pub fn insert(&mut self, kind: SubscriptionKind, name: &[u8]) {
        self.0[kind as usize].insert(name.to_vec());
    }

    /// Removes a subscription.
    pub fn remove(&mut self, kind: SubscriptionKind, name: &[u8]) {
        self.0[kind as usize].remove(name);
    }

    /// Returns whether the client has the subscription.
    pub fn contains(&self, kind: SubscriptionKind, name: &[u8]) -> bool {
        self.0[kind as usize].contains(name)
    }

    /// Returns whether the client gets messages of a channel. O(patterns).
    pub fn hears(&self, shard: bool, channel: &[u8]) -> bool {
        let kind = if shard { SubscriptionKind::Shard } else { SubscriptionKind::Channel };
        self.contains(kind, channel)
            || !shard && self.0[SubscriptionKind::Pattern as usize].iter().any(|pattern| glob::fits(pattern, channel))
    }

    /// Returns whether the client has no subscription.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeSet::is_empty)
    }

    /// Returns the number of subscriptions of each kind. O(1).
    pub fn counts(&self) -> [usize; 3] {
        self.0.each_ref().map(BTreeSet::len)
    }

    /// Returns the names of a kind.
    pub fn of(&self, kind: SubscriptionKind) -> impl Iterator<Item = &[u8]> {
        self.0[kind as usize].iter().map(Vec::as_slice)
    }

    /// Returns all subscriptions.
    pub fn iter(&self) -> impl Iterator<Item = (SubscriptionKind, &[u8])> {
        use SubscriptionKind::{Channel, Pattern, Shard};
        [Channel, Pattern, Shard].into_iter().flat_map(|kind| self.of(kind).map(move |name| (kind, name)))
    }
}

/// All subscriptions.
#[derive(Default)]
pub struct Hub {
    all: BTreeMap<(SubscriptionKind, Vec<u8>), BTreeSet<Owner>>,
    patterns: usize,
}

impl Hub {
    /// Adds a subscription.
    pub fn subscribe(&mut self, kind: SubscriptionKind, name: &[u8], owner: Owner) {
        let subscribers = self.all.entry((kind, name.to_vec())).or_default();
        self.patterns += usize::from(kind == SubscriptionKind::Pattern && subscribers.is_empty());
        subscribers.insert(owner);
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, kind: SubscriptionKind, name: &[u8], owner: Owner) {
        let key = (kind, name.to_vec());
        if let Some(subscribers) = self.all.get_mut(&key) {
            subscribers.remove(&owner);
            if subscribers.is_empty() {
                self.all.remove(&key);
                self.patterns -= usize::from(kind == SubscriptionKind::Pattern);
            }
        }
    }

    /// Calls `each` with every subscriber of a channel, and with the subscriber's pattern if the subscription is to a
    /// pattern. O(patterns + subscribers).
    pub fn subscribers(&self, shard: bool, channel: &[u8], mut each: impl FnMut(Owner, Option<&[u8]>)) {
        let kind = if shard { SubscriptionKind::Shard } else { SubscriptionKind::Channel };
        if let Some(owners) = self.all.get(&(kind, channel.to_vec())) {
            owners.iter().for_each(|owner| each(*owner, None));
        }
        if shard || self.patterns == 0 {
            return;
        }
        let patterns = self
            .all
            .range((SubscriptionKind::Pattern, Vec::new())..)
            .take_while(|((kind, _), _)| *kind == SubscriptionKind::Pattern);
        for ((_, pattern), owners) in patterns.filter(|((_, pattern), _)| glob::fits(pattern, channel)) {
            owners.iter().for_each(|owner| each(*owner, Some(pattern)));
        }
    }

    /// Returns the clients that may hear a channel whose name begins with one of `beginnings`. O(subscriptions).
    pub fn listeners(&self, beginnings: &[&[u8]]) -> BTreeSet<Owner> {
        let may = |kind: SubscriptionKind, name: &[u8]| {
            let special = |byte: &u8| b"*?[\\".contains(byte);
            let fixed =
                if kind == SubscriptionKind::Pattern { name.split(special).next().unwrap_or_default() } else { name };
            let is_short = kind == SubscriptionKind::Pattern && fixed.len() < name.len();
            let fits = |begin: &&[u8]| fixed.starts_with(begin) || (is_short && begin.starts_with(fixed));
            kind != SubscriptionKind::Shard && beginnings.iter().any(fits)
        };
        let all = self.all.iter().filter(|((kind, name), _)| may(*kind, name));
        all.flat_map(|(_, owners)| owners).copied().collect()
    }

    /// Returns the channels of a kind, with the number of subscribers of each.
    pub fn channels(&self, kind: SubscriptionKind) -> impl Iterator<Item = (&[u8], usize)> {
        let all = self.all.iter().filter(move |((other, _), _)| *other == kind);
        all.map(|((_, name), owners)| (&name[..], owners.len()))
    }

    /// Returns the number of subscribers of a channel or pattern.
    pub fn count(&self, kind: SubscriptionKind, name: &[u8]) -> usize {
        self.all.get(&(kind, name.to_vec())).map_or(0, BTreeSet::len)
    }

    /// Returns the number of patterns that have subscribers.
    pub fn patterns(&self) -> usize {
        self.patterns
    }
}
