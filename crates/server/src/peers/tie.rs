//! One tie: a connection between a reader and its parent, once both know each other.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use stoa_core::Pieces;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::frame::{self, FrameKind, MESSAGE_BYTES_MAX};
use super::hello::printable;
use super::link::Outbox;
use super::listing::{LIST_BYTES_MAX, ReaderList};
use super::reader_hello::{ReaderHello, Ticket};
use super::stream::Stream;
use super::ties::{Mouth, Saying, Ties, Word};

/// How often a side says that it is there.
const PING: Duration = Duration::from_secs(1);
/// Without a byte for so long the other side is gone.
const SILENCE: Duration = Duration::from_secs(3);
/// How long a side that ends the tie tries to say why.
const LINGER: Duration = Duration::from_millis(500);
/// So much of the other side is read and not given back; a longer word waits until there is nothing else.
const INBOX_BYTES_MAX: usize = 16 << 20;
/// The longest frame: a word of the longest kind, and its partition.
const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1;
/// So much is written at a time.
const WRITE_BYTES: usize = 1 << 20;
/// Room made for one read.
const READ_BYTES: usize = 64 << 10;

const OF_NO_PARTITION: &str = "it has sent a word of no partition";

/// What has come on a tie.
pub(super) enum Heard {
    Word(Word),
    /// A snapshot can be fetched by who shows this.
    Offer(Ticket),
    /// Who is below the other side.
    List(ReaderList),
}

/// What a frame on a tie says.
enum ReaderFrame {
    Ping,
    /// Something of this partition.
    Word(u8, Bytes),
    Offer(Ticket),
    List(ReaderList),
}

fn read_frame(kind: FrameKind, mut payload: Bytes) -> Result<ReaderFrame, String> {
    match kind {
        FrameKind::Message => {
            let partition = payload.first().copied().ok_or(OF_NO_PARTITION)?;
            payload.advance(1);
            Ok(ReaderFrame::Word(partition, payload))
        }
        FrameKind::Ping => Ok(ReaderFrame::Ping),
        FrameKind::Begin => {
            let ticket = payload.as_ref().try_into().map_err(|_| "its offer is cut short")?;
            Ok(ReaderFrame::Offer(ticket))
        }
        FrameKind::Listing => {
            let list = Some(&payload).filter(|payload| payload.len() <= LIST_BYTES_MAX);
            let list = list.and_then(|payload| ReaderList::decode(payload));
            list.map(ReaderFrame::List).ok_or_else(|| "its list of readers cannot be read".to_owned())
        }
        FrameKind::Failed => Err(format!("the other side has ended it: {}", printable(&payload))),
        other => Err(format!("it has sent {other:?} where that has no meaning")),
    }
}

/// Carries what both sides say, until one of them is gone. Returns why it has ended.
pub(super) async fn run(
    stream: Stream,
    (ties, mouth): (&Ties, &Mouth),
    said: UnboundedReceiver<Saying>,
    hear: impl FnMut(Heard),
) -> String {
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        Err(why) = read(reader, (ties, mouth), hear) => why,
        Err(why) = write(writer, mouth, said) => why,
        why = cut(mouth) => why,
    }
}

