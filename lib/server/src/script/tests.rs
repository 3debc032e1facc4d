//! Tests of scripts, each on a database of its own.

use crate::acl::selector::Selector;
use crate::acl::user::User;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_check::hostile::beside;

use crate::args::Args;
use crate::command;
use crate::db::Db;
use crate::deadline::Deadline;
use crate::operation::{Call, Read, Write, wish};
use crate::reply::{Protocol, Reply};

/// Returns a call. The subcommands of `FUNCTION` are separate commands, which a session selects.
pub fn call(words: &[&str]) -> Call {
    let args: Args = words.iter().collect();
    let part = if words[0] == "function" { format!("function|{}", words[1]) } else { words[0].to_owned() };
    let command = command::find(part.as_bytes()).or(command::find(&args[0])).unwrap();
    Call { command, args, db: 0, now: 1_500, seed: 7, wishes: 0, rights: None, deadline: None }
}

fn write(words: &[&str]) -> Write {
    Write::Call(call(words))
}

/// Carries a script out on two replicas, and returns their common reply. Before that, the second replica also runs a
/// script that only reads.
fn eval(body: &str) -> String {
    let (mut one, mut other) = (Db::default(), Db::default());
    let operation = write(&["eval", body, "1", "key", "arg"]);
    let answer = one.write(&operation).reply;
    let _ = other.write(&write(&["eval_ro", "local t = {} for i = 1, 1000 do t[i] = i .. 'x' end", "0"]));
    let _ = one.write(&write(&["ping"]));
    assert_eq!(answer, other.write(&operation).reply, "{body}");
    assert_eq!(one.digest(), other.digest(), "{body}");
    shown(&answer)
}

pub fn shown(reply: &Reply) -> String {
    let mut out = Vec::new();
    reply.encode(Protocol::Resp2, &mut out);
    String::from_utf8_lossy(&out).trim_end().replace("\r\n", " ")
}

