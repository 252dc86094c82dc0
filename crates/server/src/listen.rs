//! Sockets that wait for connections.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};

/// A socket, and where it was told to listen.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Bound {
    pub(crate) fn new(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        bind(address.ip(), address.port(), backlog).map(|socket| Self { socket, address })
    }
}

/// A socket that waits for connections, and can be exchanged for one that does so elsewhere. Connections that it
/// has given out go on.
pub(crate) struct Listener {
    /// None once it is closed.
    socket: RefCell<Option<tokio::net::TcpListener>>,
    /// Where it was told to listen.
    told: Cell<SocketAddr>,
    backlog: u32,
    /// Another socket is there.
    moved: Notify,
}

impl Listener {
    /// Must be called within a runtime.
    pub(crate) fn new(bound: Bound, backlog: u32) -> io::Result<Rc<Self>> {
        let Bound { socket, address } = bound;
        socket.set_nonblocking(true)?;
        let socket = RefCell::new(Some(tokio::net::TcpListener::from_std(socket)?));
        Ok(Rc::new(Self { socket, told: Cell::new(address), backlog, moved: Notify::new() }))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.socket.borrow().as_ref()?.local_addr().ok()
    }

    /// The next connection. There are none any more once it is closed.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = poll_fn(|context| self.poll_accept(context)) => return accepted,
                () = self.moved.notified() => {}
            }
        }
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.socket.borrow().as_ref().map_or(Poll::Pending, |socket| socket.poll_accept(context))
    }

    /// Whether it listens there.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        self.told.get() == address && self.socket.borrow().is_some()
    }

    /// Listens there from now on, and no longer where it did. When that cannot be, it goes on as before.
    pub(crate) fn move_to(&self, address: SocketAddr) -> io::Result<()> {
        let bound = match Bound::new(address, self.backlog) {
            // All addresses of a port and one of them are not to be had both.
            Err(_) if address.port() == self.told.get().port() => self.make_room_for(address)?,
            bound => bound?,
        };
        self.listen_with(bound)
    }

    fn make_room_for(&self, address: SocketAddr) -> io::Result<Bound> {
        drop(self.socket.take());
        Bound::new(address, self.backlog).inspect_err(|_| {
            if let Ok(as_before) = Bound::new(self.told.get(), self.backlog) {
                let _ = self.listen_with(as_before);
            }
        })
    }

    fn listen_with(&self, bound: Bound) -> io::Result<()> {
        *self.socket.borrow_mut() = Some(tokio::net::TcpListener::from_std(bound.socket)?);
        self.told.set(bound.address);
        self.moved.notify_one();
        Ok(())
    }

    /// Listens nowhere any more.
    pub(crate) fn close(&self) {
        drop(self.socket.take());
    }
}

/// Listens on an address; `::` stands for every address of the machine, IPv4 included.
pub(crate) fn bind(address: IpAddr, port: u16, backlog: u32) -> io::Result<TcpListener> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    if address != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return open(SocketAddr::new(address, port), backlog);
    }
    // A machine without IPv6 still has every address of IPv4. Of two errors, that of IPv4 tells more.
    open(SocketAddr::new(address, port), backlog)
        .or_else(|_| open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), backlog))
}

fn open(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // A restarted server must not wait for connections of the one before to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Accepts connections until told to stop; `greet` looks at each one first.
pub(crate) async fn accept<F, G>(listener: Rc<Listener>, mut stop: watch::Receiver<bool>, greet: F)
where
    F: Fn(TcpStream, SocketAddr) -> G,
    G: Future<Output = ()> + 'static,
{
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, address)) => {
                    // Replies are written in whole batches: waiting for more would only delay them.
                    let _ = socket.set_nodelay(true);
                    tokio::task::spawn_local(greet(socket, address));
                }
                Err(error) => {
                    // Out of descriptors, most likely: those that are connected go on.
                    tracing::error!("a connection could not be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            _ = stop.changed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_can_be_had_once() {
        let first = bind(IpAddr::from([127, 0, 0, 1]), 0, 16).unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(address.ip(), address.port(), 16).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    fn local(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    fn port_of(socket: &TcpListener) -> u16 {
        socket.local_addr().unwrap().port()
    }

    /// Connects while somebody accepts, and says whether that worked.
    async fn meets(listener: &Listener, to: SocketAddr) -> bool {
        let (connected, accepted) = tokio::join!(
            TcpStream::connect(to),
            tokio::time::timeout(Duration::from_millis(200), listener.accept())
        );
        connected.is_ok() && accepted.is_ok()
    }

    #[tokio::test]
    async fn a_listener_moves_and_its_connections_stay() {
        let first = bind(Ipv4Addr::LOCALHOST.into(), 0, 16).unwrap();
        let before = local(port_of(&first));
        let after = local(port_of(&bind(Ipv4Addr::LOCALHOST.into(), 0, 16).unwrap()));
        let listener = Listener::new(Bound { socket: first, address: before }, 16).unwrap();
        let client = TcpStream::connect(before).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        // Who waits for a connection waits for those at the new place.
        let waiting = async {
            let moving = async {
                tokio::task::yield_now().await;
                listener.move_to(after).unwrap();
                TcpStream::connect(after).await.unwrap()
            };
            tokio::join!(listener.accept(), moving)
        };
        tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().0.unwrap();
        assert!(listener.is_at(after) && !listener.is_at(before) && !meets(&listener, before).await);
        server.try_write(b"still").unwrap();
        client.readable().await.unwrap();
        assert_eq!(client.try_read(&mut [0; 8]).unwrap(), 5);
        listener.close();
        assert!(!listener.is_at(after) && TcpStream::connect(after).await.is_err());
    }

    #[tokio::test]
    async fn where_it_cannot_move_to_it_stays() {
        let socket = bind(Ipv4Addr::LOCALHOST.into(), 0, 16).unwrap();
        let before = local(port_of(&socket));
        let listener = Listener::new(Bound { socket, address: before }, 16).unwrap();
        let taken = bind(Ipv4Addr::LOCALHOST.into(), 0, 16).unwrap();
        let error = listener.move_to(local(port_of(&taken))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(listener.is_at(before) && meets(&listener, before).await);
        // Its own socket is in the way of all addresses of its port, and nobody else.
        let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), before.port());
        listener.move_to(all).unwrap();
        assert!(listener.is_at(all) && meets(&listener, before).await);
        listener.move_to(before).unwrap();
        // An address that is none of this machine's.
        let foreign = SocketAddr::new(IpAddr::from([192, 0, 2, 1]), before.port());
        assert!(listener.move_to(foreign).is_err());
        assert!(listener.is_at(before) && meets(&listener, before).await);
    }

    #[test]
    fn every_address_includes_those_of_ipv4() {
        let listener = bind(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0, 16).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
