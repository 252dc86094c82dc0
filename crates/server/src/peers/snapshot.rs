//! Snapshots between servers: a connection each, its file read and written by a thread of its own.
//!
//! Both threads hand over through short queues, so that neither disk nor network waits for the other
//! for long, and no more than a few chunks are in memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot};
use tokio::time::timeout;

use super::frame::{self, FrameKind};
use super::hello::printable;
use super::stream::Stream;
use crate::priority::step_back;
use crate::progress::Progress;

/// Names of snapshots that come, and the extension of one of which something is missing.
const PREFIX: &str = "incoming-";
const PARTIAL: &str = "part";
/// The most that one chunk carries.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// The longest header.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;
/// The longest frame: a chunk and its offset.
const FRAME_BYTES_MAX: usize = 8 + CHUNK_BYTES_MAX;
/// Chunks on their way between the network and a thread.
const QUEUE_CHUNKS: usize = 2;
/// Synced this often, so that the log's syncs need not wait behind gigabytes.
const SYNC_BYTES: u64 = 64 << 20;
/// A side that has nothing to say gives a sign of life this often.
const PING: Duration = Duration::from_secs(1);
/// Without a byte for so long the other side is gone.
const SILENCE: Duration = Duration::from_secs(3);
/// Without a piece of the file sent, or confirmed at the end, for so long the other side, or a disk, is taken to stand still.
const STANDSTILL: Duration = Duration::from_secs(60);
/// How long a side that is done waits for the other to have read that.
const LINGER: Duration = Duration::from_secs(2);

/// A snapshot of which a part is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Partial {
    header: Bytes,
    len: u64,
    /// Up to here it is good.
    good: u64,
}

/// What has come of one peer's snapshot. Whoever writes the file holds this; a thread that is slow to
/// end keeps the next transfer waiting, not sharing.
pub(super) type Place = Arc<Mutex<Option<Partial>>>;

/// A snapshot that is there wholly and durable.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) header: Bytes,
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
}

/// The name under which a whole snapshot of a peer is found. Snapshots are the first partition's; what comes on a
/// connection of another one is of no use, and out of the way.
pub(super) fn whole_name(from: u64, partition: u8) -> String {
    match partition {
        0 => format!("{PREFIX}{from}"),
        _ => format!("{PREFIX}{from}-{partition}"),
    }
}

/// The name of one of which something is missing.
fn partial_path(whole: &Path) -> PathBuf {
    whole.with_extension(PARTIAL)
}

