//! A lane's files. Each file contains a part of the lane's frames (records and marks, see `frame.rs`). Its name
//! consists of the lane, the place of its first frame (the number of bytes of all earlier frames), and the *life* (how
//! many times the journal had been opened).
//!
//! Only the last segment of a lane grows, and only in the life that created it. With a policy that syncs, a segment is
//! durable before the next one is created.

use crate::disk::{DiskFile, sync, write_all};
use crate::frame::{HEADER, Header};
use crate::{Disk, Error};
use std::path::{Path, PathBuf};

/// A segment to which batches are written.
pub(crate) struct Segment {
    file: Box<dyn DiskFile>,
    pub(crate) path: PathBuf,
    pub(crate) base: u64,
    /// The place after its last frame.
    pub(crate) end: u64,
}

/// The parts of a segment's name. The order of names is the order of the segments' frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) lane: u32,
    pub(crate) base: u64,
    pub(crate) life: u64,
}

impl Name {
    pub(crate) fn path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:04}-{:016x}-{:08x}.segment", self.lane, self.base, self.life))
    }

    /// Parses a name. Returns `None` for the names of other files.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".segment")?.split('-');
        let (lane, base, life) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let (base, life) = (u64::from_str_radix(base, 16).ok()?, u64::from_str_radix(life, 16).ok()?);
        parts.next().is_none().then_some(Self { lane, base, life })
    }
}

impl Segment {
    /// Creates a segment and makes its header and name durable, so that every file with frames has a valid header.
    pub(crate) fn create(disk: &dyn Disk, directory: &Path, header: &Header) -> Result<Self, Error> {
        let path = Name { lane: header.lane, base: header.base, life: header.life }.path(directory);
        let file = disk.create(&path).map_err(Error::io("create", &path))?;
        if let Err(error) = write_all(&*file, 0, &header.encode()) {
            // If the removal fails, recovery treats the file as a segment whose creation a crash interrupted.
            let _ = disk.remove(&path);
            return Err(Error::io("write", &path)(error));
        }
        sync(&*file).map_err(Error::fatal("sync", &path))?;
        disk.sync_directory(directory).map_err(Error::fatal("sync", directory))?;
        Ok(Self { file, path, base: header.base, end: header.base })
    }

    /// Returns whether a batch should begin another segment.
    pub(crate) fn is_full(&self, batch: usize, limit: u64) -> bool {
        self.end > self.base && HEADER as u64 + (self.end - self.base) + batch as u64 > limit
    }

    /// Writes a batch at the segment's end. If there is no space, it writes nothing.
    pub(crate) fn append(&mut self, batch: &[u8]) -> Result<(), Error> {
        let offset = HEADER as u64 + (self.end - self.base);
        match write_all(&*self.file, offset, batch).map_err(Error::io("write", &self.path)) {
            Ok(()) => {
                self.end += batch.len() as u64;
                Ok(())
            }
            Err(full @ Error::NoSpace { .. }) => {
                self.file.set_length(offset).map_err(Error::fatal("cut", &self.path))?;
                Err(full)
            }
            Err(other) => Err(other),
        }
    }

    pub(crate) fn sync(&self) -> Result<(), Error> {
        sync(&*self.file).map_err(Error::fatal("sync", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_none() {
        let name = Name { lane: 12, base: 0x1234_5678_9abc, life: 7 };
        let path = name.path(Path::new("d"));
        assert_eq!(Name::parse(path.file_name().unwrap().to_str().unwrap()), Some(name));
        for other in ["manifest", "0001-2.segment", "0001-2-3-4.segment", "1-2-3", "x-2-3.segment", "manifest.tmp"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
