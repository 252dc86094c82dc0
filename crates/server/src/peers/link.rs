//! A connection for messages that is open: one side sends, both give signs of life.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use stoa_core::Pieces;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::frame::{self, FrameKind, HEADER_BYTES, MESSAGE_BYTES_MAX};
use super::stream::Stream;

/// What may wait to be sent to one peer: the longest message always fits when nothing waits.
pub(super) const OUTBOX_BYTES_MAX: usize = HEADER_BYTES + MESSAGE_BYTES_MAX;
/// With so much of a peer handed out and not given back, nothing more is read from it.
const INBOX_BYTES_MAX: usize = 64 << 20;
/// The longest list of servers that is told.
pub(super) const SERVERS_BYTES_MAX: usize = 64 << 10;
/// Pieces below this length are copied together; longer ones are sent from where they are.
const COPY_BYTES_MAX: usize = 4 << 10;
/// What is copied together is collected in pieces of about this length.
const PIECE_BYTES: usize = 64 << 10;
/// How many pieces one write takes.
const PIECES_MAX: usize = 64;
/// Room made for one read.
const READ_BYTES: usize = 64 << 10;
/// After so many bytes others have their turn.
const TURN_BYTES: usize = 256 << 10;
/// How often a link looks whether there were signs of life.
const TICK: Duration = Duration::from_millis(500);
/// So many ticks without having written: time for a ping.
const TICKS_TO_PING: u32 = 2;
/// So many ticks without having read: the peer is gone. Ticks are counted and not time measured, and
/// each one is preceded by a read, so that a thread that stood still does not blame its peers.
const TICKS_SILENT_MAX: u32 = 6;

/// Which way messages go on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// This server sends.
    To,
    /// This server receives.
    From,
}

fn broke(error: &io::Error) -> String {
    format!("the connection broke: {error}")
}

/// What is counted of one peer.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) bytes_in: Cell<u64>,
    pub(super) bytes_out: Cell<u64>,
    pub(super) messages_in: Cell<u64>,
    pub(super) messages_out: Cell<u64>,
}

fn add(to: &Cell<u64>, more: usize) {
    to.set(to.get() + more as u64);
}

/// How many bytes of a peer's messages are handed out and not given back.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    bytes: Cell<usize>,
    /// The link that waits for room.
    waker: RefCell<Option<Waker>>,
}

/// The messages of one read, in the order sent. While this lives, they count against what may be
/// received of their sender.
#[derive(Debug)]
pub(crate) struct Messages {
    /// Each shares its memory with the others of its read: copy what is kept for long.
    pub(crate) list: Vec<Bytes>,
    bytes: usize,
    window: Rc<ReceiveWindow>,
}

