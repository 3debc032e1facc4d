//! The journal's handle.

use crate::core::Core;
use crate::frame::MARK;
use crate::recover::{self, Record, Recovery};
use crate::{Disk, Error, Options, Policy, Position, locked};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Log files with group commit. Threads share a journal by reference. The [crate's documentation](crate) describes it.
pub struct Journal {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl Journal {
    /// Opens the journal of a directory, or creates one. Calls `each` with every valid record: in order within a
    /// lane, and concurrently for several lanes. All these records are durable when this returns. The parent of the
    /// directory must exist. Other files in the directory are not changed.
    ///
    /// Reads the whole journal once, with one thread per lane, and the part that is not known to be durable up to three
    /// times: O(bytes). It uses 256 KiB of memory per lane, or the length of the longest record.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`], [`Error::Damaged`], [`Error::Options`], or an error of the operating system. Then the records
    /// passed to `each` are invalid.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: Options,
        each: impl Fn(Record<'_>) + Sync,
    ) -> Result<(Self, Recovery), Error> {
        let (core, recovery) = recover::open(disk, directory, options, &each)?;
        let core = Arc::new(core);
        let mut journal = Self { core, threads: Vec::new(), closed: false };
        if journal.core.options.background {
            for lane in 0..journal.core.lanes.len() {
                let core = journal.core.clone();
                let thread = std::thread::Builder::new().name(format!("journal {lane}"));
                let thread = thread.spawn(move || core.serve(&core.lanes[lane]));
                journal.threads.push(thread.map_err(Error::io("start of a thread", directory))?);
            }
        }
        Ok((journal, recovery))
    }

    /// Appends a record to a lane, in memory, and returns the record's end. The record is written when a thread waits
    /// for it (but not with epochs, nor with `Every` and background threads), when the queue is full, and at the end of
    /// the journal. A background thread also writes it when asked, at the policy's interval, and when 512 KiB or half
    /// of the queue (whichever is less) wait to be written. Blocks while the queue is full.
    ///
    /// `epoch` is stored together with the record. In a journal with epochs the record counts (it is delivered by a
    /// recovery) once this epoch is closed and durable in all lanes. In a journal without epochs the number has no
    /// meaning to the journal, and may be 0.
    ///
    /// # Errors
    ///
    /// With each of these errors the record is not in the journal: [`Error::TooLong`], [`Error::EpochClosed`],
    /// [`Error::NoSpace`], [`Error::Poisoned`].
    ///
    /// # Panics
    ///
    /// If there is no such lane, or the epoch is `u64::MAX`.
    pub fn append(&self, lane: u32, epoch: u64, record: &[u8]) -> Result<Position, Error> {
        self.core.append(lane, epoch, record, true)
    }

    /// Works as [`append`](Self::append) does, but does not block.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] instead of blocking, and the errors of `append`.
    ///
    /// # Panics
    ///
    /// In the cases of `append`.
    pub fn try_append(&self, lane: u32, epoch: u64, record: &[u8]) -> Result<Position, Error> {
        self.core.append(lane, epoch, record, false)
    }

    /// Waits until a record has the durability that the policy promises. With `Always` this thread syncs, or waits for
    /// another thread's sync. With `Every` it waits for the interval's next sync; without background threads, it works
    /// as with `Always`. With `Never` the record must have been written: this thread writes it, or waits for another
    /// thread's write. When the call returns, all earlier records of the lane have the same durability.
    ///
    /// In a journal with epochs, this thread itself writes nothing. It waits until the record's epoch is closed (by a
    /// call of [`close_epoch`](Self::close_epoch)) and durable in all lanes. Then all records of this epoch and of
    /// earlier epochs have the same durability.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`]: the record is kept in memory, and is written before all later ones once there is room; the
    /// call may be repeated. [`Error::Poisoned`]: whether the record survives is unknown. All later calls fail, too,
    /// for any position.
    ///
    /// # Panics
    ///
    /// If the journal detects that the position belongs to another journal.
    pub fn wait(&self, position: Position) -> Result<(), Error> {
        self.core.wait(position)
    }

    /// Requests that the lane's background thread write the appended records, and with the policy `Always` also sync
    /// them. The call returns at once, and has no effect without background threads. [`is_durable`](Self::is_durable)
    /// returns whether a record is durable. After [`Error::NoSpace`], this call also causes another attempt to write.
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    pub fn ask(&self, lane: u32) {
        let lane = &self.core.lanes[lane as usize];
        lane.ask(&mut lane.lock(), self.core.options.policy == Policy::Always);
    }

    /// Returns whether [`wait`](Self::wait) would return `Ok` at once.
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`].
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    pub fn is_durable(&self, position: Position) -> Result<bool, Error> {
        self.core.sound()?;
        if self.core.options.epochs {
            return Ok(self.durable_epoch() >= position.epoch);
        }
        Ok(self.durable(position.lane) >= position.place)
    }

    /// Returns the place (the number of bytes since the lane's beginning) up to which the records of a lane have the
    /// durability that the policy promises. The result does not take into account whether the records' epochs are
    /// durable in other lanes.
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    pub fn durable(&self, lane: u32) -> u64 {
        self.core.lanes[lane as usize].lock().reached(self.core.syncs()).place
    }

    /// Returns the last epoch that is closed and has, in all lanes, the durability that the policy promises. The next
    /// recovery delivers the records of this epoch and of all earlier ones (with `Never`, perhaps not after a power
    /// failure).
    pub fn durable_epoch(&self) -> u64 {
        locked(&self.core.epochs).iter().copied().min().unwrap_or(0)
    }

    /// Closes this epoch and all earlier ones, in all lanes: appends to them are refused from now on. Each lane's
    /// background thread writes the closing mark, and with the policy `Always` also syncs it. Without background
    /// threads, the calling thread writes the marks, and except with `Never` also syncs them. The call may block while
    /// a queue is full. It may be repeated after an error.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`], [`Error::Poisoned`].
    ///
    /// # Panics
    ///
    /// If the journal has no epochs, or the epoch is `u64::MAX`.
    pub fn close_epoch(&self, epoch: u64) -> Result<(), Error> {
        assert!(self.core.options.epochs, "the journal was made without epochs");
        assert!(epoch < u64::MAX, "there has to be an epoch after it");
        for lane in &self.core.lanes {
            let mut state = self.core.room(lane, MARK, true)?;
            if epoch > state.closed {
                state.close(lane.salt, epoch, self.core.options.queue);
            }
            lane.ask(&mut state, self.core.options.policy == Policy::Always);
        }
        if !self.core.options.background {
            self.core.for_lanes(|lane| self.core.reach_end(lane, self.core.syncs()))?;
        }
        Ok(())
    }

    /// Waits until an epoch is closed and durable in all lanes.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn wait_epoch(&self, epoch: u64) -> Result<(), Error> {
        self.core.wait_epoch(epoch)
    }

    /// Writes and syncs all that was appended before the call, to all lanes, with any policy.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn sync(&self) -> Result<(), Error> {
        self.core.for_lanes(|lane| self.core.reach_end(lane, true))
    }

    /// Returns the end of a lane: records appended later have higher positions. The position's `epoch` is the last
    /// closed one.
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    pub fn end(&self, lane: u32) -> Position {
        let state = self.core.lanes[lane as usize].lock();
        Position { lane, place: state.end, epoch: state.closed }
    }

    /// Returns the number of bytes that are appended to a lane and not written yet.
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    pub fn queued(&self, lane: u32) -> usize {
        self.core.lanes[lane as usize].lock().queued()
    }

    /// Removes the segments of a lane whose records are all at or before a position. The caller must have stored the
    /// content of these records in a durable checkpoint. Later records stay, and possibly some of the earlier ones. In
    /// a journal with epochs, the removed records must be durable up to the position's epoch in all lanes.
    ///
    /// # Errors
    ///
    /// Errors of the operating system: no later record is lost, and the call may be repeated. [`Error::Poisoned`].
    ///
    /// # Panics
    ///
    /// If there is no such lane.
    pub fn retire_before(&self, position: Position) -> Result<(), Error> {
        let core = &*self.core;
        core.sound()?;
        let lane = &core.lanes[position.lane as usize];
        let mut manifest = locked(&core.manifest);
        let segments = locked(&lane.segments).clone();
        let keep = segments.partition_point(|(base, _)| *base <= position.place).max(1) - 1;
        if keep == 0 {
            return Ok(());
        }
        // The manifest is written first, since a missing segment that the manifest still requires counts as damage.
        manifest.first[position.lane as usize] = segments[keep].0;
        manifest.write(&core.disk, &core.directory)?;
        for (_, path) in segments.iter().take(keep) {
            // The list is locked during the removal. So a concurrent sync of older segments finds each segment either
            // listed and existing, or not listed.
            let mut segments = locked(&lane.segments);
            core.disk.remove(path).map_err(Error::io("remove", path))?;
            segments.pop_front();
        }
        core.disk.sync_directory(&core.directory).map_err(Error::io("sync", &core.directory))
    }

    /// Ends the journal: writes all appended records and, except with `Never`, syncs them. Dropping the journal does
    /// the same, and ignores errors.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn close(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        for lane in &self.core.lanes {
            lane.lock().stopping = true;
            lane.work.notify_all();
        }
        for thread in self.threads.drain(..) {
            // If the thread panicked, the panic hook has reported the panic. The thread has acknowledged no record
            // since then.
            let _ = thread.join();
        }
        self.core.flush()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
