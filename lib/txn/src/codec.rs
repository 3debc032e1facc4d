//! What a commit writes into the log about one record of a table.
//!
//! An entry: table, u32, the highest bit set in a removal; serial, u64; length of the body, u32; the body: the row or, of a
//! removal, its key. Integers are little-endian. A transaction's entries are one record of the journal.
//!
//! *Serials* order the entries of one key within an epoch: the logs of several lanes have no order among each other. A version's
//! serial is one more than that of the version which it replaces; where a record begins anew after its predecessor was taken
//! out, one more than any that its index has seen go (`Tree::gone`).

use archipelago_platform::atomic::{AtomicU32, Ordering};

use crate::memory::Payload;
use crate::record::{Keyed, Record, Version};
use crate::scheme::Scheme;
use crate::sight::payload;

/// How the rows of a table are written.
pub(crate) struct Codec<K, P> {
    /// The table's number in the catalogue, known when the database is opened: before there are transactions.
    pub(crate) table: AtomicU32,
    pub(crate) key: fn(&K, &mut Vec<u8>),
    pub(crate) row: fn(&P, &mut Vec<u8>),
}

/// Set in the table's number.
pub(crate) const REMOVED: u32 = 1 << 31;
/// Where an entry has its serial, from its beginning.
const SERIAL: usize = 4;
/// The bytes before its body.
pub(crate) const HEAD: usize = 16;
/// What is there while users' code appends the body: code that does not only append would damage the log, and not its row alone.
const MARK: [u8; HEAD] = *b"an entry's head\xff";

impl<K, P: Payload> Codec<K, P> {
    /// Appends the entry of a version, without its serial; returns where that is to be.
    ///
    /// # Panics
    /// If the users' code panics, or has changed what was there before.
    ///
    /// # Safety
    /// `record` is of an index with these types, `version` is a version of it; both are alive.
    pub(crate) unsafe fn encode<S: Scheme>(
        &self,
        record: &Record<S>,
        version: *mut Version<S>,
        to: &mut Vec<u8>,
    ) -> usize {
        let start = to.len();
        to.extend(MARK);
        let table = self.table.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        let table = match unsafe { payload::<P, S>(version) } {
            Some(row) => {
                (self.row)(row, to);
                table
            }
            None => {
                // SAFETY: records of this index are `Keyed` of these types, which begin with the record.
                let keyed = unsafe { &*core::ptr::from_ref(record).cast::<Keyed<K, P, S>>() };
                (self.key)(keyed.key(), to);
                table | REMOVED
            }
        };
        let only_appended = to.get(start..start + HEAD) == Some(&MARK[..]);
        assert!(only_appended, "`Persist::save` may only append to what it is given");
        // What is longer than a record may be is refused by its length.
        let length = u32::try_from(to.len() - start - HEAD).unwrap_or(u32::MAX);
        to[start..start + 4].copy_from_slice(&table.to_le_bytes());
        to[start + 12..start + HEAD].copy_from_slice(&length.to_le_bytes());
        start + SERIAL
    }
}

/// A transaction's entries, and where their serials are to be: with the numbers of its writes.
#[derive(Default)]
pub struct Encoded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) serials: Vec<(usize, usize)>,
}

impl Encoded {
    /// Puts a serial in its place.
    pub(crate) fn set(&mut self, at: usize, serial: u64) {
        self.bytes[at..at + 8].copy_from_slice(&serial.to_le_bytes());
    }
}
