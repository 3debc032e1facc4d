//! Test support: recorded histories and the checkers that judge them.
