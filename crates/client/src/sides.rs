//! The sockets of a direct client's side connections.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use stoa_client_core::{Fault, Protocol};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// How long opening one may take; the protocol core itself gives up about then.
const PATIENCE: Duration = Duration::from_secs(1);

/// What has happened on side connections.
pub(crate) enum SideTurn {
    /// One is open, or could not be opened.
    Opened(u8, Option<TcpStream>),
    /// Some can be read from or written to.
    Ready,
}

#[derive(Debug, Default)]
pub(crate) struct Sides {
    server: Option<SocketAddr>,
    open: Vec<(u8, TcpStream)>,
    opening: JoinSet<(u8, Option<TcpStream>)>,
}

impl Sides {
    /// The main connection leads to this address, and the side connections shall too.
    pub(crate) fn lead_to(&mut self, server: SocketAddr) {
        self.close_all();
        self.server = Some(server);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.opening.is_empty()
    }

    /// Begins to open one.
    pub(crate) fn open(&mut self, partition: u8) {
        self.close(partition);
        if let Some(server) = self.server {
            self.opening.spawn(async move {
                let stream = timeout(PATIENCE, TcpStream::connect(server)).await.ok().and_then(Result::ok);
                (partition, stream.filter(|stream| stream.set_nodelay(true).is_ok()))
            });
        }
    }

    pub(crate) fn opened(&mut self, partition: u8, stream: TcpStream) {
        self.close(partition);
        self.open.push((partition, stream));
    }

    pub(crate) fn close(&mut self, partition: u8) {
        self.open.retain(|(of, _)| *of != partition);
    }

    pub(crate) fn close_all(&mut self) {
        self.open.clear();
        self.opening = JoinSet::new();
    }

    /// Those with something to write: a bit for each partition.
    pub(crate) fn waiting(&self, protocol: &mut Protocol) -> u64 {
        let mut waits = |of| protocol.side_output(of).is_some_and(|output| !output.is_empty());
        self.open.iter().filter(|(of, _)| waits(*of)).fold(0, |set, (of, _)| set | 1 << of)
    }

    /// Waits until something can be done on any of them.
    pub(crate) async fn turn(&mut self, waiting: u64) -> SideTurn {
        let Self { open, opening, .. } = self;
        let ready = poll_fn(|context| {
            // All are asked, so that each wakes us.
            let is_ready = open.iter().fold(false, |ready, (of, stream)| {
                let reads = stream.poll_read_ready(context).is_ready();
                let writes = waiting & (1 << of) != 0 && stream.poll_write_ready(context).is_ready();
                ready | reads | writes
            });
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            Some(opened) = opening.join_next() => match opened {
                Ok((partition, stream)) => SideTurn::Opened(partition, stream),
                // Nothing in it panics, and who aborts them asks no more.
                Err(_) => SideTurn::Ready,
            },
            () = ready => SideTurn::Ready,
        }
    }

    /// Hands what they have to the protocol core.
    pub(crate) fn read(
        &mut self,
        protocol: &mut Protocol,
        input: &mut [u8],
        now_ms: u64,
    ) -> Result<(), Fault> {
        let mut lost = Vec::new();
        for (partition, stream) in &self.open {
            match stream.try_read(input) {
                Ok(len) if len > 0 => protocol.side_receive(*partition, &input[..len], now_ms)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => lost.push(*partition),
            }
        }
        self.lose(&lost, protocol, now_ms)
    }

    /// Writes what the protocol core has for them, as far as they take it.
    /// Counts in `sent` what they take.
    pub(crate) fn write(
        &mut self,
        protocol: &mut Protocol,
        start: Instant,
        sent: &AtomicU64,
    ) -> Result<(), Fault> {
        let mut lost = Vec::new();
        for (partition, stream) in &self.open {
            let Some(output) = protocol.side_output(*partition).filter(|output| !output.is_empty()) else {
                continue;
            };
            match stream.try_write(output) {
                Ok(len) => {
                    sent.fetch_add(len as u64, Ordering::Relaxed);
                    output.drain(..len);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => lost.push(*partition),
            }
        }
        let now_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.lose(&lost, protocol, now_ms)
    }

    fn lose(&mut self, lost: &[u8], protocol: &mut Protocol, now_ms: u64) -> Result<(), Fault> {
        for partition in lost {
            self.close(*partition);
            protocol.side_disconnected(*partition, now_ms)?;
        }
        Ok(())
    }
}
