//! Connections to servers, with TLS or without.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use tokio::net::{TcpStream, ToSocketAddrs};

use crate::tls::{Tls, TlsStream};

/// A socket of tokio's as one that does not block.
#[derive(Debug)]
pub(crate) struct Socket(TcpStream);

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a socket, and tells where it leads.
pub(crate) async fn connect(address: impl ToSocketAddrs) -> io::Result<(TcpStream, SocketAddr)> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let address = socket.peer_addr()?;
    Ok((socket, address))
}

/// One connection to a server.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<Socket>>),
}

impl Transport {
    /// Begins TLS on a socket.
    pub(crate) async fn secured(socket: TcpStream, tls: &Tls) -> io::Result<Self> {
        let mut stream = Box::new(tls.begin(Socket(socket))?);
        while let Err(error) = stream.handshake() {
            match error.kind() {
                ErrorKind::WouldBlock if stream.has_output() => stream.socket().0.writable().await?,
                ErrorKind::WouldBlock => stream.socket().0.readable().await?,
                _ => return Err(error),
            }
        }
        Ok(Self::Tls(stream))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.socket().0,
        }
    }

    /// Reads what is there, or fails with `WouldBlock`.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }

    /// Writes what there is room for, or fails with `WouldBlock`.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    /// Writes what was taken before and still waits, as far as there is room.
    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => match stream.flush() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
                flushed => flushed,
            },
        }
    }

    /// Whether something that was taken waits for room.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_output(),
        }
    }

    /// Whether something can be read that the socket has given already.
    fn has_input(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_input(),
        }
    }

    /// Waits until there may be something to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if self.has_input() { Ok(()) } else { self.socket().readable().await }
    }

    /// Waits until there may be room.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket().writable().await
    }

    /// As [`Transport::readable`], for those who wait for several.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_input() { Poll::Ready(()) } else { self.socket().poll_read_ready(context).map(drop) }
    }

    /// As [`Transport::writable`], for those who wait for several.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        self.socket().poll_write_ready(context).map(drop)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Self::Tls(stream) = self {
            stream.close();
        }
    }
}