/// Removes what an earlier process has left: what is good of it is not known any more.
pub(super) fn clean(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(is_incoming) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_incoming(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let (numbers, extension) = rest.split_once('.').unwrap_or((rest, PARTIAL));
    let (from, partition) = numbers.split_once('-').unwrap_or((numbers, "0"));
    extension == PARTIAL && from.parse::<u64>().is_ok() && partition.parse::<u8>().is_ok()
}

/// Gives up what has come of a peer's snapshot, unless it is being received.
pub(super) fn forget(whole: &Path, place: &Place) {
    if let Ok(place) = Arc::clone(place).try_lock_owned()
        && place.is_some()
    {
        let path = partial_path(whole);
        // Without a thread the file stays until the next start.
        let _ = thread("snapshot-remove", move || remove(&path, place));
    }
}

/// Gives up what has come of a peer's snapshot, once whoever still writes it has ended.
pub(super) fn discard(whole: &Path, place: &Place) {
    let (path, place) = (partial_path(whole), Arc::clone(place));
    let _ = thread("snapshot-remove", move || remove(&path, place.blocking_lock_owned()));
}

/// The place is held until the file is gone: the next one has the same name.
fn remove(path: &Path, mut place: OwnedMutexGuard<Option<Partial>>) {
    if place.take().is_some() {
        let _ = fs::remove_file(path);
    }
}

/// Frames of a snapshot's connection, as they are read.
struct Frames<R> {
    reader: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    fn new(reader: R) -> Self {
        Self { reader, buffer: BytesMut::new() }
    }

    /// The next frame that is more than a sign of life.
    async fn next(&mut self) -> Result<(FrameKind, Bytes), String> {
        loop {
            match frame::take(&mut self.buffer, FRAME_BYTES_MAX) {
                Ok(Some((FrameKind::Ping, _))) => {}
                Ok(Some((FrameKind::Failed, why))) => {
                    return Err(format!("the receiver gave up: {}", printable(&why)));
                }
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => match timeout(SILENCE, self.reader.read_buf(&mut self.buffer)).await {
                    Ok(Ok(0)) => return Err("the peer has closed the connection".into()),
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Err(broke(&error)),
                    Err(_) => {
                        return Err(format!("nothing was heard of the peer for {} s", SILENCE.as_secs()));
                    }
                },
                Err(error) => return Err(format!("it sent {error}")),
            }
        }
    }

    async fn expect(&mut self, expected: FrameKind) -> Result<Bytes, String> {
        match self.next().await? {
            (kind, payload) if kind == expected => Ok(payload),
            (kind, _) => Err(format!("it sent {kind:?} instead of {expected:?}")),
        }
    }
}

fn broke(error: &io::Error) -> String {
    format!("the connection broke: {error}")
}

async fn write<W: AsyncWrite + Unpin>(writer: &mut W, frame: &[u8]) -> Result<(), String> {
    let written = async {
        writer.write_all(frame).await?;
        writer.flush().await
    };
    written.await.map_err(|error| broke(&error))
}

/// Waits for something slow, with signs of life to the other side.
async fn alive<W, F>(writer: &mut W, slow: F) -> Result<F::Output, String>
where
    W: AsyncWrite + Unpin,
    F: Future,
{
    let mut slow = std::pin::pin!(slow);
    loop {
        match timeout(PING, &mut slow).await {
            Ok(output) => return Ok(output),
            Err(_) => write(writer, &frame::encode(FrameKind::Ping, &[])).await?,
        }
    }
}

/// Gives up what does not come to an end.
async fn moving<F: Future>(slow: F) -> Result<F::Output, String> {
    let standstill = |_| format!("nothing moved for {} s", STANDSTILL.as_secs());
    timeout(STANDSTILL, slow).await.map_err(standstill)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let started = std::thread::Builder::new().name(name.into()).spawn(move || {
        step_back();
        work();
    });
    started.map(|_| ()).map_err(|error| format!("its thread cannot be started: {error}"))
}

/// Sends a file; returns its length when the receiver has it durably.
pub(super) async fn send(stream: Stream, header: &[u8], file: PathBuf) -> Result<u64, String> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut frames = Frames::new(reader);
    let (len_in, len) = oneshot::channel();
    let (resume, resume_at) = oneshot::channel();
    let (chunks_in, mut chunks) = mpsc::channel(QUEUE_CHUNKS);
    thread("snapshot-send", move || read_chunks(&file, len_in, resume_at, &chunks_in))?;
    let gone = || "its thread has failed".to_owned();
    let len = alive(&mut writer, len).await?.map_err(|_| gone())??;
    write(&mut writer, &frame::encode(FrameKind::Begin, &[&len.to_le_bytes(), header])).await?;
    let at = frames.expect(FrameKind::Resume).await?;
    let at = at.as_ref().try_into().map(u64::from_le_bytes).ok().filter(|at| *at <= len);
    let at = at.ok_or("it wants the snapshot from a place that is not in it")?;
    resume.send(at).map_err(|_| gone())?;
    let write = async {
        loop {
            match moving(alive(&mut writer, chunks.recv())).await?? {
                Some(Ok(frame)) => moving(write(&mut writer, &frame)).await??,
                Some(Err(error)) => return Err(error),
                None => break,
            }
        }
        write(&mut writer, &frame::encode(FrameKind::End, &[])).await?;
        moving(alive(&mut writer, std::future::pending::<()>())).await?
    };
    let mut done = std::pin::pin!(frames.expect(FrameKind::Done));
    tokio::select! {
        biased;
        done = &mut done => done.map(|_| len),
        Err(error) = write => match timeout(LINGER, done).await {
            // A receiver that gives up says why before it closes.
            Ok(Err(better)) => Err(better),
            _ => Err(error),
        },
    }
}

/// Reads a file into frames, from where the receiver wants it.
fn read_chunks(
    path: &Path,
    len_in: oneshot::Sender<Result<u64, String>>,
    resume_at: oneshot::Receiver<u64>,
    chunks: &mpsc::Sender<Result<Bytes, String>>,
) {
    let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (len, mut file) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ = len_in.send(Err(failed(error)));
            return;
        }
    };
    let _ = len_in.send(Ok(len));
    // Without an answer there is nobody to send to.
    let Ok(mut at) = resume_at.blocking_recv() else { return };
    let mut read = |at: u64| {
        let size = usize::try_from(len - at).unwrap_or(usize::MAX).min(CHUNK_BYTES_MAX);
        let mut chunk = vec![0; size];
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        file.read_exact(&mut chunk).map_err(failed)?;
        Ok::<_, String>(chunk)
    };
    while at < len {
        let result = read(at).map(|chunk| {
            let frame = frame::encode(FrameKind::Chunk, &[&at.to_le_bytes(), &chunk]).freeze();
            at += chunk.len() as u64;
            frame
        });
        let last = result.is_err();
        if chunks.blocking_send(result).is_err() || last {
            return;
        }
    }
}

/// Receives a file under this name, and reports it or why it did not come. An interruption leaves what
/// was good for the next time.
pub(super) async fn receive(
    stream: Stream,
    from: &str,
    whole: PathBuf,
    place: Place,
    report: impl FnOnce(Result<Arrival, String>),
) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut frames = Frames::new(reader);
    let result = receive_parts(&mut frames, &mut writer, from, whole, place).await;
    let answer = match &result {
        Ok(_) => frame::encode(FrameKind::Done, &[]),
        Err(why) => frame::encode(FrameKind::Failed, &[why.as_bytes()]),
    };
    report(result);
    // A socket that is closed with something unread is reset, and the reset may overtake our answer:
    // so the sender is the one to close first.
    let linger = async {
        if write(&mut writer, &answer).await.is_ok() {
            let _ = writer.shutdown().await;
            let mut unread = vec![0; 64 << 10];
            while frames.reader.read(&mut unread).await.is_ok_and(|len| len > 0) {}
        }
    };
    let _ = timeout(LINGER, linger).await;
}

