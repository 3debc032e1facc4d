//! Places where a simulated thread can be made to stop, each in the middle of what a validation protects: the tests in
//! `tests/simulated/stalls.rs` change there what the stopped thread is looking at. Natively they are nothing.

/// A look-up has found its slot, and reads the value next.
pub const FOUND: &str = "a look-up has found its slot";
/// A look-up has its candidate slots, and compares keys next.
pub const CANDIDATES: &str = "a look-up has its candidates";
/// An insertion if absent has found its key there, and reads the value next.
pub const PRESENT: &str = "an insertion has found its key";
/// A walk has found that it goes on behind a page, and reads which one that is next.
pub const LEAVING: &str = "a walk leaves a page";
/// A look for an end of the list has passed an empty page, and looks at the next.
pub const PASSED: &str = "an empty page is passed";
/// A copy knows how many entries the page has, and gets them next.
pub const COPYING: &str = "a page's entries are counted";
/// Something says that a word is the address of a box, and the word is read next.
pub const BOXED: &str = "a word is an address";
/// What was read of a page may not be believed, and the caller is told so next.
pub const REFUSED: &str = "a version does not hold";
/// A page says how long its new upper bound is, and gets the bound next.
pub const BOUND: &str = "a bound has a length and no bytes";
/// A walk over a `BLinkTree` may believe what it has read of a page, and looks at the one where that leads next.
pub const ENTERING: &str = "a page is entered";
/// The page of a `BLinkTree` that is to change has been found, and is latched next.
pub const LATCHING: &str = "a page is latched";
/// A page of a `BLinkTree` has been split, and the level above is told next.
pub const SPLIT: &str = "a page has been split";
/// A replica of a `BLinkTree` has carried out an operation of the log, and says how far it is next.
pub const REPLAYED: &str = "an operation of the log is carried out";
/// The place of the first entry above a key is found in a page, and read next.
pub const ABOVE: &str = "the first entry above is found";
/// The outermost leaf of an `Art` has been found, and is locked next.
pub const OUTERMOST: &str = "the outermost leaf is found";
/// A chunk has been split, and the index gets to know next.
pub const CHUNK_SPLIT: &str = "a chunk is split";
/// A key was not found in its chunk, and is added there next.
pub const ADDING: &str = "a key is added";
/// A key was found in its chunk, and its value is replaced next.
pub const REPLACING: &str = "a value is replaced";
/// A key was found in its chunk, and is taken out next.
pub const REMOVING: &str = "a key is taken out";
/// A walk has entered a part of a scattered chunk, and reads it next.
pub const PART: &str = "a part is entered";
/// A way down inner nodes has come to one, and takes its version next.
pub const DOWN: &str = "a way has come to a node";
/// A chunk's entries have moved to its neighbour, and it becomes obsolete next.
pub const MERGED: &str = "a chunk's entries have moved";
/// A walk over an `Art` has read what byte a place of a small node is for, and reads its edge next.
pub const PLACE: &str = "a place's byte is read";
