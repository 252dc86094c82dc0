//! A connection with the leader of another site, once both know each other.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use stoa_core::SiteId;
use stoa_storage::SnapshotReader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout, timeout_at};

use super::pack;
use crate::driver::Driver;
use crate::file_disk::FileDisk;
use crate::peers::frame::{self, FrameKind, MESSAGE_BYTES_MAX};
use crate::peers::stream::Stream;
use crate::priority::step_back;

/// How often a side says that it is there, and learns how far away the other one is.
const PING: Duration = Duration::from_secs(1);
/// Without a byte for so long the other side is gone: much longer than any two sites are apart.
const SILENCE: Duration = Duration::from_secs(6);
/// So much is written at a time.
const WRITE_BYTES: usize = 1 << 20;
/// Slices of a state on their way from the disk.
const SLICES_AHEAD: usize = 2;
/// A site that joins has so much of the hub's state on its way to its log.
const STATE_AHEAD_BYTES: usize = 4 << 20;
/// How long it may take until a state that has come is this site's.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);

/// What is to be said.
pub(super) enum Say {
    Message(Bytes),
    Pong(Bytes),
    /// The snapshot in a file, and its position in this site's log.
    State {
        position: u64,
        file: String,
    },
}

/// One connection.
pub(super) struct SiteLink {
    /// The other site.
    pub(super) site: SiteId,
    pub(super) name: String,
    /// This site, and the hub.
    own: SiteId,
    hub: SiteId,
    /// The term in which it leads there; 0 of the hub's leader.
    pub(super) term: u64,
    pub(super) since: Instant,
    pub(super) round_trip: Cell<Option<Duration>>,
    say: UnboundedSender<Say>,
    end: Notify,
}

impl SiteLink {
    /// With what is to be said on it.
    pub(super) fn new(
        (site, name): (SiteId, &str),
        (own, hub): (SiteId, SiteId),
        term: u64,
    ) -> (Rc<Self>, UnboundedReceiver<Say>) {
        let (say, said) = unbounded_channel();
        let link = Self {
            site,
            name: name.to_owned(),
            own,
            hub,
            term,
            since: Instant::now(),
            round_trip: Cell::new(None),
            say,
            end: Notify::new(),
        };
        (Rc::new(link), said)
    }

    pub(super) fn say(&self, what: Say) {
        // Nobody hears it when the connection has ended.
        let _ = self.say.send(what);
    }

    /// Whether the other site has connected to this one, and not this one to that.
    pub(super) fn is_below(&self) -> bool {
        self.hub == self.own
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.end.notify_one();
    }

    /// Carries what both sides say, until one of them is gone. Returns why it has ended.
    pub(super) async fn run(
        &self,
        stream: Stream,
        rest: BytesMut,
        said: UnboundedReceiver<Say>,
        driver: &Driver,
        disk: FileDisk,
    ) -> String {
        let (reader, writer) = tokio::io::split(stream);
        let partitions = driver.server.borrow().placement().partitions();
        tokio::select! {
            Err(why) = self.read(reader, rest, driver) => why,
            Err(why) = write(writer, said, disk, partitions) => why,
            () = self.end.notified() => "this server has ended it".to_owned(),
        }
    }

    async fn read(
        &self,
        mut reader: impl AsyncRead + Unpin,
        mut buffer: BytesMut,
        driver: &Driver,
    ) -> Result<(), String> {
        let mut state = None;
        loop {
            while let Some((kind, payload)) =
                frame::take(&mut buffer, MESSAGE_BYTES_MAX).map_err(|error| format!("it has sent {error}"))?
            {
                self.hear(kind, payload, &mut state, driver).await?;
            }
            match timeout(SILENCE, reader.read_buf(&mut buffer)).await {
                Ok(Ok(0)) => return Err("the other site has closed the connection".to_owned()),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(format!("the connection broke: {error}")),
                Err(_) => {
                    return Err(format!("nothing was heard of the other site for {} s", SILENCE.as_secs()));
                }
            }
        }
    }

    async fn hear(
        &self,
        kind: FrameKind,
        payload: Bytes,
        state: &mut Option<State>,
        driver: &Driver,
    ) -> Result<(), String> {
        let cut = || "it has sent something that is cut short".to_owned();
        match kind {
            FrameKind::Message => self.message(&payload, driver),
            FrameKind::Packed => self.message(&pack::unpack(&payload).ok_or_else(cut)?, driver),
            FrameKind::Ping => {
                self.say(Say::Pong(payload));
                Ok(())
            }
            FrameKind::Pong => {
                let sent: [u8; 8] = payload.as_ref().try_into().map_err(|_| cut())?;
                let took = monotonic_us().saturating_sub(u64::from_le_bytes(sent));
                self.round_trip.set(Some(Duration::from_micros(took)));
                let took = u32::try_from(took).unwrap_or(u32::MAX);
                driver.server.borrow_mut().site_round_trip(self.site, took);
                Ok(())
            }
            FrameKind::Begin => {
                let (position, rest) = payload.split_first_chunk().ok_or_else(cut)?;
                let position = u64::from_le_bytes(*position);
                // With one partition nothing is said of them.
                let begins = match *rest {
                    [] => 1,
                    [partitions @ 2..=64] => partitions,
                    _ => return Err(cut()),
                };
                tracing::info!("the state of site {} is coming, as it was at position {position}", self.name);
                *state = Some(State { position, bytes: 0, begins });
                Ok(())
            }
            FrameKind::Chunk => {
                let state = state.as_mut().ok_or("it has sent a slice of no state")?;
                take_slice(state, &payload, driver).await;
                Ok(())
            }
            FrameKind::End => {
                let state = state.take().ok_or("it has sent the end of no state")?;
                self.join(&state, driver).await
            }
            other => Err(format!("it has sent {other:?}, which nobody had asked for")),
        }
    }

