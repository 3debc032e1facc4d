//! Named points at which a test can stop a simulated thread. Most points are inside a section that a validation
//! protects. While a thread is stopped, the tests in `tests/simulated` change the data that the thread is reading, or
//! work on a structure that the thread has changed in part. In normal builds the points compile to nothing.

/// A look-up has found its slot, and reads the value next.
pub const FOUND: &str = "a look-up has found its slot";
/// A look-up has its candidate slots, and compares their keys next.
pub const CANDIDATES: &str = "a look-up has its candidates";
/// A conditional insertion (`When::Absent`) has found its key, and reads the value next.
pub const PRESENT: &str = "an insertion has found its key";
/// A walk is about to leave a page, and reads the pointer to the next page next.
pub const LEAVING: &str = "a walk leaves a page";
/// A search for an end of the list has passed an empty page, and reads the next page.
pub const PASSED: &str = "an empty page is passed";
/// A copy has read a page's number of entries, and copies the entries next.
pub const COPYING: &str = "a page's entries are counted";
/// A reader knows that a word is the address of a box, and reads the word next.
pub const BOXED: &str = "a word is an address";
/// A validation has failed, and the failure is reported to the caller next.
pub const REFUSED: &str = "a version does not hold";
/// A writer has stored the length of a page's new upper bound, and stores the bound's bytes next.
pub const BOUND: &str = "a bound has a length and no bytes";
/// A walk over a `BLinkTree` has validated its reads of a page, and continues at the next page that these reads
/// determine.
pub const ENTERING: &str = "a page is entered";
/// A writer has found the page of a `BLinkTree` that is to change, and latches it next.
pub const LATCHING: &str = "a page is latched";
/// A page of a `BLinkTree` has been split, and its separator is inserted into the level above next.
pub const SPLIT: &str = "a page has been split";
/// A replica of a `BLinkTree` has executed an operation of the log, and publishes its progress next.
pub const REPLAYED: &str = "an operation of the log is carried out";
/// A reader has found the slot of the first entry above a key in a page, and reads the slot next.
pub const ABOVE: &str = "the first entry above is found";
/// An operation has found the outermost leaf of an `Art`, and locks it next.
pub const OUTERMOST: &str = "the outermost leaf is found";
/// A chunk (a leaf of Eunomia's maps) has been split, and the new chunk is added to the index next.
pub const CHUNK_SPLIT: &str = "a chunk is split";
/// An operation did not find a key in its chunk, and adds it to the chunk next.
pub const ADDING: &str = "a key is added";
/// An operation has found a key in its chunk, and replaces the value next.
pub const REPLACING: &str = "a value is replaced";
/// An operation has found a key in its chunk, and removes it next.
pub const REMOVING: &str = "a key is taken out";
/// A walk has entered a part of a scattered chunk (a contended chunk, which stores new entries in parts), and reads the
/// part next.
pub const PART: &str = "a part is entered";
/// A descent through inner nodes has reached a node, and reads the node's version next.
pub const DOWN: &str = "a way has come to a node";
/// The only child of an inner root is found, and both are locked next.
pub const LOWERED: &str = "the root's only child is found";
/// A chunk's entries have moved to its neighbour, and the chunk is marked obsolete next.
pub const MERGED: &str = "a chunk's entries have moved";
/// A walk over an `Art` has read the byte of a slot of a small node, and reads the slot's edge next.
pub const PLACE: &str = "a place's byte is read";
/// A walk that merges pages all over a map has examined a batch of pages, and continues or ends next.
pub const WALKED: &str = "a batch of pages is examined";
