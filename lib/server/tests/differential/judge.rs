//! Compares answers, and shows the commands before the first difference.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use archipelago_server::operation::{put_bytes, put_number};

use crate::ours::Ours;
use crate::theirs::{Answer, Theirs, bytes};

/// Commands whose answers are unordered.
const UNORDERED: &[&str] = &["keys", "smembers", "sinter", "sunion", "sdiff", "hkeys", "hvals", "command"];
/// Commands whose answers are unordered pairs.
const PAIRS: &[&str] = &["hgetall", "config"];
/// Commands with random answers. Only the form of their answers is compared.
const CHANCE: &[&str] = &["randomkey", "spop", "srandmember", "hrandfield", "zrandmember"];

/// Commands that return a part at a time. Cursors differ, and so does the part that one call returns.
const PARTS: &[&str] = &["scan", "sscan", "hscan", "zscan"];
/// The most calls of a walk.
const CALLS: usize = 100_000;

/// Commands that empty both databases.
const BEGIN: [&str; 3] = ["discard", "flushall", "function flush"];

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// Makes answers about libraries comparable: libraries and their functions have no order, an error may name any function
/// that exists already, and the compression of payloads may differ.
fn of_libraries(answer: &Answer) -> Answer {
    match answer {
        Answer::Bulk(bytes) if bytes.first() == Some(&0xf5) => Answer::Bulk(b"a payload".to_vec()),
        Answer::Error(text) if text.ends_with(" already exists") => {
            let kind = text.split(' ').nth(1).unwrap_or_default();
            Answer::Error(format!("ERR {kind} already exists"))
        }
        Answer::Array(all) => {
            let mut all: Vec<Answer> = all.iter().map(of_libraries).collect();
            let first = |one: &Answer| match one {
                Answer::Array(pairs) => pairs.first().cloned(),
                _ => None,
            };
            let names = ["library_name", "name"].map(|name| Some(Answer::Bulk(name.into())));
            if all.iter().all(|one| names.contains(&first(one))) {
                all.sort_by(|one, other| one.partial_cmp(other).unwrap());
            }
            Answer::Array(all)
        }
        other => other.clone(),
    }
}