async fn receive_parts<R, W>(
    frames: &mut Frames<R>,
    writer: &mut W,
    from: &str,
    whole: PathBuf,
    place: Place,
) -> Result<Arrival, String>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let begin = frames.expect(FrameKind::Begin).await?;
    let len = begin.first_chunk().copied().map(u64::from_le_bytes).ok_or("its offer is cut short")?;
    let header = Bytes::copy_from_slice(&begin[8..]);
    if header.len() > HEADER_BYTES_MAX {
        return Err(format!("the snapshot's header is longer than {HEADER_BYTES_MAX} bytes"));
    }
    let mut place = alive(writer, place.lock_owned()).await?;
    if !place.as_ref().is_some_and(|partial| partial.header == header && partial.len == len) {
        *place = Some(Partial { header: header.clone(), len, good: 0 });
    }
    let mut at = place.as_ref().map_or(0, |partial| partial.good);
    if at > 0 {
        tracing::info!("the snapshot of {from} goes on at byte {at} of {len}");
    }
    let (chunks, chunks_out) = mpsc::channel(QUEUE_CHUNKS);
    let (result_in, mut result) = oneshot::channel();
    let target = Target { whole, place };
    thread("snapshot-receive", move || {
        let _ = result_in.send(target.write(chunks_out));
    })?;
    write(writer, &frame::encode(FrameKind::Resume, &[&at.to_le_bytes()])).await?;
    let mut progress = Progress::new("snapshot");
    let step = format!("that of {from} is received");
    while at < len {
        let chunk = alive_frame(frames, writer, FrameKind::Chunk).await?;
        let (offset, bytes) = chunk.split_first_chunk().ok_or("a chunk is cut short")?;
        if u64::from_le_bytes(*offset) != at || bytes.is_empty() || bytes.len() as u64 > len - at {
            return Err(format!("a chunk does not follow on byte {at} of {len}"));
        }
        at += bytes.len() as u64;
        if alive(writer, chunks.send(Piece::Chunk(chunk.slice(8..)))).await?.is_err() {
            break;
        }
        progress.show(at, len, &step);
    }
    // The thread may have failed, and then says why.
    if at == len && !chunks.is_closed() {
        alive_frame(frames, writer, FrameKind::End).await?;
        let _ = alive(writer, chunks.send(Piece::All)).await?;
    }
    progress.finish();
    let file = alive(writer, &mut result).await?.map_err(|_| "its thread has failed")??;
    Ok(Arrival { header, file, bytes: len })
}

async fn alive_frame<R, W>(frames: &mut Frames<R>, writer: &mut W, kind: FrameKind) -> Result<Bytes, String>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    alive(writer, frames.expect(kind)).await?
}

/// What the writing thread is given.
enum Piece {
    Chunk(Bytes),
    /// There is no more.
    All,
}

/// Where a snapshot's bytes go.
struct Target {
    whole: PathBuf,
    place: OwnedMutexGuard<Option<Partial>>,
}

impl Target {
    /// Writes chunks until they end, and makes them durable if they are all.
    fn write(mut self, mut chunks: mpsc::Receiver<Piece>) -> Result<PathBuf, String> {
        let path = partial_path(&self.whole);
        match self.write_to(&path, &mut chunks) {
            Ok(file) => Ok(file),
            Err(Unfinished::Interrupted) => Err("the snapshot was interrupted".into()),
            Err(Unfinished::Failed(error)) => {
                // Nobody knows what is good now, and on a full disk the room is needed.
                *self.place = None;
                let _ = fs::remove_file(&path);
                Err(format!("cannot write {}: {error}", path.display()))
            }
        }
    }

    fn write_to(&mut self, path: &Path, chunks: &mut mpsc::Receiver<Piece>) -> Result<PathBuf, Unfinished> {
        let Some(partial) = self.place.as_mut() else { return Err(Unfinished::Interrupted) };
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        // What is not known to be good goes.
        file.set_len(partial.good)?;
        file.seek(SeekFrom::Start(partial.good))?;
        let mut unsynced = 0;
        while let Piece::Chunk(chunk) = chunks.blocking_recv().ok_or(Unfinished::Interrupted)? {
            file.write_all(&chunk)?;
            partial.good += chunk.len() as u64;
            unsynced += chunk.len() as u64;
            if unsynced >= SYNC_BYTES {
                file.sync_data()?;
                unsynced = 0;
            }
        }
        file.sync_all()?;
        fs::rename(path, &self.whole)?;
        if let Some(folder) = self.whole.parent() {
            File::open(folder)?.sync_all()?;
        }
        *self.place = None;
        Ok(self.whole.clone())
    }
}

/// Why a snapshot's file is not finished.
enum Unfinished {
    Interrupted,
    Failed(io::Error),
}

impl From<io::Error> for Unfinished {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}
