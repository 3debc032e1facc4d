//! A lane: a sequence of log files, and the places (positions) up to which records are appended, written and synced.
//!
//! Appended frames (records and marks, as they are stored in the files) are collected in `pending`. A *turn* takes all
//! pending frames as a batch, writes and perhaps syncs the batch without the lock, and publishes the reached place.
//! There is one turn at a time (`leading`). The first thread that needs its frames written takes the turn. Threads that
//! arrive during the turn wait, and share the next turn. Before a thread takes a turn for its own record, it
//! [waits](Lane::gathered) briefly for the threads that shared the last turn. Since waiting threads take turns, a
//! single thread does not have to wait for a background thread. (With the policy `Every`, waiting threads leave the
//! turns to the background thread.) Batches are written in the order of their places. A batch for which there is no
//! space is `stuck`, and is written before all later ones.

use crate::frame::{MARK, put_mark, put_record};
use crate::segment::Segment;
use crate::{Error, locked};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(crate) struct Lane {
    pub(crate) number: u32,
    pub(crate) salt: u32,
    state: Mutex<State>,
    /// Signals the end of a turn, and that the journal is poisoned (a write or sync has failed).
    pub(crate) progress: Condvar,
    /// Signals the background thread.
    pub(crate) work: Condvar,
    /// The segment to which the thread that has the turn writes. This thread locks it.
    pub(crate) output: Mutex<Output>,
    /// The first places and the paths of the segments, oldest first. The last one is `output`'s.
    pub(crate) segments: Mutex<VecDeque<(u64, PathBuf)>>,
}

pub(crate) struct Output {
    pub(crate) segment: Segment,
    /// All frames before this place are durable.
    pub(crate) durable: u64,
}

/// A lane's progress: a place, and the last epoch that is closed before the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) place: u64,
    pub(crate) closed: u64,
}

/// Frames that are written together. The first one is a mark, which the turn fills in.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    /// The place of the first frame.
    pub(crate) place: u64,
    /// The last epoch that is closed before the batch, and the last one that is closed at its end.
    pub(crate) before: u64,
    pub(crate) closed: u64,
    /// The highest epoch of a record up to the batch's end, or an upper bound of it.
    pub(crate) highest: u64,
}

pub(crate) struct State {
    /// The place of the next frame.
    pub(crate) end: u64,
    /// The last closed epoch. In a journal with epochs, later records have higher epochs.
    pub(crate) closed: u64,
    highest: u64,
    pending: Vec<u8>,
    /// The value of `closed` before the first frame of `pending`.
    before: u64,
    /// The number of bytes that a turn is writing.
    in_flight: usize,
    pub(crate) stuck: Option<Batch>,
    spare: Vec<u8>,
    pub(crate) written: Reached,
    pub(crate) synced: Reached,
    /// Whether a record or a closing mark was appended since the last mark that declared all records durable.
    pub(crate) unattested: bool,
    pub(crate) leading: bool,
    /// `arrived` is the number of waits that have begun since the last turn took its batch. `expected` is the value of
    /// `arrived` at the last turn, plus the waits that began during it.
    pub(crate) arrived: usize,
    pub(crate) expected: usize,
    /// The duration of the last turn if it synced, otherwise zero.
    pub(crate) lasted: Duration,
    /// The request to the background thread: to write (`false`), or to write and sync (`true`).
    pub(crate) asked: Option<bool>,
    pub(crate) no_space: Option<Error>,
    /// Whether the last turn was to sync, and found no space. The next turn syncs.
    pub(crate) owes_sync: bool,
    pub(crate) stopping: bool,
}

