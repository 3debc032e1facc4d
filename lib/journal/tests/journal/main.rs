//! The journal on a simulated disk, in one program.

mod common;
mod crash;
mod damage;
mod failures;
mod group;
mod model;
