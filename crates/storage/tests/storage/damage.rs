//! Every cut and every flipped bit of small files: the right answer or a refusal, never wrong data.

use crate::world::{Model, Recovered, open, options};
use stoa_storage::faulty::{Fault, FaultyDisk};
use stoa_storage::{Disk, Options, StorageError};

/// How the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With a batch.
    Open,
    /// With a batch and zeros behind it.
    Ahead,
    /// With a seal, durable.
    Sealed,
    /// With a new segment, before the old one had its end frame.
    Changing,
}

const ENDS: [End; 4] = [End::Open, End::Ahead, End::Sealed, End::Changing];

/// A folder with two snapshots and several segments; the first segments are still there.
fn folder(end: End) -> (FaultyDisk, Model) {
    let (mut disk, mut model) = (FaultyDisk::new(1), Model::default());
    let ahead_bytes = if end == End::Ahead { 5000 } else { 0 };
    let options = Options { segment_bytes: 400, ahead_bytes, ..options() };
    let (mut log, _) = open(&mut disk, &options).unwrap();
    for step in 0..12_u32 {
        model.append(&mut log, &mut disk, &[1, step % 2]).unwrap();
        if step == 3 || step == 5 {
            model.snapshot(&mut disk, u64::from(step)).unwrap();
        }
    }
    assert!(log.stats().segments > 3);
    match end {
        End::Open => {}
        End::Ahead => {
            let last = last_segment(&mut disk);
            assert!(disk.bytes(&last).unwrap().ends_with(&[0; 100]));
        }
        End::Sealed => {
            log.seal(&mut disk).unwrap();
            let last = last_segment(&mut disk);
            disk.sync(&last).unwrap();
        }
        End::Changing => {
            (log, _) = open(&mut disk, &Options { segment_bytes: 0, ..options }).unwrap();
            // Removing a leftover, writing, syncing, renaming, syncing the folder; then the end.
            disk.fault_after(5, Fault::PowerLoss);
            model.append(&mut log, &mut disk, &[1]).unwrap_err();
            disk.crash_losing_all();
            let last = last_segment(&mut disk);
            assert_eq!(disk.bytes(&last).unwrap().len(), 96, "a blank segment");
        }
    }
    (disk, model)
}

fn files(disk: &mut FaultyDisk) -> Vec<(String, u64)> {
    let mut files: Vec<_> = disk.list().unwrap().into_iter().map(|file| (file.name, file.bytes)).collect();
    files.sort();
    files
}

fn last_segment(disk: &mut FaultyDisk) -> String {
    let segments = files(disk).into_iter().filter(|file| file.0.starts_with("log-"));
    segments.max().unwrap().0
}

/// How many entries at the end are missing from what came back.
fn missing(model: &Model, recovered: &Recovered) -> u64 {
    model.check_entries(recovered);
    let of = |timeline| model.last(timeline) - recovered.last(timeline);
    of(0) + of(1)
}

