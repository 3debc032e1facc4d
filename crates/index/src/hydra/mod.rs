//! HydraList: a sorted list of data nodes under an asynchronously refreshed search layer (thesis ch. 4).

#[expect(dead_code, reason = "not wired up yet")]
mod snapshot;
