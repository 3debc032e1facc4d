use archipelago_check::hostile::{alone, beside};

use super::super::tests::{call, shown};
use crate::args::Args;
use crate::db::functions::{Functions, MOST};
use crate::db::{Db, Random};
use crate::operation::{Read, Write, wish};
use crate::rdb::dump_functions;

/// Carries out a change. A subcommand of `FUNCTION` is replaced by its internal command.
fn ask(db: &mut Db, words: &[&str]) -> String {
    shown(&db.write(&Write::Call(call(words))).reply)
}

fn load(db: &mut Db, name: &str, body: &str) -> String {
    ask(db, &["function", "load", "replace", &format!("#!lua name={name}\n{body}")])
}

fn with(body: &str) -> Db {
    let mut db = Db::default();
    assert_eq!(load(&mut db, "lib", body), "$3 lib");
    db
}

#[test]
fn a_call_leaves_nothing_behind() {
    let count = "local n = 0 ";
    let mut one = with(&format!(
        "{count} redis.register_function('count', function() pcall(function() redis.call = 1 end) n = n + 1 pcall(rawset, string, 'rep', 1) return n end) \
         redis.register_function{{function_name='read', callback=function() n = n + 1 return n end, flags={{'no-writes'}}}}"
    ));
    let other = one.clone();
    for _ in 0..3 {
        // A single replica carries out a read between the writes.
        let read = other.read(&Read::Call(call(&["fcall", "read", "0"])));
        assert_eq!((shown(&read.reply).as_str(), read.effects), (":1", None));
        assert_eq!(ask(&mut one, &["fcall", "count", "0"]), ":1");
    }
}

#[test]
fn a_load_sees_nothing_and_a_call_registers_nothing() {
    let nothing = "Script attempted to access nonexistent global variable";
    for name in ["string", "math", "_G", "error", "pcall", "pairs", "tostring", "KEYS", "cjson"] {
        let answer = load(&mut Db::default(), "lib", &format!("local seen = {name}"));
        assert!(answer.ends_with(&format!("user_function:2: {nothing} '{name}'")), "{answer}");
    }
    for name in ["call", "pcall", "setresp", "sha1hex", "error_reply"] {
        let answer = load(&mut Db::default(), "lib", &format!("redis.{name}('time')"));
        assert!(answer.ends_with(&format!("user_function:2: {nothing} '{name}'")), "{answer}");
    }
    for change in ["x = 1", "redis.log = 1", "redis.x = 1"] {
        let answer = load(&mut Db::default(), "lib", change);
        assert!(answer.ends_with("user_function:2: Attempt to modify a readonly table"), "{answer}");
    }
    let mut db = with(
        "local api = redis \
         redis.register_function('late', function() return api.register_function('x', api.log) end) \
         redis.register_function('call', function() return api.call('time') end)",
    );
    let late =
        "-ERR redis.register_function can only be called on FUNCTION LOAD command script: late, on @user_function:2.";
    assert_eq!(ask(&mut db, &["fcall", "late", "0"]), late);
    assert!(ask(&mut db, &["fcall", "call", "0"]).contains(nothing));
    assert_eq!(db.functions.counts(), (1, 2));
}

#[test]
fn only_what_says_that_it_reads_is_a_read() {
    let db = with(
        "redis.register_function('set', function() return redis.call('set', 'a', 'b') end) \
         redis.register_function{function_name='lies', callback=function() return redis.call('set', 'a', 'b') end, flags={'no-writes'}}",
    );
    for (name, function, writes) in [
        ("fcall", "set", true),
        ("fcall", "lies", false),
        ("fcall", "nothing", true),
        ("fcall_ro", "set", false),
        ("set", "a", true),
    ] {
        let outcome = db.read(&Read::Call(call(&[name, function, "0"])));
        assert_eq!(outcome.effects.is_some_and(|effects| effects.writes), writes, "{name} {function}");
        assert!(writes || outcome.reply.is_error(), "{name} {function}");
    }
}

