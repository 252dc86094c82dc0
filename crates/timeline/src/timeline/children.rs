//! The readers below this server: what they are given, and what they ask.

use super::Timeline;
use crate::message::{BadMessage, Message};
use crate::reader_message::{CHAIN_MAX, Down, Up};
use crate::readers::{Child, QUESTIONS_MAX, ReaderOutput, STANDS_HEARTBEATS, WINDOW_BYTES};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;

impl<C: Copy + Ord> Timeline<C> {
    /// A reader is connected, which is called so: as none that asks here is, or was. One that may not be able to read
    /// what comes next is given only what is applied here, as that tells.
    pub fn reader_connected(&mut self, reader: C, is_behind_applied: bool) {
        self.readers.children.insert(reader, Child { is_behind_applied, ..Child::default() });
        if self.log.is_some() {
            self.greet(reader);
        }
    }

    /// It is told who asks in its place, if somebody does.
    fn greet(&mut self, reader: C) {
        let chain = match self.chain() {
            Some(chain) if chain.len() <= CHAIN_MAX => chain,
            Some(_) => {
                return self.readers.drop_child(reader, "too many are between this server and the ensemble");
            }
            None => return,
        };
        let top = self.requests.server();
        self.readers.say(reader, Down::Attached { top, chain });
        let stands = self.stands();
        self.readers.say(reader, stands);
    }

    /// Those between a reader below this server and the ensemble, unless there is no way there.
    fn chain(&self) -> Option<Vec<u64>> {
        let above = match &self.readers.parent {
            Some(parent) => parent.below.as_ref().filter(|_| parent.is_attached)?.chain.clone(),
            None => Vec::new(),
        };
        Some([&[self.tag()], &above[..]].concat())
    }

    /// At the first partition: how many servers are between a reader below this one and the ensemble, this one counted;
    /// `None` where it would find no leader by way of here.
    #[must_use]
    pub fn distance_below(&self) -> Option<u8> {
        self.leader()?;
        let chain = self.chain().filter(|chain| chain.len() <= CHAIN_MAX)?;
        u8::try_from(chain.len()).ok()
    }

    /// This server's way to the ensemble is another one.
    pub(super) fn greet_all(&mut self) {
        if self.log.is_none() {
            return;
        }
        self.readers.all().into_iter().for_each(|reader| self.greet(reader));
    }

    fn stands(&self) -> Down {
        let committed = self.log.as_ref().map_or(0, |log| log.committed());
        Down::Stands { term: self.progress.term, leader: self.leader(), committed }
    }

    /// Who leads has changed.
    pub(super) fn tell_readers(&mut self) {
        if !self.readers.children.is_empty() && self.log.is_some() {
            let (all, stands) = (self.readers.all(), self.stands());
            self.readers.say_to(all, stands);
        }
    }

    /// The connection to a reader has ended.
    pub fn reader_lost(&mut self, reader: C) {
        self.readers.children.remove(&reader);
    }

    /// A reader cannot be one of this server any more, for this reason.
    pub fn end_reader(&mut self, reader: C, why: &'static str) {
        self.readers.drop_child(reader, why);
    }

    /// At the first partition: everything is applied there that it was given. Whoever is given that alone is given more.
    #[inline]
    pub fn all_is_applied(&mut self) {
        if self.readers.children.is_empty() || self.log.is_none() {
            return;
        }
        self.readers.applied = self.divided();
        let waits = self.readers.children.iter().filter(|(_, child)| child.is_behind_applied);
        let waits: Vec<C> = waits.map(|(reader, _)| *reader).collect();
        if !waits.is_empty() {
            self.feed(waits);
        }
    }

    /// How many readers are below this server, and at the first partition how many of them have not got everything
    /// that was committed half a window ago.
    #[must_use]
    pub fn readers(&self) -> (usize, usize) {
        let lags = |child: &&Child| child.snapshot.is_some() || child.under_way_bytes > WINDOW_BYTES / 2;
        (self.readers.children.len(), self.readers.children.values().filter(lags).count())
    }

    /// A reader says something. What is about the state comes back, with the position that it had applied then.
    ///
    /// # Errors
    /// When it is nothing that a reader says: it is broken, or of another release.
    pub fn reader_says(&mut self, reader: C, message: Up) -> Result<Option<(u64, Bytes)>, BadMessage> {
        let Some(child) = self.readers.children.get_mut(&reader) else { return Ok(None) };
        match message {
            Up::Place { position, term } => {
                if self.log.is_none() || (position == 0) != (term == 0) {
                    return Err(BadMessage);
                }
                child.stands_at(position, term);
                self.feed(alloc::vec![reader]);
            }
            Up::Has(position) => {
                if child.given.is_none_or(|(given, _)| position > given) {
                    return Err(BadMessage);
                }
                child.has(position);
                self.feed(alloc::vec![reader]);
            }
            Up::Ask(asked) => self.ask_for_reader(reader, &asked),
            Up::Question(question) => {
                let known = child.questions.iter().any(|(_, of)| *of == question);
                if !known && child.questions.len() < QUESTIONS_MAX {
                    let barrier = self.barriers.next(self.now_us);
                    barrier.waiting.push(reader);
                    child.questions.push((barrier.id(), question));
                }
            }
            Up::Service { applied, message } => return Ok(Some((applied, message))),
        }
        Ok(None)
    }

