//! Random commands from templates.
//!
//! In a template, a word in capital letters stands for a random argument. `a|b` stands for one of the words; a `~` in
//! an alternative separates its words. A word in brackets may be omitted. A word with `+` is repeated one to four
//! times. With a small probability a word is dropped, doubled or replaced.

use archipelago_server::db::Random;

use crate::{families, libraries, packs};

/// Templates of each family.
pub const FAMILIES: &[(&str, &[&str])] = &[
    ("strings", STRINGS),
    ("bits", BITS),
    ("keys", KEYS),
    ("transactions", TRANSACTIONS),
    ("hashes", HASHES),
    ("lists", LISTS),
    ("sets", SETS),
    ("zsets", ZSETS),
    ("lexes", LEXES),
    ("streams", families::STREAMS),
    ("groups", families::GROUPS),
    ("sort", families::SORT),
    ("geo", families::GEO),
    ("scripts", families::SCRIPTS),
    ("hyperloglogs", families::HYPERLOGLOGS),
    ("functions", families::FUNCTIONS),
    ("packs", families::PACKS),
];

const STRINGS: &[&str] = &[
    "set K V",
    "set K V",
    "set K I",
    "set K V [nx|xx] [get] [keepttl]",
    "set K V ex|px NEAR",
    "set K V exat|pxat TIME [get]",
    "get K",
    "get K",
    "setnx K V",
    "setex K NEAR V",
    "psetex K NEAR V",
    "getset K V",
    "getdel K",
    "getex K",
    "getex K [ex|px|exat|pxat] NEAR",
    "getex K persist",
    "getrange K I I",
    "substr K I I",
    "setrange K SMALL V",
    "mget K+",
    "mset K V K V",
    "msetnx K V K I",
    "incr K",
    "decr K",
    "incrby K I",
    "decrby K I",
    "incrbyfloat K F",
    "append K V",
    "strlen K",
    "lcs K K",
    "lcs K K len|idx",
    "lcs K K idx minmatchlen SMALL withmatchlen",
    "type K",
    "object encoding K",
    "del K",
    "expiretime K",
    "pexpiretime K",
    "set K F",
];

const BITS: &[&str] = &[
    "set K V",
    "setbit K BIT 0|1",
    "setbit K BIT 1",
    "getbit K BIT",
    "bitcount K",
    "bitcount K I I",
    "bitcount K I I byte|bit",
    "bitpos K 0|1",
    "bitpos K 0|1 I",
    "bitpos K 0|1 I I",
    "bitpos K 0|1 I I byte|bit",
    "bitop and|or|xor K K K",
    "bitop not K K",
    "bitop and|or|xor K K+",
    "bitfield K get FIELD BIT",
    "bitfield K set FIELD BIT I",
    "bitfield K incrby FIELD BIT I",
    "bitfield K overflow sat|fail|wrap incrby FIELD BIT I get FIELD BIT",
    "bitfield K overflow sat|fail|wrap set FIELD BIT I",
    "bitfield_ro K get FIELD BIT",
    "bitfield K set FIELD #1 I incrby FIELD #2 I",
    "get K",
    "strlen K",
    "del K",
    "object encoding K",
];

const KEYS: &[&str] = &[
    "set K V",
    "set K I",
    "del K+",
    "unlink K+",
    "exists K+",
    "touch K+",
    "type K",
    "dbsize",
    "keys PATTERN",
    "rename K K",
    "renamenx K K",
    "copy K K [replace]",
    "copy K K db 0|1|2 [replace]",
    "move K 0|1|2",
    "swapdb 0|1 1|2",
    "select 0|1|2",
    "flushdb",
    "expire K NEAR [nx|xx|gt|lt]",
    "pexpire K NEAR000 [nx|xx|gt|lt]",
    "expireat K TIME [nx|xx|gt|lt]",
    "pexpireat K TIME000 [nx|xx|gt|lt] [gt]",
    "persist K",
    "expiretime K",
    "pexpiretime K",
    "ttl MISSING",
    "expire K I",
    "randomkey",
    "ping",
    "ping V",
    "echo V",
    "scan CURSOR [match~PATTERN] [count~SMALL]",
    "scan CURSOR [count~COUNT] [match~PATTERN] [type~string|type~set|type~foo]",
    "scan 0 match PATTERN count 1000 type string",
    "mset HUNDRED",
    "sadd K M",
    "get K",
    "object encoding|refcount MISSING",
    "memory usage MISSING [samples] I",
    "memory foo|stats|purge K",
    "memory purge",
    "object foo K",
    "foo K V",
    "flushall [async|sync]",
    "set K V",
];

