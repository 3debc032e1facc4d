//! The conformance suite: the tests that every ordered map of this library must pass, for every kind of key.
//!
//! The suite is a matrix. Each of its three macros makes a module of tests from a name, a key type, and an expression
//! that makes an empty map. The expression is evaluated anew for every test and value type.
//!
//! | macro | use | tests |
//! |---|---|---|
//! | [`conformance!`] | words and byte strings in a map as users get it | all twelve |
//! | [`variant!`] | another policy, topology or size of pages | five: a sequence, few keys, churn, threads, drops |
//! | [`encoding!`] | other keys; [`laws`] tests them alone | one: a sequence |
//!
//! The tests take maps as [`Tested`](archipelago_tested::Tested). So they are compiled once per key type, however many
//! kinds of maps are tested.
//!
//! | file | what it tests |
//! |---|---|
//! | [`model`] | sequences of operations return what `BTreeMap` returns |
//! | [`histories`] | concurrent histories are linearizable, and scans keep their promises |
//! | [`threads`] | a thread's own writes, keys that are never removed, churn, many threads, short-lived threads |
//! | [`values`] | every value is dropped exactly once, and a long value is never read torn |
//! | [`keys`] | (the keys of all these tests) |
//! | [`quiet`] | (waiting for a map's idle state) |
//! | [`laws`] | the laws of every key type |
//! | [`sequences`] | operations of `Map`, with keys that are difficult for one kind of map |
//! | [`reference`] | (a correct map on which the suite is tested, and incorrect ones that it must find) |

// Every test crate has its own copy of this module and uses its own part of it.
#![allow(dead_code, unused_imports, unused_macros)]

pub mod histories;
pub mod keys;
pub mod laws;
pub mod model;
pub mod quiet;
pub mod reference;
pub mod sequences;
pub mod threads;
pub mod values;

pub use archipelago_tested as tested;

use archipelago_index::OrderedSession;
use keys::TestKey;

/// Returns the size of a test. It is smaller under Miri, which is a thousand times slower.
pub const fn sized(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// Returns a scan's entries, after a check of the returned count.
pub fn scan<K: TestKey, V: Clone + Send + Sync + 'static>(
    session: &impl OrderedSession<K, V>,
    from: &K,
    limit: usize,
) -> Vec<(K, V)> {
    let mut found = Vec::new();
    let count = session.scan(from, limit, |key, value| found.push((K::owned(key), value.clone())));
    assert_eq!(count, found.len(), "a scan returns how many entries it visited");
    found
}

/// Returns the entries of a descending scan, or `None` if the index cannot scan backwards.
pub fn scan_rev<K: TestKey, V: Clone + Send + Sync + 'static>(
    session: &impl OrderedSession<K, V>,
    from: &K,
    limit: usize,
) -> Option<Vec<(K, V)>> {
    let mut found = Vec::new();
    let count = session.scan_rev(from, limit, |key, value| found.push((K::owned(key), value.clone())))?;
    assert_eq!(count, found.len(), "a scan returns how many entries it visited");
    Some(found)
}

/// Returns all entries of the map.
pub fn contents<K: TestKey, V: Clone + Send + Sync + 'static>(session: &impl OrderedSession<K, V>) -> Vec<(K, V)> {
    scan(session, &K::least(), usize::MAX)
}

/// Makes a module `$name` that runs the whole suite over maps made by `$make`, with keys of type `$key`.
macro_rules! conformance {
    ($name:ident, $key:ty, $make:expr) => {
        $crate::common::suite!($name, $key, $make;
            model: any_sequence many_keys bounds;
            histories: few_keys many_keys_at_once;
            threads: own_writes overwritten_keys_never_hide churn more_threads_than_cores threads_come_and_go;
            values: drops long_values;
        );
    };
}

/// Like [`conformance!`], but with fewer tests, for a map whose policy, topology or page size is not the one that users
/// get.
macro_rules! variant {
    ($name:ident, $key:ty, $make:expr) => {
        $crate::common::suite!($name, $key, $make;
            model: any_sequence;
            histories: few_keys;
            threads: churn threads_come_and_go;
            values: drops;
        );
    };
}

/// Like [`conformance!`], but with one test, for a map of keys with another encoding.
macro_rules! encoding {
    ($name:ident, $key:ty, $make:expr) => {
        $crate::common::suite!($name, $key, $make; model: any_sequence;);
    };
}

macro_rules! suite {
    ($name:ident, $key:ty, $make:expr; $($file:ident: $($test:ident)*;)*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $crate::common::suite!(@each $(($file $($test)*))*; ($key, $make));
        }
    };
    (@each $(($file:ident $($test:ident)*))*; $subject:tt) => {
        $( $( $crate::common::suite!(@one $file $test $subject); )* )*
    };
    (@one $file:ident $test:ident ($key:ty, $make:expr)) => {
        #[test]
        fn $test() {
            $crate::common::$file::$test::<$key>(&|| $crate::common::tested::Tested::new($make));
        }
    };
}
pub(crate) use {conformance, encoding, suite, variant};
