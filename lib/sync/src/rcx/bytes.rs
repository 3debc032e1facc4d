//! Admission, the first half of locking. Each object has a lock byte for each NUMA node (its *local bytes*). Admission
//! takes the bytes of the caller's node for all objects of a set, or none of them.

use archipelago_platform::atomic::Ordering;
use archipelago_platform::htm::{Abort, Htm, Retry};

use super::attempt::{Patience, Set};
use super::handle::{Access, Handle};
use super::{LOCAL, Locks};

/// The abort code of a transaction that found a byte taken.
const BUSY: u8 = 0xfd;

/// The largest set that is tried in a transaction: the byte of each object may be in a different cache line.
const MOST_IN_TRANSACTION: usize = 16;

/// If other threads' accesses abort the transactions, the pauses between the transactions are 4, 8 and 16 turns of a
/// spin loop. So an attempt takes microseconds.
const RETRY: Retry = Retry { conflicts: 3, capacity: 1, silent: 2, pause: 4 };

impl<'o, L: Locks> Set<'_, 'o, L> {
    /// Takes all bytes, or none when the patience is used up.
    #[inline]
    pub(super) fn admit(&self, patience: &mut Patience) -> bool {
        let first = match (self.handles, self.rcx.htm) {
            ([one], _) => self.take_local(*one),
            (many, Some(htm)) if many.len() <= MOST_IN_TRANSACTION => {
                self.first_busy().is_none() && self.take_at_once(htm).map_err(|why| LOCAL.note_abort(why)).is_ok()
            }
            _ => self.take_in_order().is_ok(),
        };
        first || self.admit_slowly(patience)
    }

    #[cold]
    fn admit_slowly(&self, patience: &mut Patience) -> bool {
        let mut htm = self.rcx.htm.filter(|_| (2..=MOST_IN_TRANSACTION).contains(&self.handles.len()));
        let (mut retry, mut queued) = (RETRY, None);
        let admitted = loop {
            // Checks that the bytes are free before anything is begun. So no transaction is begun that would abort, and
            // other threads are not disturbed.
            let busy = match (self.first_busy(), htm) {
                (None, Some(tx)) => match self.take_at_once(tx) {
                    Ok(()) => break true,
                    // Another thread was faster. This abort does not count against the retry budget.
                    Err(why) if why.code().is_some() => {
                        LOCAL.note_abort(why);
                        self.first_busy()
                    }
                    Err(why) => {
                        htm = htm.filter(|_| retry.spend_at(&LOCAL, why));
                        continue;
                    }
                },
                (None, None) => match self.take_in_order() {
                    Ok(()) => break true,
                    Err(busy) => Some(busy),
                },
                (busy, _) => busy,
            };
            self.queue_at(&mut queued, busy);
            if !patience.wait() {
                break false;
            }
        };
        self.leave_queue(queued, admitted);
        admitted
    }

    fn first_busy(&self) -> Option<Handle<'o, L>> {
        self.handles.iter().copied().find(|handle| handle.lock.local(self.node).load(Ordering::Relaxed) != 0)
    }

    /// Takes all bytes or none, in one transaction.
    #[inline(always)]
    fn take_at_once(&self, htm: Htm) -> Result<(), Abort> {
        htm.transaction(
            #[inline(always)]
            |inside| {
                for handle in self.handles {
                    let local = handle.lock.local(self.node);
                    // Acquire: pairs with the Release in `release_local`.
                    if local.load(Ordering::Acquire) != 0 {
                        inside.abort::<BUSY>();
                    }
                    local.store(1, Ordering::Relaxed);
                }
            },
        )
    }

    /// Takes one byte after the other. If one is held, gives up those taken before and returns the held one as the
    /// error.
    fn take_in_order(&self) -> Result<(), Handle<'o, L>> {
        for (taken, handle) in self.handles.iter().enumerate() {
            if !self.take_local(*handle) {
                self.give_up(&self.handles[..taken]);
                return Err(*handle);
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn take_local(&self, handle: Handle<'o, L>) -> bool {
        // Acquire: pairs with the Release in `release_local`.
        handle.lock.local(self.node).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(super) fn release_local(&self, handle: Handle<'o, L>) {
        let local = handle.lock.local(self.node);
        debug_assert_eq!(local.load(Ordering::Relaxed), 1, "a byte of node {} that no thread has taken", self.node);
        local.store(0, Ordering::Release);
    }
}
