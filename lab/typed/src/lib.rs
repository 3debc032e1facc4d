//! Tests of the ordered maps that compile them for dozens of types of keys and values.
//!
//! They are a package of their own, so that they can be compiled without optimization: with it they take ten times as
//! long to compile, and without it only seconds longer to run.
//!
//! | file | what it tests |
//! |---|---|
//! | `tests/typed/key_types.rs` | every type of key: alone, as a part of other keys, and in maps |
//! | `tests/typed/face.rs` | the public interface of every map |
//! | `tests/hostile_face.rs` | hostile uses of the public interface |
