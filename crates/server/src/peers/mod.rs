//! The connections between the servers of an ensemble: opaque messages, and now and then a snapshot.
//!
//! Between two servers there are two connections for messages: each sends on the one that it has
//! opened. A peer counts as connected when both are up and lead to the same process; only then are
//! messages taken and handed out. When either fails both are closed, so that what comes after
//! [`PeerEvent::Connected`] is all of one piece: everything that was sent since, in order, up to some
//! point. Snapshots have connections of their own, and one connection is there only to end when the
//! process does ([`lifeline`]).
//!
//! docs/peer-protocol.md has the bytes, and who is let in.

mod frame;
mod hello;
mod lifeline;
mod link;
mod member;
mod snapshot;
mod stream;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stoa_core::Pieces;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

pub(crate) use hello::Identity;
pub(crate) use link::Messages;
pub(crate) use member::{PeerAddress, PeerStatus};
pub(crate) use stream::PeerTls;

use crate::random;
use hello::{Hello, Local, Purpose};
use lifeline::Lifelines;
use link::{Direction, Link};
use member::{Backoff, Member, Up};
use snapshot::{Arrival, Place};
use stream::Stream;

/// How long a connection may take to prove who speaks.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);
/// How many may be about to; the oldest makes room for another.
const UNPROVEN_MAX: usize = 64;
/// How many refusals are told of in a time; the rest is counted.
const COMPLAINTS_MAX: u32 = 5;
const COMPLAINTS_PERIOD: Duration = Duration::from_secs(10);

/// Who this server is, and how it meets the others.
pub(crate) struct PeerOptions {
    /// The member that this server is.
    pub(crate) me: u64,
    /// The data folder, for the others to tell a server from one that has lost its data.
    pub(crate) disk: [u8; 16],
    /// Where the others connect to.
    pub(crate) listener: std::net::TcpListener,
    /// Proves who belongs to the ensemble; all have the same one.
    pub(crate) secret: Option<Vec<u8>>,
    /// Certificates; all have them or none.
    pub(crate) tls: Option<PeerTls>,
    /// Where snapshots arrive. What an earlier process has left there is removed.
    pub(crate) folder: PathBuf,
    /// Name and version of this program, at most 64 bytes.
    pub(crate) software: String,
}

/// What happens between this server and the others.
#[derive(Debug)]
pub(crate) enum PeerEvent {
    /// A peer can be sent to, and what it sends from now on follows.
    Connected(u64, Identity),
    /// A peer that was connected is so no more; why, and which connection failed.
    Lost(u64, String),
    /// Messages of a connected peer.
    Messages(u64, Messages),
    /// A peer has sent a snapshot, which is durable. The file is overwritten when the same peer
    /// sends another one: move it away.
    SnapshotArrived {
        /// The peer.
        from: u64,
        /// What it said of the snapshot.
        header: Bytes,
        /// The snapshot.
        file: PathBuf,
    },
    /// A snapshot has been sent and is durable there (its bytes), or was not (why). Sent again with
    /// the same header it goes on where it was interrupted.
    SnapshotSent {
        /// The peer.
        to: u64,
        /// Bytes, or the reason.
        result: Result<u64, String>,
    },
}

/// The connections to the other members. Dropping it closes all.
pub(crate) struct Peers {
    inner: Rc<Inner>,
}

struct Inner {
    local: Local,
    tls: Option<PeerTls>,
    /// `None` where the system has no such thing.
    lifelines: Option<Lifelines>,
    folder: PathBuf,
    events: UnboundedSender<PeerEvent>,
    members: RefCell<BTreeMap<u64, Rc<Member>>>,
    /// Members with something queued since the last flush.
    unsent: RefCell<Vec<Rc<Member>>>,
    /// What has come of each peer's snapshot; it outlives a change of the peer's address.
    places: RefCell<BTreeMap<u64, Place>>,
    /// Connections that have not proven who speaks, the oldest first.
    unproven: RefCell<BTreeMap<u64, AbortHandle>>,
    accepted: Cell<u64>,
    complaints: Complaints,
    tasks: RefCell<JoinSet<()>>,
}

