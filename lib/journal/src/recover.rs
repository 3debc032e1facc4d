//! Opening a journal. Recovery decides which records *count* (are delivered to the caller), which bytes are cut, and
//! which damage makes opening fail.
//!
//! 1. *Scan.* The segments (log files) are sorted by their places (positions in the lane). If the next segment's header
//!    declares a segment durable, the segment must be whole; otherwise the journal is damaged. The other segments are
//!    read. If the frames end before the files do, either a crash tore bytes that were not synced, or durable bytes are
//!    damaged. It is damage if a later mark or header declares a greater place durable.
//! 2. *Agree.* With epochs, the records that count are those of the epochs that every lane has closed, without the
//!    epochs that an earlier recovery declared void.
//! 3. *Deliver* the records that count. Segments that the next header declares durable are read only in this step, so
//!    damage in them is found here.
//! 4. *Repair.* Bytes after the end are removed. Bytes that are not known to be durable are written again and synced:
//!    after a failed sync the operating system may return bytes that are not on the disk, and treat them as written.
//! 5. *Begin.* The manifest records the void epochs (those whose records do not count), before any new segment declares
//!    them closed. Then each lane gets a new segment with a new salt, from which the checksums of its frames start. So
//!    no older frame is mistaken for one of its frames.
//!
//! After a crash during recovery, the same steps lead to the same result.

use crate::core::Core;
use crate::disk::{DiskFile, read_full, sync, write_all};
use crate::frame::{Frame, Frames, HEADER, Header, Next};
use crate::lane::Lane;
use crate::manifest::Manifest;
use crate::segment::{Name, Segment};
use crate::{Disk, Error, Options, Position, checkpoint};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

/// A record that was recovered.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The record's end.
    pub position: Position,
    /// The bytes that were appended.
    pub bytes: &'a [u8],
}

/// The result of recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The number of records that count.
    pub records: u64,
    /// The number of whole records of epochs that were not durable in every lane. With a policy that syncs, none of
    /// these records was acknowledged.
    pub discarded: u64,
    /// With epochs: the last epoch whose records count.
    pub epoch: u64,
    /// With epochs: the first epoch to which records can be appended.
    pub next_epoch: u64,
    /// The torn tails that were cut, at most one per lane.
    pub cuts: Vec<Cut>,
    /// The ends of the lanes.
    pub ends: Vec<Position>,
}

/// A torn tail that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: PathBuf,
    /// The offset of the cut, in bytes.
    pub offset: u64,
    /// The number of bytes that were cut, including later files of the lane, which were removed.
    pub bytes: u64,
}

/// A segment whose header is valid.
struct Found {
    path: PathBuf,
    header: Header,
    length: u64,
    /// The place after the segment's last frame that counts.
    end: u64,
}

/// The content of one lane.
#[derive(Default)]
struct Scan {
    segments: Vec<Found>,
    end: u64,
    /// All records before this place are known to be durable.
    durable: u64,
    closed: u64,
    highest: u64,
    cut: Option<Cut>,
    /// Segments after the cut.
    dropped: Vec<PathBuf>,
    /// Retired segments, and segments whose creation a crash interrupted.
    obsolete: Vec<PathBuf>,
}

/// The decision on which epochs count.
struct Verdict {
    /// The last epoch that every lane has closed.
    epoch: u64,
    void: Vec<((u64, u64), AtomicBool)>,
}

impl Verdict {
    fn void(&self, epoch: u64) -> Option<&((u64, u64), AtomicBool)> {
        self.void.iter().find(|((from, to), _)| (from + 1..*to).contains(&epoch))
    }

    /// Returns the last epoch whose records count: the last epoch that every lane has closed, or, if this epoch is
    /// void, the last epoch before the void ones.
    fn last(&self) -> u64 {
        std::iter::successors(Some(self.epoch), |&epoch| Some(self.void(epoch)?.0.0)).last().unwrap_or(0)
    }

    fn counts(&self, epoch: u64) -> bool {
        let void = self.void(epoch);
        if let Some((_, met)) = void {
            met.store(true, Relaxed);
        }
        epoch <= self.epoch && void.is_none()
    }
}

