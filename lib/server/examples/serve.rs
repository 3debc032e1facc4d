//! A server on the loopback: `cargo run --release -p archipelago-server --example serve -- 7777`.

use archipelago_server::server::{Server, Settings};

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(7777);
    let loops = std::thread::available_parallelism().map_or(1, usize::from);
    let server = Server::start(&Settings { address: ([127, 0, 0, 1], port).into(), loops })?;
    println!("listening on {}; Ctrl-C stops", server.address());
    server.wait()
}
