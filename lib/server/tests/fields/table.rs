//! Requests, answers and events, written from Redis's documentation and the behaviour of its versions 7.4 and 8.0.

use crate::ours::Ours;
use archipelago_server::operation::Write;

/// One request: milliseconds since 1970, the request, its answer, its events.
type Row = (u64, &'static str, &'static str, &'static str);

fn all(rows: &[Row]) {
    let mut ours = Ours::default();
    for (now, line, answer, events) in rows {
        let told = match line.strip_prefix("active ") {
            Some(most) => {
                let most = most.parse().unwrap();
                // A client's command tells which effects it wants recorded. The server's own operations do not, so the
                // database is told here to record events.
                ours.write(&Write::Listen { what: 3, begins: true });
                let told = crate::ours::shown(&ours.write(&Write::Expire { now: *now, most }));
                let effects = std::mem::take(&mut ours.effects);
                ours.write(&Write::Listen { what: 3, begins: false });
                ours.effects = effects;
                told
            }
            None => ours.line(line, *now),
        };
        assert_eq!(told, *answer, "{line} at {now}");
        let heard: Vec<&str> = ours.effects.events.iter().map(|event| event.name).collect();
        assert_eq!(heard.join(" "), *events, "{line} at {now}");
        // Each event except "new" means that clients' caches of the key are stale.
        let stale = heard.iter().filter(|name| **name != "new").count();
        assert_eq!(ours.effects.changes.len(), stale, "{line} at {now}");
    }
    assert_eq!(ours.db.digest(), ours.replica.digest());
}

#[test]
fn times_are_set_asked_for_and_taken_back() {
    all(&[
        (1_000, "HSET h a 1 b 2 c 3", ":3", "new hset"),
        (1_000, "HEXPIRE h 10 FIELDS 3 a b none", "[:1 :1 :-2]", "hexpire"),
        (1_000, "HTTL h FIELDS 4 a b c none", "[:10 :10 :-1 :-2]", ""),
        (1_001, "HTTL h FIELDS 1 a", "[:10]", ""),
        (1_001, "HPTTL h FIELDS 1 a", "[:9999]", ""),
        (1_001, "HEXPIRETIME h FIELDS 2 a c", "[:11 :-1]", ""),
        (1_001, "HPEXPIRETIME h FIELDS 1 a", "[:11000]", ""),
        (1_001, "HEXPIRE h 5 NX FIELDS 2 a c", "[:0 :1]", "hexpire"),
        (1_001, "HPEXPIRETIME h FIELDS 2 a c", "[:11000 :6001]", ""),
        (1_001, "HPERSIST h FIELDS 3 c none b", "[:1 :-2 :1]", "hpersist"),
        (1_001, "HPERSIST h FIELDS 1 c", "[:-1]", ""),
        (1_001, "HEXPIRE h 5 XX FIELDS 3 a c none", "[:1 :0 :-2]", "hexpire"),
        (1_001, "HEXPIRE h 5 GT FIELDS 2 a c", "[:0 :0]", ""),
        (1_001, "HEXPIRE h 6 gt FIELDS 2 a c", "[:1 :0]", "hexpire"),
        (1_001, "HEXPIRE h 6 LT FIELDS 2 a c", "[:0 :1]", "hexpire"),
        (1_001, "HPEXPIREAT h 7000 lt fields 1 c", "[:1]", "hexpire"),
        (1_001, "HEXPIREAT h 8 FIELDS 1 c", "[:1]", "hexpire"),
        (1_001, "HPEXPIRETIME h FIELDS 1 c", "[:8000]", ""),
        (1_001, "OBJECT ENCODING h", "listpackex", ""),
        (1_001, "HPEXPIREAT h 1001 FIELDS 2 c none", "[:2 :-2]", "hdel"),
        (1_001, "HPEXPIRE h 0 FIELDS 2 b b", "[:2 :-2]", "hdel"),
        (1_001, "HPEXPIREAT h 1 GT FIELDS 1 a", "[:0]", ""),
        (1_001, "HEXPIREAT h 0 FIELDS 1 a", "[:2]", "hdel del"),
        (1_001, "EXISTS h", ":0", ""),
        (1_001, "HEXPIRE h 10 FIELDS 2 a b", "[:-2 :-2]", ""),
        (1_001, "HTTL h FIELDS 1 a", "[:-2]", ""),
        (1_001, "HPERSIST h FIELDS 2 a a", "[:-2 :-2]", ""),
        (1_001, "HGETEX h FIELDS 1 a", "[nil]", ""),
        (1_001, "HGETDEL h FIELDS 2 a b", "[nil nil]", ""),
        (1_001, "DBSIZE", ":0", ""),
    ]);
}

#[test]
fn what_makes_no_sense_is_refused_as_redis_refuses_it() {
    const INVALID: &str = "-ERR invalid expire time in 'hpexpire' command";
    all(&[
        (1_000, "SET s 1", "+OK", "new set"),
        (1_000, "HSET h a 1", ":1", "new hset"),
        (1_000, "HEXPIRE s x y 1", "-ERR wrong number of arguments for 'hexpire' command", ""),
        (1_000, "HEXPIRE s x y 1 z z", "-WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (1_000, "HTTL s x y z", "-WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (1_000, "HGETEX s x y z", "-WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (1_000, "HGETDEL s x y z", "-WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (1_000, "HPERSIST s x y z", "-WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (1_000, "HSETEX s FIELDS 1 a b", "-WRONGTYPE Operation against a key holding the wrong kind of value", ""),
        (1_000, "HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range", ""),
        (1_000, "HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0", ""),
        (1_000, "HEXPIRE h 70368744178 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command", ""),
        (1_000, "HEXPIRE h 9223372036854775807 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command", ""),
        (1_000, "HPEXPIRE h 70368744176664 FIELDS 1 a", INVALID, ""),
        (1_000, "HPEXPIRE h 9223372036854775807 FIELDS 1 a", INVALID, ""),
        (u64::MAX, "HPEXPIRE h 1 FIELDS 1 a", INVALID, ""),
        (1_000, "HPEXPIRE h 70368744176663 FIELDS 1 a", "[:1]", "hexpire"),
        (1_000, "HPEXPIREAT h 70368744177664 FIELDS 1 a", "-ERR invalid expire time in 'hpexpireat' command", ""),
        (1_000, "HPEXPIREAT h 70368744177663 FIELDS 1 a", "[:1]", "hexpire"),
        (1_000, "HPTTL h FIELDS 1 a", "[:70368744176663]", ""),
        (1_000, "HEXPIRE h 1 FIELDZ 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position", ""),
        (
            1_000,
            "HEXPIRE h 1 NX XX FIELDS 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
            "",
        ),
        (1_000, "HEXPIRE h 1 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0", ""),
        (1_000, "HEXPIRE h 1 FIELDS x a", "-ERR Parameter `numFields` should be greater than 0", ""),
        (1_000, "HEXPIRE h 1 FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments", ""),
        (1_000, "HEXPIRE h 1 NX FIELDS 1", "-ERR The `numfields` parameter must match the number of arguments", ""),
        (1_000, "HTTL h FIELDS 0 a", "-ERR Number of fields must be a positive integer", ""),
        (
            1_000,
            "HTTL h FIELDS 9223372036854775807 a",
            "-ERR The `numfields` parameter must match the number of arguments",
            "",
        ),
        (1_000, "HPERSIST h FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments", ""),
        (1_000, "HPERSIST h a FIELDS 1", "-ERR Mandatory argument FIELDS is missing or not at the right position", ""),
        (1_000, "HGETEX h EX 1 FIELDS", "-ERR Number of fields must be a positive integer", ""),
        (1_000, "HGETEX h EX -1 FIELDS 1 a", "-ERR invalid expire time, must be >= 0", ""),
        (
            1_000,
            "HGETEX h KEEPTTL FIELDS 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position",
            "",
        ),
        (1_000, "HSETEX s FOO FIELDS 1 a b", "-ERR unknown argument: FOO", ""),
        (1_000, "HSETEX h FNX FXX FIELDS 1 a b", "-ERR Only one of FXX or FNX arguments can be specified", ""),
        (
            1_000,
            "HSETEX h EX 1 PX 1 FIELDS 1 a b",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            "",
        ),
        (
            1_000,
            "HSETEX h KEEPTTL EX FIELDS 1 a b",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            "",
        ),
        (1_000, "HSETEX h EX x FIELDS 1 a b", "-ERR value is not an integer or out of range", ""),
        (1_000, "HSETEX h FNX FIELDS 1 EX", "-ERR wrong number of arguments for 'hsetex' command", ""),
        (1_000, "HSETEX h FNX FNX a b", "-ERR Only one of FXX or FNX arguments can be specified", ""),
        (1_000, "HSETEX h FNX KEEPTTL FIELDS EX", "-ERR wrong number of arguments for 'hsetex' command", ""),
        (1_000, "HSETEX h FNX KEEPTTL x EX", "-ERR unknown argument: x", ""),
        (1_000, "HSETEX h FIELDS x a b", "-ERR invalid number of fields", ""),
        (1_000, "HSETEX h FIELDS 1 a b c", "-ERR wrong number of arguments for 'hsetex' command", ""),
        (1_000, "HSETEX h FIELDS 2 a b", "-ERR wrong number of arguments for 'hsetex' command", ""),
    ]);
}

#[test]
fn fields_are_set_read_and_taken_out_with_times() {
    all(&[
        (1_000, "HSETEX h FXX FIELDS 1 a 1", ":0", ""),
        (1_000, "HSETEX h EX 10 FIELDS 2 a 1 b 2", ":1", "new hset hexpire"),
        (1_000, "HPEXPIRETIME h FIELDS 2 a b", "[:11000 :11000]", ""),
        (1_000, "HSETEX h FNX FIELDS 2 c 1 b 2", ":0", ""),
        (1_000, "HSETEX h FXX FIELDS 2 c 1 b 2", ":0", ""),
        (1_000, "HSETEX h KEEPTTL FXX FIELDS 1 a 3", ":1", "hset"),
        (1_000, "HSETEX h FNX PXAT 5000 FIELDS 1 c 4", ":1", "hset hexpire"),
        (1_000, "HSETEX h FIELDS 1 b 5", ":1", "hset"),
        (1_000, "HPEXPIRETIME h FIELDS 3 a b c", "[:11000 :-1 :5000]", ""),
        (1_000, "HGETEX h FIELDS 4 a b c none", "[3 5 4 nil]", ""),
        (1_000, "HGETEX h PX 500 FIELDS 2 b none", "[5 nil]", "hexpire"),
        (1_000, "HGETEX h PERSIST FIELDS 2 a none", "[3 nil]", "hpersist"),
        (1_000, "HGETEX h PERSIST FIELDS 1 a", "[3]", ""),
        (1_000, "HPEXPIRETIME h FIELDS 3 a b c", "[:-1 :1500 :5000]", ""),
        (1_000, "HGETEX h EXAT 1 FIELDS 1 b", "[5]", "hdel"),
        (1_000, "HGETALL h", "[a 3 c 4]", ""),
        (1_000, "HINCRBY h c 5", ":9", "hincrby"),
        (1_000, "HINCRBYFLOAT h c 1.5", "10.5", "hincrbyfloat"),
        (1_000, "HPEXPIRETIME h FIELDS 1 c", "[:5000]", ""),
        (1_000, "HSETNX h c 1", ":0", ""),
        (1_000, "HSET h c 1", ":0", "hset"),
        (1_000, "HPEXPIRETIME h FIELDS 1 c", "[:-1]", ""),
        (1_000, "OBJECT ENCODING h", "listpack", ""),
        (1_000, "HSETEX h PXAT 1000 FIELDS 1 d 1", ":1", "hset hdel"),
        (1_000, "HGETDEL h FIELDS 3 a none a", "[3 nil nil]", "hdel"),
        (1_000, "HGETDEL h FIELDS 1 c", "[1]", "hdel del"),
        (1_000, "HSETEX h EXAT 0 FIELDS 1 d 1", ":1", "new hset hdel del"),
        (1_000, "EXISTS h", ":0", ""),
    ]);
}

#[test]
fn a_field_that_is_due_is_not_there_for_any_command() {
    all(&[
        (1_000, "HSET h a 1 b 2", ":2", "new hset"),
        (1_000, "HPEXPIRE h 100 FIELDS 1 a", "[:1]", "hexpire"),
        (1_099, "HMGET h a b", "[1 2]", ""),
        (1_100, "HMGET h a b", "[nil 2]", ""),
        (1_100, "HGET h a", "nil", ""),
        (1_100, "HLEN h", ":1", ""),
        (1_100, "HGETALL h", "[b 2]", ""),
        (1_100, "HKEYS h", "[b]", ""),
        (1_100, "HVALS h", "[2]", ""),
        (1_100, "HEXISTS h a", ":0", ""),
        (1_100, "HSTRLEN h a", ":0", ""),
        (1_100, "HSCAN h 0", "[0 [b 2]]", ""),
        (1_100, "HRANDFIELD h -3", "[b b b]", ""),
        (1_100, "HRANDFIELD h", "b", ""),
        (1_100, "HTTL h FIELDS 1 a", "[:-2]", ""),
        (1_100, "HPEXPIRETIME h FIELDS 1 a", "[:-2]", ""),
        (1_100, "LPUSH l h", ":1", "new lpush"),
        (1_100, "SORT l BY nosort GET *->a GET *->b", "[nil 2]", ""),
        (1_100, "COPY h copy", ":1", "hexpired new copy_to"),
        (1_100, "HGETALL copy", "[b 2]", ""),
        (1_100, "HSETEX h PX 10 FIELDS 1 a 7", ":1", "hset hexpire"),
        (1_110, "HDEL h a", ":0", "hexpired"),
        (1_110, "HSETEX h PX 10 FIELDS 1 a 7", ":1", "hset hexpire"),
        (1_120, "HSETNX h a 8", ":1", "hexpired hset"),
        (1_120, "HPTTL h FIELDS 1 a", "[:-1]", ""),
        (1_120, "HSETEX h PX 10 FIELDS 1 a 7", ":1", "hset hexpire"),
        (1_130, "HINCRBY h a 5", ":5", "hexpired hincrby"),
        (1_130, "HSETEX h PX 10 FIELDS 1 a 7", ":1", "hset hexpire"),
        (1_140, "active 500", ":1", "hexpired"),
        (1_140, "active 500", ":0", ""),
        (1_140, "HPEXPIRE h 10 FIELDS 1 b", "[:1]", "hexpire"),
        // If all fields have expired, so has the key, for all commands. A value of another type may be stored.
        (1_150, "EXISTS h", ":0", ""),
        (1_150, "TYPE h", "+none", ""),
        (1_150, "HLEN h", ":0", ""),
        (1_150, "HRANDFIELD h", "nil", ""),
        (1_150, "TTL h", ":-2", ""),
        (1_150, "RENAME h other", "-ERR no such key", "hexpired del"),
        (1_150, "HSETEX h PX 10 FIELDS 1 a 7", ":1", "new hset hexpire"),
        (1_160, "LPUSH h 1", ":1", "hexpired del new lpush"),
        (1_160, "DEL h", ":1", "del"),
        (1_160, "HSETEX h PX 10 FIELDS 1 a 7", ":1", "new hset hexpire"),
        (1_170, "active 500", ":1", "hexpired del"),
        // The key's own expiry time is before that of its field.
        (1_170, "HSETEX h PX 20 FIELDS 1 a 7", ":1", "new hset hexpire"),
        (1_170, "PEXPIRE h 10", ":1", "expire"),
        (1_180, "HLEN h", ":0", ""),
        (1_200, "active 500", ":1", "expired"),
        (1_200, "DBSIZE", ":2", ""),
    ]);
}

#[test]
fn a_watched_hash_is_another_once_a_field_is_due() {
    for (removed, seen) in [(false, "nil"), (true, "nil")] {
        let mut ours = Ours::default();
        ours.line("HSET h a 1 b 2", 1_000);
        ours.line("HPEXPIRE h 100 FIELDS 1 a", 1_000);
        assert_eq!(ours.line("WATCH h", 1_050), "+OK");
        ours.line("MULTI", 1_050);
        ours.line("HGET h a", 1_050);
        if removed {
            ours.write(&Write::Expire { now: 1_100, most: 500 });
        }
        assert_eq!(ours.line("EXEC", 1_100), seen);
        // If the watch begins after the field's expiry time, the transaction is executed.
        ours.line("WATCH h", 1_101);
        ours.line("MULTI", 1_101);
        ours.line("HGET h a", 1_101);
        assert_eq!(ours.line("EXEC", 1_102), "[nil]");
    }
}
