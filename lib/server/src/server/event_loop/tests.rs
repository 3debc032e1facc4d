use std::net;
use std::path::Path;

use archipelago_journal::Simulated;
use mio::net::TcpStream;
use socket2::SockRef;

use super::*;
use crate::args::Args;
use crate::command;
use crate::config::{Appendonly, Config, Settings};
use crate::db::Outcome;
use crate::log::{Store, may_come_about};
use crate::operation::Call;
use crate::reply::Fault;
use crate::server::CLOCK_READS;
use crate::server::client::Listens;
use crate::server::shared::{Card, Mailbox};
use crate::server::tracking::Mode;

/// A loop with one client, and the other side of the client's connection.
fn with_a_client() -> (Loop, Owner, net::TcpStream) {
    with_a_client_of(Store::volatile())
}

fn with_a_client_of(store: Store) -> (Loop, Owner, net::TcpStream) {
    let poll = Poll::new().unwrap();
    let mailbox = Mailbox::new(mio::Waker::new(poll.registry(), LETTERS).unwrap());
    let settings = Settings::default();
    let shared = Shared::new(store, Config::new(&settings), vec![mailbox], settings.address);
    let mut own = Loop::new(poll, Vec::new(), Arc::new(shared), 0);
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    own.admit(TcpStream::from_std(stream), false);
    let owner = own.clients[0].as_ref().unwrap().card.owner;
    (own, owner, other)
}

