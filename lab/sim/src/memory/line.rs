//! What is known of a cache line: who has it, who waits for it, where it lives.

/// No line, no thread, no core.
pub(crate) const NONE: u32 = u32::MAX;

/// No core.
pub(super) const NOBODY: u16 = u16::MAX;

/// Cores that a machine can have: bits of a line's copy set.
pub(crate) const MAX_CORES: usize = 256;

/// Everything that is known of one line.
pub(crate) struct Line {
    /// Until when it is being transferred.
    pub(crate) busy: u64,
    /// Cores whose private caches have a valid copy.
    pub(super) copies: [u64; MAX_CORES / 64],
    pub(super) colour: u32,
    /// Counts changes of value.
    pub(crate) version: u32,
    /// First watch of the threads that spin on it.
    pub(crate) watch: u32,
    /// Threads that wait for their turn.
    pub(crate) queue_head: u32,
    pub(crate) queue_tail: u32,
    /// The mark of transactions that have it.
    pub(crate) tx: u32,
    /// The core that has it modified or exclusive.
    pub(super) owner: u16,
    /// Sockets whose third-level cache can serve it.
    pub(super) shared: u16,
    /// Sockets with a core that has a copy: follows from `copies`.
    pub(super) copied: u16,
    pub(super) home: u8,
    /// Whether the owner changed it.
    pub(super) dirty: bool,
    /// Whether its memory doesn't have its value.
    pub(super) unsaved: bool,
    /// Turns taken by the owner's socket before others that waited longer.
    pub(crate) bypassed: u8,
    /// Time that threads waited for it.
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
            dirty: false,
            unsaved: false,
            bypassed: 0,
            waited: 0,
        }
    }

    #[inline]
    pub(super) fn has(&self, core: usize) -> bool {
        self.copies[core / 64] >> (core % 64) & 1 != 0
    }

    /// `socket` is the core's.
    pub(super) fn add(&mut self, core: usize, socket: usize) {
        self.copies[core / 64] |= 1 << (core % 64);
        self.copied |= 1 << socket;
    }

    /// `neighbours` are the cores of its socket.
    pub(super) fn remove(&mut self, core: usize, socket: usize, neighbours: &Cores) {
        self.copies[core / 64] &= !(1 << (core % 64));
        if !any(&self.copies, neighbours) {
            self.copied &= !(1 << socket);
        }
    }

    /// Sockets that have a valid copy somewhere.
    pub(super) fn holders(&self) -> impl Iterator<Item = usize> + use<> {
        bits(self.shared | self.copied)
    }
}

/// A set of cores, one bit each.
pub(super) type Cores = [u64; MAX_CORES / 64];

/// The numbers of the bits that are set.
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
