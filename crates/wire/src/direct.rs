//! What Stoa's own clients and its servers say to each other besides ZooKeeper's protocol, byte by byte in
//! `docs/client-protocol.md`.
//!
//! A *direct* client has a connection to each partition and carries timestamps itself. It asks for that
//! behind its [`ConnectRequest`](crate::ConnectRequest), where servers of other kinds look at nothing.

use crate::codec::{DecodeError, Reader, put};
use crate::handshake::PASSWORD_LEN;
use crate::placement::partition_of;
use crate::timestamp::Timestamp;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Stands behind the records of the handshake.
const MAGIC: [u8; 4] = *b"Stoa";
/// Of all that is said here.
const VERSION: u8 = 1;

/// What a side connection begins with, in the clear; one byte follows, the partition. As the length of a
/// frame it would be negative, so that other servers close the connection.
pub const PREAMBLE: [u8; 4] = [0xff, b'S', b't', b'o'];

/// Opcodes of direct clients.
pub mod direct_op {
    /// What the client has seen: a token. Not answered.
    pub const SEEN: i32 = 0x5374_0001;
    /// To be told when everything has been said that comes before a token's stamp.
    pub const REACH: i32 = 0x5374_0002;
    /// Where everything lives.
    pub const TABLE: i32 = 0x5374_0003;
    /// A read that waits for nothing: the opcode of the read and its body follow.
    pub const FAST: i32 = 0x5374_0004;
    /// By which version of the table requests are sent from now on. Not answered.
    pub const ROUTED: i32 = 0x5374_0005;
}

/// xids of what direct clients are told.
pub mod direct_xid {
    /// A stamp: see [`Stamped`](super::Stamped).
    pub const STAMP: i32 = -16;
    /// Everything has been said that comes before a stamp, the oldest that was asked for.
    pub const REACHED: i32 = -17;
    /// Where everything lives.
    pub const TABLE: i32 = -18;
    /// Something that is watched on this connection lives elsewhere from now on; where everything lives follows.
    pub const MOVED: i32 = -19;
}

/// Error code of a request that was sent to the wrong partition, or by an old table: it was not carried out
/// and has to be sent elsewhere.
pub const ELSEWHERE: i32 = -1001;

/// Bytes of the proof behind a stamp.
pub const TAG_LEN: usize = 16;

/// Puts the question behind a connect request.
pub fn ask_direct(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
}

/// Whether that question stands behind a connect request.
#[must_use]
pub fn asks_direct(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let mut rest = || -> Result<bool, DecodeError> {
        // Protocol version, zxid, timeout, session.
        reader.take(4 + 8 + 4 + 8)?;
        reader.buffer()?;
        reader.bool()?;
        Ok(reader.take(MAGIC.len())? == MAGIC && reader.take(1)? >= [VERSION].as_slice())
    };
    rest().unwrap_or(false)
}

/// What a server answers, behind its connect response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer<'a> {
    /// How many partitions there are.
    pub partitions: u8,
    /// That of the thread to which the client is connected.
    pub own: u8,
    /// What the client has seen with this answer.
    pub token: &'a [u8],
    /// Where everything lives.
    pub table: Table,
}

impl<'a> Offer<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.partitions, self.own]);
        put::buffer(out, self.token);
        self.table.encode(out);
    }

    /// Reads what stands behind a connect response: `None` where nothing does.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub fn find(frame: &'a [u8]) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(frame);
        // Protocol version, timeout, session.
        reader.take(4 + 4 + 8)?;
        reader.buffer()?;
        if reader.rest().is_empty() {
            return Ok(None);
        }
        reader.bool()?;
        if !reader.rest().starts_with(&MAGIC) {
            return Ok(None);
        }
        reader.take(MAGIC.len())?;
        let [version, partitions, own] = *reader.take(3)? else { return Err(DecodeError::Truncated) };
        if version != VERSION || own >= partitions || partitions > 64 {
            return Err(DecodeError::BadValue("the offer of direct connections"));
        }
        let token = reader.buffer()?.unwrap_or_default();
        Ok(Some(Self { partitions, own, token, table: Table::decode(&mut reader)? }))
    }
}

/// The first frame of a side connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideHello<'a> {
    /// The session, which must be on a connection to the same server.
    pub session_id: i64,
    /// Proves that it is the client's.
    pub password: &'a [u8],
}