pub(crate) fn open(
    disk: Arc<dyn Disk>,
    directory: &Path,
    options: Options,
    each: &(dyn Fn(Record<'_>) + Sync),
) -> Result<(Core, Recovery), Error> {
    options.check()?;
    disk.create_directory(directory).map_err(Error::io("create", directory))?;
    checkpoint::sync_parent(&*disk, directory)?;
    let lock = lock(&*disk, directory)?;
    let (mut manifest, names) = identify(&*disk, directory, &options)?;
    let lanes: Vec<u32> = (0..options.lanes as u32).collect();
    let mut scans = in_parallel(&lanes, |&lane| scan(&*disk, directory, lane, &names, &manifest))?;
    let closed = scans.iter().map(|scan| scan.closed).min().unwrap_or(0);
    let epoch = if options.epochs { closed } else { u64::MAX };
    let void = manifest.void.iter().map(|&pair| (pair, AtomicBool::new(false))).collect();
    let verdict = Verdict { epoch, void };
    let last = if options.epochs { verdict.last() } else { 0 };
    let (records, discarded) = (AtomicU64::new(0), AtomicU64::new(0));
    in_parallel(&scans, |scan| {
        deliver(&*disk, scan, &|record| match verdict.counts(record.position.epoch) {
            true => {
                records.fetch_add(1, Relaxed);
                each(record);
            }
            false => drop(discarded.fetch_add(1, Relaxed)),
        })
    })?;
    in_parallel(&scans, |scan| repair(&*disk, directory, scan))?;
    let highest = scans.iter().map(|scan| scan.highest.max(scan.closed)).max().unwrap_or(0);
    let next_epoch = if options.epochs { highest + 1 } else { 0 };
    manifest.void = verdict.void.into_iter().filter_map(|(pair, met)| met.into_inner().then_some(pair)).collect();
    if options.epochs && next_epoch > closed + 1 {
        manifest.void.push((closed, next_epoch));
    }
    manifest.life += 1;
    manifest.write(&disk, directory)?;
    let closed = next_epoch.saturating_sub(1);
    let recovery = Recovery {
        records: records.into_inner(),
        discarded: discarded.into_inner(),
        epoch: last,
        next_epoch,
        cuts: scans.iter_mut().filter_map(|scan| scan.cut.take()).collect(),
        ends: scans.iter().zip(0..).map(|(scan, lane)| Position { lane, place: scan.end, epoch: closed }).collect(),
    };
    let begun: Result<Vec<Lane>, Error> = scans
        .into_iter()
        .zip(0..)
        .map(|(scan, lane)| begin(&*disk, directory, &manifest, lane, scan, closed))
        .collect();
    let lanes = begun?;
    if !manifest.born {
        manifest.born = true;
        manifest.write(&disk, directory)?;
    }
    let core = Core {
        disk,
        directory: directory.to_owned(),
        epochs: Mutex::new(vec![closed; options.lanes]),
        options,
        id: manifest.id,
        life: manifest.life,
        manifest: Mutex::new(manifest),
        lanes,
        epoch_progress: Condvar::new(),
        poison: OnceLock::new(),
        _lock: lock,
    };
    Ok((core, recovery))
}

fn lock(disk: &dyn Disk, directory: &Path) -> Result<Box<dyn crate::DiskLock>, Error> {
    let path = directory.join("lock");
    disk.lock(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked { directory: directory.to_owned() },
        _ => Error::io("lock", &path)(error),
    })
}

/// Returns the manifest of the journal to which the directory belongs (a new one if there is none), and the names of
/// the segments, sorted.
fn identify(disk: &dyn Disk, directory: &Path, options: &Options) -> Result<(Manifest, Vec<Name>), Error> {
    let list = disk.list(directory).map_err(Error::io("list", directory))?;
    let mut names: Vec<Name> = list.iter().filter_map(|name| Name::parse(name)).collect();
    names.sort();
    let path = Manifest::path(directory);
    let manifest = match Manifest::read(disk, directory)? {
        Some(manifest) => manifest,
        None if names.is_empty() => Manifest::new(options),
        None => return Err(Error::damaged(&path, 0, "it is missing, and there are segments")),
    };
    manifest.check(options, directory)?;
    match names.iter().find(|name| name.lane as usize >= options.lanes) {
        Some(name) => Err(Error::damaged(&name.path(directory), 0, "the journal has no such lane")),
        None => Ok((manifest, names)),
    }
}

/// Calls `each` for every item. The first call is in this thread, and each other call in a thread of its own.
fn in_parallel<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> Result<R, Error> + Sync) -> Result<Vec<R>, Error> {
    let Some((first, others)) = items.split_first() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let each = &each;
        let spawn = |item| (item, std::thread::Builder::new().spawn_scoped(scope, move || each(item)));
        let others: Vec<_> = others.iter().map(spawn).collect();
        let first = each(first);
        // The calls whose threads the system refuses are made here.
        let others = others.into_iter().map(|(item, thread)| match thread.map(|thread| thread.join()) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => each(item),
        });
        // All threads are joined, even if one failed.
        let others: Vec<_> = others.collect();
        std::iter::once(first).chain(others).collect()
    })
}

