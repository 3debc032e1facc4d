//! `ARCHIPELAGO_HTM`, tested in separate processes because it is read once per process.
#![cfg(not(any(loom, miri)))]

use std::process::Command;

use archipelago_platform::htm::{self, Htm, Support};
use archipelago_platform::machine::Machine;

const VARIABLE: &str = "ARCHIPELAGO_HTM";

/// Runs this test again with the variable set, and returns whether it passes.
fn passes_with(value: &str) -> bool {
    let program = std::env::current_exe().expect("the test runs");
    let args = ["--exact", "the_variable_is_obeyed"];
    Command::new(program).args(args).env(VARIABLE, value).output().expect("it can be run again").status.success()
}

#[test]
fn the_variable_is_obeyed() {
    match std::env::var(VARIABLE).as_deref() {
        Ok("off") => {
            assert_eq!(htm::support(), Support::Off);
            assert!(Htm::get().is_none() && htm::transaction(|| ()).is_err() && htm::begin().is_err());
            assert!(Machine::detect().to_string().contains("hardware transactions: switched off by ARCHIPELAGO_HTM"));
        }
        Ok("auto") => assert_ne!(htm::support(), Support::Off),
        // An invalid value causes a panic that names it.
        Ok(_) => _ = htm::support(),
        Err(_) => {
            assert!(passes_with("off") && passes_with("auto"));
            assert!(!passes_with("on"));
        }
    }
}