impl Peers {
    /// Begins to connect to the members and to be connected to; must be called on a `LocalSet`.
    pub(crate) fn start(
        options: PeerOptions,
        members: Vec<PeerAddress>,
        events: UnboundedSender<PeerEvent>,
    ) -> Result<Self, String> {
        let PeerOptions { me, disk, listener, secret, tls, folder, software } = options;
        snapshot::clean(&folder)
            .map_err(|error| format!("old snapshots in {} cannot be removed: {error}", folder.display()))?;
        let failed = |error: std::io::Error| format!("the port for other servers: {error}");
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let incarnation = u64::from_ne_bytes(random::bytes()?);
        let lifelines = Lifelines::start()
            .inspect_err(|error| {
                tracing::info!(
                    "should this process be killed, others notice it late: no lifelines ({error})"
                );
            })
            .ok();
        let inner = Rc::new(Inner {
            local: Local { me, disk, incarnation, software, secret },
            tls,
            lifelines,
            folder,
            events,
            members: RefCell::default(),
            unsent: RefCell::default(),
            places: RefCell::default(),
            unproven: RefCell::default(),
            accepted: Cell::new(0),
            complaints: Complaints::new(),
            tasks: RefCell::default(),
        });
        inner.spawn(Rc::clone(&inner).accept(listener));
        let peers = Self { inner };
        peers.set_members(members);
        Ok(peers)
    }

    /// Changes who belongs to the ensemble. Those gone are refused from now on; whose address has
    /// changed is connected to anew. This server's own entry is passed over.
    pub(crate) fn set_members(&self, members: Vec<PeerAddress>) {
        let inner = &self.inner;
        let wanted: BTreeMap<u64, PeerAddress> =
            members.into_iter().map(|address| (address.id, address)).collect();
        let gone: Vec<_> = {
            let mut members = inner.members.borrow_mut();
            members.extract_if(.., |id, member| wanted.get(id) != Some(&member.address)).collect()
        };
        for (id, member) in gone {
            let why = match wanted.contains_key(&id) {
                true => "its address has changed",
                false => "it is no member any more",
            };
            inner.lose(&member, Direction::To, why);
            inner.lose(&member, Direction::From, why);
            member.stop();
            if member.sending.take().is_some() {
                inner.tell(PeerEvent::SnapshotSent { to: id, result: Err(why.to_owned()) });
            }
            if !wanted.contains_key(&id) {
                snapshot::discard(&inner.folder, id, &inner.place(id));
            }
        }
        for (id, address) in wanted {
            if id == inner.local.me || inner.members.borrow().contains_key(&id) {
                continue;
            }
            let member = Rc::new(Member::new(address));
            inner.members.borrow_mut().insert(id, Rc::clone(&member));
            let dialer = inner.spawn(Rc::clone(inner).dial(Rc::clone(&member)));
            member.dialer.replace(Some(dialer));
        }
    }

    /// Queues a message for the next [`flush`](Self::flush). `false` when the peer is not connected,
    /// or too much waits for it already, or the message is longer than 64 MiB.
    pub(crate) fn send(&self, to: u64, message: Pieces) -> bool {
        let Some(member) = self.inner.members.borrow().get(&to).cloned() else { return false };
        let Some(link) = member.sends_on() else { return false };
        let sent = link.send(message);
        if sent && !member.unsent.replace(true) {
            self.inner.unsent.borrow_mut().push(member);
        }
        sent
    }

    /// Writes what was queued: one write a peer, as far as their sockets take it. The rest follows by
    /// itself.
    pub(crate) fn flush(&self) {
        for member in self.inner.unsent.borrow_mut().drain(..) {
            member.unsent.set(false);
            if let Some(link) = member.sends_on() {
                link.flush();
            }
        }
    }

