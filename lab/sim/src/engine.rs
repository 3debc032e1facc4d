//! The scheduler of virtual time: all simulated threads, the choice of the next one, and the cost of a step.
//!
//! One OS thread runs everything. A simulated thread is a stackful coroutine. Under
//! [`Schedule::VirtualTime`](crate::Schedule::VirtualTime), it yields before an access if another thread's clock is
//! behind its own. So accesses happen in the order of virtual time (quantum 0). Under the other schedules
//! (`explore.rs`), it yields where the schedule chooses another thread. In either case the execution is sequentially
//! consistent.
//!
//! # Borrowing
//! Other threads change the engine while a thread is suspended, so no reference to the engine may live across a
//! suspension. Methods of [`Engine`] therefore never suspend. They return that the thread must suspend
//! ([`Step::Suspend`]), and the functions of [`switch`], which have only a raw pointer, suspend it.

mod access;
mod agenda;
mod choice;
mod costs;
mod explore;
mod faults;
#[cfg(target_os = "linux")]
mod overflow;
pub(crate) mod switch;
pub(crate) mod thread;
pub(crate) mod tx;
mod wait;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::Arena;
use crate::config::{Config, Placement, Schedule};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::report::{Choice, HotLine, Outcome, PARTS};
use crate::rng;
use agenda::Agenda;
use costs::Costs;
use thread::{Key, Role, Status, Thread};
use tx::{Cause, Marks, Sites};
use wait::Watch;

/// What a running thread has to do for an access.
pub(crate) enum Step {
    /// Make the access. The field is the number of the access's line, or `NONE` if the model ignores the access.
    Go(u32),
    /// Yield, then ask again.
    Suspend,
    /// Skip the access, which must leave no trace: the thread's transaction is doomed.
    Doomed,
    /// Unwind: the run is over.
    Unwind,
}

/// If the length of a run is unknown, each change point is drawn below a power of two, whose exponent is a random
/// number below this constant. So each change point is within the first 8 million steps.
const UNKNOWN_LENGTH: u64 = 24;

/// A thread that is to be started.
pub(crate) struct Start {
    pub(crate) role: Role,
    pub(crate) cpu: usize,
    pub(crate) clock: u64,
    pub(crate) body: Box<dyn FnOnce()>,
}

