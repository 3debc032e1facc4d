//! Faults that stall threads.

use super::{Engine, agenda};
use crate::config::{Fault, Point};
use crate::rng;

/// Returns a fault's time in picoseconds. The largest number means never.
fn ps(ns: u64) -> u64 {
    ns.saturating_mul(1000)
}

impl Engine {
    /// Finds the next fault of a thread.
    pub(super) fn plan_faults(&mut self, id: usize) {
        let (mut next_access, mut next_clock) = (u64::MAX, u64::MAX);
        let thread = &mut self.threads[id];
        for fault in &self.config.faults {
            match fault {
                Fault::Stall { thread: which, at, .. } if which.is_none_or(|slot| slot == thread.slot) => match at {
                    Point::Time(ns) if ps(*ns) > thread.clock => next_clock = next_clock.min(ps(*ns)),
                    Point::Access(nth) if *nth > thread.accesses => next_access = next_access.min(*nth),
                    Point::OneIn(mean) => {
                        let gap = 1 + rng::below(&mut thread.rng, mean.saturating_mul(2).max(2));
                        next_access = next_access.min(thread.accesses.saturating_add(gap));
                    }
                    _ => {}
                },
                Fault::StallNode { node, at_ns, .. } if *node == thread.socket && ps(*at_ns) > thread.clock => {
                    next_clock = next_clock.min(ps(*at_ns));
                }
                _ => {}
            }
        }
        (thread.fault_access, thread.fault_clock) = (next_access, next_clock);
    }

    /// Returns whether a fault happens to the running thread before its next access.
    #[inline]
    pub(super) fn fault_due(&self) -> bool {
        let thread = &self.threads[self.current];
        thread.accesses + 1 >= thread.fault_access || thread.clock >= thread.fault_clock
    }

    /// Returns how long the due fault stalls the running thread.
    #[cold]
    pub(super) fn fault(&mut self) -> u64 {
        let thread = &self.threads[self.current];
        let (accesses, clock) = (thread.accesses + 1, thread.clock);
        let (by_access, by_clock) = (accesses >= thread.fault_access, clock >= thread.fault_clock);
        let (slot, socket, at_access, at_clock) = (thread.slot, thread.socket, thread.fault_access, thread.fault_clock);
        let mut stall = 0;
        for fault in &self.config.faults {
            let due = match fault {
                Fault::Stall { thread, at, for_ns } if thread.is_none_or(|which| which == slot) => match at {
                    Point::Time(ns) if by_clock && ps(*ns) == at_clock => *for_ns,
                    Point::Access(nth) if by_access && *nth == at_access => *for_ns,
                    Point::OneIn(_) if by_access => *for_ns,
                    _ => 0,
                },
                Fault::StallNode { node, at_ns, for_ns } if *node == socket && by_clock && ps(*at_ns) == at_clock => {
                    *for_ns
                }
                _ => 0,
            };
            stall = stall.max(ps(due).min(agenda::MAX_TIME));
        }
        // The fault of this access has happened; `plan_faults` must look for faults of later accesses.
        self.threads[self.current].accesses += u64::from(by_access);
        self.plan_faults(self.current);
        self.threads[self.current].accesses -= u64::from(by_access);
        stall
    }
}
