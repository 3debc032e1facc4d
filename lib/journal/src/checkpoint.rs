//! Checkpoint files: a sequence of records that exists as a whole or not at all.
//!
//! The bytes are first written to a file with another name. This file is synced, then renamed, then its directory is
//! synced. So whenever a crash happens, the name refers to the whole old file or to the whole new one. The last frame
//! contains the number of records, so that a later truncation of the file is detected.

use crate::disk::{DiskFile, read_full, sync, write_all};
use crate::frame::{FRAME, Frame, Frames, HEADER, Header, MARK, Next, put_mark, put_record, random_id};
use crate::{Disk, Error};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of bytes of frames that are buffered before they are written.
const BUFFER: usize = 256 << 10;

/// Writes a checkpoint file record by record. The file of this path is the old one until [`commit`](Self::commit)
/// replaces it.
pub struct CheckpointWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    temporary: PathBuf,
    file: Box<dyn DiskFile>,
    salt: u32,
    /// The number of bytes of frames so far, and the number of records.
    end: u64,
    records: u64,
    buffer: Vec<u8>,
    /// The number of bytes in the file.
    written: u64,
    committed: bool,
}

impl CheckpointWriter {
    /// Begins a file for `path`. Until the commit the file is in the same directory, with `.tmp` added to its name. A
    /// path may have one writer at a time.
    ///
    /// # Errors
    ///
    /// Errors of the operating system.
    pub fn create(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, Error> {
        let mut name = path.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        let file = disk.create(&temporary).map_err(Error::io("create", &temporary))?;
        let header = Header { id: random_id(), lane: 0, life: 0, base: 0, closed: 0, highest: 0, synced: 0 };
        let buffer = header.encode().to_vec();
        let (path, salt) = (path.to_owned(), header.salt());
        Ok(Self { disk, path, temporary, file, salt, end: 0, records: 0, buffer, written: 0, committed: false })
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// Errors of the operating system, including [`Error::NoSpace`]. The old file stays, and the caller should drop
    /// this writer.
    ///
    /// # Panics
    ///
    /// If the record has 2 GiB or more.
    pub fn record(&mut self, record: &[u8]) -> Result<(), Error> {
        assert!(record.len() < 1 << 31, "a record of a checkpoint has less than 2 GiB");
        put_record(&mut self.buffer, self.salt, self.end, 0, record);
        self.end += (FRAME + record.len()) as u64;
        self.records += 1;
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        write_all(&*self.file, self.written, &self.buffer).map_err(Error::io("write", &self.temporary))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the new file durable and renames it to its path.
    ///
    /// # Errors
    ///
    /// Errors of the operating system. After such an error, the file of this path is the whole old one or the whole new
    /// one. Which of the two it is may be known only after a restart.
    pub fn commit(mut self) -> Result<(), Error> {
        put_mark(&mut self.buffer, self.salt, self.end, self.records, 0);
        self.flush()?;
        sync(&*self.file).map_err(Error::io("sync", &self.temporary))?;
        self.disk.rename(&self.temporary, &self.path).map_err(Error::io("rename", &self.path))?;
        self.committed = true;
        sync_parent(&*self.disk, &self.path)
    }
}

/// Dropping the writer removes an unfinished file.
impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        if !self.committed {
            // If the removal fails, the next writer overwrites the file.
            let _ = self.disk.remove(&self.temporary);
        }
    }
}

/// Makes the entries of the path's parent directory durable.
pub(crate) fn sync_parent(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_directory(parent).map_err(Error::io("sync", parent))
}

/// Writes a checkpoint file of one record, atomically and durably. The file replaces an older file of this path.
///
/// # Errors
///
/// The errors of [`CheckpointWriter`]'s methods.
///
/// # Panics
///
/// If the record has 2 GiB or more.
pub fn write_checkpoint(disk: Arc<dyn Disk>, path: &Path, record: &[u8]) -> Result<(), Error> {
    let mut writer = CheckpointWriter::create(disk, path)?;
    writer.record(record)?;
    writer.commit()
}

/// Calls `each` with the records of a checkpoint file, in order. Returns the number of records, or `None` if the file
/// does not exist. The records are valid only if the function returns without error.
///
/// # Errors
///
/// [`Error::Damaged`] if the file is not whole; errors of the operating system.
pub fn read_checkpoint(disk: &dyn Disk, path: &Path, mut each: impl FnMut(&[u8])) -> Result<Option<u64>, Error> {
    let file = match disk.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", path)(error)),
    };
    let mut bytes = [0; HEADER];
    read_full(&*file, 0, &mut bytes).map_err(Error::io("read", path))?;
    let header = Header::decode(&bytes).ok_or_else(|| Error::damaged(path, 0, "the header is none"))?;
    let mut frames = Frames::new(&*file, &header).map_err(Error::io("read", path))?;
    let mut records = 0;
    loop {
        let offset = frames.offset();
        let last = offset + MARK as u64 == frames.length();
        match frames.next().map_err(Error::io("read", path))? {
            Next::Frame(Frame::Record { body, .. }) => {
                each(body);
                records += 1;
            }
            Next::Frame(Frame::Mark { closed, .. }) if last && closed == records => {
                return Ok(Some(records));
            }
            Next::Frame(Frame::Mark { .. }) => {
                return Err(Error::damaged(path, offset, "the count of records is wrong"));
            }
            Next::End => return Err(Error::damaged(path, offset, "the file ends too early")),
            Next::Bad(what) => return Err(Error::damaged(path, offset, what)),
        }
    }
}
