//! The port that other servers connect to: one for all partitions.
//!
//! Whoever connects says first for which partition, with one byte in the clear; what follows, TLS and the
//! handshake, is the business of that partition's thread.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::strangers::{UNPROVEN_MAX, Unproven};
use super::{Common, HANDSHAKE_PATIENCE, stream};
use crate::complaints::Complaints;
use crate::foreign::Foreign;
use crate::listen::Listener;

/// Somebody who has connected and said for which partition.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(super) socket: std::net::TcpStream,
    pub(super) address: SocketAddr,
}

/// Those who have connected for one partition.
pub(crate) type Callers = Receiver<Caller>;

/// Where each partition's callers go.
pub(crate) struct PeerPort {
    partitions: Vec<Sender<Caller>>,
    complaints: Arc<Complaints>,
}

impl PeerPort {
    /// The port of a server with so many partitions, and the callers of each.
    pub(crate) fn new(partitions: u8, common: &Common) -> (Self, Vec<Callers>) {
        let (partitions, callers) = (0..partitions).map(|_| channel(UNPROVEN_MAX)).unzip();
        (Self { partitions, complaints: Arc::clone(&common.complaints) }, callers)
    }

    /// Accepts connections, for ever; to be awaited on a `LocalSet`.
    pub(crate) fn open(self, listener: Rc<Listener>) -> impl Future<Output = ()> {
        let Self { partitions, complaints } = self;
        let entrance = Rc::new(Entrance { partitions, complaints, unproven: Unproven::default() });
        entrance.accept(listener)
    }
}

struct Entrance {
    partitions: Vec<Sender<Caller>>,
    complaints: Arc<Complaints>,
    unproven: Unproven,
}

impl Entrance {
    async fn accept(self: Rc<Self>, listener: Rc<Listener>) {
        let mut greetings = JoinSet::new();
        loop {
            match listener.accept().await {
                Ok((socket, address)) => {
                    stream::prepare(&socket);
                    while greetings.try_join_next().is_some() {}
                    self.unproven.take(&self.complaints, |number| {
                        greetings.spawn_local(Rc::clone(&self).greet(number, socket, address))
                    });
                }
                Err(error) => {
                    // Out of descriptors, most likely: those that are connected go on.
                    tracing::error!("a connection of another server could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn greet(self: Rc<Self>, number: u64, socket: TcpStream, address: SocketAddr) {
        let passed_on = timeout(HANDSHAKE_PATIENCE, self.pass_on(socket, address)).await;
        self.unproven.done(number);
        if let Err(why) = passed_on.unwrap_or_else(|_| Err(super::late())) {
            self.complaints.say(&format!("connection between servers from {address} refused: {why}"));
        }
    }

    async fn pass_on(&self, mut socket: TcpStream, address: SocketAddr) -> Result<(), String> {
        let broke = |error| format!("the connection broke before it was said for which partition: {error}");
        let partition = socket.read_u8().await.map_err(broke)?;
        let mut next = [0; 3];
        let len = socket.peek(&mut next).await.map_err(broke)?;
        if let Some(foreign) = Foreign::of(&[&[partition], &next[..len]].concat()) {
            return Err(format!(
                "it looks like {foreign}; this port is for the other servers of the ensemble"
            ));
        }
        // One that is not there is refused in the handshake, so that the other side is told why.
        let thread = self.partitions.get(usize::from(partition)).or(self.partitions.first());
        let thread = thread.ok_or("there is no partition")?;
        let caller = Caller { socket: socket.into_std().map_err(broke)?, address };
        thread.try_send(caller).map_err(|_| format!("partition {partition} takes no more at the moment"))
    }
}
