//! The sockets of a direct client's side connections.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use stoa_client_core::{Fault, Protocol};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::tls::Tls;
use crate::transport::{self, Transport};

/// How long opening one may take; the protocol core itself gives up about then.
const PATIENCE: Duration = Duration::from_secs(1);

/// What has happened on side connections.
pub(crate) enum SideTurn {
    /// One is open, or could not be opened.
    Opened(u8, Option<Transport>),
    /// Some can be read from or written to.
    Ready,
}

#[derive(Debug, Default)]
pub(crate) struct Sides {
    server: Option<(SocketAddr, Option<Tls>)>,
    open: Vec<(u8, Transport)>,
    opening: JoinSet<(u8, Option<Transport>)>,
}

impl Sides {
    /// The main connection leads to this address, in this way, and the side connections shall too.
    pub(crate) fn lead_to(&mut self, server: SocketAddr, tls: Option<Tls>) {
        self.close_all();
        self.server = Some((server, tls));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.opening.is_empty()
    }

    /// Begins to open one.
    pub(crate) fn open(&mut self, partition: u8) {
        self.close(partition);
        if let Some((server, tls)) = self.server.clone() {
            let open = async move {
                let (socket, _) = transport::connect(server).await?;
                match tls {
                    None => Ok(Transport::Plain(socket)),
                    Some(tls) => Transport::secured(socket, &tls).await,
                }
            };
            self.opening.spawn(async move {
                let opened = timeout(PATIENCE, open).await;
                (partition, opened.ok().and_then(io::Result::ok))
            });
        }
    }

    pub(crate) fn opened(&mut self, partition: u8, stream: Transport) {
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
        let mut waits = |of, stream: &Transport| {
            stream.has_output() || protocol.side_output(of).is_some_and(|output| !output.is_empty())
        };
        self.open.iter().filter(|(of, stream)| waits(*of, stream)).fold(0, |set, (of, _)| set | 1 << of)
    }

    /// Waits until something can be done on any of them.
    pub(crate) async fn turn(&mut self, waiting: u64) -> SideTurn {
        let Self { open, opening, .. } = self;
        let ready = poll_fn(|context| {
            // All are asked, so that each wakes us.
            let is_ready = open.iter().fold(false, |ready, (of, stream)| {
                let reads = stream.poll_readable(context).is_ready();
                let writes = waiting & (1 << of) != 0 && stream.poll_writable(context).is_ready();
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
        for (partition, stream) in &mut self.open {
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
        for (partition, stream) in &mut self.open {
            let Some(output) = protocol.side_output(*partition).filter(|output| !output.is_empty()) else {
                if stream.try_flush().is_err() {
                    lost.push(*partition);
                }
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
