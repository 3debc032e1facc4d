//! `SLOWLOG` and `LATENCY`: commands that took long.
//!
//! A read is timed individually. Changes are timed as a batch, so it is unknown which change of a slow batch took the
//! time. Of a slow batch, only those commands are logged whose duration grows with their data. While the limit is below
//! a millisecond, all commands of a slow batch are logged with their arguments. At higher limits the arguments of the
//! other commands are not kept, because keeping them costs a copy. If no command is logged by these rules, all changes
//! of the batch are logged without their arguments.
//!
//! A transaction is one change. Its duration grows with the number of its commands, so it is logged as `EXEC` with this
//! number. Its commands are logged by the same rules as commands outside of transactions, except that commands of the
//! server are never logged: the loop carries them out after the batch.

use archipelago_platform::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use super::event_loop::Loop;
use super::shared::{Card, lock};
use super::stats::BUCKETS;
use crate::args::Args;
use crate::command::{self, Command, Run, category, flag, help};
use crate::family::parse;
use crate::operation::{Call, Write};
use crate::reply::{Fault, Reply, cut};

/// The maximum number of words of an entry, and of bytes of a word, as in Redis.
const WORDS: usize = 32;
const BYTES: usize = 128;
/// The maximum number of samples of an event.
const SAMPLES: usize = 160;

struct Entry {
    id: i64,
    /// The time, in seconds since 1970.
    at: u64,
    micros: u64,
    words: Vec<Vec<u8>>,
    peer: String,
    name: Vec<u8>,
}

/// Commands that took long.
pub struct Slow {
    /// The least duration that is logged, in microseconds; negative if nothing is logged.
    after: AtomicI64,
    most: AtomicUsize,
    entries: Mutex<(VecDeque<Entry>, i64)>,
    /// The least duration that is sampled, in milliseconds; 0 if nothing is sampled.
    monitor: AtomicU64,
    samples: Mutex<BTreeMap<&'static str, Samples>>,
}

#[derive(Default)]
struct Samples {
    /// The time in seconds since 1970, and the duration in milliseconds.
    all: VecDeque<(u64, u64)>,
    longest: u64,
}

impl Default for Slow {
    fn default() -> Self {
        Self {
            after: AtomicI64::new(10_000),
            most: AtomicUsize::new(128),
            entries: Mutex::default(),
            monitor: AtomicU64::new(0),
            samples: Mutex::default(),
        }
    }
}

