//! `calibrate`: measures this machine, and writes the numbers as a machine file, which `sim --machine FILE` reads. The
//! virtual machine (the simulator) then models this machine.

mod effort;
mod lines;
mod machine;
mod memory;
mod own;
mod pinned;
mod places;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use archipelago_sim::Machine;

use crate::args::Calibrate;
use crate::failure::Failure;
use crate::output::{emit, tell};
use crate::report::{date, replace, try_to_write};
use effort::Effort;
use machine::Calibrated;
use memory::Loads;
use places::Places;

/// Measures this machine, and writes the machine file to `--out`, or to the standard output.
///
/// # Errors
/// If the file cannot be written, or if the machine cannot be measured.
pub fn run(args: &Calibrate) -> Result<ExitCode, Failure> {
    args.out.as_deref().map(try_to_write).transpose()?;
    let effort = if args.quick { Effort::QUICK } else { Effort::WHOLE };
    let text = file(&machine::measure(&Places::here()?, Loads::Endless, effort, |what| tell(what))?, args.quick);
    match &args.out {
        Some(path) => {
            let failed = |error| Failure::new(format!("cannot write --out {}: {error}", path.display()));
            replace(path, &text).map_err(failed)?;
        }
        None => _ = emit(|mut out| std::io::Write::write_all(&mut out, text.as_bytes()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures this machine for `sim host`, which compares the model with native runs.
///
/// # Errors
/// As [`machine::measure`].
pub fn host() -> Result<Machine, Failure> {
    Ok(machine::measure(&Places::here()?, Loads::OfOperations, Effort::WHOLE, |_| ())?.machine)
}

/// Returns the text of the machine file. Comments at its beginning give the command, the date, and the measurements for
/// which the model has no number.
fn file(calibrated: &Calibrated, quick: bool) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let quick = if quick { " --quick, which is not to be relied on" } else { "" };
    let mut text =
        format!("# `archipelago calibrate`{quick}, {}; version {}.\n", date::utc(now), env!("CARGO_PKG_VERSION"));
    if cfg!(debug_assertions) {
        text += "# The program was built without `--release`: the numbers are not to be relied on.\n";
    }
    text += "# Under [sources]: what was `measured` here, and what is `guessed`, since this machine cannot show it.\n";
    calibrated.beside.iter().for_each(|sentence| text += &format!("# Beside these numbers: {sentence}.\n"));
    text + &calibrated.machine.to_toml()
}

#[cfg(test)]
mod tests {
    use archipelago_sim::machine::Origin;
    use archipelago_sim::{Config, run, world};

    use super::*;

    /// The written file is read as the same machine, and a program runs on this machine.
    #[test]
    fn a_measured_machine_is_a_file_and_can_be_run_on() {
        let calibrated = machine::measure(&Places::here().unwrap(), Loads::Endless, Effort::QUICK, |_| ()).unwrap();
        let text = file(&calibrated, true);
        let machine = Machine::from_toml(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(machine, calibrated.machine);
        let latency = &machine.latency;
        assert!(latency.l1 <= latency.l2 && latency.l2 <= latency.l3 && latency.l3 <= latency.memory[0], "{text}");
        for number in machine.numbers() {
            let source = machine.source(&number.field).unwrap_or_default();
            assert!(source.starts_with("measured: ") || source.starts_with("guessed: as preset "), "{}", number.field);
        }
        assert_eq!(machine.origin("latency.memory.0"), Origin::Measured);
        // With one socket, no remote access can be measured.
        assert!(machine.sockets > 1 || machine.origin("latency.dirty_remote.1") == Origin::Guessed, "{text}");
        let report = run(&machine, &Config::seeded(1), machine.cpus(), |_| world::work(100)).assert_done();
        assert!(report.end_ns >= 100);
    }

    /// With one core, no transfer between cores can be measured: such numbers are guessed.
    #[test]
    fn one_core_is_a_machine() {
        let mut places = Places::here().unwrap();
        places.groups = vec![vec![places.groups[0][0]]];
        (places.hops, places.threads_per_core, places.siblings) = (vec![vec![0]], 1, None);
        let machine = machine::measure(&places, Loads::Endless, Effort::QUICK, |_| ()).unwrap().machine;
        assert_eq!(Machine::from_toml(&machine.to_toml()).unwrap(), machine);
        assert_eq!(machine.cpus(), 1);
        let measured = ["latency.l1", "latency.locked", "occupancy.memory", "os.call"];
        let guessed = ["latency.core_to_core", "occupancy.hold", "occupancy.shared_read", "occupancy.link", "os.wake"];
        assert!(measured.iter().all(|field| machine.origin(field) == Origin::Measured), "{:?}", machine.sources);
        assert!(guessed.iter().all(|field| machine.origin(field) == Origin::Guessed), "{:?}", machine.sources);
    }
}
