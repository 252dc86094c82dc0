//! Requests as clients send them.

use stoa_wire::{
    Acl, ConnectRequest, MultiHeader, OPEN_ACL, Opcode, RequestHeader, begin_frame, end_frame,
    request::encode,
};

/// What znodes hold where it does not matter.
pub(crate) const DATA: &[u8] = b"some data";

pub(crate) const PERSISTENT: i32 = 0;
pub(crate) const EPHEMERAL: i32 = 1;
pub(crate) const CONTAINER: i32 = 4;

fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin_frame(&mut out);
    write(&mut out);
    end_frame(&mut out, start);
    out
}

pub(crate) fn request(opcode: Opcode, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(|out| {
        RequestHeader { xid: 1, opcode: opcode as i32 }.encode(out);
        body(out);
    })
}

/// A new session; or one that exists, by its id and password.
pub(crate) fn session(existing: Option<(i64, [u8; 16])>) -> Vec<u8> {
    let (session_id, password) = existing.unwrap_or_default();
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: 30_000,
        session_id,
        password: &password,
        read_only: Some(false),
    };
    frame(|out| request.encode(out))
}

pub(crate) fn create(path: &str, flags: i32) -> Vec<u8> {
    create_with(path, flags, OPEN_ACL)
}

pub(crate) fn create_with(path: &str, flags: i32, acl: &[Acl<'_>]) -> Vec<u8> {
    let opcode = if flags == CONTAINER { Opcode::CreateContainer } else { Opcode::Create };
    request(opcode, |out| encode::create(out, path, Some(DATA), acl, flags, None))
}

pub(crate) fn create_data(path: &str, data: &[u8]) -> Vec<u8> {
    request(Opcode::Create, |out| encode::create(out, path, Some(data), OPEN_ACL, 0, None))
}

pub(crate) fn delete(path: &str) -> Vec<u8> {
    request(Opcode::Delete, |out| encode::path_version(out, path, -1))
}

pub(crate) fn set_data(path: &str) -> Vec<u8> {
    set_data_to(path, DATA)
}

pub(crate) fn set_data_to(path: &str, data: &[u8]) -> Vec<u8> {
    request(Opcode::SetData, |out| encode::set_data(out, path, Some(data), -1))
}

pub(crate) fn set_acl(path: &str, acl: &[Acl<'_>]) -> Vec<u8> {
    request(Opcode::SetAcl, |out| encode::set_acl(out, path, acl, -1))
}

/// getData, exists, getChildren and getChildren2.
pub(crate) fn read(opcode: Opcode, path: &str, watch: bool) -> Vec<u8> {
    request(opcode, |out| encode::path_watch(out, path, watch))
}

/// getACL, sync, getEphemerals and getAllChildrenNumber.
pub(crate) fn of_path(opcode: Opcode, path: &str) -> Vec<u8> {
    request(opcode, |out| encode::path(out, path))
}

/// addWatch, checkWatches and removeWatches.
pub(crate) fn path_number(opcode: Opcode, path: &str, number: i32) -> Vec<u8> {
    request(opcode, |out| encode::path_number(out, path, number))
}

pub(crate) const ADD_PERSISTENT: i32 = 0;
pub(crate) const ADD_RECURSIVE: i32 = 1;
/// Watches of any kind.
pub(crate) const ANY: i32 = 3;

pub(crate) fn add_watch(path: &str, mode: i32) -> Vec<u8> {
    path_number(Opcode::AddWatch, path, mode)
}

/// Data, exist, child, persistent and recursive watches.
pub(crate) fn set_watches(since: i64, lists: [&[&str]; 5]) -> Vec<u8> {
    request(Opcode::SetWatches2, |out| encode::set_watches(out, since, &lists))
}

pub(crate) fn auth(scheme: &str, identity: &str) -> Vec<u8> {
    request(Opcode::Auth, |out| encode::auth(out, scheme, identity.as_bytes()))
}

pub(crate) fn close_session() -> Vec<u8> {
    request(Opcode::CloseSession, |_| ())
}

/// A multi, or a multiRead, of these requests.
pub(crate) fn multi(opcode: Opcode, requests: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    request(opcode, |out| {
        for request in requests {
            // Behind length and xid.
            let opcode: [u8; 4] = request[8..12].try_into().expect("it has four bytes");
            MultiHeader { opcode: i32::from_be_bytes(opcode), done: false, err: -1 }.encode(out);
            out.extend_from_slice(&request[12..]);
        }
        MultiHeader::END.encode(out);
    })
}

/// `check` as it stands in a multi.
pub(crate) fn check(path: &str) -> Vec<u8> {
    request(Opcode::Check, |out| encode::path_version(out, path, -1))
}

/// A frame with a body that is what a hostile client makes it.
pub(crate) fn hostile(opcode: Opcode, body: &[u8]) -> Vec<u8> {
    request(opcode, |out| out.extend_from_slice(body))
}

/// A path of so many levels with names of one letter.
pub(crate) fn deep(levels: usize) -> String {
    "/d".repeat(levels)
}
