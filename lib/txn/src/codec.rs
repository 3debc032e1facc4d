//! The log entry that a commit writes for one record of a table.
//!
//! An entry consists of the table's number (u32, with the highest bit set in a removal), the serial (u64), the body's
//! length (u32), and the body. The body is the row; the body of a removal is the key. Integers are little-endian. A
//! transaction's entries are one record of the journal.
//!
//! *Serials* order the entries of one key within an epoch. They are needed because entries in different log files
//! (*lanes*) are not ordered relative to each other. A version's serial is one more than the serial of the version that
//! it replaces. If a key's earlier record was unlinked, the serial of its last version is unknown. So the serial of a
//! new record's first version is one more than the greatest serial of all records that were unlinked from its index
//! (`Tree::gone`).

use archipelago_platform::atomic::{AtomicU32, Ordering};

use crate::memory::Payload;
use crate::record::{Keyed, Record, Version};
use crate::scheme::Scheme;
use crate::sight::payload;

/// How the rows of a table are written.
pub(crate) struct Codec<K, P> {
    /// The table's number in the catalogue. Opening the database sets it before any transaction begins.
    pub(crate) table: AtomicU32,
    pub(crate) key: fn(&K, &mut Vec<u8>),
    pub(crate) row: fn(&P, &mut Vec<u8>),
}

/// A flag in an entry's table number, which states that the entry is a removal.
pub(crate) const REMOVED: u32 = 1 << 31;
/// The serial's offset in an entry.
const SERIAL: usize = 4;
/// The length of an entry's head, which precedes the body.
pub(crate) const HEAD: usize = 16;
/// The head's content while users' code appends the body. If users' code changes these bytes, it may also have damaged
/// other entries of the log. So the change is detected.
const MARK: [u8; HEAD] = *b"an entry's head\xff";

impl<K, P: Payload> Codec<K, P> {
    /// Appends the entry of a version, without its serial. Returns the serial's position.
    ///
    /// # Panics
    /// If users' code panics, or has changed the bytes before the body.
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
        // A length that does not fit is longer than any record may be, so the journal refuses the record.
        let length = u32::try_from(to.len() - start - HEAD).unwrap_or(u32::MAX);
        to[start..start + 4].copy_from_slice(&table.to_le_bytes());
        to[start + 12..start + HEAD].copy_from_slice(&length.to_le_bytes());
        start + SERIAL
    }
}

/// A transaction's entries. For each entry, `serials` has the number of its write and its serial's position.
#[derive(Default)]
pub struct Encoded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) serials: Vec<(usize, usize)>,
}

impl Encoded {
    /// Writes a serial at its position.
    pub(crate) fn set(&mut self, at: usize, serial: u64) {
        self.bytes[at..at + 8].copy_from_slice(&serial.to_le_bytes());
    }
}
