//! What the stories' clients say, and what they hear.

use stoa_wire::{
    ConnectRequest, CreateMode, OPEN_ACL, Opcode, Reader, RequestHeader, Stat, begin_frame, end_frame, put,
    request::encode,
};

/// One frame from a server after the handshake.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) err: i32,
    pub(super) body: Vec<u8>,
}

impl Frame {
    pub(super) fn stat(&self) -> Stat {
        assert_eq!(self.err, 0, "{self:?}");
        assert!(self.body.len() >= 68, "{self:?}");
        let at = self.body.len() - 68;
        Stat::decode(&mut Reader::new(&self.body[at..])).unwrap()
    }

    pub(super) fn path(&self) -> &str {
        assert_eq!(self.err, 0, "{self:?}");
        Reader::new(&self.body).str().unwrap()
    }
}

pub(super) fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    write(&mut out);
    end_frame(&mut out, start);
    out
}

/// What a client says first.
pub(super) fn opening(session_id: i64, password: &[u8]) -> Vec<u8> {
    opening_after(0, session_id, password)
}

pub(super) fn opening_after(last_zxid_seen: i64, session_id: i64, password: &[u8]) -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen,
        timeout_ms: 10_000,
        session_id,
        password,
        read_only: Some(false),
    };
    frame(|out| request.encode(out))
}

pub(super) fn request(xid: i32, opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid, opcode: opcode as i32 }.encode(out);
        body(out);
    })
}

pub(super) fn create(xid: i32, path: &str, mode: CreateMode) -> Vec<u8> {
    request(xid, Opcode::Create2, |out| {
        encode::create(out, path, Some(b"x"), OPEN_ACL, mode as i32, None);
    })
}

pub(super) fn set(xid: i32, path: &str, data: &[u8]) -> Vec<u8> {
    request(xid, Opcode::SetData, |out| encode::set_data(out, path, Some(data), -1))
}

pub(super) fn delete(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Delete, |out| encode::path_version(out, path, -1))
}

pub(super) fn get(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::GetData, |out| encode::path_watch(out, path, false))
}

pub(super) fn data(frame: &Frame) -> Vec<u8> {
    assert_eq!(frame.err, 0);
    Reader::new(&frame.body).buffer().unwrap().unwrap().to_vec()
}

pub(super) fn sync(xid: i32, path: &str) -> Vec<u8> {
    request(xid, Opcode::Sync, |out| put::str(out, path))
}
