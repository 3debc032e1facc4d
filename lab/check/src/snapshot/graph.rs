//! The graph of moments. Nodes are the transactions' snapshots and commits; an edge means "earlier than".
//!
//! Stamps order moments in pairs, which would need a quadratic number of edges. Instead, moments are attached to
//! a *time line*, which has one node per instant at which a moment was certainly over. A moment has an edge to the
//! instant at which it was over. Each instant has an edge to the next one. The last instant before a moment could begin
//! has an edge to this moment.

use super::components::components;
use super::{Level, Outcome, Txn};
use std::collections::VecDeque;

/// The reason why one transaction's moment is earlier than another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The second transaction overwrote what the first wrote.
    Ww,
    /// The second transaction read what the first wrote.
    Wr,
    /// The second transaction overwrote what the first read.
    Rw,
    /// The stamps imply it, or a transaction's snapshot precedes its commit.
    Time,
}

/// A dependency between transactions, by their indices in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) why: Why,
}

/// The node to which an edge leads, and the dependency for which it stands, if any, with the dependency's key.
type Out = (usize, Option<(Edge, String)>);

pub(super) struct Graph {
    level: Level,
    /// The outgoing edges of each node.
    edges: Vec<Vec<Out>>,
    /// Nodes with numbers below this are moments; the others are instants.
    moments: usize,
}

impl Graph {
    /// Makes the graph of the committed transactions' moments, ordered by their stamps.
    pub(super) fn new<K, V>(level: Level, history: &[Txn<K, V>]) -> Self {
        let moments = 2 * history.len();
        let mut graph = Graph { level, edges: vec![Vec::new(); moments], moments };
        let mut intervals = Vec::new();
        for (index, txn) in history.iter().enumerate() {
            if txn.outcome == Outcome::Aborted {
                continue;
            }
            let (snapshot, commit) = (graph.snapshot(index), graph.commit(index));
            match level {
                Level::Snapshot => {
                    graph.edges[snapshot].push((commit, None));
                    intervals.extend([(txn.begin, snapshot), (txn.end, commit)]);
                }
                Level::Serializable => intervals.push(((txn.begin.0, txn.end.1), commit)),
            }
        }
        graph.add_time_line(&intervals);
        graph
    }

    fn snapshot(&self, txn: usize) -> usize {
        match self.level {
            Level::Snapshot => 2 * txn,
            Level::Serializable => 2 * txn + 1,
        }
    }

    fn commit(&self, txn: usize) -> usize {
        2 * txn + 1
    }

    fn add_time_line(&mut self, intervals: &[((u64, u64), usize)]) {
        let mut over: Vec<(u64, usize)> = intervals.iter().map(|&((_, end), moment)| (end, moment)).collect();
        over.sort_unstable();
        for (place, &(_, moment)) in over.iter().enumerate() {
            let instant = self.edges.len();
            self.edges.push(Vec::new());
            self.edges[moment].push((instant, None));
            if place > 0 {
                self.edges[instant - 1].push((instant, None));
            }
        }
        for &((begin, _), moment) in intervals {
            let before = over.partition_point(|&(end, _)| end < begin);
            if before > 0 {
                self.edges[self.moments + before - 1].push((moment, None));
            }
        }
    }

    /// Adds a dependency by `key`.
    pub(super) fn depend(&mut self, edge: Edge, key: &str) {
        let (from, to) = match edge.why {
            Why::Rw => (self.snapshot(edge.from), self.commit(edge.to)),
            _ => (self.commit(edge.from), self.snapshot(edge.to)),
        };
        self.edges[from].push((to, Some((edge, key.to_owned()))));
    }

    /// Returns a cycle as dependencies: the shortest one through one of the first 64 moments that are on cycles.
    /// Successive steps of time are merged into one.
    pub(super) fn shortest_cycle(&self) -> Option<Vec<(Edge, String)>> {
        // Time alone makes no cycle, so each cycle contains a dependency. The search starts at the moments on cycles.
        let component = self.cyclic_components();
        let starts = (0..self.moments).filter(|&node| component[node].is_some()).take(64);
        let shortest = starts.filter_map(|start| self.cycle_through(start, &component)).min_by_key(Vec::len)?;
        Some(self.as_dependencies(&shortest))
    }

    /// Returns the number of each node's strongly connected component, or `None` if the node is on no cycle. (No node
    /// has an edge to itself.)
    fn cyclic_components(&self) -> Vec<Option<usize>> {
        let forward: Vec<Vec<usize>> =
            self.edges.iter().map(|edges| edges.iter().map(|&(to, _)| to).collect()).collect();
        let mut component = vec![None; self.edges.len()];
        for (number, nodes) in components(&forward).iter().enumerate().filter(|(_, nodes)| nodes.len() > 1) {
            nodes.iter().for_each(|&node| component[node] = Some(number));
        }
        component
    }

    /// Returns the shortest cycle through `start`, as pairs of a node and the number of its edge in the cycle.
    fn cycle_through(&self, start: usize, component: &[Option<usize>]) -> Option<Vec<(usize, usize)>> {
        let within = |to: usize| component[to] == component[start];
        let mut came_by = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (number, &(to, _)) in self.edges[node].iter().enumerate().filter(|(_, (to, _))| within(*to)) {
                if came_by[to].is_none() {
                    came_by[to] = Some((node, number));
                    queue.push_back(to);
                }
            }
            if let Some(last) = came_by[start] {
                let mut cycle = vec![last];
                while cycle[cycle.len() - 1].0 != start {
                    cycle.push(came_by[cycle[cycle.len() - 1].0].expect("found on the way from the start"));
                }
                cycle.reverse();
                return Some(cycle);
            }
        }
        None
    }

    /// Merges the steps between two dependencies into one [`Why::Time`], if they lead from one transaction to another.
    fn as_dependencies(&self, cycle: &[(usize, usize)]) -> Vec<(Edge, String)> {
        let label = |&(node, number): &(usize, usize)| self.edges[node][number].1.clone();
        // Starts with a dependency, so that no sequence of time steps is split in two.
        let first = cycle.iter().position(|step| label(step).is_some()).expect("time alone has no cycle");
        let mut steps: Vec<(Edge, String)> = Vec::new();
        for step in cycle[first..].iter().chain(&cycle[..first]) {
            let Some((edge, key)) = label(step) else { continue };
            if let Some((before, _)) = steps.last().filter(|(before, _)| before.to != edge.from) {
                steps.push((Edge { from: before.to, to: edge.from, why: Why::Time }, String::new()));
            }
            steps.push((edge, key));
        }
        let (last, next) = (steps[steps.len() - 1].0.to, steps[0].0.from);
        if last != next {
            steps.push((Edge { from: last, to: next, why: Why::Time }, String::new()));
        }
        steps
    }
}
