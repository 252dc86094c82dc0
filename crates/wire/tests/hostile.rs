//! Hostile bytes: whatever they are, decoding neither panics nor allocates more than a small multiple
//! of what it was given.

#[path = "hostile/walk.rs"]
mod walk;

use proptest::prelude::*;
use stoa_wire::request::encode;
use stoa_wire::{
    ConnectRequest, ConnectResponse, MultiHeader, MultiResults, OPEN_ACL, Offer, Opcode, Reader, ReplyHeader,
    Request, RequestHeader, SideHello, Stamped, Stat, Table, WatcherEvent, asks_direct, next_frame, path,
    put, side_answer, stamp_of,
};
use walk::walk;

/// Bytes that `work` allocates, whether it gives them back or not.
fn allocated(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).bytes_total
}

/// Most bytes that decoding may allocate for each byte of input: a result of a multi takes 9 bytes on
/// the wire and about a hundred in memory, and a vector that grows doubles.
const MULTIPLE: u64 = 64;

/// And on top, for inputs of a few bytes.
const ALLOWANCE: u64 = 1024;

/// Decodes `bytes` as everything that they could be taken for.
fn decode_all(bytes: &[u8]) {
    for opcode in Opcode::ALL {
        if let Ok(request) = Request::decode(*opcode, &mut Reader::new(bytes)) {
            walk(&request);
        }
    }
    // What these say of such bytes is of no matter here, only that they say something.
    let _ = next_frame(bytes, 1 << 20);
    let _ = RequestHeader::decode(&mut Reader::new(bytes));
    let _ = ReplyHeader::decode(&mut Reader::new(bytes));
    let _ = ConnectRequest::decode(bytes);
    let _ = ConnectResponse::decode(bytes);
    let _ = Stat::decode(&mut Reader::new(bytes));
    let _ = WatcherEvent::decode(&mut Reader::new(bytes));
    let _ = MultiHeader::decode(&mut Reader::new(bytes));
    let _ = MultiResults::decode(&mut Reader::new(bytes));
    let _ = asks_direct(bytes);
    let _ = Offer::find(bytes);
    let _ = SideHello::decode(bytes);
    let _ = side_answer(bytes);
    let _ = Stamped::decode(&mut Reader::new(bytes));
    let _ = stamp_of(bytes);
    let _ = Table::decode(&mut Reader::new(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = path::is_valid(text);
        let _ = path::split(text);
    }
}

/// Decodes within the limit on memory.
fn decode_within_limit(bytes: &[u8]) {
    let allocated = allocated(|| decode_all(bytes));
    let limit = MULTIPLE * bytes.len() as u64 + ALLOWANCE;
    assert!(allocated <= limit, "{allocated} bytes allocated for {} bytes: {bytes:02x?}", bytes.len());
}

fn body(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// One well-formed record of each shape.
fn records() -> Vec<Vec<u8>> {
    let stat = Stat { czxid: 1, data_length: 3, ..Stat::default() };
    let multi = |out: &mut Vec<u8>| {
        MultiHeader { opcode: Opcode::Create as i32, done: false, err: -1 }.encode(out);
        encode::create(out, "/a/b", Some(b"data"), OPEN_ACL, 0, None);
        MultiHeader { opcode: Opcode::CreateTtl as i32, done: false, err: -1 }.encode(out);
        encode::create(out, "/t", None, OPEN_ACL, 5, Some(1000));
        MultiHeader { opcode: Opcode::Delete as i32, done: false, err: -1 }.encode(out);
        encode::path_version(out, "/a", -1);
        MultiHeader::END.encode(out);
    };
    vec![
        body(|out| encode::path_watch(out, "/a/\u{e9}", true)),
        body(|out| encode::path_version(out, "/a/b", -1)),
        body(|out| encode::set_data(out, "/a", Some(b"some data"), 3)),
        body(|out| encode::set_acl(out, "/a", OPEN_ACL, 3)),
        body(|out| encode::create(out, "/a/b", Some(b"data"), OPEN_ACL, 0, Some(5))),
        body(|out| encode::auth(out, "digest", b"alice:a")),
        body(|out| encode::set_watches(out, 7, &[&["/a", "/b"], &["/c"], &[], &["/d"], &["/e", "/f"]])),
        body(multi),
        body(|out| {
            ConnectRequest {
                protocol_version: 0,
                last_zxid_seen: 9,
                timeout_ms: 30_000,
                session_id: 7,
                password: &[1; 16],
                read_only: Some(true),
            }
            .encode(out);
        }),
        body(|out| {
            MultiResults::created(out, "/a", Some(&stat));
            MultiResults::deleted(out);
            MultiResults::data(out, Some(b"abc"), &stat);
            MultiResults::children(out);
            put::len(out, 2);
            put::str(out, "x");
            put::str(out, "y");
            MultiResults::error(out, -101);
            MultiResults::end(out);
        }),
    ]
}

#[test]
fn records_cut_at_every_byte() {
    for record in records() {
        for len in 0..=record.len() {
            decode_within_limit(&record[..len]);
        }
    }
}

#[test]
fn records_with_every_bit_flipped() {
    for record in records() {
        for at in 0..record.len() {
            for bit in 0..8 {
                let mut damaged = record.clone();
                damaged[at] ^= 1 << bit;
                decode_within_limit(&damaged);
            }
        }
    }
}

#[test]
fn every_length_and_count_replaced_by_an_extreme_one() {
    for record in records() {
        for at in 0..record.len().saturating_sub(3) {
            for extreme in [-1, -2, i32::MIN, i32::MAX, 0x00ff_ffff, 0x0010_0000, 0] {
                let mut damaged = record.clone();
                damaged[at..at + 4].copy_from_slice(&i32::to_be_bytes(extreme));
                decode_within_limit(&damaged);
            }
        }
    }
}

#[test]
fn a_count_that_does_not_fit_the_frame_costs_no_memory() {
    let huge = body(|out| {
        put::i64(out, 0);
        put::i32(out, i32::MAX);
    });
    let allocated = allocated(|| {
        assert!(Request::decode(Opcode::SetWatches, &mut Reader::new(&huge)).is_err());
    });
    assert_eq!(allocated, 0);
}

#[test]
fn the_longest_vectors_that_a_frame_can_hold_stay_within_the_limit() {
    const FRAME: usize = 1 << 20;
    // Results of a multi that take least: deletes of 9 bytes each, and children of 4.
    let deletes = body(|out| {
        (0..FRAME / 9).for_each(|_| MultiResults::deleted(out));
        MultiResults::end(out);
    });
    let children = body(|out| {
        MultiResults::children(out);
        put::len(out, FRAME / 4);
        out.resize(out.len() + FRAME, 0);
        MultiResults::end(out);
    });
    let results = |bytes: &[u8]| MultiResults::decode(&mut Reader::new(bytes)).map(|results| results.len());
    let allocated = allocated(|| {
        assert_eq!(results(&deletes), Ok(FRAME / 9));
        assert_eq!(results(&children), Ok(1));
    });
    assert!(allocated <= MULTIPLE * (deletes.len() + children.len()) as u64, "{allocated} bytes");
}

#[test]
fn frames_of_any_announced_length() {
    for announced in [i32::MIN, -1, 0, 1, 4, 5, 1 << 20, (1 << 20) + 1, i32::MAX] {
        let bytes = [&announced.to_be_bytes()[..], b"abcd"].concat();
        match next_frame(&bytes, 1 << 20) {
            Ok(Some((payload, rest))) => assert_eq!(payload.len() + rest.len(), 4),
            Ok(None) => assert!((5..=1 << 20).contains(&announced), "{announced}"),
            Err(error) => {
                assert!(!(0..=1 << 20).contains(&announced), "{announced}");
                assert_eq!(error.announced, announced);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        decode_within_limit(&bytes);
    }

    #[test]
    fn small_numbers_which_are_plausible_lengths(bytes in proptest::collection::vec(0_u8..6, 0..300)) {
        decode_within_limit(&bytes);
    }

    #[test]
    fn records_one_after_the_other_with_some_bytes_changed(
        order in proptest::collection::vec(0_usize..10, 1..5),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let records = records();
        let mut bytes: Vec<u8> = order.iter().flat_map(|nth| records[*nth].clone()).collect();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decode_within_limit(&bytes);
    }

    #[test]
    fn frames_are_split_where_they_were_joined(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..8),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        for payload in &payloads {
            let start = stoa_wire::begin_frame(&mut bytes);
            bytes.extend_from_slice(payload);
            stoa_wire::end_frame(&mut bytes, start);
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let mut rest = bytes.as_slice();
        let mut whole = 0;
        while let Ok(Some((payload, after))) = next_frame(rest, 64) {
            prop_assert_eq!(payload, payloads[whole].as_slice());
            whole += 1;
            rest = after;
        }
        // What is left is the beginning of the next frame, never a whole one.
        let next = payloads.get(whole).map_or(0, |payload| payload.len() + 4);
        prop_assert!(rest.is_empty() || rest.len() < next);
    }

    #[test]
    fn paths_are_judged_by_components_and_characters(text in "[/a.\u{0}\u{1f}\u{7f}\u{e000}\u{e9}\u{1f600}]{0,8}") {
        let refused = |c: char| matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..);
        let valid = text == "/"
            || text.strip_prefix('/').is_some_and(|tail| {
                tail.split('/').all(|name| !matches!(name, "" | "." | "..")) && !tail.chars().any(refused)
            });
        prop_assert_eq!(path::is_valid(&text), valid);
    }
}
