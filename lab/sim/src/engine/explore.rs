//! Schedules that look for bugs: random schedules, probabilistic concurrency testing, and schedules of given choices.
//!
//! All threads share one clock, which every step advances a little, so that executions and their time stamps agree.
//! Timers fire when no other thread can run and, except in schedules of given choices, sometimes at random.

use super::thread::Status;
use super::{Engine, Outcome};
use crate::config::Schedule;
use crate::report::Choice;
use crate::rng;

/// On average one in this many switches of threads first lets time jump to the next timer, except in schedules of given
/// choices.
const JUMP: u64 = 64;

/// Picoseconds of a turn of a wait loop in set-up and tear-down, where nothing else takes time.
const UNTIMED_WAIT: u64 = 100;

impl Engine {
    /// Returns whether the running thread takes the next step.
    pub(super) fn explored_turn(&mut self) -> bool {
        if self.threads[self.current].status != Status::Ready {
            return false;
        }
        let chosen = self.choose();
        if chosen != self.current {
            self.chosen = Some(chosen);
        }
        chosen == self.current && self.memory.stats.accesses < self.config.limit_accesses && self.now < self.deadline()
    }

    /// Returns whether the running thread has to stop before an unannounced plain access, so that the schedule can
    /// choose. Accesses during a panic are ignored, since their number depends on symbols that the process has cached.
    pub(crate) fn plain_point(&mut self) -> bool {
        let one_in = self.config.plain_points;
        let resumed = std::mem::take(&mut self.me().stopped);
        if one_in == 0 || resumed || self.unwinding || std::thread::panicking() || rng::below(&mut self.rng, one_in) > 0
        {
            return false;
        }
        self.memory.stats.plain_points += 1;
        // In virtual time, such accesses are only counted and take no time.
        self.me().stopped = !self.timed();
        !self.timed()
    }

    fn choose(&mut self) -> usize {
        match self.config.schedule {
            Schedule::Pct { .. } => {
                let steps = self.memory.stats.accesses + self.memory.stats.plain_points;
                if self.change_points.last().is_some_and(|&step| steps >= step) {
                    self.change_points.pop();
                    self.yielded();
                }
                let best = self.ready.iter().copied().max_by_key(|&id| self.threads[id].priority);
                best.expect("a thread is ready")
            }
            Schedule::Chosen => self.next_choice(),
            _ => self.ready[rng::below(&mut self.rng, self.ready.len() as u64) as usize],
        }
    }

    /// Returns the next choice of the configuration. The first option is the running thread, and the choice of another
    /// thread is a preemption. If the running thread yields, it is the last option. If it waits, it is no option. In
    /// both cases no choice is a preemption.
    fn next_choice(&mut self) -> usize {
        let me = self.current;
        let yields = std::mem::take(&mut self.threads[me].yields);
        let mut options: Vec<usize> =
            self.ready.iter().copied().filter(|&id| self.threads[id].status == Status::Ready).collect();
        options.sort_unstable_by_key(|&id| if id == me { (u8::from(yields) * 2, id) } else { (1, id) });
        if options.len() < 2 {
            return options[0];
        }
        let taken = self.config.choices.get(self.trace.len()).copied().unwrap_or(0);
        let (count, preempts) = (options.len() as u16, options[0] == me && !yields);
        let taken = taken.min(count - 1);
        self.trace.push(Choice { options: count, taken, preempts });
        options[usize::from(taken)]
    }

    /// Records that the running thread yields.
    pub(crate) fn yielded(&mut self) {
        self.lowest_priority -= 1;
        let thread = &mut self.threads[self.current];
        thread.yields = true;
        thread.priority = self.lowest_priority;
        // Set-up takes no time. But if the turns of a wait loop took no time either, a loop in the set-up that waits
        // only for the clock would never end.
        if thread.untimed {
            thread.clock += UNTIMED_WAIT;
        }
    }

    pub(super) fn next_explored(&mut self) -> Result<usize, Outcome> {
        self.ready.retain(|&id| self.threads[id].status == Status::Ready);
        let chosen = self.chosen.take();
        let by_chance = self.config.schedule != Schedule::Chosen;
        if by_chance && self.agenda.earliest() != u64::MAX && rng::below(&mut self.rng, JUMP) == 0 {
            self.fire_timer()?;
        }
        while self.ready.is_empty() {
            if self.agenda.earliest() == u64::MAX {
                return Err(self.verdict());
            }
            self.fire_timer()?;
        }
        let id = match chosen {
            Some(id) if self.threads[id].status == Status::Ready => id,
            _ => self.choose(),
        };
        let thread = &mut self.threads[id];
        thread.clock = thread.clock.max(self.now);
        self.now = thread.clock;
        thread.granted = true;
        Ok(id)
    }

    fn fire_timer(&mut self) -> Result<(), Outcome> {
        if let Some((time, id)) = self.agenda.first() {
            self.agenda.remove(id);
            self.now = self.now.max(time);
            self.threads[id].clock = self.now;
            self.timer(id)?;
            self.ready.push(id);
        }
        Ok(())
    }
}
