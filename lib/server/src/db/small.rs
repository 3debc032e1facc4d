//! Byte strings that store up to 22 bytes without a heap allocation.

use core::cmp::Ordering;
use core::fmt;
use core::ops::Deref;

/// The most bytes that are stored in the value itself.
const INLINE: usize = 22;

/// A byte string. Up to 22 bytes are stored in the value itself, which takes 24 bytes.
#[derive(Clone)]
pub struct Small(Held);

#[derive(Clone)]
enum Held {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

const _: () = assert!(size_of::<Small>() == 24 && size_of::<Option<Small>>() == 24);

impl Small {
    /// Returns the number of bytes on the heap.
    pub fn heap(&self) -> usize {
        if let Held::Heap(bytes) = &self.0 { bytes.len() } else { 0 }
    }
}

impl From<&[u8]> for Small {
    fn from(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        match inline.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                Self(Held::Inline(bytes.len() as u8, inline))
            }
            None => Self(Held::Heap(bytes.into())),
        }
    }
}

impl Deref for Small {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Held::Heap(bytes) => bytes,
        }
    }
}

impl PartialEq for Small {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Small {}

impl PartialOrd for Small {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Small {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Small {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_the_bytes_of_each_length() {
        for length in 0..100 {
            let bytes: Vec<u8> = (0..length).collect();
            let small = Small::from(&bytes[..]);
            assert_eq!((&*small, &*small.clone()), (&bytes[..], &bytes[..]));
            assert_eq!(small.heap(), if bytes.len() > INLINE { bytes.len() } else { 0 });
        }
    }
}
