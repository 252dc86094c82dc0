//! Frames and records of the clients' protocol, and the first bytes of a connection.

#[path = "../../crates/wire/tests/hostile/walk.rs"]
mod walk;

use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, MultiResults, Offer, Opcode, Reader, ReplyHeader, Request,
    RequestHeader, SideHello, Stamped, Stat, Table, WatcherEvent, asks_direct, next_frame, path, side_answer,
    stamp_of,
};
use walk::walk;

const FRAME_BYTES_MAX: usize = 1 << 20;

/// A stream of frames, each with a request or an answer in it.
pub fn frames(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((frame, tail))) = next_frame(rest, FRAME_BYTES_MAX) {
        assert_eq!(frame.len() + 4 + tail.len(), rest.len());
        rest = tail;
        request(frame);
        answer(frame);
    }
    request(data);
}

fn request(frame: &[u8]) {
    let mut reader = Reader::new(frame);
    let Ok(header) = RequestHeader::decode(&mut reader) else { return };
    let body = reader.rest();
    for opcode in Opcode::from_i32(header.opcode).iter().chain(Opcode::ALL) {
        if let Ok(request) = Request::decode(*opcode, &mut Reader::new(body)) {
            walk(&request);
        }
    }
}

/// What a client makes of a frame.
fn answer(frame: &[u8]) {
    let mut reader = Reader::new(frame);
    if ReplyHeader::decode(&mut reader).is_err() {
        return;
    }
    let body = reader.rest();
    let _ = Stat::decode(&mut Reader::new(body));
    let _ = WatcherEvent::decode(&mut Reader::new(body));
    let _ = MultiHeader::decode(&mut Reader::new(body));
    let _ = MultiResults::decode(&mut Reader::new(body));
    let _ = Table::decode(&mut Reader::new(body));
    let _ = Stamped::decode(&mut Reader::new(body));
}

/// What the two ends say first, also on connections to single partitions.
pub fn handshake(data: &[u8]) {
    if let Ok(request) = ConnectRequest::decode(data) {
        let mut again = Vec::new();
        request.encode(&mut again);
        let same = ConnectRequest::decode(&again).expect("it was encoded");
        assert_eq!(format!("{request:?}"), format!("{same:?}"));
    }
    let _ = ConnectResponse::decode(data);
    let _ = asks_direct(data);
    let _ = Offer::find(data);
    let _ = SideHello::decode(data);
    let _ = side_answer(data);
    let _ = stamp_of(data);
    if let Ok(text) = core::str::from_utf8(data) {
        let _ = path::is_valid(text);
        let _ = path::split(text);
    }
}
