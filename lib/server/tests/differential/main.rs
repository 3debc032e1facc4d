//! The same random commands are sent to this database and to `redis-server`. All answers must be equal, including errors.
//!
//! If redis-server is not installed, the commands and answers recorded in `recorded.bin` are replayed, and a line on the
//! standard error says so. Variables:
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
mod sessions;
mod theirs;

use std::env;
use std::fs;
use std::path::Path;
use std::process;

use generate::{FAMILIES, Generator};
use judge::{Judge, equal};
use ours::Ours;
use theirs::{Answer, Theirs};

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

fn recorded() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/recorded.bin")
}

#[test]
fn random_commands_of_every_family_are_answered_as_redis_answers_them() {
    let Some(mut theirs) = Theirs::start_or("recorded answers are compared") else {
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

/// `redis-commands.txt` lists the commands of Redis. The documentation of what is left out is made from this list.
/// `ARCHIPELAGO_RECORD=1` writes it.
#[test]
fn the_list_of_redis_commands_is_that_of_the_server() {
    let Some(mut theirs) = Theirs::start_or("the list of its commands is not compared") else {
        return;
    };
    let Answer::Array(names) = theirs.ask(&[b"command".to_vec(), b"list".to_vec()]) else { panic!("it is a list") };
    let name = |answer: &Answer| match answer {
        Answer::Bulk(name) => String::from_utf8(name.clone()).expect("names are ASCII"),
        other => panic!("{other:?} is no name"),
    };
    let mut names: Vec<String> = names.iter().map(name).collect();
    names.sort_unstable();
    let list = names.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis-commands.txt");
    if env::var_os("ARCHIPELAGO_RECORD").is_some() {
        fs::write(&path, &list).expect("it can be written");
    }
    assert_eq!(fs::read_to_string(path).expect("there is a list"), list);
}

/// A run without redis-server passes although it compares less, so its output must say so.
#[test]
fn without_redis_server_each_test_is_loud() {
    for test in [
        "random_commands_of_every_family_are_answered_as_redis_answers_them",
        "the_list_of_redis_commands_is_that_of_the_server",
        "files::what_redis_saves_is_read",
        "files::redis_reads_what_is_written",
        "files::libraries_go_from_one_to_the_other_and_back",
        "sessions::sessions_are_answered_as_redis_answers_them",
    ] {
        let mut child = process::Command::new(env::current_exe().unwrap());
        let done = child.args(["--exact", test]).env("PATH", "").output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("\n!!! redis-server 7.0 is not installed: "), "{test}: {said}");
    }
}

fn replay(record: &[u8]) {
    let mut ours = Ours::default();
    let mut input = archipelago_server::operation::Input(record);
    while !input.0.is_empty() {
        let now = input.number().unwrap();
        let command: Vec<Vec<u8>> = input.many(|input| input.bytes().map(<[u8]>::to_vec)).unwrap();
        let expected = theirs::parse(&mut &*input.bytes().unwrap().to_vec()).unwrap();
        let answer = ours.whole(&command, now);
        assert!(equal(&command, &answer, &expected), "{}\n{answer:?}\nnot {expected:?}", judge::shown(&command));
    }
}
