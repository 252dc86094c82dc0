//! The connections between the servers of an ensemble: opaque messages, and now and then a snapshot.
//!
//! Between two servers there are two connections for messages: each sends on the one that it has
//! opened. A peer counts as connected when both are up and lead to the same process; only then are
//! messages taken and handed out. When either fails both are closed, so that what comes after
//! [`PeerEvent::Connected`] is all of one piece: everything that was sent since, in order, up to some
//! point. Snapshots have connections of their own, and one connection is there only to end when the
//! process does ([`lifeline`]).
//!
//! Each partition has connections of its own, on its own thread; what they share is the port that they
//! come in by ([`port`]), and [`Common`].
//!
//! docs/peer-protocol.md has the bytes, and who is let in.

mod below;
mod copied;
pub(crate) mod frame;
mod hello;
mod lifeline;
mod link;
mod listing;
mod member;
mod port;
mod reader_hello;
mod seek;
mod snapshot;
mod strangers;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod tie;
mod ties;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stoa_core::{ConnectionId, DiskId, Disks, Levels, Pieces, Share, Standing, Starts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

pub(crate) use hello::{Identity, Understands};
pub(crate) use link::Messages;
pub(crate) use listing::ListedReader;
pub(crate) use member::{PeerAddress, PeerStatus};
pub(crate) use port::{Callers, PeerPort};
pub(crate) use stream::PeerTls;
pub use tie::check_reader_frames;
pub(crate) use ties::{TieEvent, TieOwner, Ties};

use crate::complaints::Complaints;
use copied::Copied;
use frame::FrameKind;
use hello::{Hello, Local, Met, Purpose};
use lifeline::Lifelines;
use link::{Direction, Link, Received};
use member::{Backoff, PeerMember, Up};
use port::Caller;
use reader_hello::ReaderHello;
use snapshot::{Arrival, Place};
use strangers::Unproven;
use stream::Stream;

/// How long a connection may take to prove who speaks.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(5);

/// What the partitions of this process share when they meet the other servers.
#[derive(Clone)]
pub(crate) struct Common {
    /// Those of this server with its folder, which are durable; the present one is the last.
    starts: Starts,
    /// The others' disks, as far as they are known: each is told what is known of its own.
    pub(crate) known: watch::Sender<Disks>,
    /// By what the folder had when this process began, this server needs nobody to decide.
    decided_alone: bool,
    /// `None` where the system has no such thing.
    lifelines: Option<Arc<Lifelines>>,
    complaints: Arc<Complaints>,
    /// What the others are told of this server's history.
    standing: watch::Sender<Standing>,
    /// Where its folder is from.
    copied: Copied,
    /// The feature level that the sites use; 0 where there are none, or it is not known yet.
    level: watch::Sender<u8>,
    /// The connections with readers and with a parent.
    pub(crate) ties: Arc<Ties>,
}

impl Common {
    /// To be made once, before anything else. What an earlier process has left of snapshots in the folder
    /// is removed.
    pub(crate) fn new(
        folder: &Path,
        starts: Starts,
        standing: Standing,
        decided_alone: bool,
    ) -> Result<Self, String> {
        snapshot::clean(folder)
            .map_err(|error| format!("old snapshots in {} cannot be removed: {error}", folder.display()))?;
        let lifelines = Lifelines::start()
            .inspect_err(|error| {
                tracing::info!(
                    "should this process be killed, others notice it late: no lifelines ({error})"
                );
            })
            .ok();
        Ok(Self {
            starts,
            known: watch::channel(Disks::new()).0,
            decided_alone,
            lifelines: lifelines.map(Arc::new),
            complaints: Arc::new(Complaints::new(
                "connections between servers were refused or closed, or snapshots not received",
            )),
            standing: watch::channel(standing).0,
            copied: Copied::default(),
            level: watch::channel(0).0,
            ties: Ties::new(TieOwner::default(), Levels::OWN, (0, 0), 0).0,
        })
    }

    /// The data folder is a copy of that of a server which stood alone.
    pub(crate) fn copied_from(self, server: Option<u64>) -> Self {
        Self { copied: Copied::from(server), ..self }
    }

