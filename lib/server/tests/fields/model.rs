//! A model: a map of fields with values and times in plain Rust. Random commands are compared with it, at times that the
//! test sets.

use std::collections::BTreeMap;

use crate::ours::Ours;
use archipelago_server::db::hashing::Hashing;
use archipelago_server::db::{Db, Random, image};
use archipelago_server::operation::{Input, Write};
use archipelago_server::reply::Reply;

/// Fields in order, each with its value and expiry time.
type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

#[derive(Default)]
struct Model {
    /// The keys, each with its fields and expiry time.
    keys: BTreeMap<Vec<u8>, (Fields, Option<u64>)>,
}

fn number(text: &[u8]) -> i64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// Returns the expiry time that an argument of `HPEXPIRE` or a similar command stands for, in milliseconds since 1970.
/// The command's name determines the argument's unit, and whether it is relative to `now`.
fn time(name: &str, argument: &[u8], now: u64) -> u64 {
    let scale = if name.starts_with("hp") || name == "px" { 1 } else { 1000 };
    number(argument) as u64 * scale + if name.ends_with("at") { 0 } else { now }
}

impl Model {
    /// Removes all fields and keys that have expired.
    fn pass(&mut self, now: u64) {
        self.keys.retain(|_, (fields, at)| {
            fields.retain(|_, (_, at)| at.is_none_or(|at| at > now));
            !fields.is_empty() && at.is_none_or(|at| at > now)
        });
    }

    fn fields(&mut self, key: &[u8]) -> &mut Fields {
        &mut self.keys.entry(key.to_vec()).or_default().0
    }

    fn expire(&mut self, key: &[u8], name: &[u8], at: u64, condition: &[u8], now: u64) -> i64 {
        let Some((_, before)) = self.fields(key).get_mut(name) else { return -2 };
        let allowed = match condition {
            b"nx" => before.is_none(),
            b"xx" => before.is_some(),
            b"gt" => before.is_some_and(|before| at > before),
            b"lt" => before.is_none_or(|before| at < before),
            _ => true,
        };
        if !allowed {
            return 0;
        }
        *before = Some(at);
        if at <= now { 2 } else { 1 }
    }

    fn answer(&mut self, words: &[Vec<u8>], now: u64) -> Reply {
        self.pass(now);
        let reply = self.carry_out(words, now);
        self.pass(now);
        reply
    }

