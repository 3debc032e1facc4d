//! A disk in memory. It fails on request, and a power loss forgets bytes that were not synced.
//!
//! For each file the disk stores the content as processes see it, the durable content, and the changes between the two.
//! A power loss applies any subset of the changes, sector by sector, in any order, and any subset of the unsynced
//! creations, renames and removals in directories. If a sync fails, the bytes that it was to write are lost for good.
//! Later syncs succeed without them, as on Linux.

use crate::disk::{Disk, DiskFile, DiskLock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The number of bytes that a power loss keeps or forgets together.
pub const SECTOR: usize = 512;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as the methods of `Disk` and `DiskFile`")]
pub enum Call {
    CreateDirectory,
    List,
    Create,
    Open,
    Rename,
    Remove,
    SyncDirectory,
    Lock,
    Length,
    Read,
    Write,
    SetLength,
    Sync,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with EIO. A sync that fails loses the bytes that it was to write.
    Io,
    /// The call fails with ENOSPC. A sync also loses bytes, as with [`Io`](Self::Io).
    NoSpace,
    /// The call is interrupted (EINTR) and does nothing.
    Interrupted,
    /// The call reads or writes half of the bytes.
    Short,
    /// This call and all later ones fail: the machine is off.
    PowerLoss,
}

/// A disk in memory. Clones refer to the same disk.
#[derive(Clone, Default)]
pub struct Simulated(Arc<Shared>);

#[derive(Default)]
struct Shared {
    world: Mutex<World>,
    released: Condvar,
}

#[derive(Clone, Default)]
struct World {
    nodes: Vec<Node>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Changes of names since the last sync of their directories.
    entries: Vec<Entry>,
    locks: BTreeSet<PathBuf>,
    calls: Vec<Call>,
    faults: BTreeMap<usize, Fault>,
    next_faults: BTreeMap<Call, Vec<Fault>>,
    held: Option<Call>,
    capacity: Option<usize>,
    off: bool,
}

#[derive(Clone, Default)]
struct Node {
    now: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Clone)]
enum Entry {
    Is(PathBuf, usize),
    Gone(PathBuf),
    Renamed(PathBuf, PathBuf, usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => {
                to.resize(to.len().max(at + bytes.len()), 0);
                to[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Length(length) => to.resize(*length, 0),
        }
    }
}

impl Entry {
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Is(path, _) | Self::Gone(path) | Self::Renamed(_, path, _) => path.parent(),
        }
    }

    fn apply(&self, to: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Is(path, node) => drop(to.insert(path.clone(), *node)),
            Self::Gone(path) => drop(to.remove(path)),
            Self::Renamed(from, path, node) => {
                to.remove(from);
                to.insert(path.clone(), *node);
            }
        }
    }
}

