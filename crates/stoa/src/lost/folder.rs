//! `stoa log lost`: read from the folder of a server of the site that was given up, which need not start any more.

use std::ops::ControlFlow;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use stoa_core::{
    Backlog, BacklogWanted, BadBacklog, KeptZxids, LostNotes, LostOperation, LostReader, LostUpdate,
    LostUpdates, LostWanted, SITE_MAX, SiteId,
};
use stoa_group::Store;
use stoa_server::file_disk::FileDisk;
use stoa_server::partitions_file;
use stoa_storage::inspect::{self, Finding};

use super::list::List;
use super::{LostArgs, LostPart, Summary, Update, whole, zxid};
use crate::failure::{Context as _, Failure, Result};
use crate::shell::ShellArgs;

/// No more than so many bytes are held and shown.
const BYTES_MAX: usize = 256 << 20;

/// Options of `stoa log lost`.
#[derive(Debug, Args)]
pub(crate) struct LogLostArgs {
    /// The data folder of a server of the site
    folder: PathBuf,
    /// The others have what it has made up to this zxid (`stoa sites` at a leader of another site); of a site with several
    /// partitions one of each, with commas. Without it what the site was told itself counts, which is written down in its
    /// log
    #[arg(long, value_name = "ZXID", value_parser = zxid, value_delimiter = ',')]
    behind: Vec<i64>,
    /// The number of the site, if what is there of its log does not say it
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=i64::from(SITE_MAX)))]
    made_by: Option<SiteId>,
    #[command(flatten)]
    list: LostArgs,
    #[command(flatten)]
    shell: ShellArgs,
}

/// Lists what is there.
///
/// # Errors
/// Why not, or that something may be missing.
pub(crate) fn run(args: &LogLostArgs) -> Result<()> {
    if !args.folder.is_dir() {
        let folder = args.folder.display();
        return Err(Failure::usage(format!("{folder} is no folder; expected a server's data folder")));
    }
    let partitions = partitions_file::read(&args.folder).map_err(Failure::failed)?;
    let mut disk = FileDisk::read_only(&args.folder);
    let mut notes = LostNotes::default();
    read(&mut disk, &mut |entry| {
        if let Found::Entry { position, entry, .. } = entry {
            notes.entry(position, entry, partitions);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let Some(site) = args.made_by.or(notes.site) else {
        return Err(Failure::failed(
            "the log has no update of a site: say the number of the site with --made-by, if it is one",
        ));
    };
    let (kept, until) = match notes.kept {
        _ if !args.behind.is_empty() => (args.behind.iter().copied().collect(), u64::MAX),
        // What follows may be of another life of the site.
        Some((kept, told_at)) => (kept, told_at),
        None => {
            return Err(Failure::usage(format!(
                "the log does not say what others have of site {site}: `stoa sites` at the leader of another site does, \
                 and --behind takes it"
            )));
        }
    };
    let lost = lost(&mut disk, args, (site, partitions, kept.clone()), until)?;
    let mut list = List::new(&args.list, &args.shell)?;
    let LostUpdates { updates, count, are_more, is_all } = lost;
    list.show(&updates.into_iter().map(Update::from).collect::<Vec<_>>())?;
    let summary = Summary { kept, count, are_more, is_all };
    list.end(&format!("site {site}"), &summary)?;
    whole(&summary)
}

fn lost(
    disk: &mut FileDisk,
    args: &LogLostArgs,
    (site, partitions, kept): (SiteId, u8, KeptZxids),
    until: u64,
) -> Result<LostUpdates> {
    let mut reader = LostReader::new(LostWanted {
        site,
        partitions,
        kept,
        after_zxid: args.list.after,
        most: usize::try_from(args.list.limit).unwrap_or(usize::MAX),
        bytes_most: BYTES_MAX,
        with_data: args.list.data,
    });
    read(disk, &mut |found| {
        match found {
            Found::Gap => reader.gap(),
            Found::Entry { position, .. } if position >= until => return Ok(ControlFlow::Break(())),
            Found::Entry { position, entry, is_committed } => {
                let read = reader.entry(position, entry, (0, is_committed));
                read.context(format!("the entry at position {position} is damaged"))?;
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(reader.end())
}

/// What is found in the log.
enum Found<'a> {
    /// An entry; whether it is committed is not known of the last ones.
    Entry { position: u64, entry: &'a Bytes, is_committed: bool },
    /// The state was taken over from another server here, so something is missing.
    Gap,
}

type Visit<'a> = dyn FnMut(Found<'_>) -> Result<ControlFlow<()>> + 'a;

/// Goes through the entries of the log, but for those that are void.
fn read(disk: &mut FileDisk, visit: &mut Visit<'_>) -> Result<()> {
    let begin = |since| Backlog::new(BacklogWanted { site: 0, since, upto: u64::MAX, is_looking: true });
    let (mut backlog, mut entries, mut ended, mut failed) = (begin(0), Vec::new(), false, Ok(()));
    let mut tell = |entries: &mut Vec<(u64, Bytes)>, is_committed| -> Result<bool> {
        for (position, entry) in entries.drain(..) {
            let is_gap = (position, entry.len()) == (GAP.0, 0);
            let entry = Found::Entry { position, entry: &entry, is_committed };
            if visit(if is_gap { Found::Gap } else { entry })?.is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let walked = inspect::log(disk, &mut |place, finding| {
        let payload = match finding {
            Finding::Entry { payload, .. } => payload,
            Finding::Damage { what, .. } => {
                failed = Err(Failure::failed(format!("{}:{}: {what}", place.file, place.offset)));
                return ControlFlow::Break(());
            }
            _ => return ControlFlow::Continue(()),
        };
        let record = Bytes::copy_from_slice(payload);
        let mut read = backlog.record(record.clone(), &mut entries);
        if let (Err(BadBacklog::Missing(_)), Some(position)) = (read, taken_over(&record)) {
            entries.push(GAP);
            backlog = begin(position);
            read = backlog.record(record, &mut entries);
        }
        let told = read.map_err(|why| Failure::failed(format!("{}:{}: {why}", place.file, place.offset)));
        match told.and_then(|()| tell(&mut entries, true)) {
            Ok(true) => ControlFlow::Continue(()),
            Ok(false) => {
                ended = true;
                ControlFlow::Break(())
            }
            Err(failure) => {
                failed = Err(failure);
                ControlFlow::Break(())
            }
        }
    });
    walked.context("the log cannot be read")?;
    failed?;
    if !ended {
        entries.extend(backlog.rest());
        tell(&mut entries, false)?;
    }
    Ok(())
}

/// The position of the state that was taken over from another server with a record.
fn taken_over(record: &Bytes) -> Option<u64> {
    Some(Store::decode(record.clone()).ok()?.snapshot?.position)
}

/// Stands among entries for a gap: no entry has this position.
const GAP: (u64, Bytes) = (0, Bytes::new());

impl From<LostUpdate> for Update {
    fn from(of: LostUpdate) -> Self {
        let LostUpdate { zxid, time_ms, session, is_multi, is_committed, operations, .. } = of;
        let operations = operations.into_iter().map(LostPart::from).collect();
        Self { zxid, time_ms, session, is_multi, is_committed, operations }
    }
}

impl From<LostOperation> for LostPart {
    fn from(of: LostOperation) -> Self {
        let LostOperation { name, path, bytes, data } = of;
        Self { name: name.to_owned(), path, bytes, data }
    }
}