/// A command that may have made its batch slow: the index of its change in the batch, the command, and its arguments.
pub type Suspect = (usize, &'static Command, Args);

impl Slow {
    /// Applies a parameter's value. The value was checked before.
    pub fn configure(&self, name: &str, value: &str) {
        match name {
            "slowlog-log-slower-than" => self.after.store(value.parse().unwrap_or(-1), Relaxed),
            "slowlog-max-len" => {
                let most = value.parse().unwrap_or(usize::MAX);
                self.most.store(most, Relaxed);
                lock(&self.entries).0.truncate(most);
            }
            "latency-monitor-threshold" => self.monitor.store(value.parse().unwrap_or(0), Relaxed),
            _ => {}
        }
    }

    /// Returns whether a duration must be logged or sampled.
    pub fn is_slow(&self, took: Duration) -> bool {
        let (after, monitor) = (self.after.load(Relaxed), self.monitor.load(Relaxed));
        (after >= 0 && took.as_micros() as i64 >= after) || (monitor > 0 && took.as_millis() as u64 >= monitor)
    }

    /// Logs a command if its duration reaches the limit for logging, and samples the duration if it reaches the limit
    /// for sampling.
    pub fn tell(&self, card: Option<&Arc<Card>>, command: &Command, args: Option<&Args>, took: Duration) {
        let (now, micros) = (super::now() / 1000, took.as_micros() as u64);
        let monitor = self.monitor.load(Relaxed);
        if monitor > 0 && micros / 1000 >= monitor {
            self.sample(if command.has(flag::FAST) { "fast-command" } else { "command" }, now, micros / 1000);
        }
        let after = self.after.load(Relaxed);
        let most = self.most.load(Relaxed);
        if after < 0 || (micros as i64) < after || most == 0 {
            return;
        }
        let kept = |args| words(command, args);
        let words = args.map_or_else(|| vec![command.name.as_bytes().to_vec(), b"...".to_vec()], kept);
        let name = card.map(|card| lock(&card.name).clone()).unwrap_or_default();
        let peer = card.map(|card| card.peer.to_string()).unwrap_or_default();
        let mut entries = lock(&self.entries);
        let id = entries.1;
        entries.1 += 1;
        entries.0.push_front(Entry { id, at: now, micros, words, peer, name });
        entries.0.truncate(most);
    }

    fn sample(&self, event: &'static str, now: u64, millis: u64) {
        let mut samples = lock(&self.samples);
        let samples = samples.entry(event).or_default();
        samples.longest = samples.longest.max(millis);
        match samples.all.back_mut() {
            // Of all samples within a second, the longest is kept.
            Some((at, longest)) if *at == now => *longest = millis.max(*longest),
            _ => samples.all.push_back((now, millis)),
        }
        if samples.all.len() > SAMPLES {
            samples.all.pop_front();
        }
    }

    /// Returns the commands of a batch that are to be logged if the batch is slow. If the result is empty, all changes
    /// are to be logged. O(bytes of the returned commands' arguments + commands of the batch).
    pub fn suspects(&self, batch: &[Write]) -> Vec<Suspect> {
        let (after, monitor) = (self.after.load(Relaxed), self.monitor.load(Relaxed));
        if after < 0 && monitor == 0 {
            return Vec::new();
        }
        let keeps = (0..1000).contains(&after);
        let is_suspect = |call: &&Call| keeps || grows(call.command);
        let mut suspects: Vec<Suspect> = Vec::new();
        for (at, write) in batch.iter().enumerate() {
            let calls = match write {
                Write::Call(call) => core::slice::from_ref(call),
                Write::Exec { calls, .. } => &calls[..],
                _ => continue,
            };
            let named = calls.iter().filter(|call| !matches!(call.command.run, Run::Session)).filter(is_suspect);
            suspects.extend(named.map(|call| (at, call.command, call.args.clone())));
            if matches!(write, Write::Exec { .. }) && (keeps || !calls.is_empty()) {
                let command = command::find(b"exec").expect("it is in the registry");
                suspects.push((at, command, ["EXEC", &format!("... (commands: {})", calls.len())].iter().collect()));
            }
        }
        suspects
    }
}

/// Returns whether a command's duration grows with its data. (That of a few commands of strings grows, too, but only
/// with the bytes of their arguments and of one value.)
fn grows(command: &Command) -> bool {
    !command.has(flag::FAST) && command.categories & category::STRING == 0
}

/// Returns the words of an entry. Too many words and too long words are cut, with a note of how much is missing.
fn words(command: &Command, args: &Args) -> Vec<Vec<u8>> {
    let kept = if args.len() > WORDS { WORDS - 1 } else { args.len() };
    let mut words: Vec<Vec<u8>> = Vec::new();
    for (place, word) in args.from(0).enumerate().take(kept) {
        if is_secret(command, args, place) {
            words.push(b"(redacted)".to_vec());
            continue;
        }
        words.push(cut(word, BYTES));
    }
    if args.len() > kept {
        words.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    words
}

/// Returns whether an argument may be a password, or part of a rule with passwords.
fn is_secret(command: &Command, args: &Args, place: usize) -> bool {
    match command.name {
        "auth" => place >= 1,
        "hello" => place >= 3 && (args.is(place - 1, "AUTH") || args.is(place - 2, "AUTH")),
        "acl" => place >= 2 && args.is(1, "SETUSER"),
        "config" => place >= 3 && args.is(1, "SET") && args.is(place - 1, "requirepass"),
        _ => false,
    }
}

impl Loop {
    /// Carries out `SLOWLOG`.
    pub(super) fn slowlog(&mut self, command: &Command, args: &Args) -> Result<Reply, Fault> {
        let slow = &self.shared.slow;
        match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
            (b"GET", 2 | 3) => {
                let bad = Fault::new("ERR count should be greater than or equal to -1");
                let count = args.get(2).map_or(Ok(10), |count| parse::integer_or(count, bad.clone()))?;
                if count < -1 {
                    return Err(bad);
                }
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let row = |entry: &Entry| {
                    Reply::Array(vec![
                        Reply::Int(entry.id),
                        Reply::Int(entry.at as i64),
                        Reply::Int(entry.micros as i64),
                        Reply::bulks(&entry.words),
                        Reply::bulk(&entry.peer),
                        Reply::bulk(&entry.name),
                    ])
                };
                Ok(Reply::Array(lock(&slow.entries).0.iter().take(count).map(row).collect()))
            }
            (b"LEN", 2) => Ok(Reply::count(lock(&slow.entries).0.len())),
            (b"RESET", 2) => {
                lock(&slow.entries).0.clear();
                Ok(Reply::OK)
            }
            (b"HELP", 2) => Ok(help::of("slowlog")),
            _ => Err(help::wrong(command, args)),
        }
    }

    /// Carries out `LATENCY`.
    pub(super) fn latency(&mut self, command: &Command, args: &Args) -> Result<Reply, Fault> {
        let slow = &self.shared.slow;
        let mut samples = lock(&slow.samples);
        let named = |event: &[u8], samples: &BTreeMap<&'static str, Samples>| {
            samples.keys().copied().find(|name| event == name.as_bytes())
        };
        match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
            (b"HISTORY", 3) => {
                let all = named(&args[2], &samples).map(|name| &samples[name].all);
                let pair =
                    |(at, millis): &(u64, u64)| Reply::Array(vec![Reply::Int(*at as i64), Reply::Int(*millis as i64)]);
                Ok(Reply::Array(all.into_iter().flatten().map(pair).collect()))
            }
            (b"LATEST", 2) => {
                let row = |(name, samples): (&&str, &Samples)| {
                    let (at, millis) = samples.all.back().copied().unwrap_or_default();
                    let numbers = [at, millis, samples.longest].map(|number| Reply::Int(number as i64));
                    Reply::Array([Reply::bulk(*name)].into_iter().chain(numbers).collect())
                };
                Ok(Reply::Array(samples.iter().map(row).collect()))
            }
            (b"RESET", _) => {
                let names: Vec<&'static str> = match args.len() {
                    2 => samples.keys().copied().collect(),
                    _ => args.from(2).filter_map(|event| named(event, &samples)).collect(),
                };
                Ok(Reply::count(names.into_iter().filter(|name| samples.remove(name).is_some()).count()))
            }
            (b"GRAPH", 3) => match named(&args[2], &samples) {
                Some(name) => Ok(Reply::Text(graph(name, &samples[name]))),
                None => {
                    let shown = String::from_utf8_lossy(&args[2]).into_owned();
                    Err(Fault::made(format!("ERR No samples available for event '{shown}'")))
                }
            },
            (b"DOCTOR", 2) => Ok(Reply::Text(doctor(slow.monitor.load(Relaxed), &samples))),
            (b"HISTOGRAM", _) => {
                drop(samples);
                Ok(self.histograms(args))
            }
            (b"HELP", 2) => Ok(help::of("latency")),
            _ => Err(help::wrong(command, args)),
        }
    }

    fn histograms(&self, args: &Args) -> Reply {
        let mut told = Vec::new();
        let wanted = |command: &Command| {
            args.len() == 2 || args.from(2).any(|name| name.eq_ignore_ascii_case(command.name.as_bytes()))
        };
        for (command, sum) in self.shared.stats.all().filter(|(command, sum)| sum.calls > 0 && wanted(command)) {
            let (mut buckets, mut seen) = (Vec::new(), 0);
            for bucket in (0..BUCKETS).filter(|bucket| sum.buckets[*bucket] > 0) {
                seen += sum.buckets[bucket];
                buckets.extend([Reply::Int(1 << bucket), Reply::Int(seen as i64)]);
            }
            let pairs = [
                Reply::bulk("calls"),
                Reply::Int(sum.calls as i64),
                Reply::bulk("histogram_usec"),
                Reply::Map(buckets),
            ];
            told.extend([Reply::bulk(command.name), Reply::Map(pairs.into())]);
        }
        Reply::Map(told)
    }
}

