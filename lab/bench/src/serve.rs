//! `serve`: runs the server until a signal or `SHUTDOWN` ends it.

use std::process::ExitCode;

use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_server::config::{Appendonly, DebugAccess, Settings, tls};
use archipelago_server::server::Server;

use crate::args::{self, Serve};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{print, tell};

/// The time between two checks whether the server has to end.
const LOOK: Duration = Duration::from_millis(50);

/// Returns the server's parameters that have options, with the options' values.
fn parameters(args: &Serve) -> Vec<(&'static str, String)> {
    let all = [("maxmemory", &args.maxmemory), ("maxmemory-policy", &args.maxmemory_policy), ("save", &args.save)];
    all.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
}

/// Returns the settings of TLS, if the options ask for TLS.
fn secured(args: &Serve) -> Option<tls::Tls> {
    let asked = &args.tls;
    Some(tls::Tls {
        address: (args.bind, asked.tls_port?).into(),
        certificate: asked.tls_cert_file.clone()?,
        key: asked.tls_key_file.clone()?,
        authorities: asked.tls_ca_cert_file.clone(),
        clients: match asked.tls_auth_clients {
            args::serve::AuthClients::Yes => tls::AuthClients::Yes,
            args::serve::AuthClients::No => tls::AuthClients::No,
            args::serve::AuthClients::Optional => tls::AuthClients::Optional,
        },
        patience: tls::Tls::PATIENCE,
        only: args.port == 0,
    })
}

pub fn run(args: &Serve) -> Result<ExitCode, Failure> {
    interrupt::install();
    let settings = Settings {
        address: (args.bind, args.port).into(),
        loops: args.loops.unwrap_or_else(|| Topology::current().cpus().len()),
        replicas: args.replicas.unwrap_or(0),
        directory: args.dir.clone(),
        appendonly: match args.appendonly {
            args::serve::Appendonly::No => Appendonly::No,
            args::serve::Appendonly::Everysec => Appendonly::EverySecond,
            args::serve::Appendonly::Always => Appendonly::Always,
        },
        password: args.requirepass.clone(),
        aclfile: args.aclfile.clone(),
        clients: args.maxclients,
        debug: match args.enable_debug_command {
            args::serve::DebugAccess::No => DebugAccess::No,
            args::serve::DebugAccess::Local => DebugAccess::Local,
            args::serve::DebugAccess::Yes => DebugAccess::Yes,
        },
        load: args.load.clone(),
        parameters: parameters(args),
        tls: secured(args),
    };
    let mut server = Server::start(&settings).map_err(Failure::new)?;
    if let Some(recovery) = server.recovery() {
        for cut in &recovery.cuts {
            tell(format!("{}: {} unfinished bytes from {} on were cut", cut.file.display(), cut.bytes, cut.offset));
        }
        print(format!("{} changes read from {}", recovery.records, args.dir.display()))?;
    }
    if let Some(address) = args.metrics {
        let address = server.tell_metrics(address).map_err(Failure::new)?;
        print(format!("metrics at http://{address}/"))?;
    }
    if let (Some(imported), Some(path)) = (server.imported(), &args.load) {
        print(format!("{} keys and {} libraries read from {}", imported.keys, imported.libraries, path.display()))?;
    }
    if let Some(address) = server.tls_address() {
        print(format!("TLS on {address}"))?;
    }
    let _ = print(format!("listening on {}; Ctrl-C or SHUTDOWN stops", server.address()))?;
    while !interrupt::requested() && !server.is_ending() {
        thread::sleep(LOOK);
    }
    match &args.export {
        Some(path) => server.export(path),
        None => server.stop(),
    }
    .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