    /// The same with readers, or a parent.
    pub(crate) fn with_ties(self, ties: Arc<Ties>) -> Self {
        Self { ties, ..self }
    }
}

/// Who this server is, and how one of its partitions meets the others.
pub(crate) struct PeerOptions {
    /// The member that this server is.
    pub(crate) me: u64,
    /// The data folder, for the others to tell a server from one that has lost its data.
    pub(crate) disk: DiskId,
    /// The partition, and how many there are: as many on all servers.
    pub(crate) share: Share,
    /// Those who connect for this partition.
    pub(crate) callers: Callers,
    /// What it shares with the other partitions.
    pub(crate) common: Common,
    /// Proves who belongs to the ensemble; all have the same one.
    pub(crate) secret: Option<Vec<u8>>,
    /// Certificates; all have them or none.
    pub(crate) tls: Option<PeerTls>,
    /// Where snapshots arrive.
    pub(crate) folder: PathBuf,
    /// Name and version of this program, at most 64 bytes.
    pub(crate) software: String,
    /// At which feature levels it can work, if it is of one of several sites.
    pub(crate) levels: Option<Levels>,
    /// What may be sent to it.
    pub(crate) understands: Understands,
}

/// What happens between this server and the others.
#[derive(Debug)]
pub(crate) enum PeerEvent {
    /// A peer has said who it is and which history it has; it is not of this server's, so that is all.
    Met(u64, Identity),
    /// This server needs nobody to decide, by its folder, and this peer of its history knows a later start of it: the
    /// folder is an older copy, from before there were others. The connection has ended before anything was said.
    OwnFolderIsOlder(u64),
    /// A peer of this server's history can be sent to, and what it sends from now on follows.
    Connected(u64, Identity),
    /// A peer that was connected is so no more; why, and which connection failed.
    Lost(u64, String),
    /// Messages of a connected peer.
    Messages(u64, Messages),
    /// A peer has the list of servers like this; it need not be connected.
    Servers(u64, Bytes),
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
    /// Something has happened between this server and its readers, or its parent.
    Tie(TieEvent),
}

/// The connections to the other members. Dropping it closes all.
pub(crate) struct Peers {
    inner: Rc<Inner>,
}

struct Inner {
    local: Local,
    tls: Option<PeerTls>,
    common: Common,
    folder: PathBuf,
    events: UnboundedSender<PeerEvent>,
    members: RefCell<BTreeMap<u64, Rc<PeerMember>>>,
    /// The list of servers that every peer is told; empty when there is nothing to tell.
    servers: RefCell<Bytes>,
    /// Members with something queued since the last flush.
    unsent: RefCell<Vec<Rc<PeerMember>>>,
    /// What has come of each peer's snapshot; it outlives a change of the peer's address.
    places: RefCell<BTreeMap<u64, Place>>,
    /// Connections that have not proven who speaks.
    unproven: Unproven,
    /// Fetches a snapshot of the parent.
    fetching: RefCell<Option<AbortHandle>>,
    tasks: RefCell<JoinSet<()>>,
}

impl Peers {
    /// Begins to connect to the members and to be connected to; must be called on a `LocalSet`.
    pub(crate) fn start(
        options: PeerOptions,
        members: Vec<PeerAddress>,
        events: UnboundedSender<PeerEvent>,
    ) -> Self {
        let PeerOptions { me, disk, share, callers, common, secret, tls, folder, .. } = options;
        let PeerOptions { software, levels, understands, .. } = options;
        let inner = Rc::new(Inner {
            local: Local {
                me,
                disk,
                starts: common.starts.clone(),
                known: common.known.subscribe(),
                standing: common.standing.subscribe(),
                share,
                software,
                levels,
                level: common.level.subscribe(),
                understands,
                secret,
                copied: common.copied.clone(),
            },
            tls,
            common,
            folder,
            events,
            members: RefCell::default(),
            servers: RefCell::default(),
            unsent: RefCell::default(),
            places: RefCell::default(),
            unproven: Unproven::default(),
            fetching: RefCell::default(),
            tasks: RefCell::default(),
        });
        inner.spawn(Rc::clone(&inner).admit(callers));
        inner.spawn(Rc::clone(&inner).tell_standing());
        let peers = Self { inner };
        peers.set_members(members);
        peers
    }

    /// Hands out what this partition is told of readers and of a parent; where there are `parents`, it follows one of them.
    /// It takes them in their order, or the one that is near and has few readers.
    pub(crate) fn tie(
        &self,
        mut events: UnboundedReceiver<TieEvent>,
        (parents, in_order): (Vec<PeerAddress>, bool),
    ) {
        let inner = Rc::clone(&self.inner);
        self.inner.spawn(async move {
            while let Some(event) = events.recv().await {
                inner.tell(PeerEvent::Tie(event));
            }
        });
        if !parents.is_empty() {
            self.inner.spawn(Rc::clone(&self.inner).seek(parents, in_order));
        }
    }

