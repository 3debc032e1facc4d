//! Bytes of a log file: a header, then frames.
//!
//! A frame's *place* is its position in its lane: the number of bytes of all frames before it in the lane's history.
//! The frame contains its place. Its checksum starts from a *salt* made of the journal's id, the lane and the life (the
//! number of times that the journal was opened). A file system reuses blocks, so after a crash it may show bytes of
//! another file, of an earlier life, or of another place. The checksum and the place prevent such bytes from being
//! mistaken for a frame.
//!
//! *Marks* are frames without a record. A mark contains the place up to which frames were durable when the mark was
//! written, and the last epoch that is closed before the mark. Marks distinguish damage from a torn tail: a frame
//! before a durable place cannot have been torn by a crash. The mark at the end of a checkpoint file is an exception:
//! in place of the epoch, it contains the number of the file's records.

use crate::disk::{DiskFile, read_full};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

/// The number of bytes of a file's header.
pub(crate) const HEADER: usize = 72;
/// The number of bytes of a frame before its body: checksum, length, place, epoch.
pub(crate) const FRAME: usize = 24;
/// The number of bytes of a mark.
pub(crate) const MARK: usize = FRAME + 8;
/// The flag in a frame's length field which states that the frame is a mark.
const IS_MARK: u32 = 1 << 31;
const MAGIC: [u8; 8] = *b"ARCHJL01";

/// A file's header, its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The id of the journal to which the file belongs.
    pub(crate) id: u64,
    pub(crate) lane: u32,
    /// The number of times that the journal had been opened when the file was created.
    pub(crate) life: u64,
    /// The place of the first frame.
    pub(crate) base: u64,
    /// The last epoch that is closed before `base`.
    pub(crate) closed: u64,
    /// The highest epoch of a record before `base`, or an upper bound of it.
    pub(crate) highest: u64,
    /// The place up to which frames were durable when the file was created.
    pub(crate) synced: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        let words = [self.id, u64::from(self.lane), self.life, self.base, self.closed, self.highest, self.synced];
        for (word, to) in words.iter().zip(bytes[8..].chunks_exact_mut(8)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..HEADER - 8]);
        bytes[HEADER - 8..HEADER - 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header. Returns `None` if the bytes are not a header.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |at: usize| u64_at(bytes, 8 * at);
        let sound = bytes[..8] == MAGIC && u32_at(bytes, HEADER - 8) == crc32c::crc32c(&bytes[..HEADER - 8]);
        let header = || Self {
            id: word(1),
            lane: word(2) as u32,
            life: word(3),
            base: word(4),
            closed: word(5),
            highest: word(6),
            synced: word(7),
        };
        sound.then(header)
    }

    /// Returns the salt, from which the checksums of the file's frames start.
    pub(crate) fn salt(&self) -> u32 {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::from(self.lane).to_le_bytes());
        bytes[16..].copy_from_slice(&self.life.to_le_bytes());
        crc32c::crc32c(&bytes)
    }
}

/// Returns a number for [`Header::id`] that is unlikely to be drawn again.
pub(crate) fn random_id() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Appends a record's frame.
pub(crate) fn put_record(to: &mut Vec<u8>, salt: u32, place: u64, epoch: u64, record: &[u8]) {
    put(to, salt, place, epoch, record.len() as u32, record);
}

/// Appends a mark. In a journal with epochs, records after the mark must have higher epochs than `closed`.
pub(crate) fn put_mark(to: &mut Vec<u8>, salt: u32, place: u64, closed: u64, synced: u64) {
    put(to, salt, place, closed, 8 | IS_MARK, &synced.to_le_bytes());
}

fn put(to: &mut Vec<u8>, salt: u32, place: u64, epoch: u64, length: u32, body: &[u8]) {
    let start = to.len();
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(&place.to_le_bytes());
    to.extend_from_slice(&epoch.to_le_bytes());
    to.extend_from_slice(body);
    let crc = crc32c::crc32c_append(salt, &to[start + 4..]);
    to[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// One frame of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Record { place: u64, epoch: u64, body: &'a [u8] },
    Mark { closed: u64, synced: u64 },
}

/// The content at a reader's offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    Frame(Frame<'a>),
    /// The file ends here.
    End,
    /// The bytes are not a frame, for the given reason. The offset does not change.
    Bad(&'static str),
}

/// Reads a file's frames one after the other, through a window of 256 KiB. For a longer frame, the window grows to the
/// frame's length. A wrong length field cannot make the window longer than the rest of the file.
pub(crate) struct Frames<'f> {
    file: &'f dyn DiskFile,
    length: u64,
    salt: u32,
    base: u64,
    /// The reader's offset, in bytes from the file's beginning.
    offset: u64,
    window: Vec<u8>,
    /// The window's offset, in bytes from the file's beginning.
    start: u64,
}

