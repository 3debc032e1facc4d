//! What a script may do before it is stopped, counted in instructions: a count, since each replica must stop it at the same place.

use core::cell::Cell;

use mlua::{Error, HookTriggers, Lua, Result, VmState};

/// Instructions of Lua that a script may run: a second or two. A step of a pattern's match counts as one.
pub const INSTRUCTIONS: u64 = if cfg!(test) { 30_000_000 } else { 200_000_000 };

/// Instructions between two counts.
const INTERVAL: u32 = 10_000;

/// What a script is told that has none left.
pub const STOPPED: &str = "Script stopped: it ran more instructions than a script may";

/// The instructions that are left to the script of a state, in the state's data.
pub struct Budget(Cell<u64>);

impl Budget {
    /// Sets a state's budget to `instructions`. The hook stops the script after the last of them.
    pub fn limit(lua: &Lua, instructions: u64) -> Result<()> {
        lua.set_app_data(Self(Cell::new(instructions)));
        lua.set_hook(HookTriggers::new().every_nth_instruction(INTERVAL), |lua, _| {
            let left = Self::left(lua).saturating_sub(INTERVAL.into());
            Self::leave(lua, left);
            if left > 0 { Ok(VmState::Continue) } else { Err(Error::runtime(STOPPED)) }
        })
    }

    /// Returns what is left; nothing if the state has no limit yet.
    pub fn left(lua: &Lua) -> u64 {
        lua.app_data_ref::<Self>().map_or(0, |budget| budget.0.get())
    }

    /// Leaves so much of it.
    pub fn leave(lua: &Lua, left: u64) {
        if let Some(budget) = lua.app_data_ref::<Self>() {
            budget.0.set(left);
        }
    }
}
