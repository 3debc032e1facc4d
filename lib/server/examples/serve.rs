//! A server on the loopback interface: `cargo run --release -p archipelago-server --example serve -- PORT LOOPS [DIR
//! no|everysec|always [METRICS]]`.

use archipelago_server::server::{Appendonly, Server, Settings};

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let port = args.next().and_then(|port| port.parse().ok()).unwrap_or(7777);
    let loops = args.next().and_then(|loops| loops.parse().ok()).unwrap_or(1);
    let directory = args.next().unwrap_or_else(|| ".".into()).into();
    let appendonly = match args.next().as_deref() {
        Some("always") => Appendonly::Always,
        Some("everysec") => Appendonly::EverySecond,
        _ => Appendonly::No,
    };
    let address = ([127, 0, 0, 1], port).into();
    let mut server = Server::start(&Settings { address, loops, directory, appendonly, ..Settings::default() })?;
    if let Some(port) = args.next().and_then(|port| port.parse().ok()) {
        println!("metrics at http://{}/", server.tell_metrics(([127, 0, 0, 1], port).into())?);
    }
    println!("listening on {}", server.address());
    server.wait()
}
