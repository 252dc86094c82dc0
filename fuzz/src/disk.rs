//! A folder of data files with damage of all kinds, and the records in them.

use crate::Input;
use std::sync::OnceLock;
use stoa_core::{Config, Now, Recovered, Restore, Shard};
use stoa_storage::faulty::FaultyDisk;
use stoa_storage::{
    Disk, Entry, FolderId, Log, Options, Recovery, SnapshotHeader, SnapshotReader, SnapshotWriter, inspect,
    list_snapshots,
};

/// The files of a folder.
pub type Image = Vec<(String, Vec<u8>)>;

/// Ways to change a file.
pub const EDIT: [&str; 7] = ["put", "insert", "cut", "remove", "extend", "swap", "new"];

const PREAMBLE_BYTES: usize = 64;
const FRAME_BYTES: usize = 32;

fn options() -> Options {
    Options {
        segment_bytes: 300,
        ahead_bytes: 0,
        block_bytes: 1,
        snapshots_kept: 2,
        new_folder_id: FolderId(*b"0123456789abcdef"),
        now_ms: 1_700_000_000_000,
        ..Options::default()
    }
}

/// What a folder hands out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    snapshots: Vec<(SnapshotHeader, Vec<u8>)>,
    begun: Option<(SnapshotHeader, Vec<u8>)>,
    entries: Vec<(u32, u64, Vec<u8>)>,
}

impl Recovery for Read {
    fn snapshot_begin(&mut self, header: &SnapshotHeader) -> Result<(), String> {
        assert!(self.begun.is_none() && self.entries.is_empty() && !header.positions.is_empty());
        self.begun = Some((header.clone(), Vec::new()));
        Ok(())
    }

    fn snapshot_chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.begun.as_mut().expect("a chunk is within a snapshot").1.extend(bytes);
        Ok(())
    }

    fn snapshot_end(&mut self) -> Result<(), String> {
        self.snapshots.extend(self.begun.take());
        Ok(())
    }

    fn snapshot_discard(&mut self) {
        assert!(self.begun.take().is_some());
    }

    fn entry(&mut self, timeline: u32, position: u64, payload: &[u8]) -> Result<(), String> {
        assert!(self.begun.is_none());
        let before = self.entries.iter().rev().find(|entry| entry.0 == timeline);
        assert!(before.is_none_or(|before| before.1 + 1 == position), "a gap");
        self.entries.push((timeline, position, payload.to_vec()));
        Ok(())
    }
}

/// A folder with two timelines, several segments, and snapshots of both.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let mut disk = FaultyDisk::new(1);
        let mut log = Log::open(&mut disk, &options(), &mut Read::default()).expect("the disk is good");
        for position in 1..=12 {
            let payload = &vec![position as u8; position as usize * 3][..];
            let payload = &[payload];
            let entries = [0, 7].map(|timeline| Entry { timeline, position, payload });
            log.append(&mut disk, &entries).expect("the disk is good");
            if position == 6 || position == 9 {
                let of = if position == 6 { 0 } else { 7 };
                let header =
                    SnapshotHeader { sequence: position, created_ms: 5, positions: vec![(of, position)] };
                let mut writer = SnapshotWriter::begin(&mut disk, header).expect("the disk is good");
                writer.chunk(&mut disk, b"a chunk of a snapshot").expect("the disk is good");
                writer.chunk(&mut disk, b"another").expect("the disk is good");
                writer.finish(&mut disk).expect("the disk is good");
            }
        }
        log.seal(&mut disk).expect("the disk is good");
        let names = disk.list().expect("the disk is good").into_iter().map(|file| file.name);
        let mut image: Image =
            names.map(|name| (name.clone(), disk.bytes(&name).unwrap().to_vec())).collect();
        image.sort();
        image
    })
}

/// Edits of the files of a folder. An odd first byte has all checksums mended afterwards, so that what is behind
/// them is reached.
pub fn folder(data: &[u8]) {
    let mut input = Input(data);
    let mends = input.byte() % 2 == 1;
    let mut files = image().clone();
    while !input.is_empty() {
        edit(&mut files, &mut input);
    }
    if mends {
        files.iter_mut().for_each(|(_, bytes)| mend(bytes));
    }
    let mut disk = FaultyDisk::new(1);
    for (name, bytes) in &files {
        disk.put(name, bytes);
    }
    look_at(&mut disk);
    let mut first = Read::default();
    let Ok(mut log) = Log::open(&mut disk, &options(), &mut first) else { return };
    let mut again = Read::default();
    Log::open(&mut disk, &options(), &mut again).expect("what could be read once can be read again");
    assert_eq!(again, first);
    let position = log.position(7).saturating_add(1);
    let entry = Entry { timeline: 7, position, payload: &[b"one more"] };
    if log.append(&mut disk, &[entry]).is_ok() {
        let mut more = Read::default();
        Log::open(&mut disk, &options(), &mut more).expect("it can be read when something was added");
        assert_eq!(more.entries.len(), first.entries.len() + 1);
    }
    let _ = log.purge(&mut disk);
}

