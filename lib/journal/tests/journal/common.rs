//! Compares the recovered records of a journal with the results that its user received: only appended records may be
//! recovered, in order, and no record that was reported durable may be missing.

use archipelago_journal::{Disk, Error, Journal, Options, Position, Recovery, Simulated};
use std::path::Path;
use std::sync::{Arc, Mutex};

pub const HERE: &str = "journal";

/// Options with small segments and queues and without threads, so that each run makes the same calls.
pub fn small() -> Options {
    Options { segment: 1500, queue: 4096, background: false, ..Options::default() }
}

/// The records that recovery delivered, by lane.
pub type Delivered = Vec<Vec<(Position, Vec<u8>)>>;

pub fn open(disk: &Simulated, options: &Options) -> Result<(Journal, Recovery, Delivered), Error> {
    open_on(Arc::new(disk.clone()), Path::new(HERE), options)
}

pub fn open_on(
    disk: Arc<dyn Disk>,
    directory: &Path,
    options: &Options,
) -> Result<(Journal, Recovery, Delivered), Error> {
    let delivered = Mutex::new(vec![Vec::new(); options.lanes]);
    let (journal, recovery) = Journal::open(disk, directory, options.clone(), |record| {
        delivered.lock().unwrap()[record.position.lane as usize].push((record.position, record.bytes.to_vec()));
    })?;
    Ok((journal, recovery, delivered.into_inner().unwrap()))
}

/// Returns a record that differs from all others, with a length that depends on its number.
pub fn record(lane: u32, number: usize) -> Vec<u8> {
    let length = [0, 1, 7, 40, 100, 333, 512, 700][(number * 5 + lane as usize) % 8];
    let mut bytes = format!("{lane}/{number}/").into_bytes();
    bytes.extend((0..length).map(|at| (at * 31 + number) as u8));
    bytes
}

/// One record that was appended.
#[derive(Clone, Debug)]
pub struct Appended {
    pub place: u64,
    pub epoch: u64,
    pub bytes: Vec<u8>,
}

/// The facts that the user of a journal knows.
#[derive(Clone, Default, Debug)]
pub struct Told {
    /// All records of each lane: those that the last recovery delivered, followed by those that were appended since.
    pub appended: Vec<Vec<Appended>>,
    /// The number of these records, by lane, that were reported durable.
    pub durable: Vec<usize>,
    /// The number of these records, by lane, that the checkpoint contains, so that they may be retired.
    pub retired: Vec<usize>,
    /// The last epoch that was reported durable.
    pub epoch: u64,
    /// The last epoch whose closing was requested.
    pub closing: u64,
    /// The number of the next record.
    pub next: usize,
}

impl Told {
    pub fn new(lanes: usize) -> Self {
        Self { appended: vec![Vec::new(); lanes], durable: vec![0; lanes], retired: vec![0; lanes], ..Self::default() }
    }

    /// Appends the next record.
    pub fn append(&mut self, journal: &Journal, lane: u32, epoch: u64) -> Result<Position, Error> {
        let bytes = record(lane, self.next);
        let position = journal.append(lane, epoch, &bytes)?;
        self.next += 1;
        self.appended[lane as usize].push(Appended { place: position.place, epoch, bytes });
        Ok(position)
    }

    pub fn wait(&mut self, journal: &Journal, position: Position) -> Result<(), Error> {
        journal.wait(position)?;
        let lane = position.lane as usize;
        self.durable[lane] = self.appended[lane].iter().filter(|known| known.place <= position.place).count();
        Ok(())
    }

    pub fn close(&mut self, journal: &Journal, epoch: u64) -> Result<(), Error> {
        self.closing = epoch;
        journal.close_epoch(epoch)?;
        journal.wait_epoch(epoch)?;
        self.epoch = epoch;
        Ok(())
    }

    pub fn retire(&mut self, journal: &Journal, lane: u32) -> Result<(), Error> {
        let durable = self.durable[lane as usize];
        let Some(last) = durable.checked_sub(1) else { return Ok(()) };
        let place = self.appended[lane as usize][last].place;
        self.retired[lane as usize] = durable;
        journal.retire_before(Position { lane, place, epoch: 0 })
    }

    /// Compares the facts with the records that a journal without epochs delivered. The delivered records become the
    /// known ones.
    pub fn recovered(&mut self, delivered: &Delivered) {
        for (lane, delivered) in delivered.iter().enumerate() {
            let known = &self.appended[lane];
            let first = match delivered.first() {
                Some((position, _)) => known.iter().position(|known| known.place == position.place),
                None => Some(self.retired[lane].min(known.len())),
            };
            let first = first.unwrap_or_else(|| panic!("lane {lane} begins with a record that was never there"));
            assert!(first <= self.retired[lane], "lane {lane}: records before the retired position are missing");
            assert_same(&delivered[..], &known[first..], lane);
            assert!(first + delivered.len() >= self.durable[lane], "lane {lane}: a durable record is missing");
            self.appended[lane] = known[first..first + delivered.len()].to_vec();
            self.durable[lane] = delivered.len();
            self.retired[lane] = (self.retired[lane] - first).min(delivered.len());
        }
    }

    /// The same as `recovered`, for a journal with epochs: it must deliver all records up to an epoch, and no other
    /// record.
    pub fn recovered_epochs(&mut self, delivered: &Delivered, recovery: &Recovery) {
        assert!(recovery.epoch >= self.epoch, "a durable epoch is missing");
        // The epochs that a recovery skips have no records.
        for (lane, delivered) in delivered.iter().enumerate() {
            let counting = |known: &&Appended| known.epoch <= recovery.epoch;
            let counted: Vec<Appended> = self.appended[lane].iter().filter(counting).cloned().collect();
            let first = match delivered.first() {
                Some((position, _)) => counted.iter().position(|known| known.place == position.place),
                None => Some(counted.len()),
            };
            let first = first.unwrap_or_else(|| panic!("lane {lane} begins with a record that does not count"));
            let retired = self.appended[lane][..self.retired[lane]].iter().filter(counting).count();
            assert!(first <= retired, "lane {lane}: records are missing: {first} of {retired}");
            assert_same(&delivered[..], &counted[first..], lane);
            assert_eq!(delivered.len(), counted.len() - first, "lane {lane}: an epoch is not whole");
            self.appended[lane] = counted[first..].to_vec();
            self.retired[lane] = retired - first;
            self.durable[lane] = delivered.len();
        }
        self.epoch = recovery.epoch;
    }
}

fn assert_same(delivered: &[(Position, Vec<u8>)], known: &[Appended], lane: usize) {
    assert!(delivered.len() <= known.len(), "lane {lane}: more was delivered than appended");
    for ((position, bytes), known) in delivered.iter().zip(known) {
        assert_eq!((position.place, position.epoch), (known.place, known.epoch), "lane {lane}");
        assert!(*bytes == known.bytes, "lane {lane}: another record at {position:?}");
    }
}
