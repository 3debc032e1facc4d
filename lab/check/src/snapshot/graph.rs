//! The graph of moments: nodes are the transactions' snapshots and commits, edges say "earlier than".
//!
//! Stamps order moments pairwise, which would be a quadratic number of edges. Instead, moments hang on a *time line*,
//! one node per instant at which a moment was certainly over: a moment leads to the instant at which it was over,
//! instants lead to each other in order, and the last instant before a moment could begin leads to that moment.

use super::{Level, Outcome, Txn};
use std::collections::VecDeque;

/// Why one transaction's moment is earlier than another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The second overwrote what the first wrote.
    Ww,
    /// The second read what the first wrote.
    Wr,
    /// The second overwrote what the first read.
    Rw,
    /// The stamps say so, or a transaction's snapshot precedes its commit.
    Time,
}

/// A dependency between transactions, by their indices in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) why: Why,
}

/// Where an edge leads, and the dependency it stands for, if any, with its key.
type Out = (usize, Option<(Edge, String)>);

pub(super) struct Graph {
    level: Level,
    /// The edges of each node.
    edges: Vec<Vec<Out>>,
    /// Nodes below this are moments, the others instants.
    moments: usize,
}

impl Graph {
    /// The moments of the committed transactions, ordered by their stamps.
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

    /// Adds a dependency over `key`.
    pub(super) fn depend(&mut self, edge: Edge, key: &str) {
        let (from, to) = match edge.why {
            Why::Rw => (self.snapshot(edge.from), self.commit(edge.to)),
            _ => (self.commit(edge.from), self.snapshot(edge.to)),
        };
        self.edges[from].push((to, Some((edge, key.to_owned()))));
    }

    /// A cycle with the fewest edges through one of the nodes on some cycle, as dependencies; time in one piece.
    pub(super) fn shortest_cycle(&self) -> Option<Vec<(Edge, String)>> {
        // Any cycle passes a dependency, for time alone has none; start at the moments they lead to.
        let on_cycle = self.cyclic_nodes();
        let starts = (0..self.moments).filter(|&node| on_cycle[node]).take(64);
        let shortest = starts.filter_map(|start| self.cycle_through(start, &on_cycle)).min_by_key(Vec::len)?;
        Some(self.as_dependencies(&shortest))
    }

    /// Marks what is left when nodes without predecessors, then without successors, are taken away again and again:
    /// the nodes on cycles and on paths between them.
    fn cyclic_nodes(&self) -> Vec<bool> {
        let mut left = vec![true; self.edges.len()];
        let mut backward = vec![Vec::new(); self.edges.len()];
        for (node, edges) in self.edges.iter().enumerate() {
            edges.iter().for_each(|&(to, _)| backward[to].push(node));
        }
        let forward: Vec<Vec<usize>> =
            self.edges.iter().map(|edges| edges.iter().map(|&(to, _)| to).collect()).collect();
        for (out, into) in [(&forward, &backward), (&backward, &forward)] {
            let mut degree: Vec<usize> = into.iter().map(|from| from.iter().filter(|&&n| left[n]).count()).collect();
            let mut bare: Vec<usize> = (0..left.len()).filter(|&node| left[node] && degree[node] == 0).collect();
            while let Some(node) = bare.pop() {
                left[node] = false;
                for &to in out[node].iter().filter(|&&to| left[to]) {
                    degree[to] -= 1;
                    if degree[to] == 0 {
                        bare.push(to);
                    }
                }
            }
        }
        left
    }

    /// The shortest cycle through `start`, as pairs of a node and the number of the edge taken from it.
    fn cycle_through(&self, start: usize, within: &[bool]) -> Option<Vec<(usize, usize)>> {
        let mut came_by = vec![None; self.edges.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (number, &(to, _)) in self.edges[node].iter().enumerate().filter(|(_, (to, _))| within[*to]) {
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

    /// Folds the steps between two dependencies into one [`Why::Time`] where they pass from one transaction to
    /// another.
    fn as_dependencies(&self, cycle: &[(usize, usize)]) -> Vec<(Edge, String)> {
        let label = |&(node, number): &(usize, usize)| self.edges[node][number].1.clone();
        // Starting with a dependency, so that no piece of time is cut in two.
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
