//! Tests of the journal on a simulated disk, in one test program.

mod common;
mod crash;
mod damage;
mod failures;
mod group;
mod model;
