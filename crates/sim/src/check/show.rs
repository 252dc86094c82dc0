//! What comes in and goes out, for whoever reads along.

use super::{Checker, Inbound};
use crate::model::ConnectionKey;
use crate::trace::Trace;
use stoa_wire::{
    ConnectRequest, ConnectResponse, Opcode, Reader, ReplyHeader, Request, RequestHeader, WatcherEvent, xid,
};

/// So much of a request is shown.
const SHOWN_CHARS: usize = 120;

/// Shows what a server takes in.
pub fn show_requests(
    key: ConnectionKey,
    frames: &[Inbound],
    checker: &Checker,
    trace: &mut Trace,
    now_us: u64,
) {
    if !trace.is_printing() {
        return;
    }
    let mut live = checker.is_live(key);
    for frame in frames {
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
        trace.detail(now_us, "in", format_args!("connection {key}: {shown}"));
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

/// Shows what a server writes.
pub fn show_replies(
    key: ConnectionKey,
    frames: &[Vec<u8>],
    checker: &Checker,
    trace: &mut Trace,
    now_us: u64,
) {
    if !trace.is_printing() {
        return;
    }
    let mut greeted = !checker.is_to_be_greeted(key);
    for frame in frames {
        let mut reader = Reader::new(frame);
        let header = ReplyHeader::decode(&mut reader);
        let shown = match (ConnectResponse::decode(frame), header, WatcherEvent::decode(&mut reader)) {
            (Ok(response), ..) if !greeted => format!("{response:?}"),
            (_, Ok(header), Ok(event)) if header.xid == xid::NOTIFICATION => {
                format!("zxid {} {event:?}", header.zxid)
            }
            (_, Ok(ReplyHeader { xid, zxid, err }), _) => {
                format!("xid {xid} zxid {zxid} err {err}, {} bytes", frame.len())
            }
            _ => format!("{} bytes", frame.len()),
        };
        greeted = true;
        trace.detail(now_us, "out", format_args!("connection {key}: {shown}"));
    }
}
