//! Strongly connected components of a graph, by Kosaraju's algorithm in O(nodes + edges), without recursion.

/// Returns the nodes of each component. Two nodes are in one component if there is a path from each to the other.
pub(super) fn components(forward: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut backward = vec![Vec::new(); forward.len()];
    for (node, edges) in forward.iter().enumerate() {
        edges.iter().for_each(|&to| backward[to].push(node));
    }
    let mut met = vec![false; forward.len()];
    let order: Vec<usize> = (0..forward.len()).flat_map(|root| reached(root, forward, &mut met)).collect();
    met.fill(false);
    let found = order.iter().rev().map(|&root| reached(root, &backward, &mut met));
    found.filter(|component| !component.is_empty()).collect()
}

/// Returns the nodes that `root` reaches and that have not been met, each after all nodes that are met by way of it.
fn reached(root: usize, edges: &[Vec<usize>], met: &mut [bool]) -> Vec<usize> {
    let mut left = Vec::new();
    // The way to the current node, with the number of edges of each node that have been followed.
    let mut way: Vec<(usize, usize)> = Vec::new();
    let mut next = Some(root);
    loop {
        if let Some(node) = next.take().filter(|&node| !std::mem::replace(&mut met[node], true)) {
            way.push((node, 0));
        }
        let Some((node, followed)) = way.last_mut() else { return left };
        next = edges[*node].get(*followed).copied();
        *followed += 1;
        if next.is_none() {
            left.push(*node);
            way.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn two_circles_and_a_way_between_them() {
        let edges: [&[usize]; 8] = [&[1], &[2, 3], &[0], &[4], &[5], &[6, 7], &[5], &[]];
        let mut found = components(&edges.map(<[usize]>::to_vec));
        found.iter_mut().for_each(|nodes| nodes.sort_unstable());
        found.sort_unstable();
        assert_eq!(found, [vec![0, 1, 2], vec![3], vec![4], vec![5, 6], vec![7]]);
    }
}
