//! A loaded workload behind a trait object, without its type parameters.

/// The result of one turn of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The transaction's kind: an index into [`Arena::kinds`].
    pub kind: usize,
    /// How often the transaction was begun, including repetitions.
    pub begun: u64,
    /// Whether the transaction is of a kind that writes, even if it was rolled back.
    pub writes: bool,
    /// Whether the transaction was rolled back on the workload's own decision.
    pub rolled_back: bool,
}

/// One thread's access to the workload.
pub trait Client {
    /// Runs one transaction to its end.
    fn turn(&mut self) -> Turn;
}

/// A loaded workload.
pub trait Arena: Send + Sync {
    /// Returns a thread's client. Threads with different numbers do different work, even if their seeds are equal.
    fn client(&self, thread: usize, seed: u64) -> Box<dyn Client + '_>;

    /// Returns the names of the kinds of transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// Checks the consistency of the tables, at one moment. Conditions on the counts of clients hold only after all
    /// clients have been dropped.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn check(&self) -> Result<(), String>;
}
