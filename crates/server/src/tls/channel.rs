//! The TLS of one client, on the thread of a partition: records of its socket in, bytes out, and the other way round.
//!
//! Nothing here waits and nothing is a system call but one write: the driver reads the socket and asks for what came of
//! it. What is made ready for the socket at a time is bounded, so that a client which does not read is seen where it is
//! without TLS: in the core's output.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;

use rustls::ServerConnection;
use tokio::io::ReadBuf;
use tokio::net::tcp::OwnedWriteHalf;

/// A client's TLS, from the end of its handshake on.
#[derive(Debug)]
pub(crate) struct Channel {
    tls: Box<ServerConnection>,
    /// Records that could not be taken yet: what was in those before is not fetched.
    rest: Vec<u8>,
    frames: ReplyFrames,
}

impl Channel {
    pub(crate) fn new(tls: ServerConnection) -> Self {
        Self { tls: Box::new(tls), rest: Vec::new(), frames: ReplyFrames::default() }
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
    ///
    /// The last frame has records of its own. The client in C takes one frame and asks its socket whether there is more:
    /// what lies deciphered behind it stays there until something else comes, which may be when it has given up. While
    /// another record is on its way it does not ask in vain; and when that one comes, nothing is behind it. One frame a
    /// record would do as well, and cost a short request half of its time.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let (before, last) = bytes.split_at(self.frames.last_of(bytes));
        let mut taken = 0;
        for piece in [before, last] {
            // Into memory; fewer bytes are taken where too many wait, and that is no error.
            let put = self.tls.writer().write(piece).unwrap_or(0);
            self.frames.pass(&piece[..put]);
            taken += put;
            if put < piece.len() {
                break;
            }
        }
        taken
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

const LENGTH_BYTES: usize = 4;

/// Where frames end in what is sent: each has its length before it. The answer to a four-letter word has none, and what
/// stands there is larger than any answer.
#[derive(Debug, Default, Clone)]
struct ReplyFrames {
    length: [u8; LENGTH_BYTES],
    /// How much of the length has been sent.
    length_sent: usize,
    /// How much of what is behind it has not.
    left: usize,
}

impl ReplyFrames {
    /// Where in these bytes the last frame begins, be it there as a whole or not.
    fn last_of(&self, bytes: &[u8]) -> usize {
        let (mut frames, mut last, mut at) = (self.clone(), 0, 0);
        while at < bytes.len() {
            last = at;
            at += frames.pass_one(&bytes[at..]);
        }
        last
    }

    /// These bytes are sent.
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let passed = self.pass_one(bytes);
            bytes = &bytes[passed..];
        }
    }

    /// Those of the bytes are sent that belong to the frame which is being sent, or begins; returns how many.
    fn pass_one(&mut self, bytes: &[u8]) -> usize {
        let of_length = bytes.len().min(LENGTH_BYTES - self.length_sent);
        if of_length > 0 {
            self.length[self.length_sent..][..of_length].copy_from_slice(&bytes[..of_length]);
            self.length_sent += of_length;
            if self.length_sent < LENGTH_BYTES {
                return of_length;
            }
            self.left = u32::from_be_bytes(self.length) as usize;
        }
        let behind = self.left.min(bytes.len() - of_length);
        self.left -= behind;
        if self.left == 0 {
            self.length_sent = 0;
        }
        of_length + behind
    }
}

/// As many bytes of small records are given to the socket at a time.
const GATHERED_BYTES: usize = 16 << 10;
/// Those up to this length are small.
const GATHERED_PIECE_BYTES_MAX: usize = 2 << 10;

/// A socket that is written to as far as it takes something.
///
/// Small records are gathered first: the kernel takes far longer to fetch 64 pieces of some hundred bytes than their
/// copy does here.
struct Socket<'a>(&'a OwnedWriteHalf);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let [piece] = pieces {
            return self.0.try_write(piece);
        }
        let mut space = [MaybeUninit::uninit(); GATHERED_BYTES];
        let mut gathered = ReadBuf::uninit(&mut space);
        let is_small = |piece: &&IoSlice<'_>| piece.len() <= GATHERED_PIECE_BYTES_MAX;
        for piece in pieces.iter().take_while(is_small) {
            if piece.len() > gathered.remaining() {
                break;
            }
            gathered.put_slice(piece);
        }
        match gathered.filled() {
            [] => self.0.try_write_vectored(pieces),
            gathered => self.0.try_write(gathered),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes into records of their own when the bytes come in pieces of this length.
    fn records(bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let mut frames = ReplyFrames::default();
        let mut records = Vec::new();
        for piece in bytes.chunks(piece) {
            let (before, last) = piece.split_at(frames.last_of(piece));
            for record in [before, last].into_iter().filter(|record| !record.is_empty()) {
                frames.pass(record);
                records.push(record.to_vec());
            }
        }
        records
    }

    #[test]
    fn the_last_frame_has_a_record_of_its_own() {
        let frames: Vec<Vec<u8>> = [0u8, 1, 3, 4, 16, 200, 7]
            .map(|length| [vec![0, 0, 0, length], vec![length; usize::from(length)]].concat())
            .to_vec();
        let bytes = frames.concat();
        let (last, before) = frames.split_last().unwrap();
        assert_eq!(records(&bytes, bytes.len()), [before.concat(), last.clone()]);
        assert_eq!(records(last, last.len()), std::slice::from_ref(last));
        // A frame of which the length alone is there, or a part of it.
        for cut in 1..last.len() {
            let bytes = &bytes[..bytes.len() - cut];
            let whole = last.len() - cut;
            assert_eq!(records(bytes, bytes.len()), [before.concat(), last[..whole].to_vec()], "{cut}");
        }
    }

    #[test]
    fn frames_are_known_in_whatever_pieces_they_come() {
        let frames: Vec<Vec<u8>> = [0u8, 1, 3, 4, 16, 200]
            .map(|length| [vec![0, 0, 0, length], vec![length; usize::from(length)]].concat())
            .to_vec();
        let bytes = frames.concat();
        for piece in 1..bytes.len() {
            let records = records(&bytes, piece);
            assert_eq!(records.concat(), bytes);
            let ends: std::collections::BTreeSet<usize> = records
                .iter()
                .scan(0, |end, record| {
                    *end += record.len();
                    Some(*end)
                })
                .collect();
            let mut begin = 0;
            for frame in &frames {
                // The last one that begins in a piece begins a record.
                let is_last = begin / piece != (begin + frame.len()) / piece;
                assert!(!is_last || begin == 0 || ends.contains(&begin), "in pieces of {piece}: at {begin}");
                begin += frame.len();
            }
        }
    }

    #[test]
    fn the_answer_to_a_word_is_one() {
        let answer = b"Zookeeper version: 3.9";
        assert_eq!(records(answer, answer.len()), [answer.to_vec()]);
    }
}
