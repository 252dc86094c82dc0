//! A member that stands alone and a reader below it, with what somebody says to either in the other's name.

use std::collections::BTreeMap;

use bytes::Bytes;
use stoa_core::{
    ConnectionId, Levels, ParentOutput, ParentTraits, ReaderOutput, SnapshotOutput, StateLoader,
};
use stoa_tree::Options;

use crate::Input;
use crate::server::{Member, has_entries};

/// Which of the two hears something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hears {
    /// The parent, of the reader.
    Parent,
    /// The reader, of its parent.
    Reader,
}

/// Both, and their connection.
pub struct Pair {
    /// The member.
    pub parent: Member,
    /// The reader.
    pub reader: Member,
    /// The number of their connection, which is another one when that was ended.
    link: u64,
    is_tied: bool,
    /// The snapshot that the member writes, by its number: where it stands, and its pieces.
    writing: BTreeMap<u64, (u64, Vec<Vec<u8>>)>,
    newest: Option<(u64, Vec<Vec<u8>>)>,
}

impl Pair {
    /// Two that are connected, and know each other.
    ///
    /// # Panics
    /// When they do not understand each other.
    #[must_use]
    pub fn new(hears: &mut impl FnMut(Hears, &Bytes)) -> Self {
        let mut pair = Self {
            parent: Member::new(1, &[1]),
            reader: Member::reader(),
            link: 0,
            is_tied: false,
            writing: BTreeMap::new(),
            newest: None,
        };
        for _ in 0..20 {
            pair.pass(10);
            pair.settle(hears);
        }
        assert!(pair.reader.server.below().is_some(), "the reader has a parent");
        assert_eq!(pair.reader.server.tree().digest(), pair.parent.server.tree().digest());
        pair
    }

    fn name(&self) -> ConnectionId {
        ConnectionId::of_reader(self.link)
    }

    fn tie(&mut self) {
        let Some(history) = self.parent.server.history() else { return };
        (self.link, self.is_tied) = (self.link + 1, true);
        let name = self.name();
        self.parent.server.reader_connected(name, Levels::OWN, self.parent.now);
        assert!(self.reader.server.parent_met(history.id, self.reader.now));
        let traits = ParentTraits { takes_reads: true, is_of_site: false };
        self.reader.server.parent_connected(self.link, traits, self.reader.now);
    }

    fn untie(&mut self) {
        self.is_tied = false;
        let name = self.name();
        self.parent.server.reader_lost(name, self.parent.now);
        self.reader.server.parent_lost(self.link, self.reader.now);
    }

    /// Time passes for both.
    pub fn pass(&mut self, ms: u64) {
        self.parent.pass(ms);
        self.reader.pass(ms);
    }

    /// Somebody says this. Who cannot make sense of it ends the connection.
    pub fn say(&mut self, to: Hears, partition: u8, word: Bytes) {
        let name = self.name();
        let heard = match to {
            Hears::Parent => self.parent.server.reader_says(name, word, self.parent.now),
            Hears::Reader => self.reader.server.parent_says(self.link, partition, word, self.reader.now),
        };
        if heard.is_err() && self.is_tied {
            self.untie();
        }
    }

    /// Carries what they say to each other, which `hears` is shown, until nobody has more to say.
    pub fn settle(&mut self, hears: &mut impl FnMut(Hears, &Bytes)) {
        // What somebody else has said may have them talk for ever.
        for _ in 0..1000 {
            self.parent.settle_with(|_, _| ());
            self.reader.settle_with(|_, _| ());
            self.write_snapshots();
            if !self.is_tied {
                self.tie();
            }
            if let Some((of, output)) = self.parent.server.poll_reader() {
                // There is one reader at a time: an older one's words are for nobody.
                of.into_iter().for_each(|of| self.carry_down(of, output.clone(), hears));
            } else if let Some(output) = self.reader.server.poll_parent() {
                match output {
                    ParentOutput::Say(link, word) if link == self.link && self.is_tied => {
                        let word = word.encode().join();
                        hears(Hears::Parent, &word);
                        self.say(Hears::Parent, 0, word);
                    }
                    ParentOutput::Say(..) => {}
                    ParentOutput::Leave(_) if self.is_tied => self.untie(),
                    ParentOutput::Leave(_) => {}
                }
            } else {
                return;
            }
        }
    }

