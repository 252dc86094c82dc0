//! Connections of admin HTTP, with bounds on what any of them can take.
//!
//! One request a connection, a few connections at a time, short and few headers, no body worth
//! mentioning, and a deadline: for the request until there is a reply, and then whenever the other side has taken
//! something of that. How much may wait for slow readers is bounded by [`Farewells`].

use std::collections::HashMap;
use std::io;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{DefaultBodyLimit, Extension};
use axum::middleware::map_response;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::tls::{AdminTls, Duplex, NO_TLS, Refused, Shown};
use crate::farewell::{Farewell, Farewells};

/// Connections at a time. For one more somebody is given up who does not read what he has asked for, or it waits.
const CONNECTIONS_MAX: usize = 128;
/// Connections of one address at a time; more are closed. Somebody who holds on to all of his does not
/// keep others out.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 32;
/// Time for the headers to arrive.
const HEADER_TIME: Duration = Duration::from_secs(5);
/// Time for a whole request until there is a reply.
const REQUEST_TIME: Duration = Duration::from_secs(20);
const HEADER_BYTES_MAX: usize = 16 << 10;
/// No request here has a body that is looked at.
const BODY_BYTES_MAX: usize = 1 << 10;
/// Between two attempts when no connection can be accepted, for want of file descriptors mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When a connection is closed, whatever it is doing. A handler that has work to wait for can put it
/// off.
#[derive(Clone)]
pub(super) struct Deadline(Arc<watch::Sender<Instant>>);

impl Deadline {
    fn new(time: Duration) -> (Deadline, watch::Receiver<Instant>) {
        let (sender, receiver) = watch::channel(Instant::now() + time);
        (Deadline(Arc::new(sender)), receiver)
    }

    /// Sets it this far from now.
    pub(super) fn put_off(&self, time: Duration) {
        // Nobody listens when the connection is gone.
        let _ = self.0.send(Instant::now() + time);
    }
}

/// Returns at the deadline, however often it is put off.
async fn reached(mut deadline: watch::Receiver<Instant>) {
    loop {
        let at = *deadline.borrow_and_update();
        tokio::select! {
            () = tokio::time::sleep_until(at) => return,
            changed = deadline.changed() => if changed.is_err() {
                tokio::time::sleep_until(at).await;
                return;
            },
        }
    }
}

/// What is served on a port, and how.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) router: Router,
    pub(super) pages: Arc<Farewells>,
    /// Where it has TLS.
    pub(super) tls: Option<Arc<AdminTls>>,
}

/// Accepts and serves connections, for as long as the process runs.
pub(super) async fn serve(listener: TcpListener, mut serving: Serving) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("no admin HTTP: {error}");
            return;
        }
    };
    serving.router = serving.router.layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut by_address: HashMap<IpAddr, Weak<Semaphore>> = HashMap::new();
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                let Some(own_slot) = slot_of_address(&mut by_address, peer.ip()) else {
                    tracing::debug!("admin HTTP: {peer}: too many connections from this address");
                    continue;
                };
                if slots.available_permits() == 0 {
                    serving.pages.make_room();
                }
                let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
                let serving = serving.clone();
                tokio::spawn(async move {
                    connection(socket, peer, serving, REQUEST_TIME).await;
                    drop((slot, own_slot));
                });
            }
            Err(error) => {
                tracing::debug!("admin HTTP: a connection cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A slot of those that an address has, if one is free. What is kept of an address goes with the last
/// of its connections.
fn slot_of_address(
    by_address: &mut HashMap<IpAddr, Weak<Semaphore>>,
    address: IpAddr,
) -> Option<OwnedSemaphorePermit> {
    let slots = by_address.get(&address).and_then(Weak::upgrade).unwrap_or_else(|| {
        by_address.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(CONNECTIONS_PER_ADDRESS_MAX));
        by_address.insert(address, Arc::downgrade(&slots));
        slots
    });
    slots.try_acquire_owned().ok()
}

async fn connection(socket: TcpStream, peer: SocketAddr, serving: Serving, request_time: Duration) {
    let Serving { router, pages, tls } = serving;
    let (deadline, watched) = Deadline::new(request_time);
    let watched_socket = Watched {
        socket: Arc::new(socket),
        deadline: deadline.clone(),
        patience: pages.patience,
        reader: Arc::default(),
    };
    let (socket, reader) = (Arc::clone(&watched_socket.socket), Arc::clone(&watched_socket.reader));
    let (stream, shown): (Box<dyn Duplex>, Shown) = match tls {
        None => (Box::new(watched_socket), Shown::default()),
        Some(tls) => match tls.admit(&socket, watched_socket).await {
            Ok(admitted) => admitted,
            Err(refused) => return turn_away(&socket, peer, refused, &pages).await,
        },
    };
    let given_up = Arc::<Notify>::default();
    let begin = {
        let (reader, given_up) = (Arc::clone(&reader), Arc::clone(&given_up));
        move |response: &Response| {
            let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
            reader.get_or_init(|| pages.begin(bytes.unwrap_or(0), Arc::clone(&given_up)));
        }
    };
    let replied = begin.clone();
    let watch = map_response(move |response: Response| {
        replied(&response);
        std::future::ready(response)
    });
    let service = router.layer(Extension(peer)).layer(Extension((deadline, shown))).layer(watch);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES_MAX)
        .keep_alive(false)
        // Who has asked, and says so by ending his side, still wants to know.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            tracing::debug!("admin HTTP: {peer}: {error}");
        },
        () = reached(watched) => return tracing::debug!("admin HTTP: {peer}: took too long"),
        () = given_up.notified() => return tracing::debug!("admin HTTP: {peer}: given up for others"),
    }
    // Of a request that could not be read the reply is not one of ours.
    begin(&Response::default());
    if let Some(reader) = reader.get() {
        reader.say(&socket, &[]).await;
    }
}

