//! The limits of a script: instructions and time.
//!
//! The instructions are counted, because each replica must stop the script at the same instruction. The count does not
//! include some work that takes time: commands that the script calls, functions in C, and operators on long strings.
//! The time limit bounds this work. The replicas agree on the *point* at which they stop ([`Deadline`]). A point is
//! passed every [`INTERVAL`] instructions, and also at each operation that may take as long as a million instructions:
//! each call of a command, of `string.rep` and of `loadstring`, each lack of memory, and each call of a function in C that
//! made or moved much. While the script's result is converted to a reply, a point is passed every hundred values.

use core::cell::Cell;
use std::rc::Rc;

use archipelago_platform::sync::Arc;
use archipelago_platform::time::Instant;
use mlua::{Error, HookTriggers, Lua, Result, VmState};

use crate::deadline::Deadline;

/// The most Lua instructions of a script. They take one or two seconds. A step in matching a pattern counts as one
/// instruction.
const INSTRUCTIONS: u64 = if cfg!(test) { 30_000_000 } else { 200_000_000 };

/// The number of instructions between two points.
const INTERVAL: u32 = 1_000;

/// The error of a script that has used up its instructions.
pub const STOPPED: &str = "Script stopped: it ran more instructions than a script may";

/// The error of a script that has used up its time.
pub const LATE: &str = "Script stopped: it ran longer than a script may";

/// The error that stops a script whose trial has failed. Only the prelude (`prelude.lua`, which calls the script) sees
/// it.
const TRIED: &str = "Script stopped: it needs a state of its own";

/// The remaining resources of an operation's script. All states in which the script runs share them.
pub struct Budget {
    instructions: Cell<u64>,
    /// The number of points passed.
    points: Cell<u64>,
    /// Whether the deadline has stopped the script.
    is_late: Cell<bool>,
    began: Instant,
    deadline: Option<Arc<Deadline>>,
    /// The state of the trial. The trial fails when the script exceeds the resources of the kept state.
    trial: Cell<Trial>,
}

/// The state of a script's trial in the Lua state that its thread keeps: see [`stage`](super::stage).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// No trial: the script runs in a new state.
    No,
    /// The script runs in the kept state.
    Goes,
    /// The script needs a new state. It does not continue in the kept state.
    Failed,
}

/// A budget as it was at the beginning of a trial.
pub struct Mark {
    instructions: u64,
    points: u64,
}

impl Budget {
    /// Returns the budget of an operation that begins now.
    pub fn new(deadline: Option<&Arc<Deadline>>) -> Rc<Self> {
        let (instructions, points, is_late) = (Cell::new(INSTRUCTIONS), Cell::new(0), Cell::new(false));
        let (began, deadline, trial) = (Instant::now(), deadline.cloned(), Cell::new(Trial::No));
        Rc::new(Self { instructions, points, is_late, began, deadline, trial })
    }

    /// Makes a state stop its scripts when the budget is used up. The hook runs after the script's last permitted
    /// instruction.
    pub fn limit(self: &Rc<Self>, lua: &Lua) -> Result<()> {
        lua.set_app_data(self.clone());
        lua.set_hook(HookTriggers::new().every_nth_instruction(INTERVAL), |lua, _| {
            let budget = Self::of(lua);
            budget.leave(budget.left().saturating_sub(INTERVAL.into()));
            budget.point().map_err(Error::runtime)?;
            Ok(VmState::Continue)
        })
    }

    /// Makes a state forget its budget and everything that the budget owns.
    pub fn release(lua: &Lua) {
        lua.remove_hook();
        lua.remove_app_data::<Rc<Self>>();
    }

    /// Begins a trial. Returns the mark to which the budget is reset if the trial fails.
    pub fn try_out(&self) -> Mark {
        self.trial.set(Trial::Goes);
        Mark { instructions: self.left(), points: self.points.get() }
    }

    /// Returns whether a trial is in progress.
    pub fn is_tried(&self) -> bool {
        self.trial.get() != Trial::No
    }

    /// Fails the trial in progress: the script needs a new state.
    pub fn fail(&self) {
        if self.trial.get() == Trial::Goes {
            self.trial.set(Trial::Failed);
        }
    }

    /// Ends a trial. Returns whether it succeeded. If not, the budget is reset to the mark. (The script then passes the
    /// same points again.)
    pub fn went_well(&self, mark: Mark) -> bool {
        let went_well = self.trial.replace(Trial::No) == Trial::Goes;
        if !went_well {
            self.leave(mark.instructions);
            self.points.set(mark.points);
        }
        went_well
    }

    /// Returns the budget of a state. The state must have one.
    pub fn of(lua: &Lua) -> Rc<Self> {
        lua.app_data_ref::<Rc<Self>>().expect("a state has its budget before any script runs").clone()
    }

    /// Returns the number of remaining instructions.
    pub fn left(&self) -> u64 {
        self.instructions.get()
    }

    /// Sets the number of remaining instructions.
    pub fn leave(&self, left: u64) {
        self.instructions.set(left);
    }

    /// Returns why the script must stop, if it must.
    pub fn spent(&self) -> Option<&'static str> {
        match self.trial.get() {
            Trial::Failed => Some(TRIED),
            _ if self.is_late.get() => Some(LATE),
            _ => (self.left() == 0).then_some(STOPPED),
        }
    }

    /// Passes a point of the script. Each replica passes the same points.
    ///
    /// # Errors
    /// Returns the reason if the script must stop.
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
