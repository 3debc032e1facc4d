//! The model's record of a cache line: the caches that have it, the threads that wait for it, its home
//! (the node whose memory contains it).

/// The number that stands for no line, no thread or no mark.
pub(crate) const NONE: u32 = u32::MAX;

/// The number that stands for no core.
pub(super) const NOBODY: u16 = u16::MAX;

/// The most cores of a machine, which is the number of bits in a line's copy set.
pub(crate) const MAX_CORES: usize = 256;

/// The record of one line.
pub(crate) struct Line {
    /// The time until which the line is being transferred.
    pub(crate) busy: u64,
    /// Cores whose private caches have a valid copy.
    pub(super) copies: [u64; MAX_CORES / 64],
    pub(super) colour: u32,
    /// The number of changes of the line's value.
    pub(crate) version: u32,
    /// The first watch of the threads that spin on the line.
    pub(crate) watch: u32,
    /// The first and the last thread that wait for their turn.
    pub(crate) queue_head: u32,
    pub(crate) queue_tail: u32,
    /// The mark of the transactions that have the line in a set.
    pub(crate) tx: u32,
    /// The core that has the line modified or exclusive.
    pub(super) owner: u16,
    /// The sockets whose third-level cache can serve the line.
    pub(super) shared: u16,
    /// The sockets with a core that has a copy; this follows from `copies`.
    pub(super) copied: u16,
    pub(super) home: u8,
    /// Whether memory does not have the line's present value.
    pub(super) unsaved: bool,
    /// How many requests of the owner's socket were served before others that had waited longer.
    pub(crate) bypassed: u8,
    /// The time that threads waited for the line.
    pub(crate) waited: u64,
}

impl Line {
    pub(super) fn new(colour: u32, home: u8) -> Line {
        Line {
            busy: 0,
            copies: [0; MAX_CORES / 64],
            colour,
            version: 0,
            watch: NONE,
            queue_head: NONE,
            queue_tail: NONE,
            tx: NONE,
            owner: NOBODY,
            shared: 0,
            copied: 0,
            home,
            unsaved: false,
            bypassed: 0,
            waited: 0,
        }
    }

    #[inline]
    pub(super) fn has(&self, core: usize) -> bool {
        self.copies[core / 64] >> (core % 64) & 1 != 0
    }

    /// Adds a core's copy. `socket` is the core's socket.
    pub(super) fn add(&mut self, core: usize, socket: usize) {
        self.copies[core / 64] |= 1 << (core % 64);
        self.copied |= 1 << socket;
    }

    /// Removes a core's copy. `neighbours` are the cores of its socket.
    pub(super) fn remove(&mut self, core: usize, socket: usize, neighbours: &Cores) {
        self.copies[core / 64] &= !(1 << (core % 64));
        if !any(&self.copies, neighbours) {
            self.copied &= !(1 << socket);
        }
    }

    /// Returns the sockets with a valid copy in any cache.
    pub(super) fn holders(&self) -> impl Iterator<Item = usize> + use<> {
        bits(self.shared | self.copied)
    }
}

/// A set of cores, one bit each.
pub(super) type Cores = [u64; MAX_CORES / 64];

/// Returns the numbers of the bits that are set.
#[inline]
pub(super) fn bits(mut set: u16) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(bit)
    })
}

#[inline]
pub(super) fn any(a: &Cores, b: &Cores) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

const _: () = assert!(size_of::<Line>() <= 88);