#[test]
fn a_client_may_be_unblocked_before_its_loop_learns_that_it_waits() {
    let (mut own, owner, _other) = with_a_client();
    own.client(owner).unwrap().waits = 1;
    own.shared.post(0, Letter::Unblocked(owner, true));
    own.shared.post(0, Letter::Answers(vec![(owner, Verdict::Blocks(1_000))]));
    own.letters();
    let client = own.client(owner).unwrap();
    assert_eq!(client.output, b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    assert!(client.waits == 0 && client.blocked.is_none() && own.deadlines.is_empty());
}

#[test]
fn a_client_that_was_killed_meanwhile_waits_for_no_key() {
    let (mut own, owner, _other) = with_a_client();
    let shared = own.shared.clone();
    for waits in [1, 0] {
        let args: Args = ["BLPOP", "list", "0"].iter().collect();
        let command = command::find(b"blpop").unwrap();
        let call = Call { command, args, db: 0, now: 1, seed: 1, wishes: 0, rights: None, deadline: None };
        let (verdicts, _) = shared.carry_out(&mut own.handle, &[Some(owner)], vec![Write::Call(call)]);
        assert!(matches!(verdicts[..], [(_, Verdict::Blocks(0))]));
        assert_eq!(shared.waiting(), waits);
        lock(&shared.clients).remove(&owner.id);
        shared.unblock(owner.id);
    }
}

/// Two threads may choose the same keys when memory is short.
#[test]
fn a_key_that_is_chosen_twice_is_evicted_once() {
    let (mut own, ..) = with_a_client();
    let shared = own.shared.clone();
    let call = |words: &[&str]| {
        let command = command::find(words[0].as_bytes()).unwrap();
        let args = words.iter().collect();
        Write::Call(Call { command, args, db: 0, now: now(), seed: 1, wishes: 0, rights: None, deadline: None })
    };
    let mut carry_out = |writes: Vec<Write>| _ = shared.carry_out(&mut own.handle, &vec![None; writes.len()], writes);
    let value = "v".repeat(1_000);
    carry_out((0..100).map(|key| call(&["setex", &format!("key:{key}"), "1000", &value])).collect());
    shared.config.set("maxmemory-policy", "volatile-ttl").unwrap();
    shared.config.set("maxmemory", "90kb").unwrap();
    carry_out(Vec::from_iter(shared.keep_limit()));
    shared.config.set("maxmemory", "20kb").unwrap();
    let twice = [shared.keep_limit().unwrap(), shared.choose_victims().unwrap()];
    assert!(twice.iter().all(|chosen| matches!(chosen, Write::Evict { .. })));
    carry_out(twice.into());
    let left = shared.store.db().inspect(0, |db| db.spaces[0].keys.len()).unwrap();
    assert!(left < 30, "{left} keys");
    assert_eq!(shared.room.evicted(), 100 - left as u64);
}

#[test]
fn requests_wait_while_a_mailbox_is_full_and_a_client_receives_them() {
    let (mut own, owner, mut other) = with_a_client();
    let shared = own.shared.clone();
    let message = Arc::new((vec![0; 17 << 20], Vec::new()));
    let mut carried_out = |own: &mut Loop, is_full: bool, monitors: bool| {
        io::Write::write_all(&mut other, b"PING\r\n").unwrap();
        shared.monitors.set(owner, monitors);
        if is_full {
            shared.post(0, Letter::Message(Vec::new(), message.clone(), None));
        }
        let before = shared.counts.commands.load(Relaxed);
        let client = own.client(owner).unwrap();
        // The bytes may arrive late.
        while client.wire.source().peek(&mut [0]).is_err() {}
        client.readable = true;
        own.wake(owner.slot);
        own.round();
        let during = shared.counts.commands.load(Relaxed) - before;
        // Once the loop has processed the messages, the request is carried out.
        own.letters();
        own.wake(owner.slot);
        own.round();
        assert_eq!(shared.counts.commands.load(Relaxed) - before, 1);
        during == 1
    };
    assert!(!carried_out(&mut own, true, true), "nobody waits for the monitors' mailboxes");
    assert!(carried_out(&mut own, true, false) && carried_out(&mut own, false, true));
}

/// All clients wait for the same keys. One look at a client covers all of its keys.
#[test]
fn a_client_that_waits_for_many_keys_is_looked_at_once() {
    let (mut own, owner, _other) = with_a_client();
    let shared = own.shared.clone();
    let names = (0..100).map(|key| key.to_string());
    let args: Args = ["BLPOP".to_owned()].into_iter().chain(names).chain(["0".to_owned()]).collect();
    let command = command::find(b"blpop").unwrap();
    let call = Call { command, args, db: 0, now: 1, seed: 1, wishes: 0, rights: None, deadline: None };
    let serial = |own: &Loop| own.shared.store.db().inspect(0, Db::serial).unwrap();
    for clients in 1..=3 {
        let owner = Owner { id: owner.id + clients, ..owner };
        let card = Card::new(owner, shared.address, shared.address);
        lock(&shared.clients).insert(owner.id, Arc::new(card));
        let before = serial(&own);
        let (_, aftermath) = shared.carry_out(&mut own.handle, &[Some(owner)], vec![Write::Call(call.clone())]);
        shared.serve(&mut own.handle, aftermath.ready);
        // The call itself, and one look at the first client of the queues.
        assert_eq!(serial(&own) - before, 2, "{clients} clients");
    }
    assert_eq!(shared.waiting(), 3);
}

/// Fills the disk: from then on every change is refused and not appended.
fn with_a_full_disk(disk: &Simulated, shared: &Shared, handle: &mut Handle<Db>) {
    disk.set_capacity(Some(disk.used()));
    loop {
        let refused = shared.store.write_many(handle, vec![Write::Sparse { most: 3000 }]).pop().unwrap();
        match refused.reply {
            Reply::Error(fault) if !may_come_about(&fault) => return,
            _ => {}
        }
    }
}

#[test]
fn the_end_of_watches_and_of_listening_outlasts_a_full_disk() {
    let disk = Simulated::new();
    let (store, _) = Store::open(Arc::new(disk.clone()), Path::new("/data"), Appendonly::Always).unwrap();
    let (mut own, owner, _other) = with_a_client_of(store);
    let shared = own.shared.clone();
    let mut carry_out = |batch: Vec<Write>| {
        let (verdicts, _) = shared.carry_out(&mut own.handle, &vec![Some(owner); batch.len()], batch);
        let done = |(_, verdict)| if let Verdict::Done(outcome) = verdict { outcome.reply } else { Reply::Null };
        verdicts.into_iter().map(done).collect::<Vec<_>>()
    };
    let watch = |key: &str| Write::Watch { db: 0, keys: vec![key.into()], now: 1 };
    let watched = |key: &str| vec![crate::operation::Watched { db: 0, key: key.into(), since: 99 }];
    carry_out(vec![watch("a"), watch("b"), watch("c"), clients::listen(true)]);
    with_a_full_disk(&disk, &shared, &mut shared.store.handle());
    let refused = carry_out(vec![
        Write::Exec { calls: Vec::new(), watched: watched("a"), now: 1 },
        Write::Unwatch { watched: watched("b") },
        clients::listen(false),
    ]);
    assert!(refused.iter().all(Reply::is_error), "{refused:?}");
    let state = || shared.store.db().inspect(0, |db| (db.watched_in(0).len(), db.wished())).unwrap();
    assert_eq!(state(), (3, 2));
    // The changes that are owed are tried again, and refused again, until there is room.
    let owed = shared.owed();
    assert_eq!(owed.len(), 3);
    assert!(carry_out(owed).iter().all(Reply::is_error));
    disk.set_capacity(None);
    while state() != (1, 0) {
        carry_out(shared.owed());
    }
}

#[test]
fn a_client_that_was_told_that_it_tracks_is_ended_if_it_does_not() {
    for answered in [false, true] {
        let (mut own, owner, _other) = with_a_client();
        let shared = own.shared.clone();
        shared.tracking.begin(owner, Mode::default());
        let client = own.client(owner).unwrap();
        client.tracking = Some(Mode::default());
        (client.waits, client.listens) = (1, vec![Listens { tracks: true, answered }]);
        own.hear_all(vec![(owner, Verdict::Done(Reply::Error(Fault::new("MISCONF")).into()))]);
        let client = own.client(owner).unwrap();
        assert_eq!((client.dead, client.output.is_empty()), (answered, answered));
        assert!(client.waits == 0 && client.tracking.is_none() && !shared.tracking.is_on());
    }
}

#[test]
fn idle_clients_are_ended_and_silent_connections_are_probed() {
    let (mut own, owner, _other) = with_a_client();
    let socket = SockRef::from(&*own.client(owner).unwrap().wire.source());
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(300));
    let idle = |own: &mut Loop, since| {
        let client = own.client(owner).unwrap();
        client.dead = false;
        client.last = now() - since;
        own.end_idle();
        own.client(owner).unwrap().dead
    };
    assert!(!idle(&mut own, 10_000), "there is no limit");
    own.shared.config.set("timeout", "5").unwrap();
    assert!(idle(&mut own, 10_000) && !idle(&mut own, 4_000));
    own.client(owner).unwrap().blocked = Some((None, Reply::Null));
    assert!(!idle(&mut own, 10_000), "a client that is blocked waits for others");
    own.client(owner).unwrap().blocked = None;
    own.client(owner).unwrap().monitors = true;
    assert!(!idle(&mut own, 10_000));
    own.client(owner).unwrap().monitors = false;
    assert!(idle(&mut own, 10_000));
    // The loops other than the first do the same. They sleep in between.
    own.number = 1;
    let client = own.client(owner).unwrap();
    (client.dead, client.last) = (false, now() - 10_000);
    own.active.clear();
    own.on_time();
    assert!(own.client(owner).unwrap().dead);
    own.client(owner).unwrap().active = false;
    own.active.clear();
    assert!(own.patience().unwrap() > Duration::from_millis(100));
}

