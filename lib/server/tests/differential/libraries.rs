//! Random libraries of functions, valid and invalid, and payloads of libraries.
//!
//! Two kinds of libraries are left out. No library keeps values in its variables, because this server forgets them after
//! each call. No library has functions whose names differ only in case, because such functions crash Redis.

use archipelago_server::db::Random;
use archipelago_server::db::functions::{Functions, Library};
use archipelago_server::rdb::dump_functions;
use std::sync::Arc;

fn pick<'a>(random: &mut Random, all: &[&'a str]) -> &'a str {
    all[random.below(all.len())]
}

const BODIES: &[&str] = &[
    "return redis.call('get', keys[1])",
    "return redis.call('set', keys[1], args[1])",
    "return redis.call('append', keys[1], #args)",
    "return redis.pcall('incrby', keys[1], args[1])",
    "return redis.call('rpush', keys[1], unpack(args))",
    "return redis.call('del', unpack(keys))",
    "return {#keys, #args, keys, args}",
    "redis.call('set', keys[1], 'before') error('boo')",
    "return redis.error_reply('MY error')",
    "return redis.status_reply(args[1])",
    "return {1, 2.9, -2.9, 'a', true, false, {ok='Y'}, {err='E'}, nil, 4}",
    "return nil + 1",
    "return keys.a.b",
    "x = 1",
    "return x",
    "_G.x = 1",
    "return KEYS",
    "return redis.register_function('late', function() end)",
    "return api.register_function('late', function() end)",
    "return api.call('ping')",
    "api.log = 1",
    "return redis.call('fcall', 'f1', 0)",
    "return redis.call('eval', 'return 1', 0)",
    "return redis.call('function', 'list')",
    "return redis.call('foo')",
    "return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM, redis.LOG_WARNING}",
    "redis.setresp(3) return redis.call('hgetall', 'none')",
    "return {pcall(error, 'boo')}",
    "return {pcall(redis.call, 'lpush', 'k0', 'v')}",
    "return help(args)",
    "return tonumber(args[1])",
    "local all = {} for at, key in ipairs(keys) do all[at] = redis.call('type', key).ok end return all",
    "return cjson.encode({a = {1, 2}})",
    "return loadstring('return 1')()",
    "return string.format('%5.1f', 7)",
    "redis.log(redis.LOG_DEBUG, 'x')",
];

const FLAGS: &[&str] = &[
    "'no-writes'",
    "'no-writes'",
    "'allow-oom'",
    "'allow-stale', 'no-cluster'",
    "'allow-cross-slot-keys', 'No-Writes'",
    "'foo'",
    "1",
    "nil, 'foo'",
    "'no-writes', x = 'foo'",
    "",
];

/// Pieces of code, most of which are wrong.
const WRONG: &[&str] = &[
    "redis.register_function()",
    "redis.register_function('f')",
    "redis.register_function({})",
    "redis.register_function('f', 1)",
    "redis.register_function({}, function() end)",
    "redis.register_function(7, function() end)",
    "redis.register_function('a-b', function() end)",
    "redis.register_function('', function() end)",
    "redis.register_function('a', 'b', 'c')",
    "redis.register_function('same', api.log) redis.register_function('same', api.log)",
    "redis.register_function{function_name='f'}",
    "redis.register_function{callback=function() end}",
    "redis.register_function{function_name={}, callback=function() end}",
    "redis.register_function{function_name='f9', callback=1}",
    "redis.register_function{function_name='f9', callback=function() end, flags=1}",
    "redis.register_function{function_name='f9', callback=function() end, description={}}",
    "redis.register_function{FUNCTION_NAME='f9', callback=function() end, description=5}",
    "redis.register_function{function_name='f9', callback=function() end, foo=1}",
    "redis.register_function{function_name='f9', callback=function() end, [true]=1}",
    "redis.call('set', 'k0', 'v')",
    "redis.foo = 1",
    "x = 1",
    "return x",
    "local t = string.rep('x', 3)",
    "local y = ('y'):rep(3) redis.register_function(y, function() return y end)",
    "local x = nil .. 'x'",
    "local (x)",
    "local function deep() return 1 + deep() end deep()",
    "redis.log('x')",
    "error('boo')",
    "for at = 1, 3 do redis.register_function('n' .. at, function() return at end) end",
    "\u{1b}Lua",
    "return",
];

fn register(random: &mut Random, name: &str) -> String {
    let body = format!("function(keys, args) {} end", pick(random, BODIES));
    match random.below(3) {
        0 => format!("redis.register_function('{name}', {body})"),
        at => {
            let description = if at == 1 { ", description = 'what it does'" } else { "" };
            let flags = pick(random, FLAGS);
            format!(
                "redis.register_function{{function_name = '{name}', callback = {body}, flags = {{{flags}}}{description}}}"
            )
        }
    }
}

/// Returns a random name of a function.
pub fn function(random: &mut Random) -> String {
    let letter = if random.below(6) == 0 { 'F' } else { 'f' };
    format!("{letter}{}", random.below(7))
}

/// Returns a random library's text.
pub fn library(random: &mut Random) -> String {
    let name = pick(random, &["a", "a", "b", "b", "c", "Abc"]);
    let first = match random.below(24) {
        0 => String::new(),
        1 => {
            pick(random, &["#!lua", "#!lua\n", "#!foo name=a\n", "#!lua name=a name=b\n", "#!lua name=a b=c\n"]).into()
        }
        2 => pick(random, &["#!lua name=\"a\n", "#!lua name=a-b\n", "#! lua name=a\n", "#!\n", "#!lua name=\n"]).into(),
        3 => format!("#!LUA\tNAME='{name}'\r\n"),
        _ => format!("#!lua name={name}\n"),
    };
    let mut text = first + "local api = redis\nlocal function help(all) return #all end\n";
    let (from, count) = (random.below(7), random.below(4));
    for at in from..from + count {
        let letter = if random.below(6) == 0 { 'F' } else { 'f' };
        text += &register(random, &format!("{letter}{}", at % 7));
        text += "\n";
    }
    if random.below(4) == 0 {
        text += pick(random, WRONG);
    }
    text
}

/// Returns a payload of random libraries.
pub fn payload(random: &mut Random) -> Vec<u8> {
    let mut all = Functions::default();
    for name in 0..random.below(4) {
        let library = Library { name: name.to_string(), code: library(random).into_bytes(), functions: Vec::new() };
        all.insert(Arc::new(library)).unwrap();
    }
    let mut payload = dump_functions(&all);
    if random.below(8) == 0 {
        let at = random.below(payload.len());
        payload[at] ^= 1 << random.below(8);
    }
    payload
}

/// Returns a script that declares its flags.
pub fn script(random: &mut Random) -> String {
    let first = pick(
        random,
        &["#!lua", "#!lua flags=", "#!lua flags=no-writes", "#!lua flags=allow-oom,no-cluster", "#!lua x"],
    );
    let body = pick(random, &["return 1", "return redis.call('set', 'k0', 'v')", "return redis.call('get', 'k0')"]);
    format!("{first}\n{body}")
}