const TRANSACTIONS: &[&str] = &[
    "multi",
    "multi",
    "exec",
    "exec",
    "exec",
    "discard",
    "watch K",
    "watch K+",
    "unwatch",
    "set K V",
    "get K",
    "incr K",
    "append K V",
    "select 0|1",
    "foo",
    "del K",
    "expire K NEAR",
    "get K",
    "flushdb",
    "swapdb 0 1",
    "set K I",
    "incr K",
];

const HASHES: &[&str] = &[
    "hset K M V",
    "hset K M V M V M I",
    "hmset K M V M F",
    "hset K MANY V MANY V MANY V MANY V MANY V",
    "hsetnx K M V",
    "hget K M",
    "hmget K M+",
    "hdel K M+",
    "hlen K",
    "hstrlen K M",
    "hexists K M",
    "hkeys K",
    "hvals K",
    "hgetall K",
    "hincrby K M I",
    "hincrby K M I",
    "hincrbyfloat K M F",
    "hincrbyfloat K M F",
    "hscan K CURSOR [match~PATTERN] [count~SMALL]",
    "hscan K CURSOR [count~COUNT] [match~m?|match~*1*]",
    "hset K HUNDRED",
    "hrandfield K",
    "hrandfield K CH [withvalues]",
    "object encoding K",
    "type K",
    "set k0 V",
    "del K",
    "copy K K replace",
    "expiretime K",
];

const LISTS: &[&str] = &[
    "lpush K V+",
    "rpush K V+",
    "rpush K M+",
    "lpush K M+",
    "lpushx K V+",
    "rpushx K V+",
    "lpop K",
    "rpop K",
    "lpop K I",
    "rpop K SMALL",
    "llen K",
    "lindex K I",
    "lrange K I I",
    "lrange K 0 -1",
    "lpos K M",
    "lpos K M rank I [count] SMALL",
    "lpos K M count SMALL maxlen SMALL",
    "lset K I V",
    "linsert K before|after M V",
    "lrem K I M",
    "ltrim K I I",
    "rpoplpush K K",
    "lmove K K left|right left|right",
    "lmpop COUNT K K left|right [count] SMALL",
    "lmpop 1 K left|right",
    "lmpop 2 K K left|right count COUNT",
    "object encoding K",
    "type K",
    "set k0 V",
    "del K",
    "rpush K M M M M",
    "lpush K M M M",
];

const SETS: &[&str] = &[
    "sadd K M+",
    "sadd K SMALL+",
    "sadd K I I I",
    "sadd K MANY MANY MANY MANY MANY MANY",
    "srem K M+",
    "srem K SMALL+",
    "scard K",
    "sismember K M",
    "sismember K SMALL",
    "smismember K M+",
    "smembers K",
    "smove K K M",
    "smove K K SMALL",
    "spop gone",
    "spop gone I",
    "srandmember K",
    "srandmember K CH",
    "sscan K CURSOR [match~PATTERN] [count~SMALL]",
    "sscan K CURSOR [count~COUNT] [match~m?|match~*1*]",
    "sadd K HUNDRED",
    "sinter K+",
    "sunion K+",
    "sdiff K+",
    "sinterstore K K+",
    "sunionstore K K+",
    "sdiffstore K K+",
    "sintercard COUNT K K [limit] SMALL",
    "sintercard 2 K K limit I",
    "object encoding K",
    "set k0 V",
    "del K",
    "type K",
];

const ZSETS: &[&str] = &[
    "zadd K F M F M",
    "zadd K F M F M",
    "zadd K [nx|xx] [gt|lt] [ch] [incr] F M",
    "zadd K F MANY F MANY F MANY F MANY",
    "zadd K 0 M 0 M 0 M 0 M",
    "zincrby K F M",
    "zrem K M+",
    "zcard K",
    "zscore K M",
    "zmscore K M+",
    "zrank K M",
    "zrevrank K M",
    "zpopmin K",
    "zpopmax K [SMALL]",
    "zmpop COUNT K K min|max [count] SMALL",
    "zmpop 1 K min|max count COUNT",
    "zscan K CURSOR [match~PATTERN] [count~SMALL]",
    "zscan K CURSOR [count~COUNT] [match~m?|match~*1*]",
    "zadd K HUNDRED",
    "zrandmember K CH [withscores]",
    "zrange K I I [rev] [withscores]",
    "zrange K SCORE SCORE byscore [rev] [withscores]",
    "zrange K SCORE SCORE byscore limit I I",
    "zrevrange K I I [withscores]",
    "zrangebyscore K SCORE SCORE [withscores]",
    "zrevrangebyscore K SCORE SCORE limit SMALL SMALL",
    "zrangestore K K I I [rev]",
    "zrangestore K K SCORE SCORE byscore limit SMALL SMALL",
    "zcount K SCORE SCORE",
    "zremrangebyrank K I I",
    "zremrangebyscore K SCORE SCORE",
    "zunion 2 K K [withscores]",
    "zinter 2 K K weights F F [withscores]",
    "zdiff 2 K K [withscores]",
    "zunion COUNT K K aggregate min|max|sum",
    "zunionstore K 2 K K weights F F aggregate min|max|sum",
    "zinterstore K 2 K K aggregate min|max|sum",
    "zdiffstore K 2 K K",
    "zunionstore K COUNT K K",
    "zintercard 2 K K [limit] SMALL",
    "object encoding K",
    "type K",
    "set k0 V",
    "sadd k1 M+",
    "del K",
];

