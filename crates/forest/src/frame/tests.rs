use super::*;

fn spread(content: Content) -> Frame {
    let place = match content {
        Content::Idle { .. } => Place { previous: 1000, last: 1000 },
        _ => Place { previous: 1000, last: 1064 },
    };
    let aside = [3, 17].into_iter().collect();
    let epoch = Epoch { term: 7, count: 300 };
    Frame::Spread(Spread {
        epoch,
        leader: 9,
        settings: Settings::default(),
        tree: 4,
        number: 77,
        round: 1,
        aside,
        place,
        content,
    })
}

fn acknowledge() -> Acknowledge {
    let item = |server, disk, position, round| Acknowledgement { server, disk, position, round };
    let items = vec![item(1, 5, 1000, 6), item(2, u64::MAX, 1064, 5), item(2, u64::MAX - 1, 3, 0)];
    Acknowledge { term: 7, items }
}

fn samples() -> Vec<Frame> {
    let mut acknowledge = acknowledge();
    acknowledge.items.sort_unstable();
    let place = Place { previous: 3, last: 9 };
    vec![
        spread(Content::Whole(Bytes::from_static(b"some append"))),
        spread(Content::Whole(Bytes::new())),
        spread(Content::Header),
        spread(Content::Idle { committed: 936 }),
        Frame::Acknowledge(acknowledge),
        Frame::Acknowledge(Acknowledge { term: 1, items: vec![] }),
        Frame::Pull(Pull { term: 7, after: 3, upto: 9 }),
        Frame::Pulled(Pulled { term: 7, place, body: Bytes::from_static(b"entries") }),
        Frame::Complaint(Complaint { epoch: Epoch { term: 7, count: 2 }, tree: 1, about: 254 }),
    ]
}

#[test]
fn what_is_written_is_read() {
    for frame in samples() {
        assert_eq!(Frame::decode(frame.encode()), Ok(frame));
    }
}

/// Servers of one release after the other understand one another.
#[test]
fn their_bytes_are_what_they_have_always_been() {
    let hex = |frame: &Frame| frame.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let all: Vec<String> = samples().iter().map(hex).collect();
    assert_eq!(
        all,
        [
            "0107ac0209050503080002044d01e80740736f6d6520617070656e64",
            "0107ac0209050503080002044d01e80740",
            "0207ac0209050503080002044d01e80740",
            "0307ac0209050503080002044d01e80740",
            "0407a80806030105000000000000004000\
             02feffffffffffffffa5080602ffffffffffffffff0001",
            "0401000000",
            "05070306",
            "06070306656e7472696573",
            "07070201fe",
        ]
    );
}

#[test]
fn a_frame_that_is_cut_or_too_long_is_refused() {
    for frame in samples() {
        let bytes = frame.encode();
        let has_body =
            matches!(&frame, Frame::Spread(Spread { content: Content::Whole(_), .. }) | Frame::Pulled(_));
        for len in 0..bytes.len() {
            let read = Frame::decode(bytes.slice(..len));
            assert!(read.is_err() || has_body && read != Ok(frame.clone()), "{frame:?} cut at {len}");
        }
        let long = Frame::decode([&bytes[..], &[0]].concat().into());
        assert!(has_body || long == Err(DecodeError::Long), "{frame:?}");
    }
}

#[test]
fn any_other_bytes_are_another_frame_or_an_error() {
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    for frame in samples() {
        let bytes = frame.encode();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.to_vec();
            other[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Frame::decode(other.clone().into()) {
                assert_ne!(read, frame, "bit {bit}");
                assert_eq!(read.encode(), other, "what is read is written in one way");
            }
        }
        for _ in 0..20_000 {
            let mut other = bytes.to_vec();
            for _ in 0..=next() % 4 {
                let at = next() % other.len();
                other[at] = next() as u8;
            }
            other.truncate(1 + next() % (2 * other.len()));
            if let Ok(read) = Frame::decode(other.clone().into()) {
                assert_eq!(read.encode(), other);
            }
        }
    }
}

#[test]
fn nothing_is_believed_before_it_is_there() {
    // A count of items that would take all memory.
    let mut bytes = vec![ACKNOWLEDGE, 1, 9, 0];
    put_number(&mut bytes, 1 << 60);
    assert_eq!(Frame::decode(bytes.into()), Err(DecodeError::Short));
    // A position below 0, one item twice, no server, no largest; the same of rounds.
    let item = |server: u8, behind: u8| [&[server][..], &[0; 8], &[behind, 0]].concat();
    for (items, error) in [
        ([item(1, 10), item(2, 0)], DecodeError::Place),
        ([item(1, 0), item(1, 0)], DecodeError::Server),
        ([item(2, 0), item(1, 0)], DecodeError::Server),
        ([item(0, 0), item(1, 0)], DecodeError::Server),
        ([item(1, 1), item(2, 1)], DecodeError::Place),
    ] {
        let bytes = [vec![ACKNOWLEDGE, 1, 9, 0, 2], items.concat()].concat();
        assert_eq!(Frame::decode(bytes.into()), Err(error));
    }
    for rounds in [4, 1] {
        let bytes = [vec![ACKNOWLEDGE, 1, 9, 3, 1, 1], vec![0; 8], vec![0, rounds]].concat();
        assert_eq!(Frame::decode(bytes.into()), Err(DecodeError::Place), "{rounds}");
    }
    for (bytes, error) in [
        (&[][..], DecodeError::Short),
        (&[0], DecodeError::Kind(0)),
        (&[8], DecodeError::Kind(8)),
        (&[COMPLAINT, 1, 1, 16, 1], DecodeError::Tree),
        (&[COMPLAINT, 1, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1], DecodeError::Number),
        (&[HEADER, 1, 1, 1, 5, 5, 0, 1, 1, 0, 5, 0], DecodeError::Place),
        (&[HEADER, 1, 1, 1, 5, 4, 0, 1, 1, 0, 5, 1], DecodeError::Tree),
        (&[IDLE, 1, 1, 1, 5, 5, 0, 1, 1, 0, 5, 6], DecodeError::Place),
    ] {
        assert_eq!(Frame::decode(Bytes::copy_from_slice(bytes)), Err(error), "{bytes:?}");
    }
}