    fn message(&self, message: &Bytes, driver: &Driver) -> Result<(), String> {
        let taken = {
            let now = driver.now();
            driver.server.borrow_mut().site_message(self.site, message, now)
        };
        driver.after_input();
        taken.map_err(|_| "it has sent something that is no message; is it of another release?".to_owned())
    }

    /// The state is there: waits until it is this site's.
    async fn join(&self, state: &State, driver: &Driver) -> Result<(), String> {
        {
            let now = driver.now();
            driver.server.borrow_mut().site_state_ended(self.own, self.hub, state.position, now);
        }
        driver.after_input();
        let deadline = Instant::now() + JOIN_PATIENCE;
        while !driver.server.borrow().has_joined() {
            if Instant::now() >= deadline {
                return Err("its state has come, and could not be taken in".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let Self { name, own, .. } = self;
        tracing::info!("this site has joined {name} as site {own}: {} bytes of state", state.bytes);
        Ok(())
    }
}

/// A state that is coming.
struct State {
    position: u64,
    bytes: usize,
    /// How many partitions the site has that it comes from, before the first slice has come; then 0.
    begins: u8,
}

/// Has a slice go into the log, as soon as there is room.
async fn take_slice(state: &mut State, slice: &[u8], driver: &Driver) {
    while driver.server.borrow().log_queue().1 > STATE_AHEAD_BYTES {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let now = driver.now();
    driver.server.borrow_mut().site_state(state.begins, slice, now);
    driver.after_input();
    state.begins = 0;
    state.bytes += slice.len();
}

fn monotonic_us() -> u64 {
    crate::clock::stopwatch_us()
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut said: UnboundedReceiver<Say>,
    disk: FileDisk,
    partitions: u8,
) -> Result<(), String> {
    let mut ping_at = Instant::now();
    loop {
        let mut out = BytesMut::new();
        let mut state = None;
        if Instant::now() >= ping_at {
            out.unsplit(frame::encode(FrameKind::Ping, &[&monotonic_us().to_le_bytes()]));
            ping_at = Instant::now() + PING;
        } else {
            match timeout_at(ping_at, said.recv()).await {
                Ok(Some(first)) => state = gather(first, &mut said, &mut out),
                Ok(None) => return Err("nobody has anything to say any more".to_owned()),
                Err(_) => continue,
            }
        }
        put(&mut writer, &out).await?;
        if let Some((position, file)) = state {
            send_state(&mut writer, (position, partitions), file, disk.another()).await?;
        }
    }
}

/// Puts what is to be said behind each other, up to a state, which has to be read.
fn gather(first: Say, said: &mut UnboundedReceiver<Say>, out: &mut BytesMut) -> Option<(u64, String)> {
    let mut next = Some(first);
    while let Some(say) = next {
        match say {
            Say::Message(message) => match pack::pack(&message) {
                Some(packed) => out.unsplit(frame::encode(FrameKind::Packed, &[&packed])),
                None => out.unsplit(frame::encode(FrameKind::Message, &[&message])),
            },
            Say::Pong(sent) => out.unsplit(frame::encode(FrameKind::Pong, &[&sent])),
            Say::State { position, file } => return Some((position, file)),
        }
        if out.len() >= WRITE_BYTES {
            return None;
        }
        next = said.try_recv().ok();
    }
    None
}

async fn put(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), String> {
    let written = async {
        writer.write_all(bytes).await?;
        writer.flush().await
    };
    written.await.map_err(|error| format!("the connection broke: {error}"))
}

/// Sends a snapshot, whose file is read by a thread of its own.
async fn send_state(
    writer: &mut (impl AsyncWrite + Unpin),
    (position, partitions): (u64, u8),
    file: String,
    disk: FileDisk,
) -> Result<(), String> {
    let (slices_in, mut slices) = mpsc::channel(SLICES_AHEAD);
    let reading = std::thread::Builder::new().name("site-state".into());
    let reading = reading.spawn(move || {
        step_back();
        read_state(disk, &file, &slices_in);
    });
    reading.map_err(|error| format!("the thread that reads the state cannot be started: {error}"))?;
    let several = if partitions > 1 { &[partitions][..] } else { &[] };
    put(writer, &frame::encode(FrameKind::Begin, &[&position.to_le_bytes(), several])).await?;
    while let Some(slice) = slices.recv().await {
        put(writer, &frame::encode(FrameKind::Chunk, &[&slice?])).await?;
    }
    put(writer, &frame::encode(FrameKind::End, &[])).await
}

fn read_state(mut disk: FileDisk, file: &str, slices: &mpsc::Sender<Result<Vec<u8>, String>>) {
    let failed = |error: stoa_storage::StorageError| format!("{file} cannot be read: {error}");
    let mut read = || -> Result<(), String> {
        let mut reader = SnapshotReader::open_foreign(&mut disk, file).map_err(failed)?;
        // The first is where the log of this site stands, which is nobody else's.
        let mut is_head = true;
        while let Some(slice) = reader.next(&mut disk).map_err(failed)? {
            if !std::mem::take(&mut is_head) && slices.blocking_send(Ok(slice.to_vec())).is_err() {
                return Ok(());
            }
        }
        Ok(())
    };
    if let Err(why) = read() {
        let _ = slices.blocking_send(Err(why));
    }
}
