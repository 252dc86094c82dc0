//! The audit log: who has changed what, in a file of its own.
//!
//! The threads of the partitions hand events over, and a thread of its own writes them: a slow disk holds nobody up
//! unless the settings say so. What is lost, for lack of room in the queue or on the disk, is counted.

mod file;
mod lines;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use stoa_core::AuditEvent;
use stoa_tree::Identity;

use crate::clock;
use crate::complaints::Complaints;
use crate::config::{AuditFull, LogFormat, Settings};
use crate::user::user_name;
use crate::view;

use file::LogFile;
use lines::{json, text};

/// What is written.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The server begins to serve, or could not.
    Start { is_good: bool },
    /// It was told to stop.
    Stop,
    /// Something about a client.
    Client(AuditEvent),
    /// Somebody has asked for a change by admin HTTP; only where the format is JSON.
    Admin(AdminEvent),
    /// Somebody could not be let in for what his TLS handshake has shown; only where the format is JSON.
    Handshake(HandshakeEvent),
}

/// A TLS handshake of a client that was none.
#[derive(Clone, Debug)]
pub(crate) struct HandshakeEvent {
    pub(crate) address: std::net::IpAddr,
    pub(crate) why: String,
}

/// A change that was asked for by admin HTTP.
#[derive(Clone, Debug)]
pub(crate) struct AdminEvent {
    pub(crate) address: std::net::IpAddr,
    pub(crate) users: Vec<Identity>,
    pub(crate) command: &'static str,
    /// The status of the answer.
    pub(crate) status: u16,
}

#[derive(Debug)]
enum Item {
    Event { wall_ms: i64, event: Event },
    End,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
}

/// Where events are handed in. The thread behind it ends with [`AuditLog::finish`].
#[derive(Debug)]
pub(crate) struct AuditLog {
    queue: SyncSender<Item>,
    when_full: AuditFull,
    counts: Arc<Counts>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Events after which the thread writes what it has, whether or not there are more.
const BATCH: usize = 1024;

impl AuditLog {
    /// Opens the file and starts the thread, if the settings want that.
    ///
    /// # Errors
    /// The file cannot be opened: a server that is to keep an audit log does not serve without it.
    pub(crate) fn start(settings: &Settings) -> Result<Option<Self>, String> {
        if !settings.audit {
            return Ok(None);
        }
        let writer = LineWriter::open(settings)?;
        let (queue, items) = sync_channel(settings.audit_queue as usize);
        let counts = Arc::clone(&writer.counts);
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&items));
        let thread = thread.map_err(|error| format!("the audit thread: {error}"))?;
        let when_full = settings.audit_full;
        Ok(Some(Self { queue, when_full, counts, thread: Mutex::new(Some(thread)) }))
    }

    /// Hands an event over. Waits for room, if the settings say so.
    pub(crate) fn tell(&self, event: Event) {
        let item = Item::Event { wall_ms: clock::wall_ms(), event };
        let is_lost = match self.when_full {
            AuditFull::Block => self.queue.send(item).is_err(),
            AuditFull::Drop => {
                matches!(
                    self.queue.try_send(item),
                    Err(TrySendError::Full(_) | TrySendError::Disconnected(_))
                )
            }
        };
        self.counts.dropped.fetch_add(u64::from(is_lost), Ordering::Relaxed);
    }

    /// What was counted.
    pub(crate) fn view(&self) -> view::Audit {
        view::Audit {
            written: self.counts.written.load(Ordering::Relaxed),
            dropped: self.counts.dropped.load(Ordering::Relaxed),
        }
    }

    /// Waits until everything is written that was handed over before.
    pub(crate) fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = self.queue.send(Item::End);
            let _ = thread.join();
        }
    }
}

/// A start that has not come as far as the audit log. That it came to nothing is noted when this is dropped.
pub(crate) struct StartAttempt(Option<Settings>);

impl StartAttempt {
    /// Whoever has this holds the lock of the data folder: else the audit log may be another server's.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(settings.audit.then(|| settings.clone()))
    }

    /// The audit log is there.
    pub(crate) fn succeeded(mut self) {
        self.0 = None;
    }
}

impl Drop for StartAttempt {
    fn drop(&mut self) {
        if let Some(settings) = &self.0
            && let Ok(mut writer) = LineWriter::open(settings)
        {
            writer.take(clock::wall_ms(), &Event::Start { is_good: false });
            writer.write();
        }
    }
}

