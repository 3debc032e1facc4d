//! The writing of records: turns, waits, and the errors of failed turns. A *turn* writes a batch of a lane's frames,
//! and perhaps syncs them. A *place* is a position in a lane: the number of bytes of frames before it since the lane's
//! beginning, see `frame.rs`.

use crate::frame::{FRAME, Header, MARK, put_mark};
use crate::lane::{Batch, Lane, Output, State};
use crate::manifest::Manifest;
use crate::segment::Segment;
use crate::{Disk, DiskFile, Error, Options, Policy, Position, disk, locked, waited};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};
use std::{io, mem};

/// The state that a journal's handle and its threads share.
///
/// Locks are taken in this order: `epochs`, then a lane's state; `manifest`, then a lane's segments; a lane's output,
/// then its segments.
pub(crate) struct Core {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) options: Options,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) id: u64,
    pub(crate) life: u64,
    pub(crate) lanes: Vec<Lane>,
    /// For each lane, the last epoch whose closing mark has the durability that the policy promises.
    pub(crate) epochs: Mutex<Vec<u64>>,
    pub(crate) epoch_progress: Condvar,
    /// The error after which nothing is acknowledged any more. It is set once.
    pub(crate) poison: OnceLock<Error>,
    /// The lock of the directory. It is held as long as a thread may write.
    pub(crate) _lock: Box<dyn disk::DiskLock>,
}

impl Core {
    /// Returns the error that poisoned the journal, if the journal is poisoned.
    pub(crate) fn sound(&self) -> Result<(), Error> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns whether a wait requires a sync.
    pub(crate) fn syncs(&self) -> bool {
        self.options.policy != Policy::Never
    }

    /// Returns whether a thread that waits takes turns. If not, the background thread takes them at the policy's
    /// interval.
    fn leads(&self) -> bool {
        !(self.options.background && matches!(self.options.policy, Policy::Every(_)))
    }

