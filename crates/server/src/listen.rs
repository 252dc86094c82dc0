//! Sockets that wait for connections.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Listens on an address; `::` stands for every address of the machine, IPv4 included.
pub(crate) fn bind(address: IpAddr, port: u16, backlog: u32) -> std::io::Result<TcpListener> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    if address != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return open(SocketAddr::new(address, port), backlog);
    }
    // A machine without IPv6 still has every address of IPv4. Of two errors, that of IPv4 tells more.
    open(SocketAddr::new(address, port), backlog)
        .or_else(|_| open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)), backlog))
}

fn open(address: SocketAddr, backlog: i32) -> std::io::Result<TcpListener> {
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
pub(crate) async fn accept<F, G>(listener: tokio::net::TcpListener, mut stop: watch::Receiver<bool>, greet: F)
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
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    }

    #[test]
    fn every_address_includes_those_of_ipv4() {
        let listener = bind(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0, 16).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }
}
