//! What a script may do before it is stopped, by instructions and by time.
//!
//! Instructions are counted, since each replica must stop the script at the same place. What they do not see (commands that the script
//! calls, functions of C, operators on long texts) takes time, and the replicas agree on the point to stop at ([`Deadline`]).
//! Points are every [`INTERVAL`] instructions, and what may take as long as a million of them: calls of commands, and of `string.rep`.

use core::cell::Cell;
use std::rc::Rc;

use archipelago_platform::sync::Arc;
use archipelago_platform::time::Instant;
use mlua::{Error, HookTriggers, Lua, Result, VmState};

use crate::deadline::Deadline;

/// Instructions of Lua that a script may run: a second or two. A step of a pattern's match counts as one.
const INSTRUCTIONS: u64 = if cfg!(test) { 30_000_000 } else { 200_000_000 };

/// Instructions between two points.
const INTERVAL: u32 = 1_000;

/// What a script is told that has no instructions left.
pub const STOPPED: &str = "Script stopped: it ran more instructions than a script may";

/// What a script is told that has no time left.
pub const LATE: &str = "Script stopped: it ran longer than a script may";

/// What stops a script of which a trial has failed: nothing but the prelude sees it.
const TRIED: &str = "Script stopped: it needs a state of its own";

/// What is left to an operation's script: to all states that it has.
pub struct Budget {
    instructions: Cell<u64>,
    /// Points so far.
    points: Cell<u64>,
    /// Says that the deadline has stopped the script.
    is_late: Cell<bool>,
    began: Instant,
    deadline: Option<Arc<Deadline>>,
    /// What the script may do in a state that is kept; it is over once it does more.
    trial: Cell<Trial>,
}

/// The trial of a script in the state that its thread keeps: see [`stage`](super::stage).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// The script runs in a state of its own.
    No,
    /// The script runs in the kept state.
    Goes,
    /// The script needs a state of its own. Nothing of it runs any more in the kept one.
    Failed,
}

/// What was left of a budget when something began.
pub struct Mark {
    instructions: u64,
    points: u64,
}

impl Budget {
    /// That of an operation that begins now.
    pub fn new(deadline: Option<&Arc<Deadline>>) -> Rc<Self> {
        let (instructions, points, is_late) = (Cell::new(INSTRUCTIONS), Cell::new(0), Cell::new(false));
        let (began, deadline, trial) = (Instant::now(), deadline.cloned(), Cell::new(Trial::No));
        Rc::new(Self { instructions, points, is_late, began, deadline, trial })
    }

    /// Has a state's scripts stopped once nothing is left. The hook stops a script after its last instruction.
    pub fn limit(self: &Rc<Self>, lua: &Lua) -> Result<()> {
        lua.set_app_data(self.clone());
        lua.set_hook(HookTriggers::new().every_nth_instruction(INTERVAL), |lua, _| {
            let budget = Self::of(lua);
            budget.leave(budget.left().saturating_sub(INTERVAL.into()));
            budget.point().map_err(Error::runtime)?;
            Ok(VmState::Continue)
        })
    }

    /// Has a state forget its budget, and all that it holds.
    pub fn release(lua: &Lua) {
        lua.remove_hook();
        lua.remove_app_data::<Rc<Self>>();
    }

    /// Begins a trial. Returns what to go back to if it fails.
    pub fn try_out(&self) -> Mark {
        self.trial.set(Trial::Goes);
        Mark { instructions: self.left(), points: self.points.get() }
    }

    /// Returns whether this is a trial.
    pub fn is_tried(&self) -> bool {
        self.trial.get() != Trial::No
    }

    /// Says that a trial fails: what runs needs a state of its own.
    pub fn fail(&self) {
        if self.trial.get() == Trial::Goes {
            self.trial.set(Trial::Failed);
        }
    }

    /// Ends a trial. Returns whether it went well; if not, all begins anew from the mark. (Points that were passed are passed again:
    /// the same ones.)
    pub fn went_well(&self, mark: Mark) -> bool {
        let went_well = self.trial.replace(Trial::No) == Trial::Goes;
        if !went_well {
            self.leave(mark.instructions);
            self.points.set(mark.points);
        }
        went_well
    }

    /// The one of a state that has one.
    pub fn of(lua: &Lua) -> Rc<Self> {
        lua.app_data_ref::<Rc<Self>>().expect("a state has its budget before any script runs").clone()
    }

    /// Instructions that are left.
    pub fn left(&self) -> u64 {
        self.instructions.get()
    }

    /// Sets the number of instructions that are left.
    pub fn leave(&self, left: u64) {
        self.instructions.set(left);
    }

    /// Returns why the script is stopped, if it is.
    pub fn spent(&self) -> Option<&'static str> {
        match self.trial.get() {
            Trial::Failed => Some(TRIED),
            _ if self.is_late.get() => Some(LATE),
            _ => (self.left() == 0).then_some(STOPPED),
        }
    }

    /// A point of the script: the same on each replica.
    ///
    /// # Errors
    /// Why the script is stopped.
    pub fn point(&self) -> core::result::Result<(), &'static str> {
        if self.spent().is_none()
            && let Some(deadline) = &self.deadline
        {
            self.points.set(self.points.get() + 1);
            self.is_late.set(!deadline.pass(self.points.get(), self.began.elapsed()));
        }
        self.spent().map_or(Ok(()), Err)
    }
}