impl<'f> Frames<'f> {
    pub(crate) fn new(file: &'f dyn DiskFile, header: &Header) -> io::Result<Self> {
        let (salt, base, offset) = (header.salt(), header.base, HEADER as u64);
        Ok(Self { file, length: file.length()?, salt, base, offset, window: Vec::new(), start: 0 })
    }

    /// Returns the reader's offset, in bytes from the file's beginning.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the place of the frame at the offset.
    pub(crate) fn place(&self) -> u64 {
        self.base + (self.offset - HEADER as u64)
    }

    pub(crate) fn next(&mut self) -> io::Result<Next<'_>> {
        let left = self.length.saturating_sub(self.offset);
        if left == 0 {
            return Ok(Next::End);
        }
        if left < FRAME as u64 || !self.fill(FRAME)? {
            return Ok(Next::Bad("the file ends in the middle of a frame"));
        }
        let place = self.place();
        let head = self.window(FRAME);
        let (length, found, epoch) = (u32_at(head, 4), u64_at(head, 8), u64_at(head, 16));
        if found != place {
            return Ok(Next::Bad("a frame of another place, or none"));
        }
        let body = (length & !IS_MARK) as usize;
        // The check precedes the allocation: a frame does not reach beyond its file.
        if (body as u64) > left - FRAME as u64 || (length & IS_MARK != 0 && body != 8) {
            return Ok(Next::Bad("the length of a frame is impossible"));
        }
        if !self.fill(FRAME + body)? {
            return Ok(Next::Bad("the file ends in the middle of a frame"));
        }
        let frame = self.window(FRAME + body);
        if !self.is_sound(frame) {
            return Ok(Next::Bad("the checksum of a frame is wrong"));
        }
        let from = (self.offset - self.start) as usize;
        self.offset += (FRAME + body) as u64;
        let body = &self.window[from + FRAME..from + FRAME + body];
        Ok(Next::Frame(if length & IS_MARK != 0 {
            Frame::Mark { closed: epoch, synced: u64_at(body, 0) }
        } else {
            Frame::Record { place, epoch, body }
        }))
    }

    /// Returns the greatest place that a mark after the offset declares durable, or 0. The method tries every byte as
    /// the beginning of a mark, since lengths after damage cannot be trusted. O(bytes): all marks have the same length,
    /// so the method never follows the length of another frame.
    pub(crate) fn durable_behind(mut self) -> io::Result<u64> {
        let mut durable = 0;
        while self.fill(MARK)? {
            match self.mark() {
                Some(synced) => {
                    durable = durable.max(synced);
                    self.offset += MARK as u64;
                }
                None => self.offset += 1,
            }
        }
        Ok(durable)
    }

    /// Returns the place that the mark at the offset declares durable. Returns `None` if the bytes of the window at the
    /// offset are not a mark.
    fn mark(&self) -> Option<u64> {
        let bytes = self.window(MARK);
        let is_mark = u64_at(bytes, 8) == self.place() && u32_at(bytes, 4) == 8 | IS_MARK;
        (is_mark && self.is_sound(bytes)).then(|| u64_at(bytes, FRAME))
    }

    /// Returns whether a frame's checksum is right.
    fn is_sound(&self, frame: &[u8]) -> bool {
        u32_at(frame, 0) == crc32c::crc32c_append(self.salt, &frame[4..])
    }

    fn window(&self, bytes: usize) -> &[u8] {
        let from = (self.offset - self.start) as usize;
        &self.window[from..from + bytes]
    }

    /// Reads the next `bytes` into the window. Returns whether the file has them.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        let have = (self.start + self.window.len() as u64).saturating_sub(self.offset) as usize;
        if have >= bytes && self.offset >= self.start {
            return Ok(true);
        }
        let wanted = (self.length - self.offset).min(bytes.max(256 << 10) as u64) as usize;
        self.window.resize(wanted, 0);
        let read = read_full(self.file, self.offset, &mut self.window)?;
        self.window.truncate(read);
        self.start = self.offset;
        Ok(read >= bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Disk, Simulated};
    use std::cell::Cell;
    use std::path::Path;

    const HERE: Header = Header { id: 7, lane: 3, life: 2, base: 1000, closed: 4, highest: 9, synced: 900 };

    fn file(bytes: &[u8]) -> Box<dyn DiskFile> {
        let file = Simulated::new().create(Path::new("f")).unwrap();
        crate::disk::write_all(&*file, 0, &HERE.encode()).unwrap();
        crate::disk::write_all(&*file, HEADER as u64, bytes).unwrap();
        file
    }

    fn two_frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        put_mark(&mut bytes, HERE.salt(), 1000, 4, 950);
        put_record(&mut bytes, HERE.salt(), 1000 + MARK as u64, 5, b"hello");
        bytes
    }

    #[test]
    fn headers_come_back_and_every_changed_bit_is_noticed() {
        let bytes = HERE.encode();
        assert_eq!(Header::decode(&bytes), Some(HERE));
        for bit in 0..(HEADER - 4) * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn frames_come_back() {
        let file = file(&two_frames());
        let mut frames = Frames::new(&*file, &HERE).unwrap();
        assert_eq!(frames.next().unwrap(), Next::Frame(Frame::Mark { closed: 4, synced: 950 }));
        let record = Frame::Record { place: 1032, epoch: 5, body: b"hello" };
        assert_eq!(frames.next().unwrap(), Next::Frame(record));
        assert_eq!(frames.next().unwrap(), Next::End);
    }

    #[test]
    fn every_changed_bit_and_every_other_salt_and_place_is_noticed() {
        let bytes = two_frames();
        for bit in 0..MARK * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let file = file(&changed);
            assert!(matches!(Frames::new(&*file, &HERE).unwrap().next().unwrap(), Next::Bad(_)), "bit {bit}");
        }
        let file = file(&bytes);
        for other in [
            Header { id: 8, ..HERE },
            Header { lane: 2, ..HERE },
            Header { life: 3, ..HERE },
            Header { base: 1032, ..HERE },
        ] {
            assert!(matches!(Frames::new(&*file, &other).unwrap().next().unwrap(), Next::Bad(_)), "{other:?}");
        }
    }

    #[test]
    fn lengths_that_lie_allocate_no_more_than_the_file() {
        let mut bytes = two_frames();
        bytes[4..8].copy_from_slice(&(IS_MARK - 1).to_le_bytes());
        let file = file(&bytes);
        let mut frames = Frames::new(&*file, &HERE).unwrap();
        assert_eq!(frames.next().unwrap(), Next::Bad("the length of a frame is impossible"));
        assert!(frames.window.capacity() <= 256 << 10);
    }

    /// A file that counts the bytes that are read.
    struct Counting(Box<dyn DiskFile>, Cell<usize>);

    impl DiskFile for Counting {
        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }

        fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(offset, to)?;
            self.1.set(self.1.get() + read);
            Ok(read)
        }

        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(offset, bytes)
        }

        fn set_length(&self, length: u64) -> io::Result<()> {
            self.0.set_length(length)
        }

        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
    }

    /// A tail of frames with right places and wrong checksums, each of which ends one byte behind the previous one.
    #[test]
    fn frames_that_lie_are_not_read_to_their_ends() {
        const REACH: usize = 300 << 10;
        const FRAMES: usize = 200;
        let mut bytes = vec![0; REACH + FRAMES];
        for (number, frame) in bytes.chunks_exact_mut(FRAME).take(FRAMES).enumerate() {
            let at = number * FRAME;
            frame[4..8].copy_from_slice(&((REACH + number - at - FRAME) as u32).to_le_bytes());
            frame[8..16].copy_from_slice(&(HERE.base + at as u64).to_le_bytes());
        }
        let file = Counting(file(&bytes), Cell::new(0));
        assert_eq!(Frames::new(&file, &HERE).unwrap().durable_behind().unwrap(), 0);
        assert!(file.1.get() < 2 * bytes.len(), "{} bytes read of {}", file.1.get(), bytes.len());
    }

    #[test]
    fn marks_are_found_behind_damage() {
        let mut bytes = b"damage".to_vec();
        put_mark(&mut bytes, HERE.salt(), 1006, 4, 1003);
        let file = file(&bytes);
        assert_eq!(Frames::new(&*file, &HERE).unwrap().durable_behind().unwrap(), 1003);
        assert_eq!(Frames::new(&*file, &Header { life: 1, ..HERE }).unwrap().durable_behind().unwrap(), 0);
    }
}