pub(crate) struct Engine {
    /// A number that is different for every run of the process.
    pub(crate) number: u64,
    pub(crate) machine: Arc<Machine>,
    pub(crate) config: Config,
    pub(crate) costs: Costs,
    pub(crate) memory: Memory,
    pub(crate) threads: Vec<Thread>,
    /// The running thread.
    pub(crate) current: usize,
    agenda: Agenda,
    /// The thread that yielded last.
    gave_way: usize,
    /// The running thread yields before an access if its clock has passed this time.
    horizon: u64,
    /// Threads that can take a step, in schedules other than virtual time.
    ready: Vec<usize>,
    /// The thread that an exploring schedule has chosen, while the running thread yields to it.
    chosen: Option<usize>,
    /// The only clock of exploring schedules.
    now: u64,
    watches: Vec<Watch>,
    waiters: Vec<(Key, usize)>,
    marks: Marks,
    /// The number of open transactions that keep a copy of their thread's stack.
    saved_stacks: usize,
    sites: Sites,
    /// For each core, the number of threads that keep it busy.
    busy_on_core: Vec<u32>,
    /// The CPUs of the clients, in the order of the clients.
    client_cpus: Vec<usize>,
    /// Threads placed on each CPU.
    on_cpu: Vec<u32>,
    /// The line that the running thread accessed last in set-up or tear-down, by its address, and its number. While it
    /// is here, the model has nothing to do for another access to it; see [`repeats`](Self::repeats).
    repeated: Option<(usize, u32)>,
    /// Free slots below `slots_high_water`.
    free_slots: Vec<usize>,
    pub(crate) slots_high_water: usize,
    pub(crate) clients_left: usize,
    pub(crate) clients_end: u64,
    last_progress: u64,
    /// `Config::stall_ns` and `limit_ns` in picoseconds.
    stall: u64,
    limit: u64,
    changes: u64,
    pub(crate) stamp: u64,
    rng: u64,
    /// Steps at which probabilistic concurrency testing (PCT) lowers a priority, descending.
    change_points: Vec<u64>,
    /// The choices made so far at points with more than one option.
    pub(crate) trace: Vec<Choice>,
    lowest_priority: u64,
    pub(crate) hash: u64,
    pub(crate) failure: Option<Outcome>,
    pub(crate) unwinding: bool,
    /// If this is true, threads without virtual time free nothing.
    pub(crate) leaks: bool,
    /// Names of memory ranges: begin, end, name.
    pub(crate) labels: Vec<(usize, usize, &'static str)>,
    /// Names of parts of the program, from part 1 on; part 0 has no name.
    pub(crate) parts: Vec<&'static str>,
    /// The arena of the program's allocations.
    pub(crate) arena: Option<Arena>,
    /// Present if the run is to find plain accesses that are not announced.
    pub(crate) watch: Option<Box<crate::watch::Watch>>,
}

impl Engine {
    pub(crate) fn new(machine: Arc<Machine>, mut config: Config, clients: usize) -> Engine {
        config.jitter_ps = config.jitter_ps.min(agenda::MAX_TIME);
        let mut rng = config.seed;
        rng::next(&mut rng);
        let mut change_points = Vec::new();
        if let Schedule::Pct { depth } = config.schedule {
            let point = |_| match config.expected_accesses {
                0 => {
                    let bits = rng::below(&mut rng, UNKNOWN_LENGTH);
                    rng::below(&mut rng, 1 << bits)
                }
                steps => rng::below(&mut rng, steps),
            };
            change_points = (1..depth).map(point).collect();
            change_points.sort_unstable_by(|a, b| b.cmp(a));
        }
        // Schedules without time are of short runs, and many.
        let timed = config.schedule == Schedule::VirtualTime;
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Engine {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            costs: Costs::new(&machine, &config),
            memory: Memory::new(&machine, timed),
            threads: Vec::new(),
            current: 0,
            agenda: Agenda::new(),
            gave_way: 0,
            horizon: 0,
            ready: Vec::new(),
            chosen: None,
            now: 0,
            watches: Vec::new(),
            waiters: Vec::new(),
            marks: Marks::default(),
            saved_stacks: 0,
            sites: Sites::default(),
            busy_on_core: vec![0; machine.cores()],
            client_cpus: match &config.placement {
                Placement::Fill => machine.fill_order(),
                Placement::Cores => machine.cores_order(),
                Placement::Spread => machine.spread_order(),
                Placement::Cpus(cpus) => cpus.clone(),
            },
            on_cpu: vec![0; machine.cpus()],
            repeated: None,
            // The slots of the clients and the main thread are reserved from the start, since background threads may
            // start before them.
            free_slots: Vec::new(),
            slots_high_water: clients + 1,
            clients_left: clients,
            clients_end: 0,
            last_progress: 0,
            stall: config.stall_ns.saturating_mul(1000).min(u64::MAX / 4),
            limit: config.limit_ns.saturating_mul(1000).min(agenda::MAX_TIME),
            changes: 0,
            stamp: 0,
            rng,
            change_points,
            trace: Vec::new(),
            lowest_priority: 1 << 32,
            hash: 0xcbf2_9ce4_8422_2325,
            failure: None,
            unwinding: false,
            leaks: false,
            labels: Vec::new(),
            parts: Vec::new(),
            arena: Arena::new(config.watch || config.plain_points > 0, timed),
            watch: config.watch.then(crate::watch::Watch::new).flatten(),
            machine,
            config,
        }
    }

    /// Changes the costs of all further steps to those of `machine`, which has the same structure.
    pub(crate) fn retime(&mut self, machine: Arc<Machine>) {
        let same = Machine {
            name: self.machine.name.clone(),
            latency: self.machine.latency.clone(),
            occupancy: self.machine.occupancy,
            overlap: self.machine.overlap,
            smt_slowdown: self.machine.smt_slowdown,
            ..Machine::clone(&machine)
        };
        assert!(same == *self.machine, "the machines differ in more than their times");
        self.costs = Costs::new(&machine, &self.config);
        self.memory.retime(&machine);
        self.machine = machine;
    }

