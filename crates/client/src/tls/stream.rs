//! TLS over a socket, driven by whoever waits for the socket.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::TlsFailure;

/// What is read from the socket at a time, at first and at most: many connections say little.
const INPUT_BYTES_MIN: usize = 4 << 10;
const INPUT_BYTES_MAX: usize = 64 << 10;

/// The client's side of TLS over a socket that blocks or does not.
///
/// Reading and writing are the socket's: with one that does not block they fail with `WouldBlock`. Then wait for it
/// to be readable, unless [`TlsStream::has_input`], and writable, if [`TlsStream::has_output`].
/// Its errors say what is wrong and what to do.
#[derive(Debug)]
pub struct TlsStream<S: Read + Write> {
    socket: S,
    connection: ClientConnection,
    /// From the socket; TLS has not taken `taken..filled` yet.
    input: Vec<u8>,
    taken: usize,
    filled: usize,
    /// Bytes that can be read without the socket.
    readable: usize,
    /// The other side has said that it ends.
    is_closed: bool,
    /// What was decrypted before it was read before it is told.
    failure: Option<rustls::Error>,
    /// Something was read.
    is_heard: bool,
    has_certificate: bool,
}

impl<S: Read + Write> TlsStream<S> {
    pub(super) fn new(config: Arc<ClientConfig>, name: ServerName<'static>, socket: S) -> io::Result<Self> {
        let has_certificate = config.client_auth_cert_resolver.has_certs();
        let connection = ClientConnection::new(config, name)
            .map_err(|error| TlsFailure::of(error, has_certificate).into_io())?;
        Ok(Self {
            socket,
            connection,
            input: Vec::new(),
            taken: 0,
            filled: 0,
            readable: 0,
            is_closed: false,
            failure: None,
            is_heard: false,
            has_certificate,
        })
    }

    /// Goes on with the handshake until it is done.
    ///
    /// # Errors
    /// When the other side does not speak TLS, or is not who it should be, or does not take us; with
    /// `WouldBlock` when the socket would block.
    pub fn handshake(&mut self) -> io::Result<()> {
        loop {
            self.push().map_err(|error| self.cut_off(error))?;
            if !self.connection.is_handshaking() {
                return Ok(());
            }
            if self.taken == self.filled {
                let len = self.pull().map_err(|error| self.cut_off(error))?;
                if len == 0 {
                    return Err(TlsFailure::closed_in_handshake().into_io());
                }
            }
            self.take();
            if let Some(error) = self.failure.take() {
                return Err(TlsFailure::of(error, self.has_certificate).into_io());
            }
        }
    }

    /// The socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Whether reading goes on before the socket becomes readable.
    pub fn has_input(&self) -> bool {
        self.readable > 0 || self.taken < self.filled || self.failure.is_some()
    }

    /// Whether something waits for room in the socket: [`Write::flush`] writes it.
    pub fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Says that it ends, if the socket has room for that.
    pub fn close(&mut self) {
        if !self.connection.is_handshaking() {
            self.connection.send_close_notify();
            // Whoever is not told sees that the socket ends.
            let _ = self.push();
        }
    }

    /// Reads from the socket once. Returns how much; 0 at the end.
    fn pull(&mut self) -> io::Result<usize> {
        if self.filled == self.input.len() {
            let len = (self.input.len() * 2).clamp(INPUT_BYTES_MIN, INPUT_BYTES_MAX);
            self.input.resize(len, 0);
        }
        (self.taken, self.filled) = (0, 0);
        self.filled = self.socket.read(&mut self.input)?;
        Ok(self.filled)
    }

    /// Hands some of what was read to TLS, which takes a few records at a time.
    fn take(&mut self) {
        let mut rest = &self.input[self.taken..self.filled];
        let before = rest.len();
        let read = self.connection.read_tls(&mut rest);
        self.taken += before - rest.len();
        let processed = match read {
            // Nothing counts behind the end.
            Ok(0) => {
                self.taken = self.filled;
                return;
            }
            Ok(_) => self.connection.process_new_packets(),
            // It has no room, which it makes for every record that keeps to the protocol.
            Err(error) => Err(rustls::Error::General(error.to_string())),
        };
        match processed {
            Ok(state) => {
                self.readable = state.plaintext_bytes_to_read();
                self.is_closed |= state.peer_has_closed();
            }
            Err(error) => {
                // The other side should know why. Whether it does makes no difference to us.
                let _ = self.push();
                self.taken = self.filled;
                self.failure = Some(error);
            }
        }
    }

    /// Reads what is decrypted already.
    fn decrypted(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.readable == 0 || into.is_empty() {
            return Ok(0);
        }
        let len = self.connection.reader().read(into)?;
        self.readable = self.readable.saturating_sub(len);
        self.is_heard |= len > 0;
        Ok(len)
    }

    /// Writes what TLS has to say.
    fn push(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A connection that breaks before anything was said has its reasons.
    fn cut_off(&self, error: io::Error) -> io::Error {
        let is_cut_off = matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
        );
        match is_cut_off {
            true if self.connection.is_handshaking() => TlsFailure::closed_in_handshake().into_io(),
            true if !self.is_heard => TlsFailure::closed_unheard(self.has_certificate).into_io(),
            _ => error,
        }
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    /// Reads what one read of the socket has brought, or all that there is room for. Returns 0 at the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        loop {
            len += self.decrypted(&mut into[len..])?;
            if len == into.len() {
                return Ok(len);
            }
            if self.taken == self.filled {
                if len > 0 {
                    return Ok(len);
                }
                if let Some(error) = self.failure.take() {
                    return Err(TlsFailure::of(error, self.has_certificate).into_io());
                }
                let pulled = match self.is_closed {
                    true => Ok(0),
                    false => self.pull(),
                };
                match pulled.map_err(|error| self.cut_off(error))? {
                    0 if self.is_heard => return Ok(0),
                    0 => return Err(self.cut_off(ErrorKind::UnexpectedEof.into())),
                    _ => {}
                }
            }
            self.take();
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    /// Takes what there is room for, and writes what the socket takes of it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What was taken before makes room first.
        self.flush()?;
        let len = self.connection.writer().write(bytes)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.push().map_err(|error| self.cut_off(error))
    }
}
