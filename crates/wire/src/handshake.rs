//! The first record in each direction.

use crate::codec::{DecodeError, Reader, put};
use alloc::vec::Vec;

/// Bytes of a session password.
pub const PASSWORD_LEN: usize = 16;

/// What a client sends first. Clients before 3.4 leave the last field out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// Always 0 in practice.
    pub protocol_version: i32,
    /// The largest zxid that the client has seen.
    pub last_zxid_seen: i64,
    /// Wanted session timeout, milliseconds.
    pub timeout_ms: i32,
    /// 0 for a new session.
    pub session_id: i64,
    /// Proves that the session is the client's.
    pub password: &'a [u8],
    /// Whether a read-only server will do; `None` when the client did not send the field, in which
    /// case the answer must not have it either.
    pub read_only: Option<bool>,
}

impl<'a> ConnectRequest<'a> {
    /// Reads the record from a whole frame.
    ///
    /// # Errors
    /// When a field is missing.
    pub fn decode(frame: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame);
        Ok(Self {
            protocol_version: reader.i32()?,
            last_zxid_seen: reader.i64()?,
            timeout_ms: reader.i32()?,
            session_id: reader.i64()?,
            password: reader.buffer()?.unwrap_or_default(),
            read_only: if reader.rest().is_empty() { None } else { Some(reader.bool()?) },
        })
    }

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i32(out, self.protocol_version);
        put::i64(out, self.last_zxid_seen);
        put::i32(out, self.timeout_ms);
        put::i64(out, self.session_id);
        put::buffer(out, self.password);
        if let Some(read_only) = self.read_only {
            put::bool(out, read_only);
        }
    }
}

/// The server's answer. A session that does not exist (any more) is answered with
/// [`ConnectResponse::EXPIRED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectResponse {
    /// Always 0.
    pub protocol_version: i32,
    /// Negotiated timeout, milliseconds.
    pub timeout_ms: i32,
    /// The session.
    pub session_id: i64,
    /// Its password.
    pub password: [u8; PASSWORD_LEN],
    /// Whether the server is read-only; `None` for clients that do not know the field.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// Says that the session has expired or the password is wrong.
    pub const EXPIRED: Self = Self {
        protocol_version: 0,
        timeout_ms: 0,
        session_id: 0,
        password: [0; PASSWORD_LEN],
        read_only: Some(false),
    };

    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put::i32(out, self.protocol_version);
        put::i32(out, self.timeout_ms);
        put::i64(out, self.session_id);
        put::buffer(out, &self.password);
        if let Some(read_only) = self.read_only {
            put::bool(out, read_only);
        }
    }

    /// Reads the record from a whole frame.
    ///
    /// # Errors
    /// When a field is missing or the password is not 16 bytes.
    pub fn decode(frame: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(frame);
        Ok(Self {
            protocol_version: reader.i32()?,
            timeout_ms: reader.i32()?,
            session_id: reader.i64()?,
            password: reader
                .buffer()?
                .unwrap_or_default()
                .try_into()
                .map_err(|_| DecodeError::BadValue("passwd"))?,
            read_only: if reader.rest().is_empty() { None } else { Some(reader.bool()?) },
        })
    }
}
