//! Links: a listener, its connections, and what can be done to them.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::line::Wire;
use crate::pump::pump;
use crate::{Nanos, Quality, Spec};

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From who has connected to the link.
    Up,
    /// To who has connected to the link.
    Down,
}

/// What is done to a link, which all its tasks watch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    pub(crate) cut: [bool; 2],
    /// How often all connections were broken.
    breaks: u64,
    is_closed: bool,
}

/// Waits until the state is one that is looked for. Whoever waits keeps it from ending before.
async fn until(state: &mut watch::Receiver<State>, is_it: impl FnMut(&State) -> bool) {
    let _ = state.wait_for(is_it).await;
}

/// What the tasks of a link share.
#[derive(Debug)]
pub(crate) struct Shared {
    began: Instant,
    wires: [Mutex<Wire>; 2],
    state: watch::Sender<State>,
    connections: AtomicUsize,
}

impl Shared {
    fn wire(&self, direction: Direction) -> MutexGuard<'_, Wire> {
        // Nothing can panic half way in there.
        self.wires[direction as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(crate) fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }

    pub(crate) fn quality(&self, direction: Direction) -> Quality {
        self.wire(direction).quality()
    }

    fn round_trip(&self) -> Duration {
        self.quality(Direction::Up).delay + self.quality(Direction::Down).delay
    }

    pub(crate) fn carry(&self, direction: Direction, bytes: usize) -> Nanos {
        let round_trip = self.round_trip();
        self.wire(direction).carry(self.now(), bytes, round_trip)
    }

    pub(crate) fn open_at(&self, direction: Direction) -> Nanos {
        self.wire(direction).open_at()
    }

    /// When the first byte of a connection that is made now can arrive. Who connects knows at once that it is
    /// connected, because the system says so; behind a real link that would take a round trip, and so its first bytes
    /// are later by one.
    pub(crate) fn opening(&self, direction: Direction) -> Nanos {
        match direction {
            Direction::Up => {
                self.now() + (self.round_trip() + self.quality(direction).delay).as_nanos() as Nanos
            }
            Direction::Down => 0,
        }
    }
}

/// A relay that listens at one address and connects to another one. It ends when it is dropped.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    address: SocketAddr,
    listening: Option<JoinHandle<()>>,
}

impl Link {
    /// Listens. To be called in a tokio runtime, in which the link works from then on.
    ///
    /// # Errors
    /// When it cannot listen there, or no link can be like that.
    pub async fn open(spec: &Spec) -> io::Result<Self> {
        let check = spec.up.check().and_then(|()| spec.down.check());
        check.map_err(|problem| io::Error::new(io::ErrorKind::InvalidInput, problem))?;
        let listener = TcpListener::bind(&spec.listen).await?;
        let address = listener.local_addr()?;
        let wires = [Mutex::new(Wire::new(spec.up, 1)), Mutex::new(Wire::new(spec.down, 2))];
        let (state, _) = watch::channel(State::default());
        let shared =
            Arc::new(Shared { began: Instant::now(), wires, state, connections: AtomicUsize::new(0) });
        let listening = tokio::spawn(listen(Arc::clone(&shared), listener, spec.to.clone()));
        Ok(Self { shared, address, listening: Some(listening) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a direction like that, for what is sent from now on.
    ///
    /// # Errors
    /// When no link can be like that.
    pub fn set(&self, direction: Direction, quality: Quality) -> Result<(), String> {
        quality.check()?;
        self.shared.wire(direction).set(quality);
        // Who waits for room in front of the link looks again.
        self.shared.state.send_modify(|_| {});
        Ok(())
    }

    /// Holds back all that is sent in a direction, and what is under way, as if it was lost until that is healed.
    /// Nobody is told: connections stay, and new ones wait until both directions are whole.
    pub fn cut(&self, direction: Direction) {
        self.shared.state.send_modify(|state| state.cut[direction as usize] = true);
    }

    /// Lets everything go again that was held back.
    pub fn heal(&self) {
        self.heal_one(Direction::Up);
        self.heal_one(Direction::Down);
    }

    /// Lets everything go again that was held back in a direction.
    pub fn heal_one(&self, direction: Direction) {
        self.shared.state.send_modify(|state| state.cut[direction as usize] = false);
    }

    /// Closes all connections at both ends, and loses what is under way.
    pub fn break_connections(&self) {
        self.shared.state.send_modify(|state| state.breaks += 1);
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Ends it, and waits until its port and all connections are closed.
    pub async fn close(mut self) {
        self.shared.state.send_modify(|state| state.is_closed = true);
        if let Some(listening) = self.listening.take() {
            // A task that was cancelled with its runtime has ended too.
            let _ = listening.await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.state.send_modify(|state| state.is_closed = true);
    }
}

async fn listen(shared: Arc<Shared>, listener: TcpListener, to: String) {
    let mut state = shared.state();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = until(&mut state, |state| state.is_closed) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(connect(Arc::clone(&shared), client, to.clone()));
                }
                // Too many files, or a client that is gone again: others may come.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        shared.connections.store(connections.len(), Ordering::Relaxed);
    }
    connections.shutdown().await;
}

/// Carries a connection to its end. What goes wrong with one side ends the other one too.
async fn connect(shared: Arc<Shared>, client: TcpStream, to: String) -> io::Result<()> {
    let mut state = shared.state();
    let breaks = state.borrow().breaks;
    let mut own = shared.state();
    let carried = async {
        until(&mut own, |state| state.cut == [false; 2]).await;
        let server = TcpStream::connect(to).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let up = pump(Arc::clone(&shared), Direction::Up, from_client, to_server);
        let down = pump(Arc::clone(&shared), Direction::Down, from_server, to_client);
        tokio::try_join!(up, down).map(|_| ())
    };
    tokio::select! {
        result = carried => result,
        () = until(&mut state, |state| state.breaks != breaks) => Ok(()),
    }
}