    fn carry_out(&mut self, words: &[Vec<u8>], now: u64) -> Reply {
        let (name, key) = (std::str::from_utf8(&words[0]).unwrap(), &words[1]);
        let fields = self.keys.get(key).map(|(fields, _)| fields.clone()).unwrap_or_default();
        let value = |name: &Vec<u8>| fields.get(name).map(|(value, _)| value.clone());
        let bulk = |name: &Vec<u8>| value(name).map_or(Reply::Null, Reply::Bulk);
        let both = |(name, (value, _)): (&Vec<u8>, &(Vec<u8>, Option<u64>))| [Reply::bulk(name), Reply::bulk(value)];
        let times = |told: fn(u64, u64) -> i64| {
            let one = |name| match fields.get(name) {
                None => -2,
                Some((_, at)) => at.map_or(-1, |at| told(at, now)),
            };
            Reply::Array(words[4..].iter().map(|name| Reply::Int(one(name))).collect())
        };
        match name {
            "hset" => {
                let new = words[2..]
                    .chunks(2)
                    .filter(|pair| self.fields(key).insert(pair[0].clone(), (pair[1].clone(), None)).is_none());
                Reply::count(new.count())
            }
            "hsetnx" => {
                let new = value(&words[2]).is_none();
                if new {
                    self.fields(key).insert(words[2].clone(), (words[3].clone(), None));
                }
                Reply::Int(new.into())
            }
            "hincrby" => {
                let (before, at) = fields.get(&words[2]).cloned().unwrap_or((b"0".to_vec(), None));
                let Some(before) = std::str::from_utf8(&before).unwrap().parse::<i64>().ok() else {
                    return Reply::Error(archipelago_server::reply::Fault::new("ERR hash value is not an integer"));
                };
                let sum = before + number(&words[3]);
                self.fields(key).insert(words[2].clone(), (sum.to_string().into_bytes(), at));
                Reply::Int(sum)
            }
            "hget" => bulk(&words[2]),
            "hmget" => Reply::Array(words[2..].iter().map(bulk).collect()),
            "hdel" => Reply::count(words[2..].iter().filter(|name| self.fields(key).remove(*name).is_some()).count()),
            "hlen" => Reply::count(fields.len()),
            "hstrlen" => Reply::count(value(&words[2]).map_or(0, |value| value.len())),
            "hexists" => Reply::Int(value(&words[2]).is_some().into()),
            "hkeys" => Reply::bulks(fields.keys()),
            "hvals" => Reply::bulks(fields.values().map(|(value, _)| value)),
            "hgetall" => Reply::Map(fields.iter().flat_map(both).collect()),
            "hscan" => Reply::Array(vec![Reply::bulk("0"), Reply::Array(fields.iter().flat_map(both).collect())]),
            "hrandfield" => Reply::bulks(fields.keys()),
            "hpexpire" | "hexpire" | "hpexpireat" | "hexpireat" => {
                let condition = if words[3] == b"fields" { Vec::new() } else { words[3].clone() };
                let first = if condition.is_empty() { 5 } else { 6 };
                let at = time(name, &words[2], now);
                let mut one = |name: &Vec<u8>| {
                    let set = self.expire(key, name, at, &condition, now);
                    if set == 2 {
                        self.fields(key).remove(name);
                    }
                    Reply::Int(set)
                };
                Reply::Array(words[first..].iter().map(&mut one).collect())
            }
            "httl" => times(|at, now| (at - now).div_ceil(1000) as i64),
            "hpttl" => times(|at, now| (at - now) as i64),
            "hexpiretime" => times(|at, _| at.div_ceil(1000) as i64),
            "hpexpiretime" => times(|at, _| at as i64),
            "hpersist" => {
                let mut one = |name| match self.fields(key).get_mut(name) {
                    None => -2,
                    Some((_, at)) => at.take().map_or(-1, |_| 1),
                };
                Reply::Array(words[4..].iter().map(|name| Reply::Int(one(name))).collect())
            }
            "hgetex" => {
                let first = words.iter().position(|word| word == b"fields").unwrap() + 2;
                let mut one = |name: &Vec<u8>| {
                    let told = self.fields(key).get(name).map_or(Reply::Null, |(value, _)| Reply::bulk(value));
                    match words[2].as_slice() {
                        b"persist" => _ = self.fields(key).get_mut(name).map(|(_, at)| *at = None),
                        b"px" => {
                            let at = time("px", &words[3], now);
                            if self.expire(key, name, at, b"", now) == 2 {
                                self.fields(key).remove(name);
                            }
                        }
                        _ => {}
                    }
                    told
                };
                Reply::Array(words[first..].iter().map(&mut one).collect())
            }
            "hgetdel" => {
                let one = |name| self.fields(key).remove(name).map_or(Reply::Null, |(value, _)| Reply::Bulk(value));
                Reply::Array(words[4..].iter().map(one).collect())
            }
            "hsetex" => {
                let at = words.iter().position(|word| word == b"fields").unwrap();
                let pairs = words[at + 2..].chunks(2);
                let found = pairs.clone().filter(|pair| fields.contains_key(&pair[0])).count();
                let (has, mut px) = (|word: &[u8]| words[2..at].iter().any(|other| other == word), None);
                if has(b"fnx") && found > 0 || has(b"fxx") && found < pairs.len() {
                    return Reply::Int(0);
                }
                if let Some(place) = words[..at].iter().position(|word| word == b"px") {
                    px = Some(time("px", &words[place + 1], now));
                }
                for pair in pairs {
                    let before = self.fields(key).get(&pair[0]).and_then(|(_, at)| *at);
                    let kept = if has(b"keepttl") { before } else { None };
                    self.fields(key).insert(pair[0].clone(), (pair[1].clone(), px.or(kept)));
                }
                Reply::Int(1)
            }
            "del" => Reply::Int(self.keys.remove(key).is_some().into()),
            "exists" => Reply::Int(self.keys.contains_key(key).into()),
            "pexpire" => {
                let found = self.keys.get_mut(key).map(|(_, at)| *at = Some(now + number(&words[2]) as u64));
                Reply::Int(found.is_some().into())
            }
            "rename" => {
                let Some(entry) = self.keys.remove(key) else {
                    return Reply::Error(archipelago_server::reply::fault::NO_SUCH_KEY);
                };
                self.keys.insert(words[2].clone(), entry);
                Reply::OK
            }
            "copy" => {
                let Some(entry) = self.keys.get(key).cloned() else { return Reply::Int(0) };
                self.keys.insert(words[2].clone(), entry);
                Reply::Int(1)
            }
            _ => panic!("{name}"),
        }
    }
}

