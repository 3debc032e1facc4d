//! An error message for the user of the command line.

use core::fmt;

/// One sentence that says what is wrong and, where possible, what to do instead. The command prints the sentence and
/// exits with 2.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Makes a failure with this sentence.
    pub fn new(sentence: impl Into<String>) -> Failure {
        Failure(sentence.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