pub fn shown(command: &[Vec<u8>]) -> String {
    let words = command.iter().map(|word| match word.len() {
        0..=600 => format!("{:?}", String::from_utf8_lossy(word)),
        long => format!("<{long} bytes>"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns an answer as text for people. Long strings are shortened: one bit may make a string of half a gigabyte, and
/// formatting its digits would take seconds.
fn told(answer: &Answer) -> String {
    match answer {
        Answer::Bulk(bytes) if bytes.len() > 4000 => format!("<{} bytes>", bytes.len()),
        Answer::Bulk(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Answer::Array(all) => format!("[{}]", all.iter().map(told).collect::<Vec<_>>().join(", ")),
        short => format!("{short:?}"),
    }
}

fn canonical(name: &str, answer: &Answer) -> Answer {
    let Answer::Array(all) = answer else { return answer.clone() };
    let mut all = all.clone();
    if UNORDERED.contains(&name) {
        all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    } else if PAIRS.contains(&name) {
        let mut pairs: Vec<Vec<Answer>> = all.chunks(2).map(<[Answer]>::to_vec).collect();
        pairs.sort_by(|one, other| one.partial_cmp(other).unwrap());
        all = pairs.concat();
    }
    Answer::Array(all)
}

/// Returns the cursor and the elements of an answer to a scan. The pairs of `HSCAN` and `ZSCAN` are elements.
fn part(name: &str, answer: &Answer) -> Option<(Vec<u8>, Vec<Answer>)> {
    let Answer::Array(both) = answer else { return None };
    let [Answer::Bulk(cursor), Answer::Array(all)] = &both[..] else { return None };
    let elements = match name {
        "hscan" | "zscan" => all.chunks(2).map(|pair| Answer::Array(pair.to_vec())).collect(),
        _ => all.clone(),
    };
    Some((cursor.clone(), elements))
}

/// Makes the answer to a scan comparable: returns the elements that a whole walk with the command's options returns, from
/// cursor 0 until a cursor is 0 again, in order and each once. Any other answer is returned as it is. `ask` asks the
/// server of the answer.
///
/// # Panics
/// If the answer has an element that the walk does not return. If `once`, also if the walk returns an element twice.
pub fn whole(command: &[Vec<u8>], answer: Answer, once: bool, mut ask: impl FnMut(&[Vec<u8>]) -> Answer) -> Answer {
    let name = String::from_utf8_lossy(&command[0]).to_ascii_lowercase();
    let Some((_, some)) = Some(&name).filter(|name| PARTS.contains(&name.as_str())).and(part(&name, &answer)) else {
        return answer;
    };
    let (mut request, mut all) = (command.to_vec(), Vec::new());
    let place = if name == "scan" { 1 } else { 2 };
    request[place] = b"0".to_vec();
    for call in 0.. {
        assert!(call < CALLS, "{} does not end", shown(command));
        let answer = ask(&request);
        let (cursor, more) = part(&name, &answer).unwrap_or_else(|| panic!("{}: {answer:?}", shown(&request)));
        all.extend(more);
        if cursor == b"0" {
            break;
        }
        request[place] = cursor;
    }
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    let count = all.len();
    all.dedup();
    assert!(!once || all.len() == count, "{}: an element twice among {all:?}", shown(command));
    let strange = some.iter().find(|element| all.binary_search_by(|one| one.partial_cmp(element).unwrap()).is_err());
    assert!(strange.is_none(), "{}: {strange:?} is not among {all:?}", shown(command));
    Answer::Array(all)
}

pub fn equal(command: &[Vec<u8>], ours: &Answer, theirs: &Answer) -> bool {
    let name = String::from_utf8_lossy(&command[0]).to_ascii_lowercase();
    if CHANCE.contains(&name.as_str()) {
        return match (ours, theirs) {
            (Answer::Array(ours), Answer::Array(theirs)) => ours.len() == theirs.len(),
            (Answer::Bulk(_), Answer::Bulk(_)) => true,
            _ => ours == theirs,
        };
    }
    // Each side reads its own clock, one after the other.
    let slack = match name.as_str() {
        "pexpiretime" | "pttl" => 1000,
        "expiretime" | "ttl" => 1,
        _ => 0,
    };
    match (ours, theirs) {
        // Each server has counts of its own.
        (Answer::Array(_), Answer::Array(_)) if name == "memory" && command[1].eq_ignore_ascii_case(b"stats") => true,
        (Answer::Int(ours), Answer::Int(theirs)) if slack > 0 && *ours >= 0 && *theirs >= 0 => {
            ours.abs_diff(*theirs) <= slack
        }
        _ if matches!(name.as_str(), "function" | "exec") => of_libraries(ours) == of_libraries(theirs),
        _ if matches!(name.as_str(), "xpending" | "xinfo") => without_times(ours) == without_times(theirs),
        // The members within an area are unordered if the request asks for no order.
        _ if (name.starts_with("georadius") || name.starts_with("geosearch"))
            && !command.iter().any(|word| [&b"asc"[..], b"desc", b"count"].contains(&word.as_slice())) =>
        {
            canonical("keys", ours) == canonical("keys", theirs)
        }
        // The elements of a set are unordered.
        _ if name == "sort" && command.windows(2).any(|pair| pair[0] == b"by" && !pair[1].contains(&b'*')) => {
            canonical("keys", ours) == canonical("keys", theirs)
        }
        _ => canonical(&name, ours) == canonical(&name, theirs),
    }
}

/// Makes answers about streams comparable. They contain times of both sides' clocks, which may be a second apart.
fn without_times(answer: &Answer) -> Answer {
    const SINCE_1970: i64 = 1_000_000_000_000;
    let Answer::Array(all) = answer else { return answer.clone() };
    let is_pending = matches!(&all[..], [Answer::Bulk(_), Answer::Bulk(_), Answer::Int(_), Answer::Int(_)]);
    let all = all.iter().enumerate().map(|(at, one)| match one {
        // The time since an entry's delivery, or since the last activity of a consumer.
        Answer::Int(idle) if is_pending && at == 2 => Answer::Int(idle / 10_000),
        Answer::Int(idle) if at > 0 && all[at - 1] == Answer::Bulk(b"idle".to_vec()) => Answer::Int(idle / 10_000),
        Answer::Int(time) if *time > SINCE_1970 => Answer::Int(time / 10_000_000),
        _ => without_times(one),
    });
    Answer::Array(all.collect())
}

#[derive(Default)]
pub struct Judge {
    ours: Ours,
    family: String,
    history: Vec<String>,
    asked: u64,
    differences: BTreeMap<String, (u64, String)>,
    /// The times, commands and answers, if they are recorded.
    pub record: Option<Vec<u8>>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

impl Judge {
    /// Creates a judge that records if `records`.
    pub fn new(records: bool) -> Self {
        Self { record: records.then(Vec::new), ..Self::default() }
    }

    pub fn family(&mut self, name: &str, theirs: &mut Theirs) {
        self.family = name.into();
        for line in BEGIN {
            self.ask(words(line), theirs);
        }
    }

    pub fn ask(&mut self, command: Vec<Vec<u8>>, theirs: &mut Theirs) {
        self.asked += 1;
        let time = now();
        let ours = self.ours.whole(&command, time);
        let answer = theirs.ask(&command);
        let answer = whole(&command, answer, false, |command| theirs.ask(command));
        self.history.push(format!("{} -> {}", shown(&command), told(&answer)));
        if let Some(record) = &mut self.record {
            put_number(time, record);
            put_number(command.len() as u64, record);
            command.iter().for_each(|word| put_bytes(word, record));
            let mut encoded = Vec::new();
            bytes(&answer, &mut encoded);
            put_bytes(&encoded, record);
        }
        if equal(&command, &ours, &answer) {
            return;
        }
        let name = format!("{} {}", self.family, String::from_utf8_lossy(&command[0]).to_ascii_lowercase());
        let key = command.get(1).map(|key| format!("{:?}", String::from_utf8_lossy(key))).unwrap_or_default();
        let about = self.history.iter().rev().filter(|line| line.contains(&key)).take(7);
        let about: Vec<&str> = about.map(String::as_str).collect();
        let text = format!(
            "{}\n   ours   {}\n   theirs {}\n   before {}",
            shown(&command),
            told(&ours),
            told(&answer),
            about.get(1..).unwrap_or_default().join("\n          ")
        );
        self.differences.entry(name).or_insert((0, text)).0 += 1;
        // Later answers would differ as a consequence, so both databases are emptied.
        self.history.clear();
        for line in BEGIN {
            let command = words(line);
            self.ours.ask(&command, time);
            theirs.ask(&command);
        }
    }

    pub fn verdict(&self) {
        println!("{} commands", self.asked);
        let limit = if std::env::var_os("ARCHIPELAGO_TELL").is_some() { usize::MAX } else { 1_800 };
        for (name, (count, text)) in &self.differences {
            println!("{name}: {count} differences; the first:\n   {}", text.chars().take(limit).collect::<String>());
        }
        assert!(self.differences.is_empty(), "{} kinds of differences", self.differences.len());
    }
}