const TEMPLATES: &[&str] = &[
    "hset K F V",
    "hset K F V F V",
    "hset K F N",
    "hsetnx K F V",
    "hincrby K F N",
    "hget K F",
    "hmget K F F F",
    "hdel K F",
    "hdel K F F",
    "hlen K",
    "hstrlen K F",
    "hexists K F",
    "hkeys K",
    "hvals K",
    "hgetall K",
    "hscan K 0 count 100000",
    "hrandfield K 100000",
    "hpexpire K T fields 2 F F",
    "hpexpire K T nx fields 2 F F",
    "hpexpire K T xx fields 1 F",
    "hpexpire K T gt fields 2 F F",
    "hpexpire K T lt fields 2 F F",
    "hexpire K 0 fields 1 F",
    "hexpire K 1 fields 3 F F F",
    "hpexpireat K 500 fields 1 F",
    "hexpireat K 2 fields 1 F",
    "httl K fields 2 F F",
    "hpttl K fields 2 F F",
    "hexpiretime K fields 1 F",
    "hpexpiretime K fields 3 F F F",
    "hpersist K fields 2 F F",
    "hgetex K fields 2 F F",
    "hgetex K px T fields 2 F F",
    "hgetex K persist fields 2 F F",
    "hsetex K fields 2 F V F V",
    "hsetex K px T fields 2 F V F V",
    "hsetex K keepttl fields 1 F V",
    "hsetex K fnx px T fields 1 F V",
    "hsetex K fxx keepttl fields 2 F V F V",
    "hgetdel K fields 2 F F",
    "del K",
    "exists K",
    "pexpire K T",
    "rename K K",
    "copy K K replace",
];

fn words(random: &mut Random) -> Vec<Vec<u8>> {
    let mut many = false;
    let word = |word: &str, random: &mut Random| match word {
        "K" => {
            let key = random.below(5);
            many = key == 0;
            format!("k{key}")
        }
        // One key has many fields, so that it is a table most of the time. Some fields are too long for a pack and for an
        // entry of the table.
        "F" if many => format!("f{}", random.below(400)),
        "F" if random.below(400) == 0 => format!("{:0>80}", random.below(4)),
        "F" => format!("f{}", random.below(8)),
        "V" if random.below(100) == 0 => "v".repeat(random.below(90)),
        "V" => format!("v{}", random.below(1000)),
        "N" => random.below(1000).to_string(),
        "T" => [0, 1, 5, 20, 300][random.below(5)].to_string(),
        other => other.into(),
    };
    let mut word = word;
    let template = TEMPLATES[random.below(TEMPLATES.len())];
    template.split(' ').map(|part| word(part, random).into_bytes()).collect()
}

/// Sorts an answer whose elements are unordered.
fn ordered(name: &[u8], reply: Reply) -> Reply {
    let pairs = |all: Vec<Reply>, width| {
        let mut pairs: Vec<Vec<Reply>> = all.chunks(width).map(<[Reply]>::to_vec).collect();
        pairs.sort_by_key(|pair| format!("{pair:?}"));
        pairs.concat()
    };
    match (name, reply) {
        (b"hgetall", Reply::Map(all)) => Reply::Map(pairs(all, 2)),
        (b"hkeys" | b"hvals" | b"hrandfield", Reply::Array(all)) => Reply::Array(pairs(all, 1)),
        (b"hscan", Reply::Array(mut all)) => {
            let Some(Reply::Array(met)) = all.pop() else { panic!("a scan has elements") };
            Reply::Array(all.into_iter().chain([Reply::Array(pairs(met, 2))]).collect())
        }
        (_, reply) => reply,
    }
}

