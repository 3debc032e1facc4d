//! The links between sockets, and the memory controllers: each serves one line at a time, in the order of requests.
//!
//! # Invariants
//! - *Time order.* A request reaches all resources on its way in the instant in which its access is granted. These
//!   instants never go back, so a later request in virtual time is never served first. Nothing is reserved for a later
//!   start, and a resource's time grows only by the service of requests.
//! - *Series.* A request passes the resources on its way one after the other. While it waits at one resource, earlier
//!   requests at the next resource are served, too. So its total wait is the longest of the waits on its way, not their
//!   sum.
//! - *Demand.* No wait is longer than the service of all earlier requests that are not done ([`Server::serve`] asserts
//!   this in debug builds).

use crate::machine::Machine;

use super::ps;

/// Units of a link that a message without data takes. A line takes [`LINE`] units: QPI and UPI send a header and, for a
/// line, eight units of data.
const MESSAGE: u64 = 1;
const LINE: u64 = 9;

/// The outstanding work of one link or one controller.
#[derive(Clone, Copy, Default)]
struct Server {
    /// When the server will have served all requests so far.
    free: u64,
    /// The service time of all requests since the server was idle.
    demand: u64,
}

impl Server {
    /// Serves a request at `now` that takes `time`. Returns how long the request waits for earlier ones.
    #[inline]
    fn serve(&mut self, now: u64, time: u64) -> u64 {
        if self.free <= now {
            *self = Server { free: now, demand: 0 };
        }
        let wait = self.free - now;
        debug_assert!(wait <= self.demand, "a wait of {wait} ps behind {} ps of demand", self.demand);
        self.free += time;
        self.demand += time;
        wait
    }
}

/// The links and the controllers.
pub(crate) struct Traffic {
    sockets: usize,
    /// Links of one hop, by source and destination.
    links: Vec<Server>,
    controllers: Vec<Server>,
    /// The first socket on the way, by source and destination; for neighbours it is the destination.
    via: Vec<u16>,
    link_time: u64,
    memory_time: u64,
    /// The time of the latest request. No later request has an earlier time.
    latest: u64,
}

impl Traffic {
    pub(crate) fn new(machine: &Machine) -> Self {
        let sockets = machine.sockets;
        let via = |pair: usize| next_hop(machine, pair / sockets, pair % sockets) as u16;
        Traffic {
            sockets,
            links: vec![Server::default(); sockets * sockets],
            controllers: vec![Server::default(); sockets],
            via: (0..sockets * sockets).map(via).collect(),
            link_time: ps(machine.occupancy.link),
            memory_time: ps(machine.occupancy.memory),
            latest: 0,
        }
    }

    /// Changes the times of further requests to those of `machine`.
    pub(crate) fn retime(&mut self, machine: &Machine) {
        self.link_time = ps(machine.occupancy.link);
        self.memory_time = ps(machine.occupancy.memory);
    }

    /// Sets the time of the following requests. A thread that unwinds makes its accesses out of turn. If its request is
    /// earlier than the latest request, it counts as made at the time of the latest request.
    pub(crate) fn at(&mut self, now: u64) {
        debug_assert!(now >= self.latest || std::thread::panicking(), "a request from the past");
        self.latest = now.max(self.latest);
    }

    /// Sends a line from one socket to another. Returns how long it waits on the way.
    pub(crate) fn send(&mut self, from: usize, to: usize) -> u64 {
        self.pass(from, to, self.link_time)
    }

    /// Reads a line from the memory of `home` for `to`. Returns how long the line waits for the controller and on the
    /// way.
    pub(crate) fn fetch(&mut self, home: usize, to: usize) -> u64 {
        let controller = self.controllers[home].serve(self.latest, self.memory_time);
        controller.max(self.send(home, to))
    }

    /// Tells `to` to invalidate its copy, and sends the confirmation to `from`. Returns how long both messages wait on
    /// the way.
    pub(crate) fn invalidate(&mut self, from: usize, to: usize) -> u64 {
        let time = self.link_time * MESSAGE / LINE;
        self.pass(from, to, time).max(self.pass(to, from, time))
    }

    /// Writes a changed line of `from` to the memory of `home`. No access waits for this.
    pub(crate) fn write_back(&mut self, from: usize, home: usize) {
        self.send(from, home);
        self.controllers[home].serve(self.latest, self.memory_time);
    }

    fn pass(&mut self, from: usize, to: usize, time: u64) -> u64 {
        let (mut at, mut longest) = (from, 0);
        while at != to {
            let next = usize::from(self.via[at * self.sockets + to]);
            longest = longest.max(self.links[at * self.sockets + next].serve(self.latest, time));
            at = next;
        }
        longest
    }

    /// Returns the longest service time of one request.
    pub(crate) fn longest_service(&self) -> u64 {
        self.link_time.max(self.memory_time)
    }
}

/// Returns the neighbour of `from` on a shortest way to `to`. If there are several, pairs of sockets are distributed
/// over them.
fn next_hop(machine: &Machine, from: usize, to: usize) -> usize {
    let hops = |a: usize, b: usize| machine.hops[a][b];
    if hops(from, to) <= 1 {
        return to;
    }
    let nearer = |&next: &usize| hops(from, next) == 1 && hops(next, to) < hops(from, to);
    let ways: Vec<usize> = (0..machine.sockets).filter(nearer).collect();
    if ways.is_empty() { to } else { ways[(from + to) % ways.len()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic() -> Traffic {
        Traffic::new(&Machine::preset("xeon-8180-8s").unwrap())
    }

    #[test]
    fn waits_are_in_series_and_no_longer_than_the_demand() {
        let mut traffic = traffic();
        let (link, memory) = (traffic.link_time, traffic.memory_time);
        traffic.at(1_000);
        for before in 0..10 {
            // The link is slower than the controller: a line that waits for the link waits for the controller at the
            // same time.
            assert_eq!(traffic.fetch(0, 1), before * link.max(memory));
        }
        // The way has two links, one after the other: the second line waits for the first one only once.
        assert_eq!((traffic.send(4, 7), traffic.send(4, 7)), (0, link));
        assert_eq!(traffic.send(1, 0), 0, "the other direction");
        // All requests are served by then, and a later request does not wait.
        traffic.at(1_000 + 10 * link);
        assert_eq!(traffic.fetch(0, 1), 0);
    }

    #[test]
    fn invalidations_and_write_backs_take_the_links() {
        let mut traffic = traffic();
        let link = traffic.link_time;
        traffic.at(5);
        assert_eq!(traffic.invalidate(0, 1), 0);
        assert_eq!(traffic.send(1, 0), link * MESSAGE / LINE);
        traffic.write_back(2, 3);
        assert_eq!((traffic.send(2, 3), traffic.fetch(3, 3)), (link, traffic.memory_time));
    }

    #[test]
    #[should_panic(expected = "from the past")]
    #[cfg(debug_assertions)]
    fn requests_come_in_time_order() {
        let mut traffic = traffic();
        traffic.at(10);
        traffic.at(9);
    }
}
