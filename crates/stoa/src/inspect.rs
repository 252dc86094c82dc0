//! `stoa log` and `stoa snapshot`: what a server has on disk, for people. Nothing is changed, so
//! they work beside a running server; what it is just writing may then look torn.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use stoa_core::{Items, Restore, Slices, server_of, servers_of, timeline_of};
use stoa_group::{EntryKind, History, Mark, Store, Vote};
use stoa_server::file_disk::FileDisk;
use stoa_server::partitions_file;
use stoa_storage::SnapshotHeader;
use stoa_storage::inspect::{self, Finding, Place};
use stoa_tree::{Options, Tree, ZnodeKind};

use crate::failure::{Context as _, Failure, Result};
use crate::lost::{self, LogLostArgs};

const SNAPSHOT_PREFIX: &str = "snapshot-";

/// `stoa log`.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Prints the log: every file, batch, entry and update, and every damage
    Dump(LogDumpArgs),
    /// Lists what a site that was given up has made and the other sites do not have
    Lost(Box<LogLostArgs>),
}

/// Options of `stoa log dump`.
#[derive(Debug, Args)]
pub(crate) struct LogDumpArgs {
    /// The server's data folder
    folder: PathBuf,
    /// Leave out entries before this position
    #[arg(long, default_value_t = 0)]
    from: u64,
}

/// `stoa snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Prints every znode and session of the newest snapshot, or of the one named; where there are several
    /// partitions, of one after the other
    Dump(SnapshotArgs),
    /// Checks every snapshot, or the one named, down to the digest of its content
    Verify(SnapshotArgs),
}

/// Options of `stoa snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    /// The server's data folder, or one snapshot in it
    path: PathBuf,
}

/// Carries out `stoa log ...`.
pub(crate) fn log(command: &LogCommand) -> Result<()> {
    match command {
        LogCommand::Dump(args) => dump_log(args),
        LogCommand::Lost(args) => lost::of_folder(args),
    }
}

