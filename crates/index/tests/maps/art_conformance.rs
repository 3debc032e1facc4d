//! `Art` in the conformance suite, under both write synchronisations.

use crate::common::conformance;
use archipelago_index::Art;
use archipelago_index::art::WriteSync;

conformance!(words, u64, Art::new(), |map| map.check_invariants());
conformance!(signed, i64, Art::new(), |map| map.check_invariants());
conformance!(double_words, u128, Art::new(), |map| map.check_invariants());
conformance!(bytes, Vec<u8>, Art::new(), |map| map.check_invariants());
conformance!(strings, String, Art::new(), |map| map.check_invariants());
conformance!(pairs, (u32, String), Art::new(), |map| map.check_invariants());
conformance!(triples, (Vec<u8>, i16, Vec<u8>), Art::new(), |map| map.check_invariants());
conformance!(words_by_coupling, u64, Art::with_write_sync(WriteSync::OptimisticLockCoupling), |map| map
    .check_invariants());
conformance!(bytes_by_coupling, Vec<u8>, Art::with_write_sync(WriteSync::OptimisticLockCoupling), |map| map
    .check_invariants());