impl Simulated {
    /// Returns an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.world().calls.clone()
    }

    /// Makes the call after the first `calls` calls fail.
    pub fn fail_at(&self, calls: usize, fault: Fault) {
        self.world().faults.insert(calls, fault);
    }

    /// Makes the next call of a kind fail. If the method is called twice, the next two calls of the kind fail.
    pub fn fail_next(&self, call: Call, fault: Fault) {
        self.world().next_faults.entry(call).or_default().push(fault);
    }

    /// Sets a bound on the bytes in all files. A write beyond the bound is cut short; a write at the bound fails with
    /// ENOSPC. `None` means no bound.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.world().capacity = bytes;
    }

    /// Returns the number of bytes in all files.
    pub fn used(&self) -> usize {
        self.world().used()
    }

    /// Makes calls of a kind wait until [`release`](Self::release).
    pub fn hold(&self, call: Call) {
        self.world().held = Some(call);
    }

    /// Resumes the calls that [`hold`](Self::hold) stopped.
    pub fn release(&self) {
        self.world().held = None;
        self.0.released.notify_all();
    }

    /// Returns the disk as a new process finds it after the processes that used it have ended: with all written bytes,
    /// without locks and faults. This disk is not changed.
    pub fn restarted(&self) -> Self {
        let mut world = self.world().clone();
        (world.locks, world.faults, world.next_faults, world.held) = Default::default();
        (world.calls, world.off, world.capacity) = Default::default();
        Self(Arc::new(Shared { world: Mutex::new(world), released: Condvar::new() }))
    }

    /// Returns a disk in a state that this disk may have after a power loss now. Seed 0 forgets all unsynced bytes, and
    /// seed 1 none. With other seeds, the forgotten bytes are drawn at random.
    pub fn power_loss(&self, seed: u64) -> Self {
        let mut world = self.world().clone();
        let mut draw = Draw(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let stale: Vec<Vec<u8>> = world.nodes.iter().map(|node| node.now.clone()).collect();
        for node in &mut world.nodes {
            node.durable = match seed {
                0 => std::mem::take(&mut node.durable),
                1 => node.changes.iter().fold(node.durable.clone(), |mut bytes, change| {
                    change.apply(&mut bytes);
                    bytes
                }),
                _ => node.torn(&mut draw, &stale),
            };
            (node.now, node.changes) = (node.durable.clone(), Vec::new());
        }
        for entry in &world.entries {
            if seed == 1 || (seed > 1 && draw.below(2) == 0) {
                entry.apply(&mut world.durable_names);
            }
        }
        world.entries.clear();
        world.names = world.reachable();
        world.durable_names = world.names.clone();
        Self(Arc::new(Shared { world: Mutex::new(world), released: Condvar::new() })).restarted()
    }

    /// Returns a file's content as processes see it, if the file exists.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let world = self.world();
        world.names.get(path).map(|&node| world.nodes[node].now.clone())
    }

    /// Damages a file: changes it durably, without a call by its users.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.world();
        let node = world.names[path];
        let node = &mut world.nodes[node];
        change(&mut node.now);
        (node.durable, node.changes) = (node.now.clone(), Vec::new());
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and applies its planned fault. Returns the locked disk and a divisor: the call may transfer only
    /// this part of its bytes (half of them for `Short`, otherwise all).
    fn enter(&self, call: Call) -> io::Result<(MutexGuard<'_, World>, usize)> {
        let mut world = self.world();
        while world.held == Some(call) && !world.off {
            world = self.0.released.wait(world).unwrap_or_else(PoisonError::into_inner);
        }
        let number = world.calls.len();
        world.calls.push(call);
        let next = world.next_faults.get_mut(&call).filter(|faults| !faults.is_empty()).map(|faults| faults.remove(0));
        let fault = world.faults.get(&number).copied().or(next);
        world.off |= fault == Some(Fault::PowerLoss);
        if world.off {
            return Err(io::Error::other("simulated power loss"));
        }
        match fault {
            Some(Fault::NoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
            Some(Fault::Short) => Ok((world, 2)),
            Some(_) => Err(io::Error::other("simulated I/O error")),
            None => Ok((world, 1)),
        }
    }
}

impl World {
    fn used(&self) -> usize {
        self.names.values().map(|&node| self.nodes[node].now.len()).sum()
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<usize> {
        // The root directory and the directory of relative names always exist.
        if path.parent().is_some_and(|parent| parent.parent().is_some() && !self.names.contains_key(parent)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.nodes.push(node);
        let node = self.nodes.len() - 1;
        self.change(Entry::Is(path.to_owned(), node));
        Ok(node)
    }

    fn change(&mut self, entry: Entry) {
        entry.apply(&mut self.names);
        self.entries.push(entry);
    }

    /// Returns the durable names whose directories are durable too.
    fn reachable(&self) -> BTreeMap<PathBuf, usize> {
        let there = |path: &Path| {
            let mut above = path.ancestors().skip(1).filter(|path| path.parent().is_some());
            above.all(|directory| self.durable_names.contains_key(directory))
        };
        self.durable_names.iter().filter(|(path, _)| there(path)).map(|(path, node)| (path.clone(), *node)).collect()
    }
}

impl Node {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.changes.push(change);
    }

    /// Draws, for each sector and for the length, one of the versions since the last sync. If the drawn version has no
    /// bytes for the rest of a sector, these bytes may be those of another file.
    fn torn(&self, draw: &mut Draw, stale: &[Vec<u8>]) -> Vec<u8> {
        let mut versions = vec![self.durable.clone()];
        for change in &self.changes {
            let mut next = versions[versions.len() - 1].clone();
            change.apply(&mut next);
            versions.push(next);
        }
        let length = versions[draw.below(versions.len())].len();
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = bytes.len();
            let to = (at + SECTOR).min(length);
            let from = &versions[draw.below(versions.len())];
            bytes.extend_from_slice(&from[at.min(from.len())..to.min(from.len())]);
            if bytes.len() < to && draw.below(2) == 0 {
                let other = &stale[draw.below(stale.len())];
                let at = bytes.len();
                bytes.extend_from_slice(&other[at.min(other.len())..to.min(other.len())]);
            }
            bytes.resize(to, 0);
        }
        bytes
    }
}

