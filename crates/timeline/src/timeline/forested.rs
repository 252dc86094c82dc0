//! What passes between the group, the forest and the other servers.

use super::{FIRST, Timeline};
use crate::forest::Forested;
use crate::forest_status::ForestStatus;
use crate::message::Message;
use crate::peers::server_of;
use alloc::vec::Vec;
use stoa_group::{Members, Message as GroupMessage, Role};

impl<C: Copy + Ord> Timeline<C> {
    /// Whether another server understands messages of the forest, and has it: else none are sent to it. That is to be
    /// said before it is connected, where it is not so.
    pub fn peer_reads_forest(&mut self, peer: u8, reads: bool) {
        self.forest.hears(peer, reads);
    }

    /// There is a connection to another server. It is told this process's tag if that will be wanted.
    pub(super) fn meet_in_forest(&mut self, peer: u8) {
        self.forest.met(peer);
        if self.forest.may_be() {
            self.tell_tag(peer, true);
        }
    }

    /// The connection to another server has ended.
    pub(super) fn lose_in_forest(&mut self, peer: u8) {
        self.forest.gone(self.now_us, peer);
        self.spread_to_reached();
    }

    /// Another server has told its tag, and may want to know this one's.
    pub(super) fn take_tag(&mut self, peer: u8, tag: u64, asks: bool) {
        self.forest.connected(peer, tag);
        self.spread_to_reached();
        if asks {
            self.tell_tag(peer, false);
        }
    }

    fn tell_tag(&mut self, peer: u8, asks: bool) {
        if self.forest.may_tell(peer) && self.config.partition == FIRST {
            self.say(peer, Message::Tag { tag: self.forest.tag(), asks });
        }
    }

    /// How it stands with the forest: `None` where there cannot be one, and where the log stands elsewhere.
    #[must_use]
    pub fn forest_status(&self) -> Option<ForestStatus> {
        let log = self.log.as_ref()?;
        let status = log.status();
        let matched = status.matched.iter();
        let matched: Vec<_> = matched.filter_map(|(member, at)| Some((server_of(*member)?, *at))).collect();
        self.forest.status(self.now_us, |member| log.is_fed(member), (status.last, &matched))
    }

    /// The group gives appends for all to those whom the forest reaches.
    fn spread_to_reached(&mut self) {
        if let Some(log) = self.log.as_mut().filter(|_| self.forest.may_be()) {
            log.group().spread_to(self.forest.reached());
        }
    }

    /// Those whose tags are not known are asked: they were not listened to when they told them, or it was lost.
    pub(super) fn ask_tags(&mut self) {
        for peer in self.forest.unknown() {
            if self.is_connected(peer) {
                self.tell_tag(peer, true);
            }
        }
    }

    /// The roots of the trees, as far as this server knows.
    #[must_use]
    pub fn roots(&self) -> Vec<u8> {
        self.forest.roots()
    }

    /// At the leader: whether there is a forest down which entries go.
    #[must_use]
    pub fn spreads(&self) -> bool {
        self.forest.spreads()
    }

    /// At the leader of a forest: so much is on its way down the trees that the next entry had better wait, and grow, until
    /// some of that is committed. Who is behind a slow server gets what it lacks from its neighbours, so it is the
    /// majority that counts.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.forest.is_congested()
    }

    /// Who leads has changed.
    pub(super) fn forest_is_led(&mut self, term: u64, leader: u64, role: Role) {
        let Some(log) = self.log.as_mut().filter(|_| self.forest.is_on()) else { return };
        if role == Role::Leader {
            self.forest.leads(self.now_us, term, log.group().last());
        } else {
            self.forest.follows(self.now_us, term, server_of(leader));
        }
        log.group().spread_to(self.forest.reached());
    }

    /// Others are the members. There may be enough of them now, or too few.
    pub(super) fn forest_has(&mut self, members: &Members) {
        let Some(log) = self.log.as_mut().filter(|_| self.forest.is_on()) else { return };
        self.forest.members_are(self.now_us, members);
        let status = log.status();
        if status.role == Role::Leader {
            self.forest.leads(self.now_us, status.term, log.group().last());
        }
        log.group().spread_to(self.forest.reached());
    }

    /// Whether what the group says to another member goes to it by way of the forest: that this one has the leader's log up
    /// to somewhere.
    pub(super) fn goes_up(&mut self, to: u8, message: &GroupMessage) -> bool {
        let position = message.acknowledges().filter(|_| self.forest.may_be());
        position.is_some_and(|position| self.forest.acknowledge(to, message.term(), position))
    }

    /// Does what has come of the forest. It is asked for when all that had come is handed in, and all of that is polled:
    /// then what many servers have acknowledged goes on in one frame. Returns whether something may have come of it, to be
    /// polled again.
    pub fn run_forest(&mut self) -> bool {
        if self.forest.is_idle() {
            return false;
        }
        let Some(log) = &mut self.log else { return false };
        let mut frames = Vec::new();
        loop {
            let todo = self.forest.take(self.now_us, log.group());
            if todo.is_empty() {
                break;
            }
            for forested in todo {
                match forested {
                    Forested::Send(to, frame) => frames.push((to, frame)),
                    // It may have been on its way for longer than its leader has lived, and who took it would hold fast to
                    // that one, and elect nobody for an election timeout.
                    Forested::Step(message) if self.election.has_lost(message.from(), self.now_us) => {}
                    Forested::Step(message) => {
                        self.forest.appends(false);
                        // What is refused shows in how far the log goes.
                        _ = log.group().step(message);
                    }
                    Forested::Acknowledged(term, items) => {
                        let group = log.group();
                        group.acknowledge(term, items.iter().map(|said| (said.member, said.position)));
                        group.confirm(term, items.iter().map(|said| (said.member, said.round)));
                    }
                }
            }
            self.forest.stepped(log.group());
        }
        for (to, frame) in frames {
            self.say(to, Message::Forest(frame));
        }
        true
    }
}