    /// Waits until the lane's queue has room for a frame, and returns the lane's state. If there is no room, takes a
    /// turn, or waits for another thread's turn. With `blocks` false, returns an error instead of blocking. If the disk
    /// is full, a journal without background threads takes one turn as an attempt, and any other returns the error.
    pub(crate) fn room<'l>(&self, lane: &'l Lane, frame: usize, blocks: bool) -> Result<MutexGuard<'l, State>, Error> {
        let limit = self.options.queue;
        let (mut state, mut tried) = (lane.lock(), false);
        loop {
            self.sound()?;
            if let Some(no_space) = state.no_space.clone() {
                if tried || self.options.background || !blocks {
                    lane.ask(&mut state, false);
                    return Err(no_space);
                }
            } else if state.fits(frame, limit) {
                return Ok(state);
            } else if !blocks {
                return Err(Error::Full);
            }
            tried |= !state.leading && state.no_space.is_some();
            state = match state.leading {
                true => waited(&lane.progress, state),
                false => {
                    self.turn(lane, state, false);
                    lane.lock()
                }
            };
        }
    }

    pub(crate) fn append(&self, lane: u32, epoch: u64, record: &[u8], blocks: bool) -> Result<Position, Error> {
        let lane = &self.lanes[lane as usize];
        assert!(epoch < u64::MAX, "there has to be an epoch after it");
        let limit = self.options.queue - FRAME - MARK;
        if record.len() > limit {
            return Err(Error::TooLong { length: record.len(), limit });
        }
        let mut state = self.room(lane, FRAME + record.len(), blocks)?;
        if self.options.epochs && epoch <= state.closed {
            return Err(Error::EpochClosed { epoch, closed: state.closed });
        }
        state.put_record(lane.salt, epoch, record, self.options.queue);
        if self.options.background && state.asked.is_none() && state.pending() >= self.options.threshold() {
            lane.ask(&mut state, false);
        }
        Ok(Position { lane: lane.number, place: state.end, epoch })
    }

    /// Waits until a lane is written, or synced, up to a place. With `leads`, the thread takes turns itself.
    pub(crate) fn reach(&self, lane: &Lane, place: u64, synced: bool, leads: bool) -> Result<(), Error> {
        let mut state = lane.lock();
        assert!(place <= state.end, "the position is none of this journal's");
        let (mut tried, mut gathered) = (!leads, false);
        if state.reached(synced).place < place {
            state.arrived += 1;
        }
        loop {
            if let Some(result) = self.judged(&state, place, synced, tried) {
                return result;
            }
            state = if state.leading || !leads {
                gathered = false;
                waited(&lane.progress, state)
            } else if !gathered {
                gathered = true;
                lane.gathered(state)
            } else {
                (tried, gathered) = (true, false);
                self.turn(lane, state, synced);
                lane.lock()
            };
        }
    }

    /// Returns the result of a wait for a place, or `None` if the thread has to continue waiting.
    fn judged(&self, state: &State, place: u64, synced: bool, tried: bool) -> Option<Result<(), Error>> {
        // Poison is checked first: once one thread got this error for a record, no other thread may get a success for
        // it.
        if let Err(poison) = self.sound() {
            return Some(Err(poison));
        }
        if state.reached(synced).place >= place {
            return Some(Ok(()));
        }
        let no_space = state.no_space.as_ref().filter(|_| tried && !state.leading);
        no_space.map(|error| Err(error.clone()))
    }

    /// Waits as the policy requires.
    pub(crate) fn wait(&self, position: Position) -> Result<(), Error> {
        match self.options.epochs {
            true => self.wait_epoch(position.epoch),
            false => self.reach(&self.lanes[position.lane as usize], position.place, self.syncs(), self.leads()),
        }
    }

    /// Requests that the background threads write, and perhaps sync, the lanes that found no space.
    fn ask_again(&self) {
        for lane in &self.lanes {
            let mut state = lane.lock();
            if state.no_space.is_some() {
                lane.ask(&mut state, self.options.policy == Policy::Always);
            }
        }
    }

    pub(crate) fn wait_epoch(&self, epoch: u64) -> Result<(), Error> {
        self.ask_again();
        let mut epochs = locked(&self.epochs);
        loop {
            self.sound()?;
            if epochs.iter().all(|&closed| closed >= epoch) {
                return Ok(());
            }
            if let Some(no_space) = self.lanes.iter().find_map(|lane| lane.lock().no_space.clone()) {
                return Err(no_space);
            }
            epochs = waited(&self.epoch_progress, epochs);
        }
    }

    /// Writes the stuck batch, or if there is none, the pending frames. With `sync`, also syncs all written frames. No
    /// other thread may have the lane's turn.
    pub(crate) fn turn(&self, lane: &Lane, mut state: MutexGuard<'_, State>, sync: bool) {
        debug_assert!(!state.leading);
        let sync = sync | mem::take(&mut state.owes_sync);
        let leaves = state.stuck.is_some() && state.pending() > 0;
        let mut batch = state.take();
        if batch.bytes.is_empty() && !(sync && state.synced.place < state.written.place) {
            return state.wrote(batch);
        }
        state.leading = true;
        let released = mem::take(&mut state.arrived);
        mem::drop(state);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.write(lane, &mut batch, sync)));
        let mut state = lane.lock();
        state.leading = false;
        state.expected = released + state.arrived;
        state.lasted = if sync { start.elapsed() } else { Duration::ZERO };
        match outcome.unwrap_or_else(|_| Err(self.panicked())) {
            Ok(()) => {
                state.wrote(batch);
                // The request for this turn may have been made for the frames behind the stuck batch.
                if leaves {
                    lane.ask(&mut state, sync);
                }
            }
            Err(full @ Error::NoSpace { .. }) => {
                state.stuck(batch, full);
                // The next turn may be requested by an append, which asks for no sync. The threads that wait for this
                // turn's sync do not ask again.
                state.owes_sync = sync;
            }
            // The error is stored before the lock is released. Otherwise a later turn could begin before the error is
            // stored, and publish a place after this batch, as if the batch had been written.
            Err(error) => drop(self.poison.set(error)),
        }
        let sound = self.sound().is_ok();
        if sync && sound {
            state.synced = state.written;
        }
        lane.progress.notify_all();
        let closed = state.reached(self.syncs()).closed;
        mem::drop(state);
        match sound {
            true => self.closed(lane, closed),
            false => self.wake_all(),
        }
        if let Some(observer) = &self.options.observer {
            let _ = catch_unwind(AssertUnwindSafe(|| observer()));
        }
    }

    /// Does the part of a turn that runs without the lane's lock. If there is no space for the batch, frames that were
    /// written before are still synced.
    fn write(&self, lane: &Lane, batch: &mut Batch, sync: bool) -> Result<(), Error> {
        let mut output = locked(&lane.output);
        let appended = match batch.bytes.is_empty() {
            true => Ok(()),
            false => self.append_batch(lane, &mut output, batch),
        };
        match &appended {
            Err(Error::Io { call, file, cause }) => {
                return Err(Error::Poisoned { call, file: file.clone(), cause: cause.clone() });
            }
            Err(Error::NoSpace { .. }) | Ok(()) => {}
            Err(_) => return appended,
        }
        if sync {
            self.sync_output(lane, &mut output)?;
        }
        appended
    }

    fn append_batch(&self, lane: &Lane, output: &mut Output, batch: &mut Batch) -> Result<(), Error> {
        if output.segment.is_full(batch.bytes.len(), self.options.segment) {
            self.follow(lane, output, batch)?;
        }
        let mut mark = Vec::with_capacity(MARK);
        put_mark(&mut mark, lane.salt, batch.place, batch.before, output.durable);
        batch.bytes[..MARK].copy_from_slice(&mark);
        output.segment.append(&batch.bytes)
    }

    /// Begins another segment. Except with `Never`, the previous segment is synced first, so that recovery can rely on
    /// it.
    fn follow(&self, lane: &Lane, output: &mut Output, batch: &Batch) -> Result<(), Error> {
        if self.syncs() {
            self.sync_output(lane, output)?;
        }
        let header = Header {
            id: self.id,
            lane: lane.number,
            life: self.life,
            base: batch.place,
            closed: batch.before,
            highest: batch.highest,
            synced: output.durable,
        };
        let segment = Segment::create(&*self.disk, &self.directory, &header)?;
        locked(&lane.segments).push_back((segment.base, segment.path.clone()));
        output.segment = segment;
        Ok(())
    }

    /// Syncs the lane's last segment, and earlier ones that are not durable yet.
    fn sync_output(&self, lane: &Lane, output: &mut Output) -> Result<(), Error> {
        if output.durable < output.segment.base {
            let segments = locked(&lane.segments).clone();
            let older = segments.iter().zip(segments.iter().skip(1)).filter(|(_, (end, _))| *end > output.durable);
            for ((_, path), _) in older {
                if let Some(file) = self.open_listed(lane, path)? {
                    disk::sync(&*file).map_err(Error::fatal("sync", path))?;
                }
            }
        }
        output.segment.sync()?;
        output.durable = output.segment.end;
        Ok(())
    }

    /// Opens a segment. Returns `None` if the segment was retired in the meantime: then a checkpoint has its records.
    /// While the list of segments is locked, no segment is removed.
    fn open_listed(&self, lane: &Lane, path: &Path) -> Result<Option<Box<dyn DiskFile>>, Error> {
        let segments = locked(&lane.segments);
        match segments.iter().any(|(_, listed)| listed == path) {
            true => self.disk.open(path).map(Some).map_err(Error::fatal("open", path)),
            false => Ok(None),
        }
    }

    fn panicked(&self) -> Error {
        Error::fatal("write", &self.directory)(io::Error::other("a panic"))
    }

    /// Records that a lane's epochs up to `closed` are closed with the durability that the policy promises, and wakes
    /// the threads that wait for epochs.
    fn closed(&self, lane: &Lane, closed: u64) {
        if self.options.epochs {
            let mut epochs = locked(&self.epochs);
            let known = &mut epochs[lane.number as usize];
            *known = closed.max(*known);
            self.epoch_progress.notify_all();
        }
    }

    /// Wakes all threads that wait, after a failure.
    fn wake_all(&self) {
        for lane in &self.lanes {
            // The lock is held during the call. Otherwise a thread between its check and its wait would miss the
            // signal.
            let _state = lane.lock();
            lane.progress.notify_all();
            lane.work.notify_all();
        }
        let _epochs = locked(&self.epochs);
        self.epoch_progress.notify_all();
    }

    /// Runs the background thread of a lane. It takes requested turns, and turns at the policy's interval.
    pub(crate) fn serve(&self, lane: &Lane) {
        let interval = match self.options.policy {
            Policy::Every(interval) => Some(interval),
            _ => None,
        };
        let mut last = Instant::now();
        let mut state = lane.lock();
        while !state.stopping && self.poison.get().is_none() {
            let left = interval.map(|interval| interval.saturating_sub(last.elapsed()));
            if state.leading {
                state = waited(&lane.progress, state);
            } else if left.is_some_and(|left| left.is_zero()) {
                state.asked = None;
                self.turn(lane, state, true);
                last = Instant::now();
                state = lane.lock();
            } else if let Some(sync) = state.asked.take() {
                self.turn(lane, state, sync);
                state = lane.lock();
            } else if let Some(left) = left {
                state = lane.work.wait_timeout(state, left).unwrap_or_else(|poison| poison.into_inner()).0;
            } else {
                state = waited(&lane.work, state);
            }
        }
    }

    /// Writes all appended records, and makes them durable if the policy syncs. In this case a last mark follows, which
    /// states that they are durable; it is left out if no frame was appended since an earlier last mark.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        self.for_lanes(|lane| {
            self.reach_end(lane, self.syncs())?;
            let mut state = lane.lock();
            if self.syncs() && mem::take(&mut state.unattested) {
                state.begin();
                mem::drop(state);
                self.reach_end(lane, true)?;
            }
            Ok(())
        })
    }

    /// Writes, and perhaps syncs, what is appended to a lane.
    pub(crate) fn reach_end(&self, lane: &Lane, synced: bool) -> Result<(), Error> {
        let end = lane.lock().end;
        self.reach(lane, end, synced, true)
    }

    /// Calls `each` for all lanes, even after an error: so a lane without space does not delay the other lanes. If the
    /// journal is poisoned, returns the error that poisoned it, since this error is final. Otherwise returns the first
    /// error.
    pub(crate) fn for_lanes(&self, each: impl Fn(&Lane) -> Result<(), Error>) -> Result<(), Error> {
        let outcome = self.lanes.iter().map(each).fold(Ok(()), Result::and);
        self.sound().and(outcome)
    }
}