/// Members of equal scores. With different scores, the result of ranges by member depends on the implementation.
const LEXES: &[&str] = &[
    "zadd K 0 M 0 M 0 M 0 M",
    "zadd K 0 MANY 0 MANY 0 MANY",
    "zrem K M+",
    "zrange K LEX LEX bylex [rev] [withscores]",
    "zrange K LEX LEX bylex limit SMALL I",
    "zrangebylex K LEX LEX",
    "zrevrangebylex K LEX LEX limit SMALL I",
    "zlexcount K LEX LEX",
    "zremrangebylex K LEX LEX",
    "set k0 V",
    "del K",
];

pub struct Generator {
    random: Random,
    templates: &'static [&'static str],
}

impl Generator {
    pub fn new(seed: u64, templates: &'static [&'static str]) -> Self {
        Self { random: Random(seed), templates }
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.below(all.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.random.below(one_in) == 0
    }

    pub fn command(&mut self) -> Vec<Vec<u8>> {
        let template = self.pick(self.templates);
        let mut words: Vec<Vec<u8>> = Vec::new();
        for word in template.split(' ') {
            let (word, optional) = match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
                Some(word) => (word, true),
                None => (word, false),
            };
            if optional && self.chance(2) {
                continue;
            }
            let (word, times) = match word.strip_suffix('+').filter(|word| !word.is_empty()) {
                Some(word) => (word, 1 + self.random.below(4)),
                None => (word, 1),
            };
            for _ in 0..times {
                let choices: Vec<&str> = word.split('|').collect();
                let word = self.pick(&choices);
                for (at, part) in word.split('~').enumerate() {
                    if part == "HUNDRED" {
                        // A hundred words, most of them new.
                        words.extend((0..100).map(|_| self.random.below(100_000).to_string().into_bytes()));
                    } else if at > 0 || !part.is_empty() {
                        words.push(self.word(part));
                    }
                }
            }
        }
        if self.chance(30) && words.len() > 1 {
            let at = 1 + self.random.below(words.len() - 1);
            match self.random.below(3) {
                0 => _ = words.remove(at),
                1 => words.insert(at, words[at].clone()),
                _ => words[at] = self.word("V"),
            }
        }
        words
    }

    fn integer(&mut self) -> String {
        match self.random.below(12) {
            0 => self
                .pick(&["9223372036854775807", "-9223372036854775808", "9223372036854775808", "4294967296", "-1", "0"])
                .into(),
            1 => (self.random.draw() as i64 >> self.random.below(63)).to_string(),
            2 => self.pick(&["01", "+1", " 1", "1.0", "", "abc", "1 "]).into(),
            _ => (self.random.below(14) as i64 - 5).to_string(),
        }
    }

    fn float(&mut self) -> String {
        match self.random.below(12) {
            0 => self.pick(&["inf", "-inf", "+inf", "nan", "1e400", "abc", "", " 1", "1e5", "-0", "0x10"]).into(),
            1 => format!("{}", self.random.below(1000) as f64 / 7.0),
            2 => format!("{}e{}", self.random.below(100), self.random.below(20) as i64 - 10),
            _ => format!("{}", self.random.below(40) as f64 / 4.0 - 5.0),
        }
    }

    fn text(&mut self) -> Vec<u8> {
        match self.random.below(16) {
            0 => Vec::new(),
            1 => self.integer().into_bytes(),
            2 => self.float().into_bytes(),
            3 => {
                let length = self.pick(&[43, 44, 45, 63, 64, 65, 100]);
                (0..length).map(|at| b'a' + (at % 26) as u8).collect()
            }
            4 => (0..self.random.below(9)).map(|_| self.random.draw() as u8).collect(),
            5 => b"foobar".to_vec(),
            _ => (0..1 + self.random.below(6)).map(|_| b'a' + self.random.below(4) as u8).collect(),
        }
    }

    /// Returns a stream's ID, mostly a small one.
    fn id(&mut self) -> String {
        match self.random.below(16) {
            0 => self.pick(&["0-*", "5-*", "abc", "-", "+", "0-0", "1-1-1", "01-1", " 1", "$", ">", ""]).into(),
            1 => self.pick(&["18446744073709551615-18446744073709551615", "18446744073709551616", "9-x", "1-"]).into(),
            2 => format!("{}-*", self.random.below(60)),
            3 | 4 => self.random.below(60).to_string(),
            _ => format!("{}-{}", self.random.below(60), self.random.below(4)),
        }
    }

    fn now() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    }

    fn word(&mut self, word: &str) -> Vec<u8> {
        match word {
            "LIBRARY" => libraries::library(&mut self.random).into_bytes(),
            "PAYLOAD" => libraries::payload(&mut self.random),
            "PACKS" => packs::script(&mut self.random).into_bytes(),
            "SCRIPT" => libraries::script(&mut self.random).into_bytes(),
            "FUNCTION" => libraries::function(&mut self.random).into_bytes(),
            "BYTE" => vec![self.random.draw() as u8],
            "K" => format!("k{}", self.random.below(8)).into_bytes(),
            "MISSING" => b"missing".to_vec(),
            "V" => self.text(),
            "M" => format!("m{}", self.random.below(10)).into_bytes(),
            "SCORE" => match self.random.below(8) {
                0 => b"-inf".to_vec(),
                1 => b"+inf".to_vec(),
                2 => format!("({}", self.float()).into_bytes(),
                _ => self.float().into_bytes(),
            },
            "LEX" => match self.random.below(8) {
                0 | 1 => b"-".to_vec(),
                2 | 3 => b"+".to_vec(),
                4 => format!("(m{}", self.random.below(10)).into_bytes(),
                5 => self.text(),
                _ => format!("[m{}", self.random.below(10)).into_bytes(),
            },
            "MANY" => format!("member{}", self.random.below(300)).into_bytes(),
            "G" => format!("g{}", self.random.below(3)).into_bytes(),
            "C" => format!("c{}", self.random.below(3)).into_bytes(),
            "I" => self.integer().into_bytes(),
            "F" => self.float().into_bytes(),
            "SMALL" => self.random.below(12).to_string().into_bytes(),
            // No large numbers are drawn: for a negative count, Redis returns as many elements as requested.
            "CH" => (self.random.below(30) as i64 - 15).to_string().into_bytes(),
            "COUNT" => (1 + self.random.below(5)).to_string().into_bytes(),
            // The relative times are so long that the difference between the clocks does not matter.
            "NEAR" => self.pick(&["100000000", "200000000", "-1", "0", "9223372036854775807", "x"]).as_bytes().to_vec(),
            "NEAR000" => self.pick(&["100000000000", "-1", "0", "9223372036854775807"]).as_bytes().to_vec(),
            "TIME" => (Self::now() / 100_000 * 100_000 + self.pick(&[1_000_000, 2_000_000])).to_string().into_bytes(),
            "TIME000" => (Self::now() / 100_000 * 100_000_000 + self.pick(&[1_000_000_000, 2_000_000_000]))
                .to_string()
                .into_bytes(),
            "CURSOR" => self.pick(&["0", "0", "0", "0", "17", "4000000000", "-1", "", "abc"]).as_bytes().to_vec(),
            "BIT" => match self.random.below(20) {
                0 => self.integer().into_bytes(),
                _ => self.random.below(120).to_string().into_bytes(),
            },
            "FIELD" => {
                let width = self.random.below(66);
                format!("{}{width}", self.pick(&["i", "u"])).into_bytes()
            }
            "QUARTER" => format!("{}", self.random.below(40) as f64 / 4.0 - 5.0).into_bytes(),
            "LON" => format!("{}", self.random.below(3_700_000) as f64 / 10_000.0 - 185.0).into_bytes(),
            "LAT" => format!("{}", self.random.below(1_740_000) as f64 / 10_000.0 - 87.0).into_bytes(),
            "FAR" => match self.random.below(6) {
                0 => self.float().into_bytes(),
                power => (self.random.below(20) * 10_usize.pow(power as u32)).to_string().into_bytes(),
            },
            "ID" => self.id().into_bytes(),
            "INTERVAL" => match self.random.below(6) {
                0 => self.pick(&["-", "+", "(", "(-", "(0", "(18446744073709551615-18446744073709551615"]).into(),
                1 => format!("({}", self.id()).into_bytes(),
                _ => self.id().into_bytes(),
            },
            "PATTERN" => {
                self.pick(&["*", "k?", "k[1-3]", "k[^1]", "x*", "k\\1", "?*", "k[", "[k]3"]).as_bytes().to_vec()
            }
            other => other.as_bytes().to_vec(),
        }
    }
}
