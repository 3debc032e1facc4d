//! `Art` in the conformance suite, with both write synchronizations.

use crate::common::{conformance, encoding, variant};
use archipelago_index::Art;
use archipelago_index::art::WriteSync;

conformance!(words, u64, Art::new());
encoding!(signed, i64, Art::new());
encoding!(double_words, u128, Art::new());
conformance!(bytes, Vec<u8>, Art::new());
encoding!(strings, String, Art::new());
encoding!(pairs, (u32, String), Art::new());
encoding!(triples, (Vec<u8>, i16, Vec<u8>), Art::new());
variant!(words_by_coupling, u64, Art::with_write_sync(WriteSync::OptimisticLockCoupling));
variant!(bytes_by_coupling, Vec<u8>, Art::with_write_sync(WriteSync::OptimisticLockCoupling));