impl<'a> SideHello<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        put::i64(out, self.session_id);
        put::buffer(out, self.password);
    }

    /// Reads it from a whole frame.
    ///
    /// # Errors
    /// When it is another version's, or no such record.
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame);
        if reader.take(1)? != [VERSION] {
            return Err(DecodeError::BadValue("version"));
        }
        let session_id = reader.i64()?;
        let password = reader.buffer()?.unwrap_or_default();
        if password.len() != PASSWORD_LEN || !reader.rest().is_empty() {
            return Err(DecodeError::BadLength);
        }
        Ok(Self { session_id, password })
    }
}

/// The answer to that: 0, or the error code with which the connection is refused.
pub fn answer_side(out: &mut Vec<u8>, err: i32) {
    out.push(VERSION);
    put::i32(out, err);
}

/// Reads it from a whole frame.
///
/// # Errors
/// When it is another version's, or no such record.
pub fn side_answer(frame: &[u8]) -> Result<i32, DecodeError> {
    let mut reader = Reader::new(frame);
    if reader.take(1)? != [VERSION] {
        return Err(DecodeError::BadValue("version"));
    }
    reader.i32()
}

/// On what the frames that follow rest, behind a reply header with the xid [`direct_xid::STAMP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped<'a> {
    /// So many bytes follow that are of this moment; what the partition had for the client before it, and
    /// in it, has then been said.
    pub covers: usize,
    /// The stamp, with a proof that the server has said so.
    pub token: &'a [u8],
}

impl<'a> Stamped<'a> {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::len(out, self.covers);
        out.extend_from_slice(self.token);
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is cut short.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let covers = usize::try_from(reader.i32()?).map_err(|_| DecodeError::BadLength)?;
        Ok(Self { covers, token: reader.rest() })
    }
}

/// The stamp of a token, and where it ends and its proof begins.
///
/// # Errors
/// When it is none.
pub fn stamp_of(token: &[u8]) -> Result<(Timestamp, usize), DecodeError> {
    let mut reader = Reader::new(token);
    let stamp = Timestamp::decode(&mut reader)?;
    if reader.rest().len() != TAG_LEN {
        return Err(DecodeError::BadLength);
    }
    Ok((stamp, token.len() - TAG_LEN))
}

/// Which subtrees live elsewhere than the rule says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Grows with every change.
    pub version: u64,
    /// Paths and their partitions; the longest that a path is below decides.
    pub exceptions: Vec<(String, u8)>,
}

