//! Scripts: two replicas agree, and a log brings back what they did.

use crate::client::Client;
use crate::durable;
use archipelago_journal::Simulated;
use archipelago_server::config::Settings;
use archipelago_server::server::Server;
use std::sync::Arc;

const BODY: &str = "for i = 1, 5 do redis.call('rpush', KEYS[1], math.random(1000), redis.call('time')[2]) end \
     redis.call('sadd', 's', 'a', 'b', 'c', 'd') redis.call('rpush', KEYS[1], redis.call('spop', 's')) \
     redis.call('incr', 'count') return redis.call('no such')";

#[test]
fn replicas_and_a_log_agree_on_scripts() {
    let disk = Simulated::new();
    let settings = Settings { replicas: 2, ..durable::settings() };
    let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
    let mut clients = [Client::new(server.address()), Client::new(server.address())];
    let digest = clients[0].call(&["SCRIPT", "LOAD", BODY]).unwrap();
    for round in 0..20 {
        let answer = clients[round % 2].ask(&format!("EVALSHA {digest} 1 l"));
        assert!(answer.starts_with("-ERR Unknown Redis command called from script script: "), "{answer}");
    }
    let there = clients.each_mut().map(|client| client.ask("LRANGE l 0 -1"));
    assert_eq!(there[0], there[1]);
    let left = clients.each_mut().map(|client| client.ask("SMEMBERS s"));
    assert_eq!(left[0], left[1]);
    let long =
        clients.each_mut().map(|client| client.call(&["EVAL_RO", "return redis.call('get', 'count')", "0"]).unwrap());
    assert_eq!(long, ["20", "20"]);
    assert_eq!(clients[1].ask("SCRIPT FLUSH"), "+OK");
    assert!(clients[0].ask(&format!("EVALSHA {digest} 1 l")).starts_with("-NOSCRIPT"));
    server.stop().unwrap();
    let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
    let mut client = Client::new(later.address());
    assert_eq!(client.ask("LRANGE l 0 -1"), there[0]);
    assert_eq!(client.ask("SMEMBERS s"), left[0]);
    later.stop().unwrap();
}