/// Lists that one link brings, in all: they wait for nobody who reads them, so that there must be an end. Who has had
/// more to tell than that connects anew.
const TOLD_BYTES_MAX: usize = 64 * SERVERS_BYTES_MAX;
/// What has come on a link.
pub(super) enum Received {
    Messages(Messages),
    /// The list of servers as the peer has it.
    Servers(Bytes),
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.window.bytes.set(self.window.bytes.get() - self.bytes);
        if let Some(waker) = self.window.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// What waits to be sent.
#[derive(Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Bytes>,
    /// Short messages since the last piece.
    tail: BytesMut,
    bytes: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, kind: FrameKind, payload: Pieces) {
        let header = frame::header(kind, payload.iter());
        self.bytes += header.len();
        self.tail.put_slice(&header);
        self.push_frame(payload);
    }

    /// What is a frame already, or goes behind the header of one.
    pub(super) fn push_frame(&mut self, frame: Pieces) {
        self.bytes += frame.len();
        for piece in frame {
            if piece.len() < COPY_BYTES_MAX {
                self.tail.put_slice(&piece);
            } else {
                self.seal();
                self.pieces.push_back(piece);
            }
        }
        if self.tail.len() >= PIECE_BYTES {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes all that waits; `wrote` is told of how much at a time.
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
        mut wrote: impl FnMut(usize),
    ) -> Poll<io::Result<()>> {
        loop {
            self.seal();
            if self.pieces.is_empty() {
                return Pin::new(stream).poll_flush(context);
            }
            let mut parts = [IoSlice::new(&[]); PIECES_MAX];
            let count = self.pieces.len().min(PIECES_MAX);
            for (part, piece) in parts.iter_mut().zip(&self.pieces) {
                *part = IoSlice::new(piece);
            }
            let len = ready!(Pin::new(&mut *stream).poll_write_vectored(context, &parts[..count]))?;
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent(len);
            wrote(len);
        }
    }

    fn sent(&mut self, mut len: usize) {
        self.bytes -= len;
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > len {
                let _ = first.split_to(len);
                return;
            }
            len -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// One open connection for messages.
pub(super) struct Link {
    direction: Direction,
    stream: RefCell<Stream>,
    outbox: RefCell<Outbox>,
    window: Rc<ReceiveWindow>,
    meter: Rc<Meter>,
    /// Messages may be handed out.
    open: Cell<bool>,
    /// Why the link ends, once that is so.
    end: RefCell<Option<String>>,
    /// The socket takes no more: the task goes on when it does.
    blocked: Cell<bool>,
    /// Bytes of lists of servers that have come.
    told_bytes: Cell<u64>,
    silent_ticks: Cell<u32>,
    idle_ticks: Cell<u32>,
    waker: RefCell<Option<Waker>>,
}

/// What only the link's task needs.
struct Task<'a, F> {
    buffer: BytesMut,
    /// The front of the buffer waits until messages may be handed out.
    held: bool,
    ticks: Interval,
    deliver: &'a mut F,
}

impl Link {
    pub(super) fn new(
        direction: Direction,
        stream: Stream,
        window: Rc<ReceiveWindow>,
        meter: Rc<Meter>,
    ) -> Self {
        Self {
            direction,
            stream: RefCell::new(stream),
            outbox: RefCell::default(),
            window,
            meter,
            // Where nothing is handed out, nothing is held back.
            open: Cell::new(direction == Direction::To),
            end: RefCell::new(None),
            blocked: Cell::new(false),
            told_bytes: Cell::new(0),
            silent_ticks: Cell::new(0),
            idle_ticks: Cell::new(0),
            waker: RefCell::new(None),
        }
    }

    /// Queues a message for the next flush. `false` when too much waits already.
    pub(super) fn send(&self, message: Pieces) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        if outbox.bytes.saturating_add(HEADER_BYTES + message.len()) > OUTBOX_BYTES_MAX {
            return false;
        }
        add(&self.meter.messages_out, 1);
        outbox.push(FrameKind::Message, message);
        true
    }

    /// Tells the peer the list of servers, whichever way messages go.
    pub(super) fn tell_servers(&self, list: Bytes) {
        self.outbox.borrow_mut().push(FrameKind::Servers, Pieces::from(list));
        self.wake();
    }

    /// Writes what waits, as much as the socket takes; the link's task goes on with the rest.
    pub(super) fn flush(&self) {
        let waker = self.waker.borrow().clone();
        // A task that has not run yet writes when it does.
        let Some(waker) = waker else { return };
        if self.blocked.get() || self.end.borrow().is_some() {
            return;
        }
        if let Err(error) = self.write(&mut Context::from_waker(&waker)) {
            self.end(broke(&error));
        }
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.outbox.borrow().bytes
    }

    /// Lets messages be handed out.
    pub(super) fn open(&self) {
        self.open.set(true);
        self.wake();
    }

    /// Ends the link: from now on it hands out nothing.
    pub(super) fn end(&self, why: String) {
        self.end.borrow_mut().get_or_insert(why);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Runs the link until it ends, and returns why it did.
    pub(super) async fn run(&self, mut deliver: impl FnMut(Received)) -> String {
        let mut ticks = interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut task = Task { buffer: BytesMut::new(), held: false, ticks, deliver: &mut deliver };
        let why = poll_fn(|context| match self.poll(context, &mut task) {
            Ok(()) => Poll::Pending,
            Err(why) => Poll::Ready(why),
        })
        .await;
        // Whoever holds the link still must not wake or write for it.
        self.waker.borrow_mut().take();
        self.end.borrow_mut().get_or_insert(why).clone()
    }

    /// One turn: what waits is written, what is there is read, then the time is looked at.
    fn poll<F: FnMut(Received)>(
        &self,
        context: &mut Context<'_>,
        task: &mut Task<'_, F>,
    ) -> Result<(), String> {
        {
            let mut waker = self.waker.borrow_mut();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
        }
        self.check_end()?;
        if task.held && self.open.get() {
            self.take_in(task)?;
        }
        self.read(context, task)?;
        while task.ticks.poll_tick(context).is_ready() {
            self.tick()?;
        }
        self.write(context).map_err(|error| broke(&error))
    }

    /// Nothing is read until some of what was handed out is given back.
    fn is_paused(&self) -> bool {
        self.direction == Direction::From && self.window.bytes.get() >= INBOX_BYTES_MAX
    }

    fn check_end(&self) -> Result<(), String> {
        match self.end.borrow().as_ref() {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }

    fn read<F: FnMut(Received)>(
        &self,
        context: &mut Context<'_>,
        task: &mut Task<'_, F>,
    ) -> Result<(), String> {
        let mut turn_bytes = 0;
        while !task.held {
            if self.is_paused() {
                // What is given back wakes us.
                *self.window.waker.borrow_mut() = Some(context.waker().clone());
                return Ok(());
            }
            if turn_bytes >= TURN_BYTES {
                context.waker().wake_by_ref();
                return Ok(());
            }
            if task.buffer.capacity() - task.buffer.len() < READ_BYTES / 4 {
                task.buffer.reserve(READ_BYTES);
            }
            let read = {
                let mut stream = self.stream.borrow_mut();
                pin!(stream.read_buf(&mut task.buffer)).poll(context)
            };
            match read {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err("the peer has closed the connection".into()),
                Poll::Ready(Ok(len)) => {
                    turn_bytes += len;
                    self.silent_ticks.set(0);
                    add(&self.meter.bytes_in, len);
                    self.take_in(task)?;
                }
                Poll::Ready(Err(error)) => return Err(broke(&error)),
            }
        }
        Ok(())
    }

    /// Takes whole frames out of what was read, and hands out the messages among them.
    fn take_in<F: FnMut(Received)>(&self, task: &mut Task<'_, F>) -> Result<(), String> {
        let mut list = Vec::new();
        let mut bytes = 0;
        let result = loop {
            task.held = !self.open.get() && frame::is_message(&task.buffer);
            if task.held {
                break Ok(());
            }
            match frame::take(&mut task.buffer, MESSAGE_BYTES_MAX) {
                Ok(Some((FrameKind::Message, message))) if self.direction == Direction::From => {
                    bytes += HEADER_BYTES + message.len();
                    if message.len() > READ_BYTES {
                        // A buffer that had to grow goes with its message.
                        task.buffer = BytesMut::from(&task.buffer[..]);
                    }
                    list.push(message);
                }
                Ok(Some((FrameKind::Ping, _))) => {}
                Ok(Some((FrameKind::Servers, list))) if list.len() <= SERVERS_BYTES_MAX => {
                    add(&self.told_bytes, HEADER_BYTES + list.len());
                    if self.told_bytes.get() > TOLD_BYTES_MAX as u64 {
                        break Err("it has told many lists of servers: a new connection begins".into());
                    }
                    (task.deliver)(Received::Servers(list));
                }
                Ok(Some((kind, _))) => break Err(format!("it sent {kind:?} where that has no meaning")),
                Ok(None) => break Ok(()),
                Err(error) => break Err(format!("it sent {error}")),
            }
        };
        // What came before a bad frame was sent as it is.
        if !list.is_empty() {
            add(&self.meter.messages_in, list.len());
            self.window.bytes.set(self.window.bytes.get() + bytes);
            let messages = Messages { list, bytes, window: Rc::clone(&self.window) };
            (task.deliver)(Received::Messages(messages));
        }
        result
    }

    fn tick(&self) -> Result<(), String> {
        // While we do not read for our own sake, silence says nothing.
        if !self.is_paused() {
            self.silent_ticks.set(self.silent_ticks.get() + 1);
        }
        if self.silent_ticks.get() >= TICKS_SILENT_MAX {
            let seconds = (TICK * TICKS_SILENT_MAX).as_secs();
            return Err(format!("nothing was heard of the peer for {seconds} s"));
        }
        self.idle_ticks.set(self.idle_ticks.get() + 1);
        if self.idle_ticks.get() >= TICKS_TO_PING && self.queued_bytes() == 0 {
            self.outbox.borrow_mut().push(FrameKind::Ping, Pieces::default());
        }
        Ok(())
    }

    fn write(&self, context: &mut Context<'_>) -> io::Result<()> {
        let written = self.poll_write(context);
        self.blocked.set(written.is_pending());
        match written {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    fn poll_write(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outbox = self.outbox.borrow_mut();
        outbox.poll_write(context, &mut *self.stream.borrow_mut(), |len| {
            self.idle_ticks.set(0);
            add(&self.meter.bytes_out, len);
        })
    }
}
