//! What comes in and goes out, for whoever reads along.

use super::{Checker, Inbound};
use crate::model::ConnectionKey;
use stoa_wire::{
    ConnectRequest, ConnectResponse, Opcode, Reader, ReplyHeader, Request, RequestHeader, WatcherEvent, xid,
};

/// So much of a request is shown.
const SHOWN_CHARS: usize = 120;

impl Checker {
    /// Says what a server takes in.
    #[must_use]
    pub fn shown_requests(&self, key: ConnectionKey, frames: &[Inbound]) -> Vec<String> {
        let mut live = self.is_live(key);
        let show = |frame: &Inbound| {
            let bytes = match frame {
                Inbound::Frame(frame) => frame.as_slice(),
                Inbound::Oversized { header } => header.as_slice(),
            };
            let mut shown = match ConnectRequest::decode(bytes) {
                Ok(request) if !live => format!("{request:?}"),
                _ => shown_request(bytes),
            };
            live = true;
            if let Some((cut, _)) = shown.char_indices().nth(SHOWN_CHARS) {
                shown.truncate(cut);
            }
            shown
        };
        frames.iter().map(show).collect()
    }

    /// Says what a server writes.
    #[must_use]
    pub fn shown_replies(&self, key: ConnectionKey, frames: &[Vec<u8>]) -> Vec<String> {
        let mut greeted = !self.is_to_be_greeted(key);
        let show = |frame: &Vec<u8>| {
            let shown = shown_reply(frame, greeted);
            greeted = true;
            shown
        };
        frames.iter().map(show).collect()
    }
}

fn shown_request(bytes: &[u8]) -> String {
    let mut reader = Reader::new(bytes);
    let Ok(RequestHeader { xid, opcode }) = RequestHeader::decode(&mut reader) else {
        return format!("{} bytes", bytes.len());
    };
    match Opcode::from_i32(opcode).map(|opcode| Request::decode(opcode, &mut reader)) {
        Some(Ok(request)) => format!("xid {xid} {request:?}"),
        _ => format!("xid {xid} opcode {opcode}, {} bytes", bytes.len()),
    }
}

fn shown_reply(frame: &[u8], greeted: bool) -> String {
    let mut reader = Reader::new(frame);
    let header = ReplyHeader::decode(&mut reader);
    match (ConnectResponse::decode(frame), header, WatcherEvent::decode(&mut reader)) {
        (Ok(response), ..) if !greeted => format!("{response:?}"),
        (_, Ok(header), Ok(event)) if header.xid == xid::NOTIFICATION => {
            format!("zxid {} {event:?}", header.zxid)
        }
        (_, Ok(ReplyHeader { xid, zxid, err }), _) => {
            format!("xid {xid} zxid {zxid} err {err}, {} bytes", frame.len())
        }
        _ => format!("{} bytes", frame.len()),
    }
}
