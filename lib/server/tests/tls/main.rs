//! The port for TLS: clients with certificates of all kinds, and hostile clients.

mod certificates;
#[allow(dead_code, reason = "some of it is for the other programs")]
#[path = "../sockets/client.rs"]
mod client;
mod hostile;
mod published;

use archipelago_server::config::tls::AuthClients;
use certificates::{Authority, Expired, secure_server, server_of};
use client::{Client, request};
use rustls::{ProtocolVersion, version};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

#[test]
fn both_versions_carry_what_plain_sockets_carry() {
    let authority = Authority::new("people");
    let server = secure_server(&authority, AuthClients::Yes);
    for (version, expected) in
        [(&version::TLS12, ProtocolVersion::TLSv1_2), (&version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        let mut client = authority.connect(&server, Some(authority.client(Expired::No)), &[version]);
        assert_eq!(client.ask(&["PING"]).unwrap(), b"+PONG\r\n");
        assert_eq!(client.0.conn.protocol_version(), Some(expected));
        // The value is larger than all buffers between client and server.
        let value = "v".repeat(3 << 20);
        client.0.write_all(&request(&["SET", "k", &value])).unwrap();
        assert_eq!(client.exactly(5).unwrap(), b"+OK\r\n");
        client.0.write_all(&request(&["GET", "k"]).repeat(3)).unwrap();
        let bulk = format!("${}\r\n{value}\r\n", value.len());
        assert!(client.exactly(3 * bulk.len()).unwrap() == bulk.repeat(3).as_bytes());
        client.0.write_all(&request(&["INCR", expected.as_str().unwrap()]).repeat(1000)).unwrap();
        let counted: String = (1..=1000).map(|number| format!(":{number}\r\n")).collect();
        assert_eq!(client.exactly(counted.len()).unwrap(), counted.as_bytes());
    }
    // Clients without TLS see the changes.
    let mut plain = Client::new(server.address());
    assert_eq!(plain.ask("STRLEN k"), format!(":{}", 3 << 20));
    let mut client = authority.connect(&server, Some(authority.client(Expired::No)), &[&version::TLS13]);
    client.ask(&["CLIENT", "SETNAME", "secret"]).unwrap();
    let list = plain.ask("CLIENT LIST");
    let line = list.lines().find(|line| line.contains("name=secret")).unwrap();
    assert!(line.contains(&format!(" laddr={} ", server.tls_address().unwrap())), "{line}");
}

#[test]
fn certificates_are_judged() {
    let (authority, stranger) = (Authority::new("people"), Authority::new("stranger"));
    let server = secure_server(&authority, AuthClients::Yes);
    let mut plain = Client::new(server.address());
    let mut good = authority.connect(&server, Some(authority.client(Expired::No)), &[]);
    assert_eq!(good.ask(&["PING"]).unwrap(), b"+PONG\r\n");
    let cases = [
        (None, "CertificateRequired", "peer sent no certificates"),
        (Some(authority.client(Expired::Yes)), "CertificateExpired", "certificate expired"),
        (Some(stranger.client(Expired::No)), "UnknownCA", "UnknownIssuer"),
    ];
    for (at, (shown, alert, noted)) in cases.into_iter().enumerate() {
        let told = authority.connect(&server, shown, &[]).ask(&["PING"]).unwrap_err().to_string();
        assert!(told.contains(alert), "{told}");
        let failed = format!("tls_failed_handshakes:{}", at + 1);
        let mut info = plain.ask("INFO stats");
        while !info.contains(&failed) {
            info = plain.ask("INFO stats");
        }
        assert!(info.lines().any(|line| line.starts_with("tls_last_failure:") && line.contains(noted)), "{info}");
    }
    assert_eq!(good.ask(&["PING"]).unwrap(), b"+PONG\r\n");
    assert!(plain.ask("INFO clients").contains("connected_clients:2"), "those that were refused are gone");
    // The client checks the server's certificate, too.
    assert!(stranger.connect(&server, None, &[]).ask(&["PING"]).unwrap_err().to_string().contains("UnknownIssuer"));
}

#[test]
fn certificates_may_be_left_out_where_it_says_so() {
    let (authority, stranger) = (Authority::new("people"), Authority::new("stranger"));
    for (clients, stranger_comes) in [(AuthClients::Optional, false), (AuthClients::No, true)] {
        let server = secure_server(&authority, clients);
        assert_eq!(authority.connect(&server, None, &[]).ask(&["PING"]).unwrap(), b"+PONG\r\n");
        let shown = Some(stranger.client(Expired::No));
        assert_eq!(authority.connect(&server, shown, &[]).ask(&["PING"]).is_ok(), stranger_comes, "{clients:?}");
    }
}

#[test]
fn an_end_leaves_no_answer_out() {
    let authority = Authority::new("people");
    let server = secure_server(&authority, AuthClients::No);
    // The value has more bytes than the sockets can buffer.
    let value = "v".repeat(1 << 20);
    assert_eq!(Client::new(server.address()).call(&["SET", "big", &value]).unwrap(), "+OK");
    for says_so in [true, false] {
        let mut client = authority.connect(&server, None, &[]);
        assert_eq!(client.ask(&["PING"]).unwrap(), b"+PONG\r\n");
        let half = [
            request(&["INCR", "k"]).repeat(100),
            request(&["GET", "big"]).repeat(16),
            b"*2\r\n$3\r\nGET\r\n$10".to_vec(),
        ]
        .concat();
        client.0.write_all(&half).unwrap();
        if says_so {
            client.0.conn.send_close_notify();
        }
        client.0.flush().unwrap();
        client.0.sock.shutdown(Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let mut answers = Vec::new();
        client.0.read_to_end(&mut answers).expect("the server says that it ends");
        assert_eq!(answers.iter().filter(|byte| **byte == b':').count(), 100);
        assert_eq!(answers.iter().filter(|byte| **byte == b'v').count(), 16 << 20);
    }
}

#[test]
fn what_is_wrong_with_the_files_is_told() {
    let authority = Authority::new("people");
    let tls = authority.settings(AuthClients::Yes);
    let refused = |change: fn(&mut archipelago_server::config::tls::Tls)| {
        let mut tls = tls.clone();
        change(&mut tls);
        server_of(tls).err().expect("it starts with wrong files")
    };
    assert!(refused(|tls| tls.authorities = None).contains("--tls-ca-cert-file"));
    assert!(refused(|tls| tls.certificate = "/nowhere".into()).contains("--tls-cert-file /nowhere"));
    assert!(refused(|tls| tls.certificate = tls.key.clone()).contains("there is no certificate in it"));
    assert!(refused(|tls| tls.key = tls.certificate.clone()).contains("--tls-key-file"));
    let other = Authority::new("other");
    let mut mixed = tls.clone();
    mixed.key = other.settings(AuthClients::Yes).key;
    assert!(server_of(mixed).err().unwrap().contains("do not do"));
    let server =
        server_of(archipelago_server::config::tls::Tls { only: true, clients: AuthClients::No, ..tls }).unwrap();
    assert_eq!(Some(server.address()), server.tls_address());
    let mut client = authority.connect(&server, None, &[]);
    assert_eq!(client.ask(&["PING"]).unwrap(), b"+PONG\r\n");
    assert_eq!(client.ask(&["CONFIG", "GET", "port"]).unwrap(), b"*2\r\n$4\r\nport\r\n$1\r\n0\r\n", "there is none");
}