    /// Returns whether virtual time orders the steps.
    #[inline]
    pub(crate) fn timed(&self) -> bool {
        self.config.schedule == Schedule::VirtualTime
    }

    pub(crate) fn me(&mut self) -> &mut Thread {
        &mut self.threads[self.current]
    }

    /// Returns whether all other threads have ended.
    pub(crate) fn is_last(&self) -> bool {
        self.threads.iter().filter(|thread| thread.status != thread::Status::Done).count() == 1
    }

    /// Returns whether the allocator's writes cost anything now. They cost nothing while no time passes, within a
    /// transaction, and while the thread panics.
    pub(crate) fn charges_allocation(&mut self) -> bool {
        let timed = self.timed() && !self.unwinding;
        let thread = self.me();
        timed && !thread.untimed && thread.tx_depth == 0 && !std::thread::panicking()
    }

    /// Reports a charged access to the watch, if there is one.
    #[inline]
    pub(crate) fn announce(&mut self, addr: usize, kind: crate::memory::AccessKind) {
        if let Some(watch) = &mut self.watch
            && !self.threads[self.current].untimed
        {
            watch.announce(self.current, addr, kind.writes());
        }
    }

    /// Returns the CPU of client `index`.
    pub(crate) fn client_cpu(&self, index: usize) -> usize {
        self.client_cpus[index % self.client_cpus.len()]
    }

    /// Returns the node's CPU with the fewest threads. Among equals, it is the last one in fill order, since client
    /// threads fill a node from the other end.
    pub(crate) fn idle_cpu(&self, node: usize) -> usize {
        let cpus = self.machine.cpus_of(node);
        cpus.min_by_key(|&cpu| (self.on_cpu[cpu], std::cmp::Reverse(cpu))).expect("a socket has CPUs")
    }

    /// Makes a thread that takes its first step at `start.clock` or later. `slot` is the thread's slot, or `None` for
    /// the lowest free one.
    pub(crate) fn spawn(&mut self, start: Start, slot: Option<usize>) -> usize {
        let id = self.threads.len();
        assert!(id < agenda::MAX_THREADS, "a simulation can have {} threads in all", agenda::MAX_THREADS);
        let slot = slot.unwrap_or_else(|| self.free_slots.pop().unwrap_or(self.slots_high_water));
        self.free_slots.retain(|&free| free != slot);
        self.slots_high_water = self.slots_high_water.max(slot + 1);
        let seed = rng::next(&mut self.rng);
        let mut thread = Thread::new(start.role, slot, seed);
        thread.priority = (1 << 32) + (rng::next(&mut self.rng) >> 32);
        thread.clock = start.clock;
        thread.stack = Some(switch::stackful(self.config.stack_bytes, id, start.body));
        self.threads.push(thread);
        self.watches.resize(self.threads.len() * thread::WATCHED, Watch::default());
        self.settle(id, start.cpu);
        self.busy_on_core[self.threads[id].core] += 1;
        self.plan_faults(id);
        self.schedule(id);
        id
    }

    /// Places a thread on a CPU.
    fn settle(&mut self, id: usize, cpu: usize) {
        self.on_cpu[cpu] += 1;
        let thread = &mut self.threads[id];
        (thread.cpu, thread.core, thread.socket) = (cpu, self.machine.core_of(cpu), self.machine.socket_of(cpu));
    }

    /// Moves the running thread to another CPU.
    pub(crate) fn migrate(&mut self, cpu: usize) {
        let (old_cpu, old_core) = (self.me().cpu, self.me().core);
        self.on_cpu[old_cpu] -= 1;
        self.busy_on_core[old_core] -= 1;
        self.settle(self.current, cpu);
        let core = self.me().core;
        self.busy_on_core[core] += 1;
        self.advance(self.costs.call);
    }

