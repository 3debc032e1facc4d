//! A loaded workload without its types.

/// What one turn of a client came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Which of [`Arena::kinds`].
    pub kind: usize,
    /// How often the transaction was begun.
    pub begun: u64,
    /// Whether it wrote, or would have.
    pub writes: bool,
    /// Whether it was rolled back because the workload wants so.
    pub rolled_back: bool,
}

/// One thread's part.
pub trait Client {
    /// Runs one transaction to its end.
    fn turn(&mut self) -> Turn;
}

/// A loaded workload.
pub trait Arena: Send + Sync {
    /// The part of a thread. Threads with different numbers do different work, also if their seeds are the same.
    fn client(&self, thread: usize, seed: u64) -> Box<dyn Client + '_>;

    /// The kinds of transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// Judges what is in the tables, at one moment. All clients have ended, or what they promise is not asked about.
    ///
    /// # Errors
    /// With what is wrong, in one sentence.
    fn check(&self) -> Result<(), String>;
}
