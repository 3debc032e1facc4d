//! Reads bytes of a file or payload. Counts their offset, so that an error can report it, and computes their checksum.

use std::io::Read;

use crc::{CRC_64_REDIS, Crc, Digest, Table};

use super::Error;
use crate::db::hashing::Hashing;
use crate::reply::integer;

/// The checksum of RDB.
pub static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The maximum length of a string, in bytes.
pub const LIMIT: u64 = 512 << 20;
/// The maximum number of bytes that LZF produces from one compressed byte.
const EXPANSION: u64 = 264;

/// A length, or the encoding of a string.
enum Length {
    Bytes(u64),
    /// The encoding: 0, 1 and 2 are integers of one, two and four bytes, 3 is a compressed string.
    Encoded(u8),
}

/// Bytes to be read. See the module's documentation.
pub struct Input<'r, R> {
    from: &'r mut R,
    offset: u64,
    digest: Digest<'static, u64, Table<16>>,
    /// The hash function of the tables of values that are made from the bytes.
    pub hashing: Hashing,
}

impl<'r, R: Read> Input<'r, R> {
    /// Starts at the beginning of `from`.
    pub fn new(from: &'r mut R) -> Self {
        Self { from, offset: 0, digest: CRC.digest(), hashing: Hashing::default() }
    }

    /// Returns the number of bytes read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the checksum of all bytes read.
    pub fn sum(&self) -> u64 {
        self.digest.clone().finalize()
    }

    /// Returns an error at this offset.
    pub fn wrong(&self, what: impl Into<String>) -> Error {
        Error { offset: self.offset, what: what.into() }
    }

    /// Returns the error for an invalid value.
    pub fn damaged(&self) -> Error {
        self.wrong("a value that makes no sense: the file is damaged; take another copy")
    }

    fn cut(&self, error: &std::io::Error) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.wrong("the file ends here: it is cut; take another copy"),
            _ => self.wrong(format!("it cannot be read: {error}")),
        }
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(|error| self.cut(&error))?;
        self.digest.update(&bytes);
        self.offset += N as u64;
        Ok(bytes)
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads `length` bytes. Memory is allocated as the bytes arrive.
    pub fn take(&mut self, length: u64) -> Result<Vec<u8>, Error> {
        if length > LIMIT {
            return Err(self.wrong(format!("a string of {length} bytes: at most {LIMIT} are read")));
        }
        let mut bytes = Vec::with_capacity(length.min(4096) as usize);
        self.from.by_ref().take(length).read_to_end(&mut bytes).map_err(|error| self.cut(&error))?;
        self.digest.update(&bytes);
        self.offset += bytes.len() as u64;
        if (bytes.len() as u64) < length {
            return Err(self.cut(&std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes)
    }

    fn any_length(&mut self) -> Result<Length, Error> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Bytes((first & 0x3f).into()),
            1 => Length::Bytes(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            2 if first == 0x80 => Length::Bytes(u32::from_be_bytes(self.array()?).into()),
            2 if first == 0x81 => Length::Bytes(u64::from_be_bytes(self.array()?)),
            3 => Length::Encoded(first & 0x3f),
            _ => return Err(self.damaged()),
        })
    }

    /// Reads a length or a number.
    pub fn length(&mut self) -> Result<u64, Error> {
        match self.any_length()? {
            Length::Bytes(length) => Ok(length),
            Length::Encoded(_) => Err(self.damaged()),
        }
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<Vec<u8>, Error> {
        let number = match self.any_length()? {
            Length::Bytes(length) => return self.take(length),
            Length::Encoded(0) => i64::from(i8::from_le_bytes(self.array()?)),
            Length::Encoded(1) => i64::from(i16::from_le_bytes(self.array()?)),
            Length::Encoded(2) => i64::from(i32::from_le_bytes(self.array()?)),
            Length::Encoded(3) => {
                let (short, long) = (self.length()?, self.length()?);
                let packed = self.take(short)?;
                if long > LIMIT || long > short.saturating_mul(EXPANSION) {
                    return Err(self.wrong("a compressed string that cannot be so long: the file is damaged"));
                }
                return expand(&packed, long as usize).ok_or_else(|| self.damaged());
            }
            Length::Encoded(_) => return Err(self.damaged()),
        };
        let mut digits = Vec::with_capacity(11);
        integer(number, &mut digits);
        Ok(digits)
    }
}

/// Expands bytes that LZF compressed. Returns `None` if the result does not have this length.
fn expand(packed: &[u8], length: usize) -> Option<Vec<u8>> {
    let (mut out, mut at) = (Vec::with_capacity(length), 0);
    let byte = |at: usize| packed.get(at).copied();
    while at < packed.len() {
        let control = usize::from(packed[at]);
        at += 1;
        if control < 32 {
            // `control + 1` literal bytes.
            out.extend_from_slice(packed.get(at..=at + control)?);
            at += control + 1;
        } else {
            // A copy of earlier output. The control byte has three bits of the copy's length. If they are 7, the next
            // byte is added to the length. The other five bits and one more byte are the distance back.
            let mut count = control >> 5;
            if count == 7 {
                count += usize::from(byte(at)?);
                at += 1;
            }
            let distance = (control & 0x1f) << 8 | usize::from(byte(at)?);
            at += 1;
            let from = out.len().checked_sub(distance + 1)?;
            // The source may overlap the copy.
            (from..from + count + 2).for_each(|from| out.push(out[from]));
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(CRC.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn what_is_repeated_is_expanded() {
        assert_eq!(expand(&[2, b'a', b'b', b'c', 0x80, 2], 9).unwrap(), b"abcabcabc");
        assert_eq!(expand(&[0, b'a', 0xe0, 10, 0], 20).unwrap(), [b'a'; 20]);
        assert_eq!(expand(&[0, b'a', 0x20, 1], 4), None, "before the start");
        assert_eq!(expand(&[5, b'a'], 6), None, "behind the end");
        assert_eq!(expand(&[0, b'a', 0xe0, 10, 0], 19), None, "longer than said");
    }

    #[test]
    fn a_length_makes_no_room() {
        for (bytes, what) in [
            (&b"\x81\x00\x00\x00\x00\x1f\xff\xff\xff"[..], "it is cut"),
            (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff", "at most 536870912"),
            (b"\xc3\x01\x80\x1f\xff\xff\xff\x00", "cannot be so long"),
        ] {
            let mut from = bytes;
            let error = Input::new(&mut from).string().unwrap_err();
            assert!(error.what.contains(what), "{error}");
        }
    }
}
