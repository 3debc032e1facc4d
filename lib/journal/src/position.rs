//! Places in log files.

/// Where a record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which log file.
    pub lane: u32,
    /// Bytes of frames in the lane up to the record's end, ever: rises with each record of the lane, also from one opening of the
    /// journal to the next.
    pub place: u64,
    /// The record's epoch.
    pub epoch: u64,
}
