//! One connection to one server: frames out, frames in.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No reply takes this long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Larger than any reply to a stream of small znodes.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// What came instead of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// The server closed the connection.
    Closed,
    /// The server sent nothing for a long time.
    Silent,
    /// The server sent a length that no frame has.
    BadLength,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 << 10), start: 0 })
    }

    /// Sends bytes. A connection that is gone shows when the answer is read.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            debug_assert!(error.kind() != ErrorKind::InvalidInput, "{error}");
        }
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// When there is none, with the reason.
    pub fn receive(&mut self) -> Result<Vec<u8>, Ended> {
        loop {
            match stoa_wire::next_frame(&self.buffer[self.start..], FRAME_BYTES_MAX) {
                Ok(Some((frame, _))) => {
                    let frame = frame.to_vec();
                    self.start += 4 + frame.len();
                    return Ok(frame);
                }
                Ok(None) => self.fill()?,
                Err(_) => return Err(Ended::BadLength),
            }
        }
    }

    /// Waits for the next frame, but not for long.
    ///
    /// # Errors
    /// When there is none, with the reason.
    pub fn receive_within(&mut self, limit: Duration) -> Result<Vec<u8>, Ended> {
        let limited = self.stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))));
        let frame = limited.map_err(|_| Ended::Closed).and_then(|()| self.receive());
        // It was set when the connection was opened.
        let _ = self.stream.set_read_timeout(Some(PATIENCE));
        frame
    }

    fn fill(&mut self) -> Result<(), Ended> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let mut chunk = [0; 64 << 10];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Ended::Closed),
            Ok(len) => {
                self.buffer.extend_from_slice(&chunk[..len]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Err(Ended::Silent),
                ErrorKind::Interrupted => Ok(()),
                _ => Err(Ended::Closed),
            },
        }
    }
}