    /// Advances the running thread's clock by work of its own, in picoseconds. The work takes longer while the core's
    /// other hardware thread works.
    #[inline]
    pub(crate) fn advance(&mut self, time: u64) {
        let thread = &mut self.threads[self.current];
        if thread.untimed {
            return;
        }
        let busy = u64::from(self.busy_on_core[thread.core]);
        let time = if busy > 1 { (time * self.costs.smt / 256) * busy / 2 } else { time };
        thread.clock += time;
        self.now = self.now.max(thread.clock);
    }

    /// Advances the clock as [`advance`](Self::advance) does, by a time that the program gives. The time may be of any
    /// length: the clock does not go far beyond the last possible time.
    pub(crate) fn pass(&mut self, time: u64) {
        let left = agenda::MAX_TIME.saturating_sub(self.me().clock);
        self.advance(time.min(left));
    }

    /// Returns whether the running thread should let others continue. Called repeatedly by a thread while the run's
    /// threads unwind. A thread that never ends is abandoned.
    pub(crate) fn lingers(&mut self) -> bool {
        const CALLS: u64 = 1 << 14;
        let unwinding = self.unwinding;
        let thread = self.me();
        thread.accesses += u64::from(unwinding);
        unwinding && thread.accesses.is_multiple_of(CALLS)
    }

    /// Advances the running thread's clock to the time at which its store buffer is empty.
    pub(crate) fn drain_stores(&mut self) {
        let thread = &mut self.threads[self.current];
        if !thread.untimed {
            thread.clock = thread.clock.max(thread.stores_until);
        }
    }

    /// Ends a thread's body. `panic` is the message if the body panicked.
    pub(crate) fn finish(&mut self, panic: Option<String>) {
        let id = self.current;
        let thread = &mut self.threads[id];
        if thread.tx_depth > 0 {
            thread.tx_depth = 1;
            self.tx_doom(id, Cause::Forbidden);
            self.threads[id].tx_depth = 0;
        }
        let thread = &mut self.threads[id];
        if thread.working() {
            self.busy_on_core[thread.core] -= 1;
        }
        thread.status = Status::Done;
        self.on_cpu[thread.cpu] -= 1;
        let (slot, role, clock) = (thread.slot, thread.role, thread.clock);
        self.free_slots.push(slot);
        self.free_slots.sort_unstable_by(|a, b| b.cmp(a));
        self.progress(id);
        if let Some(message) = panic
            && self.failure.is_none()
            && !self.unwinding
        {
            self.failure = Some(Outcome::Panicked { thread: slot, at_ns: clock / 1000, message });
        }
        self.wake_key(Key::End(id), usize::MAX, clock);
        if role == Role::Client {
            self.clients_left -= 1;
            self.clients_end = self.clients_end.max(clock);
            if self.clients_left == 0 {
                let end = self.clients_end;
                self.wake_key(Key::Clients, 1, end);
            }
        }
    }

    /// Returns the lines for which threads waited longest.
    pub(crate) fn hot_lines(&self, count: usize) -> Vec<HotLine> {
        let hottest = self.memory.hottest(count).into_iter();
        hottest.map(|(addr, waited_ps)| HotLine { label: self.label_of(addr).into(), addr, waited_ps }).collect()
    }

    /// Returns the name that was given last to the line at `addr`.
    fn label_of(&self, addr: usize) -> &'static str {
        let named = self.labels.iter().rev().find(|&&(from, to, _)| addr.saturating_add(64) > from && addr < to);
        named.map_or("", |label| label.2)
    }

    /// Records that the running thread enters a part of the program. Returns the part in which it was.
    pub(crate) fn enter_part(&mut self, name: &'static str) -> u8 {
        let known = self.parts.iter().position(|&part| part == name);
        let part = known.unwrap_or_else(|| {
            assert!(self.parts.len() + 1 < PARTS, "a program can have {} named parts", PARTS - 1);
            self.parts.push(name);
            self.parts.len() - 1
        });
        std::mem::replace(&mut self.me().part, part as u8 + 1)
    }

    /// Returns the bytes of the model that grow with the program's memory.
    pub(crate) fn model_bytes(&self) -> usize {
        self.memory.bytes()
    }
}
