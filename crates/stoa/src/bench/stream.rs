//! A connection to a server, with TLS or without.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use stoa_client::tls::{Tls, TlsStream};

/// Where a server is, and how it is spoken with.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Tls>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Server {
    /// Opens a connection, on which connecting and every read wait for at most `patience`.
    pub(super) fn dial(&self, patience: Duration) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(&self.address, patience)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let mut stream = Box::new(tls.begin(socket)?);
        stream.handshake()?;
        Ok(Stream::Tls(stream))
    }

    /// Begins to open a connection whose socket does not block. It is there when the socket has room; TLS is
    /// agreed on while it is written to and read from.
    pub(super) fn begin(&self) -> io::Result<Stream> {
        let family = if self.address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(socket)) };
        Ok(Stream::Tls(Box::new(tls.begin(socket)?)))
    }
}

/// A connection, which blocks or does not as its socket does.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The socket, to wait on.
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Whether reading goes on before the socket becomes readable.
    pub(super) fn has_input(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_input(),
        }
    }

    /// Whether something that was written waits for room in the socket.
    pub(super) fn has_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.has_output(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