    /// Sends a snapshot on a connection of its own; [`PeerEvent::SnapshotSent`] tells the result. The
    /// header, at most 64 KiB, says what the file is: a file that is sent again with the same header
    /// must be the same.
    pub(crate) fn send_snapshot(&self, to: u64, header: Bytes, file: PathBuf) {
        let inner = &self.inner;
        let refuse = |why: String| inner.tell(PeerEvent::SnapshotSent { to, result: Err(why) });
        let Some(member) = inner.members.borrow().get(&to).cloned() else {
            return refuse(format!("server {to} is no member"));
        };
        if header.len() > snapshot::HEADER_BYTES_MAX {
            return refuse(format!("its header has {} bytes, too many", header.len()));
        }
        if member.sending.borrow().is_some() {
            return refuse("another one is under way".to_owned());
        }
        let (sender, target) = (Rc::clone(inner), Rc::clone(&member));
        let task = inner.spawn(async move {
            let result = async {
                let socket = stream::open(&target.address).await?;
                let (stream, _) = sender.meet(&target, socket, Purpose::Snapshot).await?;
                snapshot::send(stream, &header, file).await
            };
            let result = result.await;
            target.sending.take();
            sender.tell(PeerEvent::SnapshotSent { to, result });
        });
        member.sending.replace(Some(task));
    }

    /// How it stands with every member, by id.
    pub(crate) fn status(&self) -> Vec<PeerStatus> {
        self.inner.members.borrow().values().map(|member| member.status()).collect()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.inner.tasks.borrow_mut().abort_all();
    }
}

