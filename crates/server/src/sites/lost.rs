//! What this site has made and the others do not have, once they have given it up: read from the log's files, by a thread
//! of its own.

use std::ops::ControlFlow;
use std::rc::Rc;

use bytes::Bytes;
use stoa_core::{Backlog, BacklogWanted, LostReader, LostUpdates, LostWanted};
use stoa_storage::inspect::{self, Finding};
use tokio::sync::oneshot;

use super::Sites;
use crate::driver::Driver;
use crate::file_disk::FileDisk;
use crate::priority::step_back;
use crate::view::{LostAsked, LostView};

/// No more updates are told at once, ...
const UPDATES_MAX: usize = 10_000;
/// ... nor much more than so many bytes of them.
const BYTES_MAX: usize = 4 << 20;

/// What the answer is sent to.
type Reply = oneshot::Sender<Result<LostView, String>>;

/// What has to be read.
struct Wanted {
    lost: LostWanted,
    /// Where the log begins that concerns others, and where it ends.
    begun: u64,
    upto: u64,
}

impl Sites {
    /// Tells what is lost, as soon as it is read.
    pub(crate) fn tell_lost(&self, asked: LostAsked, driver: &Driver, reply: Reply) {
        let wanted = match self.wanted(asked, driver) {
            Ok(wanted) => wanted,
            Err(why) => {
                let _ = reply.send(Err(why));
                return;
            }
        };
        let (site, kept) = (self.own.clone(), wanted.lost.kept.clone());
        let told = move |lost: Result<LostUpdates, String>| {
            // Who has asked may have gone.
            let _ = reply.send(lost.map(|lost| LostView { site, kept, lost }));
        };
        if let Err(error) = begin(self.disk.another(), wanted, told) {
            // The reply has gone with the thread: whoever has asked hears that there is no answer.
            tracing::warn!("the thread that reads the log for what is lost cannot be started: {error}");
        }
    }

    /// Counts what is lost, once the others have given this site up and have said what they have of it.
    pub(super) fn tend_lost(self: &Rc<Self>, driver: &Driver) {
        if !driver.server.borrow().is_given_up() {
            self.lost_count.set(None);
            self.is_counting_lost.set(false);
            return;
        }
        if self.is_counting_lost.get() || self.lost_count.get().is_some() {
            return;
        }
        let asked = LostAsked { after_zxid: 0, most: 0, with_data: false };
        let Ok(wanted) = self.wanted(asked, driver) else { return };
        self.is_counting_lost.set(true);
        let kept = wanted.lost.kept.clone();
        let (reply, answer) = oneshot::channel();
        let told = move |lost| drop(reply.send(lost));
        if begin(self.disk.another(), wanted, told).is_err() {
            return;
        }
        let sites = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match answer.await {
                Ok(Ok(lost)) => {
                    tracing::warn!(
                        "the other sites have what {} has made up to zxid {kept}; {} updates behind that are \
                         here alone, and `stoa sites lost` lists them",
                        sites.own,
                        lost.count
                    );
                    sites.lost_count.set(Some(lost.count));
                    sites.is_counting_lost.set(false);
                }
                Ok(Err(why)) => sites.complaints.say(&format!(
                    "what {} alone has cannot be counted: {why}. Another server of it may have more of the log",
                    sites.own
                )),
                Err(_) => {}
            }
        });
    }

    /// # Errors
    /// Why nothing can be told.
    fn wanted(&self, asked: LostAsked, driver: &Driver) -> Result<Wanted, String> {
        let server = driver.server.borrow();
        let known = server.site_status().ok_or("this server's site has not joined the others yet")?;
        if !known.is_given_up() {
            return Err(format!(
                "{} is one of the sites: nothing of it is lost. What it had before it joined anew, as far as the log still \
                 reaches back: stoa log lost",
                self.own
            ));
        }
        let kept = server.tree().streams().kept().cloned().ok_or_else(|| {
            format!(
                "none of the other sites has told {} yet what they have of it: it asks them every two seconds. `stoa log \
                 lost --behind` does without",
                self.own
            )
        })?;
        let LostAsked { after_zxid, most, with_data } = asked;
        let (most, bytes_most) = (most.min(UPDATES_MAX), BYTES_MAX);
        let (site, partitions) = (known.own, server.placement().partitions());
        let lost = LostWanted { site, partitions, kept, after_zxid, most, bytes_most, with_data };
        Ok(Wanted { lost, begun: server.tree().streams().begun(), upto: known.applied })
    }
}

/// Has a thread read it and hand it over.
fn begin(
    disk: FileDisk,
    wanted: Wanted,
    told: impl FnOnce(Result<LostUpdates, String>) + Send + 'static,
) -> std::io::Result<()> {
    let reading = std::thread::Builder::new().name("lost-updates".into());
    let reading = reading.spawn(move || {
        step_back();
        told(read(disk, &wanted));
    });
    reading.map(drop)
}

fn read(mut disk: FileDisk, wanted: &Wanted) -> Result<LostUpdates, String> {
    let Wanted { ref lost, begun, upto } = *wanted;
    let since = begun.saturating_sub(1);
    let mut backlog = Backlog::new(BacklogWanted { site: lost.site, since, upto, is_looking: true });
    let (mut reader, mut entries, mut failed) = (LostReader::new(lost.clone()), Vec::new(), None);
    let mut take = |entries: &mut Vec<(u64, Bytes)>| {
        let damaged = |error| format!("the log is damaged: {error}");
        let mut all = entries.drain(..);
        all.try_for_each(|(position, entry)| reader.entry(position, &entry, (begun, true)).map_err(damaged))
    };
    let walked = inspect::log(&mut disk, &mut |_, finding| {
        let Finding::Entry { payload, .. } = finding else { return ControlFlow::Continue(()) };
        let read = backlog.record(Bytes::copy_from_slice(payload), &mut entries);
        match read.map_err(|why| why.to_string()).and_then(|()| take(&mut entries)) {
            Ok(()) if backlog.is_done() => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(why) => {
                failed = Some(why);
                ControlFlow::Break(())
            }
        }
    });
    walked.map_err(|error| format!("the log cannot be read: {error}"))?;
    if let Some(why) = failed {
        return Err(why);
    }
    backlog.end(&mut entries).map_err(|why| why.to_string())?;
    take(&mut entries)?;
    Ok(reader.end())
}