fn dump_log(args: &LogDumpArgs) -> Result<()> {
    let mut disk = read_only(&args.folder)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut printed = Ok(());
    let partitions = partitions_file::read(disk.folder()).map_err(Failure::failed)?;
    let tally = inspect::log(&mut disk, &mut |place, finding| {
        printed = print_finding(&mut out, place, &finding, (args.from, partitions));
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .context(format!("cannot read {}", args.folder.display()))?;
    let printed = printed.and_then(|()| {
        writeln!(out, "{} files, {} batches, {} entries", tally.files, tally.frames, tally.entries)?;
        out.flush()
    });
    until_closed(printed)?;
    if tally.damages > 0 {
        return Err(Failure::failed(format!("the log is damaged in {} places", tally.damages)));
    }
    Ok(())
}

fn print_finding(
    out: &mut impl Write,
    Place { file, offset }: Place<'_>,
    finding: &Finding<'_>,
    (from, partitions): (u64, u8),
) -> io::Result<()> {
    match finding {
        Finding::Entry { position, .. } if *position < from => return Ok(()),
        Finding::Batch { .. } | Finding::Seal { .. } if from > 0 => return Ok(()),
        _ => write!(out, "{file}:{offset}: ")?,
    }
    match finding {
        Finding::Format { folder_id, created_ms } => {
            writeln!(out, "folder {folder_id} created_ms={created_ms}")
        }
        Finding::Segment { bytes, first_frame, positions } => {
            writeln!(out, "segment bytes={bytes} first_frame={first_frame} after={positions:?}")
        }
        Finding::Batch { number, entries, bytes } => {
            writeln!(out, "batch {number} entries={entries} bytes={bytes}")
        }
        Finding::Entry { timeline, position, payload } => {
            writeln!(out, "record timeline={timeline} position={position} bytes={}", payload.len())?;
            print_record(out, payload, partitions)
        }
        Finding::Seal { number } => writeln!(out, "seal {number}"),
        Finding::SegmentEnd { number } => writeln!(out, "end {number}"),
        Finding::TornTail { bytes, what } => {
            writeln!(out, "torn tail, {bytes} bytes ({what}); a start would cut it")
        }
        Finding::Damage { what, resumes_at } => {
            writeln!(out, "DAMAGE: {what}; readable again at {resumes_at:?}")
        }
        Finding::Ahead { bytes } => writeln!(out, "space written ahead, {bytes} bytes"),
        Finding::Leftover => writeln!(out, "not finished; a start would remove it"),
        Finding::Snapshot { .. } | Finding::Chunk { .. } | Finding::SnapshotEnd { .. } => {
            writeln!(out, "part of a snapshot")
        }
    }
}

fn print_record(out: &mut impl Write, payload: &[u8], partitions: u8) -> io::Result<()> {
    let record = match Store::decode(payload.to_vec().into()) {
        Ok(record) => record,
        Err(error) => return writeln!(out, "  unreadable: {error}"),
    };
    if let Some(vote) = record.vote {
        let Vote { term, voted_for, committed } = vote;
        let whom = server_of(voted_for).map_or_else(|| "nobody".to_owned(), |server| server.to_string());
        writeln!(out, "  vote term={term} for={whom} committed={committed}")?;
    }
    if let Some(mark) = &record.snapshot {
        print_mark(out, mark)?;
    }
    if let Some(History { id, since }) = record.history {
        writeln!(out, "  history {id} since={since:#x}")?;
    }
    for entry in &record.entries {
        writeln!(out, "  entry position={} term={}", entry.position, entry.term)?;
        if entry.kind == EntryKind::Change {
            writeln!(out, "    a change of members")?;
            continue;
        }
        if partitions == 1 || entry.payload.is_empty() {
            print_items(out, &entry.payload)?;
            continue;
        }
        for slice in Slices::new(entry.payload.clone()) {
            match slice {
                Ok((partition, position, payload)) => {
                    writeln!(out, "   partition {partition} position={position}")?;
                    print_items(out, &payload)?;
                }
                Err(bad) => writeln!(out, "    unreadable: {bad}")?,
            }
        }
    }
    Ok(())
}

fn print_items(out: &mut impl Write, payload: &[u8]) -> io::Result<()> {
    for item in Items::new(payload) {
        match item {
            Ok(item) => writeln!(out, "    {item}")?,
            Err(corrupt) => writeln!(out, "    unreadable: {corrupt}")?,
        }
    }
    Ok(())
}

fn print_mark(out: &mut impl Write, mark: &Mark) -> io::Result<()> {
    let Mark { position, term, members } = mark;
    let (voters, learners) = (servers_of(&members.voters), servers_of(&members.learners));
    writeln!(out, "  state position={position} term={term} voters={voters:?} learners={learners:?}")
}

/// Carries out `stoa snapshot ...`.
pub(crate) fn snapshot(command: &SnapshotCommand) -> Result<()> {
    match command {
        SnapshotCommand::Dump(args) => {
            let (mut disk, named) = open(&args.path)?;
            let newest = || Ok(sequences(&mut disk, &args.path)?.last().copied());
            let Some(sequence) = named.map_or_else(newest, |named| Ok(Some(named)))? else {
                return Err(no_snapshot(&args.path));
            };
            let loaded = load(&mut disk, sequence)?;
            until_closed(dump(&mut BufWriter::new(io::stdout().lock()), sequence, &loaded))
        }
        SnapshotCommand::Verify(args) => {
            let (mut disk, named) = open(&args.path)?;
            let sequences =
                named.map_or_else(|| sequences(&mut disk, &args.path), |named| Ok(vec![named]))?;
            if sequences.is_empty() {
                return Err(no_snapshot(&args.path));
            }
            let mut damaged = 0;
            for sequence in sequences {
                let line = match load(&mut disk, sequence) {
                    Ok(loaded) => format!("{}: whole, {}", name(sequence), summary(&loaded)),
                    Err(failure) => {
                        damaged += 1;
                        format!("DAMAGED: {failure}")
                    }
                };
                until_closed(writeln!(io::stdout(), "{line}"))?;
            }
            if damaged > 0 { Err(Failure::failed(format!("damaged snapshots: {damaged}"))) } else { Ok(()) }
        }
    }
}

/// A snapshot that was read to its end and found whole.
struct Loaded {
    header: SnapshotHeader,
    mark: Mark,
    /// Of each partition.
    trees: Vec<Tree>,
}

/// Reads a snapshot; the tree that comes of it has the digest that the snapshot promised.
fn load(disk: &mut FileDisk, sequence: u64) -> Result<Loaded> {
    let damaged = |what: &dyn std::fmt::Display| Failure::failed(format!("{}: {what}", name(sequence)));
    let partitions = partitions_file::read(disk.folder()).map_err(Failure::failed)?;
    let mut header = None;
    let mut restore = Restore::new(Options::default(), &[], partitions);
    let mut done: std::result::Result<(), String> = Ok(());
    let mut is_whole = false;
    inspect::snapshots(disk, Some(sequence), &mut |place, finding| {
        done = match finding {
            Finding::Snapshot { header: found, .. } => {
                let (timeline, covered) =
                    found.positions.first().copied().unwrap_or((timeline_of(partitions), 0));
                restore.snapshot_begin(covered);
                header = Some(found.clone());
                if timeline == timeline_of(partitions) {
                    Ok(())
                } else {
                    Err(format!("there is no timeline {timeline}"))
                }
            }
            Finding::Chunk { bytes, .. } => restore.snapshot_chunk(bytes),
            Finding::SnapshotEnd { .. } => {
                is_whole = true;
                restore.snapshot_end()
            }
            Finding::Damage { what, .. } => Err(format!("at byte {}: {what}", place.offset)),
            _ => Ok(()),
        };
        if done.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .context(format!("cannot read {}", name(sequence)))?;
    if let Err(problem) = done {
        return Err(damaged(&problem));
    }
    match header {
        Some(header) if is_whole => {
            let recovered = restore.finish(0).map_err(|error| damaged(&error))?;
            let mark = recovered.first().map(|first| first.restored.base.clone()).unwrap_or_default();
            Ok(Loaded {
                header,
                mark,
                trees: recovered.into_iter().map(|recovered| recovered.tree).collect(),
            })
        }
        Some(_) => Err(damaged(&"it has no end")),
        None => Err(damaged(&"there is no such snapshot")),
    }
}

fn summary(Loaded { header, mark, trees }: &Loaded) -> String {
    let sum = |of: &dyn Fn(&Tree) -> u64| trees.iter().map(of).sum::<u64>();
    format!(
        "created_ms={} covers={:?} position={} term={} zxid=0x{:x} znodes={} sessions={} data_bytes={} digest={:016x}",
        header.created_ms,
        header.positions,
        mark.position,
        mark.term,
        trees.iter().map(Tree::last_zxid).max().unwrap_or(0),
        sum(&|tree| tree.znode_count() as u64),
        sum(&|tree| tree.session_count() as u64),
        sum(&Tree::data_bytes),
        trees.iter().fold(0, |digest, tree| tree.digest().wrapping_add(digest)),
    )
}

fn dump(out: &mut impl Write, sequence: u64, loaded: &Loaded) -> io::Result<()> {
    writeln!(out, "{}: {}", name(sequence), summary(loaded))?;
    for (partition, tree) in loaded.trees.iter().enumerate() {
        if loaded.trees.len() > 1 {
            writeln!(out, "partition {partition} digest={:016x}", tree.digest())?;
        }
        dump_tree(out, tree)?;
    }
    out.flush()
}

fn dump_tree(out: &mut impl Write, tree: &Tree) -> io::Result<()> {
    let mut sessions: Vec<_> = tree.sessions().collect();
    sessions.sort_unstable_by_key(|session| session.id);
    for session in sessions {
        writeln!(out, "session 0x{:x} timeout_ms={}", session.id, session.timeout_ms)?;
    }
    let placed = tree.placed();
    if placed.version() > 0 {
        writeln!(out, "placed version={} exceptions={}", placed.version(), placed.len())?;
    }
    for (path, partition) in placed.iter() {
        writeln!(out, "placed {path:?} partition={partition}")?;
    }
    let mut to_visit = vec!["/".to_owned()];
    while let Some(path) = to_visit.pop() {
        let mut names: Vec<&str> = tree.names_below(&path).collect();
        names.sort_unstable_by(|a, b| b.cmp(a));
        let parent = if path == "/" { "" } else { &path };
        to_visit.extend(names.into_iter().map(|name| format!("{parent}/{name}")));
        // Of those that live on other partitions only the name is here.
        let Some(znode) = tree.get(&path) else { continue };
        let stat = znode.stat();
        write!(
            out,
            "{path} bytes={} version={} cversion={} aversion={} czxid=0x{:x} mzxid=0x{:x} pzxid=0x{:x}",
            stat.data_length, stat.version, stat.cversion, stat.aversion, stat.czxid, stat.mzxid, stat.pzxid,
        )?;
        match znode.kind() {
            ZnodeKind::Persistent => writeln!(out)?,
            ZnodeKind::Ephemeral { session } => writeln!(out, " ephemeral=0x{session:x}")?,
            ZnodeKind::Container => writeln!(out, " container")?,
            ZnodeKind::Ttl { ttl_ms } => writeln!(out, " ttl_ms={ttl_ms}")?,
        }
    }
    Ok(())
}

fn name(sequence: u64) -> String {
    format!("{SNAPSHOT_PREFIX}{sequence:016x}")
}

fn no_snapshot(folder: &Path) -> Failure {
    Failure::failed(format!("{} has no snapshot yet", folder.display()))
}

fn sequences(disk: &mut FileDisk, folder: &Path) -> Result<Vec<u64>> {
    let files = inspect::files(disk).context(format!("cannot read {}", folder.display()))?;
    Ok(files.snapshots.into_iter().map(|(sequence, _)| sequence).collect())
}

/// The folder, and the sequence of the snapshot if `path` is one.
fn open(path: &Path) -> Result<(FileDisk, Option<u64>)> {
    let digits = path.file_name().and_then(|name| name.to_str()?.strip_prefix(SNAPSHOT_PREFIX));
    match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        Some(sequence) if !path.is_dir() => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok((read_only(folder.unwrap_or(Path::new(".")))?, Some(sequence)))
        }
        _ => Ok((read_only(path)?, None)),
    }
}

fn read_only(folder: &Path) -> Result<FileDisk> {
    if folder.is_dir() {
        return Ok(FileDisk::read_only(folder));
    }
    Err(Failure::usage(format!("{} is no folder; expected a server's data folder", folder.display())))
}

/// A reader who has seen enough (`| head`) is no failure.
fn until_closed(printed: io::Result<()>) -> Result<()> {
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("cannot print"),
    }
}