/// Sends a command by itself, in a transaction, or in a script.
fn ask(ours: &mut Ours, words: &[Vec<u8>], way: usize, now: u64) -> Reply {
    // Some commands are not sent in scripts. For example, scripts have no maps.
    match way {
        0 => {
            ours.ask(&["MULTI"], now);
            ours.ask(words, now);
            match ours.ask(&["EXEC"], now) {
                Reply::Array(mut all) => all.remove(0),
                other => other,
            }
        }
        1 if !matches!(words[0].as_slice(), b"hgetall" | b"hscan" | b"rename" | b"hincrby") => {
            let script = "return redis.call(unpack(ARGV))";
            let head = [&b"EVAL"[..], script.as_bytes(), b"1", &words[1]];
            let all: Vec<&[u8]> = head.into_iter().chain(words.iter().map(Vec::as_slice)).collect();
            ours.ask(&all, now)
        }
        _ => ours.ask(words, now),
    }
}

/// Returns the same database, restored from a snapshot's image and from a file.
fn again(db: &Db) -> [Db; 2] {
    let (mut one, head) = (Db::default(), db.begin_walk());
    one.resume(&head).unwrap();
    let bytes = db.walk_on(usize::MAX).unwrap().bytes;
    let mut input = Input(&bytes);
    while !input.0.is_empty() {
        let (index, entry) = image::entry(&mut input, one.hashing()).unwrap();
        one.admit(index, entry).unwrap();
    }
    let mut file = Vec::new();
    archipelago_server::rdb::write(db, &mut file).unwrap();
    [one, archipelago_server::rdb::read(&mut &*file, Hashing::default()).unwrap().db]
}

fn run(seed: u64, steps: usize) -> usize {
    let (mut ours, mut model, mut random) = (Ours::default(), Model::default(), Random(seed));
    let (mut now, mut due) = (1_000, 0);
    for step in 0..steps {
        now += [0, 0, 0, 1, 3, 30][random.below(6)];
        let words = words(&mut random);
        // Renaming or copying a key to itself is refused or has no effect, so it is left out.
        let to_itself = matches!(words[0].as_slice(), b"rename" | b"copy") && words[1] == words[2];
        if !to_itself {
            let way = random.below(8);
            let expected = ordered(&words[0], model.answer(&words, now).apart());
            let told = ordered(&words[0], ask(&mut ours, &words, way, now));
            assert_eq!(
                told,
                expected,
                "seed {seed}, step {step}, way {way}: {:?}",
                words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>()
            );
        }
        due += usize::from(ours.db.expired(now) > 0);
        match random.below(60) {
            0 => drop(ours.write(&Write::Expire { now, most: 3 })),
            1 => {
                let key = format!("k{}", random.below(5)).into_bytes();
                if let Reply::Bulk(payload) = ours.ask(&[&b"DUMP"[..], &key], now) {
                    model.pass(now);
                    let fields = model.keys[&key].0.clone();
                    model.keys.insert(b"k1".to_vec(), (fields, None));
                    assert_eq!(ours.ask(&[&b"RESTORE"[..], b"k1", b"0", &payload, b"REPLACE"], now), Reply::OK);
                }
            }
            _ => {}
        }
        if step % 500 == 0 {
            assert_eq!(ours.db.digest(), ours.replica.digest(), "seed {seed}, step {step}");
            let [image, file] = again(&ours.db);
            assert_eq!(image.digest(), ours.db.digest(), "seed {seed}, step {step}: the image");
            assert_eq!(image.expired(now), ours.db.expired(now));
            assert_eq!(file.expired(now), ours.db.expired(now));
            ours.replica = image;
        }
    }
    due
}

#[test]
fn random_commands_are_answered_as_a_map_with_times_answers() {
    let due: usize = (0..16).map(|seed| run(seed, 3_000)).sum();
    assert!(due > 5_000, "what is due and still there is the point: {due} times");
}
