//! What a tree is made of, as type parameters.

/// The choices that a [`BLinkTree`](super::BLinkTree) is compiled with.
pub trait Policy: Send + Sync + 'static {
    /// Bytes of a page: a multiple of 64, from [`SMALLEST`] to [`LARGEST`]. Keys are at most a quarter of it long.
    const PAGE: usize;
}

/// The smallest page.
pub const SMALLEST: usize = 512;

/// The largest page: places in it are counted in 16 bits.
pub const LARGEST: usize = 128 << 10;

/// Pages of so many bytes, and the default for the rest.
#[derive(Clone, Copy, Debug)]
pub enum Pages<const BYTES: usize> {}

impl<const BYTES: usize> Policy for Pages<BYTES> {
    const PAGE: usize = BYTES;
}

/// What is used unless something else is asked for.
pub type Standard = Pages<1024>;