/// When the other side takes nothing any more, there is nothing to wait for.
async fn cut(mouth: &Mouth) -> String {
    let why = mouth.ended().await;
    sleep(LINGER).await;
    why
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    (ties, mouth): (&Ties, &Mouth),
    mut hear: impl FnMut(Heard),
) -> Result<(), String> {
    let mut buffer = BytesMut::new();
    let room = Arc::new(Semaphore::new(INBOX_BYTES_MAX));
    loop {
        while let Some((kind, payload)) =
            frame::take(&mut buffer, FRAME_BYTES_MAX).map_err(|error| format!("it has sent {error}"))?
        {
            let len = payload.len();
            match read_frame(kind, payload)? {
                ReaderFrame::Ping => {}
                ReaderFrame::Offer(ticket) => hear(Heard::Offer(ticket)),
                ReaderFrame::List(list) => hear(Heard::List(list)),
                ReaderFrame::Word(partition, message) if ties.has_partition(partition) => {
                    if len > READ_BYTES {
                        // A buffer that had to grow goes with its message.
                        buffer = BytesMut::from(&buffer[..]);
                    }
                    let room = make_room(&room, len).await?;
                    hear(Heard::Word(Word { partition, message, room }));
                }
                ReaderFrame::Word(..) => return Err(OF_NO_PARTITION.to_owned()),
            }
        }
        if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
            buffer.reserve(READ_BYTES);
        }
        match timeout(SILENCE, reader.read_buf(&mut buffer)).await {
            Ok(Ok(0)) => return Err("the other side has closed the connection".to_owned()),
            Ok(Ok(len)) => _ = mouth.bytes_in.fetch_add(len as u64, Ordering::Relaxed),
            Ok(Err(error)) => return Err(format!("the connection broke: {error}")),
            Err(_) => return Err(format!("nothing was heard of the other side for {} s", SILENCE.as_secs())),
        }
    }
}

/// Reads bytes as the hello of a reader, or of its parent, and as frames of their connection. For a fuzzer.
pub fn check_reader_frames(bytes: &[u8]) {
    let _ = ReaderHello::parse(bytes.to_vec());
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some((kind, payload))) = frame::take(&mut buffer, FRAME_BYTES_MAX) {
        match kind {
            FrameKind::Hello => drop(ReaderHello::parse(payload.to_vec())),
            kind => drop(read_frame(kind, payload)),
        }
    }
}

async fn make_room(room: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, String> {
    let bytes = u32::try_from(bytes.min(INBOX_BYTES_MAX)).unwrap_or(u32::MAX);
    Arc::clone(room).acquire_many_owned(bytes).await.map_err(|_| "the server stops".to_owned())
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mouth: &Mouth,
    mut said: UnboundedReceiver<Saying>,
) -> Result<(), String> {
    let mut outbox = Outbox::default();
    let mut ping_at = Instant::now() + PING;
    loop {
        let first = tokio::select! {
            biased;
            first = timeout_at(ping_at, said.recv()) => first,
            why = mouth.ended() => {
                outbox.push(FrameKind::Failed, Pieces::from(Bytes::copy_from_slice(why.as_bytes())));
                flush(&mut writer, &mut outbox, mouth).await?;
                let _ = writer.shutdown().await;
                return Err(why);
            }
        };
        let mut words = 0;
        match first {
            Ok(Some(first)) => words = gather(first, &mut said, &mut outbox),
            Ok(None) => return Err("nobody has anything to say any more".to_owned()),
            Err(_) => outbox.push(FrameKind::Ping, Pieces::default()),
        }
        flush(&mut writer, &mut outbox, mouth).await?;
        mouth.waiting.fetch_sub(words, Ordering::Relaxed);
        ping_at = Instant::now() + PING;
    }
}

/// Puts what is to be said behind each other. Returns how many bytes of words that is.
fn gather(first: Saying, said: &mut UnboundedReceiver<Saying>, outbox: &mut Outbox) -> usize {
    let (mut next, mut words) = (Some(first), 0);
    while let Some(say) = next {
        match say {
            Saying::Frame(frame) => {
                words += frame.len();
                outbox.push_frame(frame);
            }
            Saying::Listing(list) => outbox.push(FrameKind::Listing, Pieces::from(list)),
            Saying::Offer(ticket) => {
                outbox.push(FrameKind::Begin, Pieces::from(Bytes::copy_from_slice(&ticket)));
            }
        }
        if outbox.bytes() >= WRITE_BYTES {
            break;
        }
        next = said.try_recv().ok();
    }
    words
}

async fn flush(
    writer: &mut (impl AsyncWrite + Unpin),
    outbox: &mut Outbox,
    mouth: &Mouth,
) -> Result<(), String> {
    let wrote = |len: usize| _ = mouth.bytes_out.fetch_add(len as u64, Ordering::Relaxed);
    let flushed = poll_fn(|context| outbox.poll_write(context, writer, wrote)).await;
    flushed.map_err(|error| format!("the connection broke: {error}"))
}
