//! What ordering costs, without network and disk: processor time for an update, of all members together, and time that a
//! leader takes for an entry, by how many members it has, sent to each or once for all. `cargo run --release -p stoa-group --example cost`,
//! with `-- 3 200` only the latter, with so many members.

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use bytes::Bytes;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};
use stoa_group::{Config, Group, Mark, Members, Message, Output, Pieces, Restored};

const UPDATE_BYTES: usize = 150;
const ENTRIES: u32 = 200_000;
/// Of larger ensembles so many messages are enough.
const MESSAGES: u64 = 2_000_000;
const LEADER: u64 = 1;

struct Ensemble {
    groups: BTreeMap<u64, Group>,
    committed: u64,
    /// What the leader takes in its engine, and to put what it says to others into bytes.
    engine: Duration,
    coding: Duration,
}

impl Ensemble {
    fn new(servers: u64, spreads: bool) -> Self {
        let voters: Vec<u64> = (1..=servers).collect();
        let base = Mark { members: Members::of_voters(&voters), ..Mark::default() };
        let restored = Restored { base, ..Restored::default() };
        let group = |id| Group::new(&Config::new(id, id), &restored).expect("a new group is sound");
        let mut ensemble = Self {
            groups: voters.iter().map(|id| (*id, group(*id))).collect(),
            committed: 0,
            engine: Duration::ZERO,
            coding: Duration::ZERO,
        };
        if spreads {
            ensemble.group(LEADER).spread_to(voters);
        }
        ensemble.group(LEADER).campaign();
        ensemble.settle();
        for _ in 0..10 {
            ensemble.group(LEADER).tick();
            ensemble.settle();
        }
        assert_eq!(ensemble.group(LEADER).fed() as u64, if spreads { servers - 1 } else { 0 });
        ensemble
    }

    fn group(&mut self, id: u64) -> &mut Group {
        self.groups.get_mut(&id).expect("there is such a server")
    }

    /// Every disk stores at once, every message arrives, in the form in which it travels. What is spread arrives at all, and
    /// what they acknowledge then comes back together.
    fn settle(&mut self) {
        loop {
            let (messages, spread) = self.said();
            if messages.is_empty() && spread.is_empty() {
                return;
            }
            for message in spread {
                let message = self.carried(&message);
                for (_, group) in self.groups.iter_mut().filter(|(id, _)| **id != LEADER) {
                    group.step(message.addressed(group.id())).expect("members make sense");
                }
            }
            let is_fed = self.group(LEADER).fed() > 0;
            let mut acknowledged = Vec::new();
            for message in messages {
                let message = self.carried(&message);
                match message.acknowledges().filter(|_| is_fed) {
                    Some(position) => acknowledged.push((message.from(), position)),
                    None => self.step(message),
                }
            }
            let (term, _) = self.group(LEADER).in_step();
            let began = Instant::now();
            self.group(LEADER).acknowledge(term, acknowledged);
            self.engine += began.elapsed();
        }
    }

    fn step(&mut self, message: Message) {
        let (to, began) = (message.to(), Instant::now());
        self.group(to).step(message).expect("members make sense");
        if to == LEADER {
            self.engine += began.elapsed();
        }
    }

    /// A message as it arrives.
    fn carried(&mut self, message: &Message) -> Message {
        let began = Instant::now();
        let mut bytes = Pieces::default();
        message.encode(&mut bytes);
        if message.from() == LEADER {
            self.coding += began.elapsed();
        }
        Message::decode(bytes.join()).expect("it was encoded just now")
    }

    /// What all members say, and what they do besides.
    fn said(&mut self) -> (Vec<Message>, Vec<Message>) {
        let (mut messages, mut spread) = (Vec::new(), Vec::new());
        for (id, group) in &mut self.groups {
            let began = Instant::now();
            while let Some(output) = group.poll() {
                match output {
                    Output::Send(message) => messages.push(message),
                    Output::Spread(message) => spread.push(message),
                    Output::Store(store) => {
                        black_box(store.encode());
                        group.stored(store.number);
                    }
                    Output::Committed(entries) if *id == LEADER => self.committed += entries.len() as u64,
                    _ => {}
                }
            }
            if *id == LEADER {
                self.engine += began.elapsed();
            }
        }
        (messages, spread)
    }

    /// Proposes entries one after the other, each of so many bytes.
    fn order(&mut self, entries: u32, bytes: usize) {
        let payload = Bytes::from(vec![7; bytes]);
        let before = self.committed;
        (self.engine, self.coding) = Default::default();
        for n in 0..entries {
            let began = Instant::now();
            self.group(LEADER).propose(payload.clone()).expect("the first one leads");
            self.engine += began.elapsed();
            self.settle();
            if n % 1024 == 0 {
                for group in self.groups.values_mut() {
                    let mark = group.mark();
                    group.offer_snapshot(mark);
                    group.compact(u64::MAX, 0);
                }
            }
        }
        assert_eq!(self.committed - before, u64::from(entries));
    }
}

fn main() {
    let sizes: Vec<u64> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    if sizes.is_empty() {
        cost_together();
        cost_leader(&[3, 15, 50, 100, 200]);
    } else {
        cost_leader(&sizes);
    }
}

fn cost_together() {
    for servers in [1, 3, 5] {
        for updates in [1, 16, 64] {
            let entries = ENTRIES / updates;
            let mut ensemble = Ensemble::new(servers, false);
            let began = Instant::now();
            ensemble.order(entries, UPDATE_BYTES * updates as usize);
            let each = began.elapsed().as_nanos() as f64 / f64::from(entries * updates);
            println!(
                "{servers} servers, {updates:2} updates an entry: {each:7.0} ns an update, all members together"
            );
        }
    }
}

fn cost_leader(sizes: &[u64]) {
    for (servers, spreads) in sizes.iter().flat_map(|servers| [(*servers, false), (*servers, true)]) {
        let entries = u32::try_from(MESSAGES / (servers * servers)).unwrap_or(u32::MAX).min(20_000);
        let mut ensemble = Ensemble::new(servers, spreads);
        ensemble.order(entries, UPDATE_BYTES * 64);
        let each = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(entries);
        println!(
            "{servers:3} servers, 64 updates an entry, {}: the leader's engine takes {:6.1} us an entry, its messages {:5.1}",
            if spreads { "once for all" } else { "to each" },
            each(ensemble.engine),
            each(ensemble.coding),
        );
    }
}