#[test]
fn what_fails_changes_nothing() {
    let mut db = with("redis.register_function('f', function() return 1 end)");
    load(&mut db, "other", "redis.register_function('g', function() return 2 end)");
    for (name, body, wrong) in [
        ("lib", "redis.register_function('G', function() end)", "-ERR Function G already exists"),
        ("lib", "redis.register_function('h', function() end) local x = nil + 1", "-ERR Error registering functions"),
        (
            "lib",
            "redis.register_function('h', function() end) redis.register_function('H', function() end)",
            "-ERR Error",
        ),
        ("lib", "", "-ERR No functions registered"),
        ("lib", "(", "-ERR Error compiling function: user_function:2: "),
    ] {
        let answer = load(&mut db, name, body);
        assert!(answer.starts_with(wrong), "{body}: {answer}");
        assert_eq!(
            (ask(&mut db, &["fcall", "F", "0"]), ask(&mut db, &["fcall", "g", "0"])),
            (":1".into(), ":2".into())
        );
    }
    // A payload of two libraries. One of them has a function with the name of an existing function.
    let mut others = with("redis.register_function('f', function() return 3 end)");
    load(&mut others, "third", "redis.register_function('g', function() end)");
    let payload = dump_functions(&others.functions);
    for policy in ["append", "replace"] {
        let words = [&b"function"[..], b"restore", &payload, policy.as_bytes()];
        let answer = restore(&mut db, words.iter().collect());
        assert!(answer.ends_with("already exists"), "{answer}");
        assert_eq!(db.functions.counts(), (2, 2));
        assert_eq!(ask(&mut db, &["fcall", "f", "0"]), ":1");
    }
    assert_eq!(restore(&mut db, [&b"function"[..], b"restore", &payload, b"flush"].iter().collect()), "+OK");
    assert_eq!(ask(&mut db, &["fcall", "f", "0"]), ":3");
}

fn restore(db: &mut Db, args: Args) -> String {
    let mut call = call(&["function", "restore", ""]);
    call.args = args;
    shown(&db.write(&Write::Call(call)).reply)
}

/// Returns the resident memory of this process in bytes. Tests that ask for it run [`alone`], and those whose scripts take
/// much memory [`beside`] others.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn loads_end() {
    let _beside = beside();
    let mut db = with("redis.register_function('f', function() return 1 end)");
    for (body, wrong) in [
        ("while true do end", "more instructions than a script may"),
        ("local function again() return again() end again()", "more instructions than a script may"),
        ("local function deep() return 1 + deep() end deep()", "stack overflow"),
        ("local s = 'xxxxxxxx' while true do s = s .. s end", "not enough memory"),
        ("for n = 1, 1e9 do redis.register_function('f' .. n, redis.log) end", "m"),
        (
            "local long = ('x'):rep(1e6) for n = 1, 1e9 do \
             redis.register_function{function_name='f' .. n, callback=redis.log, description=long} end",
            "not enough memory: all libraries together may take 64 MiB",
        ),
    ] {
        let answer = load(&mut db, "lib", body);
        assert!(answer.starts_with("-ERR ") && answer.contains(wrong), "{body}: {answer}");
    }
    let nested = format!("local x = {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(load(&mut db, "lib", &nested).contains("chunk has too many syntax levels"));
    let tables = format!("local x = {}{}", "{".repeat(100_000), "}".repeat(100_000));
    assert!(load(&mut db, "lib", &tables).contains("chunk has too many syntax levels"));
    assert_eq!(ask(&mut db, &["fcall", "f", "0"]), ":1");
}

