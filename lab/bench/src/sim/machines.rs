//! `sim machines`: lists the machines that can be simulated, with every number and its source.

use std::path::Path;

use archipelago_sim::Machine;
use archipelago_sim::machine::PRESETS;
use serde::Deserialize;

use crate::failure::Failure;

/// Returns the machine with a preset's name, or of a TOML file.
///
/// # Errors
/// If `name` is neither, or the file is not valid.
pub fn named(name: impl AsRef<Path>) -> Result<Machine, Failure> {
    let path = name.as_ref();
    if let Some(machine) = path.to_str().and_then(Machine::preset) {
        return Ok(machine);
    }
    let presets: Vec<&str> = PRESETS.to_vec();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let presets = presets.join(", ");
        let path = path.display();
        Failure::new(format!("--machine {path} is no preset ({presets}), nor a TOML file that can be read: {error}"))
    })?;
    Machine::from_toml(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Returns the machine that a paper's file (`papers/*.toml`) names.
///
/// # Errors
/// As [`named`], or if the text is not a paper's file.
pub fn of_paper(text: &str) -> Result<Machine, Failure> {
    #[derive(Deserialize)]
    struct Paper {
        machine: String,
    }
    let paper: Paper = toml::from_str(text).map_err(|error| Failure::new(error.message()))?;
    named(paper.machine)
}

/// Describes all presets briefly, or one machine in detail.
///
/// # Errors
/// As [`named`].
pub fn describe(name: Option<&Path>) -> Result<String, Failure> {
    let mut text = String::new();
    match name {
        None => {
            for name in PRESETS {
                let machine = named(name)?;
                let (sockets, cores, threads) = (machine.sockets, machine.cores_per_socket, machine.threads_per_core);
                let htm = if machine.transactions.is_some() { ", transactions" } else { "" };
                let (local, far) =
                    (machine.latency.memory[0], machine.latency.memory[machine.latency.memory.len() - 1]);
                text += &format!(
                    "{name:<20} {sockets} sockets x {cores} cores x {threads} threads, memory {local:.0} to {far:.0} ns{htm}\n"
                );
            }
            text += "\n`sim machines NAME` shows every number of one and where it comes from. A machine of your own is a\n\
                     TOML file, given as --machine FILE; `sim machines --example` prints one to start from.\n";
        }
        Some(name) => {
            let machine = named(name)?;
            for (from, row) in machine.hops.iter().enumerate() {
                text += &format!("links from socket {from}: {row:?}\n");
            }
            for number in machine.numbers().iter().filter(|number| !number.field.starts_with("hops.")) {
                let source = machine.source(&number.field).unwrap_or("no source given");
                let value = format!("{} {}", number.value, number.unit);
                text += &format!("{:<26} {value:<22} {source}\n", number.field);
            }
        }
    }
    Ok(text)
}
