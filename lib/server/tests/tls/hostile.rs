//! Hostile clients, and other clients beside them.

use crate::certificates::{Authority, secure_server, server_of};
use crate::client::{Client, request};
use archipelago_server::config::tls::{AuthClients, Tls};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Returns all bytes until the server ends the connection.
fn all(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = Vec::new();
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server does not end it");
    }
    bytes
}

#[test]
fn plain_text_is_told_where_it_is() {
    let authority = Authority::new("people");
    let server = secure_server(&authority, AuthClients::Yes);
    for text in [&b"*1\r\n$4\r\nPING\r\n"[..], b"PING\r\n", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut client = TcpStream::connect(server.tls_address().unwrap()).unwrap();
        client.write_all(text).unwrap();
        assert_eq!(all(client), b"-ERR This port speaks TLS only\r\n");
    }
    let mut other = Client::new(server.address());
    assert!(other.ask("INFO stats").contains("tls_failed_handshakes:3"));
}

#[test]
fn clients_that_agree_on_no_keys_are_ended() {
    let authority = Authority::new("people");
    // Long enough for one handshake on busy processors.
    let patience = Duration::from_secs(2);
    let server = server_of(Tls { patience, ..authority.settings(AuthClients::No) }).unwrap();
    // This client's handshake is complete, so the time limit does not concern it.
    let mut good = authority.connect(&server, None, &[]);
    assert_eq!(good.ask(&["PING"]).unwrap(), b"+PONG\r\n");
    let mut other = Client::new(server.address());
    let silent: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut client = TcpStream::connect(server.tls_address().unwrap()).unwrap();
            // The client sends no bytes, or part of a record.
            client.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252][..number % 9]).unwrap();
            client
        })
        .collect();
    for client in silent {
        assert!(all(client).len() < 50);
    }
    let info = other.ask("INFO");
    assert!(info.contains("connected_clients:2") && info.contains("tls_failed_handshakes:50"), "{info}");
    assert_eq!(good.ask(&["PING"]).unwrap(), b"+PONG\r\n");
}

#[test]
fn noise_ends_its_client_only() {
    let authority = Authority::new("people");
    let server = secure_server(&authority, AuthClients::Optional);
    let mut other = Client::new(server.address());
    let mut seed = 1_u64;
    for round in 0..200 {
        let mut client = TcpStream::connect(server.tls_address().unwrap()).unwrap();
        let noise: Vec<u8> = (0..round * 7)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        // The bytes are sent as a handshake, as encrypted bytes, and as an alert.
        let head = [[22, 3, 1], [23, 3, 3], [21, 3, 3]][round % 3];
        let length = (noise.len() as u16).to_be_bytes();
        let _ = client.write_all(&[&head[..], &length, &noise].concat());
        drop(client);
        assert_eq!(other.ask("PING"), "+PONG");
    }
    while !other.ask("INFO clients").contains("connected_clients:1\r\n") {}
}

#[test]
fn a_client_that_reads_nothing_stops_itself_only() {
    let authority = Authority::new("people");
    let server = secure_server(&authority, AuthClients::No);
    let mut other = Client::new(server.address());
    assert_eq!(other.call(&["SET", "big", &"v".repeat(100_000)]).unwrap(), "+OK");
    let mut slow = authority.connect(&server, None, &[]);
    slow.0.write_all(&request(&["GET", "big"]).repeat(10_000)).unwrap();
    slow.0.sock.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut refused = 0;
    while refused < 20 {
        refused += u32::from(slow.0.write_all(&request(&["GET", "big"]).repeat(1_000)).is_err());
        assert_eq!(other.ask("PING"), "+PONG");
    }
    // The server processes no further requests of a client with more than 256 KiB of unsent answers. So far less waits
    // than the requested gigabyte.
    let list = other.ask("CLIENT LIST");
    let waits = list.lines().filter_map(|line| line.split("omem=").nth(1)?.split(' ').next()?.parse::<u64>().ok());
    assert!(waits.max().unwrap() < 512 << 10, "{list}");
    // Before each read, the TLS client tries to send the bytes that its socket has refused. With a short time limit,
    // this does not delay the read.
    slow.0.sock.set_write_timeout(Some(Duration::from_micros(1))).unwrap();
    slow.exactly(100 * 100_000).unwrap();
}
