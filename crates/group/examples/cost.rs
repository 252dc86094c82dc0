//! What ordering costs: processor time for an update, of all members together, without network and
//! disk. `cargo run --release -p stoa-group --example cost`

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;
use stoa_group::{Config, Group, Mark, Members, Message, Output, Pieces, Restored};

const UPDATE_BYTES: usize = 150;
const ENTRIES: u32 = 200_000;

struct Ensemble {
    groups: BTreeMap<u64, Group>,
    committed: u64,
}

impl Ensemble {
    fn new(servers: u64) -> Self {
        let voters: Vec<u64> = (1..=servers).collect();
        let base = Mark { members: Members::of_voters(&voters), ..Mark::default() };
        let restored = Restored { base, ..Restored::default() };
        let group = |id| Group::new(&Config::new(id, id), &restored).expect("a new group is sound");
        let mut ensemble = Self { groups: voters.iter().map(|id| (*id, group(*id))).collect(), committed: 0 };
        ensemble.group(1).campaign();
        ensemble.settle();
        ensemble
    }

    fn group(&mut self, id: u64) -> &mut Group {
        self.groups.get_mut(&id).expect("there is such a server")
    }

    /// Every disk stores at once, every message arrives, in the form in which it travels.
    fn settle(&mut self) {
        loop {
            let mut messages = Vec::new();
            for (id, group) in &mut self.groups {
                while let Some(output) = group.poll() {
                    match output {
                        Output::Send(message) => messages.push(message),
                        Output::Store(store) => {
                            black_box(store.encode());
                            group.stored(store.number);
                        }
                        Output::Committed(entries) if *id == 1 => self.committed += entries.len() as u64,
                        _ => {}
                    }
                }
            }
            if messages.is_empty() {
                return;
            }
            for message in messages {
                let mut bytes = Pieces::default();
                message.encode(&mut bytes);
                let message = Message::decode(bytes.join()).expect("it was encoded just now");
                self.group(message.to()).step(message).expect("members make sense");
            }
        }
    }
}

fn main() {
    for servers in [1, 3, 5] {
        for updates in [1, 16, 64] {
            let mut ensemble = Ensemble::new(servers);
            let entries = ENTRIES / updates;
            let payload = Bytes::from(vec![7; UPDATE_BYTES * updates as usize]);
            let before = ensemble.committed;
            let began = Instant::now();
            for n in 0..entries {
                ensemble.group(1).propose(payload.clone()).expect("the first one leads");
                ensemble.settle();
                if n % 1024 == 0 {
                    for group in ensemble.groups.values_mut() {
                        let mark = group.mark();
                        group.offer_snapshot(mark);
                        group.compact(u64::MAX, 0);
                    }
                }
            }
            let took = began.elapsed();
            assert_eq!(ensemble.committed - before, u64::from(entries));
            let each = took.as_nanos() as f64 / f64::from(entries * updates);
            println!(
                "{servers} servers, {updates:2} updates an entry: {each:7.0} ns an update, all members together"
            );
        }
    }
}
