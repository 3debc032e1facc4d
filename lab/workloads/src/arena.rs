//! A loaded workload behind a trait object, without its type parameters.

use archipelago_txn::Isolation;

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

    /// Checks the consistency of the tables, at one moment, of a store that promises this isolation. Conditions on the
    /// counts of clients hold only after all clients have been dropped. Returns the number of write skews that were
    /// seen, which is 0 if the store is serializable or the workload has none.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    fn check_at(&self, isolation: Isolation) -> Result<u64, String>;

    /// Does the same as [`check_at`](Self::check_at) for a serializable store.
    ///
    /// # Errors
    /// As [`check_at`](Self::check_at).
    fn check(&self) -> Result<(), String> {
        self.check_at(Isolation::Serializable).map(drop)
    }
}