struct LineWriter {
    file: LogFile,
    format: LogFormat,
    /// Whom the server runs as.
    user: String,
    counts: Arc<Counts>,
    complaints: Complaints,
    lines: Vec<String>,
}

impl LineWriter {
    fn open(settings: &Settings) -> Result<Self, String> {
        let name = settings.audit_file.as_deref().unwrap_or(Path::new("audit.log"));
        let path = settings.data_dir.join(name);
        let file = LogFile::open(path, settings.audit_file_bytes, settings.audit_files_kept);
        Ok(Self {
            file: file.map_err(|why| format!("the audit log {why} (setting audit-file)"))?,
            format: settings.audit_format,
            user: user_name().or_else(|| std::env::var("USER").ok()).unwrap_or_default(),
            counts: Arc::default(),
            complaints: Complaints::new("events for the audit log could not be written"),
            lines: Vec::new(),
        })
    }

    fn run(mut self, items: &Receiver<Item>) {
        while let Ok(first) = items.recv() {
            let mut next = Ok(first);
            loop {
                match next {
                    Ok(Item::Event { wall_ms, event }) => self.take(wall_ms, &event),
                    Ok(Item::End) | Err(TryRecvError::Disconnected) => return self.write(),
                    Err(TryRecvError::Empty) => break,
                }
                if self.lines.len() >= BATCH {
                    break;
                }
                next = items.try_recv();
            }
            self.write();
        }
    }

    fn take(&mut self, wall_ms: i64, event: &Event) {
        match self.format {
            LogFormat::Text => self.lines.extend(text(wall_ms, event, &self.user)),
            LogFormat::Json => self.lines.push(json(wall_ms, event, &self.user)),
        }
    }

    fn write(&mut self) {
        let (written, error) = self.file.append(&self.lines);
        let lost = self.lines.len() - written;
        self.lines.clear();
        self.counts.written.fetch_add(written as u64, Ordering::Relaxed);
        self.counts.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        if let Some(error) = error {
            self.complaints.say(&format!("audit log: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose thread is held up at the first event.
    fn held(when_full: AuditFull) -> (AuditLog, Receiver<Item>) {
        let (queue, items) = sync_channel(2);
        (AuditLog { queue, when_full, counts: Arc::default(), thread: Mutex::new(None) }, items)
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (log, items) = held(AuditFull::Drop);
        for _ in 0..5 {
            log.tell(Event::Stop);
        }
        assert_eq!(log.view(), view::Audit { written: 0, dropped: 3 });
        assert_eq!(items.try_iter().count(), 2);
    }

    #[test]
    fn where_nothing_may_be_lost_whoever_tells_waits() {
        let (log, items) = held(AuditFull::Block);
        std::thread::scope(|scope| {
            let teller = scope.spawn(|| (0..5).for_each(|_| log.tell(Event::Stop)));
            for _ in 0..5 {
                assert!(matches!(items.recv().unwrap(), Item::Event { .. }));
            }
            teller.join().unwrap();
        });
        assert_eq!(log.view().dropped, 0);
    }

    #[test]
    fn everything_is_written_before_the_end_and_files_are_the_owners() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().to_owned();
        let settings = Settings { audit: true, data_dir, ..Settings::default() };
        let log = AuditLog::start(&settings).unwrap().unwrap();
        for _ in 0..3000 {
            log.tell(Event::Stop);
        }
        log.finish();
        let path = folder.path().join("audit.log");
        let lines = std::fs::read_to_string(&path).unwrap();
        assert_eq!(lines.lines().count() as u64, log.view().written);
        assert_eq!(log.view().written + log.view().dropped, 3000);
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap());
        assert_eq!(mode & 0o777, 0o600);
        log.tell(Event::Stop);
        assert_eq!(
            log.view().written + log.view().dropped,
            3001,
            "what comes after the end is lost and counted"
        );
        StartAttempt::new(&settings).succeeded();
        drop(StartAttempt::new(&settings));
        let lines = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
        assert!(lines.ends_with("\toperation=serverStart\tresult=failure\n"), "{lines}");
    }

    #[test]
    fn without_its_file_there_is_no_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let audit_file = Some("none/audit.log".into());
        let data_dir = folder.path().to_owned();
        let settings = Settings { audit: true, audit_file, data_dir, ..Settings::default() };
        let why = AuditLog::start(&settings).unwrap_err();
        assert!(why.contains("none/audit.log") && why.contains("audit-file"), "{why}");
        assert!(AuditLog::start(&Settings { audit: false, ..settings }).unwrap().is_none());
    }
}
