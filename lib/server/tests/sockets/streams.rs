//! Clients that wait for entries of streams.

use crate::client::{Client, request, server};

#[test]
fn readers_hear_of_what_comes_behind_their_place() {
    let server = server(2);
    let mut writer = Client::new(server.address());
    assert_eq!(writer.ask("XADD s 5-1 a b"), "5-1");
    let mut readers: Vec<Client> = (0..3).map(|_| Client::new(server.address())).collect();
    let wishes = ["$", "7-0", "5-1"];
    for (place, (reader, behind)) in readers.iter_mut().zip(wishes).enumerate() {
        reader.send(&request(&["XREAD", "BLOCK", "0", "STREAMS", "other", "s", "0", behind])).unwrap();
        while !writer.ask("INFO clients").contains(&format!("blocked_clients:{}", place + 1)) {}
    }
    assert_eq!(writer.ask("XADD s 6-0 c d"), "6-0");
    assert_eq!(readers[0].answer().unwrap(), "s 6-0 c d");
    assert_eq!(readers[2].answer().unwrap(), "s 6-0 c d");
    assert!(writer.ask("INFO clients").contains("blocked_clients:1"), "7-0 is not there yet");
    writer.ask("XADD s 7-0 e f");
    writer.ask("XADD s 7-1 g h");
    assert_eq!(readers[1].answer().unwrap(), "s 7-1 g h");
    assert_eq!(writer.ask("XREAD BLOCK 20 STREAMS s $"), "*-1");
}

#[test]
fn consumers_of_a_group_share_what_comes() {
    let server = server(2);
    let mut writer = Client::new(server.address());
    assert_eq!(writer.ask("XGROUP CREATE s g $ MKSTREAM"), "+OK");
    let mut consumers: Vec<Client> = (0..3).map(|_| Client::new(server.address())).collect();
    for (place, consumer) in consumers.iter_mut().enumerate() {
        let name = format!("c{place}");
        let words = ["XREADGROUP", "GROUP", "g", &name, "COUNT", "1", "BLOCK", "0", "STREAMS", "s", ">"];
        consumer.send(&request(&words)).unwrap();
        while !writer.ask("INFO clients").contains(&format!("blocked_clients:{}", place + 1)) {}
    }
    writer.ask("XADD s 1-0 a b");
    writer.ask("XADD s 2-0 a b");
    assert_eq!(consumers[0].answer().unwrap(), "s 1-0 a b");
    assert_eq!(consumers[1].answer().unwrap(), "s 2-0 a b");
    assert_eq!(writer.ask("XPENDING s g"), ":2 1-0 2-0 c0 1 c1 1");
    assert_eq!(writer.ask("XGROUP DESTROY s g"), ":1");
    assert!(consumers[2].answer().unwrap().starts_with("-NOGROUP"));
}