fn scan(disk: &dyn Disk, directory: &Path, lane: u32, names: &[Name], manifest: &Manifest) -> Result<Scan, Error> {
    let first = manifest.first[lane as usize];
    let mut scan = Scan { end: first, durable: first, ..Scan::default() };
    for name in names.iter().filter(|name| name.lane == lane) {
        let path = name.path(directory);
        match (name.base >= first).then(|| header(disk, &path, *name, manifest.id)).transpose()?.flatten() {
            Some(found) => scan.segments.push(found),
            None => scan.obsolete.push(path),
        }
    }
    match scan.segments.first() {
        None if manifest.born => {
            let what = format!("lane {lane} has no segment that begins at place {first:x}");
            return Err(Error::damaged(directory, 0, what));
        }
        Some(found) if found.header.base != first => {
            let what = format!("the segments of lane {lane} before it, from place {first:x} on, are missing");
            return Err(Error::damaged(&found.path, 0, what));
        }
        _ => {}
    }
    for at in 0..scan.segments.len() {
        if !scan.segment(disk, at)? {
            break;
        }
    }
    Ok(scan)
}

/// Reads a segment's header. Returns `None` for a segment whose creation a crash interrupted. Such a segment has no
/// frames, since a frame is written only after the header is durable.
fn header(disk: &dyn Disk, path: &Path, name: Name, id: u64) -> Result<Option<Found>, Error> {
    let file = disk.open(path).map_err(Error::io("open", path))?;
    let length = file.length().map_err(Error::io("read", path))?;
    let mut bytes = [0; HEADER];
    read_full(&*file, 0, &mut bytes).map_err(Error::io("read", path))?;
    let wanted = (id, name.lane, name.base, name.life);
    match Header::decode(&bytes) {
        Some(header) if (header.id, header.lane, header.base, header.life) == wanted => {
            Ok(Some(Found { path: path.to_owned(), end: header.base, header, length }))
        }
        // A file this short has no frames. Its bytes may be those of a file that used the disk block before.
        _ if length <= HEADER as u64 => Ok(None),
        None => Err(Error::damaged(path, 0, "the header is none")),
        Some(_) => Err(Error::damaged(path, 0, "it belongs to another journal, or has another file's name")),
    }
}

impl Scan {
    /// Finds the end of a segment. Returns whether the next segment may follow this one without a gap.
    fn segment(&mut self, disk: &dyn Disk, at: usize) -> Result<bool, Error> {
        let Found { path, header, length, .. } = &self.segments[at];
        let (path, header, length) = (path.clone(), *header, *length);
        if header.base < self.end {
            return Err(Error::damaged(&path, 0, "it has places that another segment has too"));
        }
        if header.base > self.end {
            return self.cut_before(disk, at);
        }
        self.durable = self.durable.max(header.synced);
        self.closed = self.closed.max(header.closed);
        self.highest = self.highest.max(header.highest);
        if let Some(next) = self.segments.get(at + 1).filter(|next| next.header.synced >= next.header.base) {
            self.end = next.header.base;
            self.segments[at].end = self.end;
            return Ok(true);
        }
        let file = disk.open(&path).map_err(Error::io("open", &path))?;
        let mut frames = Frames::new(&*file, &header).map_err(Error::io("read", &path))?;
        let bad = loop {
            match frames.next().map_err(Error::io("read", &path))? {
                Next::Frame(Frame::Record { epoch, .. }) => self.highest = self.highest.max(epoch),
                Next::Frame(Frame::Mark { closed, synced }) => {
                    self.closed = self.closed.max(closed);
                    self.durable = self.durable.max(synced);
                }
                Next::End => break None,
                Next::Bad(what) => break Some(what),
            }
        };
        self.end = frames.place();
        self.segments[at].end = self.end;
        let Some(what) = bad else { return Ok(true) };
        let offset = frames.offset();
        let durable = frames.durable_behind().map_err(Error::io("read", &path))?;
        if durable.max(self.durable_behind(disk, at + 1)?) > self.end {
            return Err(Error::damaged(&path, offset, what));
        }
        self.drop_from(at + 1, path, offset, length - offset);
        Ok(false)
    }

    /// Decides whether a gap before a segment is damage or a tail that was never durable. Cuts such a tail.
    fn cut_before(&mut self, disk: &dyn Disk, at: usize) -> Result<bool, Error> {
        if self.durable_behind(disk, at)? > self.end {
            let what = format!("what comes before it, from place {:x} on, is missing", self.end);
            return Err(Error::damaged(&self.segments[at].path, 0, what));
        }
        let before = &self.segments[at - 1];
        let (path, offset) = (before.path.clone(), before.length);
        self.drop_from(at, path, offset, 0);
        Ok(false)
    }