/// Ends a connection on which TLS did not come about, once the other side has read why.
async fn turn_away(socket: &TcpStream, peer: SocketAddr, refused: Refused, pages: &Arc<Farewells>) {
    let answer = match refused {
        Refused::Silent => return,
        Refused::InTheClear => NO_TLS,
        Refused::Failed(why) => {
            tracing::debug!("admin HTTP: {peer}: {why}");
            &[]
        }
    };
    pages.begin(answer.len(), Arc::default()).say(socket, answer).await;
}

/// A socket whose deadline is put off whenever the other side takes something. Its end is left to whoever holds it
/// besides.
struct Watched {
    socket: Arc<TcpStream>,
    deadline: Deadline,
    /// How long he may take nothing.
    patience: Duration,
    /// Whoever reads the reply, once there is one.
    reader: Arc<OnceLock<Farewell>>,
}

impl Watched {
    fn poll_write_with(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    if let (Ok(bytes), Some(reader)) = (&written, self.reader.get()) {
                        reader.take(*bytes);
                        self.deadline.put_off(self.patience);
                    }
                    return Poll::Ready(written);
                }
            }
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            match self.socket.try_read(into.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(|bytes| into.advance(bytes))),
            }
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |socket| socket.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::sleep;

    #[test]
    fn one_address_does_not_keep_others_out() {
        let mut by_address = HashMap::new();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let held: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX)
            .map(|_| slot_of_address(&mut by_address, address(1)).unwrap())
            .collect();
        assert!(slot_of_address(&mut by_address, address(1)).is_none());
        assert!(slot_of_address(&mut by_address, address(2)).is_some());
        drop(held);
        assert!(slot_of_address(&mut by_address, address(1)).is_some());
        assert!(slot_of_address(&mut by_address, address(3)).is_some());
        assert_eq!(by_address.len(), 1, "addresses without connections are forgotten");
    }

    const STEP: Duration = Duration::from_millis(50);

    /// A connection that serves one long page, and the other end of it.
    async fn page() -> (tokio::task::JoinHandle<()>, TcpStream, Arc<Farewells>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, peer) = listener.accept().await.unwrap();
        let page = || async { "x".repeat(PAGE_BYTES) };
        let router = Router::new().route("/", axum::routing::get(page));
        let pages = Arc::new(Farewells::of_patience(STEP * 8));
        let serving = Serving { router, pages: Arc::clone(&pages), tls: None };
        (tokio::spawn(connection(far, peer, serving, STEP * 8)), near, pages)
    }

    const PAGE_BYTES: usize = 16_000_000;

    async fn read_slowly(near: &mut TcpStream) -> usize {
        let (mut all, mut piece) = (0, vec![0; 1_000_000]);
        loop {
            sleep(STEP / 2).await;
            // In all this takes longer than a request may, and than anybody may take nothing.
            let mut filled = 0;
            while filled < piece.len() {
                match near.read(&mut piece[filled..]).await.unwrap() {
                    0 => return all + filled,
                    bytes => filled += bytes,
                }
            }
            all += filled;
        }
    }

    #[tokio::test]
    async fn a_page_is_whole_however_slowly_it_is_read_and_whatever_comes_behind_the_request() {
        for behind in ["", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n\r\nnothing that makes sense"] {
            let (serving, mut near, pages) = page().await;
            near.write_all(format!("GET / HTTP/1.1\r\nHost: x\r\n\r\n{behind}").as_bytes()).await.unwrap();
            let read = read_slowly(&mut near).await;
            assert!(read > PAGE_BYTES && read < PAGE_BYTES + 1000, "{read} bytes, with {behind:?} behind");
            assert!(pages.are_under_way());
            drop(near);
            serving.await.unwrap();
            assert!(!pages.are_under_way());
        }
    }

    #[tokio::test]
    async fn who_ends_his_side_behind_the_request_gets_the_page() {
        let (_serving, mut near, _) = page().await;
        near.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        near.shutdown().await.unwrap();
        assert!(read_slowly(&mut near).await > PAGE_BYTES);
    }

    #[tokio::test]
    async fn a_head_has_no_body_and_its_length() {
        let (_serving, mut near, pages) = page().await;
        near.write_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut reply = String::new();
        near.read_to_string(&mut reply).await.unwrap();
        assert!(reply.contains(&format!("content-length: {PAGE_BYTES}\r\n")), "{reply}");
        assert!(reply.ends_with("\r\n\r\n"), "{reply}");
        sleep(Duration::from_millis(600)).await;
        assert!(!pages.are_under_way(), "nothing is held of it");
    }

    #[tokio::test]
    async fn the_refusal_of_what_is_no_request_arrives() {
        let (_serving, mut near, _) = page().await;
        let mut hostile = b"no request\r\n\r\n".to_vec();
        hostile.extend_from_slice(&[b'x'; 100_000]);
        near.write_all(&hostile).await.unwrap();
        sleep(STEP).await;
        let mut reply = String::new();
        near.read_to_string(&mut reply).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 400"), "{reply}");
    }

    #[tokio::test]
    async fn who_takes_nothing_is_given_up_and_who_asks_nothing_too() {
        for request in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /"] {
            let (serving, mut near, pages) = page().await;
            near.write_all(request.as_bytes()).await.unwrap();
            tokio::time::timeout(Duration::from_secs(20), serving).await.expect("it ends").unwrap();
            assert!(!pages.are_under_way());
        }
    }
}