#[test]
fn answers_become_values_and_values_answers() {
    assert_eq!(eval("return {1, 2.9, -2.9, 'a', false, true, {ok = 'Y'}}"), "*7 :1 :2 :-2 $1 a $-1 :1 +Y");
    assert_eq!(eval("return redis.call('set', KEYS[1], ARGV[1]).ok"), "$2 OK");
    assert_eq!(eval("return redis.call('time')"), "*2 $1 1 $6 500000");
    assert_eq!(eval("return redis.call('get', KEYS[1])"), "$-1");
    assert_eq!(eval("return bit.tohex(bit.bor(1, 0xff00), 4)"), "$4 ff01");
    assert_eq!(eval("return cjson.encode({1, {a = 'b/'}, cjson.null, 0.5})"), r#"$24 [1,{"a":"b\/"},null,0.5]"#);
    assert_eq!(eval(r#"return cjson.decode('{"a":[1,null,"x"]}').a[3]"#), "$1 x");
}

#[test]
fn scripts_answer_with_the_types_of_resp3() {
    for (body, two, three) in [
        ("return {true, false}", "*2 :1 $-1", "*2 :1 _"),
        ("redis.setresp(3) return {true, false}", "*2 :1 :0", "*2 #t #f"),
        ("redis.setresp(3) redis.setresp(2) return {true, false}", "*2 :1 $-1", "*2 :1 _"),
        ("return {big_number = '123\\n4'}", "$5 123 4", "(123 4"),
        ("return {verbatim_string = {format = 'markdown', string = 'a'}}", "$1 a", "=5 mar:a"),
        ("return {verbatim_string = {format = 'm', string = 'a'}}", "$1 a", "=5 m  :a"),
        ("return {verbatim_string = {string = 'a'}, 7}", "*1 :7", "*1 :7"),
        ("return {double = 1.5}", "$3 1.5", ",1.5"),
        ("return {map = {a = true}}", "*2 $1 a :1", "%1 $1 a :1"),
        ("return {set = {a = true}}", "*1 $1 a", "~1 $1 a"),
    ] {
        let reply = Db::default().write(&write(&["eval", body, "0"])).reply;
        let mut out = Vec::new();
        reply.encode(Protocol::Resp3, &mut out);
        assert_eq!(shown(&reply), two, "{body}");
        assert_eq!(String::from_utf8_lossy(&out).trim_end().replace("\r\n", " "), three, "{body}");
    }
    // A script that begins anew in a state of its own begins with RESP2.
    let body = "local before = type(redis.call('get', 'no')) redis.setresp(3) \
                local s = ('x'):rep(20 * 2^20) return {before, true}";
    let reply = Db::default().write(&write(&["eval", body, "0"])).reply;
    assert_eq!(shown(&reply), "*2 $7 boolean :1");
}

#[test]
fn settings_of_json_act() {
    let with = |text: &str| eval(&format!("local c = cjson.new() {text}"));
    assert_eq!(with("return {c.encode_sparse_array(true, 3, 4)}"), "*3 :1 :3 :4");
    let sparse = "return c.encode({1, 2, [5] = 3, [1000] = 4})";
    assert!(with(sparse).contains("excessively sparse array"));
    let mut pairs: Vec<_> = with(&format!("c.encode_sparse_array('on', 3, 4) {sparse}"))
        .trim_start_matches("$28 {")
        .trim_end_matches('}')
        .split(',')
        .map(str::to_owned)
        .collect();
    pairs.sort_unstable();
    assert_eq!(pairs, ["\"1\":1", "\"1000\":4", "\"2\":2", "\"5\":3"]);
    assert_eq!(with("c.encode_sparse_array(false, 0) return #c.encode({[1000] = 1})"), ":4998");
    assert_eq!(
        with("c.encode_number_precision(3) return c.encode({1.23456, 12345, 1e100, 0.00001234, 123, -0.5, 999.9})"),
        "$46 [1.23,1.23e+04,1e+100,1.23e-05,123,-0.5,1e+03]"
    );
    assert!(with("c.encode_max_depth(2) return c.encode({{{}}})").contains("Cannot serialise, excessive nesting (3)"));
    assert_eq!(with("c.encode_max_depth(2) return c.encode({{}})"), "$4 [{}]");
    assert_eq!(with("c.decode_max_depth(2) return #c.decode('[[]]')"), ":1");
    let deep = with(r#"c.decode_max_depth(2) return c.decode([==[["[[[\"", {"a":[1]}]]==])"#);
    assert!(deep.contains("Found too many nested data structures (3) at character 16"), "{deep}");
    assert!(with("return c.encode(0/0)").contains("must not be NaN or Inf"));
    assert_eq!(with("c.encode_invalid_numbers(true) return c.encode({0/0, 1/0, -1/0})"), "$14 [nan,inf,-inf]");
    assert_eq!(with("c.encode_invalid_numbers('null') return c.encode({0/0, {1/0}})"), "$13 [null,[null]]");
    let told = "return {tostring(c.encode_invalid_numbers()), tostring(c.encode_keep_buffer(false)), c.encode_max_depth(), \
                c._NAME, tostring(c.decode_invalid_numbers('off'))}";
    assert_eq!(with(told), "*5 $5 false $5 false :1000 $5 cjson $5 false");
    for (call, what) in [
        ("encode_max_depth(0)", "#1 to 'encode_max_depth' (expected integer between 1 and 2147483647)"),
        ("encode_max_depth('x')", "#1 to 'encode_max_depth' (number expected, got string)"),
        ("encode_max_depth(1, 2)", "#2 to 'encode_max_depth' (found too many arguments)"),
        ("encode_number_precision(15)", "#1 to 'encode_number_precision' (expected integer between 1 and 14)"),
        ("encode_invalid_numbers(3)", "#1 to 'encode_invalid_numbers' (invalid option '3')"),
        ("encode_keep_buffer({})", "#1 to 'encode_keep_buffer' (string expected, got table)"),
    ] {
        let answer = eval(&format!("return cjson.{call}"));
        assert!(answer.contains(&format!("bad argument {what}")), "{call}: {answer}");
    }
    // The next script on this thread has the default settings again.
    assert_eq!(eval("cjson.encode_number_precision(2) return cjson.encode(1.234)"), "$3 1.2");
    assert_eq!(eval("return cjson.encode(1.234)"), "$5 1.234");
}

#[test]
fn what_was_written_before_an_error_stays() {
    let mut db = Db::default();
    let body = "redis.call('set', 'a', '1') redis.call('lpush', 'a', 'x')";
    let answer = shown(&db.write(&write(&["eval", body, "0"])).reply);
    assert!(answer.starts_with("-WRONGTYPE Operation against a key"), "{answer}");
    assert!(answer.ends_with(", on @user_script:1."), "{answer}");
    assert_eq!(shown(&db.write(&write(&["get", "a"])).reply), "$1 1");
}

#[test]
fn scripts_that_read_do_not_write() {
    let mut db = Db::default();
    for words in [
        ["eval_ro", "return redis.call('set', 'a', '1')", "0"],
        ["eval", "#!lua flags=no-writes\nreturn redis.call('set', 'a', '1')", "0"],
    ] {
        let answer = shown(&db.write(&write(&words)).reply);
        assert!(answer.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{answer}");
        assert_eq!(shown(&db.write(&write(&["exists", "a"])).reply), ":0");
    }
}

#[test]
fn commands_within_are_asked_for_the_users_rights() {
    let (mut one, mut other) = (Db::default(), Db::default());
    let mut eval = |name: &str, body: &str, rules: &[&str]| {
        let Write::Call(mut call) = write(&[name, body, "0"]) else { unreachable!("it is a call") };
        let selectors = rules.iter().map(|rules| Selector::read(rules.as_bytes()).unwrap());
        call.rights = Some(std::sync::Arc::new(User::of(selectors.collect())));
        let (operation, mut bytes) = (Write::Call(call), Vec::new());
        operation.encode(&mut bytes);
        let answer = one.write(&operation).reply;
        assert_eq!(answer, other.write(&Write::decode(&bytes).unwrap()).reply, "the rights are in the log");
        shown(&answer)
    };
    let rules = &["+eval +get +set ~a*", "+publish +lpush ~l &c"][..];
    let (command, key) =
        ("-ERR The user executing the script can't run", "-ERR The user executing the script can't access");
    for (body, expected) in [
        ("return redis.call('set', 'a', '1')", "+OK"),
        ("return redis.call('lpush', 'l', '1')", ":1"),
        ("return redis.call('set', 'b', '1')", key),
        ("return redis.call('set', 'l', '1')", key),
        ("return redis.call('del', 'a')", command),
        ("return redis.call('select', '1')", command),
        ("return redis.pcall('del', 'a')", command),
        ("return redis.call('publish', 'd', '1')", "-ERR The user executing the script can't publish"),
        ("return redis.call('multi')", "-ERR This Redis command is not allowed"),
        ("return redis.call('nothing')", "-ERR Unknown Redis command"),
        ("return redis.call('get')", "-ERR Wrong number of args"),
    ] {
        let answer = eval("eval", body, rules);
        assert!(answer.starts_with(expected), "{body}: {answer}");
    }
    assert!(eval("eval_ro", "return redis.call('get', 'b')", rules).starts_with(key));
    assert_eq!(shown(&one.write(&write(&["get", "a"])).reply), "$1 1");
}

#[test]
fn an_error_says_where_the_script_called() {
    for (body, place) in [
        ("return redis.call('foo')", ", on @user_script:1."),
        ("local function f() return redis.call('foo') end\nreturn 1, f()", ", on @user_script:1."),
        ("\nreturn redis.call('get', {})", ", on @user_script:2."),
        ("return nil + 1", ", on @user_script:1."),
    ] {
        let answer = eval(body);
        assert!(answer.starts_with("-ERR ") && answer.ends_with(place), "{body}: {answer}");
    }
    let blocks = "return redis.call('xread', 'block', 0, 'streams', 's', 0)";
    assert!(eval(blocks).starts_with("-ERR xread command is not allowed with BLOCK option from scripts"));
    assert_eq!(eval("return {pcall(redis.call, 'foo')}"), "*2 $-1 $44 ERR Unknown Redis command called from script");
    assert_eq!(
        eval("return {select(2, xpcall(function() redis.call('foo') end, function(e) return e.err end))}"),
        "*1 $44 ERR Unknown Redis command called from script"
    );
    assert_eq!(eval("return select(2, pcall(cjson.decode, '{')):len() > 0"), ":1");
}

#[test]
fn nothing_outside_is_there() {
    for name in
        ["os", "io", "load", "loadfile", "dofile", "require", "debug", "coroutine", "print", "getfenv", "newproxy"]
    {
        let answer = eval(&format!("return {name}.x"));
        assert!(
            answer.contains(&format!("Script attempted to access nonexistent global variable '{name}'")),
            "{answer}"
        );
    }
    for body in ["x = 1", "_G.x = 1", "rawset(_G, 'x', 1)", "setmetatable(_G, {})"] {
        assert!(eval(body).contains("Attempt to modify a readonly table"), "{body}");
    }
    assert_eq!(eval("return {loadstring('\\27Lua')}"), "*0");
    let blind = "string.byte = function() return 0 end";
    assert!(!eval(&format!("{blind} return {{loadstring('\\27Lua')}}")).contains("precompiled"));
    assert_eq!(eval(&format!("pcall(function() {blind} end) return {{loadstring('\\27Lua')}}")), "*0");
    assert_eq!(eval("return loadstring('return os')"), "$-1");
    assert!(eval("loadstring('return os')()").contains("nonexistent global variable 'os'"));
    assert_eq!(eval("return {string.dump, getmetatable('')}"), "*0");
}

#[test]
fn no_address_is_seen() {
    assert_eq!(eval("return {tostring({}), tostring(tostring)}"), "*2 $5 table $8 function");
    assert!(eval("for key in pairs({[{}] = 1}) do end").contains("have no order"));
    assert!(eval("return next({[redis.call] = 1})").contains("have no order"));
    assert!(eval("return {map = {[{}] = 1}}").contains("reached lua stack limit"));
}

/// The expected values were printed by Lua 5.1.5.
#[test]
fn patterns_are_those_of_lua() {
    for (body, expected) in [
        ("return {('hello world'):find('o w')}", "*2 :5 :7"),
        ("return {('hello'):find('l', -2), ('hello'):find('xl') or 0, ('a.b'):find('.', 2, true)}", "*4 :4 :0 :2 :2"),
        ("return {('key = value'):match('^(%w+)%s*=%s*(%w+)$')}", "*2 $3 key $5 value"),
        ("return {('hello'):match('()ll()')}", "*2 :3 :5"),
        ("return {('THE (quick) fox'):find('%((%a+)%)')}", "*3 :5 :11 $5 quick"),
        ("return {('f(a(b)c)d'):match('%b()'), ('THE (quick)'):gsub('%f[%a]%a+', 'x')}", "*3 $7 (a(b)c) $5 x (x) :2"),
        ("return {('abc'):gsub('', '-')}", "*2 $7 -a-b-c- :4"),
        (
            "return {('hello world'):gsub('o', {o = 0}), ('abc'):gsub('%w', '%0%0', 2)}",
            "*3 $11 hell0 w0rld $5 aabbc :2",
        ),
        ("return {('abc'):gsub('^a', 'x'), ('aaa'):gsub('^a', 'x')}", "*3 $3 xbc $3 xaa :1"),
        ("return {('abc'):gsub('b', function(b) if b == 'b' then return nil end end)}", "*2 $3 abc :1"),
        (
            "local t = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do t[#t + 1] = k .. v end return t",
            "*2 $2 a1 $2 b2",
        ),
        ("local t = {} for w in ('abc'):gmatch('') do t[#t + 1] = 'x' end return #t", ":4"),
        ("return {('x]y'):match('[]]'), ('a-z'):match('[a%-]+'), ('b5'):match('[^%a]')}", "*3 $1 ] $2 a- $1 5"),
        (
            "return {('abab'):match('(ab)%1'), ('aXb'):match('%u'), ('aab'):match('a-b'), ('a'):match('a?b?')}",
            "*4 $2 ab $1 X $3 aab $1 a",
        ),
        ("return (12345):find(34)", "-ERR user_script:1: attempt to index a number value"),
        ("return {string.find(12345, 34)}", "*2 :3 :4"),
    ] {
        let answer = eval(body);
        assert!(answer == expected || (expected.starts_with('-') && answer.starts_with(expected)), "{body}: {answer}");
    }
    for (body, wrong) in [
        ("('a'):find('%')", "malformed pattern (ends with '%')"),
        ("('a'):find('[a')", "malformed pattern (missing ']')"),
        ("('a'):match('(a')", "unfinished capture"),
        ("('a'):match('a)')", "invalid pattern capture"),
        ("('a'):match('%1')", "invalid capture index"),
        ("('a'):gsub('a', '%2')", "invalid capture index"),
        ("('a'):find('%f')", "missing '[' after '%f' in pattern"),
        ("('a'):find('%b')", "unbalanced pattern"),
        ("('a'):find(string.rep('(', 33))", "too many captures"),
        ("string.find('a', nil)", "bad argument #2 to 'find' (string expected, got nil)"),
        ("string.gsub('a', 'a', true)", "bad argument #3 to 'gsub' (string/function/table expected)"),
        ("('a'):gsub('a', function() return {} end)", "invalid replacement value (a table)"),
    ] {
        let answer = eval(body);
        assert!(answer.starts_with(&format!("-ERR user_script:1: {wrong} script: ")), "{body}: {answer}");
    }
}

/// Lua's own matcher completes neither of these matches: the first would take longer than the sun will exist, and the
/// second needs more stack than there is.
#[test]
fn matches_end() {
    let endless = "return ('a'):rep(100):find(('a?'):rep(100) .. ('a'):rep(100))";
    assert!(eval(endless).contains("more instructions than a script may"));
    let stubborn = "while true do pcall(string.gsub, ('a'):rep(200), ('a*'):rep(60) .. 'b', '') end";
    assert!(eval(stubborn).contains("more instructions than a script may"));
    for body in ["return ('a'):rep(1e6):find(('a?'):rep(1e6))", "return ('a'):rep(1e6):find(('a-'):rep(1e6) .. 'b')"] {
        assert!(eval(body).contains("pattern too complex"), "{body}");
    }
    assert_eq!(eval("return #('a'):rep(1e6):match('.-$')"), ":1000000");
    assert!(eval("return #('a'):rep(1e5):gsub('a', ('b'):rep(1e5))").contains("not enough memory"));
}

/// A weak table shows what the collector has done, which depends on the scripts before.
#[test]
fn tables_are_never_weak() {
    let seen = |make: &str| {
        let run = "t[1], t[{}] = {}, 1 local n = 0 while t[1] and n < 30000 do n = n + 1 local x = {n} end return n";
        eval(&format!("{make} {run}"))
    };
    for make in [
        "local t = setmetatable({}, {__mode = 'kv'})",
        "local m = {} local t = setmetatable({}, m) m.__mode = 'v'",
        "local m = {} local t = setmetatable({}, m) getmetatable(t).__mode = 'v'",
        "local m = {} local t = setmetatable({}, m) rawset(m, '__mo' .. 'de', 'v')",
        "local t = setmetatable({}, {__mode = 'v', __metatable = {__mode = 'v'}})",
    ] {
        assert_eq!(seen(make), ":30000", "{make}");
    }
    let class = "local C = {} C.__index = C function C.new(n) return setmetatable({n = n}, C) end \
        function C.__eq(a, b) return a.n == b.n end function C:twice() return self.n * 2 end ";
    let with = |rest: &str| eval(&format!("{class}{rest}"));
    assert_eq!(with("return {C.new(2):twice(), C.new(1) == C.new(1), getmetatable(C.new(1)) == C}"), "*3 :4 :1 :1");
    assert_eq!(
        eval(
            "local t = setmetatable({}, {__index = function(_, k) return k .. '!' end, __call = function(_, n) return n end, \
            __tostring = function() return 'me' end, __unm = function() return 3 end, __concat = function() return 'c' end}) \
            return {t.a, t(7), tostring(t), -t, t .. 'x', getmetatable(t).__mode == nil}"
        ),
        "*6 $2 a! :7 $2 me :3 $1 c :1"
    );
    assert_eq!(eval("local t = setmetatable({}, {}) setmetatable(t, nil) return getmetatable(t) == nil"), ":1");
    assert_eq!(eval("return getmetatable(setmetatable({}, {__metatable = 7}))"), ":7");
    assert!(
        eval("setmetatable(setmetatable({}, {__metatable = 7}), {})").contains("cannot change a protected metatable")
    );
    assert_eq!(eval("return tostring(setmetatable({}, {__metatable = {__tostring = 1}}))"), "$5 table");
}

/// Lua's own functions count as one instruction each, whatever they do.
#[test]
fn functions_of_lua_end() {
    for (body, expected) in [
        ("table.insert({}, -2147483648, 1)", "user_script:1: bad argument #2 to 'insert' (position out of bounds)"),
        ("table.insert({}, -1e9, 1)", "position out of bounds"),
        ("table.insert({}, 1e10, 1)", "number out of range"),
        ("table.insert({}, 1, 2, 3)", "wrong number of arguments to 'insert'"),
        ("table.remove({}, 0/0)", "number out of range"),
        ("local x = table.concat({{}})", "user_script:1: invalid value (table) at index 1 in table for 'concat'"),
        (
            "local x = string.format('%d', 'x')",
            "user_script:1: bad argument #2 to 'format' (number expected, got string)",
        ),
        ("local x = string.upper()", "user_script:1: bad argument #1 to 'upper' (string expected, got nil)"),
    ] {
        let answer = eval(body);
        assert!(answer.contains(expected), "{body}: {answer}");
    }
    let shown = "local function s(t) return table.concat(t, ',') end ";
    for (body, expected) in [
        ("local t = {1, 2, 3} table.insert(t, 2, 9) table.insert(t, 4) return s(t)", "1,9,2,3,4"),
        ("local t = {1, 2} table.insert(t, 0, 9) return tostring(t[0]) .. tostring(t[1]) .. t[2] .. t[3]", "9nil12"),
        ("local t = {1, 2} table.insert(t, 4, 9) return t[1] .. t[2] .. tostring(t[3]) .. t[4]", "12nil9"),
        ("local t = {1, 2, 3} return table.remove(t, 1) .. table.remove(t) .. s(t)", "132"),
        ("return table.maxn({1, 2, [7.5] = 1, x = 1}) .. select('#', table.remove({}))", "7.50"),
        ("local n = '' table.foreachi({4, 5}, function(i, v) n = n .. i .. v end) return n", "1425"),
        (
            "return ('aB'):upper() .. ('aB'):lower() .. ('aB'):reverse() .. ('%5.1f|%s'):format(1.25, 'x')",
            "ABabBa  1.2|x",
        ),
        ("return (string.gsub('a b', '%w', string.upper, '1')) .. select('#', pcall(function() end))", "A b1"),
    ] {
        assert_eq!(eval(&format!("{shown}{body}")), format!("${} {expected}", expected.len()), "{body}");
    }
}

/// Each of these texts passes its first point in the function in question.
#[test]
fn functions_that_take_long_are_points() {
    let run = |body: &str| {
        let body = format!("local a = '0123456789abcdef' for i = 1, 13 do a = a .. a end {body}");
        shown(&Db::default().write(&within(Duration::ZERO, &["eval", &body, "0"])).reply)
    };
    for body in [
        "return #a",
        "return #('b'):upper() + 131071",
        "local t = {a:byte(1, 100)} table.insert(t, 1, 1) return #t + 130971",
    ] {
        assert_eq!(run(body), ":131072", "{body}");
    }
    for body in [
        "return #a:upper()",
        "return #a:lower()",
        "return #a:reverse()",
        "return #('%s'):format(a)",
        "return #table.concat({a})",
        "return a:rep(1)",
        "return loadstring('return 1')()",
        "local t = {a:byte(1, 7990)} table.insert(t, -60000, 1)",
        "local t = {a:byte(1, 7990)} table.remove(t, -60000)",
        "return pcall(function() for i = 1, 12 do a = a .. a end end)",
    ] {
        assert!(run(body).contains(LATE), "{body}: {}", run(body));
    }
}

/// Lua's own `unpack` writes outside its stack if the number of values overflows.
#[test]
fn as_many_values_are_unpacked_as_there_is_room_for() {
    for bounds in [
        "-2147483647, 1",
        "-2147483648, 2147483647",
        "-2147483648, -1",
        "1, 2147483647",
        "2147483647, -2147483648 + 2^32",
        "1, 2^40",
        "-2^40, 1",
        "1, 1/0",
        "-1/0",
        "0/0",
        "1, '2147483647'",
        "1, 8000",
    ] {
        let answer = eval(&format!("return {{unpack({{1, 2}}, {bounds})}}"));
        assert!(answer.contains("too many results to unpack") || answer.contains("out of range"), "{bounds}: {answer}");
    }
    assert_eq!(eval("local t = {} for i = 1, 7999 do t[i] = i end return select('#', unpack(t))"), ":7999");
    assert!(eval("local t = {} for i = 1, 8000 do t[i] = i end return {unpack(t)}").contains("too many results"));
    assert_eq!(eval("return select('#', unpack({}, 2147483640, 2147483647))"), ":8");
    assert_eq!(eval("return {unpack({1, 2, 3}, 2), unpack({1, 2, 3}, '2', 2.9), unpack({1}, 2, -1e9)}"), "*2 :2 :2");
    assert!(eval("local x = unpack(7)").contains("user_script:1: bad argument #1 to 'unpack' (table expected"));
    assert!(eval("local x = unpack({}, {})").contains("user_script:1: bad argument #2 to 'unpack' (number expected"));
}

#[test]
fn errors_show_no_addresses() {
    for body in ["return _G[{}]", "return _G[print]", "error(print)", "return {pcall(function() return _G[{}] end)}"] {
        let answer = eval(body);
        assert!(!answer.contains("0x"), "{body}: {answer}");
    }
}

/// The scripts run one after the other, because each may use all the memory that a script may have.
#[test]
fn scripts_end() {
    let _beside = beside();
    let endless = eval("local n = 0 while true do n = n + 1 end");
    assert!(endless.contains("more instructions than a script may"), "{endless}");
    let stubborn = "redis.call('set', 'a', '1') while true do pcall(function() while true do redis.pcall('incr', 'a') end end) end";
    assert!(eval(stubborn).contains("more instructions than a script may"));
    for body in [
        "local s = 'xxxxxxxx' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = 'x' .. #t end",
        "return string.rep('x', 2e9)",
        "local t, n = {}, 0 while true do n = n + 1 redis.call('set', 'n', n) t[n] = string.rep('x', 1e5) .. n end",
    ] {
        let answer = eval(body);
        assert!(
            answer.contains("not enough memory") || answer.contains("resulting string too large"),
            "{body}: {answer}"
        );
    }
    assert!(eval("local t = {} for i = 1, 1e3 do t = {t} end return t").contains("reached lua stack limit"));
    assert!(eval("local t = {1} for i = 1, 100 do t = {t, t} end return t").contains("reached lua stack limit"));
    assert!(eval("local t = {1} for i = 1, 100 do t = {t, t} end return cjson.encode(t)").contains("too large"));
    assert!(
        eval("local t = {} for i = 1, 1e3 do t = {t} end return cjson.encode(t)").contains("excessive nesting (121)")
    );
    assert!(eval("return cjson.decode(string.rep('[', 1e6))").contains("too many nested data structures (121)"));
    assert!(eval("local f f = function() return 1 + f() end return f()").contains("stack overflow"));
}

/// Returns an operation with this time limit.
fn within(limit: Duration, words: &[&str]) -> Write {
    Write::Call(Call { deadline: Some(Arc::new(Deadline::new(limit))), ..call(words) })
}

const LATE: &str = "Script stopped: it ran longer than a script may";

#[test]
fn making_an_answer_counts_as_the_script() {
    // Each of the tables contains the previous one 32 times, so that the reply would have 32 million elements.
    let body = "local t = {} for i = 1, 5 do local all = {} for j = 1, 32 do all[j] = t end t = all end return t";
    let answer = shown(&Db::default().write(&within(Duration::ZERO, &["eval", body, "0"])).reply);
    assert!(answer.contains(LATE), "{answer}");
    // A small reply is converted completely.
    assert_eq!(eval("local t = {} return {t, t, {t}}"), "*3 *0 *0 *1 *0");
}

/// The number of bytes that monitors get for a script is bounded, for any commands and any number of them.
#[test]
fn monitors_are_shown_what_fits() {
    let shown = |body: &str| {
        let call = Call { wishes: wish::CALLS, ..call(&["eval", body, "0"]) };
        let effects = Db::default().write(&Write::Call(call)).effects.expect("calls were wished for");
        (effects.calls.len(), effects.calls.iter().map(|(_, args)| args.bytes()).sum::<usize>())
    };
    assert_eq!(shown("for i = 1, 3 do redis.call('set', 'k', i) end"), (3, 15));
    assert_eq!(shown("for i = 1, 20000 do redis.call('incr', 'k') end").0, 10_000);
    let (calls, bytes) =
        shown("local x = string.rep('x', 1e6) for i = 1, 20 do redis.call('set', 'k', x) end redis.call('get', 'k')");
    assert!(calls == 5 && bytes <= 4 << 20, "four large ones, and the small one behind them: {calls}, {bytes}");
}

#[test]
fn what_takes_long_in_few_instructions_ends() {
    let (mut one, mut other) = (Db::default(), Db::default());
    for db in [&mut one, &mut other] {
        let fill = write(&["eval", "for i = 1, 1000 do redis.call('set', 'key:' .. i, i) end", "0"]);
        assert_eq!(shown(&db.write(&fill).reply), "$-1");
    }
    for body in [
        "for i = 1, 1e9 do redis.call('keys', '*') end",
        "for i = 1, 1e9 do redis.pcall('incr', 'n') end",
        "while true do pcall(redis.call, 'incr', 'm') end",
        "local a = ('x'):rep(1e6) local b = a .. 'x' for i = 1, 1e9 do local is = a < b end",
        "local t = {} for i = 1, 1e9 do t[i % 9] = ('x'):rep(1000) .. i end",
        "local t = {} for i = 1, 1e9 do table.insert(t, 1, i) end",
        "local a, t = ('x'):rep(1e5), {} for i = 1, 1e4 do t[i] = a .. i end table.sort(t)",
        "local t = {} for i = 1, 1e5 do t[i] = i end table.sort(t, function(a, b) return string.rep('', 2e9) == '' and a < b end)",
        "xpcall(function() while true do redis.call('incr', 'x') end end, function() while true do redis.call('incr', 'h') end end)",
        "return ('a'):gsub('a', function() while true do pcall(redis.call, 'incr', 'g') end end)",
    ] {
        let operation = within(Duration::from_millis(5), &["eval", body, "0"]);
        let answer = one.write(&operation).reply;
        assert!(shown(&answer).contains(LATE), "{body}: {}", shown(&answer));
        assert_eq!(answer, other.write(&operation).reply, "{body}");
        assert_eq!(one.digest(), other.digest(), "{body}");
    }
    assert_eq!(shown(&one.write(&write(&["exists", "h"])).reply), ":0", "no handler of a stopped script runs");
    let set = within(Duration::ZERO, &["eval", "return redis.call('set', 'late', '1')", "0"]);
    assert!(shown(&one.write(&set).reply).contains(LATE), "each call is a point, before it is carried out");
    assert_eq!(shown(&one.write(&write(&["exists", "late"])).reply), ":0");
    let library = "#!lua name=l\nwhile true do local x = ('x'):rep(1e5) end";
    let load = within(Duration::ZERO, &["function", "load", library]);
    assert!(shown(&one.write(&load).reply).contains(LATE));
    let read = within(Duration::ZERO, &["eval_ro", "while true do redis.call('keys', '*') end", "0"]);
    let Write::Call(read) = read else { unreachable!("it is a call") };
    assert!(shown(&one.read(&crate::operation::Read::Call(read)).reply).contains(LATE));
    let soon = within(Duration::from_secs(3600), &["eval", "return redis.call('get', 'key:7')", "0"]);
    assert_eq!(shown(&one.write(&soon).reply), "$1 7");
}

/// Scripts whose time limit is close to their running time, on two replicas that begin at different moments.
#[test]
fn replicas_stop_a_script_at_the_same_place() {
    let body = "for i = 1, 1000 do redis.call('rpush', KEYS[1], i) redis.call('incr', 'n') end return 'whole'";
    let mut replicas = [Db::default(), Db::default()];
    let [mut stopped, mut whole] = [0, 0];
    // The limits are up to twice what a run takes on this machine without a pause.
    let timed = move || {
        let (mut db, begun) = (Db::default(), Instant::now());
        db.write(&write(&["eval", body, "1", "l"]));
        begun.elapsed()
    };
    let run = (0..5).map(|_| thread::spawn(timed).join().unwrap()).min().unwrap();
    for round in 0..200_u32 {
        let operation = within(2 * run * (round * 101 % 200) / 200, &["eval", body, "1", "l"]);
        let barrier = Barrier::new(replicas.len());
        let answers: Vec<Reply> = thread::scope(|scope| {
            let (operation, barrier) = (&operation, &barrier);
            let runs = replicas.iter_mut().enumerate().map(|(number, db)| {
                scope.spawn(move || {
                    barrier.wait();
                    if number as u32 == round % 2 {
                        thread::sleep(Duration::from_micros(u64::from(round) * 37 % 2_000));
                    }
                    db.write(operation).reply
                })
            });
            let runs: Vec<_> = runs.collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert_eq!(answers[0], answers[1], "round {round}");
        assert_eq!(replicas[0].digest(), replicas[1].digest(), "round {round}");
        let answer = shown(&answers[0]);
        assert!(answer == "$5 whole" || answer.contains(LATE), "{answer}");
        *if answer == "$5 whole" { &mut whole } else { &mut stopped } += 1;
    }
    assert!(stopped > 20, "{stopped} were stopped, {whole} ran to their ends");
}

#[test]
fn a_script_leaves_nothing_behind() {
    let run = |body: &str| shown(&Db::default().write(&write(&["eval", body, "1", "key", "arg"])).reply);
    let untouched = "local function is(it) return type(it) == 'function' end \
        return {#KEYS, #ARGV, string.x == nil and redis.x == nil and rawget(_G, 1) == nil and ('a'):upper() == 'A', \
        is(string.sub) and is(math.random) and is(redis.call) and is(cjson.encode) and is(table.sort), \
        math.pi > 3, string.nothing == nil and getmetatable(string) == nil, math.random(1000)}";
    let first = run(untouched);
    assert!(first.starts_with("*7 :1 :1 :1 :1 :1 :1 :"), "{first}");
    for body in [
        "string.x = 1 return 1",
        "redis.x = 1 return 1",
        "redis.call = nil redis.pcall = 1 return 1",
        "rawset(string, 'sub', nil) return 1",
        "math.pi = 1 return 1",
        "cjson.encode = tostring return 1",
        "table.sort = nil return 1",
        "table.insert(_G, 'x') return 1",
        "setmetatable(string, {__metatable = false, __index = function() return 1 end}) return 1",
        "setmetatable(redis, {__index = function() return 1 end}) return 1",
        "string.upper = function() return 'changed' end return 1",
        "math.randomseed(7) return math.random(1000)",
        "table.insert(KEYS, 'more') ARGV[1] = nil return 1",
        "redis.setresp(3) return 1",
        "return error('raised')",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000 + #t) end",
        "while true do end",
        "string.x = 1 while true do end",
        "return redis.call('nothing')",
        "no script",
        "function string.format() return 'changed' end return 1",
        "function --[[ c ]] math.random() return 0 end return 1",
        "function\nredis.call() return 1 end return 1",
        "local t = setmetatable({}, {__index = string}) t.sub = nil return 1",
    ] {
        let _ = run(body);
        assert_eq!(run(untouched), first, "after {body}");
    }
    for library in ["string", "table", "math", "cjson", "cmsgpack", "struct", "bit", "redis", "_G"] {
        for change in [
            "L.x = 1",
            "L.sub = 1",
            "function L.format() end",
            "rawset(L, 'x', 1)",
            "table.insert(L, 'x')",
            "table.insert(L, 1, 'x')",
            "setmetatable(L, {})",
        ] {
            let change = change.replace('L', library);
            assert!(run(&change).contains("Attempt to modify a readonly table"), "{change}");
        }
    }
    let names = "local n = 0 for name, f in pairs(string) do n = n + (string[name] == f and 1 or 0) end return n";
    assert_eq!(run(names), ":14");
    assert_eq!(
        run("return {rawget(string, 'sub') == string.sub, next(math) ~= nil, #string, #table}"),
        "*4 :1 :1 :0 :0"
    );
    assert_eq!(shown(&Db::default().write(&write(&["eval", "return #KEYS + #ARGV", "0"])).reply), ":0");
}

#[test]
fn a_text_that_ran_before_runs_anew() {
    let run = |body: &str| shown(&Db::default().write(&write(&["eval", body, "0"])).reply);
    let counts = "local n = 0 local function more() n = n + 1 return n end return more() + more()";
    // There are more texts than are kept compiled. One text is larger than all texts that can be kept.
    let long = format!("return {}1", "1 + ".repeat(80_000));
    assert_eq!(run(counts), ":3");
    for number in 0..300 {
        assert_eq!(
            run(&format!("{} return {number}", "-".repeat(2) + &"x".repeat(1_000) + "\n")),
            format!(":{number}")
        );
        assert_eq!(run(counts), ":3");
    }
    assert!(run(&long).starts_with("-ERR") || run(&long) == ":80001");
    assert_eq!(run(counts), ":3");
    // A script and a library with the same text are compiled separately.
    assert!(run("redis.register_function('f', function() return 1 end)").starts_with("-ERR"));
}

#[test]
fn what_needs_a_state_of_its_own_begins_anew_and_calls_nothing_twice() {
    let counted = "redis.call('incr', 'n') ";
    for (body, expected) in [
        ("for n = 1, 5000 do redis.call('rpush', 'l', n) end return redis.call('llen', 'l')", ":5000"),
        ("local s = ('x'):rep(20 * 2^20) return #s", ":20971520"),
        ("local ok, s = pcall(string.rep, 'x', 20 * 2^20) return ok and #s", ":20971520"),
        (
            "local s = 'x' local ok = pcall(function() for n = 1, 24 do s = s .. s end end) return ok and #s",
            ":16777216",
        ),
        (
            "local ok, s = xpcall(function() return ('x'):rep(20 * 2^20) end, function() return 1 end) return ok and #s",
            ":20971520",
        ),
        ("local f = loadstring('return #[[' .. ('x'):rep(9 * 2^20) .. ']]') return f()", ":9437184"),
        (
            "redis.setresp(3) local s = ('x'):rep(20 * 2^20) redis.setresp(2) return type(redis.call('get', 'no'))",
            "$7 boolean",
        ),
        ("for n = 1, 3000 do redis.call('get', 'n') end return redis.call('incr', 'n')", ":2"),
        ("redis.call('set', 'v', ('x'):rep(300000)) return #redis.call('get', 'v')", ":300000"),
        ("error('not enough memory')", "-ERR user_script:1: not enough memory script"),
    ] {
        let mut db = Db::default();
        let answer = shown(&db.write(&write(&["eval", &format!("{counted}{body}"), "0"])).reply);
        assert!(answer.starts_with(expected), "{body}: {answer}");
        let count = if body.contains("'incr'") { "$1 2" } else { "$1 1" };
        assert_eq!(shown(&db.write(&write(&["get", "n"])).reply), count, "{body}");
    }
    // Random numbers are those of the operation, whether or not the script is started again.
    let draws = "local t = {math.random(1000), redis.call('srandmember', 's')} ";
    let drawn = |more: &str| {
        let mut db = Db::default();
        let _ = db.write(&write(&["sadd", "s", "a", "b", "c", "d", "e", "f", "g", "h"]));
        shown(&db.write(&write(&["eval", &format!("{draws}{more} t[3] = math.random(1000) return t"), "0"])).reply)
    };
    assert_eq!(drawn(""), drawn("local s = ('x'):rep(20 * 2^20)"));
}

#[test]
fn records_of_uses_are_no_matter_of_the_log() {
    let (mut one, mut other) = (Db::default(), Db::default());
    for db in [&mut one, &mut other] {
        db.write(&write(&["set", "a", "1"]));
    }
    let _ = one.read(&Read::Call(Call { now: 9_000, ..call(&["get", "a"]) }));
    for part in ["idletime", "freq"] {
        let body =
            format!("redis.call('set', 'b', redis.pcall('object', '{part}', 'a').err) return redis.call('get', 'b')");
        let operation = Write::Call(Call { now: 10_000, ..call(&["eval", &body, "0"]) });
        let answer = one.write(&operation).reply;
        assert_eq!(shown(&answer), "$49 ERR This Redis command is not allowed from script");
        assert_eq!(answer, other.write(&operation).reply);
    }
    let read = call(&["eval_ro", "return redis.call('object', 'idletime', 'a')", "0"]);
    assert_eq!(shown(&one.read(&Read::Call(Call { now: 10_000, ..read })).reply), ":1");
    assert_eq!(eval("redis.call('set', 'a', '1') return redis.call('object', 'encoding', 'a')"), "$3 int");
}