fn edit(files: &mut Image, input: &mut Input<'_>) {
    let (how, which) = (input.byte(), usize::from(input.byte()));
    let at = input.short();
    if EDIT[usize::from(how) % EDIT.len()] == "new" || files.is_empty() {
        let name = String::from_utf8_lossy(input.piece()).into_owned();
        files.retain(|(other, _)| *other != name);
        return files.push((name, input.piece().to_vec()));
    }
    let (which, count) = (which % files.len(), files.len());
    let bytes = &mut files[which].1;
    let at = at.min(bytes.len());
    match EDIT[usize::from(how) % EDIT.len()] {
        "put" => {
            let piece = input.piece();
            let end = (at + piece.len()).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        "insert" => drop(bytes.splice(at..at, input.piece().iter().copied())),
        "cut" => bytes.truncate(at),
        "remove" => drop(files.remove(which)),
        "extend" => bytes.resize(bytes.len() + at.min(1000), 0),
        _ => {
            let other = at % count;
            let name = std::mem::take(&mut files[which].0);
            files[which].0 = std::mem::replace(&mut files[other].0, name);
        }
    }
}

/// What an operator's tools show of it.
fn look_at(disk: &mut FaultyDisk) {
    let _ = inspect::log(disk, &mut |place, finding| {
        let _ = format!("{place:?} {finding:?}");
        std::ops::ControlFlow::Continue(())
    });
    let _ = inspect::snapshots(disk, None, &mut |place, finding| {
        let _ = format!("{place:?} {finding:?}");
        std::ops::ControlFlow::Continue(())
    });
    for found in list_snapshots(disk).unwrap_or_default() {
        let Ok(mut reader) = SnapshotReader::open(disk, found.sequence) else { continue };
        while let Ok(Some(_)) = reader.next(disk) {}
    }
}

/// Makes the checksums of a file right, as far as it has the shape of one.
fn mend(bytes: &mut [u8]) {
    let crc = |seed, bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new_with_initial(seed);
        hasher.update(bytes);
        hasher.finalize()
    };
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    if bytes.len() < PREAMBLE_BYTES {
        return;
    }
    let table_end = PREAMBLE_BYTES + (number(&bytes[56..60]) as usize).min(1000) * 16;
    if let Some(table) = bytes.get(PREAMBLE_BYTES..table_end) {
        let table = crc(0, table);
        bytes[60..64].copy_from_slice(&table.to_le_bytes());
    }
    let header = crc(crc(0, &bytes[..12]), &bytes[16..PREAMBLE_BYTES]);
    bytes[12..16].copy_from_slice(&header.to_le_bytes());
    let seed = crc(crc(crc(0, &bytes[..8]), &bytes[16..32]), &bytes[32..40]);
    let mut at = table_end;
    while bytes.get(at..at + 4) == Some(b"SFRM") && at + FRAME_BYTES <= bytes.len() {
        let end = at + FRAME_BYTES + number(&bytes[at + 24..at + 28]) as usize;
        if let Some(body) = bytes.get(at + FRAME_BYTES..end) {
            let body = crc(0, body);
            bytes[at + 28..at + 32].copy_from_slice(&body.to_le_bytes());
        }
        let header = crc(seed, &bytes[at + 8..at + FRAME_BYTES]);
        bytes[at + 4..at + 8].copy_from_slice(&header.to_le_bytes());
        at = end;
    }
}

/// Records of a log, a piece each; with an odd first byte the first ones are the chunks of a snapshot.
pub fn records(data: &[u8]) {
    let mut input = Input(data);
    let first = input.byte();
    // The same bytes are read as the log of a server with several partitions as well.
    let partitions = 1 + first / 8 % 3;
    let mut restore = Restore::new(stoa_tree::Options::default(), &[1], partitions);
    let mut position = 0;
    if first % 2 == 1 {
        restore.snapshot_begin(3);
        for _ in 0..=first / 2 % 4 {
            if restore.snapshot_chunk(input.piece()).is_err() {
                return;
            }
        }
        if restore.snapshot_end().is_err() {
            return;
        }
        position = 3;
    }
    while !input.is_empty() {
        position += 1;
        if restore.record(position, input.piece()).is_err() {
            return;
        }
    }
    let Ok(mut recovered) = restore.finish(1) else { return };
    // What the group has yet to decide on is believed when it is applied, as all that a leader has written.
    if partitions == 1 && recovered[0].restored.entries.is_empty() {
        serve(recovered.remove(0));
    }
}

/// A server takes up what was read.
fn serve(recovered: Recovered) {
    let mut now = Now { mono_us: 1_000_000, wall_ms: 1_700_000_000_000 };
    let config = Config { server_id: 1, ..Config::default() };
    let Some(mut server) = Shard::new(config, recovered, [1; 32], now) else { return };
    for _ in 0..3 {
        while server.poll_peer().is_some() {}
        while let Some(append) = server.poll_append() {
            server.appended(append.position, now);
        }
        now.mono_us += 60_000_000;
        now.wall_ms += 60_000;
        server.tick(now);
    }
    assert_eq!(server.tree().digest(), server.tree().recomputed_digest());
}