    /// Says what may come often.
    pub(crate) fn complain(&self, what: &str) {
        self.inner.common.complaints.say(what);
    }

    /// The connections with readers, and with a parent.
    pub(crate) fn ties(&self) -> &Ties {
        &self.inner.common.ties
    }

    /// Sends a reader a snapshot; [`TieEvent::SnapshotSent`] tells the result.
    pub(crate) fn offer_snapshot(&self, to: ConnectionId, header: Bytes, file: PathBuf) {
        self.inner.spawn(Rc::clone(&self.inner).offer_snapshot(to, header, file));
    }

    /// Changes who belongs to the ensemble. Those gone are refused from now on; whose address has
    /// changed is connected to there, and until that is done by the connections that exist. This server's own entry
    /// is passed over.
    pub(crate) fn set_members(&self, members: Vec<PeerAddress>) {
        let inner = &self.inner;
        let wanted: BTreeMap<u64, PeerAddress> =
            members.into_iter().map(|address| (address.id, address)).collect();
        let gone: Vec<_> = {
            let mut members = inner.members.borrow_mut();
            members.extract_if(.., |id, _| !wanted.contains_key(id)).collect()
        };
        for (id, member) in gone {
            let why = "it is no member any more";
            inner.lose(&member, Direction::To, why);
            inner.lose(&member, Direction::From, why);
            member.stop();
            if member.sending.take().is_some() {
                inner.tell(PeerEvent::SnapshotSent { to: id, result: Err(why.to_owned()) });
            }
            snapshot::discard(&inner.incoming(id), &inner.place(id));
        }
        for (id, address) in wanted {
            if id == inner.local.me {
                continue;
            }
            let known = inner.members.borrow().get(&id).cloned();
            let member = match known {
                Some(member) if member.address() == address => continue,
                Some(member) => {
                    member.set_address(address);
                    member
                }
                None => Rc::new(PeerMember::new(address)),
            };
            inner.members.borrow_mut().insert(id, Rc::clone(&member));
            let dialer = inner.spawn(Rc::clone(inner).dial(Rc::clone(&member)));
            member.dialer.replace(Some(dialer));
        }
    }

