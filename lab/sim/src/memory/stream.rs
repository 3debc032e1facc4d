//! Memory-level parallelism: how a core overlaps several misses.
//!
//! There are two mechanisms. A *stream* is a sequence of misses to neighbouring lines. It is detected after two misses,
//! as in hardware prefetchers and out-of-order cores. From then on its misses overlap, so each costs a fraction of its
//! latency. An explicit *prefetch* occupies a miss buffer until its line arrives. A later access to the line waits for
//! the remaining time. If no buffer is free, the prefetch is dropped, as hardware may do. Contended lines take part in
//! neither mechanism, and locked instructions in no stream; the caller ensures this.

/// The most streams that a core can follow at a time.
const STREAMS: usize = 8;

/// The largest distance, in lines, between successive misses of a stream. It is two: words that are padded to 128 bytes
/// are two lines apart.
const STRIDE: i64 = 2;

#[derive(Clone, Copy, Default)]
struct Stream {
    last: u64,
    stride: i64,
    length: u32,
}

/// The streams of one core, and its prefetches in progress.
#[derive(Clone, Default)]
pub(crate) struct Misses {
    /// The streams, the most recently used first.
    streams: [Stream; STREAMS],
    /// The lines of prefetches in progress, with their times of arrival.
    flights: Vec<(u32, u64)>,
}

impl Misses {
    /// Records a miss of line address `line`. Returns whether the miss belongs to a stream, and so overlaps with its
    /// predecessors.
    pub(crate) fn follow(&mut self, line: u64) -> bool {
        let continues = |stream: &Stream| {
            let distance = line.wrapping_sub(stream.last) as i64;
            let near = (1..=STRIDE).contains(&distance.abs()) && stream.length > 0;
            near && (stream.stride == 0 || stream.stride == distance)
        };
        match self.streams.iter().position(continues) {
            Some(at) => {
                let mut stream = self.streams[at];
                stream.stride = line.wrapping_sub(stream.last) as i64;
                stream.last = line;
                stream.length += 1;
                self.streams.copy_within(..at, 1);
                self.streams[0] = stream;
                stream.length > 2
            }
            None => {
                self.streams.copy_within(..STREAMS - 1, 1);
                self.streams[0] = Stream { last: line, stride: 0, length: 1 };
                false
            }
        }
    }

    /// Returns whether any prefetch may be in progress.
    #[inline]
    pub(crate) fn in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Returns when a prefetched line arrives, if it has not arrived by `now`.
    pub(crate) fn arrival(&mut self, line: u32, now: u64) -> Option<u64> {
        self.flights.retain(|flight| flight.1 > now);
        self.flights.iter().find(|flight| flight.0 == line).map(|flight| flight.1)
    }

    /// Returns whether one of `buffers` miss buffers is free at `now`.
    pub(crate) fn room(&mut self, buffers: usize, now: u64) -> bool {
        self.flights.retain(|flight| flight.1 > now);
        self.flights.len() < buffers
    }

    /// Records a prefetch of `line` that arrives at `at`.
    pub(crate) fn depart(&mut self, line: u32, at: u64) {
        self.flights.push((line, at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_noticed_at_the_third_miss() {
        let mut misses = Misses::default();
        assert_eq!([100, 101, 102, 103].map(|line| misses.follow(line)), [false, false, true, true]);
        assert_eq!([50, 48, 46].map(|line| misses.follow(line)), [false, false, true]);
        assert!(misses.follow(104), "the first stream goes on beside the second");
        assert_eq!([1000, 1003, 1006, 1009].map(|line| misses.follow(line)), [false; 4]);
    }

    #[test]
    fn a_prefetched_line_arrives_once() {
        let mut misses = Misses::default();
        misses.depart(7, 500);
        assert_eq!(misses.arrival(7, 100), Some(500));
        assert_eq!(misses.arrival(8, 100), None);
        assert!(!misses.room(1, 100) && misses.room(2, 100) && misses.room(1, 500));
        misses.depart(7, 500);
        assert_eq!(misses.arrival(7, 500), None);
        assert!(!misses.in_flight());
    }
}