#[test]
fn libraries_take_no_more_than_they_may() {
    let _alone = alone();
    let mut db = Db::default();
    let long = format!("redis.register_function('f', redis.log) --{}", "x".repeat(100_000_000));
    let before = resident();
    assert!(load(&mut db, "long", &long).contains("all libraries together may take 64 MiB"));
    let half = |name: &str| format!("redis.register_function('{name}', redis.log) --{}", "x".repeat(MOST * 5 / 9));
    assert_eq!(load(&mut db, "half", &half("f")), "$4 half");
    assert_eq!(load(&mut db, "half", &half("f")), "$4 half", "one goes when the other comes");
    assert!(load(&mut db, "other", &half("g")).contains("all libraries together may take 64 MiB"));
    assert_eq!(ask(&mut db, &["function", "delete", "half"]), "+OK");
    assert_eq!(db.functions.bytes(), 0);
    assert_eq!(load(&mut db, "other", &half("g")), "$5 other");
    assert!(resident() < before + 6 * MOST, "memory grew from {before} to {}", resident());
}

#[test]
fn ten_thousand_functions_are_called_one_by_one() {
    let mut db = with("for n = 1, 10000 do redis.register_function('f' .. n, function() return n end) end");
    assert_eq!(db.functions.counts(), (1, 10_000));
    for number in [1, 77, 9_999, 10_000] {
        assert_eq!(ask(&mut db, &["fcall", &format!("F{number}"), "0"]), format!(":{number}"));
    }
    for number in 0..2_000 {
        let body = format!("redis.register_function('g{number}', function() return {number} end)");
        load(&mut db, &format!("lib{number}"), &body);
    }
    assert_eq!(ask(&mut db, &["fcall", "g1999", "0"]), ":1999");
    assert_eq!(ask(&mut db, &["function", "flush"]), "+OK");
    assert_eq!((db.functions.counts(), db.functions.bytes()), ((0, 0), 0));
}

/// Each library alone needs fewer instructions than one script may execute. A payload is refused if its libraries
/// together need more.
#[test]
fn a_payload_is_loaded_within_what_one_script_may() {
    let library = |name: usize, rounds: u32| {
        let work = format!("for n = 1, {rounds} do local x = n * n end");
        format!("#!lua name=l{name}\nredis.register_function('f{name}', redis.log) {work}")
    };
    for (count, rounds, ends) in [(3, 1_000_000, true), (40, 1_000_000, false), (4_000, 0, false)] {
        let mut texts = Functions::default();
        for name in 0..count {
            let code = library(name, rounds).into_bytes();
            let library = crate::db::functions::Library { name: name.to_string(), code, functions: Vec::new() };
            texts.insert(library.into()).unwrap();
        }
        let payload = dump_functions(&texts);
        let answer = restore(&mut Db::default(), [&b"function"[..], b"restore", &payload].iter().collect());
        assert_eq!(answer == "+OK", ends, "{count} libraries of {rounds} rounds: {answer}");
        assert!(ends || answer.contains("more instructions than a script may"), "{answer}");
    }
}

#[test]
fn any_payload_is_refused_or_taken() {
    let _alone = alone();
    let mut there = with("redis.register_function('f', function() return 1 end)");
    load(&mut there, "other", "redis.register_function{function_name='g', callback=redis.log, description='d'}");
    let payload = dump_functions(&there.functions);
    let sealed = |body: &[u8]| {
        let content = [body, &crate::rdb::VERSION.to_le_bytes()].concat();
        let sum = crate::rdb::input::CRC.checksum(&content).to_le_bytes();
        [&content[..], &sum].concat()
    };
    let body = &payload[..payload.len() - 10];
    assert_eq!(sealed(body), payload);
    let (mut random, before) = (Random(5), resident());
    let mut taken = 0;
    let mut check = |payload: &[u8]| {
        let mut db = Db::default();
        let answer = restore(&mut db, [&b"function"[..], b"restore", payload, b"append"].iter().collect());
        assert!(answer == "+OK" || answer.starts_with("-ERR "), "{answer}");
        assert!(answer == "+OK" || db.functions.counts() == (0, 0), "{answer}");
        taken += usize::from(answer == "+OK");
    };
    for cut in 0..payload.len() {
        check(&payload[..cut]);
        check(&sealed(&body[..cut.min(body.len())]));
        let mut damaged = body.to_vec();
        damaged[cut % body.len()] = random.draw() as u8;
        check(&sealed(&damaged));
        let noise: Vec<u8> =
            (0..random.below(60)).map(|_| [0xf5, 0xc3, 0x81, random.draw() as u8][random.below(4)]).collect();
        check(&sealed(&noise));
    }
    // Lengths that are larger than the payload, and LZF data with the largest expansion.
    for body in [
        &b"\xf5\x81\0\0\0\x01\0\0\0\0#!lua"[..],
        b"\xf5\xc3\x81\0\0\0\0\0\0\0\x08\x81\0\0\0\0\x1f\0\0\0\x01ab\xe0\xff\x01",
    ] {
        check(&sealed(body));
    }
    assert!(taken < payload.len(), "{taken} payloads were taken");
    assert!(resident() < before + (64 << 20), "memory grew from {before} to {}", resident());
}

