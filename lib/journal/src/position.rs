//! Positions in log files.

/// The end of a record or of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The number of the lane, which is a sequence of log files.
    pub lane: u32,
    /// The number of bytes of all frames (records with their headers, and marks) in the lane's history up to the
    /// record's end. It rises with each record of the lane, also across openings of the journal.
    pub place: u64,
    /// The record's epoch, the number of the group of records that count together. For a lane's end, the last closed
    /// epoch.
    pub epoch: u64,
}