/// A xorshift random number generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}

struct Open {
    disk: Simulated,
    node: usize,
}

struct Locked(Simulated, PathBuf);

impl DiskLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.world().locks.remove(&self.1);
    }
}

impl Disk for Simulated {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let (mut world, _) = self.enter(Call::CreateDirectory)?;
        match world.names.contains_key(path) {
            true => Ok(()),
            false => world.add(path, Node::default()).map(drop),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let (world, _) = self.enter(Call::List)?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let (mut world, _) = self.enter(Call::Create)?;
        let node = match world.names.get(path).copied() {
            Some(node) => {
                world.nodes[node].change(Change::Length(0));
                node
            }
            None => world.add(path, Node::default())?,
        };
        Ok(Box::new(Open { disk: self.clone(), node }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let (world, _) = self.enter(Call::Open)?;
        let node = world.find(path)?;
        Ok(Box::new(Open { disk: self.clone(), node }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut world, _) = self.enter(Call::Rename)?;
        let node = world.find(from)?;
        world.change(Entry::Renamed(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (mut world, _) = self.enter(Call::Remove)?;
        world.find(path)?;
        world.change(Entry::Gone(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let (mut world, _) = self.enter(Call::SyncDirectory)?;
        let directory = directory.strip_prefix(".").unwrap_or(directory);
        let world = &mut *world;
        let (now, later) = world.entries.drain(..).partition(|entry| entry.directory() == Some(directory));
        world.entries = later;
        let now: Vec<Entry> = now;
        now.iter().for_each(|entry| entry.apply(&mut world.durable_names));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let (mut world, _) = self.enter(Call::Lock)?;
        if !world.names.contains_key(path) {
            world.add(path, Node::default())?;
        }
        match world.locks.insert(path.to_owned()) {
            true => Ok(Box::new(Locked(self.clone(), path.to_owned()))),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl DiskFile for Open {
    fn length(&self) -> io::Result<u64> {
        let (world, _) = self.disk.enter(Call::Length)?;
        Ok(world.nodes[self.node].now.len() as u64)
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        let (world, share) = self.disk.enter(Call::Read)?;
        let now = &world.nodes[self.node].now;
        let from = &now[(offset as usize).min(now.len())..];
        let count = from.len().min(to.len()).div_ceil(share);
        to[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let (mut world, share) = self.disk.enter(Call::Write)?;
        let mut count = bytes.len().div_ceil(share);
        if let Some(capacity) = world.capacity {
            let grows = (offset as usize + count).saturating_sub(world.nodes[self.node].now.len());
            let room = capacity.saturating_sub(world.used());
            count -= grows.saturating_sub(room).min(count);
        }
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        world.nodes[self.node].change(Change::Write(offset as usize, bytes[..count].to_vec()));
        Ok(count)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let (mut world, _) = self.disk.enter(Call::SetLength)?;
        world.nodes[self.node].change(Change::Length(length as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let failed = match self.disk.enter(Call::Sync) {
            Ok((mut world, _)) => {
                let node = &mut world.nodes[self.node];
                let changes = std::mem::take(&mut node.changes);
                changes.iter().for_each(|change| change.apply(&mut node.durable));
                return Ok(());
            }
            Err(failed) => failed,
        };
        let mut world = self.disk.world();
        if !world.off && failed.kind() != io::ErrorKind::Interrupted {
            // After the failed sync the system treats the pages as written, although the disk has neither their content
            // nor the new length.
            world.nodes[self.node].changes.clear();
        }
        Err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        Path::new("d").join(name)
    }

    fn disk() -> Simulated {
        let disk = Simulated::new();
        disk.create_directory(Path::new("d")).unwrap();
        disk.sync_directory(Path::new("")).unwrap();
        disk
    }

    #[test]
    fn a_power_loss_keeps_what_was_synced() {
        let disk = disk();
        let file = disk.create(&path("f")).unwrap();
        file.write(0, b"one").unwrap();
        file.sync().unwrap();
        disk.sync_directory(Path::new("d")).unwrap();
        file.write(3, b"two").unwrap();
        assert_eq!(disk.power_loss(0).content(&path("f")).unwrap(), b"one");
        assert_eq!(disk.power_loss(1).content(&path("f")).unwrap(), b"onetwo");
        assert_eq!(disk.restarted().content(&path("f")).unwrap(), b"onetwo");
    }

    #[test]
    fn names_need_a_sync_of_their_directory_and_that_one_of_its_own() {
        let disk = disk();
        disk.create(&path("f")).unwrap().sync().unwrap();
        assert_eq!(disk.power_loss(0).content(&path("f")), None);
        disk.sync_directory(Path::new("d")).unwrap();
        assert!(disk.power_loss(0).content(&path("f")).is_some());
        disk.rename(&path("f"), &path("g")).unwrap();
        assert!(disk.power_loss(0).content(&path("f")).is_some());
        assert!(disk.power_loss(1).content(&path("g")).is_some());
        disk.create_directory(&path("e")).unwrap();
        disk.create(&path("e/f")).unwrap();
        disk.sync_directory(&path("e")).unwrap();
        assert_eq!(disk.power_loss(0).content(&path("e/f")), None);
    }

    #[test]
    fn sectors_are_torn_and_reordered() {
        let disk = disk();
        let file = disk.create(&path("f")).unwrap();
        disk.sync_directory(Path::new("d")).unwrap();
        file.write(0, &[1; 2 * SECTOR]).unwrap();
        file.write(2 * SECTOR as u64, &[2; SECTOR]).unwrap();
        let all: Vec<Vec<u8>> = (2..60).map(|seed| disk.power_loss(seed).content(&path("f")).unwrap()).collect();
        assert!(all.iter().any(|bytes| bytes.len() > SECTOR && bytes[0] != bytes[SECTOR]), "none was torn");
        let reordered = |bytes: &Vec<u8>| bytes.len() == 3 * SECTOR && bytes[0] == 0 && bytes[2 * SECTOR] == 2;
        assert!(all.iter().any(reordered), "none was reordered");
    }

    #[test]
    fn a_failed_sync_loses_for_good() {
        let disk = disk();
        let file = disk.create(&path("f")).unwrap();
        disk.sync_directory(Path::new("d")).unwrap();
        file.write(0, b"lost").unwrap();
        disk.fail_next(Call::Sync, Fault::Io);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!(disk.power_loss(1).content(&path("f")).unwrap(), b"");
        assert_eq!(disk.restarted().content(&path("f")).unwrap(), b"lost");
    }

    #[test]
    fn full_disks_write_what_they_can() {
        let disk = disk();
        disk.set_capacity(Some(5));
        let file = disk.create(&path("f")).unwrap();
        assert_eq!(file.write(0, b"1234567").unwrap(), 5);
        assert_eq!(file.write(5, b"67").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write(0, b"54321").unwrap(), 5);
        file.set_length(2).unwrap();
        assert_eq!(file.write(2, b"345").unwrap(), 3);
    }
}
