//! Whose turn it is to do a round of maintenance: a map's own thread's, or a client's.
//!
//! While a processor is idle, the map's thread does the rounds beside the clients. While clients have all processors,
//! the thread can only take its time from one of them. This client then falls behind the others, and the layer stays
//! stale until the thread's round has ended, which takes longer than its work. So the thread compares the processor
//! time of its round with the time that passed. If the thread had to wait for a processor, clients do the next rounds,
//! as with [`Maintainers::Clients`](super::config::Maintainers::Clients), each within an operation. Then the thread does
//! one again, to see whether it still has to wait.

use archipelago_platform::atomic::{AtomicU32, Ordering::Relaxed};
use archipelago_platform::time::{Duration, Instant, thread_time};

/// The number of rounds that clients do before the thread tries again.
const TURNS: u32 = 15;

/// After a round that needed more processor time, clients do none, since a client's operation lasts as long as its round.
/// (A map can double in fifteen rounds, so a client's round may take twice this.) A thread that has to wait for a
/// processor waits about as long.
const LONGEST: Duration = Duration::from_millis(10);

/// Shorter rounds tell nothing: the times are as inexact as this.
const SHORTEST: Duration = Duration::from_micros(200);

/// How many of the next rounds are clients' turns. Relaxed: it is only a hint, since every thread may do a round.
#[derive(Default)]
pub(super) struct Turns(AtomicU32);

/// The beginning of a round.
pub(super) struct Stopwatch(Option<(Duration, Instant)>);

impl Turns {
    /// Returns whether a client does the next round.
    #[inline]
    pub(super) fn are_clients(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// A test hook: makes the next rounds clients' turns.
    pub(super) fn give(&self) {
        self.0.store(TURNS, Relaxed);
    }

    /// A test hook: how many turns are left.
    #[cfg(test)]
    pub(super) fn left(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Notes that a client has begun a round. Only the thread that has the combiner calls this.
    pub(super) fn take(&self) {
        self.0.store(self.0.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Judges a round that the map's thread has done for one of `layers` layers.
    pub(super) fn judge(&self, round: &Stopwatch, layers: usize) {
        if let Some((work, passed)) = round.read()
            && passed >= SHORTEST
        {
            self.0.store(turns_after(work, passed, layers), Relaxed);
        }
    }
}

/// Returns how many rounds are clients' turns after a round that needed `work` of a processor's time while `passed`
/// passed.
fn turns_after(work: Duration, passed: Duration, layers: usize) -> u32 {
    let waited = work < passed / 4 * 3;
    let is_short = work.saturating_mul(layers as u32) <= LONGEST;
    if waited && is_short { TURNS } else { 0 }
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(thread_time().map(|time| (time, Instant::now())))
    }

    /// Returns the thread's processor time and the time that have passed.
    fn read(&self) -> Option<(Duration, Duration)> {
        let (time, instant) = self.0?;
        Some((thread_time()?.saturating_sub(time), instant.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_while_the_thread_waits_for_a_processor() {
        let ms = Duration::from_millis;
        assert_eq!(turns_after(ms(4), ms(4), 1), 0, "the thread has a processor");
        assert_eq!(turns_after(ms(4), ms(8), 1), TURNS);
        assert_eq!(turns_after(ms(4), ms(8), 4), 0, "a client would do the round for all layers");
        assert_eq!(turns_after(ms(40), ms(80), 1), 0, "a client's operation would last too long");
    }

    #[test]
    fn the_thread_gets_a_turn_again() {
        let turns = Turns::default();
        turns.take();
        assert!(!turns.are_clients(), "an untold map's rounds are the thread's");
        turns.give();
        for _ in 0..TURNS {
            assert!(turns.are_clients());
            turns.take();
        }
        assert!(!turns.are_clients());
    }
}