impl Table {
    /// Where the znode at a path lives, or would live, among so many partitions.
    #[must_use]
    pub fn of(&self, path: &str, partitions: u8) -> u8 {
        let is_below = |(root, _): &&(String, u8)| {
            path.strip_prefix(root.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let longest = self.exceptions.iter().filter(is_below).max_by_key(|(root, _)| root.len());
        longest.map_or_else(|| partition_of(path.as_bytes(), partitions), |(_, partition)| *partition)
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i64(out, self.version.cast_signed());
        put::len(out, self.exceptions.len());
        for (path, partition) in &self.exceptions {
            put::str(out, path);
            out.push(*partition);
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When it is cut short, or a path is not text.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = reader.i64()?.cast_unsigned();
        let count = reader.count(5)?;
        let mut exceptions = Vec::new();
        for _ in 0..count {
            let path = reader.str()?.to_owned();
            let [partition] = *reader.take(1)? else { return Err(DecodeError::Truncated) };
            exceptions.push((path, partition));
        }
        Ok(Self { version, exceptions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectRequest, ConnectResponse};
    use alloc::vec;

    fn request(read_only: Option<bool>) -> Vec<u8> {
        let mut out = Vec::new();
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 5,
            timeout_ms: 4000,
            session_id: 7,
            password: &[1; PASSWORD_LEN],
            read_only,
        }
        .encode(&mut out);
        out
    }

    #[test]
    fn the_question_is_what_stands_behind_the_request() {
        let mut asking = request(Some(false));
        assert!(!asks_direct(&asking));
        let plain = ConnectRequest::decode(&asking).map(|request| request.session_id);
        ask_direct(&mut asking);
        assert!(asks_direct(&asking));
        assert_eq!(asking[45..], *b"Stoa\x01");
        assert_eq!(ConnectRequest::decode(&asking).map(|request| request.session_id), plain);
        for cut in 0..asking.len() {
            assert!(!asks_direct(&asking[..cut]));
        }
        asking[49] = 0;
        assert!(!asks_direct(&asking), "nobody speaks version 0");
        asking[49] = 2;
        assert!(asks_direct(&asking), "whoever speaks a later version is told ours");
        let mut old = request(None);
        ask_direct(&mut old);
        assert!(!asks_direct(&old), "there is no field before it to tell it by");
    }

    #[test]
    fn the_offer_is_what_stands_behind_the_response() {
        let response = ConnectResponse { session_id: 9, ..ConnectResponse::EXPIRED };
        let mut bytes = Vec::new();
        response.encode(&mut bytes);
        assert_eq!(Offer::find(&bytes), Ok(None));
        let table = Table { version: 3, exceptions: vec![("/a/b".to_owned(), 2)] };
        let offer = Offer { partitions: 4, own: 1, token: b"token", table };
        let plain = bytes.len();
        offer.encode(&mut bytes);
        assert_eq!(Offer::find(&bytes), Ok(Some(offer)));
        assert_eq!(ConnectResponse::decode(&bytes).map(|response| response.session_id), Ok(9));
        let mut expected = b"Stoa\x01\x04\x01\x00\x00\x00\x05token".to_vec();
        expected.extend(b"\0\0\0\0\0\0\0\x03\0\0\0\x01\0\0\0\x04/a/b\x02");
        assert_eq!(bytes[plain..], expected);
        for cut in plain + 4..bytes.len() {
            assert!(Offer::find(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn a_hello_is_whole_or_none() {
        let mut bytes = Vec::new();
        let hello = SideHello { session_id: 3, password: &[4; PASSWORD_LEN] };
        hello.encode(&mut bytes);
        assert_eq!(SideHello::decode(&bytes), Ok(hello));
        for cut in 0..bytes.len() {
            assert!(SideHello::decode(&bytes[..cut]).is_err());
        }
        bytes.push(0);
        assert!(SideHello::decode(&bytes).is_err());
    }

    #[test]
    fn what_is_said_is_these_bytes() {
        let mut hello = Vec::new();
        SideHello { session_id: 0x0102, password: &[4; PASSWORD_LEN] }.encode(&mut hello);
        assert_eq!(hello, [&b"\x01\0\0\0\0\0\0\x01\x02\0\0\0\x10"[..], &[4; 16]].concat());
        let mut answer = Vec::new();
        answer_side(&mut answer, -112);
        assert_eq!(answer, b"\x01\xff\xff\xff\x90");
        assert_eq!(side_answer(&answer), Ok(-112));
        let mut stamp = Timestamp::new(2);
        stamp.raise(1, 0x0304);
        stamp.raise_zxid(0x0506);
        let mut token = Vec::new();
        stamp.encode(&mut token);
        token.extend_from_slice(&[9; TAG_LEN]);
        let mut stamped = Vec::new();
        Stamped { covers: 0x0708, token: &token }.encode(&mut stamped);
        let mut expected = b"\0\0\x07\x08\0\0\0\0\0\0\x05\x06\0\0\0\x02".to_vec();
        expected.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x04");
        expected.extend_from_slice(&[9; TAG_LEN]);
        assert_eq!(stamped, expected);
        let decoded = Stamped::decode(&mut Reader::new(&stamped));
        assert_eq!(decoded, Ok(Stamped { covers: 0x0708, token: &token }));
        assert_eq!(stamp_of(&token), Ok((stamp, token.len() - TAG_LEN)));
        for cut in 0..token.len() {
            assert!(stamp_of(&token[..cut]).is_err());
        }
    }

    #[test]
    fn the_longest_exception_decides() {
        let exceptions = [("/a", 1), ("/a/b", 2), ("/c/d", 3)];
        let exceptions = exceptions.map(|(path, partition)| (path.to_owned(), partition)).to_vec();
        let table = Table { version: 1, exceptions };
        let of = |path| table.of(path, 4);
        assert_eq!([of("/a"), of("/a/x"), of("/a/b"), of("/a/b/c"), of("/c/d/e")], [1, 1, 2, 2, 3]);
        assert_eq!(of("/a/bc"), 1);
        for path in ["/ab", "/c", "/c/dd", "/", ""] {
            assert_eq!(of(path), partition_of(path.as_bytes(), 4), "{path}");
        }
    }
}
