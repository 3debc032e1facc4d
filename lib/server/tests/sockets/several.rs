//! Concurrent histories over several keys, with `WATCH` and scripts, are linearizable: with a log, without a log, and if the
//! server is killed under load.
//!
//! When a server is killed, some requests have no answer. It is unknown whether the server carried them out. The check
//! succeeds if the history is linearizable for some choice of the requests that were carried out. The history includes
//! the first look after the next start. So nothing that was acknowledged is lost, and no client has seen a change that
//! was lost.

use crate::client::{Client, started};
use crate::durable::{spawn, until};
use archipelago_check::history::{Entry, Recorder};
use archipelago_check::linear::{DEFAULT_STEPS, Model, Verdict, check_within};
use archipelago_server::config::Settings;
use archipelago_server::db::Random;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const KEYS: [&str; 3] = ["a", "b", "c"];
type State = [u64; 3];

/// An operation. Each change writes a value that no other change writes.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Reads all keys.
    Look,
    Set(usize, u64),
    /// A transaction after `WATCH`. If both keys still have the values that were read before, it moves the second key's
    /// value to the first key and writes a new value to the second.
    Watched([usize; 2], [u64; 2], u64),
    /// A script that does the same without a condition, and returns the second key's old value.
    Script([usize; 2], u64),
}

#[derive(Clone, Copy, Debug)]
enum Ret {
    All(State),
    Done,
    Was(u64),
    /// The server was killed before it answered.
    Unknown,
}

struct Keys(State);

impl Model for Keys {
    type Op = Op;
    type Ret = Ret;
    type State = State;

    fn initial(&self) -> State {
        self.0
    }

    fn step(&self, state: &State, op: &Op, ret: &Ret) -> Option<State> {
        let mut next = *state;
        let mut shift = |[to, from]: [usize; 2], new| (next[to], next[from]) = (state[from], new);
        let right = match (*op, *ret) {
            (Op::Look, Ret::All(seen)) => seen == *state,
            (Op::Set(key, value), Ret::Done | Ret::Unknown) => {
                next[key] = value;
                true
            }
            (Op::Watched(keys, seen, new), Ret::Done | Ret::Unknown) => {
                shift(keys, new);
                seen == keys.map(|key| state[key])
            }
            (Op::Script(keys, new), ret) => {
                shift(keys, new);
                match ret {
                    Ret::Was(value) => value == state[keys[1]],
                    _ => matches!(ret, Ret::Unknown),
                }
            }
            _ => false,
        };
        right.then_some(next)
    }
}

const SCRIPT: &str = "local was = redis.call('GET', KEYS[2]) redis.call('SET', KEYS[1], was) redis.call('SET', KEYS[2], ARGV[1]) return was";

fn numbers(answer: &str) -> impl Iterator<Item = u64> {
    answer.split(' ').map(|word| word.parse().unwrap_or(0))
}

fn look(client: &mut Client) -> io::Result<State> {
    let mut all = [0; 3];
    let answer = client.call(&["MGET", "a", "b", "c"])?;
    all.iter_mut().zip(numbers(&answer)).for_each(|(value, there)| *value = there);
    Ok(all)
}

/// Chooses the next operation. For an operation with `WATCH`, first watches and reads the keys.
fn choose(client: &mut Client, random: &mut Random, new: u64) -> io::Result<Op> {
    let first = random.below(3);
    let pair = [first, (first + 1 + random.below(2)) % 3];
    Ok(match random.below(8) {
        0..3 => Op::Look,
        3 => Op::Set(first, new),
        4..6 => Op::Script(pair, new),
        _ => {
            let [one, other] = pair.map(|key| KEYS[key]);
            assert_eq!(client.call(&["WATCH", one, other])?, "+OK");
            let answer = client.call(&["MGET", one, other])?;
            let mut seen = numbers(&answer);
            Op::Watched(pair, [(); 2].map(|()| seen.next().unwrap()), new)
        }
    })
}

/// Carries out the operation. Returns `None` if a watched key had changed.
fn ask(client: &mut Client, op: &Op) -> io::Result<Option<Ret>> {
    let answer = match *op {
        Op::Look => return look(client).map(|all| Some(Ret::All(all))),
        Op::Set(key, value) => client.call(&["SET", KEYS[key], &value.to_string()])?,
        Op::Script([one, other], new) => {
            let answer = client.call(&["EVAL", SCRIPT, "2", KEYS[one], KEYS[other], &new.to_string()])?;
            return Ok(Some(Ret::Was(answer.parse().unwrap())));
        }
        Op::Watched([one, other], [_, was], new) => {
            assert_eq!(client.call(&["MULTI"])?, "+OK");
            assert_eq!(client.call(&["SET", KEYS[one], &was.to_string()])?, "+QUEUED");
            assert_eq!(client.call(&["SET", KEYS[other], &new.to_string()])?, "+QUEUED");
            match client.call(&["EXEC"])?.as_str() {
                "*-1" => return Ok(None),
                answer => answer.replace("+OK +OK", "+OK"),
            }
        }
    };
    assert_eq!(answer, "+OK", "{op:?}");
    Ok(Some(Ret::Done))
}

