//! Measures contenders beside each other: the parts that every experiment uses.
//!
//! An [`Experiment`] lists its cells and its contenders. A cell is a workload with its parameters. For each run, for
//! each group, for each thread count, every contender of the group has its turn. So contenders alternate within seconds
//! or minutes, and a ratio compares two measurements of about the same time. Ctrl-C ends the measurement, and the
//! complete runs are reported.
//!
//! | what | module |
//! |---|---|
//! | runs threads, until their work is done or for a given time | [`driver`] |
//! | lets threads wait for each other; limits their number | [`gate`], [`threads`] |
//! | what a contender does, on this machine and on the virtual one | [`program`] |
//! | the results | [`series`] |
//! | cells, contenders, turns, rows | [`experiment`] |
//! | a run on the virtual machine (a simulator), and when its throughput is steady | [`simulated`], [`steady`] |
//! | the time of instructions between accesses to shared memory | [`instructions`] |
//! | contenders that are one program on both machines | [`known`] |
//! | from arguments to reports; progress messages | [`command`], [`progress`] |

pub mod branches;
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
