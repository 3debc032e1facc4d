//! Files and payloads: this server reads those of Redis, and Redis reads those of this server.
//!
//! If redis-server is not installed, a file that it saved earlier is read (`redis.rdb`, made with `ARCHIPELAGO_RECORD=1`).

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::generate::{FAMILIES, Generator};
use crate::judge::{equal, shown};
use crate::ours::Ours;
use crate::theirs::{Answer, Theirs};
use archipelago_server::db::Db;
use archipelago_server::db::hashing::Hashing;
use archipelago_server::db::value::Value;
use archipelago_server::rdb::{self, Refused, dump};
use proptest::prelude::*;

fn restored(payload: &[u8]) -> Result<Value, Refused> {
    rdb::restore(payload, Hashing::default())
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A time in the far future, in milliseconds since 1970.
const LATER: u64 = 4_000_000_000_000;

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Makes values in each of Redis's encodings, and values by random commands.
fn fill(mut ask: impl FnMut(Vec<Vec<u8>>)) {
    for (family, (name, templates)) in FAMILIES.iter().enumerate().filter(|(_, (name, _))| *name != "keys") {
        if ["transactions", "functions"].contains(name) {
            continue;
        }
        let mut generator = Generator::new(99, templates);
        ask(words(&format!("select {}", family % 12)));
        (0..400).for_each(|_| ask(generator.command()));
    }
    ask(words("select 13"));
    for code in LIBRARIES {
        ask(["function", "load", "replace", code].map(|word| word.as_bytes().to_vec()).to_vec());
    }
    let long = "x".repeat(200);
    for number in 0_u64..300 {
        for line in [
            format!("rpush many {number} element{number}"),
            format!("sadd numbers {}", number * 70_000_000),
            format!("sadd words word{number}"),
            format!("hset fields field{number} {number}"),
            format!("zadd scores {}.5 member{number}", number * 3),
            // The first member is too long for a listpack, so the sorted set is large from the start, and keeps the
            // signs of its zeros.
            format!("zadd zeros -0 {number}{long}"),
            format!("xadd stream {number}-1 a {number} b {long}"),
            format!("set key{number} {}", 7_i64.wrapping_pow(number as u32)),
            format!("pexpireat key{number} {}", LATER + number),
        ] {
            ask(words(&line));
        }
    }
    for line in [
        "sadd few 1 2 -3 70000",
        "sadd some a b c 1",
        "hset little a 1 b -70000 c 5000000000",
        "zadd little-scores 1 a -inf b +inf c 0.1 d",
        "rpush short a 1 -1 300 70000 -9000000000",
        "xgroup create stream g 0",
        "xreadgroup group g c count 40 streams stream >",
        "xack stream g 3-1 4-1",
        "xgroup createconsumer stream g idle",
        "xdel stream 5-1 120-1",
        "xtrim stream minid 2-0",
        "xgroup create empty g 0 mkstream",
    ] {
        ask(words(line));
    }
    ask(["set", "compressed", &"abc".repeat(3_000)].map(|word| word.as_bytes().to_vec()).to_vec());
    ask(["rpush", "plain", &long.repeat(60), "b"].map(|word| word.as_bytes().to_vec()).to_vec());
}

/// Libraries whose functions have other names than those of random libraries. One library is so long that it is compressed.
const LIBRARIES: [&str; 2] = [
    "#!lua name=saved\nredis.register_function{function_name='saved', description='d', flags={'no-writes', 'allow-oom'}, \
     callback=function(keys, args) return {1, args} end}",
    "#!lua name=other_saved\n-- aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n\
     redis.register_function('other_saved', function() return 2 end)",
];

/// Returns commands that show the whole contents of a database.
fn show(keys: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let lines = [
        "type",
        "pexpiretime",
        "get",
        "lrange 0 -1",
        "smembers",
        "hgetall",
        "zrange 0 -1 withscores",
        "xinfo stream full",
        "xrange - +",
    ];
    let all = keys.iter().flat_map(|key| {
        lines.iter().map(|line| {
            let mut words = words(line);
            let at = if *line == "xinfo stream full" { 2 } else { 1 };
            words.insert(at, key.clone());
            if at == 2 {
                words.extend([b"count".to_vec(), b"0".to_vec()]);
            }
            words
        })
    });
    all.collect()
}

fn compare(ours: &mut Ours, theirs: &mut Theirs) -> usize {
    let mut compared = 0;
    for command in
        ["function list withcode", "function stats", "fcall saved 0 a", "fcall_ro saved 0", "fcall other_saved 0"]
    {
        let command = words(command);
        let (one, other) = (ours.ask(&command, now()), theirs.ask(&command));
        assert!(equal(&command, &one, &other), "{}: {one:?} not {other:?}", shown(&command));
        assert!(!matches!(one, Answer::Error(_)), "{}: {one:?}", shown(&command));
    }
    for index in 0..16 {
        for command in [format!("select {index}"), "dbsize".into(), "keys *".into()] {
            let command = words(&command);
            let (one, other) = (ours.ask(&command, now()), theirs.ask(&command));
            assert!(equal(&command, &one, &other), "{index}: {}: {one:?} not {other:?}", shown(&command));
        }
        let Answer::Array(keys) = theirs.ask(&words("keys *")) else { unreachable!("it answers an array") };
        let keys: Vec<Vec<u8>> = keys
            .into_iter()
            .map(|key| if let Answer::Bulk(key) = key { key } else { unreachable!("keys are strings") })
            .collect();
        for command in show(&keys) {
            let (one, other) = (ours.ask(&command, now()), theirs.ask(&command));
            assert!(equal(&command, &one, &other), "{}: {one:?} not {other:?}", shown(&command));
            compared += 1;
        }
    }
    compared
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/redis.rdb")
}

fn loaded(bytes: &[u8]) -> Db {
    rdb::read(&mut &*bytes, Hashing::default()).unwrap_or_else(|error| panic!("{error}")).db
}

/// Returns the database of a file, with its libraries.
fn imported(bytes: &[u8]) -> Ours {
    let loaded = rdb::read(&mut &*bytes, Hashing::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut ours = Ours::of(loaded.db);
    for code in loaded.functions {
        let answer = ours.ask(&[b"function".to_vec(), b"load".to_vec(), code], now());
        assert!(matches!(answer, Answer::Bulk(_)), "{answer:?}");
    }
    ours
}

#[test]
fn what_redis_saves_is_read() {
    let Some(mut theirs) = Theirs::start_or("a recorded file is read") else {
        return;
    };
    fill(|command| _ = theirs.ask(&command));
    let compared = |theirs: &mut Theirs| {
        assert_eq!(theirs.ask(&words("save")), Answer::Status("OK".into()));
        let bytes = fs::read(theirs.folder.join("dump.rdb")).unwrap();
        (compare(&mut imported(&bytes), theirs), bytes)
    };
    let (some, bytes) = compared(&mut theirs);
    assert!(some > 2_000, "{some} answers");
    if env::var_os("ARCHIPELAGO_RECORD").is_some() {
        // The file is replaced by a rename, because other tests read it meanwhile.
        fs::write(recorded().with_extension("new"), &bytes).unwrap();
        fs::rename(recorded().with_extension("new"), recorded()).unwrap();
    }
    // Without compression, without a checksum, and with the encodings of large values for small values.
    for setting in [
        "rdbcompression no",
        "rdbchecksum no",
        "set-max-intset-entries 0",
        "hash-max-listpack-entries 0",
        "zset-max-listpack-entries 0",
        "list-max-listpack-size 1",
    ] {
        theirs.ask(&words(&format!("config set {setting}")));
    }
    theirs.ask(&words("debug reload"));
    assert_eq!(compared(&mut theirs).0, some);
}

#[test]
fn redis_reads_what_is_written() {
    let Some(mut theirs) = Theirs::start_or("what is written is read here only") else {
        return;
    };
    let mut ours = Ours::default();
    fill(|command| _ = ours.ask(&command, now()));
    let mut bytes = Vec::new();
    rdb::write(ours.db(), &mut bytes).unwrap();
    fs::write(theirs.folder.join("dump.rdb"), &bytes).unwrap();
    assert_eq!(theirs.ask(&words("debug reload nosave")), Answer::Status("OK".into()));
    assert!(compare(&mut ours, &mut theirs) > 2_000);
    // Redis accepts payloads as well.
    theirs.ask(&words("select 15"));
    ours.ask(&words("select 13"), now());
    let Answer::Array(keys) = ours.ask(&words("keys *"), now()) else { unreachable!("it answers an array") };
    for key in keys {
        let Answer::Bulk(key) = key else { unreachable!("keys are strings") };
        let Answer::Bulk(payload) = ours.ask(&[b"dump".to_vec(), key.clone()], now()) else {
            unreachable!("the key is there")
        };
        let command = [b"restore".to_vec(), key, b"0".to_vec(), payload];
        assert_eq!(theirs.ask(&command), Answer::Status("OK".into()), "{}", shown(&command[..2]));
        let Answer::Bulk(payload) = theirs.ask(&[b"dump".to_vec(), command[1].clone()]) else {
            unreachable!("it was restored")
        };
        assert!(restored(&payload).is_ok(), "{}", shown(&command[..2]));
    }
}

#[test]
fn libraries_go_from_one_to_the_other_and_back() {
    let Some(mut theirs) = Theirs::start_or("no payloads of libraries are exchanged") else {
        return;
    };
    let mut ours = Ours::default();
    for round in 0..40 {
        let mut random = archipelago_server::db::Random(round);
        for _ in 0..20 {
            let load = ["function".into(), "load".into(), "replace".into(), crate::libraries::library(&mut random)];
            let load = load.map(String::into_bytes);
            if round % 2 == 0 {
                ours.ask(&load, now())
            } else {
                theirs.ask(&load)
            };
        }
        let dump = words("function dump");
        let payload = if round % 2 == 0 { ours.ask(&dump, now()) } else { theirs.ask(&dump) };
        let Answer::Bulk(payload) = payload else { unreachable!("it answers with bytes") };
        let restore = [b"function".to_vec(), b"restore".to_vec(), payload, b"flush".to_vec()];
        let answer = if round % 2 == 0 { theirs.ask(&restore) } else { ours.ask(&restore, now()) };
        assert_eq!(answer, Answer::Status("OK".into()), "round {round}");
        let list = words("function list withcode");
        let (one, other) = (ours.ask(&list, now()), theirs.ask(&list));
        assert!(equal(&list, &one, &other), "round {round}: {one:?} not {other:?}");
    }
}

#[test]
fn the_recorded_file_is_read_and_written_again() {
    let bytes = fs::read(recorded()).expect("there is a recorded file");
    let db = loaded(&bytes);
    let mut again = Vec::new();
    rdb::write(&db, &mut again).unwrap();
    assert_eq!(loaded(&again).digest(), db.digest());
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_place() {
    let bytes = fs::read(recorded()).expect("there is a recorded file");
    let refused = |bytes: &[u8]| rdb::read(&mut &*bytes, Hashing::default()).map(|_| ()).unwrap_err();
    for cut in (0..bytes.len()).step_by(997) {
        let error = refused(&bytes[..cut]);
        assert!(error.what.contains("it is cut") && error.offset <= cut as u64, "{error}");
    }
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(refused(&damaged).what.contains("checksum"));
    damaged[6] = b'9';
    assert!(refused(&damaged).what.contains("version"));
    assert_eq!(refused(b"SIDER0010xxxx").what, "this is no RDB file: is it the right one?");
}

#[test]
fn payloads_are_checked_first() {
    let value = archipelago_server::db::value::Value::string(b"hello");
    let payload = dump(&value);
    assert!(restored(&payload).is_ok());
    for at in 0..payload.len() {
        let mut other = payload.clone();
        other[at] ^= 4;
        assert_eq!(restored(&other).unwrap_err(), Refused::Checksum, "byte {at}");
    }
    assert_eq!(restored(b"").unwrap_err(), Refused::Checksum);
    // A file may have the checksum 0 instead of its own, and a payload may not.
    let zeros = [&payload[..payload.len() - 8], &[0; 8]].concat();
    assert_eq!(restored(&zeros).unwrap_err(), Refused::Checksum);
}

/// Returns a payload with the right checksum.
fn payload(kind: u8, content: &[u8]) -> Vec<u8> {
    rdb::sealed([&[kind], content].concat(), rdb::VERSION)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_payload_is_refused_or_read(
        kind in 0_u8..24,
        content in proptest::collection::vec(prop_oneof![any::<u8>(), 0_u8..8], 0..120),
    ) {
        if let Ok(value) = restored(&payload(kind, &content)) {
            prop_assert_eq!(restored(&dump(&value)).map(|again| again.kind()), Ok(value.kind()));
        }
    }

    #[test]
    fn a_damaged_file_is_refused_or_read(at in 9_usize..20_000, byte in any::<u8>(), cut in 0_usize..40_000) {
        let mut bytes = fs::read(recorded()).expect("there is a recorded file");
        let at = at % bytes.len();
        bytes[at] = byte;
        let end = bytes.len().saturating_sub(cut).max(20);
        let _ = rdb::read(&mut &bytes[..end], Hashing::default());
    }
}
