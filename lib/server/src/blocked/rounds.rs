//! The order in which the clients of ready keys are looked at, in rounds. A round is one batch of the log, and so one sync
//! of the disk.
//!
//! # Few rounds
//! How many clients of a key get something is known only afterwards. So the number of a key's clients in a round doubles
//! from round to round: for n served clients of a key there are O(log n) rounds, and at most n + 1 clients are looked at
//! in vain. A command that finds nothing changes nothing, so a look in vain costs only time.
//!
//! # One look at each client
//! A client may wait for many ready keys. Its command looks at all of them at once. So if the command has found nothing,
//! a second look would find nothing, too: no key has got an element in between. There are two exceptions. If another
//! client's change is later than the look, the thread that made this change serves its keys afterwards. If a served
//! command makes keys ready (`BLMOVE`), all clients may be looked at again ([`Rounds::add`]).
//!
//! # Order
//! Within a round, and so within the batch, the clients of a key are in the order of their tickets. A key whose next client
//! is in the round already because of another key waits for the next round, in which the result is known.

use std::collections::{BTreeMap, BTreeSet};

use super::{Blocked, Key, Owner};
use crate::operation::Call;
use crate::reply::Fault;

/// The number of bytes of commands after which a round ends.
const BYTES: usize = 1 << 20;

/// Whether clients of a key may get something although an earlier client of the key got nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They may: they may wait for another type of value, or for another position of a stream.
    May,
    /// They get nothing: the key has no element.
    MayNot,
}

/// A queue of one key, and how far its clients have been looked at.
struct Queue {
    key: Key,
    streams: bool,
    /// The ticket and the number of the last client that was looked at; 0 if there was none.
    last: (u64, u64),
    /// The number of clients in the next round.
    most: usize,
}

/// The queues of ready keys whose clients are still to be looked at.
pub struct Rounds {
    queues: Vec<Queue>,
    /// The clients that were looked at and wait on.
    looked: BTreeMap<u64, Others>,
}

/// The clients of a round with their calls, and the clients that may no longer make their calls.
type Round = (Vec<(Owner, Call)>, Vec<(Owner, Fault)>);

impl Rounds {
    /// Returns the rounds that begin with these ready keys.
    pub fn new(keys: Vec<Key>) -> Self {
        let mut rounds = Self { queues: Vec::new(), looked: BTreeMap::new() };
        rounds.add(keys);
        rounds
    }

    /// Adds keys that a served command has made ready. All clients may be looked at again.
    pub fn add(&mut self, keys: Vec<Key>) {
        if !keys.is_empty() {
            self.looked.clear();
        }
        // The old queue of the key is removed, because its next client would overtake the key's first client.
        self.queues.retain(|queue| !keys.contains(&queue.key));
        for key in keys {
            self.queues.push(Queue { key: key.clone(), streams: false, last: (0, 0), most: 1 });
            self.queues.push(Queue { key, streams: true, last: (0, 0), most: 1 });
        }
    }

    /// Notes that a client got nothing and waits on.
    pub fn waits_on(&mut self, id: u64, others: Others) {
        self.looked.insert(id, others);
    }

