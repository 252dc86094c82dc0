//! The TLS of one client, on the thread of a partition: records of its socket in, bytes out, and the other way round.
//!
//! Nothing here waits and nothing is a system call but one write: the driver reads the socket and asks for what came of
//! it. What is made ready for the socket at a time is bounded, so that a client which does not read is seen where it is
//! without TLS: in the core's output.

use std::io::{self, IoSlice, Read, Write};

use rustls::ServerConnection;
use tokio::net::tcp::OwnedWriteHalf;

/// A client's TLS, from the end of its handshake on.
#[derive(Debug)]
pub(crate) struct Channel {
    tls: Box<ServerConnection>,
    /// Records that could not be taken yet: what was in those before is not fetched.
    rest: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(tls: ServerConnection) -> Self {
        Self { tls: Box::new(tls), rest: Vec::new() }
    }

    /// Takes what the socket had.
    ///
    /// # Errors
    /// When it is not TLS, or was changed on the way. Nothing that comes later can be believed.
    pub(crate) fn feed(&mut self, records: &[u8]) -> io::Result<()> {
        if !self.rest.is_empty() {
            self.rest.extend_from_slice(records);
            return self.feed_rest();
        }
        let taken = self.process(records)?;
        self.rest.extend_from_slice(&records[taken..]);
        Ok(())
    }

    fn feed_rest(&mut self) -> io::Result<()> {
        let records = std::mem::take(&mut self.rest);
        let taken = self.process(&records)?;
        self.rest.extend_from_slice(&records[taken..]);
        Ok(())
    }

    /// Deciphers records as far as there is room for what is in them.
    fn process(&mut self, records: &[u8]) -> io::Result<usize> {
        let mut left = records;
        while !left.is_empty() {
            // From memory nothing fails but that too much is deciphered already.
            let Ok(taken) = self.tls.read_tls(&mut left) else { break };
            if taken == 0 {
                break;
            }
            self.tls.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(records.len() - left.len())
    }

    /// Moves deciphered bytes to `into`; `None` when there are none for now, 0 when the client has said that no more
    /// come.
    ///
    /// # Errors
    /// As [`Channel::feed`] has them.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut filled = 0;
        while filled < into.len() {
            match self.tls.reader().read(&mut into[filled..]) {
                Ok(0) => return Ok(Some(filled)),
                Ok(len) => filled += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.rest.is_empty() {
                        break;
                    }
                    let before = self.rest.len();
                    self.feed_rest()?;
                    if self.rest.len() == before {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok((filled > 0).then_some(filled))
    }

    /// Enciphers the beginning of what is for the client, as much as may wait for the socket; returns how much that was.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        // Into memory; fewer bytes are taken where too many wait, and that is no error.
        self.tls.writer().write(bytes).unwrap_or(0)
    }

    /// Whether something waits for the socket.
    pub(crate) fn has_records(&self) -> bool {
        self.tls.wants_write()
    }

    /// Writes what waits for the socket; false when that takes no more for now.
    ///
    /// # Errors
    /// When the socket has failed.
    pub(crate) fn flush(&mut self, socket: &OwnedWriteHalf) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The end: what is still to be sent, this with it, and that nothing follows.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let taken = self.put(left);
            left = &left[taken..];
            // Into memory: nothing can fail.
            while self.tls.wants_write() && self.tls.write_tls(&mut records).is_ok() {}
        }
        self.tls.send_close_notify();
        while self.tls.wants_write() && self.tls.write_tls(&mut records).is_ok() {}
        records
    }
}

/// A socket that is written to as far as it takes something.
struct Socket<'a>(&'a OwnedWriteHalf);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
