//! Frames of other servers, for one that passes them on and for one that leads.

use crate::Input;
use bytes::Bytes;
use stoa_forest::{Frame, Ids, Limits, Output, Place, Relay, Settings, Spreader};

const SERVERS: [u8; 6] = [1, 2, 3, 4, 5, 9];

/// Frames, a piece each, and what else happens to a server.
pub fn forest(data: &[u8]) {
    let mut input = Input(data);
    let servers: Ids = SERVERS.into_iter().collect();
    let limits = Limits { held_bytes_max: 1 << 10, held_count_max: 16, ..Limits::default() };
    let mut relay = Relay::new(2, limits.clone());
    relay.set_servers(&servers);
    let mut leader = Spreader::new(1, 3, &servers, 10, Settings::default(), limits);
    let mut now_us = 0;
    while !input.is_empty() {
        now_us += 1000;
        let from = SERVERS[usize::from(input.byte()) % SERVERS.len()];
        match input.byte() {
            0 => relay.tick(now_us),
            1 => leader.tick(now_us),
            2 => relay.has(3, u64::from(input.byte())),
            3 => relay.committed(u64::from(input.byte())),
            4 => relay.stored(3, 7, u64::from(input.byte())),
            5 => relay.gone(from),
            6 => leader.gone(now_us, from),
            7 => leader.connected(from),
            8 => relay.enter(now_us, u64::from(input.byte()), Some(from)),
            9 => leader.committed(u64::from(input.byte())),
            10 => spread(&mut leader, &mut relay, now_us, &mut input),
            _ => receive(&mut leader, &mut relay, (now_us, from), input.piece()),
        }
        while relay.poll().is_some() {}
        while leader.poll().is_some() {}
    }
}

/// What a leader spreads is taken by who follows.
fn spread(leader: &mut Spreader, relay: &mut Relay, now_us: u64, input: &mut Input<'_>) {
    let previous = u64::from(input.byte());
    let place = Place { previous, last: previous + u64::from(input.byte()) };
    leader.spread(now_us, place, Bytes::copy_from_slice(input.piece()));
    while let Some(output) = leader.poll() {
        if let Output::Send { frame, .. } = output {
            relay.receive(now_us, 1, frame).expect("a leader writes frames");
        }
    }
}

fn receive(leader: &mut Spreader, relay: &mut Relay, (now_us, from): (u64, u8), piece: &[u8]) {
    let bytes = Bytes::copy_from_slice(piece);
    let is_frame = if let Ok(frame) = Frame::decode(bytes.clone()) {
        let written = frame.encode();
        assert_eq!(Frame::decode(written), Ok(frame), "what is written is read again");
        true
    } else {
        false
    };
    assert_eq!(relay.receive(now_us, from, bytes.clone()).is_ok(), is_frame);
    assert_eq!(leader.receive(now_us, from, bytes).is_ok(), is_frame);
}
