//! What members of a timeline's group say to each other, and what they store.

use crate::Input;
use bytes::Bytes;
use stoa_group::{Change, Config, Group, Mark, Members, Message, Output, Pieces, Restored, Store};

/// Records and messages, a piece each, and what else a member may do.
pub fn group(data: &[u8]) {
    let mut input = Input(data);
    let base = Mark { members: Members::of_voters(&[1, 2, 3]), ..Mark::default() };
    let mut restored = Restored { base, ..Restored::default() };
    let seed = u64::from(input.byte());
    for _ in 0..input.byte() % 8 {
        let record = Bytes::copy_from_slice(input.piece());
        if let Ok(store) = Store::decode(record.clone()) {
            assert_eq!(store.encode().join(), record, "a record is read and written in one way");
        }
        // A log that is damaged is not used.
        if restored.replay(record).is_err() {
            return;
        }
    }
    let Some(mut group) = Group::new(&Config::new(1, seed), &restored) else { return };
    while !input.is_empty() {
        match input.byte() {
            0 => group.campaign(),
            1 => _ = group.propose(Bytes::from_static(b"ours")),
            2 => group.read(7),
            3 => group.tick(),
            4 => _ = group.propose_changes(&[Change::AddLearner(4)]),
            5 => _ = group.propose_changes(&[Change::AddVoter(4), Change::Remove(3)]),
            6 => group.transfer(2),
            7 => group.unreachable(3),
            8 => group.forget_leader(),
            _ => step(&mut group, input.piece()),
        }
        while let Some(output) = group.poll() {
            if let Output::Store(store) = output {
                group.stored(store.number);
            }
        }
    }
}

fn step(group: &mut Group, piece: &[u8]) {
    let Ok(message) = Message::decode(Bytes::copy_from_slice(piece)) else { return };
    // Members may come in any order, and are written in theirs.
    let bytes = written(&message);
    let again = Message::decode(bytes.clone()).expect("it was just written");
    assert_eq!(written(&again), bytes, "a message is read and written in one way");
    assert_eq!(bytes.len(), piece.len());
    let [mut header, mut entries] = [Pieces::default(), Pieces::default()];
    again.encode_header(&mut header);
    again.encode_entries(&mut entries);
    let parts = Message::decode_parts(header.join(), again.span(), entries.join());
    assert_eq!(parts, Ok(again), "it is its header and its entries");
    let _ = group.step(message);
}

fn written(message: &Message) -> Bytes {
    let mut pieces = Pieces::default();
    message.encode(&mut pieces);
    pieces.join()
}