impl Inner {
    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> AbortHandle {
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task)
    }

    fn tell(&self, event: PeerEvent) {
        // Whoever listened may have ended before us.
        let _ = self.events.send(event);
    }

    fn place(&self, of: u64) -> Place {
        Arc::clone(self.places.borrow_mut().entry(of).or_default())
    }

    fn is_member(&self, member: &Rc<Member>) -> bool {
        self.members.borrow().get(&member.address.id).is_some_and(|known| Rc::ptr_eq(known, member))
    }

    /// Keeps the connection to a member, for ever.
    async fn dial(self: Rc<Self>, member: Rc<Member>) {
        let mut backoff = Backoff::new();
        loop {
            match self.connect(&member).await {
                Ok((stream, identity)) => {
                    let began = Instant::now();
                    tokio::select! {
                        biased;
                        () = self.run(&member, Direction::To, stream, identity) => {}
                        never = self.keep_lifeline(&member) => match never {},
                    }
                    if began.elapsed() >= Backoff::LASTED {
                        backoff = Backoff::new();
                    }
                }
                Err(why) => member.failed(why),
            }
            tokio::select! {
                biased;
                () = member.redial.notified() => {}
                () = tokio::time::sleep(backoff.next()) => {}
            }
        }
    }

    /// Has a lifeline to a member while the connection to it is up.
    async fn keep_lifeline(&self, member: &Member) -> Infallible {
        let id = member.address.id;
        if let Some(lifelines) = &self.lifelines {
            let kept = async {
                let socket = stream::open(&member.address).await?;
                let (stream, _) = self.meet(member, socket, Purpose::Lifeline).await?;
                let socket = stream.into_socket().map_err(|error| error.to_string())?;
                lifelines.keep(id, socket).map_err(|error| error.to_string())
            };
            if let Err(why) = kept.await {
                tracing::info!("server {id} has no lifeline of this one: {why}");
            }
        }
        std::future::pending().await
    }

    async fn connect(&self, member: &Member) -> Result<(Stream, Identity), String> {
        let socket = tokio::select! {
            biased;
            socket = stream::open(&member.address) => socket?,
            // It is up, so there is no need to wait for an answer to an earlier attempt.
            () = member.redial.notified() => stream::open(&member.address).await?,
        };
        self.meet(member, socket, Purpose::Messages).await
    }

    /// The handshake on a connection that this server has opened.
    async fn meet(
        &self,
        member: &Member,
        socket: TcpStream,
        purpose: Purpose,
    ) -> Result<(Stream, Identity), String> {
        let PeerAddress { id, host, .. } = &member.address;
        let meeting = async {
            let mut stream = Stream::to(socket, self.tls.as_ref(), host).await?;
            let identity = hello::initiate(&mut stream, &self.local, *id, purpose).await?;
            Ok((stream, identity))
        };
        match timeout(HANDSHAKE_PATIENCE, meeting).await {
            Ok(result) => result,
            Err(_) => Err(late()),
        }
    }

    /// Runs a connection whose other side is proven, until it ends.
    async fn run(&self, member: &Rc<Member>, direction: Direction, stream: Stream, identity: Identity) {
        let id = member.address.id;
        let link = Rc::new(Link::new(direction, stream, Rc::clone(&member.inbox), Rc::clone(&member.meter)));
        if !self.is_member(member) {
            return;
        }
        self.up(member, Up { link: Rc::clone(&link), identity }, direction);
        let why = link.run(|messages| self.tell(PeerEvent::Messages(id, messages))).await;
        if member.has(direction, &link) {
            self.lose(member, direction, &why);
        }
    }

    fn up(&self, member: &Rc<Member>, up: Up, direction: Direction) {
        self.lose(member, direction, "replaced by a newer one");
        let other = direction.other();
        if member.incarnation(other).is_some_and(|known| known != up.identity.incarnation) {
            // The handshake that ended last is that of the process that lives.
            self.lose(member, other, "it leads to an earlier process of the peer");
        }
        member.links(direction).replace(Some(up));
        if member.links(Direction::To).borrow().is_none() {
            member.redial.notify_one();
        }
        if let Some(identity) = member.connect() {
            let PeerAddress { id, host, port } = &member.address;
            tracing::info!("connected with server {id} ({host} port {port}), {}", identity.software);
            self.tell(PeerEvent::Connected(*id, identity));
        }
    }

    /// Closes a connection, and if the peer was connected the other one too.
    fn lose(&self, member: &Member, direction: Direction, why: &str) {
        if !self.close(member, direction, why) {
            return;
        }
        let id = member.address.id;
        let why = match direction {
            Direction::To => format!("the connection to server {id}: {why}"),
            Direction::From => format!("the connection from server {id}: {why}"),
        };
        member.failed(why.clone());
        if member.connected_ms.take().is_some() {
            self.close(member, direction.other(), &why);
            tracing::warn!("lost {why}");
            self.tell(PeerEvent::Lost(id, why));
        }
    }

    /// Closes one connection, and the lifeline that came after it.
    fn close(&self, member: &Member, direction: Direction, why: &str) -> bool {
        let Some(up) = member.links(direction).take() else { return false };
        up.link.end(why.to_owned());
        match direction {
            Direction::From => {
                if let Some(watching) = member.watching.take() {
                    watching.abort();
                }
            }
            Direction::To => {
                if let Some(lifelines) = &self.lifelines {
                    // Should the thread be gone, so are they all.
                    let _ = lifelines.end(member.address.id);
                }
            }
        }
        true
    }

    /// Accepts connections, for ever.
    async fn accept(self: Rc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((socket, address)) => {
                    stream::prepare(&socket);
                    let number = self.accepted.get();
                    self.accepted.set(number + 1);
                    let task = self.spawn(Rc::clone(&self).greet(number, socket, address));
                    let mut unproven = self.unproven.borrow_mut();
                    unproven.insert(number, task);
                    // Whoever means it is done within milliseconds: a flood only ends itself.
                    if unproven.len() > UNPROVEN_MAX
                        && let Some((_, oldest)) = unproven.pop_first()
                    {
                        oldest.abort();
                        let why = format!("more than {UNPROVEN_MAX} that have not proven who they are");
                        self.complaints.say(&format!("a connection between servers closed: {why}"));
                    }
                }
                Err(error) => {
                    // Out of descriptors, most likely: those that are connected go on.
                    tracing::error!("a connection of another server could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Finds out who has connected, and serves it.
    async fn greet(self: Rc<Self>, number: u64, socket: TcpStream, address: SocketAddr) {
        let proven = match timeout(HANDSHAKE_PATIENCE, self.prove(socket, address)).await {
            Ok(proven) => proven,
            Err(_) => Err(late()),
        };
        self.unproven.borrow_mut().remove(&number);
        let (stream, hello, member) = match proven {
            Ok(proven) => proven,
            Err(why) => {
                self.complaints.say(&format!("connection between servers from {address} refused: {why}"));
                return;
            }
        };
        match hello.purpose {
            Purpose::Messages => self.run(&member, Direction::From, stream, hello.identity).await,
            Purpose::Snapshot => self.receive_snapshot(stream, &member),
            Purpose::Lifeline => self.watch(stream, &member, hello.identity.incarnation),
        }
    }

    /// Loses a peer when its lifeline ends; a newer one replaces an older one.
    fn watch(self: Rc<Self>, mut stream: Stream, member: &Rc<Member>, incarnation: u64) {
        if !self.is_member(member) || member.incarnation(Direction::From) != Some(incarnation) {
            return;
        }
        let (inner, peer) = (Rc::clone(&self), Rc::clone(member));
        let task = self.spawn(async move {
            // Nothing is ever sent on it, so a byte is as good a reason.
            let _ = stream.read_u8().await;
            inner.lose(&peer, Direction::From, "its process has ended");
        });
        if let Some(older) = member.watching.replace(Some(task)) {
            older.abort();
        }
    }

    async fn prove(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> Result<(Stream, Hello, Rc<Member>), String> {
        let mut stream = Stream::from(socket, self.tls.as_ref()).await?;
        let proven = async {
            let hello = hello::greeting(&mut stream, &self.local).await?;
            let id = hello.identity.id;
            let member = self.members.borrow().get(&id).cloned();
            let member = member.ok_or_else(|| format!("server {id} is no member of the ensemble"))?;
            self.check_origin(&stream, &member, address).await?;
            hello::accept(&mut stream, &self.local, &hello).await?;
            Ok::<_, String>((hello, member))
        };
        match proven.await {
            Ok((hello, member)) => Ok((stream, hello, member)),
            Err(why) => {
                hello::refuse(&mut stream, &why).await;
                Err(why)
            }
        }
    }

    /// With TLS a member must show a certificate for its host; without TLS and secret all that is
    /// known of it is where it connects from.
    async fn check_origin(&self, stream: &Stream, member: &Member, from: SocketAddr) -> Result<(), String> {
        let PeerAddress { id, host, .. } = &member.address;
        if self.tls.is_some() {
            return match stream.certifies(host)? {
                true => Ok(()),
                false => Err(format!("the certificate of server {id} is not for its host `{host}`")),
            };
        }
        if self.local.secret.is_none() && !stream::has_address(host, from.ip()).await? {
            let ip = from.ip();
            return Err(format!("server {id} connects from {ip}, which is not an address of `{host}`"));
        }
        Ok(())
    }

    /// Receives a snapshot; a newer connection replaces an older one.
    fn receive_snapshot(self: Rc<Self>, stream: Stream, member: &Rc<Member>) {
        if !self.is_member(member) {
            return;
        }
        let (inner, source) = (Rc::clone(&self), Rc::clone(member));
        let task = self.spawn(async move {
            let from = source.address.id;
            let report = |result: Result<Arrival, String>| match result {
                Ok(arrival) => inner.arrived(from, arrival),
                Err(why) => {
                    let why = format!("the snapshot of server {from} could not be received: {why}");
                    // A full disk refuses it again as often as the leader tries.
                    inner.complaints.say(&why);
                    source.failed(why);
                }
            };
            snapshot::receive(stream, from, &inner.folder, inner.place(from), report).await;
        });
        if let Some(older) = member.receiving.replace(Some(task)) {
            older.abort();
        }
    }

    fn arrived(&self, from: u64, arrival: Arrival) {
        // What others had begun to send is older now.
        for (id, place) in self.places.borrow().iter() {
            snapshot::forget(&self.folder, *id, place);
        }
        let Arrival { header, file } = arrival;
        self.tell(PeerEvent::SnapshotArrived { from, header, file });
    }
}

fn late() -> String {
    format!("the handshake took longer than {} s", HANDSHAKE_PATIENCE.as_secs())
}

/// Warnings that are repeated, or that anybody can cause: only so many in a time.
struct Complaints {
    since: Cell<Instant>,
    said: Cell<u32>,
    unsaid: Cell<u64>,
}

impl Complaints {
    fn new() -> Self {
        Self { since: Cell::new(Instant::now()), said: Cell::new(0), unsaid: Cell::new(0) }
    }

    fn say(&self, what: &str) {
        if self.since.get().elapsed() >= COMPLAINTS_PERIOD {
            self.since.set(Instant::now());
            self.said.set(0);
            let unsaid = self.unsaid.take();
            if unsaid > 0 {
                tracing::warn!(
                    "{unsaid} more times connections between servers were refused or closed, or snapshots not received"
                );
            }
        }
        if self.said.get() < COMPLAINTS_MAX {
            self.said.set(self.said.get() + 1);
            tracing::warn!("{what}");
        } else {
            self.unsaid.set(self.unsaid.get() + 1);
        }
    }
}
