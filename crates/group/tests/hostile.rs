//! Messages that no working member sends: they are refused or come to nothing, and the process
//! goes on. (A member that lies well can still mislead the others: that is what authentication is
//! for.)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rng;

use bytes::Bytes;
use rng::Rng;
use stoa_group::{Config, Group, Mark, Members, Message, Output, Restored};

/// Mostly a number that might be meant seriously.
fn number(rng: &mut Rng) -> u64 {
    match rng.below(16) {
        0 => rng.next(),
        1 => u64::MAX - rng.below(3),
        _ => rng.below(8),
    }
}

/// A message of any kind with any numbers in it, in the wire's form.
fn bytes(rng: &mut Rng) -> Bytes {
    let kind = (1 + rng.below(12)) as u8;
    let is_snapshot = kind == 5;
    let flags = (rng.below(2)) as u8 | if is_snapshot { 2 } else { 0 };
    let mut out = vec![kind, flags];
    let to = if rng.one_in(20) { number(rng) } else { 1 };
    for number in [to, 2 + rng.below(3)] {
        out.extend(number.to_le_bytes());
    }
    let (term, log_term, position) = (number(rng), number(rng), number(rng));
    for number in [term, log_term, position, number(rng), number(rng), number(rng), number(rng)] {
        out.extend(number.to_le_bytes());
    }
    let context = if rng.one_in(3) { &rng.next().to_le_bytes()[..] } else { &[] };
    out.extend((context.len() as u32).to_le_bytes());
    out.extend(context);
    if is_snapshot {
        out.extend(number(rng).to_le_bytes());
        out.extend(number(rng).to_le_bytes());
        for _ in 0..4 {
            let count = rng.below(4);
            out.extend((count as u16).to_le_bytes());
            (0..count).for_each(|_| out.extend((1 + rng.below(4)).to_le_bytes()));
        }
    }
    let count = rng.below(4);
    out.extend((count as u32).to_le_bytes());
    for n in 0..count {
        let is_change = rng.one_in(4);
        let follows = !rng.one_in(10);
        out.push(u8::from(is_change));
        out.extend(if follows { position.wrapping_add(n + 1) } else { number(rng) }.to_le_bytes());
        out.extend(if follows { log_term } else { number(rng) }.to_le_bytes());
        let payload = if is_change {
            let mut step = vec![1 + (rng.below(3)) as u8];
            step.extend((1 + rng.below(4)).to_le_bytes());
            step
        } else {
            b"payload".to_vec()
        };
        out.extend((payload.len() as u32).to_le_bytes());
        out.extend(payload);
    }
    out.into()
}

#[test]
fn no_message_ends_the_process() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = Rng(seed);
        let base = Mark { members: Members::of_voters(&[1, 2, 3]), ..Mark::default() };
        let restored = Restored { base, ..Restored::default() };
        let mut group = Group::new(&Config::new(1, seed), &restored).unwrap();
        for _ in 0..200 {
            match rng.below(12) {
                0 => group.tick(),
                1 => group.campaign(),
                2 => _ = group.propose(Bytes::from_static(b"ours")),
                3 => group.read(7),
                _ => {
                    if let Ok(message) = Message::decode(bytes(&mut rng)) {
                        match group.step(message) {
                            Ok(()) => taken += 1,
                            Err(_) => refused += 1,
                        }
                    }
                }
            }
            while let Some(output) = group.poll() {
                if let Output::Store(store) = output {
                    group.stored(store.number);
                }
            }
        }
    }
    assert!(taken > 50_000 && refused > 50_000, "{taken} taken, {refused} refused");
}
