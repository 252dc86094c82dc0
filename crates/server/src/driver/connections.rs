//! The life of a connection, from the accepted socket to its last words.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use stoa_core::{CloseReason, ConnectError, Connection, ConnectionId};
use stoa_wire::PREAMBLE;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::SemaphorePermit;

use super::{Driver, End, Peer, READ_BUFFER_BYTES, Woken, poll_read, reunite};
use crate::audit::{Event, HandshakeEvent};
use crate::config::TlsOnPort;
use crate::foreign::Foreign;
use crate::tls::{self, Accepted, Channel, Refusal};
use crate::words;

impl Driver {
    /// Lets somebody in who has connected to a port with or without TLS; `None` when it is over with him.
    pub(crate) async fn admit(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        port: TlsOnPort,
    ) -> Option<Accepted> {
        match (&self.process.tls, port) {
            (Some(tls), TlsOnPort::Also | TlsOnPort::Only) => {
                let admitted = tls.admit(socket, (address, port), self.permit()).await;
                admitted.map_err(|refusal| self.turned_away(address, refusal)).ok()
            }
            _ => Some(Accepted::plain(socket, address)),
        }
    }

    /// Says of somebody that TLS has kept him out.
    fn turned_away(&self, address: SocketAddr, refusal: Refusal) {
        let (Refusal::Handshake(why) | Refusal::Other(why)) = &refusal else { return };
        self.process.complaints.say(&format!("connection from {address} closed: {why}"));
        if let (Some(audit), Refusal::Handshake(why)) = (self.process.audit(), refusal) {
            audit.tell(Event::Handshake(HandshakeEvent { address: address.ip(), why }));
        }
    }

    /// Takes over an accepted socket; ends when the connection does. Returns the socket, and for which
    /// partition it is, if it turns out to be a side connection.
    pub(crate) async fn connection(self: Rc<Self>, accepted: Accepted) -> Option<(u8, Accepted)> {
        let (address, identities) = (accepted.address, accepted.identities.clone());
        let permit = self.permit().await;
        let connected = self.server.borrow_mut().connect(address, self.now());
        let (id, peer, mut reader) = self.connected(connected, accepted)?;
        drop(permit);
        let mut first = [0; 4];
        let end = match self.read_exactly(&peer, &mut reader, &mut first).await {
            4 => self.begin_connection(id, &peer, &mut reader, first, address).await,
            _ => End::Gone,
        };
        let permit = self.permit().await;
        self.disconnected(id);
        drop(permit);
        let (socket, channel) = reunite(peer, reader)?;
        match end {
            End::Side(partition) => {
                return Some((partition, Accepted { socket, address, channel, identities }));
            }
            End::Farewell(output) => self.say_farewell(socket, channel, output),
            End::Gone => {}
        }
        None
    }

    /// Goes by the first four bytes: a word, or the length of the handshake's frame.
    async fn begin_connection(
        &self,
        id: ConnectionId,
        peer: &Peer,
        reader: &mut OwnedReadHalf,
        first: [u8; 4],
        address: SocketAddr,
    ) -> End {
        if let Some(word) = words::parse(first) {
            let mut argument = vec![0; words::argument_len(word)];
            let len = self.read_exactly(peer, reader, &mut argument).await;
            argument.truncate(len);
            return End::Farewell(self.answer(word, argument).await.into_bytes());
        }
        if first == PREAMBLE {
            let mut partition = [0];
            return match self.read_exactly(peer, reader, &mut partition).await {
                1 => End::Side(partition[0]),
                _ => End::Gone,
            };
        }
        if first == words::TELNET_END {
            return End::Gone;
        }
        if let Some(foreign) = Foreign::of(&first) {
            let way_out = match foreign {
                Foreign::Tls => "clients connect without TLS here, or by way of a proxy that ends it",
                Foreign::Http => "this port is for ZooKeeper's clients, HTTP is on admin-port",
            };
            let what = format!("connection from {address} closed: it looks like {foreign}; {way_out}");
            self.process.complaints.say(&what);
            return End::Gone;
        }
        let permit = self.permit().await;
        // Looked at now: a length out of range ends the connection at once.
        self.hand_in(id, peer, &first);
        self.serve(id, peer, reader, permit).await
    }

