//! Keys that contain other keys: `Option`, `Reverse`, and IP addresses of either kind.

use super::KeyPart;
use super::part::{Encoded, PartBuffer};
use super::tuple::low_bytes;
use super::width::{Wide, Width};
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

// SAFETY: the first byte states whether the part follows.
unsafe impl<P: KeyPart> KeyPart for Option<P> {
    type Width = <P::Width as Width>::Next;
    type Borrowed<'a> = Option<P::Borrowed<'a>>;
    type Part<'a> = Option<P::Part<'a>>;
    type Whole<'a> = Option<P::Whole<'a>>;

    #[inline]
    fn lend(&self) -> Self::Borrowed<'_> {
        self.as_ref().map(P::lend)
    }

    #[inline]
    fn word(part: Self::Borrowed<'_>) -> u64 {
        part.map_or(0, |part| 1 << (8 * P::Width::BYTES) | P::word(part))
    }

    #[inline]
    unsafe fn of_word<'a>(word: u64) -> Self::Part<'a> {
        let some = 1 << (8 * P::Width::BYTES);
        // SAFETY: the caller guarantees that the number is a result of `Self::word`. If it is at least `some`, it was
        // made from a `Some`, and the bits below are a result of `P::word`.
        (word >= some).then(|| unsafe { P::of_word(word - some) })
    }

    #[inline]
    fn write(part: Self::Borrowed<'_>, last: bool, to: &mut PartBuffer) {
        to.push(&[u8::from(part.is_some())]);
        if let Some(part) = part {
            P::write(part, last, to);
        }
    }

    #[inline]
    unsafe fn read<'a>(from: &mut Encoded<'a>, last: bool) -> Self::Part<'a> {
        // SAFETY: the caller guarantees that `write` has written the part after this byte.
        (from.take() != [0]).then(|| unsafe { P::read(from, last) })
    }

    #[inline]
    fn own(part: Self::Part<'_>) -> Self {
        part.map(P::own)
    }

    #[inline]
    fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
        part.map(P::alone)
    }
}

// SAFETY: the encoding of `P` marks its own end, so its complement does so too. It is read by complementing it again.
unsafe impl<P: KeyPart> KeyPart for Reverse<P> {
    type Width = P::Width;
    type Borrowed<'a> = Reverse<P::Borrowed<'a>>;
    type Part<'a> = Reverse<P>;
    type Whole<'a> = Reverse<P>;

    #[inline]
    fn lend(&self) -> Self::Borrowed<'_> {
        Reverse(self.0.lend())
    }

    #[inline]
    fn word(part: Self::Borrowed<'_>) -> u64 {
        P::word(part.0) ^ low_bytes::<P::Width>()
    }

    #[inline]
    unsafe fn of_word<'a>(word: u64) -> Self::Part<'a> {
        // SAFETY: the caller guarantees that the complement is a result of `P::word`.
        Reverse(P::own(unsafe { P::of_word(word ^ low_bytes::<P::Width>()) }))
    }

    /// Writes the inner part with an end mark, even if it is the last part of the key. In reverse order a string must
    /// sort after all its extensions, which the complement of an end mark achieves. Without an end mark it would sort
    /// before them.
    fn write(part: Self::Borrowed<'_>, _: bool, to: &mut PartBuffer) {
        let from = to.bytes().len();
        P::write(part.0, false, to);
        to.complement(from);
    }

    #[inline]
    unsafe fn read(from: &mut Encoded<'_>, _: bool) -> Reverse<P> {
        from.complement();
        // SAFETY: the caller guarantees that `from` began with what `Self::write` has written. So its complement begins
        // with what `P::write` has written with `last` = false.
        let part = P::own(unsafe { P::read(from, false) });
        from.complement();
        Reverse(part)
    }

    #[inline]
    fn own(part: Self::Part<'_>) -> Self {
        part
    }

    #[inline]
    fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
        part
    }
}

// SAFETY: the first byte is the IP version, which determines whether 4 or 16 bytes follow.
unsafe impl KeyPart for IpAddr {
    type Width = Wide;
    type Borrowed<'a> = IpAddr;
    type Part<'a> = IpAddr;
    type Whole<'a> = IpAddr;

    fn lend(&self) -> IpAddr {
        *self
    }

    fn write(part: IpAddr, _: bool, to: &mut PartBuffer) {
        match part {
            IpAddr::V4(address) => {
                to.push(&[4]);
                to.push(&address.octets());
            }
            IpAddr::V6(address) => {
                to.push(&[6]);
                to.push(&address.octets());
            }
        }
    }

    unsafe fn read(from: &mut Encoded<'_>, _: bool) -> IpAddr {
        match from.take() {
            [4] => Ipv4Addr::from(from.take::<4>()).into(),
            [_] => Ipv6Addr::from(from.take::<16>()).into(),
        }
    }

    fn own(part: Self::Part<'_>) -> IpAddr {
        part
    }

    fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
        part
    }
}
