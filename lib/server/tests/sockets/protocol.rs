//! RESP3: what redis-server 7.0.15 answered to the same commands after `HELLO 3`, byte for byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use archipelago_server::server::Settings;

use crate::client::{request, started};

/// Words of a line, of which one between quotes may have blanks.
fn words(line: &str) -> Vec<&str> {
    let quoted = line.split('"').enumerate();
    quoted.flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }).collect()
}

#[test]
fn resp3_is_as_redis_has_it() {
    let server = started(Settings { loops: 1, ..Settings::default() });
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // A command and its answer, in which a bar is an end of line.
    let lines = include_str!("resp3.txt").lines().map(|line| line.split_once('\t').expect("a tab is between them"));
    stream.write_all(&request(&["HELLO", "3"])).unwrap();
    let mut hello = vec![0; 1_024];
    let length = stream.read(&mut hello).unwrap();
    assert!(hello[..length].starts_with(b"%7\r\n"));
    let mut wrong = Vec::new();
    for (command, expected) in lines {
        stream.write_all(&request(&words(command))).unwrap();
        // What comes behind each answer says where it ends.
        stream.write_all(&request(&["ECHO", "end of this answer"])).unwrap();
        let (mut answer, end) = (Vec::new(), b"$18\r\nend of this answer\r\n");
        while !answer.ends_with(end) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        answer.truncate(answer.len() - end.len());
        let answer = String::from_utf8_lossy(&answer).replace("\r\n", "|");
        if answer != expected {
            wrong.push(format!("{command}\n  here  {answer}\n  Redis {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    server.stop().unwrap();
}