    /// Waits until a connection may begin or end. `None` is none too: nobody waits for ever.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        let permit = self.changes.acquire().await.ok();
        // Tasks that are woken by another one run before those whose sockets are ready. Those whose permits follow on
        // one another would leave nothing to them: so each waits until sockets were looked at.
        tokio::task::yield_now().await;
        permit
    }

    /// What a connection that is over here still has to say, it says by itself.
    fn say_farewell(&self, socket: TcpStream, channel: Option<Channel>, output: Vec<u8>) {
        let output = match channel {
            Some(channel) => channel.finish(&output),
            None => output,
        };
        let farewell = self.process.farewells.begin(output.len(), Arc::default());
        tokio::task::spawn_local(async move { farewell.say(&socket, &output).await });
    }

    /// Takes over the socket of a side connection for this thread's partition.
    pub(crate) async fn side_connection(self: Rc<Self>, accepted: Accepted) {
        let connected = self.server.borrow_mut().connect_side(accepted.address, self.now());
        let connected = connected.and_then(|connected| self.connected(connected, accepted));
        if let Some((id, peer, mut reader)) = connected {
            let end = self.serve(id, &peer, &mut reader, None).await;
            self.disconnected(id);
            if let (End::Farewell(output), Some((socket, channel))) = (end, reunite(peer, reader)) {
                self.say_farewell(socket, channel, output);
            }
        }
    }

    fn connected(
        &self,
        connected: Result<ConnectionId, ConnectError>,
        accepted: Accepted,
    ) -> Option<(ConnectionId, Rc<Peer>, OwnedReadHalf)> {
        let Accepted { socket, address, channel, identities } = accepted;
        let refuse = |refused: &ConnectError| self.refuse_client(address, refused);
        let id = connected.inspect_err(refuse).ok()?;
        if !identities.is_empty() {
            self.server.borrow_mut().identify(id, identities);
        }
        let (reader, writer) = socket.into_split();
        let peer = Rc::new(Peer {
            writer,
            channel: channel.map(RefCell::new),
            exchange: RefCell::default(),
            carry: RefCell::new(Vec::new()),
            blocked: Cell::new(false),
            paused: Cell::new(false),
            resume: Cell::new(false),
            closing: Cell::new(false),
            leaving: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.peers.borrow_mut().insert(id, Rc::clone(&peer));
        Some((id, peer, reader))
    }

    fn disconnected(&self, id: ConnectionId) {
        self.peers.borrow_mut().remove(&id);
        self.server.borrow_mut().disconnected(id, self.now());
        self.after_input();
    }

    /// Warns of a client that a limit keeps out.
    pub(crate) fn refuse_client(&self, address: SocketAddr, refused: &ConnectError) {
        self.process.complaints.say(&format!("connection from {address} refused: {refused}"));
    }

    /// Fills `bytes`, and tells how many of them have come: fewer when the stream or the connection ends.
    async fn read_exactly(&self, peer: &Peer, reader: &mut OwnedReadHalf, bytes: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < bytes.len() {
            match poll_fn(|context| poll_read(context, peer, reader, &mut bytes[filled..])).await {
                Woken::Read(Ok(more)) if more > 0 => filled += more,
                Woken::Read(read) => {
                    self.complain_of_tls(peer, &read);
                    break;
                }
                Woken::Other => break,
            }
        }
        filled
    }

    /// Says why a connection ends whose TLS went wrong after its handshake.
    fn complain_of_tls(&self, peer: &Peer, read: &io::Result<usize>) {
        if let (Err(error), Ok(address)) = (read, peer.writer.peer_addr())
            && let Some(why) = tls::why(error)
        {
            self.process.complaints.say(&format!("connection from {address} closed: {why}"));
        }
    }

    /// Serves a connection until it is over. It has its permit, if any, until its first bytes are handed in, and not
    /// while these are not there.
    async fn serve(
        &self,
        id: ConnectionId,
        peer: &Peer,
        reader: &mut OwnedReadHalf,
        mut permit: Option<SemaphorePermit<'_>>,
    ) -> End {
        loop {
            if peer.resume.take() {
                peer.paused.set(false);
                let carried = std::mem::take(&mut *peer.carry.borrow_mut());
                if !carried.is_empty() {
                    self.hand_in(id, peer, &carried);
                }
            }
            if peer.closing.get() {
                return self.last_words(id, peer, true);
            }
            let carried = peer.carried();
            let woken = poll_fn(|context| {
                let mut buffer = self.read_buffer.borrow_mut();
                let polled = poll_read(context, peer, reader, &mut buffer[carried..]);
                if polled.is_pending() {
                    permit = None;
                }
                polled
            })
            .await;
            if peer.blocked.get() {
                self.send(id, peer);
                self.after_input();
            }
            match woken {
                Woken::Read(Ok(len)) if len > 0 => {
                    // Nobody else has run since the read: the shared buffer still holds it.
                    self.take_in(id, peer, carried, len);
                    permit = None;
                    if carried + len == READ_BUFFER_BYTES {
                        // There is more; others have their turn first.
                        tokio::task::yield_now().await;
                    }
                }
                // It may still read what is there for it, although it has nothing more to say.
                Woken::Read(Ok(_)) => return self.last_words(id, peer, false),
                Woken::Read(failed) => {
                    self.complain_of_tls(peer, &failed);
                    return End::Gone;
                }
                Woken::Other => {}
            }
        }
    }

    /// What a connection has still to say, `is_told` to end or not. Who has not read so much that it has to end has
    /// had his chance.
    fn last_words(&self, id: ConnectionId, peer: &Peer, is_told: bool) -> End {
        self.send(id, peer);
        let mut server = self.server.borrow_mut();
        let reason = server.connection(id).and_then(Connection::close_reason);
        let output = server.output(id).to_vec();
        server.sent(id, output.len(), self.now.get());
        match reason {
            Some(CloseReason::SlowReader) => End::Gone,
            _ if !is_told && output.is_empty() => End::Gone,
            _ => End::Farewell(output),
        }
    }
}