    /// Returns whether all clients were looked at.
    pub fn is_over(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the next round. `refusal` returns an error if a client may no longer make its call. The caller must remove
    /// the clients that are refused or served, and note the others ([`Self::waits_on`]), before the next round.
    pub fn next(&mut self, blocked: &Blocked, refusal: impl Fn(Owner, &Call) -> Option<Fault>) -> Round {
        let (mut batch, mut refused, mut chosen, mut bytes) = (Vec::new(), Vec::new(), BTreeSet::new(), 0);
        let looked = &self.looked;
        self.queues.retain_mut(|queue| {
            if looked.get(&queue.last.1) == Some(&Others::MayNot) {
                return false;
            }
            let end = chosen.len() + queue.most;
            while chosen.len() < end {
                let Some((ticket, owner, call)) = blocked.next(&queue.key, queue.streams, queue.last.0) else {
                    return false;
                };
                match looked.get(&owner.id) {
                    Some(Others::MayNot) => return false,
                    Some(Others::May) => {}
                    None if bytes >= BYTES || !chosen.insert(owner.id) => return true,
                    None => {
                        bytes += call.args.bytes();
                        match refusal(owner, call) {
                            Some(fault) => refused.push((owner, fault)),
                            None => batch.push((owner, call.clone())),
                        }
                    }
                }
                queue.last = (ticket, owner.id);
            }
            queue.most *= 2;
            true
        });
        (batch, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use crate::command;
    use crate::db::Random;

    fn blpop(keys: &[String]) -> Call {
        let words = [b"BLPOP".to_vec()].into_iter().chain(keys.iter().map(|key| key.clone().into_bytes()));
        let args: Args = words.chain([b"0".to_vec()]).collect();
        let command = command::find(b"blpop").unwrap();
        Call { command, args, db: 0, now: 1, seed: 1, wishes: 0, rights: None, deadline: None }
    }

    fn name(key: usize) -> String {
        format!("k{key}")
    }

    /// Serves clients as the server does. `elements` has the number of elements of each key. Returns the clients that got an
    /// element, the number of looks, and the number of rounds.
    fn serve(blocked: &mut Blocked, elements: &mut [usize]) -> (Vec<u64>, usize, usize) {
        let keys = (0..elements.len()).map(|key| (0, name(key).into_bytes())).collect();
        let (mut rounds, mut served, mut looks, mut count) = (Rounds::new(keys), Vec::new(), 0, 0);
        loop {
            let (batch, _) = rounds.next(blocked, |_, _| None);
            if batch.is_empty() && rounds.is_over() {
                return (served, looks, count);
            }
            looks += batch.len();
            count += 1;
            for (owner, call) in batch {
                let wanted = crate::blocked::keys(&call);
                let place = |(_, key): &(u32, Vec<u8>)| (0..elements.len()).find(|at| name(*at).as_bytes() == key);
                match wanted.iter().filter_map(place).find(|at| elements[*at] > 0) {
                    Some(at) => {
                        elements[at] -= 1;
                        served.push(owner.id);
                        assert!(blocked.remove(owner.id));
                    }
                    None => rounds.waits_on(owner.id, Others::MayNot),
                }
            }
        }
    }

    #[test]
    fn one_key_takes_few_rounds() {
        for (clients, elements) in [(1000, 1000), (1000, 1), (1000, 300), (5, 100), (100, 0)] {
            let mut blocked = Blocked::default();
            (1..=clients).for_each(|id| blocked.register(Owner { at: 0, slot: 0, id }, blpop(&[name(0)])));
            let (served, looks, rounds) = serve(&mut blocked, &mut [elements]);
            let expected = clients.min(elements as u64);
            assert_eq!(served, (1..=expected).collect::<Vec<_>>());
            assert!(looks <= 2 * expected as usize + 1, "{looks} looks for {expected}");
            assert!(rounds <= 2 + expected.checked_ilog2().unwrap_or(0) as usize, "{rounds} rounds for {expected}");
        }
    }

    /// Three clients have got nothing. Then a served command makes their key ready.
    #[test]
    fn a_key_that_is_filled_meanwhile_begins_with_its_first_client() {
        let (mut blocked, key) = (Blocked::default(), (0, name(0).into_bytes()));
        (1..=9).for_each(|id| blocked.register(Owner { at: 0, slot: 0, id }, blpop(&[name(0)])));
        let mut rounds = Rounds::new(vec![key.clone()]);
        let looked = |rounds: &mut Rounds| -> Vec<u64> {
            rounds.next(&blocked, |_, _| None).0.into_iter().map(|(owner, _)| owner.id).collect()
        };
        let first = looked(&mut rounds);
        assert_eq!(first, [1]);
        rounds.waits_on(1, Others::MayNot);
        rounds.add(vec![key]);
        assert_eq!(looked(&mut rounds), [1]);
    }

    #[test]
    fn elements_go_to_the_first_that_waits_for_them() {
        for seed in 0..2000 {
            let (mut random, mut blocked) = (Random(seed), Blocked::default());
            let mut elements: Vec<usize> = (0..4).map(|_| random.below(6)).collect();
            let mut wants: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            for id in 1..=1 + random.below(12) as u64 {
                let keys: BTreeSet<usize> = (0..1 + random.below(3)).map(|_| random.below(4)).collect();
                let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
                blocked.register(Owner { at: 0, slot: 0, id }, blpop(&names));
                wants.insert(id, keys.into_iter().collect());
            }
            let (served, looks, _) = serve(&mut blocked, &mut elements);
            assert!(looks <= 2 * wants.len(), "seed {seed}: {looks} looks at {} clients", wants.len());
            for (id, keys) in wants.iter().filter(|(id, _)| !served.contains(id)) {
                assert!(keys.iter().all(|key| elements[*key] == 0), "seed {seed}: client {id} waits for what is there");
                // A later client that waits for the same key alone has got nothing.
                let later = served.iter().filter(|other| *other > id).filter(|other| wants[*other].len() == 1);
                later.for_each(|other| assert!(!keys.contains(&wants[other][0]), "seed {seed}: {other} before {id}"));
            }
        }
    }
}