#[test]
fn memory_that_is_short_is_known_to_all_replicas() {
    let mut db = with(
        "local function set() return redis.call('set', 'a', 'b') end redis.register_function('set', set) \
         redis.register_function{function_name='oom', callback=set, flags={'allow-oom'}} \
         redis.register_function{function_name='get', callback=function() return redis.call('get', 'a') end, flags={'no-writes'}}",
    );
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    for (words, expected) in [
        (["fcall", "set", "0"], oom),
        (["fcall", "oom", "0"], "+OK"),
        (["fcall", "get", "0"], "$1 b"),
        (["eval", "return redis.pcall('set', 'a', 'b')", "0"], oom),
        (["eval", "redis.call('del', 'a') return redis.call('set', 'a', 'c')", "0"], "+OK"),
        (["eval", "#!lua\nreturn 1", "0"], oom),
        (["eval", "#!lua flags=allow-oom\nreturn redis.call('set', 'a', 'd')", "0"], "+OK"),
        (["eval", "#!lua flags=no-writes\nreturn redis.call('get', 'a')", "0"], "$1 d"),
    ] {
        let mut call = call(&words);
        call.wishes = wish::FULL;
        let (mut other, operation, mut bytes) = (db.clone(), Write::Call(call), Vec::new());
        operation.encode(&mut bytes);
        let answer = db.write(&operation).reply;
        assert!(shown(&answer).starts_with(expected), "{words:?}: {answer:?}");
        assert_eq!(other.write(&Write::decode(&bytes).unwrap()).reply, answer, "it is in the log");
    }
}

#[test]
fn digests_and_snapshots_have_libraries() {
    let mut db = with(
        "redis.register_function{function_name='f', callback=function() return 1 end, description='d', flags={'no-writes'}}",
    );
    let mut other = with(
        "redis.register_function{function_name='f', callback=function() return 2 end, description='d', flags={'no-writes'}}",
    );
    assert_ne!(db.digest(), other.digest());
    other = Db::default();
    let head = db.begin_walk();
    other.resume(&head).unwrap();
    assert_eq!(db.digest(), other.digest());
    assert_eq!(other.functions.iter().collect::<Vec<_>>(), db.functions.iter().collect::<Vec<_>>());
    assert_eq!(ask(&mut other, &["fcall", "f", "0"]), ask(&mut db, &["fcall", "f", "0"]));
    for length in 0..head.len() {
        assert!(Db::default().resume(&head[..length]).is_none());
    }
}

#[test]
fn an_error_of_several_does_not_depend_on_addresses() {
    let body = "redis.register_function{[{}]=1, a=1, b=1, c=1, d=1, e=1, g=1, h=1, i=1, j=1, k=1, callback=redis.log}";
    for _ in 0..20 {
        let answer = load(&mut Db::default(), "lib", body);
        assert!(answer.ends_with("named argument key given to redis.register_function is not a string"), "{answer}");
    }
}
