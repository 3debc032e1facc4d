//! HyperLogLogs over sockets: a setting that changes their encoding, and the log.

use crate::client::Client;
use archipelago_journal::Simulated;
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::server::Server;
use std::sync::Arc;

/// The setting is part of the database. Otherwise the same log, read with another setting, would produce other bytes.
#[test]
fn what_is_sparse_by_a_setting_is_so_after_a_start() {
    let disk = Simulated::new();
    let settings = Settings {
        address: ([127, 0, 0, 1], 0).into(),
        directory: "/data".into(),
        appendonly: Appendonly::Always,
        replicas: 2,
        ..Settings::default()
    };
    let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("PFADD before a b c"), ":1");
    assert_eq!(client.ask("CONFIG SET hll-sparse-max-bytes 20"), "+OK");
    // The snapshot has the setting, and the change after the snapshot depends on it.
    assert_eq!(client.ask("SAVE"), "+OK");
    assert_eq!(client.ask("PFADD after a b c"), ":1");
    assert_eq!(client.ask("PFCOUNT before after"), ":3");
    let encodings = ["before", "after"].map(|key| client.ask(&format!("PFDEBUG ENCODING {key}")));
    assert_eq!(encodings, ["+sparse", "+dense"]);
    assert!(client.ask("CONFIG SET hll-sparse-max-bytes x").contains("must be a memory value"));
    server.stop().unwrap();
    let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
    let mut client = Client::new(later.address());
    assert_eq!(["before", "after"].map(|key| client.ask(&format!("PFDEBUG ENCODING {key}"))), encodings);
    assert_eq!(client.ask("CONFIG GET hll-sparse-max-bytes"), "hll-sparse-max-bytes 3000");
    assert_eq!(client.ask("PFADD later a b c"), ":1");
    assert_eq!(client.ask("PFDEBUG ENCODING later"), "+sparse");
}