/// Returns a heading with the extremes, and a line with one character for the height of each sample.
fn graph(name: &str, samples: &Samples) -> String {
    let heights = b"_.,-=o#%@";
    let longest = samples.all.iter().map(|(_, millis)| *millis).max().unwrap_or(0).max(1);
    let shortest = samples.all.iter().map(|(_, millis)| *millis).min().unwrap_or(0);
    let height = |millis: u64| heights[(millis * (heights.len() as u64 - 1) / longest) as usize] as char;
    let line: String = samples.all.iter().map(|(_, millis)| height(*millis)).collect();
    format!("{name} - high {longest} ms, low {shortest} ms (all time high {} ms)\n{line}\n", samples.longest)
}

fn doctor(monitor: u64, samples: &BTreeMap<&'static str, Samples>) -> String {
    if monitor == 0 {
        return "Latency is not monitored. CONFIG SET latency-monitor-threshold <milliseconds> begins it.\n".into();
    }
    if samples.is_empty() {
        return format!("Nothing took {monitor} ms or longer.\n");
    }
    let mut text = format!("What took {monitor} ms or longer:\n");
    for (name, samples) in samples {
        let count = samples.all.len() as u64;
        let sum: u64 = samples.all.iter().map(|(_, millis)| millis).sum();
        text += &format!(
            "- {name}: {count} seconds with such, {} ms on average, {} ms at most.\n",
            sum / count.max(1),
            samples.longest
        );
    }
    text + "SLOWLOG GET names the commands. Long reads keep their own loop busy, not the other loops; long changes all.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &str) -> Call {
        let args: Args = words.split(' ').collect();
        let command = command::find(&args[0]).expect("it is a command");
        Call { command, args, db: 0, now: 0, seed: 0, wishes: 0, rights: None, deadline: None }
    }

    fn exec(calls: &[&str]) -> Write {
        Write::Exec { calls: calls.iter().map(|words| call(words)).collect(), watched: Vec::new(), now: 0 }
    }

    /// Returns the lines that are logged of a slow batch, each after its change's index.
    fn logged(slower_than: &str, batch: &[Write]) -> Vec<String> {
        let slow = Slow::default();
        slow.configure("slowlog-log-slower-than", slower_than);
        let line = |(at, command, args): &Suspect| {
            let words: Vec<Vec<u8>> = words(command, args);
            format!("{at} {}", String::from_utf8_lossy(&words.join(&b' ')))
        };
        slow.suspects(batch).iter().map(line).collect()
    }

    #[test]
    fn a_transaction_is_as_suspect_as_the_commands_beside_it() {
        let batch = [
            Write::Call(call("DEL a b")),
            exec(&["SADD s 1", "SUNIONSTORE d s t", "HGETALL h", "CONFIG SET requirepass p", "SET a 1"]),
            Write::Call(call("SADD s 2")),
            exec(&["INCR n", "INCR n"]),
            exec(&[]),
        ];
        let some = ["0 DEL a b", "1 SUNIONSTORE d s t", "1 HGETALL h", "1 EXEC ... (commands: 5)"];
        let all = ["0 DEL a b", "1 SADD s 1", "1 SUNIONSTORE d s t", "1 HGETALL h", "1 SET a 1"];
        assert_eq!(logged("10000", &batch), [&some[..], &["3 EXEC ... (commands: 2)"]].concat());
        let rest = [
            "1 EXEC ... (commands: 5)",
            "2 SADD s 2",
            "3 INCR n",
            "3 INCR n",
            "3 EXEC ... (commands: 2)",
            "4 EXEC ... (commands: 0)",
        ];
        assert_eq!(logged("999", &batch), [&all[..], &rest].concat());
        assert_eq!(logged("-1", &batch), [""; 0]);
    }
}
