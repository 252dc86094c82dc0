//! What a site lacks that is not kept in memory any more, read from the log's files.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use stoa_core::{Backlog, BacklogWanted};
use stoa_storage::inspect::{self, Finding};
use tokio::sync::mpsc;

use crate::driver::Driver;
use crate::file_disk::FileDisk;
use crate::priority::step_back;

/// About so many bytes of entries are handed over at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks on their way from the disk.
const CHUNKS_AHEAD: usize = 2;

type Entries = Vec<(u64, Bytes)>;

/// Hands in what a site lacks behind a position, up to another one.
///
/// # Errors
/// Why that cannot be: the log does not reach back so far any more.
pub(super) async fn hand_in(driver: Rc<Driver>, disk: FileDisk, wanted: BacklogWanted) -> Result<(), String> {
    let BacklogWanted { site, mut since, upto, .. } = wanted;
    let (chunks_in, mut chunks) = mpsc::channel(CHUNKS_AHEAD);
    let reading = std::thread::Builder::new().name("site-backlog".into());
    let reading = reading.spawn(move || {
        step_back();
        if let Err(why) = read(disk, wanted, &chunks_in) {
            let _ = chunks_in.blocking_send(Err(why));
        }
    });
    reading.map_err(|error| format!("the thread that reads the log cannot be started: {error}"))?;
    while let Some(chunk) = chunks.recv().await {
        let entries: Entries = chunk?;
        while !driver.server.borrow().has_room_for_site(site) {
            if !driver.server.borrow().leads() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let now = driver.now();
        let is_wanted = driver.server.borrow_mut().site_backlog(site, since, &entries, now);
        driver.after_input();
        if !is_wanted {
            return Ok(());
        }
        since = entries.last().map_or(since, |(position, _)| *position);
    }
    let now = driver.now();
    driver.server.borrow_mut().site_backlog_ended(site, upto, now);
    driver.after_input();
    Ok(())
}

fn read(
    mut disk: FileDisk,
    wanted: BacklogWanted,
    chunks: &mpsc::Sender<Result<Entries, String>>,
) -> Result<(), String> {
    let mut backlog = Backlog::new(wanted);
    let (mut entries, mut bytes, mut failed) = (Entries::new(), 0, None);
    let walked = inspect::log(&mut disk, &mut |_, finding| {
        let Finding::Entry { payload, .. } = finding else { return ControlFlow::Continue(()) };
        let before = entries.len();
        if let Err(why) = backlog.record(Bytes::copy_from_slice(payload), &mut entries) {
            failed = Some(why.to_string());
            return ControlFlow::Break(());
        }
        bytes += entries[before..].iter().map(|(_, entry)| entry.len()).sum::<usize>();
        let is_heard = bytes < CHUNK_BYTES || {
            bytes = 0;
            chunks.blocking_send(Ok(std::mem::take(&mut entries))).is_ok()
        };
        if is_heard && !backlog.is_done() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    walked.map_err(|error| format!("the log cannot be read: {error}"))?;
    if let Some(why) = failed {
        return Err(why);
    }
    if chunks.is_closed() {
        return Ok(());
    }
    backlog.end(&mut entries).map_err(|why| why.to_string())?;
    // Who listens may have gone.
    let _ = chunks.blocking_send(Ok(entries));
    Ok(())
}