type Past = Vec<Entry<Op, Ret>>;

/// Carries out operations, until `turns` are done or the server is gone. Counts those that were answered.
fn client(
    thread: usize,
    address: SocketAddr,
    stamps: &Recorder<(), ()>,
    first: u64,
    turns: u64,
    answered: &AtomicU64,
) -> Past {
    let mut past = Past::new();
    let Ok(mut client) = Client::try_new(address) else { return past };
    let mut random = Random(first ^ (thread as u64) << 32);
    for turn in 0..turns {
        let Ok(op) = choose(&mut client, &mut random, first + turn * 8 + thread as u64) else { break };
        let invoked = stamps.stamp();
        let answer = ask(&mut client, &op);
        let returned = stamps.stamp();
        let gone = answer.is_err();
        if let Some(ret) = answer.unwrap_or(Some(Ret::Unknown)) {
            past.push(Entry { thread, invoked, returned, op, ret });
            answered.fetch_add(u64::from(!gone), SeqCst);
        }
        if gone {
            break;
        }
    }
    past
}

/// Runs clients while `beside` runs, which is told the number of answers. Returns the clients' operations and answers.
fn history(
    address: SocketAddr,
    stamps: &Recorder<(), ()>,
    first: u64,
    turns: u64,
    beside: impl FnOnce(&AtomicU64),
) -> Past {
    let answered = &AtomicU64::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || client(thread, address, stamps, first, turns, answered))).collect();
        beside(answered);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// Checks a history that begins with a known state and ends with a look.
fn judge(initial: State, past: Past, last: State, stamps: &Recorder<(), ()>) {
    let look = |invoked| Entry { thread: 9, invoked, returned: stamps.stamp(), op: Op::Look, ret: Ret::All(last) };
    let (open, mut told): (Past, Past) = past.into_iter().partition(|entry| matches!(entry.ret, Ret::Unknown));
    told.push(look(stamps.stamp()));
    // A look without an answer has no effect and no result.
    let open: Past = open.into_iter().filter(|entry| !matches!(entry.op, Op::Look)).collect();
    let verdicts = (0..1_u32 << open.len()).map(|chosen| {
        let carried_out =
            open.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, entry)| entry.clone());
        let entries: Past = told.iter().cloned().chain(carried_out).collect();
        check_within(&Keys(initial), &entries, DEFAULT_STEPS)
    });
    let mut why = None;
    for verdict in verdicts {
        match verdict {
            Verdict::Ok => return,
            other => why = why.or(Some(other)),
        }
    }
    why.unwrap().assert_ok();
}

pub fn undisturbed(settings: Settings, turns: u64) {
    let server = started(settings);
    let stamps = Recorder::new();
    let mut looker = Client::new(server.address());
    assert_eq!(looker.ask("MSET a 0 b 0 c 0"), "+OK");
    let past = history(server.address(), &stamps, 1, turns, |_| ());
    assert_eq!(past.iter().filter(|entry| matches!(entry.ret, Ret::Unknown)).count(), 0);
    let committed = past.iter().filter(|entry| matches!(entry.op, Op::Watched(..))).count();
    assert!(committed > 0, "no transaction met its keys as it had seen them");
    judge([0; 3], past, look(&mut looker).unwrap(), &stamps);
}

#[test]
fn without_a_log() {
    undisturbed(Settings { loops: 2, ..Settings::default() }, 1_500);
    undisturbed(Settings { loops: 2, replicas: 2, ..Settings::default() }, 1_500);
}

#[test]
fn killed_servers_keep_their_histories() {
    let kills: u64 = std::env::var("ARCHIPELAGO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    let directory = std::env::temp_dir().join(format!("archipelago-server-several-{}", std::process::id()));
    let stamps = Recorder::new();
    let (mut before, mut past, mut answered) = ([0; 3], Past::new(), 0);
    for kill in 0..=kills {
        let (mut child, address) = spawn(&directory);
        let mut looker = Client::new(address);
        let there = look(&mut looker).unwrap();
        answered += past.len();
        judge(before, core::mem::take(&mut past), there, &stamps);
        if there == [0; 3] {
            assert_eq!(looker.ask("MSET a 0 b 0 c 0"), "+OK");
        }
        before = there;
        let end = AtomicBool::new(false);
        past = history(address, &stamps, 1 + (kill << 20), u64::MAX, |answers| {
            thread::scope(|scope| {
                // Snapshots are made without pause, so that kills hit all of their steps.
                scope.spawn(|| {
                    let mut saves = || !end.load(SeqCst) && kill % 2 == 1 && looker.call(&["SAVE"]).is_ok();
                    while saves() {
                        core::hint::spin_loop();
                    }
                });
                // Each life of the server answers more than once, however long a sync of this disk takes.
                until(|| answers.load(SeqCst) > 1);
                thread::sleep(Duration::from_millis(15 + kill * 7 % 40));
                child.kill().unwrap();
                child.wait().unwrap();
                end.store(true, SeqCst);
            });
        });
    }
    assert!(answered as u64 > kills, "they had nothing to lose");
    std::fs::remove_dir_all(directory).unwrap();
}