    /// Requests of a reader's clients are asked as this server's own. Here it is known at once what they are called; who
    /// is a reader itself hears it from its parent.
    fn ask_for_reader(&mut self, reader: C, asked: &[Bytes]) {
        let number = self.requests.next().request;
        for request in asked {
            self.requests.ask(reader, request.clone());
        }
        if self.readers.parent.is_none() && !asked.is_empty() {
            self.readers.say(reader, Down::Numbered { number, count: asked.len() as u64 });
        }
    }

    /// Something about the state for a reader.
    pub fn tell_reader(&mut self, reader: C, message: Bytes) {
        if self.readers.children.contains_key(&reader) {
            self.readers.say(reader, Down::Service(message));
        }
    }

    /// The same for all of them.
    pub fn tell_all_readers(&mut self, message: Bytes) {
        // Who was not told yet who asks in its place takes no word.
        if !self.readers.children.is_empty() && self.chain().is_some() {
            let all = self.readers.all();
            self.readers.say_to(all, Down::Service(message));
        }
    }

    /// The next thing for readers, and whom it is for.
    pub fn poll_reader(&mut self) -> Option<(Vec<C>, ReaderOutput)> {
        self.readers.to_children.pop_front()
    }

    /// The snapshot of [`ReaderOutput::Snapshot`] is durable at its receiver, or was given up. Of one that has come its
    /// receiver says where it stands now.
    pub fn reader_snapshot_sent(&mut self, reader: C, arrived: bool) {
        if let Some(child) = self.readers.children.get_mut(&reader).filter(|_| !arrived) {
            child.snapshot = None;
        }
    }

    /// All of them are given what is new.
    #[inline]
    pub(super) fn feed_all(&mut self) {
        if !self.readers.children.is_empty() {
            self.feed(self.readers.all());
        }
    }

    /// Readers are given what follows, as much as may be on its way. What several lack is taken out of the log once.
    fn feed(&mut self, mut readers: Vec<C>) {
        while !readers.is_empty() {
            let mut behind: BTreeMap<(u64, u64), Vec<C>> = BTreeMap::new();
            for reader in readers.drain(..) {
                if let Some(position) = self.is_to_have(reader) {
                    let waits = self.readers.children.get(&reader).is_some_and(|it| it.is_behind_applied);
                    let upto = if waits { self.readers.applied } else { u64::MAX };
                    behind.entry((position, upto)).or_default().push(reader);
                }
            }
            for ((position, upto), of) in behind {
                let append = self.log.as_mut().and_then(|log| log.group().feed_behind(position, upto));
                let span = append.as_ref().and_then(stoa_group::Message::span);
                let (Some(append), Some(span)) = (append, span) else { continue };
                for reader in &of {
                    if let Some(child) = self.readers.children.get_mut(reader) {
                        child.is_given((span.last, span.term), append.bytes());
                    }
                }
                readers.extend_from_slice(&of);
                self.readers.say_to(of, Down::Feed(append));
            }
        }
    }

    /// The position behind which a reader is to be given entries now. Who lacks what is not kept any more is given a
    /// snapshot, and who has what is not here is dropped.
    fn is_to_have(&mut self, reader: C) -> Option<u64> {
        let group = self.log.as_mut()?.group();
        let child = self.readers.children.get_mut(&reader).filter(|it| it.snapshot.is_none())?;
        let (position, term) = child.given.filter(|_| child.under_way_bytes < WINDOW_BYTES)?;
        if position > group.committed() {
            // It was fed by somebody who had more.
            return None;
        }
        if position < group.base() {
            let mark = group.offered().filter(|mark| mark.position >= group.base()).cloned();
            let Some(mark) = mark.filter(|mark| mark.position > position) else {
                self.readers.wants_snapshot = true;
                return None;
            };
            child.snapshot = Some(mark.position);
            let message = Message::Group(group.feed_snapshot(&mark)).encode().join();
            let output = ReaderOutput::Snapshot { position: mark.position, message };
            self.readers.to_children.push_back((alloc::vec![reader], output));
            return None;
        }
        if position > 0 && group.term_at(position) != Some(term) {
            let why = "its log is not of this history: one of the two has lost something";
            self.readers.drop_child(reader, why);
            return None;
        }
        Some(position)
    }

    /// Looks after those below, and after the parent.
    pub(super) fn tend_readers(&mut self) {
        if self.readers.is_none() || self.log.is_none() || self.readers.tend_at_us > self.now_us {
            return;
        }
        let late_us = self.now_us - self.readers.tend_at_us;
        self.readers.tend_at_us = self.now_us + self.heartbeat_us() * STANDS_HEARTBEATS;
        self.tend_parent(late_us);
        self.tell_readers();
        self.feed_all();
    }
}