/// A client's wait may be longer than `timeout`, and end in the round in which the loop ends idle clients.
#[test]
fn a_client_whose_wait_just_ended_is_not_idle() {
    let (mut own, owner, _other) = with_a_client();
    own.shared.config.set("timeout", "5").unwrap();
    let client = own.client(owner).unwrap();
    (client.waits, client.last) = (1, now() - 10_000);
    own.hear_all(vec![(owner, Verdict::Done(Outcome { reply: Reply::OK, effects: None }))]);
    own.end_idle();
    let client = own.client(owner).unwrap();
    assert!(!client.dead && client.waits == 0);
    // This wait ends at the client's deadline.
    let past = Instant::now();
    (client.blocked, client.sleeps, client.last) = (Some((Some(past), Reply::NullArray)), true, now() - 10_000);
    own.deadlines.insert((past, owner.slot));
    own.idle = past;
    own.on_time();
    let client = own.client(owner).unwrap();
    assert!(!client.dead && client.blocked.is_none());
}

/// A long request and a long answer may take longer than `timeout`.
#[test]
fn a_client_that_sends_or_receives_a_part_is_not_idle() {
    let (mut own, owner, mut other) = with_a_client();
    own.shared.config.set("timeout", "5").unwrap();
    let mut is_ended = |sent: &[u8], output: usize| {
        io::Write::write_all(&mut other, sent).unwrap();
        let client = own.client(owner).unwrap();
        // The bytes may arrive late.
        while !sent.is_empty() && client.wire.source().peek(&mut [0]).is_err() {}
        client.output.extend(vec![0; output]);
        (client.last, client.readable) = (now() - 10_000, true);
        own.wake(owner.slot);
        own.round();
        own.end_idle();
        own.client(owner).unwrap().dead
    };
    assert!(!is_ended(b"*2\r\n$3\r\nGET\r\n", 0) && !is_ended(b"$5\r\nab", 0) && !is_ended(b"", 1));
    assert!(is_ended(b"", 0));
}

#[test]
fn the_clock_is_read_once_for_the_results_of_a_batch() {
    let (mut own, owner, _other) = with_a_client();
    own.client(owner).unwrap().waits = 100;
    let before = CLOCK_READS.get();
    own.hear_all((0..100).map(|_| (owner, Verdict::Done(Reply::OK.into()))).collect());
    assert_eq!(CLOCK_READS.get() - before, 1);
    assert_eq!(own.client(owner).unwrap().waits, 0);
}