#[test]
fn a_cut_anywhere_gives_a_prefix_or_a_refusal() {
    for end in ENDS {
        let (mut disk, model) = folder(end);
        let last = last_segment(&mut disk);
        for (file, bytes) in files(&mut disk) {
            for length in 0..bytes {
                let mut cut = disk.clone();
                cut.set_len(&file, length).unwrap();
                cut.sync(&file).unwrap();
                let before = cut.durable();
                match open(&mut cut, &options()) {
                    Ok((_, recovered)) => {
                        let missing = missing(&model, &recovered);
                        assert!(missing == 0 || file == last, "{file} cut at {length}");
                        let expected = if file.starts_with("snapshot-0000000000000005") { 3 } else { 5 };
                        assert_eq!(recovered.snapshot_of(1), Some(expected));
                        assert_eq!(recovered.warnings.len(), usize::from(expected == 3));
                        reopens_the_same(cut, &recovered);
                    }
                    Err(error) => refused(&error, &before, &mut cut, &file),
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_gives_all_but_the_unproven_tail_or_a_refusal() {
    for end in ENDS {
        let (mut disk, model) = folder(end);
        let last = last_segment(&mut disk);
        for (file, bytes) in files(&mut disk) {
            let mut refusals = 0;
            for bit in 0..bytes * 8 {
                let mut flipped = disk.clone();
                flipped.flip_bit(&file, bit);
                let before = flipped.durable();
                match open(&mut flipped, &options()) {
                    Ok((_, recovered)) => {
                        let missing = missing(&model, &recovered);
                        let unproven =
                            if file == last && matches!(end, End::Open | End::Ahead) { 2 } else { 0 };
                        assert!(missing <= unproven, "bit {bit} of {file}: {missing} missing");
                        reopens_the_same(flipped, &recovered);
                    }
                    Err(error) => {
                        refused(&error, &before, &mut flipped, &file);
                        refusals += 1;
                    }
                }
            }
            match &file[..] {
                "FORMAT" => assert_eq!(refusals, bytes * 8),
                name if name.starts_with("snapshot-") => {
                    assert_eq!(refusals, 0, "{name}: the older one serves");
                }
                name if name == last && end == End::Sealed => {
                    assert!(refusals >= (bytes - 32) * 8, "all but the seal itself");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn any_two_files_exchanged_or_one_file_gone_is_noticed() {
    let (mut disk, model) = folder(End::Sealed);
    let names: Vec<String> = files(&mut disk).into_iter().map(|file| file.0).collect();
    for one in &names {
        let mut without = disk.clone();
        without.take(one).unwrap();
        check_either(&model, &mut without, one);
        for other in &names {
            let mut exchanged = disk.clone();
            let bytes = (exchanged.take(one).unwrap(), disk.bytes(other).unwrap().to_vec());
            exchanged.put(one, &bytes.1);
            if one != other {
                exchanged.put(other, &bytes.0);
            }
            check_either(&model, &mut exchanged, &format!("{one} and {other}"));
        }
    }
}

#[test]
fn a_segment_of_another_folder_is_refused() {
    let (mut disk, _) = folder(End::Sealed);
    let mut other = FaultyDisk::new(2);
    let id = stoa_storage::FolderId([3; 16]);
    let (mut log, _) =
        open(&mut other, &Options { new_folder_id: id, segment_bytes: 400, ..options() }).unwrap();
    let mut model = Model::default();
    for step in 0..12_u32 {
        model.append(&mut log, &mut other, &[1, step % 2]).unwrap();
    }
    let last = last_segment(&mut disk);
    disk.put(&last, other.bytes(&last).expect("both folders have the same segments"));
    let error = open(&mut disk, &options()).unwrap_err().to_string();
    assert!(error.contains(&last) && error.contains("another data folder"), "{error}");
}

#[test]
fn garbage_behind_the_log_is_cut() {
    for end in [End::Open, End::Sealed] {
        let (mut disk, model) = folder(end);
        let last = last_segment(&mut disk);
        let mut bytes = disk.bytes(&last).unwrap().to_vec();
        let length = bytes.len() as u64;
        for garbage in [vec![0; 5000], b"SFRM".repeat(2000), (0..9999).map(|at| (at * at) as u8).collect()] {
            bytes.truncate(length as usize);
            bytes.extend_from_slice(&garbage);
            disk.put(&last, &bytes);
            let mut disk = disk.clone();
            let (_, recovered) = open(&mut disk, &options()).unwrap();
            assert_eq!(missing(&model, &recovered), 0);
            assert_eq!(disk.durable().bytes(&last).unwrap().len() as u64, length);
        }
    }
}

fn check_either(model: &Model, disk: &mut FaultyDisk, what: &str) {
    let before = disk.durable();
    match open(disk, &options()) {
        Ok((_, recovered)) => assert_eq!(missing(model, &recovered), 0, "{what}"),
        Err(error) => refused(&error, &before, disk, what),
    }
}

/// After a cut, the same comes back once more.
fn reopens_the_same(mut disk: FaultyDisk, recovered: &Recovered) {
    disk.crash_losing_all();
    let (_, again) = open(&mut disk, &options()).unwrap();
    assert_eq!(&again, recovered);
}

/// A refusal says what to do and leaves the folder alone.
fn refused(error: &StorageError, before: &FaultyDisk, after: &mut FaultyDisk, what: &str) {
    let words = error.to_string();
    assert!(words.len() > 60, "{what}: {words}");
    assert!(!matches!(error, StorageError::Disk(_)), "{what}: {words}");
    let mut before = before.clone();
    assert_eq!(files(&mut before), files(after), "{what}");
    for (file, _) in files(after) {
        assert!(before.bytes(&file) == after.bytes(&file), "{what}: {file} was changed");
    }
}
