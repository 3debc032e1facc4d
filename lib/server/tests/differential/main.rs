//! The same random commands are sent to this database and to `redis-server`. All answers must be equal, including errors.
//!
//! If redis-server is not installed, the commands and answers recorded in `recorded.bin` are replayed. Variables:
//! - `ARCHIPELAGO_RECORD=1` records them again.
//! - `ARCHIPELAGO_DIFFERENTIAL=100000` sends this number of commands of each family, for a long run.
//! - `ARCHIPELAGO_SEED` sets the first seed.
//! - `ARCHIPELAGO_FAMILY` selects one family.

mod families;
mod files;
mod generate;
mod judge;
mod libraries;
mod ours;
mod packs;
mod theirs;

use std::env;
use std::fs;
use std::path::Path;

use generate::{FAMILIES, Generator};
use judge::{Judge, equal};
use ours::Ours;
use theirs::Theirs;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn recorded() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/recorded.bin")
}

#[test]
fn random_commands_of_every_family_are_answered_as_redis_answers_them() {
    let Some(mut theirs) = Theirs::start() else {
        println!("!!! redis-server is not installed: recorded answers are compared !!!");
        return replay(&fs::read(recorded()).expect("there are recorded answers"));
    };
    let record = env::var_os("ARCHIPELAGO_RECORD").is_some();
    let count = number("ARCHIPELAGO_DIFFERENTIAL").unwrap_or(if record { 500 } else { 2_500 });
    let only = env::var("ARCHIPELAGO_FAMILY").ok();
    let mut judge = Judge::new(record);
    for (name, templates) in FAMILIES.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)) {
        let seed = number("ARCHIPELAGO_SEED").unwrap_or(1);
        let mut generator = Generator::new(seed, templates);
        judge.family(name, &mut theirs);
        for _ in 0..count {
            judge.ask(generator.command(), &mut theirs);
        }
    }
    if let Some(record) = &judge.record {
        fs::write(recorded(), record).expect("the record can be written");
    }
    judge.verdict();
}

/// Replays the answers that were recorded with redis-server.
#[test]
fn recorded_answers_are_given_again() {
    replay(&fs::read(recorded()).expect("there are recorded answers"));
}

fn replay(record: &[u8]) {
    let mut ours = Ours::default();
    let mut input = archipelago_server::operation::Input(record);
    while !input.0.is_empty() {
        let now = input.number().unwrap();
        let command: Vec<Vec<u8>> = input.many(|input| input.bytes().map(<[u8]>::to_vec)).unwrap();
        let expected = theirs::parse(&mut &*input.bytes().unwrap().to_vec()).unwrap();
        let answer = ours.ask(&command, now);
        assert!(equal(&command, &answer, &expected), "{}\n{answer:?}\nnot {expected:?}", judge::shown(&command));
    }
}
