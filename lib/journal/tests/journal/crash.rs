//! Power losses, ends of the process, and failures, at every call that a workload makes on the disk; and power losses
//! during recoveries.
//!
//! `ARCHIPELAGO_CRASH_SEEDS=N` tries N states of the disk for each call (15 by default).

use crate::common::{HERE, Told, open, small};
use archipelago_journal::{
    Call, Disk, Error, Fault, Journal, Options, Policy, Simulated, read_checkpoint, write_checkpoint,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The number of disk states that were checked after power losses.
static POINTS: AtomicUsize = AtomicUsize::new(0);

fn seeds() -> u64 {
    std::env::var("ARCHIPELAGO_CRASH_SEEDS").map_or(15, |text| text.parse().expect("a number of seeds"))
}

/// A workload's options, and the results that it had received when it ended or failed.
#[derive(Clone, Debug)]
struct Story {
    told: Told,
    options: Options2,
    /// The numbers in the checkpoint file: the last number that is durable, and the last one whose writing was begun.
    checkpoint: (u64, u64),
}

/// Options that can be copied and printed.
#[derive(Clone, Copy, Debug)]
struct Options2 {
    policy: Policy,
    lanes: usize,
    epochs: bool,
}

impl Options2 {
    fn options(self) -> Options {
        Options { policy: self.policy, lanes: self.lanes, epochs: self.epochs, ..small() }
    }
}

fn checkpoint_path() -> PathBuf {
    Path::new(HERE).join("checkpoint")
}

impl Story {
    fn new(options: Options2) -> Self {
        Self { told: Told::new(options.lanes), options, checkpoint: (0, 0) }
    }

    fn open(&mut self, disk: &Simulated) -> Result<(Journal, u64), Error> {
        let (journal, recovery, delivered) = open(disk, &self.options.options())?;
        match self.options.epochs {
            true => self.told.recovered_epochs(&delivered, &recovery),
            false => self.told.recovered(&delivered),
        }
        Ok((journal, recovery.next_epoch))
    }

    /// Repeats a call that failed for lack of space. The next attempt has space.
    fn retried<T>(mut call: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match call() {
            Err(Error::NoSpace { .. }) => call(),
            other => other,
        }
    }

    /// Runs two lives of a journal: opens it, uses it and closes it, twice.
    fn run(&mut self, disk: &Simulated) -> Result<(), Error> {
        for life in 0..2 {
            let (journal, epoch) = Self::retried(|| self.open(disk))?;
            match self.options.epochs {
                true => self.epochs(&journal, epoch)?,
                false => self.lanes(&journal)?,
            }
            self.save(disk, life + 1)?;
            Self::retried(|| self.told.retire(&journal, 0))?;
            if life == 0 {
                journal.close()?;
            }
        }
        Ok(())
    }

    fn lanes(&mut self, journal: &Journal) -> Result<(), Error> {
        for number in 0..12 {
            let lane = (number % self.options.lanes) as u32;
            let position = Self::retried(|| self.told.append(journal, lane, number as u64))?;
            if number % 3 == 2 {
                Self::retried(|| self.told.wait(journal, position))?;
            }
            if number == 7 {
                Self::retried(|| self.told.retire(journal, lane))?;
            }
        }
        Ok(())
    }

    fn epochs(&mut self, journal: &Journal, first: u64) -> Result<(), Error> {
        for number in 0..4 {
            let (epoch, lanes) = (first + number, self.options.lanes as u32);
            for lane in 0..lanes {
                for ahead in 0..(number + u64::from(lane)) % 3 {
                    Self::retried(|| self.told.append(journal, lane, epoch + ahead))?;
                }
            }
            Self::retried(|| self.told.close(journal, epoch))?;
            // So far no other lane has records in this record's epoch.
            Self::retried(|| self.told.append(journal, number as u32 % lanes, epoch + 2))?;
            let end = journal.end(number as u32 % lanes);
            if number == 2 {
                self.told.retired = self.told.appended.iter().map(Vec::len).collect();
                Self::retried(|| {
                    journal.retire_before(archipelago_journal::Position { place: end.place - 400, ..end })
                })?;
            }
        }
        Ok(())
    }

    fn save(&mut self, disk: &Simulated, number: u64) -> Result<(), Error> {
        self.checkpoint.1 = number;
        Self::retried(|| write_checkpoint(Arc::new(disk.clone()), &checkpoint_path(), &number.to_le_bytes()))?;
        self.checkpoint.0 = number;
        Ok(())
    }

    /// Checks a disk after the workload, continues the workload a little, and checks again.
    fn look(mut self, disk: &Simulated, salt: u64) {
        let mut number = 0;
        let found = read_checkpoint(disk, &checkpoint_path(), |bytes| {
            number = u64::from_le_bytes(bytes.try_into().unwrap());
        });
        found.unwrap_or_else(|error| panic!("{error}"));
        assert!((self.checkpoint.0..=self.checkpoint.1).contains(&number), "checkpoint {number}");
        // First, the power fails during a recovery, at a call that `salt` determines.
        let (trial, at) = (disk.restarted(), (salt % 60) as usize);
        trial.fail_at(at, Fault::PowerLoss);
        let crashed = self.clone().open(&trial).is_err();
        let disk = if crashed { trial.power_loss(salt) } else { disk.restarted() };
        if crashed {
            self.forget_what_never_promises();
        }
        self.goes_on(&disk, salt);
    }

    fn goes_on(&mut self, disk: &Simulated, salt: u64) {
        let (journal, epoch) = self.open(disk).unwrap_or_else(|error| panic!("{error}: {:?}", disk.calls()));
        for lane in 0..self.options.lanes as u32 {
            self.told.append(&journal, lane, epoch).unwrap();
            let last = self.told.append(&journal, lane, epoch).unwrap();
            match self.options.epochs {
                true => {}
                false => self.told.wait(&journal, last).unwrap(),
            }
        }
        if self.options.epochs {
            self.told.close(&journal, epoch).unwrap();
        }
        if self.options.policy == Policy::Never {
            journal.sync().unwrap();
        }
        let after = disk.power_loss(salt);
        self.open(&after).unwrap_or_else(|error| panic!("the second time: {error}"));
    }
}

const ALWAYS: Options2 = Options2 { policy: Policy::Always, lanes: 1, epochs: false };

/// Returns options for every kind of journal.
fn kinds() -> [Options2; 5] {
    [
        ALWAYS,
        Options2 { lanes: 2, ..ALWAYS },
        Options2 { lanes: 3, epochs: true, ..ALWAYS },
        Options2 { policy: Policy::Every(Duration::from_secs(1000)), ..ALWAYS },
        Options2 { policy: Policy::Never, ..ALWAYS },
    ]
}

/// Returns the number of calls that a workload makes.
fn calls(options: Options2) -> usize {
    let disk = Simulated::new();
    Story::new(options).run(&disk).unwrap();
    assert!(disk.calls().iter().filter(|&&call| call == Call::Create).count() > 8, "too few segments");
    disk.calls().len()
}

/// Runs a workload with a fault at a call.
fn with_fault(options: Options2, at: usize, fault: Fault) -> (Simulated, Story, Result<(), Error>) {
    let disk = Simulated::new();
    disk.fail_at(at, fault);
    let mut story = Story::new(options);
    let result = story.run(&disk);
    (disk, story, result)
}

#[test]
fn power_losses_at_every_call_lose_nothing_that_was_durable() {
    thread::scope(|scope| kinds().map(move |options| drop(scope.spawn(move || power_losses(options)))));
    let points = POINTS.load(Ordering::Relaxed);
    println!("{points} crash points");
    assert!(points >= 680 * seeds() as usize, "{points}");
}

fn power_losses(options: Options2) {
    for at in 0..=calls(options) {
        let (disk, mut story, _) = with_fault(options, at, Fault::PowerLoss);
        story.forget_what_never_promises();
        for seed in 0..seeds() {
            let salt = seed + seeds() * at as u64;
            let after = disk.power_loss(if seed < 2 { seed } else { salt });
            if Disk::create_directory(&after, Path::new(HERE)).is_ok() {
                POINTS.fetch_add(1, Ordering::Relaxed);
                story.clone().look(&after, salt);
            }
        }
    }
}

impl Story {
    /// Forgets which records were reported durable if the policy is `Never`: such records survive the end of the
    /// process, but perhaps not a power loss.
    fn forget_what_never_promises(&mut self) {
        if self.options.policy == Policy::Never {
            self.told.durable.fill(0);
        }
    }
}

#[test]
fn ends_of_the_process_at_every_call_lose_nothing_that_was_durable() {
    for options in kinds() {
        for at in 0..=calls(options) {
            let (disk, story, _) = with_fault(options, at, Fault::PowerLoss);
            story.look(&disk.restarted(), at as u64);
        }
    }
}

#[test]
fn failures_at_every_call_lose_nothing_that_was_durable() {
    for options in kinds() {
        for fault in [Fault::Io, Fault::NoSpace] {
            for at in 0..=calls(options) {
                let (disk, mut story, result) = with_fault(options, at, fault);
                if matches!(result, Err(Error::Damaged { .. } | Error::Full)) {
                    panic!("call {at}, {fault:?}: {result:?}");
                }
                story.clone().look(&disk.restarted(), at as u64);
                story.forget_what_never_promises();
                story.clone().look(&disk.restarted().power_loss(1), at as u64);
                for seed in [0, 2 + at as u64] {
                    let after = disk.power_loss(seed);
                    if Disk::create_directory(&after, Path::new(HERE)).is_ok() {
                        story.clone().look(&after, at as u64);
                    }
                }
            }
        }
    }
}

#[test]
fn interrupted_and_short_calls_change_nothing() {
    for options in kinds() {
        let calls = calls(options);
        for at in 0..calls {
            let (disk, story, result) = with_fault(options, at, Fault::Short);
            result.unwrap_or_else(|error| panic!("call {at}: {error}"));
            story.look(&disk.restarted(), at as u64);
        }
        let mut disk = Simulated::new();
        Story::new(options).run(&disk).unwrap();
        for (at, call) in disk.calls().into_iter().enumerate() {
            if matches!(call, Call::Read | Call::Write | Call::Sync) {
                disk = Simulated::new();
                disk.fail_at(at, Fault::Interrupted);
                let mut story = Story::new(options);
                // With threads, the reads of several lanes occur in any order, so another call may have been
                // interrupted.
                if let Err(error) = story.run(&disk) {
                    assert!(options.lanes > 1 && matches!(error, Error::Io { .. }), "call {at}: {error}");
                }
            }
        }
    }
}