impl Lane {
    /// Makes a lane whose last segment is new, and whose earlier frames are all durable.
    pub(crate) fn new(number: u32, salt: u32, segment: Segment, older: VecDeque<(u64, PathBuf)>, closed: u64) -> Self {
        let here = Reached { place: segment.base, closed };
        let mut segments = older;
        segments.push_back((segment.base, segment.path.clone()));
        let state = State {
            end: here.place,
            closed,
            highest: closed,
            pending: Vec::new(),
            before: closed,
            in_flight: 0,
            stuck: None,
            spare: Vec::new(),
            written: here,
            synced: here,
            unattested: false,
            leading: false,
            arrived: 0,
            expected: 0,
            lasted: Duration::ZERO,
            asked: None,
            no_space: None,
            owes_sync: false,
            stopping: false,
        };
        Self {
            number,
            salt,
            state: Mutex::new(state),
            progress: Condvar::new(),
            work: Condvar::new(),
            output: Mutex::new(Output { segment, durable: here.place }),
            segments: Mutex::new(segments),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Waits before a turn until as many threads have arrived as shared the last turn, but at most for a quarter of the
    /// last turn's duration, and at most a millisecond. Without this wait, the first of the threads that were just
    /// woken would sync alone, and the other threads would wait for a second sync.
    pub(crate) fn gathered<'l>(&'l self, mut state: MutexGuard<'l, State>) -> MutexGuard<'l, State> {
        let (start, most) = (Instant::now(), (state.lasted / 4).min(Duration::from_millis(1)));
        while state.arrived < state.expected && !state.leading && start.elapsed() < most {
            drop(state);
            std::thread::yield_now();
            state = self.lock();
        }
        state
    }

    /// Requests that the background thread write, or write and sync, the appended records.
    pub(crate) fn ask(&self, state: &mut State, sync: bool) {
        state.asked = Some(sync || state.asked == Some(true));
        self.work.notify_one();
    }
}

impl State {
    pub(crate) fn reached(&self, synced: bool) -> Reached {
        if synced { self.synced } else { self.written }
    }

    /// Returns the number of bytes that are appended but not written.
    pub(crate) fn queued(&self) -> usize {
        self.in_flight + self.stuck.as_ref().map_or(0, |batch| batch.bytes.len()) + self.pending.len()
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether a frame may be added.
    pub(crate) fn fits(&self, frame: usize, limit: usize) -> bool {
        self.queued() + frame + if self.pending.is_empty() { MARK } else { 0 } <= limit
    }

    pub(crate) fn put_record(&mut self, salt: u32, epoch: u64, record: &[u8], limit: usize) {
        self.begin();
        self.reserve(record.len() + MARK, limit);
        put_record(&mut self.pending, salt, self.end, epoch, record);
        self.ended();
        self.highest = self.highest.max(epoch);
        self.unattested = true;
    }

    pub(crate) fn close(&mut self, salt: u32, epoch: u64, limit: usize) {
        self.begin();
        self.reserve(MARK, limit);
        put_mark(&mut self.pending, salt, self.end, epoch, self.synced.place);
        self.ended();
        self.closed = epoch;
        self.unattested = true;
    }

    /// Reserves the bytes of the mark with which each batch begins, if no frame is pending yet.
    pub(crate) fn begin(&mut self) {
        if self.pending.is_empty() {
            self.pending.resize(MARK, 0);
            self.before = self.closed;
            self.end += MARK as u64;
        }
    }

    /// Sets `end` to the place after the last frame of `pending`.
    fn ended(&mut self) {
        self.end = self.place() + self.pending.len() as u64;
    }

    /// Returns the place of `pending`'s first byte.
    fn place(&self) -> u64 {
        self.written.place + (self.queued() - self.pending.len()) as u64
    }

    /// Grows the buffer to have room for `more` bytes. Its capacity doubles, up to the limit.
    fn reserve(&mut self, more: usize, limit: usize) {
        let (length, capacity) = (self.pending.len(), self.pending.capacity());
        if capacity - length < more {
            self.pending.reserve_exact((length + more).max((2 * capacity).min(limit)) - length);
        }
    }

    /// Takes the batch that is to be written next. It is empty if everything is written.
    pub(crate) fn take(&mut self) -> Batch {
        let batch = self.stuck.take().unwrap_or_else(|| Batch {
            place: self.place(),
            before: self.before,
            closed: self.closed,
            highest: self.highest,
            bytes: std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare)),
        });
        self.in_flight = batch.bytes.len();
        batch
    }

    /// Ends a turn that wrote its batch, or had none.
    pub(crate) fn wrote(&mut self, mut batch: Batch) {
        self.no_space = None;
        self.in_flight = 0;
        if !batch.bytes.is_empty() {
            self.written = Reached { place: batch.place + batch.bytes.len() as u64, closed: batch.closed };
        }
        batch.bytes.clear();
        self.spare = batch.bytes;
    }

    /// Ends a turn that found no space.
    pub(crate) fn stuck(&mut self, batch: Batch, why: Error) {
        self.no_space = Some(why);
        self.in_flight = 0;
        self.stuck = Some(batch);
    }
}
