use super::*;
use crate::config::{Config, Settings};
use crate::log::Store;
use crate::operation::Call;
use crate::server::shared::Mailbox;
use std::net;

/// A loop with one client, and the other side of the client's connection.
fn with_a_client() -> (Loop, Owner, net::TcpStream) {
    let poll = Poll::new().unwrap();
    let mailbox = Mailbox::new(mio::Waker::new(poll.registry(), LETTERS).unwrap());
    let settings = Settings::default();
    let shared = Shared::new(Store::volatile(), Config::new(&settings), vec![mailbox], settings.address);
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
}
