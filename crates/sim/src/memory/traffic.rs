//! Links between sockets and memory controllers: each serves one line at a time.

use crate::machine::Machine;

use super::ps;

/// When each link and each controller is free again.
pub(crate) struct Traffic {
    sockets: usize,
    /// By source and destination of one hop.
    links: Vec<u64>,
    controllers: Vec<u64>,
    /// By source and destination: the first socket on the way, which is the destination itself for neighbours.
    via: Vec<u16>,
    link_time: u64,
    memory_time: u64,
}

impl Traffic {
    pub(crate) fn new(machine: &Machine) -> Self {
        let sockets = machine.sockets;
        let via = |pair: usize| next_hop(machine, pair / sockets, pair % sockets) as u16;
        Traffic {
            sockets,
            links: vec![0; sockets * sockets],
            controllers: vec![0; sockets],
            via: (0..sockets * sockets).map(via).collect(),
            link_time: ps(machine.occupancy.link),
            memory_time: ps(machine.occupancy.memory),
        }
    }

    /// Sends a line from one socket to another at `now`: how long it waits on the way.
    pub(crate) fn send(&mut self, from: usize, to: usize, now: u64) -> u64 {
        let (mut at, mut waited) = (from, 0);
        while at != to {
            let next = usize::from(self.via[at * self.sockets + to]);
            waited += serve(&mut self.links[at * self.sockets + next], now + waited, self.link_time);
            at = next;
        }
        waited
    }

    /// Reads a line from a socket's memory at `now`: how long it waits for the controller.
    pub(crate) fn fetch(&mut self, home: usize, now: u64) -> u64 {
        serve(&mut self.controllers[home], now, self.memory_time)
    }
}

fn serve(free: &mut u64, now: u64, time: u64) -> u64 {
    let start = now.max(*free);
    *free = start + time;
    start - now
}

/// The neighbour of `from` on a shortest way to `to`; where there are several, pairs are spread over them.
fn next_hop(machine: &Machine, from: usize, to: usize) -> usize {
    let hops = |a: usize, b: usize| machine.hops[a][b];
    if hops(from, to) <= 1 {
        return to;
    }
    let nearer = |&next: &usize| hops(from, next) == 1 && hops(next, to) < hops(from, to);
    let ways: Vec<usize> = (0..machine.sockets).filter(nearer).collect();
    if ways.is_empty() { to } else { ways[(from + to) % ways.len()] }
}
