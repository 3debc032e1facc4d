//! An answer of many byte strings, in one allocation.

use super::{Reply, bulk};

/// Byte strings in order.
///
/// # Invariant
/// `bytes` is the encoding of `count` bulk strings, which is the same in both protocols: for each string a `$`, its length,
/// a line end, the string, a line end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bulks {
    bytes: Vec<u8>,
    count: usize,
}

impl Bulks {
    /// Appends a string.
    pub fn push(&mut self, string: &[u8]) {
        bulk(string, &mut self.bytes);
        self.count += 1;
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the strings as bytes of both protocols.
    pub fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        core::iter::from_fn(move || {
            let digits = rest.get(1..)?;
            let end = digits.iter().position(|byte| *byte == b'\r').expect("a length ends");
            let length = digits[..end].iter().fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
            let string = &digits[end + 2..][..length];
            rest = &digits[end + 2 + length + 2..];
            Some(string)
        })
    }

    /// Returns one answer for each string.
    pub fn apart(&self) -> Vec<Reply> {
        self.iter().map(Reply::bulk).collect()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Bulks {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut bulks = Self::default();
        all.into_iter().for_each(|string| bulks.push(string.as_ref()));
        bulks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_it_got() {
        let long = vec![b'\n'; 1_000];
        let strings = [&b""[..], b"\r\n", b"$3\r\n", &long, b"x"];
        let bulks: Bulks = strings.iter().collect();
        assert!(bulks.iter().eq(strings));
        assert_eq!(bulks.len(), strings.len());
        assert_eq!(Bulks::default().iter().next(), None);
    }
}