    /// Returns the greatest place that the segments from `from` on declare durable.
    fn durable_behind(&self, disk: &dyn Disk, from: usize) -> Result<u64, Error> {
        let mut durable = 0;
        for Found { path, header, .. } in &self.segments[from..] {
            let file = disk.open(path).map_err(Error::io("open", path))?;
            let marked = Frames::new(&*file, header).and_then(Frames::durable_behind);
            durable = durable.max(header.synced).max(marked.map_err(Error::io("read", path))?);
        }
        Ok(durable)
    }

    fn drop_from(&mut self, at: usize, file: PathBuf, offset: u64, bytes: u64) {
        let dropped: Vec<Found> = self.segments.drain(at..).collect();
        let bytes = bytes + dropped.iter().map(|found| found.length).sum::<u64>();
        self.dropped = dropped.into_iter().map(|found| found.path).collect();
        self.cut = Some(Cut { file, offset, bytes });
    }
}

fn deliver(disk: &dyn Disk, scan: &Scan, each: &dyn Fn(Record<'_>)) -> Result<(), Error> {
    for found in &scan.segments {
        let file = disk.open(&found.path).map_err(Error::io("open", &found.path))?;
        let mut frames = Frames::new(&*file, &found.header).map_err(Error::io("read", &found.path))?;
        while frames.place() < found.end {
            let offset = frames.offset();
            match frames.next().map_err(Error::io("read", &found.path))? {
                Next::Frame(Frame::Mark { .. }) => {}
                Next::Frame(Frame::Record { place, epoch, body }) => {
                    let place = place + (crate::frame::FRAME + body.len()) as u64;
                    each(Record { position: Position { lane: found.header.lane, place, epoch }, bytes: body });
                }
                Next::End => return Err(Error::damaged(&found.path, offset, "the file ends too early")),
                Next::Bad(what) => return Err(Error::damaged(&found.path, offset, what)),
            }
        }
        if frames.place() > found.end {
            let what = "it has places that another segment has too";
            return Err(Error::damaged(&found.path, frames.offset(), what));
        }
    }
    Ok(())
}

/// Removes the bytes after the end, and makes the bytes before the end durable.
fn repair(disk: &dyn Disk, directory: &Path, scan: &Scan) -> Result<(), Error> {
    // The last segment is removed first. So a crash leaves no gap between two segments.
    for path in scan.dropped.iter().rev() {
        disk.remove(path).map_err(Error::io("remove", path))?;
        disk.sync_directory(directory).map_err(Error::io("sync", directory))?;
    }
    for found in &scan.segments {
        let (from, length) = (found.header.base.max(scan.durable), HEADER as u64 + (found.end - found.header.base));
        let doubtful = from < found.end;
        // If all frames are durable but the file is longer, it has a tail that is cut now, or that an earlier recovery
        // could not cut before a crash.
        if !doubtful && found.length == length {
            continue;
        }
        let file = disk.open(&found.path).map_err(Error::io("open", &found.path))?;
        if doubtful {
            let offset = HEADER as u64 + (from - found.header.base);
            rewrite(&*file, offset, length).map_err(Error::io("write", &found.path))?;
        }
        file.set_length(length).map_err(Error::io("cut", &found.path))?;
        sync(&*file).map_err(Error::io("sync", &found.path))?;
    }
    Ok(())
}

/// Reads bytes of a file and writes them to the same offsets.
fn rewrite(file: &dyn DiskFile, mut from: u64, to: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; (to - from).min(256 << 10) as usize];
    while from < to {
        let count = read_full(file, from, &mut buffer[..(to - from).min(256 << 10) as usize])?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        write_all(file, from, &buffer[..count])?;
        from += count as u64;
    }
    Ok(())
}

/// Begins a lane's new segment, and removes retired segments and segments without frames.
fn begin(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
    lane: u32,
    scan: Scan,
    closed: u64,
) -> Result<Lane, Error> {
    let header = Header {
        id: manifest.id,
        lane,
        life: manifest.life,
        base: scan.end,
        closed,
        highest: closed,
        synced: scan.end,
    };
    let segment = Segment::create(disk, directory, &header)?;
    let (kept, empty): (Vec<_>, Vec<_>) = scan.segments.into_iter().partition(|found| found.end > found.header.base);
    for path in empty.iter().map(|found| &found.path).chain(&scan.obsolete) {
        disk.remove(path).map_err(Error::io("remove", path))?;
    }
    let older = kept.into_iter().map(|found| (found.header.base, found.path)).collect();
    Ok(Lane::new(lane, header.salt(), segment, older, closed))
}
