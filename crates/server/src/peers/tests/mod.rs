//! Servers that meet over real sockets of this machine.

mod admission;
mod lifelines;
mod messages;
mod partitions;
mod proxy;
mod readers;
mod snapshots;

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use stoa_core::{Disks, HistoryId, Share, Standing, Starts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::timeout;

use super::copied::Copied;
use super::hello::{self, Local, Purpose};
use super::{
    Common, Identity, PeerAddress, PeerEvent, PeerOptions, PeerPort, PeerStatus, PeerTls, Peers, Understands,
    stream,
};
use crate::listen::{Bound, Listener};

/// All servers are of this history.
const OF_ONE: Standing = Standing::Has(HistoryId([1; 16]));
/// Whatever takes longer does not happen.
const PATIENCE: Duration = Duration::from_secs(8);

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

fn bind() -> std::net::TcpListener {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn address(id: u64, socket: SocketAddr) -> PeerAddress {
    PeerAddress { id, host: socket.ip().to_string(), port: socket.port() }
}

/// What differs from a server without secret and certificates.
#[derive(Clone, Default)]
struct Setup {
    secret: Option<&'static str>,
    tls: Option<PeerTls>,
}

/// A server's port, which is open as long as this lives.
struct Open(AbortHandle);

impl Open {
    fn new(port: PeerPort, socket: std::net::TcpListener) -> Self {
        let address = socket.local_addr().unwrap();
        let listener = Listener::new(Bound { socket, address }, 64).unwrap();
        Self(tokio::task::spawn_local(port.open(listener)).abort_handle())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A server, or one of the partitions of one.
struct Server {
    id: u64,
    peers: Peers,
    events: RefCell<UnboundedReceiver<PeerEvent>>,
    folder: Rc<tempfile::TempDir>,
    port: Rc<Open>,
}

impl Server {
    fn start(id: u64, listener: std::net::TcpListener, members: Vec<PeerAddress>, setup: &Setup) -> Self {
        Self::partitions(id, 1, listener, &members, setup).pop().unwrap()
    }

    /// A server with so many partitions.
    fn partitions(
        id: u64,
        count: u8,
        listener: std::net::TcpListener,
        members: &[PeerAddress],
        setup: &Setup,
    ) -> Vec<Self> {
        let folder = Rc::new(tempfile::tempdir().unwrap());
        let starts = started(u64::from_ne_bytes(crate::random::bytes().unwrap()));
        let common = Common::new(folder.path(), starts, OF_ONE, false).unwrap();
        let (port, callers) = PeerPort::new(count, &common);
        let port = Rc::new(Open::new(port, listener));
        let start = |(partition, callers)| {
            let (events_in, events) = unbounded_channel();
            let options = PeerOptions {
                me: id,
                disk: [u8::try_from(id).unwrap(); 16],
                share: Share { partition, partitions: count },
                callers,
                common: common.clone(),
                secret: setup.secret.map(|secret| secret.as_bytes().to_vec()),
                tls: setup.tls.clone(),
                folder: folder.path().to_owned(),
                software: format!("stoa test {id}"),
                levels: None,
                understands: Understands::default(),
            };
            let peers = Peers::start(options, members.to_vec(), events_in);
            Self { id, peers, events: RefCell::new(events), folder: folder.clone(), port: port.clone() }
        };
        (0..).zip(callers).map(start).collect()
    }

    async fn event(&self) -> PeerEvent {
        let next = poll_fn(|context| self.events.borrow_mut().poll_recv(context));
        let event = timeout(PATIENCE, next).await;
        event
            .unwrap_or_else(|_| panic!("nothing happens at server {}: {:?}", self.id, self.peers.status()))
            .unwrap()
    }

    /// The next event must be a connection.
    async fn connected(&self) -> Identity {
        match self.event().await {
            PeerEvent::Connected(id, identity) => {
                assert_eq!(id, identity.id);
                identity
            }
            other => panic!("server {}: {other:?}", self.id),
        }
    }

    /// The next event, messages apart, must be the loss of a peer.
    async fn lost(&self) -> (u64, String) {
        loop {
            match self.event().await {
                PeerEvent::Lost(id, why) => return (id, why),
                PeerEvent::Messages(..) => {}
                other => panic!("server {}: {other:?}", self.id),
            }
        }
    }

    /// The next `count` messages, with their senders.
    async fn messages(&self, count: usize) -> Vec<(u64, Bytes)> {
        let mut got = Vec::new();
        while got.len() < count {
            match self.event().await {
                PeerEvent::Messages(from, messages) => {
                    got.extend(messages.list.iter().map(|message| (from, message.clone())));
                }
                other => panic!("server {}: {other:?}", self.id),
            }
        }
        assert_eq!(got.len(), count);
        got
    }

    fn say(&self, to: u64, message: &'static [u8]) -> bool {
        let sent = self.peers.send(to, Bytes::from_static(message).into());
        self.peers.flush();
        sent
    }

    fn status(&self, of: u64) -> PeerStatus {
        self.peers.status().into_iter().find(|status| status.address.id == of).unwrap()
    }

    /// Waits until something is so.
    async fn until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..PATIENCE.as_millis() / 5 {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it does not come so: {:?}", self.peers.status());
    }

    /// Stops, and gives the port back.
    async fn stop(self) {
        drop((self.peers, self.port));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Servers 1, 2, ... that know one another.
fn ensemble(count: u64, setup: &Setup) -> Vec<Server> {
    let listeners: Vec<_> = (1..=count).map(|id| (id, bind())).collect();
    let members: Vec<_> =
        listeners.iter().map(|(id, listener)| address(*id, listener.local_addr().unwrap())).collect();
    let start = |(id, listener)| Server::start(id, listener, members.clone(), setup);
    listeners.into_iter().map(start).collect()
}

/// The starts of a server of which this is the first and the only one.
fn started(id: u64) -> Starts {
    Starts::default().and(id)
}

/// A peer whose bytes are made by hand.
struct Puppet {
    local: Local,
    listener: TcpListener,
}

impl Puppet {
    fn new(id: u64, secret: Option<&str>) -> Self {
        let listener = bind();
        listener.set_nonblocking(true).unwrap();
        Self {
            local: Local {
                me: id,
                disk: [0; 16],
                starts: started(1),
                known: watch::channel(Disks::new()).1,
                standing: watch::channel(OF_ONE).1,
                share: Share::WHOLE,
                software: "puppet".into(),
                levels: None,
                understands: Understands::default(),
                level: watch::channel(0).1,
                secret: secret.map(|secret| secret.as_bytes().to_vec()),
                copied: Copied::default(),
            },
            listener: TcpListener::from_std(listener).unwrap(),
        }
    }

    fn address(&self) -> PeerAddress {
        address(self.local.me, self.listener.local_addr().unwrap())
    }

    async fn connect(&self, to: &PeerAddress, purpose: Purpose) -> Result<TcpStream, String> {
        let mut socket = TcpStream::connect((to.host.as_str(), to.port)).await.unwrap();
        stream::prepare(&socket);
        socket.write_u8(self.local.share.partition).await.unwrap();
        hello::initiate(&mut socket, &self.local, to.id, purpose).await?;
        Ok(socket)
    }

    /// The next connection for messages. Lifelines in between get no answer.
    async fn accept(&self) -> TcpStream {
        loop {
            let (mut socket, _) = timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap();
            stream::prepare(&socket);
            assert_eq!(socket.read_u8().await.unwrap(), self.local.share.partition);
            let Ok(hello) = hello::greeting(&mut socket, &self.local).await else { continue };
            if hello.purpose == Purpose::Messages {
                hello::accept(&mut socket, &self.local, &hello).await.unwrap();
                return socket;
            }
        }
    }
}

/// Server 1, and a puppet that plays server 2 and is connected: to it and from it.
async fn with_puppet() -> (Server, PeerAddress, Puppet, TcpStream, TcpStream) {
    let puppet = Puppet::new(2, None);
    let listener = bind();
    let target = address(1, listener.local_addr().unwrap());
    let server = Server::start(1, listener, vec![puppet.address()], &Setup::default());
    let from_server = puppet.accept().await;
    let to_server = puppet.connect(&target, Purpose::Messages).await.unwrap();
    server.connected().await;
    (server, target, puppet, to_server, from_server)
}
