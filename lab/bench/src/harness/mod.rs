//! Measures contenders beside each other: what every experiment has in common.
//!
//! An [`Experiment`] lists its cells and its contenders. For each run, for each group, for each thread count, every
//! contender of the group has its turn: so they alternate by the second or the minute, and a ratio compares two
//! measurements of about the same time. Ctrl-C ends all that, and what is complete is reported.
//!
//! | what | where |
//! |---|---|
//! | threads, by count or by time | [`driver`] |
//! | where they wait for each other; how many there may be | [`gate`], [`threads`] |
//! | what a contender does, for this machine and the virtual one | [`program`] |
//! | what was measured | [`series`] |
//! | cells, contenders, turns, rows | [`experiment`] |
//! | a run on the virtual machine, and when it is steady | [`simulated`], [`steady`] |
//! | what its operations take beside accesses to shared memory | [`instructions`] |
//! | contenders that are one program on both machines | [`known`] |
//! | from arguments to reports; what is told meanwhile | [`command`], [`progress`] |

pub mod command;
pub mod driver;
pub mod experiment;
pub mod gate;
pub mod instructions;
pub mod known;
pub mod program;
pub mod progress;
pub mod series;
pub mod simulated;
pub mod steady;
pub mod threads;

pub use command::Command;
pub use experiment::{Entry, Experiment, Format, Turn};
pub use known::{Cells, Known};
pub use progress::Progress;
