//! The conformance suite: what every ordered map of this library is put through, for every kind of key.
//!
//! The suite is a matrix, and its three macros make a module of tests each from a name, a key type and an expression that makes
//! an empty map, which is evaluated anew for every test and value type:
//!
//! | macro | of what | tests |
//! |---|---|---|
//! | [`conformance!`] | words and byte strings in a map as users get it | all twelve |
//! | [`variant!`] | a policy, a topology, another size of pages | five: a sequence, few keys, churn, threads, drops |
//! | [`encoding!`] | other keys: what must hold of them alone is in [`laws`] | one: a sequence |
//!
//! The tests take maps as [`Tested`](archipelago_tested::Tested), so that they are compiled once for a key type,
//! whatever the maps.
//!
//! | file | what it asks |
//! |---|---|
//! | [`model`] | do sequences of operations answer as `BTreeMap` would? |
//! | [`histories`] | are concurrent histories linearizable, and do scans keep their promises? |
//! | [`threads`] | own writes, keys that never leave, churn, many threads, threads that come and go |
//! | [`values`] | is every value dropped exactly once, is a long value ever torn? |
//! | [`keys`] | the keys all of this is done with |
//! | [`laws`] | what must hold of every key type |
//! | [`sequences`] | operations of the whole face, for keys that are hard for one kind of map |
//! | [`reference`] | a right map to try the suite on, and wrong ones it must find out |

// Every test crate has its own copy of this module and uses its own part of it.
#![allow(dead_code, unused_imports, unused_macros)]

pub mod histories;
pub mod keys;
pub mod laws;
pub mod model;
pub mod reference;
pub mod sequences;
pub mod threads;
pub mod values;

pub use archipelago_tested as tested;

use archipelago_index::OrderedSession;
use keys::TestKey;

/// Under Miri, which is a thousand times slower, everything is smaller.
pub const fn sized(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

/// A scan's entries, after a look at its count.
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

/// As [`scan`], descending; `None` when the index cannot.
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

/// Everything in the map.
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

/// As [`conformance!`], for what differs from a map as users get it by a policy, a topology or the size of pages.
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

/// As [`conformance!`], for what differs by its keys' encodings alone.
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
