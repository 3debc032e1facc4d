//! The conformance suite: what every ordered map of this library is put through, for every kind of key.
//!
//! [`conformance!`] makes a module of tests from a name, a key type and an expression that makes an empty map; the
//! expression is evaluated anew for every test and value type. A fourth argument is run on the map whenever a test has
//! it to itself, to check its invariants. The tests take both as trait objects: maps of one type, made in several ways,
//! share their code, and a test binary compiles in half the time.
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
        conformance!($name, $key, $make, |_| ());
    };
    ($name:ident, $key:ty, $make:expr, $check:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            conformance!(@tests $key, $make, $check;
                model: any_sequence many_keys bounds;
                histories: few_keys many_keys_at_once;
                threads: own_writes overwritten_keys_never_hide churn more_threads_than_cores threads_come_and_go;
                values: drops long_values;
            );
        }
    };
    (@tests $key:ty, $make:expr, $check:expr; $($file:ident: $($test:ident)*;)*) => {
        conformance!(@each $(($file $($test)*))*; ($key, $make, $check));
    };
    (@each $(($file:ident $($test:ident)*))*; $subject:tt) => {
        $( $( conformance!(@one $file $test $subject); )* )*
    };
    (@one $file:ident $test:ident ($key:ty, $make:expr, $check:expr)) => {
        #[test]
        fn $test() {
            crate::common::$file::$test::<$key, _>(&|| $make, &$check);
        }
    };
}
pub(crate) use conformance;
