//! TLS handshakes of clients, on threads of their own.
//!
//! A signature with an RSA key takes longer than a hundred requests, and after a failure of the network everybody
//! comes back at once. So partitions' threads never see a handshake: they are given sockets on which it is done. The
//! threads here step back where there are fewer cores than threads, and what waits for them is bounded.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ServerConnection;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Terms;
use crate::farewell::Farewells;
use crate::priority;

/// The threads.
const THREADS: usize = 2;

/// A handshake that is done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) socket: std::net::TcpStream,
    pub(super) tls: ServerConnection,
}

/// Why there was none.
#[derive(Debug)]
pub(super) enum Failed {
    /// It took too long.
    Late,
    /// The other side, or the connection to it, is at fault.
    Error(io::Error),
}

struct Job {
    socket: std::net::TcpStream,
    terms: Terms,
    answer: oneshot::Sender<Result<Done, Failed>>,
    /// Its place, until it is over.
    _place: HandshakePlace,
}

/// The threads, and how many handshakes they have.
#[derive(Debug)]
pub(super) struct Handshakes {
    threads: Vec<UnboundedSender<Job>>,
    turn: AtomicUsize,
    room: Arc<HandshakeRoom>,
    /// Of those who have said nothing yet, be it that they will begin with TLS or not, or whose turn it is not yet: as
    /// many of one address as it may have connections. They take no place from handshakes, nor those from them.
    silent: Arc<HandshakeRoom>,
}

impl Handshakes {
    /// Starts the threads; they end when this is dropped. No handshake takes longer than `patience`; there are at most
    /// `max` at a time, and `max_per_address` of one address, where these are not 0.
    pub(super) fn start(
        patience: Duration,
        (max, max_per_address): (usize, usize),
        farewells: &Arc<Farewells>,
    ) -> io::Result<Self> {
        let start = |number: usize| {
            let (jobs_in, jobs) = unbounded_channel();
            let farewells = Arc::clone(farewells);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            std::thread::Builder::new().name(format!("tls-{number}")).spawn(move || {
                priority::step_back();
                LocalSet::new().block_on(&runtime, work_off(jobs, patience, farewells));
            })?;
            Ok(jobs_in)
        };
        let threads = (0..THREADS).map(start).collect::<io::Result<_>>()?;
        let room = |max| Arc::new(HandshakeRoom { max, max_per_address, under_way: Mutex::default() });
        Ok(Self { threads, turn: AtomicUsize::new(0), room: room(max), silent: room(0) })
    }

    /// How many are under way.
    pub(super) fn under_way(&self) -> usize {
        self.room.lock().all
    }

    /// A place for somebody who has connected and said nothing; `None` when there is none left.
    pub(super) fn silent_place(&self, address: SocketAddr) -> Option<HandshakePlace> {
        self.silent.take(address.ip())
    }

    /// A place for a handshake; `None` when there is none left.
    pub(super) fn place(&self, address: SocketAddr) -> Option<HandshakePlace> {
        self.room.take(address.ip())
    }

    /// Begins a handshake on an accepted socket; what is returned waits for it.
    pub(super) fn begin(
        &self,
        place: HandshakePlace,
        terms: Terms,
        socket: TcpStream,
    ) -> impl Future<Output = Result<Done, Failed>> + use<> {
        let (answer, answered) = oneshot::channel();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let begun = socket.into_std().map(|socket| {
            // A thread that is gone has taken the answer with it.
            let _ = self.threads[turn].send(Job { socket, terms, answer, _place: place });
        });
        async move {
            begun.map_err(Failed::Error)?;
            answered.await.unwrap_or_else(|_| Err(Failed::Error(io::ErrorKind::BrokenPipe.into())))
        }
    }
}

async fn work_off(mut jobs: UnboundedReceiver<Job>, patience: Duration, farewells: Arc<Farewells>) {
    while let Some(job) = jobs.recv().await {
        let farewells = Arc::clone(&farewells);
        tokio::task::spawn_local(async move {
            let Job { socket, terms, answer, _place } = job;
            let done = timeout(patience, handshake(socket, terms, &farewells)).await;
            let done = done.unwrap_or(Err(Failed::Late));
            // Nobody waits for it any more when the server stops.
            let _ = answer.send(done);
        });
    }
}

async fn handshake(
    socket: std::net::TcpStream,
    terms: Terms,
    farewells: &Arc<Farewells>,
) -> Result<Done, Failed> {
    let socket = TcpStream::from_std(socket).map_err(Failed::Error)?;
    // It was told why, which it only reads if the connection is not reset.
    let fail = |error, socket| {
        let farewell = farewells.begin(0, Arc::default());
        tokio::task::spawn_local(async move { farewell.say(&socket, &[]).await });
        Err(Failed::Error(error))
    };
    let acceptor = TlsAcceptor::from(Arc::clone(&terms.config));
    let (socket, tls) = match acceptor.accept(socket).into_fallible().await {
        Ok(stream) => stream.into_inner(),
        Err((error, socket)) => return fail(error, socket),
    };
    if let Err(error) = terms.check_resumed(&tls) {
        return fail(io::Error::other(error), socket);
    }
    let socket = socket.into_std().map_err(Failed::Error)?;
    Ok(Done { socket, tls })
}

/// Where handshakes are counted that are under way.
#[derive(Debug)]
struct HandshakeRoom {
    max: usize,
    max_per_address: usize,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One of them; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct HandshakePlace {
    room: Arc<HandshakeRoom>,
    address: IpAddr,
}

impl HandshakeRoom {
    fn lock(&self) -> std::sync::MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, address: IpAddr) -> Option<HandshakePlace> {
        let mut under_way = self.lock();
        let of_address = under_way.by_address.get(&address).copied().unwrap_or(0);
        let is_full = |count, max| max != 0 && count >= max;
        if is_full(under_way.all, self.max) || is_full(of_address, self.max_per_address) {
            return None;
        }
        under_way.all += 1;
        *under_way.by_address.entry(address).or_default() += 1;
        Some(HandshakePlace { room: Arc::clone(self), address })
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        let mut under_way = self.room.lock();
        under_way.all -= 1;
        if let Some(count) = under_way.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                under_way.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let room = Arc::new(HandshakeRoom { max: 3, max_per_address: 2, under_way: Mutex::default() });
        let take = |last: u8| room.take(IpAddr::from([10, 0, 0, last]));
        let (first, _second) = (take(1).unwrap(), take(1).unwrap());
        assert!(take(1).is_none(), "too many of one address");
        let _third = take(2).unwrap();
        assert!(take(3).is_none(), "too many in all");
        drop(first);
        assert!(take(3).is_some());
        assert_eq!(room.lock().by_address.len(), 2);
    }
}
