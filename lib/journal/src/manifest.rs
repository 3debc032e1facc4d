//! The file `manifest`. It identifies the journal to which the directory belongs, and has the data for recovery that is
//! not in the segments (log files). It is always replaced as a whole.

use crate::checkpoint::{read_checkpoint, write_checkpoint};
use crate::frame::{random_id, u64_at};
use crate::{Disk, Error, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of every file's format.
const VERSION: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The journal's id, drawn when the journal is created.
    pub(crate) id: u64,
    /// The number of times that the journal was opened.
    pub(crate) life: u64,
    pub(crate) epochs: bool,
    /// Whether a segment has been created for each lane. If so, a lane without a segment is damaged.
    pub(crate) born: bool,
    /// For each lane, the place at which its first segment begins. Earlier segments are retired.
    pub(crate) first: Vec<u64>,
    /// Pairs of epochs. The epochs between the two of a pair, both excluded, were not durable in every lane when the
    /// journal was recovered. The records of these epochs never count.
    pub(crate) void: Vec<(u64, u64)>,
}

impl Manifest {
    pub(crate) fn new(options: &Options) -> Self {
        let (epochs, first) = (options.epochs, vec![0; options.lanes]);
        Self { id: random_id(), life: 0, epochs, born: false, first, void: Vec::new() }
    }

    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join("manifest")
    }

    pub(crate) fn write(&self, disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), Error> {
        let mut words = vec![VERSION, self.id, self.life, u64::from(self.epochs), u64::from(self.born)];
        words.push(self.first.len() as u64);
        words.extend(&self.first);
        words.extend(self.void.iter().flat_map(|&(from, to)| [from, to]));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        write_checkpoint(disk.clone(), &Self::path(directory), &bytes)
    }

    /// Reads the manifest. Returns `None` if the file does not exist.
    pub(crate) fn read(disk: &dyn Disk, directory: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(directory);
        let mut words: Vec<u64> = Vec::new();
        let found = read_checkpoint(disk, &path, |bytes| {
            words = (0..bytes.len() / 8).map(|at| u64_at(bytes, 8 * at)).collect();
        })?;
        if found.is_none() {
            return Ok(None);
        }
        if let Some(version) = words.first().filter(|&&version| version != VERSION) {
            let what = format!(
                "{} has format version {version}, and this program reads {VERSION}: use the program that wrote it",
                directory.display()
            );
            return Err(Error::Options { what });
        }
        Self::decode(&words).map(Some).ok_or_else(|| Error::damaged(&path, 0, "the content makes no sense"))
    }

    fn decode(words: &[u64]) -> Option<Self> {
        let (&[_, id, life, epochs, born, lanes], rest) = words.split_first_chunk()?;
        let (first, void) = rest.split_at_checked(usize::try_from(lanes).ok()?)?;
        let void = void.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Some(Self { id, life, epochs: epochs != 0, born: born != 0, first: first.to_vec(), void })
    }

    /// Fails if the options contradict the existing journal.
    pub(crate) fn check(&self, options: &Options, directory: &Path) -> Result<(), Error> {
        if (self.first.len(), self.epochs) == (options.lanes, options.epochs) {
            return Ok(());
        }
        let what = format!(
            "the journal in {} has {} lanes and epochs: {}, not {} and {}: open it as it was made, or make another",
            directory.display(),
            self.first.len(),
            self.epochs,
            options.lanes,
            options.epochs
        );
        Err(Error::Options { what })
    }
}
