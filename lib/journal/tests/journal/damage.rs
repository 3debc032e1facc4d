//! Files whose bytes differ from the written ones. If a later mark or header states that the damaged bytes were
//! durable, opening refuses the journal and reports the offset. Otherwise it cuts everything from the damage on, and
//! reports the cut. It never skips bytes.

use crate::common::{HERE, open, record, small};
use archipelago_journal::{Disk, Error, Options, Policy, Simulated, read_checkpoint, write_checkpoint};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const RECORDS: usize = 24;

/// Returns the disk of a closed journal with several segments.
fn closed() -> Simulated {
    let disk = Simulated::new();
    let (journal, ..) = open(&disk, &small()).unwrap();
    for number in 0..RECORDS {
        let position = journal.append(0, 0, &record(0, number)).unwrap();
        if number % 2 == 0 {
            journal.wait(position).unwrap();
        }
    }
    journal.close().unwrap();
    disk
}

/// Returns the paths of the segments, oldest first.
fn segments(disk: &Simulated) -> Vec<PathBuf> {
    let mut names = disk.list(Path::new(HERE)).unwrap();
    names.retain(|name| name.ends_with(".segment"));
    names.sort();
    names.iter().map(|name| Path::new(HERE).join(name)).collect()
}

/// Opens a damaged journal. Returns the number of records, or the position at which opening was refused.
fn found(disk: &Simulated) -> Result<usize, (PathBuf, u64)> {
    match open(&disk.restarted(), &small()) {
        Ok((_, recovery, delivered)) => {
            for (number, (_, bytes)) in delivered[0].iter().enumerate() {
                assert!(*bytes == record(0, number), "{number}");
            }
            assert!(delivered[0].len() == RECORDS || !recovery.cuts.is_empty(), "lost without a word");
            Ok(delivered[0].len())
        }
        Err(Error::Damaged { file, offset, what }) => {
            let text = Error::Damaged { file: file.clone(), offset, what }.to_string();
            assert!(text.contains("Restore") && text.contains(file.to_str().unwrap()), "{text}");
            Err((file, offset))
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn every_changed_byte_is_refused_with_its_place() {
    let disk = closed();
    let segments = segments(&disk);
    assert!(segments.len() > 4);
    for (number, path) in segments.iter().enumerate() {
        let length = disk.content(path).unwrap().len();
        let last = number + 1 == segments.len();
        for at in 0..length {
            // Four bytes of a header are unused.
            if (68..72).contains(&at) {
                continue;
            }
            let damaged = disk.restarted();
            damaged.damage(path, |bytes| bytes[at] ^= 1 << (at % 8));
            match found(&damaged) {
                Err((file, offset)) => {
                    assert!(file == *path && offset <= at as u64, "{file:?} {offset}, not {path:?} {at}")
                }
                // The damaged frame is the log's last mark. (A mark is a frame that states up to which place the log is
                // durable.) No later mark covers it, so opening cuts it.
                Ok(records) => assert!(last && at >= length - 32 && records == RECORDS, "{path:?} {at}: {records}"),
            }
        }
    }
}

#[test]
fn every_cut_is_refused_or_told() {
    let disk = closed();
    let segments = segments(&disk);
    for (number, path) in segments.iter().enumerate() {
        let content = disk.content(path).unwrap();
        for length in 0..content.len() {
            let damaged = disk.restarted();
            damaged.damage(path, |bytes| bytes.truncate(length));
            let last = number + 1 == segments.len();
            match open(&damaged, &small()) {
                Err(Error::Damaged { .. }) => {}
                Err(other) => panic!("{other}"),
                // A crash may leave a last segment that is shorter than written, so opening accepts it.
                Ok((.., delivered)) => assert!(last && delivered[0].len() <= RECORDS, "{path:?} cut to {length}"),
            }
        }
    }
}

#[test]
fn missing_and_foreign_files_are_refused() {
    let disk = closed();
    let all = segments(&disk);
    for path in &all[..all.len() - 1] {
        let damaged = disk.restarted();
        damaged.remove(path).unwrap();
        assert!(found(&damaged).is_err(), "{path:?}");
    }
    let damaged = disk.restarted();
    all.iter().for_each(|path| damaged.remove(path).unwrap());
    assert!(found(&damaged).is_err());
    // The journal has no manifest, and then the manifest of another journal.
    let manifest = Path::new(HERE).join("manifest");
    let damaged = disk.restarted();
    damaged.remove(&manifest).unwrap();
    assert_eq!(found(&damaged).unwrap_err().0, manifest);
    let other = closed().content(&manifest).unwrap();
    let damaged = disk.restarted();
    damaged.damage(&manifest, |bytes| *bytes = other);
    assert_eq!(found(&damaged).unwrap_err(), (all[0].clone(), 0));
    // One segment's file has the content of another one.
    let damaged = disk.restarted();
    let second = disk.content(&all[1]).unwrap();
    damaged.damage(&all[2], |bytes| *bytes = second);
    assert_eq!(found(&damaged).unwrap_err(), (all[2].clone(), 0));
    // Each byte of the manifest in turn is damaged, except the four unused ones of the header.
    for at in (0..disk.content(&manifest).unwrap().len()).filter(|at| !(68..72).contains(at)) {
        let damaged = disk.restarted();
        damaged.damage(&manifest, |bytes| bytes[at] ^= 4);
        assert_eq!(found(&damaged).unwrap_err().0, manifest, "{at}");
    }
}

#[test]
fn a_newer_format_is_refused() {
    let disk = closed();
    let manifest = Path::new(HERE).join("manifest");
    let mut words = Vec::new();
    read_checkpoint(&disk, &manifest, |bytes| words = bytes.to_vec()).unwrap();
    words[0] = 2;
    write_checkpoint(Arc::new(disk.clone()), &manifest, &words).unwrap();
    let refused = open(&disk, &small()).err().unwrap();
    assert!(matches!(refused, Error::Options { .. }) && refused.to_string().contains("format version 2"), "{refused}");
}

#[test]
fn a_torn_tail_is_cut_and_told() {
    let disk = closed();
    let (journal, ..) = open(&disk, &small()).unwrap();
    let end = journal.end(0).place;
    journal.append(0, 0, &[1; 1000]).unwrap();
    let position = journal.append(0, 0, &[2; 100]).unwrap();
    journal.wait(position).unwrap();
    let path = segments(&disk).pop().unwrap();
    let torn = disk.restarted();
    torn.damage(&path, |bytes| bytes.truncate(600));
    let (journal, recovery, delivered) = open(&torn, &small()).unwrap();
    assert_eq!(delivered[0].len(), RECORDS);
    let cut = &recovery.cuts[0];
    // The mark at the batch's front is whole, so the cut begins after the mark.
    assert_eq!((&cut.file, cut.offset, cut.bytes), (&path, 72 + 32, 600 - 72 - 32));
    assert_eq!(journal.end(0).place, end + 32);
    assert_eq!(open(&torn.restarted(), &small()).unwrap().1.cuts, []);
}

/// Without syncs, a crash may leave later bytes but lose earlier ones. No mark declares the lost bytes durable, so the
/// log is cut before them.
#[test]
fn what_was_never_durable_is_cut_even_in_the_middle() {
    let disk = Simulated::new();
    let options = Options { policy: Policy::Never, ..small() };
    let (journal, ..) = open(&disk, &options).unwrap();
    for number in 0..RECORDS {
        let position = journal.append(0, 0, &record(0, number)).unwrap();
        journal.wait(position).unwrap();
    }
    let all = segments(&disk);
    let torn = disk.restarted();
    torn.damage(&all[2], |bytes| bytes[200] ^= 1);
    let (_, recovery, delivered) = open(&torn, &options).unwrap();
    assert!(delivered[0].len() > 2 && delivered[0].len() < RECORDS);
    let behind: usize = all[2..].iter().map(|path| disk.content(path).unwrap().len()).sum();
    assert_eq!(recovery.cuts[0].offset + recovery.cuts[0].bytes, behind as u64);
    // Recovery has made the records that it delivered durable. So damage to them is now refused, in spite of the
    // policy.
    let torn = torn.power_loss(0);
    torn.damage(&all[0], |bytes| bytes[100] ^= 1);
    assert!(matches!(open(&torn, &options), Err(Error::Damaged { .. })));
}

/// Without syncs, no segment's header declares earlier segments durable. But `sync` is called before the last record,
/// and the mark that follows states that all earlier segments are durable. So a missing one is damage.
#[test]
fn a_segment_that_a_later_sync_covered_is_missed() {
    let disk = Simulated::new();
    let options = Options { policy: Policy::Never, ..small() };
    let (journal, ..) = open(&disk, &options).unwrap();
    for number in 0..RECORDS {
        if number + 1 == RECORDS {
            journal.sync().unwrap();
        }
        let position = journal.append(0, 0, &record(0, number)).unwrap();
        journal.wait(position).unwrap();
    }
    let all = segments(&disk);
    let damaged = disk.restarted();
    damaged.remove(&all[2]).unwrap();
    assert_eq!(found(&damaged).unwrap_err(), (all[3].clone(), 0));
}

#[test]
fn checkpoints_are_whole_or_refused() {
    let disk = Simulated::new();
    let path = Path::new("checkpoint");
    assert!(read_checkpoint(&disk, path, |_| panic!("there is none")).unwrap().is_none());
    let mut writer = archipelago_journal::CheckpointWriter::create(Arc::new(disk.clone()), path).unwrap();
    for number in 0..50 {
        writer.record(&record(0, number)).unwrap();
    }
    assert!(disk.content(path).is_none());
    writer.commit().unwrap();
    let read = |disk: &Simulated| {
        let mut records = Vec::new();
        read_checkpoint(disk, path, |bytes| records.push(bytes.to_vec())).map(|count| (count, records))
    };
    let (count, records) = read(&disk).unwrap();
    assert_eq!((count, records), (Some(50), (0..50).map(|number| record(0, number)).collect()));
    let content = disk.content(path).unwrap();
    for at in (0..content.len()).filter(|at| !(68..72).contains(at)) {
        let damaged = disk.restarted();
        damaged.damage(path, |bytes| bytes[at] ^= 1);
        assert!(matches!(read(&damaged), Err(Error::Damaged { .. })), "byte {at}");
        damaged.damage(path, |bytes| bytes.truncate(at));
        assert!(matches!(read(&damaged), Err(Error::Damaged { .. })), "cut to {at}");
    }
    // A writer that is dropped, or that finds no space, leaves the old file and no other file.
    drop(archipelago_journal::CheckpointWriter::create(Arc::new(disk.clone()), path).unwrap());
    disk.set_capacity(Some(disk.used() + 10));
    let full = write_checkpoint(Arc::new(disk.clone()), path, &[1; 1000]).unwrap_err();
    assert!(matches!(full, Error::NoSpace { .. }), "{full}");
    assert_eq!((disk.content(path).unwrap(), disk.used()), (content.clone(), content.len()));
}