    fn carry_down(&mut self, of: ConnectionId, output: ReaderOutput, hears: &mut impl FnMut(Hears, &Bytes)) {
        if of != self.name() || !self.is_tied {
            return;
        }
        match output {
            ReaderOutput::Say(word) => {
                let word = word.encode().join();
                hears(Hears::Reader, &word);
                self.say(Hears::Reader, 0, word);
            }
            ReaderOutput::Snapshot { position, message } => {
                let arrived = self.send_snapshot(position, message);
                self.parent.server.reader_snapshot_sent(of, arrived, self.parent.now);
            }
            ReaderOutput::Drop(_) => self.untie(),
        }
    }

    fn send_snapshot(&mut self, position: u64, message: Bytes) -> bool {
        let Some((_, pieces)) = self.newest.as_ref().filter(|(at, _)| *at == position) else { return false };
        let (reader, now) = (&mut self.reader.server, self.reader.now);
        if !reader.wants_snapshot(message.clone()) {
            reader.parent_snapshot_declined(now);
            return true;
        }
        let mut loader = StateLoader::new(&Options::default(), 1);
        pieces.iter().for_each(|piece| loader.chunk(piece).expect("it is a snapshot"));
        let states = loader.finish().expect("it is whole");
        reader.take_over(0, message, states, now).expect("it has its message");
        true
    }

    fn write_snapshots(&mut self) {
        while let Some(piece) = self.parent.server.poll_snapshot() {
            match piece {
                SnapshotOutput::Begin { number, position, .. } => {
                    self.writing.insert(number, (position, Vec::new()));
                }
                SnapshotOutput::Slice { number, bytes } => {
                    if let Some((_, pieces)) = self.writing.get_mut(&number) {
                        pieces.push(bytes);
                    }
                    self.parent.server.snapshot_taken();
                }
                SnapshotOutput::End { number } => {
                    self.newest = self.writing.remove(&number);
                    self.parent.server.snapshot_finished(number, true);
                }
                SnapshotOutput::Abort { number } => self.parent.server.snapshot_finished(number, false),
            }
        }
        while let Some(piece) = self.reader.server.poll_snapshot() {
            if let SnapshotOutput::End { number } | SnapshotOutput::Abort { number } = piece {
                self.reader.server.snapshot_finished(number, false);
            } else if let SnapshotOutput::Slice { .. } = piece {
                self.reader.server.snapshot_taken();
            }
        }
    }
}

/// Words to the parent in the reader's name and the other way round, bytes of a client of each, time, and connections
/// that end.
pub fn reader(data: &[u8]) {
    let mut input = Input(data);
    let mut pair = Pair::new(&mut |_, _| ());
    while !input.is_empty() {
        match input.byte() {
            how @ 0..=79 => {
                let (to, word) = (if how < 40 { Hears::Parent } else { Hears::Reader }, input.piece());
                // What is committed is believed, as a leader is.
                let is_believed = |it: &[u8]| has_entries(&[&[1], it].concat()).unwrap_or(false);
                if to == Hears::Reader && word.strip_prefix(&[3]).is_some_and(is_believed) {
                    continue;
                }
                pair.say(to, how % 40 / 36, Bytes::copy_from_slice(word));
            }
            how @ 80..=160 => {
                let piece = input.piece();
                let of = if how < 120 { &mut pair.parent } else { &mut pair.reader };
                of.from_client(usize::from(how % 2), piece);
            }
            ms @ 161..=250 => pair.pass(u64::from(ms - 160)),
            _ if pair.is_tied => pair.untie(),
            _ => {}
        }
        pair.settle(&mut |_, _| ());
    }
    for server in [&pair.parent.server, &pair.reader.server] {
        assert_eq!(server.tree().digest(), server.tree().recomputed_digest());
    }
}
