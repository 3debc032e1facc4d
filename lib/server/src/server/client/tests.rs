use super::*;
use crate::acl::Acl;
use crate::blocked::Owner;
use mio::net::TcpStream;
use std::io::Read as _;
use std::net;

/// Returns a client, and the other side of its connection.
fn client() -> (Client, net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = net::TcpStream::connect(address).unwrap();
    let (stream, peer) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let card = Arc::new(Card::new(Owner { at: 0, slot: 0, id: 1 }, peer, address));
    let wire = Wire::new(TcpStream::from_std(stream), None).unwrap();
    (Client::new(wire, card, Identity::new(&Acl::default()), true), other)
}

/// A client reads a long answer in small pieces. All moves of unsent bytes together move no more bytes than the answer
/// has.
#[test]
fn unsent_bytes_are_seldom_moved() {
    let (mut client, mut other) = client();
    const LENGTH: usize = 32 << 20;
    client.output = vec![7; LENGTH];
    let (mut moved, mut got, mut room) = (0, 0, vec![0; 64 << 10]);
    while got < LENGTH {
        let before = client.output.len();
        client.send();
        let after = client.output.len();
        moved += if after < before { after } else { 0 };
        got += other.read(&mut room).unwrap();
    }
    assert!(!client.dead && client.waiting() == 0 && got == LENGTH);
    assert!(moved <= LENGTH, "{moved} bytes were moved to send {LENGTH}");
}

#[test]
fn limits_of_output_are_kept_for_each_kind_of_client() {
    let [none, hard, soft] = [(0, 0), (100, 0), (0, 100)].map(|(hard, soft)| Limits { hard, soft, seconds: 0 });
    let over = |limits, subscribes, answers: usize, messages: usize| {
        let (mut client, _other) = client();
        if subscribes {
            client.subscriptions.insert(crate::pubsub::SubscriptionKind::Channel, b"news");
        }
        client.output = vec![0; answers];
        client.tell(&vec![0; messages], limits);
        let told = client.dead;
        client.dead = false;
        // The loop looks at the limits again when it has sent what it could.
        client.limit(limits);
        assert_eq!(client.dead, told, "the second look forgets the first");
        told
    };
    for one in [hard, soft] {
        assert!(over([none, one], true, 101, 0), "all output of a subscriber counts");
        assert!(!over([one, none], true, 101, 0), "a subscriber is no normal client");
        assert!(over([none, one], false, 0, 101), "messages of a monitor count");
        assert!(!over([none, one], false, 1000, 100), "answers are no messages");
        assert!(over([one, none], false, 101, 0), "a normal client");
        assert!(!over([one, one], false, 50, 50));
    }
    // The soft limit ends a client only after its time, and the time begins anew below the limit.
    let (mut client, _other) = client();
    let slow = Limits { seconds: 1000, ..soft };
    client.tell(&[0; 101], [none, slow]);
    assert!(!client.dead && client.beyond.is_some());
    client.limit([none, slow]);
    assert!(client.beyond.is_some(), "the time goes on");
    client.output.truncate(100);
    client.limit([none, slow]);
    assert!(client.beyond.is_none());
}
