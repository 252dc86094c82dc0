//! What a reader does: it follows its parent, and asks by way of it.

use super::{FIRST, Timeline};
use crate::message::BadMessage;
use crate::reader_message::{CHAIN_MAX, Down, Up};
use crate::readers::{Below, PATIENCE_ELECTIONS, ParentOutput, TOLD_BYTES};
use crate::requests::Requests;
use crate::shared_log::{Attachment, Delivery, ParentTraits};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use stoa_group::HistoryId;

impl<C: Copy + Ord> Timeline<C> {
    /// Whether this server is a reader.
    #[must_use]
    #[inline]
    pub fn is_reader(&self) -> bool {
        self.readers.parent.is_some()
    }

    /// Of this process, for others to tell it by.
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.config.seeds[0]
    }

    /// How this reader stands below its parent, if it does.
    #[must_use]
    pub fn below(&self) -> Option<&Below> {
        self.readers.parent.as_ref()?.below.as_ref()
    }

    pub(super) fn requests_of(config: &super::Config) -> Requests<C> {
        let stream = config.seeds[1];
        if config.is_reader { Requests::new_at_reader(stream) } else { Requests::new(config.server, stream) }
    }

    /// Somebody who would be this reader's parent has this history. False when it is another one than what is here.
    pub fn parent_met(&mut self, history: HistoryId) -> bool {
        if self.birth.is_some() {
            self.begin_history(history, BTreeMap::new());
        }
        self.history().is_some_and(|own| own.id == history)
    }

    /// There is a connection to a parent, with this number.
    pub fn parent_connected(&mut self, link: u64, traits: ParentTraits) {
        self.part_from_parent();
        let now_us = self.now_us;
        if let Some(parent) = &mut self.readers.parent {
            (parent.link, parent.heard_us, parent.lacks_since_us) = (Some(link), now_us, Some(now_us));
            parent.speaks_on = Some(link);
            parent.traits = traits;
        }
        self.tell_place();
    }

    /// It has ended.
    pub fn parent_lost(&mut self, link: u64) {
        if self.readers.parent.as_ref().is_some_and(|parent| parent.link == Some(link)) {
            self.part_from_parent();
        }
    }

    fn part_from_parent(&mut self) {
        self.readers.to_parent.clear();
        let Some(parent) = &mut self.readers.parent else { return };
        if parent.link.take().is_none() {
            return;
        }
        (parent.told, parent.speaks_on) = (None, None);
        if parent.below.take().is_some() {
            self.deliver_to_all(&Delivery::Attached(None));
            self.nobody_is_known_to_lead();
        }
        self.readers.drop_children("this server has no way to the ensemble");
    }

    pub(super) fn nobody_is_known_to_lead(&mut self) {
        if let Some(parent) = &mut self.readers.parent {
            parent.told = None;
        }
        let term = self.progress.term;
        self.deliver_to_all(&Delivery::Leader { term, leader: 0, leads: false });
    }

    /// Another parent may do better.
    fn leave(&mut self, why: &'static str) {
        self.part_from_parent();
        self.readers.to_parent.push_back(ParentOutput::Leave(why));
    }

    /// At the first partition: another parent than the one on this connection is better. It is left if nobody loses anything
    /// by that: nothing that was asked here is without an outcome, and no readers are below, who would have to look for
    /// others. Returns whether it is.
    pub fn leaves_quietly(&mut self, link: u64) -> bool {
        let is_it = self.readers.parent.as_ref().is_some_and(|parent| parent.link == Some(link));
        let is_quiet = self.requests.is_empty() && self.barriers.is_empty();
        let leaves = is_it && is_quiet && self.readers.children.is_empty();
        if leaves {
            self.leave("another parent is better");
        }
        leaves
    }

    pub(super) fn say_up(&mut self, message: Up) {
        if let Some(link) = self.readers.parent.as_ref().and_then(|parent| parent.speaks_on) {
            self.readers.to_parent.push_back(ParentOutput::Say(link, message));
        }
    }

    /// Something about the state for the parent.
    pub fn tell_parent(&mut self, message: Bytes) {
        let applied = self.progress.applied.0;
        self.say_up(Up::Service { applied, message });
    }

    /// Whether there is a parent that takes what is read here.
    #[must_use]
    pub fn parent_takes_reads(&self) -> bool {
        self.readers.parent.as_ref().is_some_and(|parent| parent.is_attached && parent.traits.takes_reads)
    }

    /// Whether the parent is of one of several sites, or the last one was.
    #[must_use]
    pub fn parent_is_of_site(&self) -> bool {
        self.readers.parent.as_ref().is_some_and(|parent| parent.traits.is_of_site)
    }

    /// The next thing for the parent.
    pub fn poll_parent(&mut self) -> Option<ParentOutput> {
        self.readers.to_parent.pop_front()
    }

    /// At the first partition: the parent is told where this server's log ends.
    pub fn tell_place(&mut self) {
        let Some(log) = self.log.as_mut().filter(|log| !log.is_taking_over()) else { return };
        let Some(parent) = self.readers.parent.as_mut().filter(|parent| parent.link.is_some()) else {
            return;
        };
        let group = log.group();
        let position = group.committed();
        let term = group.term_at(position).unwrap_or(0);
        (parent.told_position, parent.untold_bytes) = (position, 0);
        self.say_up(Up::Place { position, term });
    }

    /// At the first partition: a partition of the parent says something, on this connection.
    ///
    /// # Errors
    /// When it is nothing that a parent says: it is broken, or of another release.
    pub fn parent_says(&mut self, link: u64, partition: u8, message: Down) -> Result<(), BadMessage> {
        let now_us = self.now_us;
        let Some(parent) = self.readers.parent.as_mut().filter(|parent| parent.link == Some(link)) else {
            return Ok(());
        };
        parent.heard_us = now_us;
        let is_attached = parent.below.is_some();
        if partition >= self.config.partitions.max(1) {
            return Err(BadMessage);
        }
        match message {
            Down::Numbered { number, count } if is_attached => {
                self.deliver(partition, Delivery::Numbered { number, count });
            }
            Down::Answer { question, position } if is_attached => {
                self.deliver(partition, Delivery::Position { question, position });
            }
            Down::Service(message) if is_attached => self.deliver(partition, Delivery::Service(message)),
            _ if partition != FIRST => return Err(BadMessage),
            Down::Attached { top, chain } if !is_attached => self.attached(top, chain),
            Down::Stands { term, leader, committed } => self.parent_stands((term, leader), committed),
            Down::Feed(append) => {
                let log = self.log.as_mut().ok_or(BadMessage)?;
                parent.untold_bytes += append.bytes();
                if log.group().feed(append).is_err() {
                    self.leave("what it has contradicts what is here: one of the two has lost something");
                }
            }
            _ => return Err(BadMessage),
        }
        Ok(())
    }

    /// At any partition: the parent has said what no parent says.
    pub fn refuse_parent(&mut self) {
        let why = "it says what cannot be read; is it of another release?";
        self.readers.to_parent.push_back(ParentOutput::Leave(why));
    }

    fn attached(&mut self, top: u8, chain: Vec<u64>) {
        if chain.is_empty() || chain.len() > CHAIN_MAX || chain.contains(&self.tag()) {
            return self.leave("its way to the ensemble is by way of this server");
        }
        if let Some(parent) = &mut self.readers.parent {
            parent.below = Some(Below { top, chain, committed: 0 });
        }
        let Some(parent) = self.readers.parent.as_ref() else { return };
        let attachment = Attachment { top, link: parent.link.unwrap_or(0), parent: parent.traits };
        self.deliver_to_all(&Delivery::Attached(Some(attachment)));
    }

    fn parent_stands(&mut self, told: (u64, Option<u8>), committed: u64) {
        let now_us = self.now_us;
        let Some(parent) = &mut self.readers.parent else { return };
        if let Some(below) = &mut parent.below {
            below.committed = committed;
        }
        let lacks = parent.below.is_none() || told.1.is_none();
        parent.lacks_since_us = lacks.then(|| parent.lacks_since_us.unwrap_or(now_us));
        if parent.below.is_some() && parent.told != Some(told) {
            parent.told = Some(told);
            let leader = told.1.map_or(0, crate::peers::member_of);
            self.deliver_to_all(&Delivery::Leader { term: told.0, leader, leads: false });
        }
    }

    /// Entries have been committed here: the parent may have to know, for it to give more.
    pub(super) fn has_committed(&mut self) {
        if self.readers.parent.as_ref().is_some_and(|parent| parent.untold_bytes >= TOLD_BYTES) {
            self.tell_what_is_here();
        }
    }

    fn tell_what_is_here(&mut self) {
        let position = self.log.as_mut().map_or(0, |log| log.committed());
        let Some(parent) = self.readers.parent.as_mut().filter(|parent| parent.link.is_some()) else {
            return;
        };
        if position > parent.told_position {
            (parent.told_position, parent.untold_bytes) = (position, 0);
            self.say_up(Up::Has(position));
        }
    }

    /// Looks whether the parent is one to stay with. `late_us` is how late that is: whoever has stood still has not
    /// listened.
    pub(super) fn tend_parent(&mut self, late_us: u64) {
        let (now_us, election_us) = (self.now_us, self.election_us());
        let Some(parent) = self.readers.parent.as_mut().filter(|parent| parent.link.is_some()) else {
            return;
        };
        if late_us > election_us / 2 {
            parent.heard_us = now_us;
        }
        let is_silent = parent.heard_us + election_us <= now_us;
        let patience_us = election_us * PATIENCE_ELECTIONS;
        let lacks = parent.lacks_since_us.is_some_and(|since_us| since_us + patience_us <= now_us);
        if is_silent {
            self.leave("nothing is heard of it");
        } else if lacks {
            self.leave("it has no way to a leader");
        } else if core::mem::take(&mut parent.is_to_place) {
            self.tell_place();
        } else {
            self.tell_what_is_here();
        }
    }

    /// At each partition: somebody else asks in its place from now on, or nobody does.
    pub(super) fn is_attached(&mut self, by: Option<Attachment>) {
        let Some(parent) = &mut self.readers.parent else { return };
        parent.is_attached = by.is_some();
        parent.traits = by.map_or(parent.traits, |by| by.parent);
        if self.log.is_none() {
            parent.speaks_on = by.map(|by| by.link);
            self.readers.to_parent.clear();
        }
        if let Some(by) = by {
            self.requests.ask_through(by.top);
            self.greet_all();
        }
    }

    /// Gives what was asked here to the parent, if there is one.
    pub(super) fn give_to_parent(&mut self, bytes_max: usize) {
        let is_attached = self.readers.parent.as_ref().is_some_and(|parent| parent.is_attached);
        while is_attached && let Some((_, asked)) = self.requests.give(bytes_max) {
            self.say_up(Up::Ask(asked));
        }
    }

    /// The oldest of the requests that had no number are called so; those of readers below are told.
    pub(super) fn are_numbered(&mut self, number: u64, count: u64) {
        let readers = &mut self.readers;
        let mut runs: Vec<(C, u64, u64)> = Vec::new();
        let children = &readers.children;
        let named = self.requests.name(number, count, |who, number| match runs.last_mut() {
            Some((last, first, count)) if *last == who && *first + *count == number => *count += 1,
            _ if children.contains_key(&who) => runs.push((who, number, 1)),
            _ => {}
        });
        for (reader, number, count) in runs {
            readers.say(reader, Down::Numbered { number, count });
        }
        if !named {
            self.readers.to_parent.push_back(ParentOutput::Leave("it has numbered what it was not asked"));
        }
    }
}
