//! Clients that wait for keys, and channels, across event loops.

use crate::client::{Client, request, server};
use std::thread;

#[test]
fn clients_wait_in_the_order_of_their_arrival() {
    let server = server(2);
    let mut pusher = Client::new(server.address());
    let mut waiting: Vec<Client> = (0..6).map(|_| Client::new(server.address())).collect();
    for (place, client) in waiting.iter_mut().enumerate() {
        client.send(&request(&["BLPOP", "none", "list", "0"])).unwrap();
        while !pusher.ask("INFO clients").contains(&format!("blocked_clients:{}", place + 1)) {}
    }
    assert_eq!(pusher.ask("RPUSH list a b c"), ":3");
    for number in ["d", "e", "f"] {
        pusher.ask(&format!("RPUSH list {number}"));
    }
    for (client, got) in waiting.iter_mut().zip(["a", "b", "c", "d", "e", "f"]) {
        assert_eq!(client.answer().unwrap(), format!("list {got}"));
    }
    assert_eq!(pusher.ask("BLPOP list 0.05"), "*-1");
    assert!(pusher.ask("INFO clients").contains("blocked_clients:0"));
}

#[test]
fn nothing_is_missed_between_the_look_and_the_queue() {
    let server = server(2);
    let address = server.address();
    let rounds = 2_000;
    let popper = thread::spawn(move || {
        let mut client = Client::new(address);
        (0..rounds).map(|_| client.ask("BLPOP list 10")).collect::<Vec<_>>()
    });
    let mut pusher = Client::new(address);
    // After every third push the pusher waits until the list is empty. So pushes come before, during and after the popper's
    // wait.
    for round in 0..rounds {
        pusher.ask(&format!("RPUSH list {round}"));
        if round % 3 == 0 {
            while pusher.ask("LLEN list") != ":0" {}
        }
    }
    let expected: Vec<String> = (0..rounds).map(|round| format!("list {round}")).collect();
    assert_eq!(popper.join().unwrap(), expected);
}

#[test]
fn messages_reach_subscribers_on_all_loops_in_order() {
    let server = server(2);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(server.address())).collect();
    for client in &mut clients {
        assert_eq!(client.ask("SUBSCRIBE news"), "subscribe news :1");
        assert_eq!(client.ask("PSUBSCRIBE n*"), "psubscribe n* :2");
    }
    let mut publisher = Client::new(server.address());
    for number in 0..100 {
        assert_eq!(publisher.ask(&format!("PUBLISH news {number}")), ":8");
    }
    for client in &mut clients {
        let mut heard: Vec<String> = (0..200).map(|_| client.answer().unwrap()).collect();
        let (plain, patterns): (Vec<_>, Vec<_>) = heard.drain(..).partition(|text| text.starts_with("message"));
        assert_eq!(plain, (0..100).map(|number| format!("message news {number}")).collect::<Vec<_>>());
        assert_eq!(patterns, (0..100).map(|number| format!("pmessage n* news {number}")).collect::<Vec<_>>());
        assert!(client.ask("GET a").starts_with("-ERR Can't execute 'get'"));
    }
    drop(clients);
    while publisher.ask("PUBLISH news last") != ":0" {}
}

#[test]
fn subscriptions_are_counted() {
    let server = server(2);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::new(server.address())).collect();
    let counts = |expected: [usize; 3]| {
        let [channels, patterns, shards] = expected;
        let lines =
            format!("pubsub_channels:{channels}\r\npubsub_patterns:{patterns}\r\npubsubshard_channels:{shards}\r\n");
        // A client that is gone is counted until its loop has noticed.
        let mut asking = Client::new(server.address());
        while !asking.ask("INFO stats").contains(&lines) {}
        assert_eq!(asking.ask("PUBSUB NUMPAT"), format!(":{patterns}"));
    };
    counts([0, 0, 0]);
    for (client, line) in [(0, "SUBSCRIBE a"), (1, "SUBSCRIBE a"), (1, "SUBSCRIBE b"), (0, "SUBSCRIBE a")] {
        clients[client].ask(line);
    }
    counts([2, 0, 0]);
    for (client, line) in [(0, "PSUBSCRIBE a*"), (1, "PSUBSCRIBE a*"), (2, "PSUBSCRIBE b*"), (2, "SSUBSCRIBE a")] {
        clients[client].ask(line);
    }
    counts([2, 2, 1]);
    clients[0].ask("UNSUBSCRIBE a");
    clients[0].ask("PUNSUBSCRIBE a*");
    counts([2, 2, 1]);
    clients[1].ask("RESET");
    counts([0, 1, 1]);
    clients.clear();
    counts([0, 0, 0]);
}
