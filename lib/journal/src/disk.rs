//! The interface to the file system: every call to the file system is a method of [`Disk`] or [`DiskFile`].

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// A guard of a locked file; dropping it unlocks the file.
pub trait DiskLock: Send + Sync {}

/// A file system: the real one ([`Real`]) or a simulated one ([`Simulated`](crate::Simulated)).
pub trait Disk: Send + Sync {
    /// Creates a directory, if it does not exist. Its parent must exist.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of the files in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Creates an empty file. If a file of this name exists, its content is removed.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file within its directory, atomically. If a file of the new name exists, it is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// Locks a file until the lock is dropped or its process ends. The file is created if it does not exist.
    ///
    /// # Errors
    ///
    /// `WouldBlock` while another process or handle holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>>;
}

/// An open file. Offsets are bytes from its beginning.
pub trait DiskFile: Send {
    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads at an offset and returns how many bytes were read: 0 at the end.
    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<usize>;
    /// Writes at an offset and returns how many bytes were written, which may be fewer than requested.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Truncates the file, or extends it with zeros.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Makes content and length durable (`fdatasync`).
    fn sync(&self) -> io::Result<()>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        // The journal creates only names that are UTF-8.
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    // Windows has no call that syncs a directory: its file systems order their metadata themselves.
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskLock for File {}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_at(self, to, offset);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_read(self, to, offset);
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::write_at(self, bytes, offset);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_write(self, bytes, offset);
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes all of `bytes`, in as many calls as necessary.
pub(crate) fn write_all(file: &dyn DiskFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let wrote = uninterrupted(|| file.write(offset, bytes))?;
        if wrote == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (offset, bytes) = (offset + wrote as u64, &bytes[wrote..]);
    }
    Ok(())
}

/// Reads until `to` is full or the file ends, and returns how many bytes were read.
pub(crate) fn read_full(file: &dyn DiskFile, offset: u64, to: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < to.len() {
        match uninterrupted(|| file.read(offset + filled as u64, &mut to[filled..]))? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Syncs a file. A call that a signal interrupted is repeated, as `std` does: unlike a failed call, it has lost no
/// bytes.
pub(crate) fn sync(file: &dyn DiskFile) -> io::Result<()> {
    uninterrupted(|| file.sync())
}