    /// Tells every peer this list of servers, now and whenever one connects: one that was away when it changed may
    /// look for the others, and listen itself, where they are not looked for any more.
    pub(crate) fn tell_servers(&self, servers: &str) {
        let servers = Bytes::copy_from_slice(servers.as_bytes());
        if servers.len() > link::SERVERS_BYTES_MAX || *self.inner.servers.borrow() == servers {
            return;
        }
        for member in self.inner.members.borrow().values() {
            for direction in [Direction::To, Direction::From] {
                if let Some(up) = &*member.links(direction).borrow() {
                    up.link.tell_servers(servers.clone());
                }
            }
        }
        self.inner.servers.replace(servers);
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

    /// Bytes that wait to be sent to a peer.
    pub(crate) fn queued_bytes(&self, to: u64) -> usize {
        let member = self.inner.members.borrow().get(&to).cloned();
        member.and_then(|member| member.sends_on()).map_or(0, |link| link.queued_bytes())
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
        let (sender, target, began) = (Rc::clone(inner), Rc::clone(&member), Instant::now());
        let task = inner.spawn(async move {
            let result = async {
                let socket = stream::open(&target.address()).await?;
                let (stream, _) = sender.meet(&target, socket, Purpose::Snapshot).await?;
                snapshot::send(stream, &header, file).await
            };
            let result = result.await;
            target.sending.take();
            if let Ok(bytes) = &result {
                let ms = began.elapsed().as_millis();
                tracing::info!("server {to} has received a snapshot: {bytes} bytes in {ms} ms");
            }
            sender.tell(PeerEvent::SnapshotSent { to, result });
        });
        member.sending.replace(Some(task));
    }

    /// What the others are told of this server's history from now on, by all its partitions.
    pub(crate) fn set_standing(&self, standing: Standing) {
        self.inner.common.standing.send_replace(standing);
    }

    /// The feature level that the sites use: who cannot read what is of it is let in no more.
    pub(crate) fn set_level(&self, level: u8) {
        self.inner.common.level.send_if_modified(|known| std::mem::replace(known, level) != level);
    }

    /// Whether a peer knows a later start of this server than its folder has: then that is an older copy.
    pub(crate) fn is_older_than_known(&self, by: &Identity) -> bool {
        self.inner.local.is_older_than_known(by)
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

/// Who has connected, once that is proven.
enum Who {
    Member(Hello, Rc<PeerMember>),
    Reader(ReaderHello),
    /// A member with which there is nothing more to say for now.
    Nobody,
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

    /// The name under which a whole snapshot of a peer is found.
    fn incoming(&self, from: u64) -> PathBuf {
        self.folder.join(snapshot::whole_name(from, self.partition()))
    }

    fn partition(&self) -> u8 {
        self.local.share.partition
    }

    fn is_member(&self, member: &Rc<PeerMember>) -> bool {
        self.members.borrow().get(&member.id).is_some_and(|known| Rc::ptr_eq(known, member))
    }

    /// Meets all members at once when this server has something else to say of its history, for ever.
    async fn tell_standing(self: Rc<Self>) {
        let mut standing = self.local.standing.clone();
        while standing.changed().await.is_ok() {
            self.members.borrow().values().for_each(|member| member.redial.notify_one());
        }
    }

    /// A member is proven. Whether there is more to say: it is of this server's history, and this one is what it was. If
    /// not, it was met, and the connection ends.
    fn acquaint(&self, met: &Met) -> bool {
        let (is_same, id) = (met.is_of_one_history(), met.identity.id);
        let is_older = is_same && self.common.decided_alone && self.local.is_older_than_known(&met.identity);
        match (is_same, is_older) {
            (true, false) => {
                if self.common.copied.has_met(id) {
                    tracing::info!("what the data folder has is the beginning of what server {id} has");
                    self.common.standing.send_modify(|_| ());
                }
                return true;
            }
            (true, true) => self.tell(PeerEvent::OwnFolderIsOlder(id)),
            _ if self.partition() == 0 => self.tell(PeerEvent::Met(id, met.identity.clone())),
            _ => {}
        }
        false
    }

    /// Keeps the connection to a member, for as long as its address is the same.
    async fn dial(self: Rc<Self>, member: Rc<PeerMember>) {
        let (mut backoff, moves) = (Backoff::new(), member.moves.get());
        while member.moves.get() == moves {
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
    async fn keep_lifeline(&self, member: &PeerMember) -> Infallible {
        let id = member.id;
        if let Some(lifelines) = &self.common.lifelines {
            let kept = async {
                let socket = stream::open(&member.address()).await?;
                let (stream, _) = self.meet(member, socket, Purpose::Lifeline).await?;
                let socket = stream.into_socket().map_err(|error| error.to_string())?;
                lifelines.keep((self.partition(), id), socket).map_err(|error| error.to_string())
            };
            if let Err(why) = kept.await {
                tracing::info!("server {id} has no lifeline of this one: {why}");
            }
        }
        std::future::pending().await
    }

    async fn connect(&self, member: &PeerMember) -> Result<(Stream, Identity), String> {
        let address = member.address();
        let socket = tokio::select! {
            biased;
            socket = stream::open(&address) => socket?,
            // It is up, so there is no need to wait for an answer to an earlier attempt.
            () = member.redial.notified() => stream::open(&address).await?,
        };
        self.meet(member, socket, Purpose::Messages).await
    }

    /// The handshake on a connection that this server has opened.
    async fn meet(
        &self,
        member: &PeerMember,
        mut socket: TcpStream,
        purpose: Purpose,
    ) -> Result<(Stream, Identity), String> {
        let PeerAddress { id, host, .. } = &member.address();
        let meeting = async {
            let said = socket.write_u8(self.partition()).await;
            said.map_err(|error| format!("the connection broke: {error}"))?;
            let mut stream = Stream::to(socket, self.tls.as_ref(), host).await?;
            let met = hello::initiate(&mut stream, &self.local, *id, purpose).await?;
            if self.acquaint(&met) { Ok((stream, met.identity)) } else { Err(met.why_not().to_owned()) }
        };
        match timeout(HANDSHAKE_PATIENCE, meeting).await {
            Ok(result) => result,
            Err(_) => Err(late()),
        }
    }

    /// Runs a connection whose other side is proven, until it ends.
    async fn run(&self, member: &Rc<PeerMember>, direction: Direction, stream: Stream, identity: Identity) {
        let id = member.id;
        let link = Rc::new(Link::new(direction, stream, Rc::clone(&member.window), Rc::clone(&member.meter)));
        if !self.is_member(member) {
            return;
        }
        self.up(member, Up { link: Rc::clone(&link), identity }, direction);
        let servers = self.servers.borrow().clone();
        if !servers.is_empty() {
            link.tell_servers(servers);
        }
        let received = |received| {
            self.tell(match received {
                Received::Messages(messages) => PeerEvent::Messages(id, messages),
                Received::Servers(servers) => PeerEvent::Servers(id, servers),
            });
        };
        let why = link.run(received).await;
        if member.has(direction, &link) {
            self.lose(member, direction, &why);
        }
    }

    fn up(&self, member: &Rc<PeerMember>, up: Up, direction: Direction) {
        self.lose(member, direction, "replaced by a newer one");
        let other = direction.other();
        if member.incarnation(other).is_some_and(|known| known != up.identity.incarnation()) {
            // The handshake that ended last is that of the process that lives.
            self.lose(member, other, "it leads to an earlier process of the peer");
        }
        let takes_turns = member.takes_turns(up.identity.incarnation());
        member.links(direction).replace(Some(up));
        if takes_turns {
            let why = format!(
                "two processes take turns as server {}, from different places or on the same machine: see server-id \
                 (or myid) of both",
                member.id
            );
            self.common.complaints.say(&why);
            member.failed(why);
        }
        if member.links(Direction::To).borrow().is_none() {
            member.redial.notify_one();
        }
        if let Some(identity) = member.connect() {
            let PeerAddress { id, host, port } = &member.address();
            tracing::info!("connected with server {id} ({host} port {port}), {}", identity.software);
            self.tell(PeerEvent::Connected(*id, identity));
        }
    }

    /// Closes a connection, and if the peer was connected the other one too.
    fn lose(&self, member: &PeerMember, direction: Direction, why: &str) {
        if !self.close(member, direction, why) {
            return;
        }
        let id = member.id;
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
    fn close(&self, member: &PeerMember, direction: Direction, why: &str) -> bool {
        let Some(up) = member.links(direction).take() else { return false };
        up.link.end(why.to_owned());
        match direction {
            Direction::From => {
                if let Some(watching) = member.watching.take() {
                    watching.abort();
                }
            }
            Direction::To => {
                if let Some(lifelines) = &self.common.lifelines {
                    // Should the thread be gone, so are they all.
                    let _ = lifelines.end((self.partition(), member.id));
                }
            }
        }
        true
    }

    /// Takes connections that were accepted for this partition, for ever.
    async fn admit(self: Rc<Self>, mut callers: Callers) {
        while let Some(Caller { socket, address }) = callers.recv().await {
            match TcpStream::from_std(socket) {
                Ok(socket) => self.unproven.take(&self.common.complaints, |number| {
                    self.spawn(Rc::clone(&self).greet(number, socket, address))
                }),
                Err(error) => {
                    tracing::error!("the connection of another server from {address} is lost: {error}");
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
        self.unproven.done(number);
        let (stream, hello, member) = match proven {
            Ok((stream, Who::Member(hello, member))) => (stream, hello, member),
            Ok((stream, Who::Reader(hello))) => return self.serve_reader(stream, hello, address).await,
            Ok((_, Who::Nobody)) => return,
            Err(why) => {
                self.common
                    .complaints
                    .say(&format!("connection between servers from {address} refused: {why}"));
                return;
            }
        };
        match hello.purpose {
            Purpose::Messages => self.run(&member, Direction::From, stream, hello.identity).await,
            Purpose::Snapshot => self.receive_snapshot(stream, &member),
            Purpose::Lifeline => self.watch(stream, &member, hello.identity.incarnation()),
        }
    }

    /// Loses a peer when its lifeline ends; a newer one replaces an older one.
    fn watch(self: Rc<Self>, mut stream: Stream, member: &Rc<PeerMember>, incarnation: u64) {
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

    /// Who has connected, for which purpose.
    async fn prove(&self, socket: TcpStream, address: SocketAddr) -> Result<(Stream, Who), String> {
        let mut socket = socket;
        if let Err(why) = stream::check_tls(&socket, self.tls.is_some()).await {
            if self.tls.is_some() {
                // Without TLS it can read that, and would not know what to make of an alert.
                hello::refuse(&mut socket, &why).await;
            }
            return Err(why);
        }
        let mut stream = Stream::from(socket, self.tls.as_ref()).await?;
        let proven = async {
            let bytes = hello::receive(&mut stream, FrameKind::Hello).await?;
            if reader_hello::is_of_reader(&bytes) {
                let sides = (&self.local, &*self.common.ties);
                if self.local.standing.borrow().history().is_none() {
                    // All servers may have been started together.
                    hello::refuse(&mut stream, &format!("it {}", reader_hello::NO_ENSEMBLE)).await;
                    return Ok(Who::Nobody);
                }
                let answered = reader_hello::answer(&mut stream, sides, bytes).await;
                return answered.map(Who::Reader).inspect_err(|_| self.common.ties.count_refused());
            }
            let hello = hello::greeting_of(bytes, &self.local)?;
            let id = hello.identity.id;
            let member = self.members.borrow().get(&id).cloned();
            let member = member.ok_or_else(|| not_listed(id))?;
            self.check_origin(&stream, &member, address).await?;
            let met = hello::accept(&mut stream, &self.local, &hello).await?;
            Ok::<_, String>(match self.acquaint(&met) {
                true => Who::Member(hello, member),
                false => Who::Nobody,
            })
        };
        match proven.await {
            Ok(who) => Ok((stream, who)),
            Err(why) => {
                hello::refuse(&mut stream, &why).await;
                Err(why)
            }
        }
    }

    /// With TLS a member must show a certificate for its host; without TLS and secret all that is
    /// known of it is where it connects from.
    async fn check_origin(
        &self,
        stream: &Stream,
        member: &PeerMember,
        from: SocketAddr,
    ) -> Result<(), String> {
        let PeerAddress { id, host, .. } = &member.address();
        if self.tls.is_some() {
            return match stream.certifies(host)? {
                true => Ok(()),
                false => Err(format!(
                    "the certificate of server {id} is not for its host `{host}`: get one that is, or change the \
                     address in servers"
                )),
            };
        }
        if self.local.secret.is_none() && !stream::has_address(host, from.ip()).await? {
            let ip = from.ip();
            return Err(format!(
                "server {id} connects from {ip}, which is not an address of `{host}`: set peer-secret, or certificates, on \
                 all servers, or change the address in servers"
            ));
        }
        Ok(())
    }

    /// Receives a snapshot; a newer connection replaces an older one.
    fn receive_snapshot(self: Rc<Self>, stream: Stream, member: &Rc<PeerMember>) {
        if !self.is_member(member) {
            return;
        }
        let (inner, source, began) = (Rc::clone(&self), Rc::clone(member), Instant::now());
        let task = self.spawn(async move {
            let from = source.id;
            let report = |result: Result<Arrival, String>| match result {
                Ok(arrival) => {
                    let (bytes, ms) = (arrival.bytes, began.elapsed().as_millis());
                    tracing::info!("a snapshot has come from server {from}: {bytes} bytes in {ms} ms");
                    inner.arrived(from, arrival);
                }
                Err(why) => {
                    let why = format!("the snapshot of server {from} could not be received: {why}");
                    // A full disk refuses it again as often as the leader tries.
                    inner.common.complaints.say(&why);
                    source.failed(why);
                }
            };
            let name = format!("server {from}");
            snapshot::receive(stream, &name, inner.incoming(from), inner.place(from), report).await;
        });
        if let Some(older) = member.receiving.replace(Some(task)) {
            older.abort();
        }
    }

    fn arrived(&self, from: u64, arrival: Arrival) {
        // What others had begun to send is older now.
        for (id, place) in self.places.borrow().iter() {
            snapshot::forget(&self.incoming(*id), place);
        }
        let Arrival { header, file, .. } = arrival;
        self.tell(PeerEvent::SnapshotArrived { from, header, file });
    }
}

/// Of a server that is not in the list of the one that it has connected to.
pub(crate) const NOT_LISTED: &str = "is no member of the ensemble";

fn not_listed(id: u64) -> String {
    format!("server {id} {NOT_LISTED}: name it in servers here, and add it by reconfig if it is new")
}

fn late() -> String {
    format!("the handshake took longer than {} s", HANDSHAKE_PATIENCE.as_secs())
}
